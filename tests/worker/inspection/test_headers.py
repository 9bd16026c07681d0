"""`stoop inspect` of a repository, against a server that speaks Hugging Face's protocol."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import torch
import typer
from click.testing import Result
from safetensors.torch import save_file
from typer.testing import CliRunner

from stoop_worker.inspection.command import command

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """One repository, and the bytes of each file that it has sent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sent: dict[str, int] = {}
        super().__init__(("127.0.0.1", 0), Answer)


class Answer(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if self.path.startswith("/api/models/some/model/revision/"):
            files = [{"rfilename": path.name, "size": path.stat().st_size} for path in self.server.folder.iterdir()]
            self.send(json.dumps({"id": "some/model", "sha": COMMIT, "siblings": files}).encode(), 200)
        elif self.path.startswith("/api/models/some/model/tree/"):
            paths = list(self.server.folder.iterdir())
            tree = [{"type": "file", "path": path.name, "size": path.stat().st_size, "oid": "0"} for path in paths]
            self.send(json.dumps(tree).encode(), 200)
        elif self.path.startswith(f"/some/model/resolve/{COMMIT}/"):
            self.send_file(self.server.folder / self.path.rpartition("/")[2])
        else:
            self.send(b"{}", 404)

    def send_file(self, path: Path) -> None:
        body, status = path.read_bytes(), 200
        if span := self.headers.get("range"):
            first, _, last = span.removeprefix("bytes=").partition("-")
            body, status = body[int(first) : int(last) + 1], 206
        if self.command == "GET":
            self.server.sent[path.name] = self.server.sent.get(path.name, 0) + len(body)
        self.send(body, status, etag=sha256(path.name.encode()).hexdigest())

    def send(self, body: bytes, status: int, etag: str = "0") -> None:
        self.send_response(status)
        headers = {"Content-Length": len(body), "ETag": etag, "X-Repo-Commit": COMMIT}
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def hub_of(folder: Path, tmp_path: Path, patch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub(folder) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{hub.server_port}"
        patch.setattr(huggingface_hub.constants, "ENDPOINT", address)
        template = address + "/{repo_id}/resolve/{revision}/{filename}"
        patch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        patch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        yield hub
        hub.shutdown()


def run(*arguments: object) -> Result:
    app = typer.Typer()
    app.command("inspect")(command)
    return CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke(app, list(map(str, arguments)))


def repository(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "moondream1"}')
    tensors = {"text.wte": torch.zeros(1000, 2000, dtype=torch.bfloat16), "vision.bias": torch.zeros(7)}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_only_headers_of_a_repository_s_weights_are_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = repository(tmp_path / "hub")
    with hub_of(folder, tmp_path, monkeypatch) as hub:
        remote = run(f"some/model@{COMMIT}", "--json")
    assert remote.exit_code == 0, remote.output
    assert hub.sent["model.safetensors"] < 110_000 < (folder / "model.safetensors").stat().st_size
    found: dict[str, Any] = json.loads(remote.stdout)
    local: dict[str, Any] = json.loads(run(folder, "--json").stdout)
    assert {**found, "name": ""} == {**local, "name": ""}
    assert found["name"] == f"some/model@{COMMIT}"


def test_a_repository_of_pickles_is_reported_with_its_download_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "hub"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    with (folder / "pytorch_model.bin").open("wb") as file:
        file.truncate(20_000_000)
    with hub_of(folder, tmp_path, monkeypatch) as hub:
        result = run(f"some/model@{COMMIT}")
    assert result.exit_code == 2 and "pytorch_model.bin, 0.02 GB" in result.output
    assert "pytorch_model.bin" not in hub.sent
