"""A real Kafka broker in a folder, for tests, demos and the command line; also one that runs on without an owner."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from acktrail.atomic_files import write_whole
from acktrail.config import KafkaConfig
from acktrail.errors import AcktrailError, ConfigurationError
from acktrail.text_parsing import parse_json
from acktrail_embedded.kafka.installation import DEFAULT_VERSION, RELEASES, Installation, install, known_release
from acktrail_embedded.process.guarded_process import GuardedProcess, is_held

HOST: Final = "127.0.0.1"
_ATTEMPTS: Final = 3
_CLASH: Final = "Address already in use"
_START_S: Final = 90.0
_ASK_S: Final = 0.5
_TAIL_LINES: Final = 40
_LOCK: Final = "running.lock"
_STATE: Final = "detached.json"
_WRITTEN: Final = ("version", "bootstrap_servers", "pid", "guardian_pid")
_GRACE_S: Final = 30.0
"""For an orderly end: what is killed on a busy machine reads its logs again when it starts."""
_STOP_S: Final = 40.0
_TICK_S: Final = 0.05
_TROUBLE: Final = (
    re.compile(r'^(Caused by: |Exception in thread ".*" )?[\w.$]+(Exception|Error): |: error: '),
    re.compile(r" (ERROR|FATAL) "),
)
# One compiler: a broker that lives for seconds or minutes takes half the processor time without the second one.
_JVM: Final = (
    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true", "-Xmx512m"),
    f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2-broker.properties').as_uri()}",
)


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


def to_properties_text(properties: Mapping[str, str]) -> str:
    """Lines of a Java properties file; every character of a value survives."""
    return "".join(f"{name}={_escape(value)}\n" for name, value in sorted(properties.items()))


def _escape(text: str) -> str:
    """A backslash, a space in front and what is not ASCII, as the UTF-16 units that Java has for them."""
    return re.sub(r"[^ -~]|\\|^ ", lambda c: re.sub("....", r"\\u\g<0>", c[0].encode("utf-16-be").hex()), text)


class BrokerNotStarted(AcktrailError):
    """The broker did not become ready, or ended. `log`: its lines since the start."""

    def __init__(self, reason: str, *, log_path: Path, log: Sequence[str]) -> None:
        super().__init__(
            f"the embedded Kafka broker is not running ({reason}): {_first_trouble(log)}",
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


class EmbeddedBroker:
    """One KRaft node on loopback that ends with the process that started it.

    Without `folder` its data lives in a temporary folder that is removed at the end (also when this process is
    killed). A folder that was used before is used again, also by a newer release. It holds
    Kafka's log directory ``data/``, ``broker.log`` and ``server.properties``, which may hold passwords.

    `properties` are Kafka's and win over the defaults. `port` 0 takes a free one.
    """

    def __init__(
        self,
        version: str = DEFAULT_VERSION,
        *,
        folder: Path | None = None,
        port: int = 0,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.version = known_release(version)
        self._temporary = folder is None
        self._folder = None if folder is None else folder.absolute()
        self._port = port
        self._properties = dict(properties or {})
        self._ports: NodePorts | None = None
        self._process: GuardedProcess | None = None

    @property
    def folder(self) -> Path:
        """Where the node keeps everything."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="acktrail-broker-"))
        return self._folder

    @property
    def log_path(self) -> Path:
        """What the broker prints and logs."""
        return self.folder / "broker.log"

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, ``host:port``."""
        if self._ports is None:
            raise RuntimeError("the broker was not started")
        return f"{HOST}:{self._ports.client}"

    @property
    def pid(self) -> int | None:
        """Pid of Kafka's JVM; None when it is not running."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def guardian_pid(self) -> int | None:
        """Pid of the process that watches over the JVM; None when it is not running."""
        return self._process.guardian_pid if self.pid is not None and self._process is not None else None

    def config(self) -> KafkaConfig:
        """How acktrail connects to it."""
        return KafkaConfig(bootstrap_servers=self.bootstrap_servers)

    def start(self) -> Self:
        """Start and wait until it is ready, at the address that it had before; does nothing when it runs.

        Raises BrokerNotStarted with the last lines of the log; MissingDependency, ConfigurationError, RetryableError:
        Java or the jars are missing.
        """
        if self.pid is not None:
            return self
        installation, kept = install(self.version), self._ports
        for attempts_left in reversed(range(_ATTEMPTS)):
            self._ports = kept or free_ports(self._port)
            try:
                self._launch(installation, self._ports)
                break
            except BrokerNotStarted as error:
                self._ports = kept
                if not attempts_left or kept or not any(_CLASH in line for line in error.log):
                    raise
        return self

    def restart(self, properties: Mapping[str, str]) -> None:
        """Stop in order and start again with other `properties`, the same folder and address; raises as `start`."""
        self._properties |= properties
        if self._process is not None:
            self._process.stop()
        self.start()

    def stop(self) -> None:
        """Stop in order, then remove a temporary folder. Does nothing when it is not running."""
        if self._process is not None:
            self._process.stop()
        if self._temporary and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def wait(self) -> None:
        """Wait until the broker ends, which only a failure causes. Raises BrokerNotStarted then."""
        if self._process is not None:
            self._process.wait()
            raise BrokerNotStarted("it ended", log_path=self.log_path, log=self._log_since(0))

    def release(self) -> None:
        """Let the broker outlive this process; SIGTERM to the guardian stops it in order."""
        if self._process is None:
            raise RuntimeError("the broker was not started")
        self._process.release()
        self._process = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BrokerNotStarted:
            raise  # its folder stays: the log in it says why
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _launch(self, installation: Installation, ports: NodePorts) -> None:
        """Start the JVM and wait until it is ready. Raises BrokerNotStarted after it stopped the JVM."""
        if self._process is not None:
            self._process.stop()
        self._prepare(installation, ports)
        log_position = self.log_path.stat().st_size if self.log_path.exists() else 0
        self._process = GuardedProcess(
            installation.command("kafka.Kafka", str(self.folder / "server.properties"), jvm_options=_JVM),
            log_path=self.log_path,
            cwd=self.folder,
            remove=self.folder if self._temporary else None,
            lock=self.folder / _LOCK,
            grace_s=_GRACE_S,
        ).start()
        try:
            (self.folder / _STATE).unlink(missing_ok=True)  # of one that crashed: its pid may be another's
            reason = self._wait_until_ready()
            if reason:
                raise BrokerNotStarted(reason, log_path=self.log_path, log=self._log_since(log_position))
        except BaseException:
            self._process.stop()
            raise

    def _prepare(self, installation: Installation, ports: NodePorts) -> None:
        """Write the configuration and format the data folder if it is new. Raises BrokerNotStarted."""
        self.folder.mkdir(parents=True, exist_ok=True)
        data, server = self.folder / "data", self.folder / "server.properties"
        server.touch(mode=0o600)
        node = Path(__file__).with_name("node.properties").read_text("ascii")
        server.write_text(node + to_properties_text(self._own_properties(ports)), encoding="ascii")
        if (data / "meta.properties").exists():
            return
        # A random id in Kafka's form; a leading "-" would be taken for an option.
        cluster_id = secrets.token_urlsafe(16).replace("-", "a").replace("_", "b")
        options = ("format", "-t", cluster_id, "-c", str(server), *RELEASES[installation.version])
        command = installation.command("kafka.tools.StorageTool", *options, jvm_options=_JVM)
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        output = done.stdout + done.stderr
        with self.log_path.open("a", encoding="utf-8") as log:
            log.write(output)
        if done.returncode != 0:
            raise BrokerNotStarted("its folder cannot be formatted", log_path=self.log_path, log=output.splitlines())

    def _own_properties(self, ports: NodePorts) -> dict[str, str]:
        """What this node has beside ``node.properties``; those that were given win over everything."""
        return {
            "listeners": f"CLIENT://{HOST}:{ports.client},CONTROLLER://{HOST}:{ports.controller}",
            "advertised.listeners": f"CLIENT://{HOST}:{ports.client}",
            "controller.quorum.voters": f"1@{HOST}:{ports.controller}",
            "log.dirs": str(self.folder / "data"),
            **self._properties,
        }

    def _log_since(self, position: int) -> tuple[str, ...]:
        """The lines of the log after byte `position`."""
        with self.log_path.open("rb") as stream:
            stream.seek(position)
            return tuple(stream.read().decode(errors="replace").splitlines())

    def _wait_until_ready(self) -> str:
        """Ask for metadata until this cluster answers with a registered broker. Why it is not ready, or nothing. An
        answer takes an ApiVersions exchange first, and a broker is in it only when its controller lets it serve; an
        open port means neither, and another cluster may have been faster to take the port.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        meta = (self.folder / "data" / "meta.properties").read_text(encoding="utf-8").splitlines()
        cluster_id = next((line.partition("=")[2] for line in meta if line.startswith("cluster.id=")), "")
        quick = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 200, "log_level": 0}
        client = AdminClient({**self.config().properties, "bootstrap.servers": self.bootstrap_servers, **quick})
        deadline = time.monotonic() + _START_S
        reason = "no broker is registered"
        while self.pid is not None:
            try:
                answer = client.list_topics(timeout=_ASK_S)
                if answer.cluster_id != cluster_id:
                    reason = "another cluster answers at its address"
                elif answer.brokers:
                    return ""
            except KafkaException as error:
                reason = str(error.args[0].str())
            if time.monotonic() > deadline:
                return f"not ready after {_START_S:.0f} s: {reason}"
        return "it ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class DetachedBroker:
    """A broker that runs on in `folder` without an owner: started by one command, stopped by another. `guardian_pid` is
    the process to end, `pid` Kafka's JVM."""

    version: str
    bootstrap_servers: str
    folder: Path
    pid: int
    guardian_pid: int

    def to_json(self) -> dict[str, object]:
        """What a program wants to know about it."""
        return {
            "version": self.version,
            "bootstrap_servers": self.bootstrap_servers,
            "folder": str(self.folder),
            "pid": self.pid,
            "log": str(self.folder / "broker.log"),
        }


def start_detached(version: str, *, folder: Path, port: int = 0) -> DetachedBroker:
    """Start a broker in `folder` and leave it running, or return the one of that version that runs there. Until it is
    ready it ends with this process. One start at a time in a folder. Raises ConfigurationError when another version
    runs there, and what `EmbeddedBroker.start` raises.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "start.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        running = find_detached(folder)
        if running is not None:
            if running.version == version and (not port or running.bootstrap_servers.endswith(f":{port}")):
                return running
            raise ConfigurationError(
                f"Kafka {running.version} already runs in {running.folder} at {running.bootstrap_servers}",
                hint="stop it, or give another folder",
            )
        broker = EmbeddedBroker(version, folder=folder, port=port)
        try:
            started = _write_down(broker.start())
            broker.release()
            return started
        except BaseException:
            broker.stop()
            raise


def _write_down(broker: EmbeddedBroker) -> DetachedBroker:
    """Write down how to find the broker, before it is released."""
    known: dict[str, Any] = {name: getattr(broker, name) for name in _WRITTEN}
    write_whole(json.dumps(known, indent=1) + "\n", broker.folder / _STATE)
    return DetachedBroker(**known, folder=broker.folder)


def find_detached(folder: Path) -> DetachedBroker | None:
    """The broker that runs in `folder`, or None."""
    try:
        found = DetachedBroker(**parse_json((folder / _STATE).read_text(encoding="utf-8")), folder=folder)
    except (OSError, ValueError, TypeError):
        return None
    return found if is_held(folder / _LOCK) else None


def stop_detached(broker: DetachedBroker) -> None:
    """Stop it in order and wait until it is gone. Raises AcktrailError when it does not stop."""
    lock = broker.folder / _LOCK
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _STOP_S
        with contextlib.suppress(ProcessLookupError):
            if is_held(lock):
                os.kill(broker.guardian_pid, number)
        while is_held(lock) and time.monotonic() < deadline:
            time.sleep(_TICK_S)
    if is_held(lock):
        raise AcktrailError(f"the broker in {broker.folder} (pid {broker.pid}) does not stop")
    (broker.folder / _STATE).unlink(missing_ok=True)
