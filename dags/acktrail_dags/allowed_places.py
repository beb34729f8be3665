"""What a run may name beside the cluster, the tables, the Spark and the report folder of its worker.

Who may trigger a DAG, send an asset event or edit an XCom says what a run does. Whose credentials it uses, where it is
audited and which files it touches is the decision of the deployment: variables of the DAG processor and the workers.
A worker checks every value again, wherever it comes from; what it refuses it has not looked at.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from acktrail.config import setting
from acktrail.errors import ConfigurationError
from acktrail.text_tables import printable

PLACES: Final = "ACKTRAIL_DAG_PLACES"
"""``CONNECTION=TABLES``, several with commas: clusters that runs may name, each with the tables that go with it."""
SPARK: Final = "ACKTRAIL_DAG_SPARK"
"""Airflow connections to Spark that runs may name, with commas."""
FOLDERS: Final = "ACKTRAIL_DAG_FOLDERS"
"""Folders of the workers, with commas: there and below, runs may read files of offsets and write reports."""

_LONGEST: Final = 200


def allowed_places() -> tuple[tuple[str, str], ...]:
    """The Airflow connections to clusters that runs may name, each with its tables."""
    pairs = (entry.partition("=") for entry in _entries(PLACES))
    return tuple((connection.strip(), tables.strip()) for connection, _, tables in pairs)


def allowed_spark() -> tuple[str, ...]:
    """The Airflow connections to Spark that runs may name."""
    return _entries(SPARK)


def allowed_folders() -> tuple[str, ...]:
    """The folders of the workers in which runs may name files and folders."""
    return _entries(FOLDERS)


def ensure_place(connection: str, tables: str, own: tuple[str, str | None], *, changes: bool = False) -> None:
    """Raise ConfigurationError unless a run may work on the cluster of the Airflow `connection` with these `tables`:
    both are the worker's `own`, or the deployment allows them together. With `changes`, only the worker's own tables
    go with its own cluster, even if the deployment allows others: changes of a cluster have one audit."""
    if connection == own[0] and own[1] is not None and is_same(tables, own[1]):
        return
    if changes and connection == own[0]:
        hint = f"leave the field Tables empty; ACKTRAIL_TABLES={_shown(tables)} on the workers says where they are"
        raise _refused(f"changes of the cluster of {connection!r} are audited in its own tables only", hint)
    if not any(connection == other and is_same(tables, uri) for other, uri in allowed_places()):
        line = _line(PLACES, f"{_shown(connection)}={_shown(tables)}")
        raise _refused(
            f"this run may not use the Airflow connection {_shown(connection)!r} with the tables {_shown(tables)}",
            f"leave the fields Kafka connection and Tables empty, or {line}",
        )


def ensure_spark(connection: str) -> None:
    """Raise ConfigurationError unless a run may name this Airflow connection to Spark."""
    if connection not in allowed_spark():
        line = _line(SPARK, _shown(connection))
        text = f"this run may not use the Airflow connection {_shown(connection)!r} as its Spark"
        raise _refused(text, f"leave the field Spark connection empty, or {line}")


def allowed_path(field: str, path: str, *more: Path | None) -> Path:
    """`path` of a form's `field`, without symbolic links. Raises ConfigurationError unless it is in one of the folders
    that the deployment allows, or of `more`. The error is the same for every one of them."""
    roots = [Path(root).resolve() for root in (*allowed_folders(), *more) if root is not None]
    with suppress(OSError, RuntimeError, ValueError):  # a loop of links, a null character
        found = Path(path).resolve()
        if any(found.is_relative_to(root) for root in roots):
            return found
    line = _line(FOLDERS, _shown(str(Path(path).parent)))
    raise _refused(f"{field}: this run may not name {_shown(path)}", f"name a path in an allowed folder, or {line}")


def ensure_profile(name: str | None, known: tuple[str | None, ...]) -> None:
    """Raise ConfigurationError unless the workers' DAGs are made for the profile `name`."""
    if name not in known:
        hint = "trigger the DAG of that profile; ACKTRAIL_DAG_PROFILES names those that have DAGs"
        raise _refused(f"this run may not use the profile {_shown(str(name))!r}", hint)


def _refused(text: str, hint: str) -> ConfigurationError:
    return ConfigurationError(text, hint=hint)


def _line(variable: str, added: str) -> str:
    return f"to allow it, set this variable on the workers: {variable}={','.join((*_entries(variable), added))}"


def _entries(variable: str) -> tuple[str, ...]:
    return tuple(entry.strip() for entry in setting(variable).split(",") if entry.strip())


def is_same(tables: str, other: str) -> bool:
    """Whether two texts name the same root of tables. Nothing is looked up: another way to a folder is another name,
    and so is one with a blank more: storages and file systems have both."""
    return tables.removesuffix("/") == other.removesuffix("/")


def _shown(value: Any) -> str:
    """A value of a form for a message; an address with credentials is left out."""
    text = str(value)
    return "ADDRESS" if "@" in text.partition("://")[2].partition("/")[0] else printable(text)[:_LONGEST]
