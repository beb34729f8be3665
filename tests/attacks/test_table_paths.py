"""Names in a table's log that lead out of its folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from drivers.command_line import run

from acktrail.config import TablesConfig
from acktrail.errors import DamagedTables
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_place import TablePlace
from acktrail.tables.delta.table_root import table_root
from acktrail.tables.upkeep.maintenance import _vacuum
from acktrail_connect.sources.table_source import read_commit

TABLE: Final = "topics"
NAMES: Final = {
    "two folders up": "../../outside.parquet",
    "percent-encoded": "%2e%2e/%2E%2e/outside.parquet",
    "percent-encoded slashes": "..%2F..%2foutside.parquet",
    "behind a folder": "chunk=1/../../../outside.parquet",
    "behind a slash": "/../../outside.parquet",
    "absolute": "{outside}",
    "a URI": "file://{outside}",
    "an object": "s3://bucket/outside.parquet",
    "a linked folder": "linked/outside.parquet",
    "a linked file": "linked.parquet",
}


def rows(topic: str) -> pa.Table:
    schema = TABLES[TABLE]
    texts = {each.name: topic if each.name == "topic" else None if each.nullable else "x" for each in schema}
    return pa.Table.from_pylist([texts], schema=schema)


class Scene:
    """A table of one row, and a file beside its root that only the account of the victim can read."""

    def __init__(self, folder: Path) -> None:
        self.config = TablesConfig(uri=str(folder / "tables"))
        self.tables = Tables(self.config)
        self.tables.append(TABLE, rows("own"))
        self.folder = folder / "tables" / TABLE
        self.outside = folder / "outside.parquet"
        pq.write_table(rows("secret"), self.outside)
        (folder / "elsewhere").mkdir()
        shutil.copy(self.outside, folder / "elsewhere")

    def name(self, form: str) -> str:
        """A name of the log, with the link that it needs."""
        if form.startswith("linked/"):
            (self.folder / "linked").symlink_to(self.folder.parent.parent / "elsewhere")
        elif form.startswith("linked"):
            (self.folder / "linked.parquet").symlink_to(self.outside)
        return form.format(outside=self.outside)

    def commit(self, kind: str, name: str) -> int:
        """Write a commit that adds or removes a file; its version."""
        own: dict[str, Any] = {"path": name, "dataChange": True}
        if kind == "add":
            own |= {"partitionValues": {}, "size": self.outside.stat().st_size, "modificationTime": 1}
        else:
            own |= {"deletionTimestamp": 1}
        version = len([*self.folder.glob("_delta_log/*.json")])
        lines = [{"commitInfo": {"timestamp": 1}}, {kind: own}]
        text = "".join(json.dumps(each) + "\n" for each in lines)
        (self.folder / "_delta_log" / f"{version:020d}.json").write_text(text, "utf-8")
        return version

    def is_untouched(self) -> bool:
        return self.outside.exists() and (self.folder.parent.parent / "elsewhere" / "outside.parquet").exists()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def _files(scene: Scene) -> object:
    found = Tables(scene.config).snapshot(TABLE)
    return found and found.files()


def _dataset(scene: Scene) -> object:
    found = Tables(scene.config).snapshot(TABLE)
    return found and found.dataset()


READERS: Final[dict[str, Callable[[Scene], object]]] = {
    "rows": lambda scene: Tables(scene.config).rows(TABLE),
    "files": _files,
    "dataset": _dataset,
}


@pytest.mark.parametrize("form", NAMES.values(), ids=NAMES)
def test_no_file_outside_the_table_is_read(form: str, scene: Scene) -> None:
    """Who can write to the tables, and nothing else, adds another file of the machine to a table: each reader says that
    the table is damaged, and none shows a row of it."""
    version = scene.commit("add", scene.name(form))

    for name, reader in READERS.items():
        with pytest.raises(DamagedTables, match="lies outside the table"):
            pytest.fail(f"{name}: {reader(scene)}")
    place = TablePlace(name=TABLE, root=table_root(scene.config))
    with pytest.raises(DamagedTables, match="lies outside the table"):
        read_commit(place, version)
    assert [each.cause for each in place.damage()] == ["lies outside the table"]


def test_a_table_that_grows_is_looked_at_again(scene: Scene) -> None:
    """A reader that has the table open refuses what a later commit adds, too, and so does one that reads a checkpoint
    in place of the commits."""
    reader = Tables(scene.config)
    assert [row["topic"] for row in reader.rows(TABLE)] == ["own"]
    scene.commit("add", "../../outside.parquet")

    with pytest.raises(DamagedTables, match="outside the table"):
        reader.rows(TABLE)
    DeltaTable(str(scene.folder)).create_checkpoint()
    with pytest.raises(DamagedTables, match="outside the table"):
        Tables(scene.config).rows(TABLE)


@pytest.mark.parametrize("form", NAMES.values(), ids=NAMES)
def test_no_file_outside_the_table_is_removed(form: str, scene: Scene) -> None:
    """Who can write to the tables notes another file of the machine as removed long ago: the next maintenance, which
    has the rights of the victim, leaves it where it is."""
    scene.commit("remove", scene.name(form))
    snapshot = Tables(scene.config).snapshot(TABLE)
    assert snapshot is not None

    with suppress(DamagedTables):  # where a link leads there; delta-rs takes other names for some within the table
        _vacuum(snapshot, 0, execute=True)

    assert scene.is_untouched()


@pytest.mark.parametrize("form", NAMES.values(), ids=NAMES)
def test_a_repair_moves_no_file_outside_the_table(form: str, scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """The operator looks at such a table and repairs it: they see what is wrong, and the file stays where it is."""
    scene.commit("add", scene.name(form))
    place = TablePlace(name=TABLE, root=table_root(scene.config))

    shown = run(capsys, "tables", "repair", "--tables", scene.config.uri, "--bootstrap-server", "127.0.0.1:1")
    with pytest.raises(DamagedTables, match="lies outside the table") as caught:
        place.leave_out([each.file for each in place.damage()])

    assert "lies outside the table" in shown.stdout + shown.stderr
    assert "who else can write" in caught.value.hint
    assert scene.is_untouched()


@pytest.mark.parametrize("text", ["[]", '{"version": "x"}', '{"version": NaN}', "[" * 100_000, "", '{"version": null}'])
def test_a_hostile_hint_of_the_log_is_passed_over(text: str, scene: Scene) -> None:
    """Who can write to the tables writes anything into the log's hint about its newest checkpoint: the rows are read,
    numbers of transactions too, and a search for damage is no defect."""
    (scene.folder / "_delta_log" / "_last_checkpoint").write_text(text, "utf-8")
    snapshot = Tables(scene.config).snapshot(TABLE)
    assert snapshot is not None

    assert [snapshot.transaction_version(f"app-{number}") for number in range(20)] == [None] * 20
    assert [row["topic"] for row in snapshot.rows()] == ["own"]
    assert TablePlace(name=TABLE, root=table_root(scene.config)).damage() == []


def test_names_are_judged_for_every_storage() -> None:
    """In a bucket, too, a name that leads out is refused before the storage is asked; honest ones are not."""
    place = TablePlace(name=TABLE, root=table_root(TablesConfig(uri="s3://bucket/prefix", options={})))
    honest = ["part-0.parquet", "chunk=1/part..0.parquet", "a%3Ab/..part.parquet", "chunk=%3A/x.parquet"]

    assert place.outside([*honest, *NAMES.values()]) == [
        name for name in NAMES.values() if not name.startswith("linked") and name != "{outside}"
    ]
