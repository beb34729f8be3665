"""A real Kafka broker in a folder, for tests, demos and the command line."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from acktrail.config import KafkaConfig
from acktrail.embedded.kafka.installation import install
from acktrail.embedded.kafka.kafka_node import BrokerNotStarted, KafkaNode, NodeFolder, free_ports, wait_until_ready
from acktrail.embedded.kafka.kafka_releases import DEFAULT_VERSION, release_of
from acktrail.embedded.kafka.server_properties import NodePorts, SaslAccess
from acktrail.embedded.process.guarded_process import GuardedProcess
from acktrail.embedded.process.process_identity import ProcessIdentity

_ATTEMPTS: Final = 3
_CLASH: Final = "Address already in use"


class EmbeddedBroker:
    """One KRaft node on loopback that ends with the process that started it.

    Without `folder` its data lives in a temporary folder that is removed at the end (also when this process is
    killed), unless `keep`. A folder that was used before is used again, also by a newer release, not by an older one.

    `properties` are Kafka's and win over the defaults. `port` 0 takes a free one. With `sasl_users` (user to
    password) clients log in with SASL/PLAIN and may do what ACLs allow; the first user, or those in `super_users`,
    may do everything. `config(user)` and `client_properties(user)` connect as one of them.
    `java_home` and `cache` default to those of `acktrail.config`.
    """

    def __init__(
        self,
        version: str = DEFAULT_VERSION,
        *,
        folder: Path | None = None,
        keep: bool = False,
        port: int = 0,
        properties: Mapping[str, str] | None = None,
        sasl_users: Mapping[str, str] | None = None,
        super_users: Sequence[str] | None = None,
        heap_mb: int = 512,
        start_timeout_s: float = 90.0,
        java_home: Path | None = None,
        cache: Path | None = None,
    ) -> None:
        self.version = release_of(version).version
        self._temporary = folder is None and not keep
        self._folder = None if folder is None else folder.absolute()
        self._port = port
        self._properties = dict(properties or {})
        self._access = _access(sasl_users, super_users)
        self._heap_mb = heap_mb
        self._start_timeout_s = start_timeout_s
        self._java_home, self._cache = java_home, cache
        self._ports: NodePorts | None = None
        self._node: KafkaNode | None = None
        self._process: GuardedProcess | None = None

    @property
    def folder(self) -> Path:
        """Where the node keeps everything: ``data/``, ``server.properties``, ``broker.log``."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="acktrail-broker-"))
        return self._folder

    @property
    def log_path(self) -> Path:
        """What the broker prints and logs."""
        return NodeFolder(self.folder).log

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, ``host:port``."""
        if self._node is None:
            raise RuntimeError("the broker was not started")
        return self._node.bootstrap_servers

    @property
    def pid(self) -> int | None:
        """Pid of Kafka's JVM; None when it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def guardian_pid(self) -> int | None:
        """Pid of the process that watches over the JVM; None when it does not run."""
        return self._process.guardian_pid if self.pid is not None and self._process is not None else None

    def client_properties(self, user: str | None = None) -> dict[str, str]:
        """Client properties, besides ``bootstrap.servers``, to connect as `user` (default: the first super user)."""
        if self._access is None:
            return {}
        return self._access.client_properties(user or self._access.super_users[0])

    def config(self, user: str | None = None) -> KafkaConfig:
        """How acktrail connects to it, as `user`."""
        return KafkaConfig(bootstrap_servers=self.bootstrap_servers, properties=self.client_properties(user))

    def start(self) -> Self:
        """Start and wait until it is ready; does nothing when it runs.

        Raises:
            BrokerNotStarted: with the last lines of the log.
            MissingDependency, ConfigurationError, RetryableError: Java or the jars are missing.
        """
        if self.pid is not None:
            return self
        installation = install(self.version, java_home=self._java_home, cache=self._cache)
        for attempt in range(1, _ATTEMPTS + 1):
            self._node = KafkaNode(
                installation=installation,
                folder=NodeFolder(self.folder),
                ports=self._ports or free_ports(self._port),
                access=self._access,
                changes=self._properties,
                heap_mb=self._heap_mb,
            )
            try:
                self._launch(self._node)
            except BrokerNotStarted as error:
                if attempt == _ATTEMPTS or self._ports or not any(_CLASH in line for line in error.log):
                    raise
            else:
                self._ports = self._node.ports
                break
        return self

    def stop(self) -> None:
        """Stop in order, then remove a temporary folder. Does nothing when it does not run."""
        if self._process is not None:
            self._process.stop()
        if self._temporary and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def kill(self) -> None:
        """SIGKILL the JVM, as a crash would; `start` continues with the same folder and ports."""
        if self._process is not None:
            self._process.kill()

    def restart(self) -> None:
        """Stop in order and start again with the same folder and ports."""
        if self._process is not None:
            self._process.stop()
        self.start()

    def wait(self) -> None:
        """Wait until the broker ends, which only a failure causes. Raises BrokerNotStarted then."""
        if self._process is not None:
            self._process.wait()
            raise BrokerNotStarted("it ended", log_path=self.log_path, log=NodeFolder(self.folder).log_since(0))

    def release(self) -> ProcessIdentity:
        """Let the broker outlive this process; SIGTERM to the returned process stops it in order."""
        if self._process is None:
            raise RuntimeError("the broker was not started")
        process, self._process = self._process, None
        return process.release()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BrokerNotStarted:
            raise  # its folder stays: the log in it says why
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _launch(self, node: KafkaNode) -> None:
        """Start the JVM and wait until it is ready. Raises BrokerNotStarted after it stopped the JVM."""
        node.prepare()
        log_position = node.folder.log_size
        process = GuardedProcess(
            node.command(),
            log_path=node.folder.log,
            cwd=node.folder.path,
            remove=node.folder.path if self._temporary else None,
        )
        self._process = process.start()
        try:
            reason = wait_until_ready(
                node.config(),
                cluster_id=node.folder.cluster_id,
                timeout_s=self._start_timeout_s,
                alive=lambda: process.poll() is None,
            )
            if reason:
                raise BrokerNotStarted(reason, log_path=node.folder.log, log=node.folder.log_since(log_position))
        except BaseException:
            process.stop()
            raise


def _access(users: Mapping[str, str] | None, super_users: Sequence[str] | None) -> SaslAccess | None:
    if not users:
        return None
    chosen = tuple(super_users) if super_users else (next(iter(users)),)
    return SaslAccess(users=dict(users), super_users=chosen, internal_password=secrets.token_urlsafe(24))
