"""The worker's own configuration: a TOML file, where ``a.b`` and the table ``[a]`` with ``b`` are the same key."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from acktrail.connect.config_def import keys_in
from acktrail.connect.config_values import ConfigType, Password, text_of, under
from acktrail.errors import ConfigurationError, InvalidConfiguration
from acktrail.secrets import Providers, resolve_all

_CONNECTOR: Final = "connector."


WORKER: Final = keys_in(__package__, "worker_keys.toml")


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
