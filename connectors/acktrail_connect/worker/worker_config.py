"""What a worker is given in files: its own configuration, and connectors to start."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from acktrail.config import state_folder
from acktrail.errors import AcktrailError, ConfigurationError, InvalidConfiguration
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.secrets import Providers, has_reference, home_path, reference_to, resolve_all
from acktrail.text_parsing import parse_json, parse_toml
from acktrail_connect.address_keys import KAFKA_KEYS, kafka_config
from acktrail_connect.config_def import ConfigType, Texts, keys_in, text_of, under

_CONNECTOR: Final = "connector."
_BOOTSTRAP_S: Final = 2.0
_SECRETS: Final = "secrets"
_LOGINS: Final = frozenset({"rest.token", "rest.basic.password"})
WORKER: Final = keys_in(__package__, "worker_keys.toml")


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """The parsed values of ``WORKER``, by key; `defaults` are those of ``[connector]``. `private`: texts with
    references to what only the worker may read. `base`: the folder of its file; None: it has none."""

    values: Mapping[str, Any] = field(repr=False)
    private: tuple[str, ...] = ("${file:/proc}",)  # it has the environment of processes
    base: Path | None = None

    @classmethod
    def read(cls, file: Path) -> WorkerConfig:
        """From a file. Raises ConfigurationError when it cannot be read, InvalidConfiguration with all that is wrong in
        it. References to secrets stay in `defaults` as they are; those in the worker's own keys are resolved, relative
        paths from the file's folder."""
        flat = _flat(_content(file, parse_toml, "key = value, texts in quotes"))
        own = {key: value for key, value in flat.items() if not key.startswith(_CONNECTOR)}
        base = file.absolute().parent
        if file.stat().st_mode & stat.S_IRWXO and any(key in own and not has_reference(own[key]) for key in _LOGINS):
            raise ConfigurationError(
                f"other users can read or write {file}, which contains a login", hint=f"chmod o= {file}"
            )
        config = cls.of({**flat, **resolve_all(own, str(file), base=base, kept_to_owner=_LOGINS)})
        files = (file.absolute(), config.file("rest.tls.key"), config.file("config.storage.dir"), config.token_file)
        places = [each for each in files if each is not None]
        return replace(config, private=(*config.private, *own.values()), base=base).withholding(places)

    @classmethod
    def of(cls, texts: Mapping[str, Any]) -> WorkerConfig:
        """From texts by key."""
        keys = [key for key in WORKER.keys if _CONNECTOR + key in texts]
        if keys:
            raise InvalidConfiguration(
                {_CONNECTOR + key: (f"{key} is a key of the worker, but stands below [connector]",) for key in keys},
                hint="move it above [connector]",
            )
        parsed = WORKER.parse(texts)
        for given, needed in (("rest.tls.certificate", "rest.tls.key"), ("rest.basic.user", "rest.basic.password")):
            if (parsed[given] is None) != (parsed[needed] is None):
                raise InvalidConfiguration({needed: (f"{given} and {needed} go together",)})
        return cls(parsed)

    def withholding(self, files: Iterable[Path]) -> WorkerConfig:
        """The same, with files that no reference may lead to, as the connectors' own."""
        places = [str(file.absolute()) for file in files]
        refused = [reference_to(place) for place in places if not set(place) & set("{:}")]  # others cannot be named
        return replace(self, private=(*self.private, *refused))

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def file(self, key: str) -> Path | None:
        """A value that names a file or folder."""
        return None if self[key] is None else Path(self[key])

    @property
    def defaults(self) -> Mapping[str, Any]:
        return under(self.values, _CONNECTOR)

    @property
    def has_rest(self) -> bool:
        return bool(self["rest.listener"] or self["rest.socket"])

    @property
    def token_file(self) -> Path:
        """Where a token that the worker made is kept."""
        return (self.file("config.storage.dir") or state_folder() / "connect") / "rest.token"

    @property
    def providers(self) -> Providers:
        """Where references of connectors may lead. The folder of the worker's file has files that name secrets among
        other things, as an EnvironmentFile does: connectors of REST have a folder of their own below it."""
        own = () if self.base is None else (self.base / _SECRETS,)
        allowed = [(self.base or Path()) / home_path(each) for each in self["config.providers.allowed.paths"]]
        return Providers(
            base=self.base,
            folders=tuple(allowed) or own,
            variables=tuple(self["config.providers.allowed.variables"]),
            withheld=self.private,
        )


def cluster_of(defaults: Texts, providers: Providers) -> str | None:
    """The cluster of the brokers in `defaults`, whose references `providers` resolve; None: there are none, or they do
    not answer in time."""
    own = {name: text for name, text in defaults.items() if name.startswith("kafka.")}
    try:
        config = kafka_config(KAFKA_KEYS.parse({name: providers.resolve(text) for name, text in own.items()}))
        with ShareGroupAdmin(config, bootstrap_timeout_s=_BOOTSTRAP_S) as admin:
            return admin.cluster_id
    except AcktrailError:
        return None


def connector_file(file: Path) -> tuple[str, dict[str, Any]]:
    """The name and configuration in a JSON file, in either of Connect's forms: ``{"name": ..., "config": {...}}`` or
    the configuration alone. Raises ConfigurationError."""
    form = '{"name": ..., "config": {...}}'
    content = _content(file, parse_json, form)
    config = content.get("config", content) if isinstance(content, dict) else None
    name = content.get("name") if isinstance(content, dict) else None
    if not isinstance(config, dict) or not isinstance(name, str) or not name:
        raise ConfigurationError(f"{file} does not give the name of the connector", hint=form)
    return name, config


def _content(file: Path, parse: Callable[[str], Any], form: str) -> Any:
    try:
        return parse(file.read_text("utf-8-sig"))
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}", hint="check the path") from error
    except ValueError as error:
        raise ConfigurationError(f"cannot read {file}: {error}", hint=form) from error


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
