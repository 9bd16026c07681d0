"""The metrics port, as Prometheus and Kubernetes ask it."""

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter

from stoop_worker.endpoints import serving
from stoop_worker.errors import ConfigError
from stoop_worker.health import Health
from tests.worker.test_health import Engine, Outage


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def health(engine: Engine) -> Health:
    return Health(engine, Outage(), lease=15.0)


@pytest.fixture
def address(health: Health) -> Iterator[str]:
    registry = CollectorRegistry()
    Counter("stoop_things", "Things", registry=registry).inc()
    with serving(0, registry, health) as port:
        yield f"http://127.0.0.1:{port}"


def get(address: str) -> tuple[int, str]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(address, timeout=10.0) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_prometheus_gets_the_metrics(address: str) -> None:
    status, body = get(f"{address}/metrics")
    assert status == 200
    assert "stoop_things_total 1.0" in body


@pytest.mark.parametrize("path", ["/", "/metric", "/metrics/", "/healthz/x", "/favicon.ico"])
def test_an_unknown_path_is_404_and_lists_the_known_ones(address: str, path: str) -> None:
    status, body = get(address + path)
    assert status == 404
    assert all(known in body for known in ("/metrics", "/healthz", "/readyz", "/startupz"))


def test_each_probe_reports_its_reason(address: str, health: Health, engine: Engine) -> None:
    assert get(f"{address}/healthz") == (200, "ok\n")
    assert get(f"{address}/startupz") == get(f"{address}/readyz") == (503, "the model is being loaded\n")
    health.started()
    health.claims_as("gpu-1-7")
    assert get(f"{address}/startupz") == (200, "ok\n")
    assert get(f"{address}/readyz") == (503, "the engine is being replaced\n")
    engine.running.set()
    assert get(f"{address}/readyz?verbose") == (200, "ok\n")
    engine.alive = False
    assert get(f"{address}/healthz") == (503, "the engine has ended\n")


def test_a_port_that_is_taken_is_a_fault_of_the_configuration(health: Health) -> None:
    with (
        socket.create_server(("", 0)) as taken,
        pytest.raises(ConfigError, match=r"STOOP_METRICS_PORT.*in use"),
        serving(taken.getsockname()[1], CollectorRegistry(), health),
    ):
        pytest.fail("it was served")


def test_without_a_port_nothing_is_served(health: Health) -> None:
    with serving(None, CollectorRegistry(), health) as port:
        assert port is None
