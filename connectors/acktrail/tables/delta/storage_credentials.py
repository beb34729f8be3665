"""Whether anything names credentials for an object storage. Where nothing does, the storage's own client asks the
cloud's metadata service for minutes and prints pages of warnings. Here that service has a second to take a connection.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from acktrail.config import forgo_metadata_service, storage_environment
from acktrail.errors import ConfigurationError

_METADATA: Final = "http://169.254.169.254"
"""Where every large cloud's machines find their own credentials."""
_METADATA_S: Final = 1.0
_NO: Final = frozenset({"", "0", "false", "no", "off"})
FORCE_LOAD: Final = "aws_force_credential_load"
"""delta-rs's option: profiles count for a server that is not Amazon's too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cloud:
    """What gives credentials: names of options and variables, without the first fitting one of `prefixes`."""

    schemes: frozenset[str]
    prefixes: tuple[str, ...]
    enough: tuple[frozenset[str], ...]
    """Each of these sets is enough."""
    files: Mapping[str, str]
    """Files with credentials, in the home folder, by the variable that names another one."""
    metadata: tuple[str, ...]
    """Names that hold another address of the metadata service."""
    hint: str

    def without_prefix(self, name: str) -> str:
        lower = name.lower()
        return next((lower.removeprefix(each) for each in self.prefixes if lower.startswith(each)), lower)


def _sets(*names: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(each.split()) for each in names)


_CLOUDS: Final = (
    _Cloud(
        schemes=frozenset({"s3", "s3a"}),
        prefixes=("aws_",),
        enough=_sets(
            "access_key_id secret_access_key",
            "skip_signature",
            "profile",
            "web_identity_token_file",
            "container_credentials_relative_uri",
            "container_credentials_full_uri",
        ),
        files={"AWS_SHARED_CREDENTIALS_FILE": ".aws/credentials", "AWS_CONFIG_FILE": ".aws/config"},
        metadata=("metadata_endpoint", "ec2_metadata_service_endpoint"),
        hint="put aws_access_key_id and aws_secret_access_key into the file of options, or set AWS_PROFILE",
    ),
    _Cloud(
        schemes=frozenset({"gs", "gcs"}),
        prefixes=("google_",),
        enough=_sets(
            "service_account",
            "service_account_path",
            "service_account_key",
            "application_credentials",
            "bearer_token",
            "skip_signature",
        ),
        files={"GOOGLE_APPLICATION_CREDENTIALS": ".config/gcloud/application_default_credentials.json"},
        metadata=("metadata_endpoint", "gce_metadata_host"),
        hint="put google_service_account=FILE into the file of options, or set GOOGLE_APPLICATION_CREDENTIALS",
    ),
    _Cloud(
        schemes=frozenset({"az", "azure", "abfs", "abfss", "adl", "wasb", "wasbs"}),
        prefixes=("azure_storage_", "azure_"),
        enough=_sets(
            "account_key",
            "access_key",
            "master_key",
            "sas_token",
            "sas_key",
            "client_id client_secret",
            "client_id federated_token_file",
            "token",
            "bearer_token",
            "use_azure_cli",
            "use_emulator",
            "use_fabric_endpoint",
            "skip_signature",
        ),
        files={},
        metadata=("msi_endpoint", "identity_endpoint"),
        hint="put azure_storage_account_name and azure_storage_account_key into the file of options",
    ),
)


def missing_credentials(uri: str, shown: str, options: Mapping[str, str]) -> ConfigurationError | None:
    """The error to raise where neither `options`, the environment, a file of the user's nor the cloud's metadata
    service has credentials for `uri`; None: something has, or `uri` is of no storage that is known here. Where the
    metadata service is not needed, Amazon's client is kept from asking it for a region."""
    cloud = _cloud_of(uri)
    if cloud is None:
        return None
    given = _given(cloud, options)
    if any(each <= given.keys() for each in cloud.enough) or any(file.exists() for file in _files(cloud)):
        forgo_metadata_service()
        return None
    reason = "no credentials were given"
    half = {"access_key_id", "secret_access_key"} - given.keys()
    if len(half) == 1 and "aws_" in cloud.prefixes:
        reason = f"aws_{min(half)} is missing"
    elif "ec2_metadata_disabled" not in given and _answers(_metadata_of(cloud, given)):
        return None
    data = {"root": shown, "table": None}
    return ConfigurationError(f"tables at {shown}: {reason}", hint=cloud.hint, data=data)


def client_options(uri: str, options: Mapping[str, str]) -> dict[str, str]:
    """`options` as delta-rs needs them: for an S3 server with an address of its own it reads profiles only
    with an option of its own."""
    return {FORCE_LOAD: "true", **options} if uses_profile(uri, options) else dict(options)


def uses_profile(uri: str, options: Mapping[str, str]) -> bool:
    """Whether nothing but a profile of the user's gives credentials for an S3 `uri`."""
    cloud = _cloud_of(uri)
    if cloud is None or "aws_" not in cloud.prefixes:
        return False
    given = _given(cloud, options)
    has_others = any(each <= given.keys() for each in cloud.enough if "profile" not in each)
    return not has_others and ("profile" in given or any(file.exists() for file in _files(cloud)))


def _cloud_of(uri: str) -> _Cloud | None:
    scheme = urlsplit(uri).scheme
    return next((each for each in _CLOUDS if scheme in each.schemes), None)


def _given(cloud: _Cloud, options: Mapping[str, str]) -> dict[str, str]:
    """What options and environment say, by name without prefix; options win."""
    both: Iterable[tuple[str, str]] = (*storage_environment().items(), *options.items())
    return {cloud.without_prefix(name): value for name, value in both if value.strip().lower() not in _NO}


def _files(cloud: _Cloud) -> list[Path]:
    environment = storage_environment()
    return [Path(environment.get(variable) or Path.home() / file) for variable, file in cloud.files.items()]


def _metadata_of(cloud: _Cloud, given: Mapping[str, str]) -> tuple[str, int]:
    address = next((given[name] for name in cloud.metadata if name in given), _METADATA)
    parts = urlsplit(address if "://" in address else f"http://{address}")
    return parts.hostname or "", parts.port or 80


def _answers(address: tuple[str, int]) -> bool:
    """Whether anything takes connections there; nothing is asked."""
    try:
        with socket.create_connection(address, timeout=_METADATA_S):
            return True
    except OSError:
        return False
