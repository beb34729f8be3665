"""An S3 server with buckets in memory: moto, in a process of its own, at a free port."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

from acktrail.config import TablesConfig

__all__ = ["S3", "running_s3"]

_ONE_AT_A_TIME = """
import threading
from moto import server

lock, run_simple = threading.Lock(), server.run_simple

def run(host, port, application, **options):
    def one_at_a_time(environment, start_response):
        with lock:
            return [b"".join(application(environment, start_response))]
    run_simple(host, port, one_at_a_time, **options)

server.run_simple = run
server.main(["-p", "0"])
"""
"""Two requests at once could both find that an object is not there: moto's conditional writes are not atomic."""
_ADDRESS = re.compile(r"Running on (http://127\.0\.0\.1:\d+)")


class S3:
    """A running server. It believes every credential: rights are not its subject."""

    def __init__(self, address: str) -> None:
        self._address = address

    def bucket(self, name: str) -> TablesConfig:
        """Tables in a new bucket."""
        with urlopen(Request(f"{self._address}/{name}", method="PUT"), timeout=120):
            pass
        return self.config(name)

    def config(self, name: str) -> TablesConfig:
        """Tables in a bucket that may not be there."""
        return TablesConfig(
            uri=f"s3://{name}/tables",
            options={
                "aws_endpoint": self._address,
                "aws_access_key_id": "AKIAEXAMPLEKEY",
                "aws_secret_access_key": "example-secret",
                "aws_region": "us-east-1",
                "aws_allow_http": "true",
            },
        )

    def keys(self, name: str) -> list[str]:
        """Every object of a bucket."""
        with urlopen(f"{self._address}/{name}?list-type=2", timeout=120) as answer:
            return re.findall(r"<Key>([^<]+)</Key>", answer.read().decode())


@contextmanager
def running_s3() -> Iterator[S3]:
    """A server that ends with the block."""
    command = [sys.executable, "-u", "-c", _ONE_AT_A_TIME]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout is not None
        try:
            said: list[str] = []
            for line in server.stdout:
                said.append(line)
                if found := _ADDRESS.search(line):
                    break
            else:
                raise AssertionError("".join(said))
            with _unread(server):
                yield S3(found[1])
        finally:
            server.terminate()


@contextmanager
def _unread(server: subprocess.Popen[str]) -> Iterator[None]:
    """What it logs of every request is thrown away, so that it never waits for a reader."""
    assert server.stdout is not None
    reader = threading.Thread(target=lambda: [None for _ in server.stdout or ()], daemon=True)
    reader.start()
    yield
