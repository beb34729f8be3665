"""The Spark Connect server that stays up: ``acktrail run spark serve``."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import process_tree

__all__ = ["ConnectServer", "running_connect_server"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectServer:
    """`url`: what a client gives as its master; `token`: what its environment has."""

    url: str
    token: dict[str, str]
    pid: int

    def cpu_s(self) -> float:
        """Processor seconds so far of the server, its Java and its Python workers."""
        watch = process_tree.Watch()
        watch.look(self.pid)
        return watch.cpu_s


@contextmanager
def running_connect_server() -> Iterator[ConnectServer]:
    """On two local threads and a free port of this machine; ended with the block. Raises RuntimeError (it ended)."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    token = {"SPARK_CONNECT_AUTHENTICATE_TOKEN": secrets.token_hex(16)}
    command = [Path(sys.executable).with_name("acktrail"), "run", "spark", "serve", "--port", port]
    surroundings = {**os.environ, **token}
    process = subprocess.Popen(command, env=surroundings, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        if not (url := process.stdout.readline().strip()):
            raise RuntimeError(f"the Spark Connect server ended with exit code {process.wait()}")
        yield ConnectServer(url=url, token=token, pid=process.pid)
    finally:
        process.terminate()
        process.wait(60)
