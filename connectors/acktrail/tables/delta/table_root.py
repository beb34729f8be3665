"""Where the tables lie, and what may be said about it: a URI can carry credentials."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from acktrail.config import TablesConfig

__all__ = ["TableRoot", "table_root"]

_LOCAL_SCHEMES: Final = {"", "file"}
_LEAST_SECRET: Final = 4
"""Shorter option values (regions, flags) are no secrets worth hiding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRoot:
    """`uri` is for the storage alone; `shown` is the same without user and password, for messages."""

    uri: str
    shown: str
    is_local: bool

    def table(self, name: str) -> str:
        """The URI of one table."""
        return f"{self.uri}/{name}"


def table_root(config: TablesConfig) -> TableRoot:
    """The root that `config` names: a folder, a ``file:`` URI or an object-storage URI."""
    parts = urlsplit(config.uri)
    if parts.scheme not in _LOCAL_SCHEMES and "://" in config.uri:
        host = parts.netloc.rpartition("@")[2]
        shown = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        return TableRoot(uri=config.uri.rstrip("/"), shown=shown, is_local=False)
    folder = str(Path(parts.path if parts.scheme == "file" else config.uri).absolute())
    return TableRoot(uri=folder, shown=folder, is_local=True)


def without_secrets(text: str, config: TablesConfig) -> str:
    """`text` with every option's value and every credential in a URI blotted out."""
    secrets = sorted((value for value in config.options.values() if len(value) >= _LEAST_SECRET), key=len, reverse=True)
    for secret in (urlsplit(config.uri).netloc.rpartition("@")[0], *secrets):
        if secret:
            text = text.replace(secret, "***")
    return text
