"""From an Airflow connection to a `KafkaConfig`; secrets go no further than that."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from acktrail.config import KafkaConfig
from acktrail.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["kafka_config"]

_BOOTSTRAP: Final = "bootstrap.servers"
_SECRET_WORDS: Final = (
    "password",
    "secret",
    "token",
    "jaas",
    "credential",
    "key.pem",
    "keystore.key",
    "oauthbearer.config",
)


def kafka_config(conn_id: str) -> KafkaConfig:
    """How the Airflow connection `conn_id` says to reach a cluster.

    Brokers: ``bootstrap.servers`` in the extra, else the host (also ``host:port,host:port``) and the port. All else in
    the extra is a client property by Kafka's name (``security.protocol``, ``sasl.mechanism``, ``ssl.ca.location``);
    login and password become ``sasl.username`` and ``sasl.password``. Secrets are masked in every later log line.

    Raises:
        ConfigurationError: no such connection, no broker in it, or an extra that is no flat JSON object.
    """
    connection = _connection(conn_id)
    properties = _properties(conn_id, connection.extra)
    if connection.login:
        properties.setdefault("sasl.username", connection.login)
    if connection.password:
        properties.setdefault("sasl.password", connection.password)
    _mask(properties)
    address = properties.pop(_BOOTSTRAP, "") or _address(connection.host, connection.port)
    if not address:
        raise ConfigurationError(f"the Airflow connection {conn_id!r} names no broker", hint=_how_to(conn_id))
    return KafkaConfig(bootstrap_servers=address, properties=properties)


def _connection(conn_id: str) -> Connection:
    try:
        found: Connection = Connection.get(conn_id)
    except AirflowNotFoundException as error:
        raise ConfigurationError(
            f"there is no Airflow connection {conn_id!r}", hint=_how_to(conn_id), data={"conn_id": conn_id}
        ) from error
    return found


def _how_to(conn_id: str) -> str:
    return (
        f"airflow connections add {conn_id} --conn-type generic --conn-host HOST:PORT,HOST:PORT "
        """--conn-extra '{"security.protocol": "SASL_SSL", ...}' (or the same under Admin, Connections)"""
    )


def _properties(conn_id: str, extra: str | None) -> dict[str, str]:
    """The extra's members as text. The extra itself is never shown: it may hold secrets."""
    try:
        members = json.loads(extra) if extra else {}
    except ValueError:
        members = None
    if not isinstance(members, dict) or any(isinstance(value, list | dict) for value in members.values()):
        raise ConfigurationError(
            f"the extra of the Airflow connection {conn_id!r} is not a flat JSON object",
            hint='write it as {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}',
        )
    return {str(name): _text(value) for name, value in members.items() if value is not None}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _address(host: str | None, port: int | None) -> str:
    """``host:port`` for each host that does not say its port itself."""
    hosts = [name.strip() for name in (host or "").split(",") if name.strip()]
    return ",".join(name if _has_port(name) or not port else f"{name}:{port}" for name in hosts)


def _has_port(host: str) -> bool:
    name, colon, port = host.rpartition(":")
    return bool(colon) and port.isdigit() and (":" not in name or name.endswith("]"))


def _mask(properties: Mapping[str, str]) -> None:
    for name, value in properties.items():
        if any(word in name.lower() for word in _SECRET_WORDS):
            mask_secret(value)
