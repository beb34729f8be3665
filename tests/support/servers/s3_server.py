"""An S3 server that checks signatures and rights: versitygw on a folder, behind a proxy that fails on request.

The proxy keeps the addresses: the server behind it can be killed and started again. It listens at a Unix socket whose
name no other process has, so that no two servers ever race for a port.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from drivers.own_process import printed
from extras.embedded.processes import eventually
from servers.certificates import Authority

from acktrail.config import TablesConfig, cache_folder
from acktrail_embedded.process.guarded_process import GuardedProcess

__all__ = ["REGION", "S3", "Account", "FaultyProxy", "running_s3"]

REGION = "eu-test-1"
_MODULE = "github.com/versity/versitygw/cmd/versitygw"
_VERSION = "v1.8.0"
_BUILD_S = 590
_ALWAYS = 1_000_000
_QUICK_BUILD = ("-p=2", "-ldflags=-s -w", "-gcflags=all=-N -l -dwarf=false")
"""Without the compiler's optimisations: 60 % of the processor time, and tests ask this server for little."""


@cache
def versitygw() -> Path:
    """The server's program, built once by Go's own tool and kept in the user's cache; skips where that cannot be."""
    folder = cache_folder() / f"versitygw-{_VERSION}"
    program = folder / "versitygw"
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        pytest.skip(f"no S3 server that checks signatures: `go` is not installed, which builds {_MODULE}@{_VERSION}")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _build(go, program)
    return program


def _build(go: str, program: Path) -> None:
    parts = program.parent / "parts"
    changes = {"GOBIN": str(parts), "GOTOOLCHAIN": "local", "GOFLAGS": ""}
    command = [go, "install", *_QUICK_BUILD, f"{_MODULE}@{_VERSION}"]
    try:
        subprocess.run(command, env={**os.environ, **changes}, check=True, capture_output=True, timeout=_BUILD_S)
    except (subprocess.SubprocessError, OSError) as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip().splitlines()
        reason = said[-1] if said else type(error).__name__
        pytest.skip(f"no S3 server that checks signatures: `{' '.join(command)}` failed: {reason}")
    (parts / "versitygw").rename(program)


@dataclass(frozen=True, slots=True)
class Account:
    """An access key and its secret."""

    access: str
    secret: str = field(repr=False)

    @property
    def options(self) -> dict[str, str]:
        return {"aws_access_key_id": self.access, "aws_secret_access_key": self.secret}


class FaultyProxy:
    """The process of ``faulty_proxy_process``."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.port, self.direct_port, self.tls_port = json.loads(self._out.readline())

    @property
    def _out(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    def tell(self, **command: object) -> int:
        """Send a command; how many requests faults have hit."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        hits: int = json.loads(self._out.readline())["hits"]
        return hits

    def fail(self, action: str, path: str = "", *, method: str = "PUT", times: int = 1, **more: object) -> None:
        """One fault in place of all others: `times` requests to a `path` that matches. No `method`: of any."""
        fault = {"action": action, "path": path, "method": method, "times": times, **more}
        self.tell(faults=[fault])

    @property
    def hits(self) -> int:
        return self.tell()

    def heal(self) -> int:
        """No faults any more; how many requests they hit. Held requests continue, forgotten ones end."""
        hits = self.tell(release=True)
        self.tell(faults=[])
        return hits


@dataclass
class S3:
    """A running server, in its own `folder`. Requests to `address` go through faults."""

    folder: Path
    proxy: FaultyProxy
    root: Account = field(default_factory=lambda: Account("AKIAROOT", secrets.token_hex(16)))
    reader: Account = field(default_factory=lambda: Account("AKIAREADER", secrets.token_hex(16)))
    process: GuardedProcess | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.proxy.port}"

    @property
    def direct_address(self) -> str:
        """Past the faults."""
        return f"http://127.0.0.1:{self.proxy.direct_port}"

    @property
    def tls_address(self) -> str:
        """Past the faults, with a certificate of its own authority (``certificate``)."""
        return f"https://localhost:{self.proxy.tls_port}"

    @property
    def certificate(self) -> Path:
        return self.folder / "certificate.pem"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        name = f"acktrail-{secrets.token_hex(8)}"
        self.process = self._process(name).start()
        self.proxy.tell(upstream=name)
        assert eventually(self.answers, within_s=30), (self.folder / "log").read_text(errors="replace")

    def kill(self) -> None:
        """End it as a crash would; what it stored stays."""
        assert self.process is not None
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()

    def answers(self) -> bool:
        """Whether a server answers that knows our key."""
        try:
            self.client().list_buckets()
        except (BotoCoreError, ClientError):
            return False
        return True

    def client(self) -> Any:
        """boto3's client, past the faults."""
        return boto3.client(
            "s3",
            endpoint_url=self.direct_address,
            region_name=REGION,
            aws_access_key_id=self.root.access,
            aws_secret_access_key=self.root.secret,
            config=Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=20),
        )

    def bucket(self, name: str, **options: str) -> TablesConfig:
        """Tables in a new bucket, which the account `reader` may read."""
        client = self.client()
        client.create_bucket(Bucket=name)
        allowed = {
            "Effect": "Allow",
            "Principal": [self.reader.access],
            "Action": ["s3:GetObject", "s3:ListBucket"],
            "Resource": [f"arn:aws:s3:::{name}", f"arn:aws:s3:::{name}/*"],
        }
        policy = {"Version": "2012-10-17", "Statement": [allowed]}
        client.put_bucket_policy(Bucket=name, Policy=json.dumps(policy))
        return self.config(name, **options)

    def keys(self, name: str) -> list[str]:
        """Every object of a bucket."""
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=name)
        return [found["Key"] for page in pages for found in page.get("Contents", ())]

    def refuses(self, code: str) -> None:
        """Every request is answered by 403 and this error, until the network is whole again."""
        self.proxy.fail("status", method="", times=_ALWAYS, code=403, error=code)

    def ignores_conditions(self) -> None:
        """Every put seems to succeed, whatever its condition, until the network is whole again."""
        self.proxy.fail("agree_after", times=_ALWAYS)

    def config(self, name: str, account: Account | None = None, **options: str) -> TablesConfig:
        """Tables in a bucket that may not be there, with little patience."""
        common = {
            "aws_endpoint": self.address,
            "aws_region": REGION,
            "aws_allow_http": "true",
            "max_retries": "2",
            "retry_timeout": "3s",
            "timeout": "3s",
        }
        return TablesConfig(uri=f"s3://{name}/tables", options={**common, **(account or self.root).options, **options})

    def direct(self, config: TablesConfig) -> TablesConfig:
        """The same tables, past the faults."""
        return TablesConfig(uri=config.uri, options={**config.options, "aws_endpoint": self.direct_address})

    def _add_reader(self) -> None:
        """Make the account that may read what a bucket's policy says."""
        printed(
            *(versitygw(), "admin", "--access", self.root.access, "--secret", self.root.secret),
            *("--endpoint-url", self.direct_address, "--region", REGION),
            *("create-user", "--access", self.reader.access, "--secret", self.reader.secret, "--role", "user"),
        )

    def _process(self, name: str) -> GuardedProcess:
        for part in ("data", "accounts"):
            (self.folder / part).mkdir(exist_ok=True)
        command = [
            *(str(versitygw()), "--port", f"@{name}", "--region", REGION, "--quiet"),
            *("--iam-dir", str(self.folder / "accounts")),
            *("posix", str(self.folder / "data")),
        ]
        accounts: Mapping[str, str] = {"ROOT_ACCESS_KEY": self.root.access, "ROOT_SECRET_KEY": self.root.secret}
        return GuardedProcess(command, log_path=self.folder / "log", env={**os.environ, **accounts}, grace_s=2)


@contextmanager
def running_s3(folder: Path) -> Iterator[S3]:
    """A server on `folder` that ends with the block; skips where it cannot be built, or has no place for ETags. They
    are attributes of the files: in files of their own (its option ``--sidecar``) an ETag can be read with another
    version's data."""
    versitygw()
    try:
        os.setxattr(folder, "user.acktrail", b"")
    except OSError as error:
        pytest.skip(f"no S3 server that checks signatures: {folder} takes no extended attributes ({error.strerror})")
    with _proxy(folder) as proxy:
        server = S3(folder, proxy)
        try:
            server.start()
            server._add_reader()
            yield server
        finally:
            server.stop()


@contextmanager
def _proxy(folder: Path) -> Iterator[FaultyProxy]:
    script = Path(__file__).with_name("faulty_proxy_process.py")
    own = str(Authority.make(folder, "certificate").signed("server", address="localhost"))
    command = [sys.executable, str(script), own, own]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield FaultyProxy(process)
        finally:
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()
