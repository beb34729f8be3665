"""What an embedded broker is configured with."""

from __future__ import annotations

import re
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from acktrail.errors import ConfigurationError

HOST: Final = "127.0.0.1"
_NODE: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "CLIENT",
    "controller.listener.names": "CONTROLLER",
    # Few partitions for the internal topics, and share groups that react in about a second instead of five.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.record.lock.duration.ms": "1000",
    "metadata.max.idle.interval.ms": "0",  # a controller that says twice a second that it is there doubles idle work
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.cleaner.dedupe.buffer.size": "16777216",
}
_BROKER_USER: Final = "acktrail-broker"
"""As whom a broker with users talks to itself."""


class NodePorts(NamedTuple):
    """Where the node listens on loopback."""

    client: int
    controller: int


def free_ports(port: int = 0) -> NodePorts:
    """`port`, or a free one when it is 0, and a free one for the controller.

    Raises ConfigurationError when `port` is in use or not allowed.
    """
    with socket.socket() as client, socket.socket() as controller:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            client.bind((HOST, port))
        except OSError as error:
            raise ConfigurationError(
                f"port {port} cannot be used: {error.strerror}", hint="give another port, or 0 for a free one"
            ) from error
        controller.bind((HOST, 0))
        return NodePorts(client=client.getsockname()[1], controller=controller.getsockname()[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAccess:
    """Who may connect with SASL/PLAIN, user to password; the first may do everything."""

    users: Mapping[str, str] = field(repr=False)
    internal_password: str = field(repr=False, default_factory=lambda: secrets.token_urlsafe(24))

    def to_properties(self) -> dict[str, str]:
        """SASL/PLAIN on every listener and the standard authorizer, which denies what no ACL allows."""
        users = {**self.users, _BROKER_USER: self.internal_password}
        options = {"username": _BROKER_USER, "password": self.internal_password}
        options |= {f"user_{name}": password for name, password in users.items()}
        quoted = {name: re.sub(r'(["\\])', r"\\\1", value) for name, value in options.items()}
        words = " ".join(f'{name}="{value}"' for name, value in quoted.items())
        jaas = f"org.apache.kafka.common.security.plain.PlainLoginModule required {words};"
        return {
            "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.client.plain.sasl.jaas.config": jaas,
            "listener.name.controller.plain.sasl.jaas.config": jaas,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{_BROKER_USER};User:{next(iter(self.users))}",
        }

    def client_properties(self, user: str | None = None) -> dict[str, str]:
        """What a client sets to log in as `user` (default: the first)."""
        name = user or next(iter(self.users))
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": name,
            "sasl.password": self.users[name],
        }


def server_properties(
    *, ports: NodePorts, data: Path, access: SaslAccess | None, changes: Mapping[str, str]
) -> dict[str, str]:
    """Kafka's configuration for one node with its log directory at `data`; `changes` win over everything."""
    return {
        **_NODE,
        "listeners": f"CLIENT://{HOST}:{ports.client},CONTROLLER://{HOST}:{ports.controller}",
        "advertised.listeners": f"CLIENT://{HOST}:{ports.client}",
        "controller.quorum.voters": f"1@{HOST}:{ports.controller}",
        "log.dirs": str(data),
        **(access.to_properties() if access else {}),
        **changes,
    }


def to_properties_text(properties: Mapping[str, str]) -> str:
    """A Java properties file; every character survives."""
    return "".join(f"{_escape(key)}={_escape(value)}\n" for key, value in sorted(properties.items()))


def _escape(text: str) -> str:
    escaped = re.sub(r"([\\:=#! ])", r"\\\1", text)
    escaped = escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    # Any other character is written as the UTF-16 units that Java has for it.
    return re.sub(r"[^ -~]", lambda c: re.sub("....", r"\\u\g<0>", c[0].encode("utf-16-be").hex()), escaped)
