"""The storage's errors as acktrail's own. The storage's text can hold keys: it is not shown."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from acktrail.config import forgo_metadata_service, storage_environment
from acktrail.errors import AcktrailError, ConfigurationError, DamagedTables, RetryableError

REMADE: Final = frozenset({"replay_memory", "held_states", "delivery_history"})
"""Tables that are derived from ``state_records`` and can be built again."""
NO_ANSWER: Final = "the storage does not answer"
"""The reason of an error after which a request may still arrive."""
_EXPORTED: Final = frozenset({"state_records", "export_ranges"})
_METADATA: Final = "http://169.254.169.254"
"""Where every large cloud's machines find their own credentials, unless a variable or option names another address."""
_METADATA_NAMES: Final = re.compile(r".*(metadata_(service_)?endpoint|metadata_host|(msi|identity)_endpoint)")
_METADATA_S: Final = 1.0
_NO: Final = frozenset({"", "0", "false", "no", "off"})
_PROFILE: Final = "aws_profile"
FORCE_LOAD: Final = "aws_force_credential_load"
"""delta-rs's option: profiles count for a server that is not Amazon's too."""


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
                return DamagedTables(f"{where}: {cause.reason}", hint=advice(table), table=table, data=data)
            return cause.kind(f"{where}: {cause.reason}", hint=cause.hint, data=data)
    message = f"{where}: the storage failed ({type(error).__name__}{_codes(str(error))})"
    if table is not None:
        return DamagedTables(message, hint=advice(table), table=table, data=data)
    return ConfigurationError(message, hint="check the root of the tables and its options", data=data)


def advice(table: str | None) -> str:
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


class _Cloud(NamedTuple):
    """Options and variables that give credentials by their names, and files that do, in the home folder, by the
    variable that names another one."""

    schemes: frozenset[str]
    names: re.Pattern[str]
    files: Mapping[str, str]
    hint: str


_AMAZON: Final = _Cloud(
    frozenset({"s3", "s3a"}),
    re.compile(r"(aws_)?(secret_access_key|skip_signature|web_identity_token_file|container_credentials_\w+_uri)"),
    {"AWS_SHARED_CREDENTIALS_FILE": ".aws/credentials", "AWS_CONFIG_FILE": ".aws/config"},
    "put aws_access_key_id and aws_secret_access_key into the file of options, or set AWS_PROFILE",
)
_GOOGLE: Final = _Cloud(
    frozenset({"gs", "gcs"}),
    re.compile(r"(google_)?(service_account(_path|_key)?|application_credentials|bearer_token|skip_signature)"),
    {"GOOGLE_APPLICATION_CREDENTIALS": ".config/gcloud/application_default_credentials.json"},
    "put google_service_account=FILE into the file of options, or set GOOGLE_APPLICATION_CREDENTIALS",
)
_AZURE: Final = _Cloud(
    frozenset({"az", "azure", "abfs", "abfss", "adl", "wasb", "wasbs"}),
    re.compile(
        r"(azure_(storage_)?)?((account|access|master)_key|sas_(token|key)|client_secret|federated_token_file"
        r"|(bearer_)?token|use_(azure_cli|emulator|fabric_endpoint)|skip_signature)"
    ),
    {},
    "put azure_storage_account_name and azure_storage_account_key into the file of options",
)


def missing_credentials(uri: str, shown: str, options: Mapping[str, str]) -> ConfigurationError | None:
    """The error to raise where neither `options`, the environment, a file of the user's nor the cloud's metadata
    service has credentials for `uri`; None: something has, or `uri` is of no storage that is known here. Where the
    metadata service is not needed, Amazon's client is kept from asking it for a region."""
    cloud, given = _cloud_of(uri), _given(options)
    if cloud is None:
        return None
    if _are_named(cloud, given) or _has_profile(cloud, given):
        forgo_metadata_service()
        return None
    if "aws_ec2_metadata_disabled" not in given and _answers(_metadata_of(given)):
        return None
    data = {"root": shown, "table": None}
    return ConfigurationError(f"tables at {shown}: no credentials were given", hint=cloud.hint, data=data)


def client_options(uri: str, options: Mapping[str, str]) -> dict[str, str]:
    """`options` as delta-rs needs them: for an S3 server with an address of its own it reads profiles only
    with an option of its own."""
    return {FORCE_LOAD: "true", **options} if uses_profile(uri, options) else dict(options)


def uses_profile(uri: str, options: Mapping[str, str]) -> bool:
    """Whether nothing but a profile of the user's gives credentials for an S3 `uri`."""
    cloud, given = _cloud_of(uri), _given(options)
    return cloud is _AMAZON and not _are_named(cloud, given) and _has_profile(cloud, given)


def _cloud_of(uri: str) -> _Cloud | None:
    scheme = urlsplit(uri).scheme
    return next((each for each in (_AMAZON, _GOOGLE, _AZURE) if scheme in each.schemes), None)


def _given(options: Mapping[str, str]) -> dict[str, str]:
    """What options and environment say, by name in small letters; options win."""
    both = (*storage_environment().items(), *options.items())
    return {name.lower(): value for name, value in both if value.strip().lower() not in _NO}


def _are_named(cloud: _Cloud, given: Mapping[str, str]) -> bool:
    return any(cloud.names.fullmatch(name) for name in given)


def _has_profile(cloud: _Cloud, given: Mapping[str, str]) -> bool:
    environment = storage_environment()
    files = (Path(environment.get(variable) or Path.home() / file) for variable, file in cloud.files.items())
    return (cloud is _AMAZON and _PROFILE in given) or any(file.exists() for file in files)


def _metadata_of(given: Mapping[str, str]) -> tuple[str, int]:
    address = next((value for name, value in given.items() if _METADATA_NAMES.fullmatch(name)), _METADATA)
    parts = urlsplit(address if "://" in address else f"http://{address}")
    return parts.hostname or "", parts.port or 80


def _answers(address: tuple[str, int]) -> bool:
    """Whether anything takes connections there; nothing is asked."""
    try:
        with socket.create_connection(address, timeout=_METADATA_S):
            return True
    except OSError:
        return False
