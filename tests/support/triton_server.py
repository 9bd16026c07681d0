"""A real Triton Inference Server from the wheel `nvidia-pytriton`, on the CPU, with the model repository of `deploy/`.

The wheel has the server, its Python backend and a stub for each Python. The stub embeds an interpreter: it needs
the shared library of the same Python, and an environment with `numpy<2` and the client's dependencies.
"""

import contextlib
import os
import shutil
import signal
import sys
import sysconfig
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from stoop.demo.child_server import ChildServer, on_a_free_port

__all__ = ["MODEL_PACKAGES", "SERVER_PACKAGE", "TritonServer", "missing_library", "running_triton"]

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = ROOT / "deploy" / "triton" / "model_repository"

SERVER_PACKAGE = "nvidia-pytriton==0.7.0"
"""Installed without its requirements, which are for its own clients."""

MODEL_PACKAGES = ("numpy<2", "boto3", "msgspec", "pillow", "pydantic-settings", "redis[hiredis]>=6.4,<9")
"""The packages of the model: its tensors, and the requirements of the client."""


@dataclass(frozen=True)
class TritonServer:
    """A running server: `http` is an address, `grpc` a host and a port."""

    http: str
    grpc: str
    child: ChildServer

    @property
    def log(self) -> str:
        return self.child.log.read_text()


def missing_library() -> str | None:
    """Return the library that this Python lacks to be embedded; None if it lacks none."""
    library = _library()
    return None if library.is_file() else f"Triton's stub needs {library}, which this Python was built without"


@contextlib.contextmanager
def running_triton(folder: Path, python: Path, variables: Mapping[str, str]) -> Iterator[TritonServer]:
    """Run the server inside the `with`. `python` is that of the environment with both sets of packages."""
    packages = _site_packages(python)
    (packages / "stoop.pth").write_text(f"{ROOT / 'schemas'}\n{ROOT / 'producer'}\n")
    backends = _backends(folder, packages / "pytriton" / "tritonserver")
    # Python would write its cache into the project
    repository = shutil.copytree(REPOSITORY, folder / "models", ignore=shutil.ignore_patterns("__pycache__"))
    found = {name: value for name, value in variables.items() if not name.startswith("PYTHON")}
    libraries = [packages / "nvidia_pytriton.libs", _library().parent]
    environment = {
        **found,
        # the stub ignores PYTHONPATH, and takes the environment of the first Python on PATH
        "PATH": os.pathsep.join((str(python.parent), found["PATH"])),
        "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries)),
    }

    def start(port: int) -> TritonServer:
        http = f"http://127.0.0.1:{port}"
        child = ChildServer(
            name="tritonserver",
            command=[
                str(packages / "pytriton" / "tritonserver" / "bin" / "tritonserver"),
                f"--model-repository={repository}",
                f"--backend-directory={backends}",
                "--http-address=127.0.0.1",
                f"--http-port={port}",
                "--grpc-address=127.0.0.1",
                f"--grpc-port={port + 1}",
                "--allow-metrics=false",
                # by default it waits 30 s for live models
                "--exit-timeout-secs=3",
            ],
            log=folder / "triton.log",
            environment=environment,
            answers=lambda pid: _is_live(http),
            start_seconds=120,
        )
        child.start()
        return TritonServer(http, f"127.0.0.1:{port + 1}", child)

    server = on_a_free_port(start)
    try:
        yield server
    finally:
        server.child.end(signal.SIGTERM)


def _library() -> Path:
    name = sysconfig.get_config_var("INSTSONAME") or "libpython.so"
    return Path(sysconfig.get_config_var("LIBDIR") or "/usr/lib") / name


def _site_packages(python: Path) -> Path:
    return python.parent.parent / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def _backends(folder: Path, installed: Path) -> Path:
    """Lay the stub of this Python beside the backend, where the backend looks for it."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    stub = installed / "python_backend_stubs" / version / "triton_python_backend_stub"
    backend = shutil.copytree(installed / "backends" / "python", folder / "backends" / "python")
    shutil.copy(stub, backend / stub.name)
    return backend.parent


def _is_live(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/v2/health/live", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:  # nothing listens there yet
        return False
