"""An object storage that misbehaves on request; `s3_server` is one that behaves."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from acktrail.config import TablesConfig


@dataclass(frozen=True, kw_only=True)
class RunningStorage:
    """A server in another process; see ``object_storage_process``."""

    address: str

    def config(self) -> TablesConfig:
        return TablesConfig(
            uri="s3://bucket/tables",
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
        """Change the server's behaviour; all keys it has."""
        with urlopen(f"{self.address}/_control/?{urlencode(behaviour)}", timeout=120) as answer:
            keys: list[str] = json.load(answer)
        return keys


@pytest.fixture
def object_storage() -> Iterator[RunningStorage]:
    """A running server with one empty bucket."""
    script = Path(__file__).with_name("object_storage_process.py")
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield RunningStorage(address=f"http://127.0.0.1:{process.stdout.readline().strip()}")
        process.stdin.close()
