"""The storage's errors as acktrail's own. The text of an object storage can hold keys: it is not shown."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from acktrail import errors
from acktrail.config import forgo_metadata_service, storage_environment
from acktrail.errors import AcktrailError, ConfigurationError, DamagedTables
from acktrail.text_parsing import parse_toml
from acktrail.text_tables import printable

REMADE: Final = frozenset({"replay_memory", "held_states", "delivery_history"})
"""Tables that are derived from ``state_records`` and can be built again."""
NO_ANSWER: Final = "the storage does not answer"
"""The reason of an error after which a request may still arrive."""
_EXPORTED: Final = frozenset({"state_records", "export_ranges"})
_METADATA: Final = "http://169.254.169.254"
"""Where every large cloud's machines find their own credentials, unless a variable or option names another address."""
_METADATA_NAMES: Final = re.compile(r".*(metadata_(service_)?endpoint|metadata_host|(msi|identity)_endpoint)")
_METADATA_S: Final = 1.0
_SAID: Final = 160
"""Characters of what a storage said."""
_NO: Final = frozenset({"", "0", "false", "no", "off"})
_PROFILE: Final = "aws_profile"
FORCE_LOAD: Final = "aws_force_credential_load"
"""delta-rs's option: profiles count for a server that is not Amazon's too."""


class _Cause(NamedTuple):
    """One of ``storage_errors.toml``."""

    reason: str
    marks: list[str]
    hint: str = ""
    google: str = ""
    azure: str = ""
    kind: str = "ConfigurationError"

    def shows(self, text: str) -> bool:
        return any(mark in text for mark in self.marks)

    def advice(self, uri: str) -> str:
        """The hint for the storage of `uri`."""
        cloud = _cloud_of(uri)
        return (self.google if cloud is _GOOGLE else self.azure if cloud is _AZURE else "") or self.hint


_TEXT: Final = files(__package__).joinpath("storage_errors.toml").read_text(encoding="utf-8")
_CAUSES: Final = {name: _Cause(**own) for name, own in parse_toml(_TEXT).items()}


def needs_newer_release(error: BaseException) -> bool:
    """Whether a table is one that this release cannot read or write."""
    return _CAUSES["newer_program"].shows(str(error).lower())


def storage_failure(error: BaseException, root: str, table: str | None = None) -> AcktrailError:
    """The error to raise for `error` of the storage under `root` (which holds no credentials), or of one table of it.
    Damage is a DamagedTables that names no file yet; so is an unknown error of a table."""
    text = f"{type(error).__name__} {error}".lower()  # Arrow's FileNotFoundError holds only the path
    where = f"tables at {root}" if table is None else f"tables at {root}: table {table}"
    data = {"root": root, "table": table}
    cause = next((each for each in _CAUSES.values() if each.shows(text)), None)
    if cause is not None and cause.kind != DamagedTables.__name__:
        kind: type[AcktrailError] = getattr(errors, cause.kind)
        return kind(f"{where}: {cause.reason}", hint=cause.advice(root), data=data)
    if cause is not None:
        return DamagedTables(f"{where}: {cause.reason}", hint=advice(table), table=table, data=data)
    # What an object storage says may hold keys.
    said = f"{type(error).__name__}{_codes(str(error))}" if "://" in root else printable(str(error))[:_SAID]
    message = f"{where}: the storage failed: {said}"
    if table is not None:
        return DamagedTables(message, hint="`acktrail doctor` checks every table", table=table, data=data)
    return ConfigurationError(message, hint="check the root of the tables and its options", data=data)


def advice(table: str | None) -> str:
    """What to do about damage."""
    if table in REMADE:
        return f"`acktrail tables repair --execute` removes {table}; the next `acktrail run reconcile` builds it again"
    if table in _EXPORTED:
        return "`acktrail tables repair` shows which records can be exported again and which are lost"
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


_AMAZON: Final = _Cloud(
    frozenset({"s3", "s3a"}),
    re.compile(r"(aws_)?(secret_access_key|skip_signature|web_identity_token_file|container_credentials_\w+_uri)"),
    {"AWS_SHARED_CREDENTIALS_FILE": ".aws/credentials", "AWS_CONFIG_FILE": ".aws/config"},
)
_GOOGLE: Final = _Cloud(
    frozenset({"gs", "gcs"}),
    re.compile(r"(google_)?(service_account(_path|_key)?|application_credentials|bearer_token|skip_signature)"),
    {"GOOGLE_APPLICATION_CREDENTIALS": ".config/gcloud/application_default_credentials.json"},
)
_AZURE: Final = _Cloud(
    frozenset({"az", "azure", "abfs", "abfss", "adl", "wasb", "wasbs"}),
    re.compile(
        r"(azure_(storage_)?)?((account|access|master)_key|sas_(token|key)|client_secret|federated_token_file"
        r"|(bearer_)?token|use_(azure_cli|emulator|fabric_endpoint)|skip_signature)"
    ),
    {},
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
    cause = _CAUSES["no_credentials"]
    return ConfigurationError(f"tables at {shown}: {cause.reason}", hint=cause.advice(uri), data=data)


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
