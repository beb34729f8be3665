"""One small object that several processes write: a write lands only where no other write came since the read before it.

In a bucket this is a conditional put (``If-None-Match: *`` and ``If-Match``, Google's generations, Azure's ETags). A
folder has no such thing: obstore's local store can create a file only if it is absent, but not replace one only if it
is unchanged. There a lock file beside it is locked (``flock``) while the file is compared and replaced by a rename. The
lock ends with its process. It holds between processes of one machine, and on NFS from version 4 on; where several
machines share a folder in another way, use a bucket.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError, MissingDependency, RetryableError
from acktrail.tables.delta.storage_credentials import uses_profile
from acktrail.tables.delta.storage_errors import storage_failure
from acktrail.tables.delta.table_place import TableRoot, table_root

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_LOCK_S: Final = 5.0
_RETRIES: Final = 2
_PATIENCE: Final = dt.timedelta(seconds=5)
"""For a request and for all its retries: a lease that cannot be renewed soon is not renewed in time."""
_TICK_S: Final = 0.02
_NOBODYS: Final = '"00000000000000000000000000000000"'
"""An ETag that no object has."""
_CLIENT: Final = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "http1_only",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "timeout",
        "user_agent",
    }
)
"""Options of the connection, with or without the storage's prefix."""
_PREFIXES: Final = ("aws_", "google_", "azure_storage_", "azure_")
_OF_DELTA_RS: Final = frozenset(
    {
        "allow_unsafe_rename",
        "assume_role_arn",
        "ec2_metadata_disabled",
        "ec2_metadata_timeout",
        "force_credential_load",
        "iam_role_arn",
        "iam_role_session_name",
        "max_retries",
        "profile",
        "retry_timeout",
        "s3_addressing_style",
        "s3_allow_unsafe_rename",
        "s3_assume_role_arn",
        "s3_get_internal_server_error_retries",
        "s3_locking_provider",
        "s3_pool_idle_timeout_seconds",
        "s3_role_session_name",
        "sts_pool_idle_timeout_seconds",
    }
)
"""Options that delta-rs has beyond those of the storages."""
_honest: set[str] = set()
"""Roots in buckets that were seen to refuse a wrong ETag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectVersion:
    """What an object held when it was read or written; `marks` identify this version."""

    data: bytes
    marks: Mapping[str, str] = field(default_factory=dict)


class ConditionalObject(Protocol):
    """Raises (both methods): ConfigurationError, RetryableError: the storage refused or failed; of a write it is not
    known then whether it landed."""

    def read(self) -> ObjectVersion | None:
        """What is there; None: nothing."""

    def write(self, data: bytes, *, over: ObjectVersion | None) -> ObjectVersion | None:
        """Put `data` in the place of `over` (None: of nothing); None: something else is there, and stays."""


def conditional_object(config: TablesConfig, path: str) -> ConditionalObject:
    """The object at `path` under the root of the tables."""
    root = table_root(config)
    return FolderObject(Path(root.uri, path)) if root.is_local else BucketObject(root, path)


class FolderObject:
    """A file of this machine."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> ObjectVersion | None:
        with self._translated():
            try:
                return ObjectVersion(data=self._file.read_bytes())
            except FileNotFoundError:
                return None

    def write(self, data: bytes, *, over: ObjectVersion | None) -> ObjectVersion | None:
        with self._translated(), self._locked():
            now = self.read()
            if (now and now.data) != (over and over.data):
                return None
            fresh = self._file.with_suffix(".new")
            with fresh.open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            fresh.replace(self._file)
            return ObjectVersion(data=data)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        until = time.monotonic() + _LOCK_S
        with self._file.with_suffix(".lock").open("a") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise RetryableError(
                            f"{self._file}: another process holds its lock",
                            hint="end a worker that hangs, then run again",
                        ) from None
                    time.sleep(_TICK_S)
            yield

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise storage_failure(error, str(self._file)) from None


class BucketObject:
    """An object of a bucket, through obstore."""

    def __init__(self, root: TableRoot, path: str) -> None:
        self._root, self._path = root, path
        self._opened: ObjectStore | None = None

    def read(self) -> ObjectVersion | None:
        import obstore

        with self._translated():
            try:
                found = obstore.get(self._store, self._path)
                return ObjectVersion(data=bytes(found.bytes()), marks=_marks(found.meta))
            except FileNotFoundError:
                return None

    def write(self, data: bytes, *, over: ObjectVersion | None) -> ObjectVersion | None:
        marks = self._put(data, "create" if over is None else dict(over.marks))
        if marks is None:
            return None
        self._ensure_honest(data)
        return ObjectVersion(data=data, marks=marks)

    def _put(self, data: bytes, mode: Any) -> Mapping[str, str] | None:
        """The marks of the version that was put; None: the condition does not hold."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with self._translated():
            try:
                return _marks(obstore.put(self._store, self._path, data, mode=mode, use_multipart=False))
            except (AlreadyExistsError, PreconditionError):
                return None
            except FileNotFoundError as error:  # the object to replace, or else the bucket
                if mode == "create" or "NoSuchBucket" in str(error):
                    raise
                return None

    def _ensure_honest(self, data: bytes) -> None:
        """See that a put with a wrong ETag fails, once a process and root; else two workers would have one lease."""
        if self._root.uri in _honest:
            return
        if self._put(data, {"e_tag": _NOBODYS, "version": "0"}) is not None:
            raise ConfigurationError(
                f"tables at {self._root.shown}: the storage ignores conditional writes (If-Match)",
                hint="run one worker at a time on these tables, without a lease",
                data={"root": self._root.shown},
            )
        _honest.add(self._root.uri)

    @property
    def _store(self) -> ObjectStore:
        if self._opened is None:
            self._opened = _open(self._root)
        return self._opened

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            raise storage_failure(error, self._root.shown) from None


def _open(root: TableRoot) -> ObjectStore:
    from obstore.store import from_url

    options = root.options or {}
    config, client = _split({"timeout": f"{_PATIENCE.seconds}s", **options})
    retries = {"max_retries": _RETRIES, "retry_timeout": _PATIENCE}
    arguments: dict[str, Any] = {"config": config, "client_options": client, "retry_config": retries}
    if uses_profile(root.uri, options):
        arguments["credential_provider"] = _profile(root.shown)
    return from_url(root.uri, **arguments)


def _split(options: Mapping[str, str]) -> tuple[dict[str, str], Any]:
    """delta-rs's `options` as obstore's: those of the storage, those of the connection."""
    config: dict[str, str] = {}
    client: dict[str, Any] = {}
    for name, value in options.items():
        lower = name.lower()
        bare = next((lower.removeprefix(each) for each in _PREFIXES if lower.startswith(each)), lower)
        if bare in _CLIENT:
            client[bare] = value
        elif bare not in _OF_DELTA_RS:
            config[lower] = value
    return config, client


def _profile(shown: str) -> Any:
    """obstore reads no profiles: boto3 does."""
    try:
        from botocore.exceptions import BotoCoreError
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise MissingDependency(
            "a lease cannot use a profile's credentials without boto3",
            hint="pip install boto3, or put aws_access_key_id and aws_secret_access_key into the file of options",
        ) from None
    try:
        return Boto3CredentialProvider()
    except (BotoCoreError, ValueError) as error:
        raise ConfigurationError(
            f"tables at {shown}: the profile gives no credentials ({type(error).__name__})",
            hint="check AWS_PROFILE and the files in ~/.aws",
        ) from None


def _marks(meta: Mapping[str, Any]) -> dict[str, str]:
    """What identifies this version."""
    return {name: str(meta[name]) for name in ("e_tag", "version") if meta.get(name) is not None}
