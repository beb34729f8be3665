"""The address of the REST interface, and who may call there."""

from __future__ import annotations

from acktrail.connect.rest.access import Access, Guard, is_loopback
from acktrail.connect.rest.application import Resources, application
from acktrail.connect.rest.calls import Calls
from acktrail.connect.rest.http_server import HttpServer
from acktrail.connect.runtime.worker import Worker
from acktrail.connect.runtime.worker_config import WorkerConfig
from acktrail.errors import ConfigurationError


def rest_server(worker: Worker, config: WorkerConfig) -> HttpServer:
    """The REST interface of a worker at its configured address. Raises ConfigurationError: it is none, or taken; it
    can be reached from elsewhere without TLS and authentication; certificate or key cannot be used."""
    host, port = _address(config.listener)
    calls = Calls(worker=worker, timeout_s=config.request_timeout_s)
    server = HttpServer(
        Guard(Resources(application(calls)), _access(config, host)),
        host,
        port,
        option="rest.listener",
        certificate=config.certificate,
        private_key=config.private_key,
    )
    calls.worker_id = server.address
    return server


def _address(listener: str) -> tuple[str, int]:
    host, _, port = listener.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigurationError(f"rest.listener {listener!r} is no host:port", hint="127.0.0.1:8083")
    return host.strip("[]"), int(port)


def _access(config: WorkerConfig, host: str) -> Access:
    is_own = is_loopback(host)
    access = Access(
        token=config.token,
        user=config.user,
        password=config.password,
        hosts=(*config.allowed_hosts, host) if is_own or config.allowed_hosts else None,
    )
    if not is_own and not config.is_insecure and not (access.asks and config.certificate is not None):
        raise ConfigurationError(
            f"rest.listener {config.listener} can be reached from elsewhere, without TLS and authentication",
            hint="set rest.tls.certificate, rest.tls.key and rest.token (or rest.basic.user and rest.basic.password), "
            "listen on 127.0.0.1, or say rest.insecure=true",
        )
    return access
