"""A Spark Connect server that stays up, as ``start-connect-server.sh`` makes one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import process_tree

__all__ = ["ConnectServer", "running_connect_server"]

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_TRIES, _WAIT_S = 600, 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectServer:
    """`url`: what a client gives as its master."""

    url: str
    pid: int

    def cpu_s(self) -> float:
        """Processor seconds so far of the server and its Python workers."""
        watch = process_tree.Watch()
        watch.look(self.pid)
        return watch.cpu_s


@contextmanager
def running_connect_server() -> Iterator[ConnectServer]:
    """On two local threads and a free port of this machine; ended with the block."""
    port = _free_port()
    submit = Path(sys.executable).with_name("spark-submit")
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    pairs = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    command = [submit, "--master", "local[2]", "--class", _CLASS, *pairs, "spark-internal"]
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(process, port)
        yield ConnectServer(url=f"sc://127.0.0.1:{port}", pid=process.pid)
    finally:
        process.terminate()
        process.wait(60)


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    for _ in range(_TRIES):
        if process.poll() is not None:
            raise RuntimeError(f"the Spark Connect server ended with exit code {process.returncode}")
        with socket.socket() as found:
            if found.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(_WAIT_S)
    raise RuntimeError("the Spark Connect server does not answer")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
