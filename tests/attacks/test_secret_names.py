"""Names whose values no page, answer or log shows."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import obstore
import pytest
from obstore.exceptions import UnknownConfigurationKeyError
from obstore.store import from_url

from acktrail.errors import ConfigurationError
from acktrail.profiles import read_profiles
from acktrail.secrets import HIDDEN, is_secret_name
from acktrail_connect.config_def import shown

SECRET: Final = {
    "s3://bucket/prefix": (
        "aws_secret_access_key", "secret_access_key", "aws_session_token", "session_token", "aws_token", "token",
        "aws_sse_customer_key_base64", "sse_customer_key_base64", "aws_container_authorization_token_file",
    ),
    "az://container/prefix": (
        "azure_storage_account_key", "azure_storage_access_key", "azure_storage_master_key", "account_key",
        "access_key", "master_key", "azure_storage_client_secret", "azure_client_secret", "client_secret",
        "azure_storage_sas_key",
        "azure_storage_sas_token", "sas_key", "sas_token", "azure_storage_token", "bearer_token",
        "azure_fabric_session_token", "fabric_session_token",
    ),
    "gs://bucket/prefix": ("google_service_account_key", "service_account_key"),
}  # fmt: skip
"""By storage, the keys of obstore that hold a secret."""
OF_CONNECTIONS: Final = ("proxy_url", "default_headers")
"""Keys of obstore's connections: an address with a password in it, what says who asks."""
PLAIN: Final = frozenset(
    {"bucket", "checksum_algorithm", "conditional_put", "copy_if_not_exists", "default_region", "disable_tagging"}
    | {
        "endpoint",
        "metadata_endpoint",
        "region",
        "request_payer",
        "s3_express",
        "imdsv1_fallback",
        "server_side_encryption",
        "skip_signature",
    }
    | {"sse_bucket_key_enabled", "sse_kms_key_id", "unsigned_payload", "virtual_hosted_style_request"}
    | {"account_name", "client_id", "tenant_id", "authority_host", "use_emulator", "use_fabric_endpoint", "object_id"}
    | {"msi_endpoint", "msi_resource_id", "use_azure_cli", "container_name", "fabric_workload_host"}
    | {"fabric_cluster_identifier", "service_account"}
    | {"allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type", "http1_only"}
    | {"http2_only", "http2_keep_alive_interval", "http2_keep_alive_timeout", "http2_keep_alive_while_idle"}
    | {"http2_max_frame_size", "pool_idle_timeout", "pool_max_idle_per_host", "timeout", "user_agent"}
)
"""Keys of obstore that may be shown."""
OF_SECRET_PLACES: Final = frozenset(
    {"access_key_id", "container_credentials_relative_uri", "federated_token_file", "application_credentials"}
    | {"fabric_token_service_url"}
)
"""Keys that only lead to a secret, and are hidden with the others."""
OF_OTHERS: Final = (
    "pwd", "db.pwd", "passphrase", "ssl.key.passphrase", "api_key", "apiKey", "http.api-key", "private_key",
    "sftp.private.key", "privateKey", "slack_webhook_url", "https.proxy.url", "encryption_key", "smtp_pass",
)  # fmt: skip
HONEST: Final = (
    "security.protocol", "sasl.username", "ssl.ca.location", "sasl.oauthbearer.token.endpoint.url", "region", "topics",
    "key.column", "key.format", "bypass", "group.id", "compass.topic", "rest.tls.key.location", "partition.key",
)  # fmt: skip


def declared() -> set[str]:
    """The keys that the installed obstore says it takes."""
    folder = Path(obstore.__file__).parent / "_store"
    classes = [
        node
        for file in folder.glob("*.pyi")
        for node in ast.parse(file.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef)
        and node.name.endswith("Config")
        and node.name not in {"RetryConfig", "BackoffConfig"}
    ]
    assert {node.name for node in classes} >= {"S3Config", "AzureConfig", "GCSConfig", "ClientConfig"}
    return {
        each.target.id
        for node in classes
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.target.id.islower()
    }


@pytest.mark.parametrize(("uri", "name"), [(uri, name) for uri, names in SECRET.items() for name in names])
def test_secrets_of_storages_are_hidden(uri: str, name: str) -> None:
    """Who may read REST answers, logs or a list of profiles looks for the keys of a storage: each name that the
    installed obstore takes for one is hidden, in any case."""
    try:
        from_url(uri, config={name: "probe"})
    except UnknownConfigurationKeyError:  # a name that is no key proves nothing
        raise
    except obstore.exceptions.BaseError:
        pass

    assert is_secret_name(name)
    assert is_secret_name(name.upper())
    assert shown(name, "probe") == HIDDEN


def test_every_key_of_obstore_is_judged() -> None:
    """A later obstore with another key makes this test fail, until somebody says whether it is a secret."""
    named = {name for names in SECRET.values() for name in names} | {*OF_CONNECTIONS}

    assert declared() - named - PLAIN - OF_SECRET_PLACES == set()
    assert not [name for name in PLAIN if is_secret_name(name)]
    assert all(map(is_secret_name, OF_SECRET_PLACES | {*OF_CONNECTIONS}))


@pytest.mark.parametrize("name", OF_OTHERS)
def test_secrets_of_other_systems_are_hidden(name: str, tmp_path: Path) -> None:
    """Who may read REST answers finds no secret of a plug-in either, and no file of profiles may have one as it is."""
    assert shown(name, "probe") == HIDDEN
    assert shown(f"transforms.x.{name}", "probe") == HIDDEN
    file = tmp_path / "profiles.toml"
    file.write_text(f'[profiles.p]\nbootstrap.servers = "a:1"\n"kafka.{name}" = "probe"\n')
    with pytest.raises(ConfigurationError) as caught:
        read_profiles(file).profile("p")
    assert "probe" not in caught.value.with_hint


def test_what_is_no_secret_is_shown() -> None:
    """An honest operator sees what they configured."""
    assert [name for name in HONEST if is_secret_name(name)] == []
