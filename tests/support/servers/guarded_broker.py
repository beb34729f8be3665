"""A real broker where clients log in with SASL/PLAIN and may do what ACLs allow."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Final

from acktrail.config import KafkaConfig
from acktrail_embedded import DEFAULT_VERSION, EmbeddedBroker

__all__ = ["GuardedBroker"]

_ITSELF: Final = "acktrail-broker"
"""As whom the broker talks to itself."""


class GuardedBroker(EmbeddedBroker):
    """`users` to passwords: the first may do everything, the others what ACLs allow."""

    def __init__(self, users: Mapping[str, str], version: str = DEFAULT_VERSION) -> None:
        self._users, own = dict(users), secrets.token_urlsafe(24)
        options = {"username": _ITSELF, "password": own}
        options |= {f"user_{name}": password for name, password in {**users, _ITSELF: own}.items()}
        quoted = {name: re.sub(r'(["\\])', r"\\\1", value) for name, value in options.items()}
        words = " ".join(f'{name}="{value}"' for name, value in quoted.items())
        jaas = f"org.apache.kafka.common.security.plain.PlainLoginModule required {words};"
        properties = {
            "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.client.plain.sasl.jaas.config": jaas,
            "listener.name.controller.plain.sasl.jaas.config": jaas,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{_ITSELF};User:{next(iter(users))}",
        }
        super().__init__(version, properties=properties)

    def client_properties(self, user: str | None = None) -> dict[str, str]:
        """What a client sets to log in as `user` (default: the first)."""
        name = user or next(iter(self._users))
        login = {"sasl.username": name, "sasl.password": self._users[name]}
        return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", **login}

    def config(self, user: str | None = None) -> KafkaConfig:
        return KafkaConfig(bootstrap_servers=self.bootstrap_servers, properties=self.client_properties(user))
