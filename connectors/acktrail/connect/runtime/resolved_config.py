"""A connector's configuration with the values of its references and files, and a redaction of its secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from acktrail.connect.config_def import ConfigKey
from acktrail.connect.config_values import ConfigType
from acktrail.connect.runtime.connector_config import ConnectorPlan, plan, shapes, validate
from acktrail.connect.runtime.redaction import Redaction, secrets_of
from acktrail.connect.runtime.worker_answers import Texts, ValidatedKey, validated_key
from acktrail.errors import AcktrailError, ConfigurationError, InputError, InvalidConfiguration
from acktrail.secrets import Providers


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedConfig:
    """`given`: as a person wrote it, with the lines of its `files`. `values`: resolved, by key. `wrong`: what is wrong
    with references and files, by key. `redact` hides every secret of it."""

    given: Texts
    values: Texts
    files: Mapping[str, frozenset[str]]
    wrong: Mapping[str, tuple[str, ...]]
    redact: Redaction

    @property
    def hidden(self) -> frozenset[str]:
        """Keys whose values come from a reference."""
        return frozenset(name for name, value in self.values.items() if self.given.get(name) != value)

    def plan(self) -> ConnectorPlan:
        """Raises InvalidConfiguration with all that is wrong; other errors of a plug-in, without the secrets."""
        with self.redact.errors():
            if self.wrong:
                raise InvalidConfiguration(self.wrong)
            try:
                return plan({key: each for key, each in self.values.items() if key not in self.files}, self.hidden)
            except InvalidConfiguration:
                raise
            except (ConfigurationError, InputError) as error:
                text = error.message + (f"; {error.hint}" if error.hint else "")
                raise InvalidConfiguration({"connector.class": (text,)}) from None

    def validated(self) -> list[ValidatedKey]:
        """Every key that was given or that there is, with its value as it may be shown."""
        lines = frozenset(line for each in self.files.values() for line in each)
        with self.redact.errors():
            keys, found = validate(self.values, self.hidden)
            return [
                validated_key(keys.keys.get(each.name), each, self.given, self.wrong.get(each.name, ()), self.redact)
                for each in found
                if each.name in keys.keys or each.name not in lines
            ]


def resolve_config(given: Texts, providers: Providers) -> ResolvedConfig:
    """Resolve what can be resolved; what cannot is in `wrong`."""
    own = replace(providers, seen=set())
    given, values, wrong = dict(given), dict[str, Any](), dict[str, tuple[str, ...]]()
    for name, text in given.items():
        values[name], error = _resolved(name, text, own)
        wrong |= error
    with Redaction(own.seen).errors():
        definitions, _ = validate(values)
    files = {}
    for key in definitions.keys.values():
        if key.lines_under is None or not isinstance(values.get(key.name), str) or key.name in wrong:
            continue
        lines, error = _lines(key, Path(values[key.name]), own)
        files[key.name] = frozenset(lines.keys() - given.keys())
        for name, text in lines.items():
            if name not in given:
                given[name] = text
                values[name], line_error = _resolved(name, text, replace(own, base=Path(values[key.name]).parent))
                error |= {
                    file: (f"{file}, {each[0]}",) for file, each in zip([key.name], line_error.values(), strict=False)
                }
        wrong |= error
    passwords = [name for name, key in definitions.keys.items() if key.type is ConfigType.PASSWORD]
    redact = Redaction([*own.seen, *secrets_of(given, values, passwords)])
    return ResolvedConfig(given=given, values=values, files=files, wrong=wrong, redact=redact)


def _resolved(name: str, text: Any, providers: Providers) -> tuple[Any, dict[str, tuple[str, ...]]]:
    """A value and what is wrong with its references."""
    try:
        value = providers.resolve(text) if isinstance(text, str) else text
    except AcktrailError as error:
        return text, {name: (f"{name}: {error.message}",)}
    if shapes(name) and value != text:
        return text, {name: (f"{name}: names of connectors, plug-ins and transforms are no references",)}
    return value, {}


def _lines(key: ConfigKey, file: Path, providers: Providers) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """The keys that a file has, by their whole names, and what is wrong with it."""
    try:
        return {f"{key.lines_under}{name}": text for name, text in providers.properties(file).items()}, {}
    except AcktrailError as error:
        return {}, {key.name: (f"{key.name}: {error.message}",)}
