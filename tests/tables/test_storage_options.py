"""Options of object storages: what gives credentials, what reaches which client, which refusal is which error."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from servers.s3_server import S3

from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError, ConfigurationError, RetryableError
from acktrail.tables.delta import storage_errors
from acktrail.tables.delta.bucket import Bucket
from acktrail.tables.delta.storage_errors import NO_ANSWER, client_options, missing_credentials, storage_failure
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_root import table_root
from acktrail_connect.sinks.writer_lease import WorkerLease

NOBODY = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def _nothing_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither this machine's environment nor its user has credentials, and its metadata service is not asked."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED", raising=False)
    for name in ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "GCE_METADATA_HOST", "MSI_ENDPOINT"):
        monkeypatch.setenv(name, NOBODY)


def missing(uri: str, **options: str) -> AcktrailError | None:
    return missing_credentials(uri, uri, options)


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        ("s3://b/t", {"aws_access_key_id": "k", "aws_secret_access_key": "s"}),
        ("s3a://b/t", {"ACCESS_KEY_ID": "k", "SECRET_ACCESS_KEY": "s"}),
        ("s3://b/t", {"AWS_SKIP_SIGNATURE": "true"}),
        ("s3://b/t", {"aws_web_identity_token_file": "/token"}),
        ("s3://b/t", {"aws_profile": "prod"}),
        ("gs://b/t", {"google_service_account": "/file.json"}),
        ("gs://b/t", {"google_service_account_key": "{}"}),
        ("az://c/t", {"azure_storage_account_name": "a", "azure_storage_account_key": "k"}),
        ("abfss://c@a.dfs.core.windows.net/t", {"azure_storage_sas_token": "t"}),
        ("az://c/t", {"azure_client_id": "i", "azure_client_secret": "s", "azure_tenant_id": "t"}),
        ("az://c/t", {"azure_use_azure_cli": "true"}),
        ("hdfs://of/others", {}),
    ],
)
def test_credentials_are_found(uri: str, options: dict[str, str]) -> None:
    """In the spellings that delta-rs takes, for each storage."""
    assert missing(uri, **options) is None
    assert missing(uri, **{**options, "region": "x"}) is None


@pytest.mark.parametrize("uri", ["s3://b/t", "gs://b/t", "az://c/t"])
def test_nothing_given_is_an_error_with_a_hint(uri: str) -> None:
    """One line; a switch that is off gives nothing; the hint names options that would do."""
    for options in (
        {},
        {"aws_access_key_id": "half"},
        {"aws_skip_signature": "false", "azure_use_azure_cli": "0", "google_service_account": ""},
    ):
        error = missing(uri, **options)
        assert error is not None
        assert error.message == f"tables at {uri}: no credentials were given"
        assert "file of options" in error.hint


def test_files_of_the_user_and_the_metadata_service_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3: S3
) -> None:
    """A profile's file, a login of gcloud, a service that takes connections: then the storage's client looks itself.
    Where Amazon's service is switched off it is not asked."""
    for uri, name in (("s3://b/t", ".aws/config"), ("gs://b/t", ".config/gcloud/application_default_credentials.json")):
        assert missing(uri) is not None
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("")
        assert missing(uri) is None
        (tmp_path / name).unlink()
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", s3.address)
    assert missing("s3://b/t") is None
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert missing("s3://b/t") is not None


def test_only_a_profile_is_asked_for_by_force(tmp_path: Path) -> None:
    """delta-rs reads no profile for a server that is not Amazon's, unless it is told to; keys need no such thing."""
    keys = {"aws_access_key_id": "k", "aws_secret_access_key": "s"}
    assert client_options("s3://b/t", keys) == keys
    assert client_options("gs://b/t", {}) == {}
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text("")
    assert client_options("s3://b/t", keys) == keys
    assert client_options("s3://b/t", {}) == {"aws_force_credential_load": "true"}
    assert client_options("s3://b/t", {"aws_force_credential_load": "false"}) == {"aws_force_credential_load": "false"}


def of_azure(address: str) -> TablesConfig:
    key = base64.b64encode(b"very-secret-key").decode()
    account = {"account_name": "account", "account_key": key, "endpoint": address}
    options = {f"azure_storage_{name}": value for name, value in account.items()}
    return TablesConfig(uri="az://box/tables", options={**options, "azure_allow_http": "true", "max_retries": "0"})


def of_google(address: str) -> TablesConfig:
    account = {"gcs_base_url": address, "disable_oauth": True} | dict.fromkeys(
        ("client_email", "private_key", "private_key_id"), ""
    )
    options = {"google_service_account_key": json.dumps(account), "google_allow_http": "true", "max_retries": "0"}
    return TablesConfig(uri="gs://box/tables", options=options)


@pytest.mark.parametrize("made", [of_azure, of_google])
def test_other_clouds_are_asked_and_their_refusals_understood(s3: S3, made: Any) -> None:
    """Options reach the clients of Azure and Google for tables and leases; a refusal is one line without a key."""
    config = made(s3.address)
    for code, says in (("AuthorizationPermissionMismatch", "access was denied"), ("ContainerNotFound", "bucket")):
        s3.refuses(code)
        for call in (
            lambda: Tables(config).read("state_records"),
            lambda: WorkerLease(config, "x", owner="w").acquire(),
        ):
            with pytest.raises(ConfigurationError, match=says) as caught:
                call()
            assert "\n" not in caught.value.message + caught.value.hint
            assert "secret" not in caught.value.message
    with pytest.raises(RetryableError, match=NO_ANSWER):
        Tables(made(NOBODY)).read("state_records")


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("<Code>ExpiredToken</Code>", ConfigurationError, "have expired"),
        ("<Code>RequestTimeTooSkewed</Code>", RetryableError, "the clock"),
        ("No space left on device (os error 28)", RetryableError, "is full"),
        ("File too large (os error 27)", RetryableError, "is full"),
        ("<Code>PermanentRedirect</Code>", ConfigurationError, "the region"),
        ("status: 503 Service Unavailable <Code>SlowDown</Code>", RetryableError, "failed by itself"),
        ("request or response body error", RetryableError, "does not answer"),
        ("invalid peer certificate: UnknownIssuer", ConfigurationError, "not trusted"),
        ("received corrupt message of type InvalidContentType", ConfigurationError, "does not speak TLS"),
    ],
)
def test_what_servers_say_is_understood(text: str, kind: type[AcktrailError], says: str) -> None:
    """Answers that the servers of the tests do not give, or that look like damage and are none."""
    error = storage_failure(OSError(f"Generic S3 error: {text} AKIAKEY"), "s3://b/t", "state_records")
    assert type(error) is kind
    assert says in error.message
    assert "AKIA" not in str(error) + error.hint


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_hints_are_about_the_storage_that_is_used(scheme: str) -> None:
    """No cause names options, programs or roles of Amazon for a storage of Google or Microsoft."""
    for name, cause in storage_errors._CAUSES.items():
        hint = storage_failure(OSError(cause.marks[0]), f"{scheme}://b/t").hint
        assert not re.search("aws|amazon|iam user|access key and secret|aws_", hint, re.IGNORECASE), (name, hint)


def test_a_key_file_of_google_that_cannot_be_used_is_named_as_such(tmp_path: Path) -> None:
    """Missing, no JSON, or without a key in it: neither missing credentials nor damaged tables."""
    (tmp_path / "text.json").write_text("{no")
    account = {"type": "service_account", "client_email": "a@b", "private_key_id": "k", "private_key": "none"}
    (tmp_path / "key.json").write_text(json.dumps(account))
    for file in ("none.json", "text.json", "key.json"):
        config = TablesConfig(uri="gs://bucket/x", options={"google_service_account": str(tmp_path / file)})
        asks: tuple[Callable[[], Any], ...] = (
            lambda config=config: Tables(config).read("state_records"),
            lambda config=config: Bucket(table_root(config)).get("any"),
        )
        for ask in asks:
            with pytest.raises(ConfigurationError, match="the credentials cannot be used") as caught:
                ask()
            assert "google_service_account" in caught.value.hint
