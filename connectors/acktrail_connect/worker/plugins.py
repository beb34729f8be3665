"""Sources, sinks and transforms are plug-ins, found by entry point, so that others add theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from acktrail.branches import is_there
from acktrail.errors import ConfigurationError, MissingDependency, UnknownName
from acktrail_connect.config_def import ConfigDef
from acktrail_connect.contract import Configured, SinkConnector, SourceConnector, Transform


class PluginKind(StrEnum):
    """What a plug-in is, by Connect's words."""

    SOURCE = "source"
    SINK = "sink"
    TRANSFORM = "transformation"


_BASES: Mapping[PluginKind, type[Configured]] = {
    PluginKind.SOURCE: SourceConnector,
    PluginKind.SINK: SinkConnector,
    PluginKind.TRANSFORM: Transform,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """An installed plug-in: the name that configurations use, and the version of the package that it comes from."""

    name: str
    kind: PluginKind
    version: str


@cache
def _installed(kind: PluginKind) -> Mapping[str, EntryPoint]:
    found = entry_points(group=f"acktrail.connect.{kind.value}s")
    return {each.name: each for each in found if not each.value.startswith("acktrail") or is_there(each.value)}


def installed() -> list[Plugin]:
    """All plug-ins by kind and name. Nothing of them is imported."""
    return [
        Plugin(name=name, kind=kind, version=version_of(kind, name) or "unknown")
        for kind in PluginKind
        for name in sorted(_installed(kind))
    ]


def version_of(kind: PluginKind, name: str) -> str | None:
    """The version of the package that a plug-in comes from; None: not known."""
    found = _installed(kind).get(name)
    return None if found is None or found.dist is None else found.dist.version


def load(kind: PluginKind, name: str) -> type[Any]:
    """The class of the plug-in `name`. Raises UnknownName (no such plug-in), MissingDependency (its package lacks
    something), ConfigurationError (it is none)."""
    found = _installed(kind).get(name)
    if found is None:
        raise UnknownName(f"{kind.value} plug-in", name, known=_installed(kind))
    try:
        loaded = found.load()
    except ImportError as error:
        raise MissingDependency(
            f"the plug-in {name} cannot be loaded: {error}", hint="install the extra or the package that it needs"
        ) from error
    if not (isinstance(loaded, type) and issubclass(loaded, _BASES[kind])):
        raise ConfigurationError(
            f"the plug-in {name} is not a {kind.value}", hint=f"it must extend {_BASES[kind].__name__}"
        )
    return loaded


def definition_of(name: str) -> ConfigDef:
    """The keys of the plug-in `name` of any kind; raises UnknownName."""
    kinds = [kind for kind in PluginKind if name in _installed(kind)]
    if not kinds:
        known = [each for kind in PluginKind for each in _installed(kind)]
        raise UnknownName("plug-in", name, known=known)
    return load(kinds[0], name).config_def
