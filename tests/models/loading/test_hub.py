"""A model by its id in a hub, through Hugging Face's own client and over HTTP: the hub is a server of this test."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

import huggingface_hub.constants
import pytest
import torch

from stoop_worker.errors import CheckpointError
from stoop_worker.models.moondream.model import load
from tests.support.tiny_model import tiny_moondream, write_checkpoint

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPOSITORY = "someone/tiny"


@dataclass
class Hub:
    """A repository with one commit; `fetched` are the files that clients have read."""

    folder: Path
    url: str = ""
    fetched: list[str] = field(default_factory=list)

    def answer(self, path: str) -> tuple[int, bytes, str]:
        """Return the status, the body and the entity tag of a path."""
        files = {each.name: each.read_bytes() for each in self.folder.iterdir()}
        api, resolve = f"/api/models/{REPOSITORY}", f"/{REPOSITORY}/resolve/{COMMIT}/"
        if path == f"{api}/revision/{COMMIT}":
            facts = {"id": REPOSITORY, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
            return 200, json.dumps(facts).encode(), ""
        if path == f"{api}/tree/{COMMIT}":
            tree = [
                {"type": "file", "path": name, "size": len(body), "oid": sha1(body).hexdigest()}
                for name, body in files.items()
            ]
            return 200, json.dumps(tree).encode(), ""
        name = path.removeprefix(resolve)
        if name not in files:
            return 404, b"{}", ""
        return 200, files[name], sha1(files[name]).hexdigest()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    folder = write_checkpoint(tmp_path / "repository", dtype=torch.float32)
    (folder / "training_notes.md").write_text("nobody needs this")
    hub = Hub(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(b"")

        def do_GET(self) -> None:
            self._answer(None)

        def _answer(self, sent: bytes | None) -> None:
            path = unquote(urlsplit(self.path).path)
            status, body, tag = hub.answer(path)
            if sent is None and tag:
                hub.fetched.append(path.rsplit("/", 1)[1])
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Type", "application/octet-stream" if tag else "application/json")
            self.send_header("X-Repo-Commit", COMMIT)
            if tag:
                self.send_header("ETag", f'"{tag}"')
            self.end_headers()
            self.wfile.write(body if sent is None else sent)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    constants = huggingface_hub.constants
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    yield hub
    server.shutdown()
    server.server_close()


def test_a_model_loads_by_its_id_and_is_kept(hub: Hub) -> None:
    for _ in range(2):  # the second time from the cache
        loaded = load(REPOSITORY, device="cpu", dtype=torch.float32, revision=COMMIT)
        assert torch.equal(loaded.weights.text.wte, tiny_moondream().weights.text.wte)
        assert loaded.tokenizer.tokenize("a red ring") == tiny_moondream().tokenizer.tokenize("a red ring")
    assert sorted(hub.fetched) == ["config.json", "model.safetensors", "tokenizer.json"]


def test_a_commit_that_the_hub_does_not_know_is_reported(hub: Hub) -> None:
    other = COMMIT[::-1]
    with pytest.raises(CheckpointError, match=f"cannot download {REPOSITORY} at {other}"):
        load(REPOSITORY, device="cpu", dtype=torch.float32, revision=other)
