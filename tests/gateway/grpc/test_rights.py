"""Keys, limits, TLS and the options of the command."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from typer.testing import CliRunner

from stoop.cli.app import app
from stoop.gateway.grpc.messages import GRPC_NAME
from stoop.gateway.grpc.rpcs import RPCS, STREAM
from tests.examples.conftest import Deployment
from tests.gateway.conftest import GRPC, StartGateway
from tests.gateway.grpc.client import MODEL, SECONDS, Stream, grpc_client, inputs, refused, tensor, text_of, triton
from tests.gateway.test_keys import keys
from tests.support.authority import Authority

PUBLIC = {"ServerLive", "ServerReady"}


def test_only_the_public_rpcs_answer_without_a_key(
    streaming_deployment: Deployment, start_gateway: StartGateway, tmp_path: Path
) -> None:
    file = tmp_path / "keys.json"
    secret = keys("new", "ann", "--file", str(file))
    gateway = start_gateway(streaming_deployment, "--keys", str(file), *GRPC)
    with grpc.insecure_channel(gateway.grpc) as channel:
        for rpc in (*RPCS, STREAM):
            for given in (None, "Bearer", f"Bearer {secret}x"):
                metadata = None if given is None else (("authorization", given),)
                if rpc is STREAM:
                    call = channel.stream_stream(f"/{GRPC_NAME}/{rpc.name}")(iter([b""]), metadata=metadata)
                else:
                    call = channel.unary_unary(f"/{GRPC_NAME}/{rpc.name}").future(b"", metadata=metadata)
                expected = "OK" if rpc.name in PUBLIC else "UNAUTHENTICATED"
                assert call.code().name == expected, (rpc.name, given)
                assert rpc.name in PUBLIC or "give an API key" in call.details() or given is not None
    assert {rpc.name for rpc in RPCS if rpc.scope is None} == PUBLIC
    with grpc_client(gateway.grpc) as client:
        answered = client.infer(
            MODEL, inputs("query", question="tell 1"), headers={"authorization": f"Bearer {secret}"}
        )
        assert text_of(answered)["answer"] == "word-0"
    assert secret not in gateway.log


def test_a_key_opens_its_own_lanes_and_models_and_its_tenant_goes_along(
    streaming_deployment: Deployment, start_gateway: StartGateway, tmp_path: Path
) -> None:
    path = ("--file", str(tmp_path / "keys.json"))
    ann, bob, meter = (
        {"authorization": f"Bearer {keys('new', name, *options, *path)}"}
        for name, *options in (
            ("ann", "--tenant", "a", "--lanes", "bulk"),
            ("bob", "--models", "other"),
            ("meter", "--scopes", "metrics"),
        )
    )
    gateway = start_gateway(streaming_deployment, "--keys", path[1], *GRPC)
    asked = inputs("query", question="tell 1")
    with grpc_client(gateway.grpc) as client:
        client.infer(MODEL, asked, headers=ann)
        line = next(line for line in gateway.lines if line.get("route") == "ModelInfer")
        assert (line["key"], line["tenant"], line["lane"], line["status"]) == ("ann", "a", "bulk", "OK")
        for headers, given, expected in (
            (ann, [*asked, tensor("LANE", "interactive")], "lane_forbidden"),
            (bob, asked, "model_forbidden"),
            (meter, asked, "missing_scope"),
        ):
            status, message = refused(client.infer, MODEL, given, headers=headers)
            assert status == "PERMISSION_DENIED" and message.startswith(expected)
        assert client.get_model_repository_index(headers=bob, as_json=True) == {}
        assert client.is_model_ready(MODEL, headers=ann) and not client.is_model_ready(MODEL, headers=bob)
        assert client.get_model_metadata(MODEL, headers=ann).name == MODEL
        for read in (client.get_model_metadata, client.get_model_config):
            status, message = refused(read, MODEL, headers=bob)
            assert status == "PERMISSION_DENIED" and message.startswith("model_forbidden")
        stream = Stream(client, headers=bob)
        stream.ask(asked)
        with pytest.raises(Exception, match="model_forbidden"):
            stream.next()


def test_limits_are_reported_with_the_time_to_wait(
    streaming_deployment: Deployment, start_gateway: StartGateway, tmp_path: Path
) -> None:
    file = tmp_path / "keys.json"
    secret = keys("new", "ann", "--tenant", tmp_path.name, "--requests-per-minute", "2", "--file", str(file))
    gateway = start_gateway(streaming_deployment, "--keys", str(file), *GRPC)
    headers = {"authorization": f"Bearer {secret}"}
    with grpc_client(gateway.grpc) as client, grpc.insecure_channel(gateway.grpc) as channel:
        stream = Stream(client, headers=headers)
        stream.ask(inputs("query", question="tell 1"))
        assert stream.until_final()
        call = channel.unary_unary(f"/{GRPC_NAME}/ServerMetadata").with_call
        _, accepted = call(b"", metadata=tuple(headers.items()))
        assert dict(accepted.trailing_metadata())["x-ratelimit-remaining-requests"] == "0"
        with pytest.raises(grpc.RpcError) as caught:
            call(b"", metadata=tuple(headers.items()))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        trailing = dict(caught.value.trailing_metadata())
        assert trailing["x-stoop-error-code"] == "rate_limit_exceeded" and int(trailing["retry-after-ms"]) > 0
        stream.ask(inputs("query", question="tell 1"))
        with pytest.raises(Exception, match=r"rate_limit_exceeded.*try again in"):
            stream.next()
        assert client.is_server_live(), "public calls have no limit"


def test_the_key_is_checked_before_a_message_is_read(
    streaming_deployment: Deployment, start_gateway: StartGateway, tmp_path: Path
) -> None:
    """The callers send no message, and do not end their streams."""
    file = tmp_path / "keys.json"
    keys("new", "ann", "--file", str(file))
    gateway = start_gateway(streaming_deployment, "--keys", str(file), *GRPC)
    silent = threading.Event()

    def nothing() -> Iterator[bytes]:
        silent.wait(SECONDS)
        yield from ()

    with grpc.insecure_channel(gateway.grpc) as channel:
        for rpc in RPCS:
            call = channel.stream_unary(f"/{GRPC_NAME}/{rpc.name}").future(nothing())
            assert call.code().name == ("OK" if rpc.name in PUBLIC else "UNAUTHENTICATED"), rpc.name
        silent.set()


def test_a_call_without_a_message_is_refused(streaming_deployment: Deployment, start_gateway: StartGateway) -> None:
    gateway = start_gateway(streaming_deployment, "--open", *GRPC)
    with grpc.insecure_channel(gateway.grpc) as channel:
        call = channel.stream_unary(f"/{GRPC_NAME}/ModelInfer").future(iter(()))
        assert call.code().name == "INVALID_ARGUMENT" and "has no message" in call.details()


def test_a_message_is_bounded(streaming_deployment: Deployment, start_gateway: StartGateway) -> None:
    gateway = start_gateway(streaming_deployment, "--open", "--max-json-bytes", "2000", *GRPC)
    with grpc_client(gateway.grpc) as client:
        assert refused(client.infer, MODEL, inputs("query", question="x" * 3000))[0] == "RESOURCE_EXHAUSTED"
        assert text_of(client.infer(MODEL, inputs("query", question="tell 1")))["answer"] == "word-0"
    assert "Traceback" not in gateway.log


def test_tls(streaming_deployment: Deployment, start_gateway: StartGateway, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.server("localhost")
    both = str(tmp_path / "localhost.pem")
    gateway = start_gateway(
        streaming_deployment, "--open", "--grpc-certificate", both, "--grpc-key", both, "--grpc", "localhost:0"
    )
    with grpc_client(gateway.grpc, ssl=True, root_certificates=str(authority.certificate)) as client:
        assert client.is_server_ready()
        assert text_of(client.infer(MODEL, inputs("query", question="tell 2")))["answer"] == "word-0 word-1"
    with triton.InferenceServerClient(gateway.grpc) as client:
        assert refused(client.is_server_live, client_timeout=SECONDS)[0] == "UNAVAILABLE"


def test_wrong_options_are_refused_with_advice(tmp_path: Path) -> None:
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("rubbish")
    for options, expected in (
        (["--grpc", "nowhere"], "must be HOST:PORT, [IPv6]:PORT or a port"),
        (["--grpc", "::1:50051"], "must be HOST:PORT, [IPv6]:PORT or a port"),
        (["--grpc", "127.0.0.1:70000"], "must be HOST:PORT, [IPv6]:PORT or a port"),
        (["--grpc-key", "key.pem"], "need --grpc HOST:PORT"),
        (["--grpc", "0", "--grpc-key", "key.pem"], "belong together"),
        (["--grpc", "0", "--grpc-key", str(rubbish), "--grpc-certificate", str(rubbish)], "cannot be used"),
        (["--grpc", "0", "--grpc-key", "none.pem", "--grpc-certificate", "none.pem"], "No such file"),
        (["--grpc", "203.0.113.1:0"], "choose another --grpc"),
    ):
        done = CliRunner().invoke(app, ["serve", "--open", *options])
        assert done.exit_code == 2 and expected in done.output, (options, done.output)


# a process of its own, in which gRPC is not installed
WITHOUT = """
import sys
sys.modules["grpc"] = None
import stoop.gateway.server
from stoop.__main__ import main
sys.argv = ["stoop", "serve", "--open", "--grpc", "0"]
main()
"""


def test_without_grpc_the_gateway_is_as_ever_and_the_option_names_the_extra() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    assert (done.returncode, "pip install 'stoop[grpc]'" in done.stderr) == (2, True), done.stderr
