"""Files that packages carry: TOML (rules, faults, metrics, keys of connectors) whose errors name file and line; DAGs,
and what runs acktrail on a machine. Where the installed packages came from."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from acktrail.text_parsing import parse_json, parse_toml

_Made = TypeVar("_Made")


class PackageData:
    """The TOML in `text`; `where` names it in errors. `header`: of the array of tables whose rows are made, such as
    ``subject.rule``. Raises ValueError, with the line: it is no TOML."""

    def __init__(self, text: str, where: str, header: str) -> None:
        try:
            self.data: dict[str, Any] = parse_toml(text)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        self._where = where
        found = re.finditer(rf"^\[\[{re.escape(header)}\]\]", text, re.MULTILINE)
        self._lines = iter([1 + text.count("\n", 0, each.start()) for each in found])

    def made(self, row: Mapping[str, Any], make: Callable[[Mapping[str, Any]], _Made]) -> _Made:
        """What `make` makes of the next row, in the order of the file. Raises ValueError, with the row's line: what
        `make` raises as ValueError or TypeError."""
        line = next(self._lines)
        try:
            return make(row)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self._where}, line {line}: {error}") from error


def check_names(
    row: Mapping[str, Any], kind: type[Any], *, added: Collection[str] = (), left_out: Collection[str] = ()
) -> None:
    """See that a row has every field that a dataclass needs and no other one but `added`; `left_out`: fields that are
    made. Raises ValueError: it does not."""
    known = {each.name: each for each in fields(kind) if each.name not in left_out}
    for name in sorted(row.keys() - known.keys() - {*added}):
        raise ValueError(f"{name!r} is not a field of {kind.__name__}")
    for name, each in known.items():
        if name not in row and each.default is MISSING and each.default_factory is MISSING:
            raise ValueError(f"{name!r} is missing")


class MetricDefinition(NamedTuple):
    """A metric's name, help text and labels. A name that ends with ``_total`` is a counter's."""

    name: str
    about: str
    labels: tuple[str, ...]


def metric_definitions(package: str, part: str) -> dict[str, MetricDefinition]:
    """The metrics in a part of a package's ``metrics.toml``, by name."""
    rows = parse_toml(files(package).joinpath("metrics.toml").read_text("utf-8"))[part]
    return {name: MetricDefinition(name, own["help"], tuple(own.get("labels", ()))) for name, own in rows.items()}


def dags_folder() -> Path:
    """For Airflow's ``dags_folder``: ``acktrail_dags/dag_files`` of an installed wheel, or ``dags/`` of a checkout."""
    folder = Path(str(files("acktrail_dags")))
    carried = folder / "dag_files"
    return carried if carried.is_dir() else folder.parent


_DEPLOYED: Final = ("deploy/services", "dashboards/prometheus", "dashboards/grafana")


def deployed_files() -> dict[str, Path]:
    """What runs acktrail on a machine, by names such as ``services/acktrail-connect.service``: units of systemd with
    the configuration that they read, alert rules, boards. From the installed wheel, or from a checkout."""
    own = Path(str(files("acktrail")))
    carried = own / "deployment"
    folders = [(carried if carried.is_dir() else own.parent) / folder for folder in _DEPLOYED]
    found = ((folder, file) for folder in folders for file in folder.rglob("*") if file.is_file())
    return {f"{folder.name}/{file.relative_to(folder).as_posix()}": file for folder, file in found}


def install_hint(extras: str) -> str:
    """How to install these extras (``kafka,tables``): from where the installed acktrail came, by its record of that
    (PEP 610). No index is named, where anybody could own the name."""
    own = distribution("acktrail")
    try:
        came_from = parse_json(own.read_text("direct_url.json") or "{}")
        url, folder = urlsplit(str(came_from.get("url", ""))), came_from.get("dir_info")
    except (ValueError, AttributeError):
        url, folder = urlsplit(""), None
    path = unquote(url.path)
    if url.scheme == "file" and Path(path).exists():
        editable = "-e " if isinstance(folder, Mapping) and folder.get("editable") else ""
        return f"pip install {editable}{shlex.quote(f'{path}[{extras}]')}"
    if url.scheme == "https" and url.hostname and "@" not in url.netloc:
        return f"pip install {shlex.quote(f'acktrail[{extras}] @ {url.geturl()}')}"
    wheel = f"./acktrail-{own.version}-py3-none-any.whl[{extras}]"
    return f"pip install {shlex.quote(wheel)}, where the wheel lies that was installed"
