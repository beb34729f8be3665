"""An S3 server with buckets in memory, in a process of its own, at a free port; it misbehaves on demand."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from acktrail.config import TablesConfig

__all__ = ["S3", "running_s3"]


@dataclass(frozen=True, kw_only=True)
class S3:
    """A running server. It believes every credential: rights are not its subject."""

    address: str

    def bucket(self, name: str) -> TablesConfig:
        """Tables in a new bucket."""
        with urlopen(Request(f"{self.address}/{name}", method="PUT"), timeout=120):
            pass
        return self.config(name)

    def config(self, name: str = "bucket") -> TablesConfig:
        """Tables in a bucket that may not be there; `bucket` is."""
        return TablesConfig(
            uri=f"s3://{name}/tables",
            options={
                "aws_endpoint": self.address,
                "aws_access_key_id": "AKIAEXAMPLEKEY",
                "aws_secret_access_key": "very-secret-key",
                "aws_region": "us-east-1",
                "aws_allow_http": "true",
                "max_retries": "1",
            },
        )

    def control(self, **behaviour: object) -> list[str]:
        """Change the server's behaviour; all keys of `bucket`, or of another that is named."""
        with urlopen(f"{self.address}/_control/?{urlencode(behaviour)}", timeout=120) as answer:
            keys: list[str] = json.load(answer)
        return keys

    def keys(self, name: str) -> list[str]:
        """Every object of a bucket."""
        return self.control(bucket=name)


@contextmanager
def running_s3() -> Iterator[S3]:
    """A server that ends with the block."""
    command = [sys.executable, str(Path(__file__).with_name("s3_process.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield S3(address=f"http://127.0.0.1:{process.stdout.readline().strip()}")
        process.stdin.close()
