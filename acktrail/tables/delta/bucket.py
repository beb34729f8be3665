"""Objects below a root, in object storage or in a folder, through obstore: read, listed, put where there is none.
delta-rs's options are taken as they are.
"""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from acktrail.errors import AcktrailError, ConfigurationError, MissingDependency, RetryableError
from acktrail.tables.delta.storage_errors import storage_failure, uses_profile
from acktrail.tables.delta.table_root import TableRoot

if TYPE_CHECKING:
    from obstore.store import ObjectStore

T = TypeVar("T")
_CLIENT: Final = re.compile(
    r"allow_(http|invalid_certificates)|(connect_|pool_idle_)?timeout|http[12]_only|pool_max_idle_per_host|proxy_\w+|"
    r"user_agent"
)
"""Options of the connection, with or without the storage's prefix."""
_PREFIXES: Final = ("aws_", "google_", "azure_storage_", "azure_")
_OF_DELTA_RS: Final = re.compile(
    r"allow_unsafe_rename|(assume|iam)_role_\w+|ec2_metadata_\w+|force_credential_load|(max_retries|retry_timeout)|profile|"
    r"s3_(?!express)\w+|sts_\w+"
)
"""Options that delta-rs has beyond those of the storages."""
_trusted: set[str] = set()
"""Roots found good by this process."""
_RETRIES: Final = 2
_PATIENCE: Final = dt.timedelta(seconds=30)


class Bucket:
    """Objects below `root`, addressed by their path from there. Threads may share it.

    `patience` bounds a request with all its retries. Raises (all methods): ConfigurationError, RetryableError: the
    storage refused or failed.
    """

    def __init__(self, root: TableRoot, *, patience: dt.timedelta = _PATIENCE) -> None:
        self.root, self._patience = root, patience
        self._opened: ObjectStore | None = None

    def get(self, path: str) -> bytes | None:
        """An object; None: there is none."""
        import obstore

        return self._asked(lambda store: bytes(obstore.get(store, path).bytes()))

    def put(self, path: str, data: Any) -> bool:
        """Put `data` where there is no object; whether there was none. A root folder that was deleted meanwhile is not
        created again: RetryableError."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        store = self._store
        if self.root.is_local and not Path(self.root.uri).is_dir():
            raise RetryableError(
                f"{self.root.shown} does not exist any more",
                hint="restore the folder, or stop the processes that write into it",
            )
        with self._translated():
            try:
                obstore.put(store, path, data, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
            return True

    def delete(self, path: str) -> None:
        """Remove an object, if it is there."""
        import obstore

        self._asked(lambda store: obstore.delete(store, path))

    def names(self, folder: str) -> list[str]:
        """The names in a folder, without those in folders below it."""
        import obstore

        with self._translated():
            found = obstore.list(self._store, folder)
            paths = [str(each["path"]) for part in found for each in part]
        return [path.rpartition("/")[2] for path in paths if path.count("/") == folder.count("/") + 1]

    @property
    def _store(self) -> ObjectStore:
        if self._opened is None:
            self._opened = _open(self.root, self._patience)
        return self._opened

    def _asked(self, ask: Callable[[ObjectStore], T]) -> T | None:
        """The response of the storage; None: there is no such object."""
        with self._translated():
            try:
                return ask(self._store)
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return None

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            raise storage_failure(error, self.root.shown) from None


def _open(root: TableRoot, patience: dt.timedelta) -> ObjectStore:
    from obstore.store import LocalStore, from_url

    options = root.options
    if options is None:
        return LocalStore(root.uri, mkdir=True)
    config, client = split_options({"timeout": f"{patience.seconds}s", **options})
    arguments: dict[str, Any] = {"config": config, "client_options": client}
    arguments["retry_config"] = {"max_retries": _RETRIES, "retry_timeout": patience}
    if uses_profile(root.uri, options):
        arguments["credential_provider"] = _profile(root.shown)
    return from_url(root.uri, **arguments)


def split_options(options: Mapping[str, str]) -> tuple[dict[str, str], Any]:
    """delta-rs's `options` as obstore's: those of the storage, those of the connection."""
    config: dict[str, str] = {}
    client: dict[str, Any] = {}
    for name, value in options.items():
        lower = name.lower()
        bare = next((lower.removeprefix(each) for each in _PREFIXES if lower.startswith(each)), lower)
        if _CLIENT.fullmatch(bare):
            client[bare] = value
        elif not _OF_DELTA_RS.fullmatch(bare):
            config[lower] = value
    return config, client


def _profile(shown: str) -> Any:
    """obstore reads no profiles: boto3 does."""
    try:
        from botocore.exceptions import BotoCoreError
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise MissingDependency(
            "buckets cannot be used with a profile's credentials without boto3",
            hint="pip install boto3, or put aws_access_key_id and aws_secret_access_key into the file of options",
        ) from None
    try:
        return Boto3CredentialProvider()
    except (BotoCoreError, ValueError) as error:
        raise ConfigurationError(
            f"tables at {shown}: the profile gives no credentials ({type(error).__name__})",
            hint="check AWS_PROFILE and the files in ~/.aws",
        ) from None


def ensure_conditional_put(root: TableRoot) -> None:
    """Put an object twice, each time only if it is not there, and see that the second put fails (else
    ConfigurationError). Once a process and root; a local folder is trusted. Raises MissingDependency: a profile's
    credentials without boto3.

    A Delta commit is safe only where a put with ``If-None-Match: *`` fails when the object is there. Some servers
    ignore the condition and overwrite: with them, one of two commits made at the same time vanishes without an error.
    """
    if root.is_local or root.uri in _trusted:
        return
    bucket, name = Bucket(root), f"_acktrail_probe_{uuid.uuid4().hex}"
    try:  # the first put meets its own object where its response was lost
        made = [bucket.put(name, b"") for _ in range(2)]
    finally:
        with suppress(AcktrailError):  # an empty object that stays harms nothing
            bucket.delete(name)
    if made[1]:
        raise storage_failure(OSError("the storage ignores conditions"), root.shown)
    _trusted.add(root.uri)
