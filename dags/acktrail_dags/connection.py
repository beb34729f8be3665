"""A `KafkaConfig` from an Airflow connection; its secrets are passed to nothing else."""

from __future__ import annotations

import json
from typing import Any, Final

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from acktrail.config import KafkaConfig
from acktrail.errors import ConfigurationError

_SECRET_WORDS: Final = (
    *("password", "secret", "token", "jaas", "credential"),
    *("key.pem", "keystore.key", "oauthbearer.config"),
)


def kafka_config(conn_id: str) -> KafkaConfig:
    """The client configuration that the Airflow connection `conn_id` describes.

    Brokers: ``bootstrap.servers`` in the extra, else the host (also ``host:port,host:port``) and, where it has none,
    the port. Every other member of the extra is a client property by Kafka's name; login and password become
    ``sasl.username`` and ``sasl.password``. Secrets are masked in every later log line.

    Raises:
        ConfigurationError: no such connection, no broker in it, or an extra that is no flat JSON object.
    """
    how_to = (
        f"airflow connections add {conn_id} --conn-type generic --conn-host HOST:PORT,HOST:PORT "
        """--conn-extra '{"security.protocol": "SASL_SSL", ...}' (or the same under Admin, Connections)"""
    )
    try:
        connection: Any = Connection.get(conn_id)
    except AirflowNotFoundException as error:
        text = f"there is no Airflow connection {conn_id!r}"
        raise ConfigurationError(text, hint=how_to, data={"conn_id": conn_id}) from error
    properties = _properties(conn_id, connection.extra)
    if connection.login:
        properties.setdefault("sasl.username", connection.login)
    if connection.password:
        properties.setdefault("sasl.password", connection.password)
    for name, value in properties.items():
        if any(word in name.lower() for word in _SECRET_WORDS):
            mask_secret(value)
    hosts = [name.strip() for name in (connection.host or "").split(",") if name.strip()]
    with_ports = (name if _has_port(name) or not connection.port else f"{name}:{connection.port}" for name in hosts)
    address = properties.pop("bootstrap.servers", "") or ",".join(with_ports)
    if not address:
        raise ConfigurationError(f"the Airflow connection {conn_id!r} names no broker", hint=how_to)
    return KafkaConfig(bootstrap_servers=address, properties=properties)


def _properties(conn_id: str, extra: str | None) -> dict[str, str]:
    """The members of `extra` as text. No error shows `extra`: it may hold secrets."""
    try:
        members = json.loads(extra) if extra else {}
    except ValueError:
        members = None
    if not isinstance(members, dict) or any(isinstance(value, list | dict) for value in members.values()):
        raise ConfigurationError(
            f"the extra of the Airflow connection {conn_id!r} is not a flat JSON object",
            hint='write it as {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}',
        )
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in members.items()}
    return {name: text for name, text in texts.items() if members[name] is not None}


def _has_port(host: str) -> bool:
    name, colon, port = host.rpartition(":")
    return bool(colon) and port.isdigit() and (":" not in name or name.endswith("]"))
