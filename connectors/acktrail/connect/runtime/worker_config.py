"""The worker's own configuration: a TOML file, where ``a.b`` and the table ``[a]`` with ``b`` are the same key."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from acktrail.connect.config_def import Between, ConfigDef, ConfigKey, Importance
from acktrail.connect.config_values import ConfigType, Password, text_of, under
from acktrail.errors import ConfigurationError, InvalidConfiguration
from acktrail.secrets import Providers, resolve_all

_CONNECTOR: Final = "connector."


def _key(name: str, kind: ConfigType, default: Any, documentation: str, **more: Any) -> ConfigKey:
    return ConfigKey(name=name, type=kind, default=default, documentation=documentation, group="Worker", **more)


WORKER: Final = ConfigDef(
    [
        _key(
            "rest.listener",
            ConfigType.STRING,
            "127.0.0.1:8083",
            "Address of the REST interface, host:port; port 0: any free one. Empty: none.",
            importance=Importance.HIGH,
        ),
        _key(
            "rest.tls.certificate",
            ConfigType.STRING,
            None,
            "PEM file with the certificate chain of the REST interface.",
        ),
        _key("rest.tls.key", ConfigType.STRING, None, "PEM file with its private key."),
        _key("rest.token", ConfigType.PASSWORD, None, "Callers must send it: Authorization: Bearer TOKEN."),
        _key("rest.basic.user", ConfigType.STRING, None, "User name for HTTP basic authentication."),
        _key("rest.basic.password", ConfigType.PASSWORD, None, "Password for HTTP basic authentication."),
        _key(
            "rest.insecure",
            ConfigType.BOOLEAN,
            "false",
            "Allow an address beyond this machine without TLS and authentication.",
            importance=Importance.LOW,
        ),
        _key(
            "rest.allowed.hosts",
            ConfigType.LIST,
            "",
            "Names that callers may use for this machine beside the listener's own; for a listener on loopback others "
            "are refused (DNS rebinding).",
            importance=Importance.LOW,
        ),
        _key(
            "config.providers.allowed.paths",
            ConfigType.LIST,
            "",
            "Folders that ${file:...}, kafka.client.config and the sinks' files of options may lie in; empty: any.",
        ),
        _key(
            "config.providers.allowed.variables",
            ConfigType.LIST,
            "",
            "Variables of the environment that ${env:...} may name, * for any part of a name; empty: any.",
        ),
        _key(
            "config.storage.dir",
            ConfigType.STRING,
            None,
            "Folder that keeps the configurations and target states of connectors over restarts. Without it those made "
            "by REST end with the process.",
        ),
        _key(
            "lease",
            ConfigType.BOOLEAN,
            "true",
            "Take a lease in the sink's storage for each connector, so that a second worker stands by and takes over.",
        ),
        _key(
            "lease.ttl.ms",
            ConfigType.LONG,
            30_000,
            "How long a lease lasts unless it is renewed: a worker that stands by takes over that long after a death.",
            validator=Between(least=1_000),
        ),
        _key(
            "worker.name",
            ConfigType.STRING,
            None,
            "Name in leases; workers that may run at the same time need different ones. Default: host and path of this "
            "file, so that a worker that was killed and started again continues at once.",
        ),
        _key("metrics.listener", ConfigType.STRING, None, "Address of the Prometheus metrics, host:port."),
        _key("log.format", ConfigType.STRING, "text", "text, or json: one object a line with a stable event name."),
    ],
    {_CONNECTOR: "a key that every connector has unless its own configuration has it"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """Parsed: see ``WORKER``. `defaults` are the keys of ``[connector]``."""

    listener: str
    storage: Path | None
    uses_lease: bool
    lease_ttl_s: float
    worker_name: str | None
    metrics_listener: str | None
    log_format: str
    is_insecure: bool = False
    certificate: Path | None = None
    private_key: Path | None = None
    token: Password | None = None
    user: str | None = None
    password: Password | None = None
    allowed_hosts: tuple[str, ...] = ()
    providers: Providers = field(default_factory=Providers)
    defaults: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, file: Path | None) -> WorkerConfig:
        """From a file; None: the defaults. Raises ConfigurationError when it cannot be read, InvalidConfiguration with
        all that is wrong in it. References to secrets stay in `defaults` as they are; those in the worker's own keys
        are resolved, relative paths from the file's folder."""
        if file is None:
            return cls.of({})
        flat = _flat(_toml(file))
        own = {key: value for key, value in flat.items() if not key.startswith(_CONNECTOR)}
        return cls.of({**flat, **resolve_all(own, str(file), base=file.absolute().parent)})

    @classmethod
    def of(cls, texts: Mapping[str, Any]) -> WorkerConfig:
        """From texts by key."""
        parsed = WORKER.parse(texts)
        for given, needed in (
            ("rest.tls.certificate", "rest.tls.key"),
            ("rest.basic.user", "rest.basic.password"),
        ):
            if (parsed[given] is None) != (parsed[needed] is None):
                raise InvalidConfiguration({needed: (f"{given} and {needed} go together",)})
        return cls(
            listener=parsed["rest.listener"],
            storage=_path(parsed["config.storage.dir"]),
            uses_lease=parsed["lease"],
            lease_ttl_s=parsed["lease.ttl.ms"] / 1_000,
            worker_name=parsed["worker.name"],
            metrics_listener=parsed["metrics.listener"],
            log_format=parsed["log.format"],
            is_insecure=parsed["rest.insecure"],
            certificate=_path(parsed["rest.tls.certificate"]),
            private_key=_path(parsed["rest.tls.key"]),
            token=parsed["rest.token"],
            user=parsed["rest.basic.user"],
            password=parsed["rest.basic.password"],
            allowed_hosts=tuple(parsed["rest.allowed.hosts"]),
            providers=Providers(
                folders=tuple(map(Path, parsed["config.providers.allowed.paths"])) or None,
                variables=tuple(parsed["config.providers.allowed.variables"]) or None,
            ),
            defaults=under(parsed, _CONNECTOR),
        )


def connector_file(file: Path) -> tuple[str, dict[str, Any]]:
    """The name and configuration in a JSON file, in either of Connect's forms: ``{"name": ..., "config": {...}}`` or
    the configuration alone. Raises ConfigurationError."""
    try:
        content = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}", hint="check the path") from error
    except ValueError as error:
        raise ConfigurationError(f"{file} is no JSON: {error}", hint='{"name": ..., "config": {...}}') from error
    config = content.get("config", content) if isinstance(content, dict) else None
    name = content.get("name") if isinstance(content, dict) else None
    if not isinstance(config, dict) or not isinstance(name, str) or not name:
        raise ConfigurationError(f"{file} has no connector's name", hint='{"name": ..., "config": {...}}')
    return name, config


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}", hint="check the path") from error
    except ValueError as error:
        raise ConfigurationError(f"{file} is no TOML: {error}", hint="key = value, texts in quotes") from error


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as keys with dots; numbers and truth values as the texts that a connector's JSON would have."""
    flat: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        elif isinstance(value, bool):
            flat[prefix + name] = text_of(ConfigType.BOOLEAN, value)
        else:
            flat[prefix + name] = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return flat


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
