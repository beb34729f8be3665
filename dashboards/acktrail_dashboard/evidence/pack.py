"""The evidence pack of a run: facts, versions, and hashes of the tables' files, under a hash of its own."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from acktrail import __version__
from acktrail.config import TablesConfig
from acktrail.errors import MalformedFile
from acktrail.tables.delta.store import Tables
from acktrail.times import utc_text
from acktrail_dashboard.evidence.file_hashes import FileHash, HashedTable, hash_table
from acktrail_dashboard.evidence.run_facts import TABLES_OF_A_RUN, run_facts
from acktrail_dashboard.html.report import page_templates, write_whole
from acktrail_dashboard.publication import file_name, prune
from acktrail_dashboard.summary import shown_run

EVIDENCE: Final = "acktrail-evidence"
"""The stem of a pack's files, before the run."""
SCHEMA: Final = "acktrail-evidence/1"
_LARGEST: Final = 256 << 20
_ENGINES: Final = {"spark": "pyspark", "great_expectations": "great_expectations", "deltalake": "deltalake"}
Pack = dict[str, Any]
Known = dict[str, dict[tuple[str, int], str]]
"""Hashes of data files by table, path and size."""


def write_evidence(
    config: TablesConfig, run_id: str | None, folder: Path, *, kept: int, broker: str | None = None
) -> tuple[Path, Pack]:
    """Write the pack of `run_id` (None: the run observed last) to `folder` as JSON and as a page, and remove all but
    the `kept` packs written last. A data file that an earlier pack there has is not read again: its first hash stays.

    Raises as `acktrail_dashboard.command.report`.
    """
    tables, chosen = Tables(config), shown_run(config, run_id)
    pack = make_pack(tables, chosen, known=_known(folder), broker=broker)
    stem = f"{EVIDENCE}-{file_name(chosen)}"
    file = write_whole(json.dumps(pack, indent=1) + "\n", folder / f"{stem}.json")
    write_whole(pack_page(pack), folder / f"{stem}.html")
    prune(folder, EVIDENCE, kept=kept)
    return file, pack


def make_pack(tables: Tables, run_id: str, *, known: Known | None = None, broker: str | None = None) -> Pack:
    """The pack of a run as of the tables' present versions."""
    found = {name: snapshot for name in TABLES_OF_A_RUN if (snapshot := tables.snapshot(name)) is not None}
    hashes = {name: hash_table(snapshot, (known or {}).get(name, {})) for name, snapshot in found.items()}
    pack = {
        "schema": SCHEMA,
        "written_at": utc_text(datetime.now(UTC), "auto"),
        "broker": broker,
        "versions": {
            "acktrail": __version__,
            "python": platform.python_version(),
            "kafka": None,  # no table holds it
            **{name: _installed(package) for name, package in _ENGINES.items()},
        },
        "facts": run_facts(found, run_id),
        "tables": [asdict(of) for of in hashes.values()],
    }
    return json.loads(json.dumps({**pack, "sha256": digest(pack)}))  # type: ignore[no-any-return]  # an object


def digest(pack: Mapping[str, Any]) -> str:
    """The hash of a pack without the one that it has."""
    own = {name: value for name, value in pack.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(own, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def read_pack(file: Path) -> Pack:
    """A pack from its file. Raises MalformedFile: it is none, or cannot be read."""
    try:
        if file.stat().st_size > _LARGEST:
            raise MalformedFile("is too large for an evidence pack", file=str(file))
        pack = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise MalformedFile(f"cannot be read: {error.strerror}", file=str(file)) from error
    except (ValueError, RecursionError) as error:
        raise MalformedFile("is no JSON", file=str(file), hint="name the .json file of a pack") from error
    if not isinstance(pack, dict) or pack.get("schema") != SCHEMA:
        raise MalformedFile(f"is no evidence pack of the form {SCHEMA}", file=str(file))
    return pack


def hashed_tables(pack: Pack) -> list[HashedTable]:
    """The hashes in a pack. Raises KeyError, TypeError, ValueError: something else stands there."""
    return [
        HashedTable(
            table=str(of["table"]),
            table_id=str(of["table_id"]),
            version=int(of["version"]),
            log=tuple(FileHash(**each) for each in of["log"]),
            data=tuple(FileHash(**each) for each in of["data"]),
        )
        for of in pack["tables"]
    ]


def pack_page(pack: Pack) -> str:
    """A pack for people: one HTML file without a script. The same pack always gives the same page."""
    return page_templates().get_template("evidence.html").render(pack=pack, facts=pack["facts"])


def _known(folder: Path) -> Known:
    """The hashes in the newest pack of a folder that is whole; none where there is no such pack."""
    files = sorted(folder.glob(f"{EVIDENCE}-*.json"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in files[:3]:
        with suppress(MalformedFile, KeyError, TypeError, ValueError):
            pack = read_pack(file)
            if digest(pack) == pack["sha256"]:
                return {
                    of.table: {(each.path, each.size_bytes): each.sha256 for each in of.data}
                    for of in hashed_tables(pack)
                }
    return {}


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
