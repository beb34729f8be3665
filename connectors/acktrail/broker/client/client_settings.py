"""What a `KafkaConfig` says, in one form for both clients.

Properties carry Kafka's own names, as in the files that Kafka's tools take with ``--command-config``; librdkafka's
names for the same things (``sasl.username``, ``ssl.ca.location`` ...) are understood as well.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn

from acktrail.broker.client.client_properties import CLIENT_PROPERTIES
from acktrail.config import KafkaConfig
from acktrail.errors import ConfigurationError

__all__ = ["ClientSettings", "addresses_of"]

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_SECURITY_NAMES: Final = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "sasl.jaas.config",
        "ssl.ca.location",
        "ssl.truststore.location",
        "ssl.truststore.type",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.endpoint.identification.algorithm",
        "ssl.protocol",
        "ssl.enabled.protocols",
    }
)
_JAAS_OPTION: Final = re.compile(r'\b(username|password)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;]+)')
_LARGEST_PORT: Final = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How to connect. Files are PEM. `password` and `key_password` have no part in the repr."""

    addresses: tuple[str, ...]
    protocol: str = "PLAINTEXT"
    mechanism: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    checks_host_name: bool = True
    client_id: str = "acktrail"
    request_timeout_ms: int = 30_000

    @property
    def uses_tls(self) -> bool:
        return self.protocol in {"SSL", "SASL_SSL"}

    @property
    def uses_sasl(self) -> bool:
        return self.protocol in {"SASL_PLAINTEXT", "SASL_SSL"}

    @classmethod
    def from_config(cls, config: KafkaConfig) -> ClientSettings:
        """Read the properties. Those that Kafka's clients know and acktrail does not need have no effect.

        Raises:
            ConfigurationError: an address or a value is not understood, or no client knows a property. No value is
                shown that could be a secret.
        """
        properties = config.properties
        _refuse_unknown_security(properties)
        _refuse_unknown(properties)
        protocol = _one_of(properties, "security.protocol", _PROTOCOLS, default="PLAINTEXT")
        username, password = _credentials(properties)
        settings = cls(
            addresses=addresses_of(config.bootstrap_servers),
            protocol=protocol,
            mechanism=_mechanism(properties) if protocol.startswith("SASL") else None,
            username=username,
            password=password,
            ca_file=_pem(properties, "ssl.ca.location", "ssl.truststore"),
            certificate_file=_pem(properties, "ssl.certificate.location", "ssl.keystore"),
            key_file=properties.get("ssl.key.location") or _pem(properties, "", "ssl.keystore"),
            key_password=properties.get("ssl.key.password"),
            checks_host_name=properties.get("ssl.endpoint.identification.algorithm", "https").lower() == "https",
            client_id=properties.get("client.id", "acktrail"),
            request_timeout_ms=config.request_timeout_ms,
        )
        if settings.uses_sasl and (username is None or password is None):
            _refuse("no user name or no password for SASL", "set sasl.username and sasl.password, or sasl.jaas.config")
        return settings


def addresses_of(bootstrap_servers: str) -> tuple[str, ...]:
    """The addresses in a comma-separated list, each ``host:port``; ``PROTOCOL://`` in front is dropped.

    Raises:
        ConfigurationError: none is there, or one is not ``host:port``.
    """
    texts = [re.sub(r"^[A-Za-z_]*://", "", text.strip()) for text in bootstrap_servers.split(",")]
    addresses = tuple(_address(text) for text in texts if text)
    return addresses or _refuse("no broker named", "give host:port[,host:port]")


def _address(text: str) -> str:
    host, separator, port = text.rpartition(":")
    inside = host.removeprefix("[").removesuffix("]")
    if not separator or not inside or (":" in inside and inside == host):
        _refuse(f"{text!r} is not host:port", "for example localhost:9092, or [::1]:9092")
    if not port.isdecimal() or not 0 < int(port) <= _LARGEST_PORT:
        _refuse(f"{text!r} has no port between 1 and {_LARGEST_PORT}", "for example localhost:9092")
    return text


def _refuse(message: str, hint: str) -> NoReturn:
    raise ConfigurationError(message, hint=hint)


def _refuse_unknown_security(properties: Mapping[str, str]) -> None:
    for name in properties:
        if name.startswith(("security.", "sasl.", "ssl.")) and name not in _SECURITY_NAMES:
            near = difflib.get_close_matches(name, _SECURITY_NAMES, n=1)
            known = ", ".join(sorted(_SECURITY_NAMES))
            _refuse(f"client property {name} is not supported", f"did you mean {near[0]}?" if near else f"use {known}")


def _refuse_unknown(properties: Mapping[str, str]) -> None:
    """A misspelt ``security.protocol`` must not mean plain text."""
    for name in properties.keys() - _SECURITY_NAMES - CLIENT_PROPERTIES:
        near = difflib.get_close_matches(name, _SECURITY_NAMES | CLIENT_PROPERTIES, n=1)
        hint = f"did you mean {near[0]}?" if near else "see the documentation of Kafka's clients"
        _refuse(f"no Kafka client knows the property {name!r}", hint)


def _one_of(properties: Mapping[str, str], name: str, allowed: tuple[str, ...], *, default: str) -> str:
    value = properties.get(name, default).strip().upper()
    if value not in allowed:
        _refuse(f"{name} {value!r} is not supported", f"use one of {', '.join(allowed)}")
    return value


def _mechanism(properties: Mapping[str, str]) -> str:
    name = "sasl.mechanism" if "sasl.mechanism" in properties else "sasl.mechanisms"
    if name not in properties:
        _refuse("sasl.mechanism is missing", f"use one of {', '.join(_MECHANISMS)}")
    return _one_of(properties, name, _MECHANISMS, default="")


def _credentials(properties: Mapping[str, str]) -> tuple[str | None, str | None]:
    options = {name: _unquoted(value) for name, value in _JAAS_OPTION.findall(properties.get("sasl.jaas.config", ""))}
    username = properties.get("sasl.username", options.get("username"))
    return username, properties.get("sasl.password", options.get("password"))


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text


def _pem(properties: Mapping[str, str], direct: str, store: str) -> str | None:
    """A PEM file by librdkafka's name, or by Kafka's when that store's type is PEM."""
    if direct in properties:
        return properties[direct]
    location = properties.get(f"{store}.location")
    if location and properties.get(f"{store}.type", "JKS").upper() != "PEM":
        _refuse(
            f"{store}.location is not a PEM file",
            f"export it as PEM (keytool and openssl can) and set {store}.type=PEM",
        )
    return location
