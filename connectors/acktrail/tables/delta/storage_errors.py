"""The storage's errors as acktrail's own. The storage's text can hold keys: it is not shown."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from acktrail.errors import AcktrailError, ConfigurationError, DamagedTables, RetryableError
from acktrail.tables.delta.damaged_files import Damage

REMADE: Final = frozenset({"replay_memory", "held_states", "delivery_history"})
"""Tables that are derived from ``state_records`` and can be built again."""
NO_ANSWER: Final = "the storage does not answer"
"""The reason of an error after which a request may still arrive."""
_EXPORTED: Final = frozenset({"state_records", "export_ranges"})


class _Cause(NamedTuple):
    reason: str
    marks: str
    """Any of these words, in lower case and with ``|`` between them, shows the cause."""
    hint: str = ""
    kind: type[AcktrailError] = ConfigurationError


_NEWER: Final = _Cause(
    "a newer program gave it features that this release does not have",
    "unsupported table features|kernel error: unsupported",
    "install a newer release of acktrail, or name other tables",
)
_CAUSES: Final = (
    _NEWER,
    _Cause(
        "the storage ignores conditional writes, so that two writers would overwrite each other",
        "conditional put|ignores conditions",
        "use a storage that honours If-None-Match, or a local folder",
    ),
    _Cause(
        "no permission to write",
        "permission denied|read-only file system|operation not permitted",
        "give this user write access to the folder, or name another with --tables",
    ),
    _Cause("the storage is full", "no space left|quota|file too large", "make room, then run again", RetryableError),
    _Cause(
        "the folder cannot be created",
        "not a directory|could not create local directory|file exists",
        "name a folder whose parents are folders",
    ),
    _Cause(
        "the bucket does not exist",
        "nosuchbucket|bucket does not exist|bucket not found|containernotfound",
        "create the bucket, or correct its name",
    ),
    _Cause(
        "the region is wrong",
        "authorizationheadermalformed|permanentredirect|illegallocationconstraint|301 moved",
        "set aws_region in the file of options to the bucket's region",
    ),
    _Cause(
        "the credentials have expired",
        "expiredtoken|token has expired|requestexpired|tokenrefreshrequired",
        "renew them (for example `aws sso login`), or put lasting ones into the file of options",
    ),
    _Cause(
        "the clock of this machine differs from the storage's", "requesttimetooskewed", "set the clock", RetryableError
    ),
    _Cause(
        "the credentials were refused",
        "invalidaccesskeyid|signaturedoesnotmatch|invalidtoken|invalid_grant|authenticationfailed|401 unauthorized",
        "check the access key and secret in the file of options",
    ),
    _Cause(
        "access was denied",
        "accessdenied|403 forbidden|status: 403|access denied|authorizationpermissionmismatch",
        "the credentials need list, read, write and delete on this prefix",
    ),
    _Cause(
        "no credentials were given",
        "credential|169.254.169.254|imds",
        "put aws_access_key_id and aws_secret_access_key into the file of options",
    ),
    _Cause(
        "plain http is not allowed",
        "http requires|allow_http|urlschemenotallowed|scheme is not allowed",
        "use https, or set allow_http=true in the file of options",
    ),
    _Cause(
        "the storage's certificate is not trusted",
        "invalid peer certificate|unknownissuer|certificate verify",
        "name its authority's file in the variable SSL_CERT_FILE, or check the endpoint's name",
    ),
    _Cause(
        "the endpoint does not speak TLS",
        "invalidcontenttype",
        "use http in the endpoint, with aws_allow_http=true, or another port",
    ),
    _Cause(
        "the storage failed by itself",
        "500 internal|502 bad gateway|503 service|504 gateway|429 too many|slowdown|internalerror|serverbusy",
        "nothing is wrong here: run again later",
        RetryableError,
    ),
    _Cause(
        NO_ANSWER,
        "error sending request|connection refused|dns error|timed out|connection reset|connection closed|"
        "response body error|error reading a body",
        "check the endpoint and the network, then run again",
        RetryableError,
    ),
    _Cause(
        "a Parquet file is damaged",
        "parquet magic bytes|parquet file size is|deserialize thrift|corrupt|footer|requested range",
        kind=DamagedTables,
    ),
    _Cause(
        "a file that the log names is missing",
        "no such file|filenotfound|failed to open local file",
        kind=DamagedTables,
    ),
    _Cause(
        "the log is damaged",
        "json error|contiguous commit files|invalid checkpoint|missing commit|no files in log",
        kind=DamagedTables,
    ),
    _Cause(
        "no storage is known for this URI",
        "unknown scheme|no suitable object store|invalid table location|not a valid url|unknown url",
        "give a folder, or a URI that begins with s3://, gs:// or az://",
    ),
)


def _shows(text: str, cause: _Cause) -> bool:
    return any(mark in text for mark in cause.marks.split("|"))


def needs_newer_release(error: BaseException) -> bool:
    """Whether a table is one that this release cannot read or write."""
    return _shows(str(error).lower(), _NEWER)


def storage_failure(error: BaseException, root: str, table: str | None = None) -> AcktrailError:
    """The error to raise for `error` of the storage under `root` (which holds no credentials), or of one table of it.
    Damage is a DamagedTables that names no file yet; so is an unknown error of a table."""
    text = f"{type(error).__name__} {error}".lower()  # Arrow's FileNotFoundError holds the path alone
    where = f"tables at {root}" if table is None else f"tables at {root}: table {table}"
    data = {"root": root, "table": table}
    for cause in _CAUSES:
        if _shows(text, cause):
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
        return f"`acktrail tables repair --execute` removes {table}; the next `acktrail run reconcile` builds it again"
    if table in _EXPORTED:
        return "`acktrail tables repair` shows what can be exported again and what is lost"
    return "restore the file from the storage's own versions or a backup"


def _codes(text: str) -> str:
    """Error codes in the storage's answer: names and numbers without any of its free text."""
    codes = re.findall(r"<Code>(\w{1,60})</Code>|\bstatus(?: code)?:? (\d{3})\b", text)
    return "".join(f", {name or number}" for name, number in codes[:2])
