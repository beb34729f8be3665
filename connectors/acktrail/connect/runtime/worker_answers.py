"""What a worker is asked with and answers: keys after validation, offsets, and why a change is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from acktrail.connect.config_def import ConfigKey, ConfigValue
from acktrail.connect.config_values import HIDDEN, ConfigType, is_reference, shown, text_of
from acktrail.connect.runtime.redaction import Redaction
from acktrail.connect.source_batches import Position
from acktrail.errors import InputError

Texts = Mapping[str, Any]


class ConnectorConflict(InputError):
    """The connector is not in the state that this needs, or its name is taken."""


class NotStopped(InputError):
    """Offsets can only be changed while the connector is stopped."""

    def __init__(self, name: str) -> None:
        super().__init__(
            "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the "
            f"specified connector by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint",
            data={"connector": name},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedKey:
    """One key after validation, without secrets. `definition` None: the key is not known. `value` as a text."""

    name: str
    definition: ConfigKey | None
    value: str | None
    recommended_values: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    visible: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRule:
    """The name of this worker among those that may run the same connectors, and how long a lease lasts."""

    owner: str
    ttl_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetEntry:
    """A source partition and its position as REST shows them: two objects of JSON; offset None: to be removed."""

    partition: Mapping[str, Any]
    offset: Mapping[str, Any] | None


def offset_of(position: Position) -> Mapping[str, Any]:
    """A position as REST shows it: a number is ``{"offset": number}``."""
    return {"offset": position} if isinstance(position, int) else position


def position_of(offset: Mapping[str, Any]) -> Position:
    """The inverse of ``offset_of``."""
    number = offset.get("offset")
    return number if set(offset) == {"offset"} and isinstance(number, int) else offset


def shown_text(name: str, kind: ConfigType | None, text: Any) -> Any:
    """A configured text as it may be shown: a password is hidden unless it is a reference to one."""
    if kind is ConfigType.PASSWORD and text and not is_reference(text):
        return HIDDEN
    return shown(name, text)


def validated_key(
    key: ConfigKey | None, value: ConfigValue, given: Texts, wrong: tuple[str, ...], redact: Redaction
) -> ValidatedKey:
    """A key's answer to a validation of the texts `given`: `wrong` errors of its reference, else its own, redacted."""
    raw = given.get(value.name)
    kind = ConfigType.STRING if key is None else key.type
    if isinstance(raw, str) and is_reference(raw):
        text: str | None = raw
    else:
        text = shown_text(value.name, kind, text_of(kind, value.value))
        text = None if text is None else redact(str(text))
    each_kind = ConfigType.STRING if kind is ConfigType.LIST else kind
    return ValidatedKey(
        name=redact(value.name),
        definition=key,
        value=text,
        recommended_values=tuple(text_of(each_kind, each) or "" for each in value.recommended_values),
        errors=tuple(map(redact, wrong or value.errors)),
        visible=value.visible,
    )
