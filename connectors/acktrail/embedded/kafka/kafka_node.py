"""One Kafka node in a folder: its files, its command line, and whether it is ready. Nothing here starts it."""

from __future__ import annotations

import json
import re
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from acktrail.config import KafkaConfig
from acktrail.embedded.kafka.installation import Installation, log_option
from acktrail.embedded.kafka.kafka_releases import release_of
from acktrail.embedded.kafka.server_properties import HOST, NodePorts, SaslAccess, server_properties, to_properties_text
from acktrail.errors import AcktrailError, ConfigurationError

_TAIL_LINES: Final = 40
_ASK_S: Final = 0.5
_TROUBLE: Final = (
    re.compile(r'^(Caused by: |Exception in thread ".*" )?[\w.$]+(Exception|Error): |: error: '),
    re.compile(r" (ERROR|FATAL) "),
)
_JVM: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
"""One compiler: a broker that lives for seconds or minutes takes half the processor time without the second one."""


class BrokerNotStarted(AcktrailError):
    """The broker did not become ready, or ended. `log`: its lines since the start."""

    def __init__(self, reason: str, *, log_path: Path, log: Sequence[str]) -> None:
        super().__init__(
            f"the embedded Kafka broker does not run ({reason}): {_first_trouble(log)}",
            hint=f"see {log_path}",
            data={"log_path": str(log_path)},
        )
        self.log = tuple(log)
        self.add_note("\n".join(log[-_TAIL_LINES:]))


def _first_trouble(log: Sequence[str]) -> str:
    """The line that says most: the first exception, else the first error, else the last line."""
    lines = [line.strip() for line in log if line.strip()] or ["it printed nothing"]
    found = (next((line for line in lines if pattern.search(line)), None) for pattern in _TROUBLE)
    return next((line for line in found if line), lines[-1])


class NodeFolder:
    """Where a node keeps everything: its data (Kafka's log directory), ``broker.log`` and ``server.properties``, which
    may hold passwords."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log, self.data, self.server = path / "broker.log", path / "data", path / "server.properties"
        self._meta = self.data / "meta.properties"

    @property
    def formatted(self) -> bool:
        """Whether a node ran here before."""
        return self._meta.exists()

    @property
    def cluster_id(self) -> str:
        """The cluster that was formatted here."""
        lines = self._meta.read_text(encoding="utf-8").splitlines()
        return next((line.partition("=")[2] for line in lines if line.startswith("cluster.id=")), "")

    @property
    def log_size(self) -> int:
        """Bytes in the log so far."""
        return self.log.stat().st_size if self.log.exists() else 0

    def log_since(self, position: int) -> tuple[str, ...]:
        """The lines of the log after byte `position`."""
        with self.log.open("rb") as stream:
            stream.seek(position)
            return tuple(stream.read().decode(errors="replace").splitlines())

    def claim(self, version: str) -> None:
        """Note that Kafka `version` uses the folder. Raises ConfigurationError when a newer one did."""
        note = self.path / "version.json"
        used = json.loads(note.read_text(encoding="utf-8"))["version"] if note.exists() else version
        if release_of(used).order > release_of(version).order:
            raise ConfigurationError(
                f"{self.path} was used by Kafka {used}; {version} is older and cannot read it",
                hint=f"give another folder, or version {used}",
            )
        note.write_text(json.dumps({"version": version}) + "\n", encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaNode:
    """What one node needs to run. `changes` are Kafka properties that win over the defaults."""

    installation: Installation
    folder: NodeFolder
    ports: NodePorts
    access: SaslAccess | None = None
    changes: Mapping[str, str] = field(default_factory=dict)
    heap_mb: int = 512

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients."""
        return f"{HOST}:{self.ports.client}"

    def config(self) -> KafkaConfig:
        """How a super user connects."""
        properties = self.access.client_properties(self.access.super_users[0]) if self.access else {}
        return KafkaConfig(bootstrap_servers=self.bootstrap_servers, properties=properties)

    def prepare(self) -> None:
        """Write the configuration and format the data folder if it is new. Raises BrokerNotStarted."""
        folder = self.folder
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.claim(self.installation.release.version)
        properties = server_properties(ports=self.ports, data=folder.data, access=self.access, changes=self.changes)
        folder.server.touch(mode=0o600)
        folder.server.write_text(to_properties_text(properties), encoding="ascii")
        if not folder.formatted:
            self._format()

    def command(self) -> Sequence[str]:
        """The command line of the node."""
        options = (*_JVM, f"-Xmx{self.heap_mb}m", log_option("broker"))
        return self.installation.command("kafka.Kafka", str(self.folder.server), jvm_options=options)

    def _format(self) -> None:
        result = self.installation.run(
            "kafka.tools.StorageTool",
            *("format", "-t", _cluster_id(), "-c", str(self.folder.server)),
            *self.installation.release.format_options,
        )
        output = result.stdout + result.stderr
        with self.folder.log.open("a", encoding="utf-8") as log:
            log.write(output)
        if result.returncode != 0:
            raise BrokerNotStarted("its folder cannot be formatted", log_path=self.folder.log, log=output.splitlines())


def _cluster_id() -> str:
    """A random id in Kafka's form; a leading "-" would be taken for an option."""
    return secrets.token_urlsafe(16).replace("-", "a").replace("_", "b")


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


def wait_until_ready(config: KafkaConfig, *, cluster_id: str, timeout_s: float, alive: Callable[[], bool]) -> str:
    """Ask for metadata until `cluster_id` answers with a registered broker. Why it is not ready, or nothing.

    An answer takes an ApiVersions exchange first, and a broker is in it only when its controller lets it serve; an
    open port means neither, and another cluster may have been faster to take the port. Gives up after `timeout_s`
    seconds or when `alive` says no.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient(
        {
            **config.properties,
            "bootstrap.servers": config.bootstrap_servers,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    deadline = time.monotonic() + timeout_s
    reason = "no broker is registered"
    while alive():
        try:
            answer = client.list_topics(timeout=_ASK_S)
            if answer.cluster_id != cluster_id:
                reason = "another cluster answers at its address"
            elif answer.brokers:
                return ""
        except KafkaException as error:
            reason = str(error.args[0].str())
        if time.monotonic() > deadline:
            return f"not ready after {timeout_s:.0f} s: {reason}"
    return "it ended"
