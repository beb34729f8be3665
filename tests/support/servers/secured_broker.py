"""A real broker with Kafka's authorizer and a listener for each way to log in, and the OAuth token endpoint that it
trusts: over TLS, it knows one client and signs tokens."""

from __future__ import annotations

import base64
import json
import os
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from servers.certificates import Authority
from servers.workload import Workload

from acktrail.config import KafkaConfig
from acktrail_embedded import EmbeddedBroker
from acktrail_embedded.kafka.embedded_broker import free_ports

__all__ = ["WAYS", "SecuredBroker", "secured_broker"]

USER: Final = "trail-user"
PASSWORD: Final = 'pass"w0rd of the user'
_MODULES: Final = "org.apache.kafka.common.security"
WAYS: Final = {
    "plaintext": ("PLAINTEXT", None, "CLIENT"),
    "mutual TLS": ("SSL", None, "MUTUAL"),
    "PLAIN": ("SASL_SSL", "PLAIN", "LOGIN"),
    "SCRAM-SHA-256": ("SASL_SSL", "SCRAM-SHA-256", "LOGIN"),
    "SCRAM-SHA-512": ("SASL_SSL", "SCRAM-SHA-512", "LOGIN"),
    "OAUTHBEARER": ("SASL_SSL", "OAUTHBEARER", "LOGIN"),
}
"""Ways to connect: security protocol, mechanism, listener."""


@dataclass(frozen=True)
class SecuredBroker:
    """Listeners: CLIENT in plain text, where everybody is ANONYMOUS and may do everything; MUTUAL with TLS that wants
    a certificate; LOGIN with TLS and four SASL mechanisms; ONLY with TLS and SCRAM-SHA-512. Everybody else may do what
    ACLs allow (StandardAuthorizer). The broker's certificate is for 127.0.0.1 alone. Tokens are signed, and the broker
    verifies them with the keys in a file (``OAuthBearerValidatorCallbackHandler``)."""

    broker: EmbeddedBroker
    addresses: Mapping[str, str]
    authority: Authority
    stranger: Authority
    endpoint: TokenEndpoint
    workload: Workload

    def config(self, way: str, *, listener: str = "", host: str = "127.0.0.1", **changes: str | None) -> KafkaConfig:
        """How to connect in one of ``WAYS``; `changes` are properties, with ``_`` for dots; None: without it."""
        protocol, mechanism, own = WAYS[way]
        properties: dict[str, str | None] = {"security.protocol": protocol}
        if protocol != "PLAINTEXT":
            properties["ssl.ca.location"] = str(self.authority.file)
        if way == "mutual TLS":
            properties["ssl.certificate.location"] = str(self.authority.folder / "client.pem")
        if mechanism is not None:
            properties["sasl.mechanism"] = mechanism
            properties |= self._token_properties() if mechanism == "OAUTHBEARER" else _LOGIN
        properties |= {name.replace("_", "."): value for name, value in changes.items()}
        address = self.addresses[listener or own].replace("127.0.0.1", host)
        given = {name: value for name, value in properties.items() if value is not None}
        return KafkaConfig(bootstrap_servers=address, properties=given)

    def _token_properties(self) -> dict[str, str]:
        return {
            "sasl.oauthbearer.token.endpoint.url": self.endpoint.url,
            "sasl.oauthbearer.client.credentials.client.id": CLIENT[0],
            "sasl.oauthbearer.client.credentials.client.secret": CLIENT[1],
            "https.ca.location": str(self.authority.file),
        }


_LOGIN: Final = {"sasl.username": USER, "sasl.password": PASSWORD}


@contextmanager
def secured_broker(folder: Path) -> Iterator[SecuredBroker]:
    """The broker, its authority (another one that it does not know) and the endpoint whose tokens it trusts."""
    authority, stranger = Authority.make(folder, "authority"), Authority.make(folder, "stranger")
    server = authority.signed("server", address="127.0.0.1")
    authority.signed("client", O="Example, Inc.", OU="trail", CN="exporter")
    ports = [free_ports() for _ in range(3)]
    own = {"CLIENT": ports[0].client, "CONTROLLER": ports[0].controller, "MUTUAL": ports[1].client}
    own |= {"LOGIN": ports[1].controller, "ONLY": ports[2].client}
    with token_endpoint(server) as endpoint:
        keys = folder / "keys.json"
        endpoint.write_keys(keys)
        properties = _listeners(own) | _security(server, authority, keys)
        broker = EmbeddedBroker(port=own["CLIENT"], properties=properties)
        # Kafka 4 asks no URL for keys that the JVM was not told of.
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.as_uri()}"
        with patch.dict(os.environ, {"JDK_JAVA_OPTIONS": allowed}):
            broker.start()
        with broker:
            workload = Workload(broker.config())
            for mechanism in ("SCRAM_SHA_256", "SCRAM_SHA_512"):
                workload.set_scram_password(USER, PASSWORD, mechanism)
            addresses = {name: f"127.0.0.1:{port}" for name, port in own.items()}
            yield SecuredBroker(broker, addresses, authority, stranger, endpoint, workload)


def _listeners(ports: Mapping[str, int]) -> dict[str, str]:
    all_of_them = {name: f"{name}://127.0.0.1:{port}" for name, port in ports.items()}
    return {
        "listeners": ",".join(all_of_them.values()),
        "advertised.listeners": ",".join(text for name, text in all_of_them.items() if name != "CONTROLLER"),
        "listener.security.protocol.map": (
            "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT,MUTUAL:SSL,LOGIN:SASL_SSL,ONLY:SASL_SSL"
        ),
        "controller.quorum.voters": f"1@127.0.0.1:{ports['CONTROLLER']}",
    }


def _security(server: Path, authority: Authority, keys: Path) -> dict[str, str]:
    quoted = PASSWORD.replace('"', '\\"')
    scram = f"{_MODULES}.scram.ScramLoginModule required;"
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.only.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.only.scram-sha-512.sasl.jaas.config": scram,
        "listener.name.login.scram-sha-256.sasl.jaas.config": scram,
        "listener.name.login.scram-sha-512.sasl.jaas.config": scram,
        "listener.name.login.plain.sasl.jaas.config": (
            f'{_MODULES}.plain.PlainLoginModule required user_{USER}="{quoted}";'
        ),
        "listener.name.login.oauthbearer.sasl.jaas.config": (
            f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;"
        ),
        "listener.name.login.oauthbearer.sasl.server.callback.handler.class": (
            f"{_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        # With it a broker ends a connection whose token has expired, unless the client logs in again (KIP-368).
        "listener.name.login.oauthbearer.connections.max.reauth.ms": "3600000",
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }


_KEY_ID: Final = "test"
CLIENT: Final = ("trail-client", "s3cret/of+client")
AUDIENCE: Final = "kafka-of-the-test"
SUBJECT: Final = "exporter-by-token"


@dataclass
class TokenEndpoint:
    """`requests` are the forms that came, `behaviour` what it does: ``good``; ``audience``: tokens for somebody else;
    ``redirect``; ``down``: status 503; ``odd``: an answer without a token. `life_s`: of its tokens."""

    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65_537, 2048))
    requests: list[dict[str, list[str]]] = field(default_factory=list)
    behaviour: str = "good"
    life_s: float = 300.0
    port: int = 0

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}/token"

    def write_keys(self, file: Path) -> None:
        """The public key as a JSON Web Key Set (RFC 7517)."""
        key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        file.write_text(json.dumps({"keys": [{**key, "kid": _KEY_ID, "use": "sig", "alg": "RS256"}]}))

    def answer(self, login: str, form: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        self.requests.append(form)
        if self.behaviour == "down":
            return 503, {}
        if self.behaviour == "redirect":
            return 302, {}
        if self.behaviour == "odd":
            return 200, {"token": "somewhere else"}
        if login != "Basic " + base64.b64encode(":".join(CLIENT).encode()).decode():
            return 401, {"error": "invalid_client", "error_description": f"{login} is wrong"}
        now, audience = int(time.time()), "somebody-else" if self.behaviour == "audience" else AUDIENCE
        claims = {"sub": SUBJECT, "aud": audience, "iat": now, "exp": now + int(self.life_s), "scope": "kafka"}
        token = jwt.encode(claims, self.key, algorithm="RS256", headers={"kid": _KEY_ID})
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": self.life_s}


@contextmanager
def token_endpoint(certificate: Path) -> Iterator[TokenEndpoint]:
    """An endpoint at 127.0.0.1 that ends with the block. `certificate`: PEM file with key and certificate."""
    endpoint = TokenEndpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            status, members = endpoint.answer(self.headers.get("Authorization", ""), form)
            body = json.dumps(members).encode()
            self.send_response(status)
            if status == 302:
                self.send_header("Location", f"{endpoint.url}/elsewhere")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.daemon_threads = True
        endpoint.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield endpoint
        server.shutdown()
