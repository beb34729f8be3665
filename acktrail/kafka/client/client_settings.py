"""A `KafkaConfig` in one form for both clients. Properties carry Kafka's own names, as in the files that Kafka's tools
take with ``--command-config``; librdkafka's names for the same things (``sasl.username``, ``ssl.ca.location`` ...) are
understood as well.
"""

from __future__ import annotations

import difflib
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from acktrail.config import KafkaConfig
from acktrail.errors import AcktrailError, ConfigurationError
from acktrail.kafka.client.credentials import ClientCredentials, identify, token_source, trust

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", _OAUTHBEARER)
_TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105  # a property's name
_CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
_CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105  # a property's name
_ONLY_VALUES: Final = {
    "sasl.oauthbearer.method": ("oidc",),
    "sasl.login.callback.handler.class": ("OAuthBearerLoginCallbackHandler",),
    "sasl.oauthbearer.jwt.retriever.class": ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever"),
}
"""Properties that choose how a token is got, and the values (last part of a class name) that mean the client
credentials grant."""
_EXTENSION: Final = "extension_"
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_LARGEST_PORT: Final = 65_535
_SECURITY_NAMES: Final = """
    security.protocol sasl.mechanism sasl.mechanisms sasl.username sasl.password sasl.jaas.config ssl.ca.location
    ssl.truststore.location ssl.truststore.type ssl.certificate.location ssl.key.location ssl.key.password
    ssl.keystore.location ssl.keystore.type ssl.endpoint.identification.algorithm ssl.protocol ssl.enabled.protocols
    sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.id sasl.oauthbearer.client.secret
    sasl.oauthbearer.scope sasl.oauthbearer.extensions sasl.oauthbearer.method sasl.oauthbearer.header.urlencode
    sasl.oauthbearer.jwt.retriever.class sasl.login.callback.handler.class
    sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.retry.backoff.ms
    sasl.login.retry.backoff.max.ms sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
    sasl.login.refresh.window.factor sasl.login.refresh.window.jitter https.ca.location
"""
_SECURITY: Final = frozenset(_SECURITY_NAMES.split())
_ALMOST: Final = 0.85
_JAAS_OPTION: Final = re.compile(r'([A-Za-z_][\w.-]*)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;]+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How to connect, by kafka-python's names. Files are PEM. Passwords have no part in the repr."""

    bootstrap_servers: tuple[str, ...]
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    sasl_plain_username: str | None = None
    sasl_plain_password: str | None = field(default=None, repr=False)
    oauth: ClientCredentials | None = None
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True
    client_id: str = "acktrail"
    request_timeout_ms: int = 30_000

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol in {"SSL", "SASL_SSL"}

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol in {"SASL_PLAINTEXT", "SASL_SSL"}

    @property
    def login_name(self) -> str:
        """As whom the client logs in: the user, or the OAuth client; empty without SASL."""
        return self.oauth.client_id if self.oauth else self.sasl_plain_username or ""

    def principal(self) -> str | None:
        """``User:NAME``, as which a broker with Kafka's own principal builder sees this client; None: not known (a
        certificate, or a token without a subject)."""
        if self.oauth is not None:
            try:
                subject = token_source(self.oauth).current().subject
            except AcktrailError:
                return None
            return None if subject is None else f"User:{subject}"
        if self.uses_sasl:
            return f"User:{self.sasl_plain_username}"
        return None if self.uses_tls and self.ssl_certfile is not None else "User:ANONYMOUS"

    def tls_context(self) -> ssl.SSLContext | None:
        """What TLS connections are made with; None for a client without TLS. Raises ConfigurationError for a file."""
        if not self.uses_tls:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.ssl_check_hostname
        trust(context, "ssl.ca.location", self.ssl_cafile, signed="the broker")
        identify(context, self.ssl_certfile, self.ssl_keyfile, self.ssl_password or "")
        return context

    @classmethod
    def from_config(cls, config: KafkaConfig) -> ClientSettings:
        """Read the properties. Those that Kafka's clients know and acktrail does not need have no effect. Raises
        ConfigurationError when an address or a value is not understood, or no client knows a property. No value is
        shown that could be a secret."""
        properties = config.properties
        ensure_known(properties)
        protocol = _one_of(properties, "security.protocol", _PROTOCOLS, default="PLAINTEXT")
        certificate = _pem(properties, "ssl.certificate.location", "ssl.keystore")
        return cls(
            bootstrap_servers=addresses_of(config.bootstrap_servers),
            security_protocol=protocol,
            **(_login(properties) if protocol.startswith("SASL") else {}),
            ssl_cafile=_pem(properties, "ssl.ca.location", "ssl.truststore"),
            ssl_certfile=certificate,
            ssl_keyfile=properties.get("ssl.key.location") or certificate,
            ssl_password=properties.get("ssl.key.password"),
            ssl_check_hostname=properties.get("ssl.endpoint.identification.algorithm", "https").lower() == "https",
            client_id=properties.get("client.id", "acktrail"),
            request_timeout_ms=config.request_timeout_ms,
        )


def to_librdkafka(config: KafkaConfig) -> dict[str, Any]:
    """librdkafka's properties for how to connect; raises as ``ClientSettings.from_config``."""
    settings = ClientSettings.from_config(config)
    properties: dict[str, Any] = {
        "bootstrap.servers": ",".join(settings.bootstrap_servers),
        "client.id": settings.client_id,
        "security.protocol": settings.security_protocol.lower(),
        "socket.timeout.ms": settings.request_timeout_ms,
    }
    if settings.oauth is not None:
        # A callback instead of librdkafka's own OIDC: both clients use one token, and fail with the same words.
        callback = token_source(settings.oauth).for_librdkafka
        properties |= {"sasl.mechanism": settings.sasl_mechanism, "oauth_cb": callback}
    elif settings.uses_sasl:
        properties |= {
            "sasl.mechanism": settings.sasl_mechanism,
            "sasl.username": settings.sasl_plain_username,
            "sasl.password": settings.sasl_plain_password,
        }
    if settings.uses_tls:
        properties |= {
            "ssl.ca.location": settings.ssl_cafile,
            "ssl.certificate.location": settings.ssl_certfile,
            "ssl.key.location": settings.ssl_keyfile,
            "ssl.key.password": settings.ssl_password,
            "ssl.endpoint.identification.algorithm": "https" if settings.ssl_check_hostname else "none",
        }
    return {name: value for name, value in properties.items() if value is not None}


def ensure_known(properties: Mapping[str, str]) -> None:
    """A misspelt ``security.protocol`` must not mean plain text. Raises ConfigurationError with the nearest name for a
    property about security that acktrail does not follow, and for one that differs from such a name by a letter or two.
    Others may be for Kafka's tools, which read the same file."""
    for name in sorted(properties.keys() - _SECURITY):
        near = difflib.get_close_matches(name, _SECURITY, n=1, cutoff=_ALMOST)
        if near or name.startswith(("security.", "sasl.", "ssl.")):
            hint = f"did you mean {near[0]}?" if near else f"use {', '.join(sorted(_SECURITY))}"
            _refuse(f"client property {name} is not supported", hint)


def jaas_options(properties: Mapping[str, str]) -> dict[str, str]:
    """The options of ``sasl.jaas.config`` (``name="value" ...;``) by name; they may be secrets."""
    found = _JAAS_OPTION.findall(properties.get("sasl.jaas.config", ""))
    return {name: re.sub(r"\\(.)", r"\1", v[1:-1]) if v.startswith('"') else v for name, v in found}


def _login(properties: Mapping[str, str]) -> dict[str, Any]:
    """The settings of a login with SASL."""
    name = "sasl.mechanism" if "sasl.mechanism" in properties else "sasl.mechanisms"
    if name not in properties:
        _refuse("sasl.mechanism is missing", f"use one of {', '.join(MECHANISMS)}")
    mechanism = _one_of(properties, name, MECHANISMS, default="")
    if mechanism == _OAUTHBEARER:
        return {"sasl_mechanism": mechanism, "oauth": _client_credentials(properties)}
    jaas = jaas_options(properties)
    user = properties.get("sasl.username", jaas.get("username"))
    password = properties.get("sasl.password", jaas.get("password"))
    if user is None or password is None:
        _refuse("no user name or no password for SASL", "set sasl.username and sasl.password, or sasl.jaas.config")
    return {"sasl_mechanism": mechanism, "sasl_plain_username": user, "sasl_plain_password": password}


def _client_credentials(properties: Mapping[str, str]) -> ClientCredentials:
    """By Kafka's names (4.1 and later), by those of librdkafka, or in the JAAS line of older releases."""
    for name, allowed in _ONLY_VALUES.items():
        if properties.get(name, allowed[0]).rpartition(".")[2] not in allowed:
            _refuse(
                f"{name} is not supported with this value", f"use {' or '.join(allowed)}: a token of a client's own"
            )
    jaas = jaas_options(properties)

    def one_of(*names: str, jaas_name: str) -> str | None:
        return next((properties[name] for name in names if properties.get(name)), jaas.get(jaas_name))

    url = properties.get(_TOKEN_URL)
    client_id = one_of(_CLIENT_ID, "sasl.oauthbearer.client.id", jaas_name="clientId")
    secret = one_of(_CLIENT_SECRET, "sasl.oauthbearer.client.secret", jaas_name="clientSecret")
    for name, value in ((_TOKEN_URL, url), (_CLIENT_ID, client_id), (_CLIENT_SECRET, secret)):
        if not value:
            _refuse(f"{name} is missing", "OAUTHBEARER needs a token endpoint, a client id and a client secret")
    return ClientCredentials(
        token_url=_checked_url(url or ""),
        client_id=client_id or "",
        client_secret=secret or "",
        scope=one_of("sasl.oauthbearer.scope", jaas_name="scope"),
        extensions=_extensions(properties.get("sasl.oauthbearer.extensions", ""), jaas),
        ca_file=properties.get("https.ca.location") or _pem(jaas, "", "ssl.truststore"),
        encodes_login=properties.get("sasl.oauthbearer.header.urlencode", "false").lower() == "true",
    )


def _checked_url(url: str) -> str:
    """`url`, which must keep the secret: https, or this machine. It is not shown: it may hold a secret itself."""
    try:
        parts = urlsplit(url)
        is_safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
        if is_safe and parts.hostname and not parts.username and (parts.port is None or parts.port > 0):
            return url
    except ValueError:
        pass
    return _refuse(f"{_TOKEN_URL} is not an https URL", "for example https://login.example.com/oauth2/token")


def _extensions(pairs: str, jaas: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """SASL extensions: librdkafka's ``name=value,name=value`` or ``extension_name="value"`` in the JAAS line."""
    found = {name.removeprefix(_EXTENSION): value for name, value in jaas.items() if name.startswith(_EXTENSION)}
    for pair in filter(None, pairs.split(",")):
        name, separator, value = pair.partition("=")
        if not separator:
            _refuse("sasl.oauthbearer.extensions is not name=value,name=value", "for example logicalCluster=lkc-1")
        found[name.strip()] = value.strip()
    for name, value in found.items():
        if not re.fullmatch("[A-Za-z]+", name) or not re.fullmatch(r"[\x20-\x7e\t\r\n]*", value) or name == "auth":
            _refuse(f"SASL extension {name!r} is not allowed", "names are letters, values ASCII text (RFC 7628, 3.1)")
    return tuple(sorted(found.items()))


def addresses_of(bootstrap_servers: str) -> tuple[str, ...]:
    """The addresses in a comma-separated list, each ``host:port``; ``PROTOCOL://`` in front is dropped. Raises
    ConfigurationError when none is there, or one is not ``host:port``."""
    texts = [re.sub(r"^[A-Za-z_]*://", "", text.strip()) for text in bootstrap_servers.split(",")]
    addresses = tuple(_address(text) for text in texts if text)
    return addresses or _refuse("no Kafka broker is given", "give host:port[,host:port]")


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


def _one_of(properties: Mapping[str, str], name: str, allowed: tuple[str, ...], *, default: str) -> str:
    value = properties.get(name, default).strip().upper()
    if value not in allowed:
        _refuse(f"{name} {value!r} is not supported", f"use one of {', '.join(allowed)}")
    return value


def _pem(properties: Mapping[str, str], direct: str, store: str) -> str | None:
    """A PEM file by librdkafka's name, or by Kafka's when that store's type is PEM."""
    if direct in properties:
        return properties[direct]
    location = properties.get(f"{store}.location")
    if location and properties.get(f"{store}.type", "JKS").upper() != "PEM":
        hint = f"export it as PEM (keytool and openssl can) and set {store}.type=PEM"
        _refuse(f"{store}.location is not a PEM file", hint)
    return location
