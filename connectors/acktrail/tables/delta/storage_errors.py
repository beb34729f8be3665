"""The storage's errors as acktrail's own. The storage's text can hold keys: it is not shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from acktrail.errors import AcktrailError, ConfigurationError, DamagedTables, RetryableError
from acktrail.tables.delta.damaged_files import Damage

__all__ = ["damaged_table", "storage_failure"]

REMADE: Final = frozenset({"replay_memory", "held_states", "delivery_history"})
"""Tables that are derived from ``state_records`` and can be built again."""
_EXPORTED: Final = frozenset({"state_records", "export_ranges"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cause:
    marks: tuple[str, ...]
    """Any of them, in lower case, shows the cause."""
    reason: str
    hint: str
    kind: type[AcktrailError] = ConfigurationError


_CAUSES: Final = (
    _Cause(
        marks=("conditional put", "ignores conditions"),
        reason="the storage ignores conditional writes, so that two writers would overwrite each other",
        hint="use a storage that honours If-None-Match, or a local folder",
    ),
    _Cause(
        marks=("permission denied", "read-only file system", "operation not permitted"),
        reason="no permission to write",
        hint="give this user write access to the folder, or name another with --tables",
    ),
    _Cause(marks=("no space left", "quota"), reason="the storage is full", hint="make room, then run again"),
    _Cause(
        marks=("not a directory", "could not create local directory", "file exists"),
        reason="the folder cannot be created",
        hint="name a folder whose parents are folders",
    ),
    _Cause(
        marks=("nosuchbucket", "bucket does not exist", "bucket not found"),
        reason="the bucket does not exist",
        hint="create the bucket, or correct its name",
    ),
    _Cause(
        marks=("invalidaccesskeyid", "signaturedoesnotmatch", "invalidtoken", "expiredtoken", "401 unauthorized"),
        reason="the credentials were refused",
        hint="check the access key and secret in the file of options",
    ),
    _Cause(
        marks=("accessdenied", "403 forbidden", "status: 403", "access denied"),
        reason="access was denied",
        hint="the credentials need list, read, write and delete on this prefix",
    ),
    _Cause(
        marks=("credential", "169.254.169.254", "imds"),
        reason="no credentials were given",
        hint="put aws_access_key_id and aws_secret_access_key into the file of options",
    ),
    _Cause(
        marks=("http requires", "allow_http", "urlschemenotallowed", "scheme is not allowed"),
        reason="plain http is not allowed",
        hint="use https, or set allow_http=true in the file of options",
    ),
    _Cause(
        marks=(
            "parquet magic bytes",
            "parquet file size is",
            "deserialize thrift",
            "corrupt",
            "footer",
            "requested range",
        ),
        reason="a Parquet file is damaged",
        hint="",
        kind=DamagedTables,
    ),
    _Cause(
        marks=("no such file", "filenotfound", "failed to open local file"),
        reason="a file that the log names is missing",
        hint="",
        kind=DamagedTables,
    ),
    _Cause(
        marks=("json error", "contiguous commit files", "invalid checkpoint", "missing commit", "no files in log"),
        reason="the log is damaged",
        hint="",
        kind=DamagedTables,
    ),
    _Cause(
        marks=("error sending request", "connection refused", "dns error", "timed out", "connection reset"),
        reason="the storage does not answer",
        hint="check the endpoint and the network, then run again",
        kind=RetryableError,
    ),
    _Cause(
        marks=(
            "unknown scheme",
            "no suitable object store",
            "invalid table location",
            "not a valid url",
            "unknown url",
        ),
        reason="no storage is known for this URI",
        hint="give a folder or an s3:// URI",
    ),
)


def storage_failure(error: BaseException, root: str, table: str | None = None) -> AcktrailError:
    """The error to raise for `error` of the storage under `root` (which holds no credentials), or of one table of it.

    Damage is a DamagedTables that names no file yet; so is an unknown error of a table.
    """
    text = f"{type(error).__name__} {error}".lower()  # Arrow's FileNotFoundError holds the path alone
    where = f"tables at {root}" if table is None else f"tables at {root}: table {table}"
    data = {"root": root, "table": table}
    for cause in _CAUSES:
        if any(mark in text for mark in cause.marks):
            if cause.kind is DamagedTables:
                return DamagedTables(f"{where}: {cause.reason}", hint=_advice(table), table=table, data=data)
            return cause.kind(f"{where}: {cause.reason}", hint=cause.hint, data=data)
    message = f"{where}: the storage failed ({type(error).__name__}{_codes(str(error))})"
    if table is not None:
        return DamagedTables(message, hint=_advice(table), table=table, data=data)
    return ConfigurationError(message, hint="check the root of the tables and its options", data=data)


def damaged_table(root: str, table: str, damage: Damage, *, more: int = 0) -> DamagedTables:
    """The error to raise for a file of a table that is missing or cannot be read; `more`: the number of other files."""
    others = f" ({more} more)" if more else ""
    return DamagedTables(
        f"tables at {root}: table {table}: {damage.file} {damage.cause}{others}",
        hint=_advice(table),
        table=table,
        file=damage.file,
        data={"root": root},
    )


def _advice(table: str | None) -> str:
    """What to do about damage."""
    if table in REMADE:
        return f"`acktrail repair --execute` removes {table}; the next `acktrail reconcile` builds it again"
    if table in _EXPORTED:
        return "`acktrail repair` shows what can be exported again and what is lost"
    return "restore the file from the storage's own versions or a backup"


def _codes(text: str) -> str:
    """Error codes in the storage's answer: names and numbers without any of its free text."""
    codes = re.findall(r"<Code>(\w{1,60})</Code>|\bstatus(?: code)?:? (\d{3})\b", text)
    return "".join(f", {name or number}" for name, number in codes[:2])
