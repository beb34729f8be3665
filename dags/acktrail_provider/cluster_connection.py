"""The client configuration that an Airflow connection describes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from airflow.sdk import Connection
from airflow.sdk.log import mask_secret

from acktrail.config import KafkaConfig, profiles
from acktrail.errors import ConfigurationError
from acktrail.secrets import is_secret_name
from acktrail.text_parsing import parse_json
from acktrail_provider.airflow_names import AirflowNotFoundException
from acktrail_provider.provider_info import CONN_TYPE

DEFAULT_KAFKA_CONN_ID: Final = "acktrail_kafka"


def kafka_config(conn_id: str, profile: str | None = None) -> KafkaConfig:
    """The client configuration that the Airflow connection `conn_id` describes; without such a connection the one that
    the file of profiles has of `profile` (None: there is no other).

    Brokers: ``bootstrap.servers`` in the extra, else the host (also ``host:port,host:port``) and, where it has none,
    the port. Every other member of the extra is a client property by Kafka's name; login and password become
    ``sasl.username`` and ``sasl.password``. Any type of connection that has these will do. Secrets are masked in every
    later log line. Raises ConfigurationError: no such connection and no such profile, no broker in it, or an extra that
    is no flat JSON object; UnknownName: the file of profiles has no such profile.
    """
    how_to = (
        f"airflow connections add {conn_id} --conn-type {CONN_TYPE} --conn-host HOST:PORT,HOST:PORT "
        """--conn-extra '{"security.protocol": "SASL_SSL", ...}' (or the same under Admin, Connections)"""
    )
    try:
        connection = airflow_connection(conn_id, how_to)
    except ConfigurationError:
        if profile is not None:
            return _of_profile(profile)
        raise
    properties = _properties(conn_id, connection.extra)
    if connection.login:
        properties.setdefault("sasl.username", connection.login)
    if connection.password:
        properties.setdefault("sasl.password", connection.password)
    mask(properties)
    hosts = [name.strip() for name in (connection.host or "").split(",") if name.strip()]
    with_ports = (name if _has_port(name) or not connection.port else f"{name}:{connection.port}" for name in hosts)
    address = properties.pop("bootstrap.servers", "") or ",".join(with_ports)
    if not address:
        raise ConfigurationError(f"the Airflow connection {conn_id!r} names no broker", hint=how_to)
    return KafkaConfig(bootstrap_servers=address, properties=properties)


def airflow_connection(conn_id: str, how_to: str) -> Any:
    """An Airflow connection. Raises ConfigurationError (there is none) with the hint `how_to` add one."""
    try:
        return Connection.get(conn_id)
    except AirflowNotFoundException as error:
        text = f"there is no Airflow connection {conn_id!r}"
        raise ConfigurationError(text, hint=how_to, data={"conn_id": conn_id}) from error


def mask(properties: Mapping[str, str], more: Iterable[str] = ()) -> None:
    """Keep secrets, and the values of `more`, out of the logs."""
    for name, value in properties.items():
        if is_secret_name(name) or name in more:
            mask_secret(value)


def _of_profile(profile: str) -> KafkaConfig:
    """What comes by reference is a secret under any name."""
    referenced = profiles().profile(profile).referenced()
    found = KafkaConfig.from_environment(profile=profile)
    mask(found.properties, referenced)
    return found


def _properties(conn_id: str, extra: str | None) -> dict[str, str]:
    """The members of `extra` as text. No error shows `extra`: it may hold secrets."""
    try:
        members = parse_json(extra) if extra else {}
    except ValueError:
        members = None
    if not isinstance(members, dict) or any(isinstance(value, list | dict) for value in members.values()):
        raise ConfigurationError(
            f"the extra of the Airflow connection {conn_id!r} is not a flat JSON object",
            hint='write it as {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}',
        )
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in members.items()}
    return {name: text for name, text in texts.items() if members[name] not in {None, ""}}


def _has_port(host: str) -> bool:
    name, colon, port = host.rpartition(":")
    return bool(colon) and port.isdigit() and (":" not in name or name.endswith("]"))
