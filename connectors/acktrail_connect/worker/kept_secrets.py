"""Which secrets a change of a connector may keep: those whose connection goes where it went before.

A secret that the caller of REST did not send again, be it stored, a reference, the file of a client's credentials, or
of ``[connector]`` in the worker's file, was given for one address, protocol and mechanism. A caller who could name
others would have the worker send it there. A reference that is sent again proves nothing: everybody is shown it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from acktrail.secrets import HIDDEN, has_reference, reference_to, references_in
from acktrail_connect.config_def import ConfigKey, ConfigType, Texts, is_secret, names_credentials
from acktrail_connect.worker.connector_config import validate, with_defaults

_TEXTS: Final = frozenset({ConfigType.STRING, ConfigType.LIST, ConfigType.CLASS})
_WHEN_AND_WHO: Final = ("client.id", ".ms", ".seconds", ".factor", ".jitter")
"""Ends of names that change nothing about where a connection goes."""
_WHERE: Final = ("url", "uri", "proxy", "endpoint", "jaas")
"""Words in names of secrets that say where a connection goes, too."""
_SINK: Final = "sink."
_TRANSFORMS: Final = "transforms."


def connection_of(name: str) -> str:
    """The part of a connector that a key is of: the sink, a transform, or (empty) the source.

    >>> connection_of("sink.option.aws_endpoint_url"), connection_of("transforms.m.key"), connection_of("tables")
    ('sink.', 'transforms.m.', '')
    """
    if name.startswith(_SINK):
        return _SINK
    return ".".join(name.split(".")[:2]) + "." if name.startswith(_TRANSFORMS) else ""


def says_where(name: str, key: ConfigKey | None) -> bool:
    """Whether a key says where its connection goes, or how. `key` None: it is under an open prefix."""
    if _is_secret(name, key) and not any(word in name.lower() for word in _WHERE):
        return False
    return not name.endswith(_WHEN_AND_WHO) if key is None else key.says_where and key.type in _TEXTS


def kept(sent: Texts, before: Texts | None) -> dict[str, Any]:
    """What was `sent`, with the old values of what was sent back as it is shown."""
    old = before or {}
    return {key: old.get(key, text) if text == HIDDEN else text for key, text in sent.items()}


def not_kept(
    sent: Texts, own: Texts, before: Texts | None, defaults: Texts, in_file: Texts
) -> dict[str, tuple[str, ...]]:
    """What is wrong, by key, with a change of a connector: secrets that it would keep although their connection goes
    elsewhere. Its caller `sent` some texts, `own` is the configuration after it, `before` the one until then (None: it
    is new), `defaults` those of the worker's file, `in_file` those of the connector's file that an operator named."""
    return _Change.of(sent=sent, own=own, before=before, defaults=defaults, in_file=in_file).not_kept()


def led_to(texts: Texts) -> list[str]:
    """References to all that these texts of an operator lead to: their own, and one to each file that names a client.

    >>> led_to({"kafka.sasl.password": "x${env:WORD}", "option.google_service_account": "/gcs.json", "tables": "/t"})
    ['${env:WORD}', '${file:/gcs.json}']
    """
    found = [each for text in texts.values() for each in references_in(str(text))]
    files = [os.path.abspath(text) for name, text in texts.items() if names_credentials(name) and isinstance(text, str)]
    return found + [reference_to(file) for file in files if not set(file) & set("{:}")]


def written_by_operator(own: Texts, defaults: Texts, in_file: Texts) -> set[str]:
    """The keys in `own` whose texts an operator wrote into a file, and which connect where that file says."""
    change = _Change.of(sent=own, own=own, before=None, defaults=defaults, in_file=in_file)
    said = {name: (change.defaults.get(name), in_file.get(name)) for name in own}
    return {name for name, text in own.items() if text in said[name] and not change.strays(name)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    sent: Texts
    own: Texts
    before: Texts | None
    defaults: Texts
    in_file: Texts
    keys: Mapping[str, ConfigKey]

    @classmethod
    def of(cls, *, sent: Texts, own: Texts, before: Texts | None, defaults: Texts, in_file: Texts) -> _Change:
        configs = [with_defaults(each, defaults) for each in (own, before, in_file) if each]
        known = {key: text for key, text in defaults.items() if any(key in each for each in configs)}
        keys = dict[str, ConfigKey]()
        for each in configs:  # what is a password to either is one
            found = validate(each)[0].keys
            keys |= {key: of for key, of in found.items() if key not in keys or of.type is ConfigType.PASSWORD}
        return cls(sent=sent, own=own, before=before, defaults=known, in_file=in_file, keys=keys)

    def not_kept(self) -> dict[str, tuple[str, ...]]:
        wrong = dict[str, tuple[str, ...]]()
        for name in {*self.defaults, *self.own}:
            moved = self._moved(name) if self._is_one(name) and self.sent.get(name) in (None, HIDDEN) else ()
            if moved:
                where = ", ".join(moved)
                if name in self.own:
                    text = f"it was given for another {where}: send it again, with the change"
                else:
                    text = (
                        f"[connector] of the worker's file has it for another {where}: send it too, or name that there"
                    )
                wrong[name] = (f"{name}: {text}",)
        return wrong

    def strays(self, name: str) -> list[str]:
        """The keys that say where `name` goes, where they differ from what an operator wrote it for."""
        after = {**self.defaults, **self.own}
        if self.in_file and self.own.get(name) == self.in_file.get(name):  # from there, or in neither
            return self._differing(name, {**self.defaults, **self.in_file}, after)
        named = {key: text for key, text in after.items() if key not in self.defaults and self._is_class(key)}
        return self._differing(name, {**named, **self.defaults}, after)

    def _is_one(self, name: str) -> bool:
        is_one = _is_secret(name, self.keys.get(name)) or names_credentials(name) or self.sent.get(name) == HIDDEN
        return is_one or (name not in self.own and has_reference(str(self.defaults[name])))

    def _moved(self, name: str) -> list[str]:
        """The keys that say where `name` goes, where they differ from what it was given for."""
        if name not in self.own:
            return self.strays(name)
        if self.before is None:
            return []  # there is no other value
        return self._differing(name, {**self.defaults, **self.before}, {**self.defaults, **self.own})

    def _differing(self, name: str, old: Texts, new: Texts) -> list[str]:
        part = connection_of(name)
        return sorted(
            key
            for key in {*old, *new}
            if connection_of(key) == part and old.get(key) != new.get(key) and says_where(key, self.keys.get(key))
        )

    def _is_class(self, name: str) -> bool:
        key = self.keys.get(name)
        return key is not None and key.type is ConfigType.CLASS


def _is_secret(name: str, key: ConfigKey | None) -> bool:
    return is_secret(name) or (key is not None and key.type is ConfigType.PASSWORD)
