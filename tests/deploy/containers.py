"""Containers of the images that `make images` built, on the host's network, by docker, podman or buildah."""

import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stoop.demo.child_server import ChildServer

__all__ = ["Engine", "answers_ok"]


@dataclass(frozen=True)
class Engine:
    """A program that runs containers; `variables` are those of every container, `mounts` are read-only."""

    name: str
    variables: Mapping[str, str]
    mounts: Mapping[Path, str]
    made: list[str] = field(default_factory=list)

    def remove(self) -> None:
        """Remove the containers that stay after their program has ended."""
        if self.made:
            self._buildah("rm", *self.made)

    def command(self, image: str, *arguments: str) -> list[str]:
        """Return the command line that runs `stoop` with these arguments in a new container."""
        options = [option for name, value in self.variables.items() for option in ("--env", f"{name}={value}")]
        options += [option for at, to in self.mounts.items() for option in ("--volume", f"{at}:{to}:ro")]
        program = shutil.which(self.name)
        assert program is not None, f"{self.name} is not installed"
        if self.name != "buildah":
            hardened = ["--rm", "--network", "host", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"]
            return [program, "run", *hardened, *options, image, *arguments]
        made = self._buildah("from", f"localhost/{image}")
        self.made.append(made)
        user = self._buildah("inspect", "--type", "image", "--format", "{{.OCIv1.Config.User}}", f"localhost/{image}")
        isolation = ["--isolation", os.environ.get("BUILDAH_ISOLATION", "chroot")]
        return [program, "run", *isolation, "--user", user, *options, made, "--", "stoop", *arguments]

    def run(self, image: str, *arguments: str) -> str:
        """Return the output of the command."""
        done = subprocess.run(self.command(image, *arguments), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def server(self, image: str, *arguments: str, log: Path, probe: str) -> ChildServer:
        """Return a container that is ready when `probe` answers 200; the caller starts and ends it."""
        return ChildServer(
            name=arguments[0],
            command=self.command(image, *arguments),
            log=log,
            environment=os.environ,
            answers=lambda pid: answers_ok(probe),
            start_seconds=120,
        )

    @staticmethod
    def _buildah(*arguments: str) -> str:
        done = subprocess.run(["buildah", *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return re.split(r"\s", done.stdout.strip())[-1]


def answers_ok(address: str) -> bool:
    """Return whether an address answers 200 now."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(address, timeout=5.0) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False
