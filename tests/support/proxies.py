"""Reverse proxies of other projects as child processes, with the time limits and buffers that they have by default."""

import contextlib
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoop.demo.child_server import ChildServer, on_a_free_port

__all__ = ["PROXIES", "running_proxy"]

# settings for a proxy of the whole machine are left out: its user, its log and its own port
_NGINX = """
daemon off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  gzip on;
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass {address}; }}
  }}
}}
"""
# the defaults of Debian's package
_HAPROXY = """
defaults
  mode http
  timeout connect 5000
  timeout client 50000
  timeout server 50000
frontend callers
  bind 127.0.0.1:{port}
  default_backend gateways
backend gateways
  server one {host}
"""
_CADDY = """
{{
  admin off
}}
http://127.0.0.1:{port} {{
  reverse_proxy {host}
}}
"""

PROXIES = {
    "nginx": (_NGINX, ("-c", "{file}", "-p", "{folder}", "-e", "{folder}/error.log")),
    "haproxy": (_HAPROXY, ("-db", "-f", "{file}")),
    "caddy": (_CADDY, ("run", "--adapter", "caddyfile", "--config", "{file}")),
}


@contextlib.contextmanager
def running_proxy(name: str, folder: Path, address: str) -> Iterator[str]:
    """Run a proxy before the server at an address such as http://127.0.0.1:8000; yield the proxy's own address.

    Skips the test if this machine does not have the program.
    """
    # Debian keeps them in a folder that only root has on its path
    program = shutil.which(name, path=os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"]))
    if program is None:
        pytest.skip(f"no {name} on this machine")
    config, flags = PROXIES[name]
    file = folder / "proxy.conf"

    def start(port: int) -> tuple[ChildServer, int]:
        places = {"folder": folder, "file": file, "port": port, "address": address, "host": address[len("http://") :]}
        file.write_text(config.format(**places))
        server = ChildServer(
            name=name,
            command=[program, *(flag.format(**places) for flag in flags)],
            log=folder / f"{name}.log",
            environment={**os.environ, "HOME": str(folder)},
            answers=lambda pid: _listens(port),
        )
        server.start()
        return server, port

    server, port = on_a_free_port(start)
    yield f"http://127.0.0.1:{port}"
    server.end(signal.SIGKILL)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    return False
