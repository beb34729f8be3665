"""A pack is what the tables show: verified on untouched tables, refused after any change, honest about what is gone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from drivers.command_line import run
from samples.sample_run import RUN, sample_run, store

from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError, MalformedFile
from acktrail.tables.delta.store import Tables
from acktrail_dashboard.evidence import FileFate, PackVerdict, digest, read_pack, verify_pack, write_evidence


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample's run in real tables, and its pack."""
    folder = tmp_path_factory.mktemp("packed")
    config = store(folder / "tables")
    Tables(config).append(
        "offset_observations", [{"run_id": RUN, "phase": "before", "topic": "orders", "partition": 0}]
    )
    write_evidence(config, RUN, folder / "evidence", kept=9)
    return folder


@pytest.fixture
def stored(packed: Path, tmp_path: Path) -> TablesConfig:
    """The same for one test."""
    return TablesConfig(uri=str(shutil.copytree(packed / "tables", tmp_path / "tables")))


@pytest.fixture
def file(packed: Path, tmp_path: Path) -> Path:
    """The pack of the run."""
    return next(Path(shutil.copytree(packed / "evidence", tmp_path / "evidence")).iterdir())


def _refused(verdict: PackVerdict) -> list[tuple[str, str | None, str | None]]:
    return [(of.part, of.table, of.file) for of in verdict.parts if of.fate is FileFate.DIFFERENT]


def test_a_pack_says_what_was_read_checked_and_found(file: Path) -> None:
    """Offsets of every state partition, the gap, every rule, versions, and every file of every table with its hash."""
    pack = read_pack(file)
    facts = pack["facts"]
    assert facts["head"]["run_id"] == RUN
    ends = {(of["state_partition"], of["first_offset"], of["last_offset"]) for of in facts["exports"]}
    assert ends == {(0, 0, 1310), (1, 0, 1420), (2, 40, 1333), (3, 0, 1339)}
    assert [(gap["first_offset"], gap["last_offset"]) for gap in facts["gaps"]] == [(1282, 1299)]
    assert len(facts["expectations"]) == sample_run().quality_results.num_rows
    assert pack["versions"]["deltalake"]
    assert pack["versions"]["kafka"] is None
    of_ranges = next(of for of in pack["tables"] if of["table"] == "export_ranges")
    log = [path for path in of_ranges["files"] if path.startswith("_delta_log/")]
    assert (len(log), len(of_ranges["files"])) == (1 + sample_run().export_ranges.num_rows, len(log) + 5)


def test_untouched_tables_verify_also_after_more_was_written(stored: TablesConfig, file: Path) -> None:
    """Every part is the same, now and after later commits to every table."""
    assert verify_pack(stored, file).fate is FileFate.SAME
    tables, sample = Tables(stored), sample_run()
    tables.append("export_ranges", sample.export_ranges)
    tables.append("quality_results", sample.quality_results)
    verdict = verify_pack(stored, file)
    assert verdict.fate is FileFate.SAME
    assert set(verdict.files) == {"same"}


def test_one_byte_of_any_file_of_a_table_refuses_the_pack(stored: TablesConfig, file: Path) -> None:
    """Data file or commit, at its first, middle or last byte: the file is named; put back, the pack verifies again."""
    for name in ("reconciliations", "export_ranges"):
        folder = Path(stored.uri, name)
        for path in (next(folder.glob("*.parquet")), sorted((folder / "_delta_log").glob("*.json"))[1]):
            content = path.read_bytes()
            for at in (0, len(content) // 2, len(content) - 1):
                path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
                assert _refused(verify_pack(stored, file)) == [("files", name, str(path.relative_to(folder)))]
            path.write_bytes(content)
    assert verify_pack(stored, file).fate is FileFate.SAME


@pytest.mark.parametrize("which", [0, 2, -1])
def test_a_commit_that_was_removed_refuses_the_pack(stored: TablesConfig, file: Path, which: int) -> None:
    """The first, one between two others, the newest: no checkpoint stands for it."""
    commits = sorted(Path(stored.uri, "export_ranges", "_delta_log").glob("*.json"))
    commits[which].unlink()
    assert ("files", "export_ranges", f"_delta_log/{commits[which].name}") in _refused(verify_pack(stored, file))


EDITS: tuple[Callable[[dict[str, Any]], object], ...] = (
    lambda pack: pack["facts"]["totals"].update(lag=0),
    lambda pack: [rule.update(state="holds") for rule in pack["facts"]["expectations"]],
    lambda pack: pack["facts"].update(gaps=[]),
    lambda pack: pack.update(tables=[of for of in pack["tables"] if of["table"] != "quality_results"]),
)
"""A sum, results of rules, a gap and a table that somebody altered or left off."""


@pytest.mark.parametrize("edit", EDITS, ids=("sum", "rule", "gap", "table"))
def test_an_edited_pack_is_refused_also_under_a_hash_that_was_made_again(
    stored: TablesConfig, file: Path, edit: Callable[[dict[str, Any]], object]
) -> None:
    """The pack's own hash shows the edit; where somebody made that again, the tables do."""
    pack = read_pack(file)
    edit(pack)
    file.write_text(json.dumps(pack), encoding="utf-8")
    assert ("pack", None, None) in _refused(verify_pack(stored, file))
    file.write_text(json.dumps({**pack, "sha256": digest(pack)}), encoding="utf-8")
    assert _refused(verify_pack(stored, file)) == [("facts", None, None)]


def test_what_a_maintenance_removed_is_not_known_and_never_passed(stored: TablesConfig, file: Path) -> None:
    """Files that were compacted and vacuumed: the log shows the commit that removed them; the verdict is unknown."""
    tables = Tables(stored)
    rows = tables.read("export_ranges")
    old = {path.name for path in Path(stored.uri, "export_ranges").glob("*.parquet")}
    with tables.rewritable("export_ranges"):
        tables.replace("export_ranges", rows)
    for name in old:
        Path(stored.uri, "export_ranges", name).unlink()
    verdict = verify_pack(stored, file)
    assert verdict.fate is FileFate.UNKNOWN
    gone = [of for of in verdict.parts if of.part == "files"]
    assert {of.file for of in gone} == old
    assert all("removed it" in of.reason for of in gone)
    assert {of.fate for of in verdict.parts if of.part == "facts"} == {FileFate.UNKNOWN}


def test_another_table_in_the_place_is_refused(stored: TablesConfig, file: Path) -> None:
    """A table that was removed and made again has another id."""
    tables = Tables(stored)
    tables.place("quality_results").discard()
    assert ("files", "quality_results", None) in _refused(verify_pack(stored, file))
    tables.append("quality_results", sample_run().quality_results)
    assert ("files", "quality_results", None) in _refused(verify_pack(stored, file))


def test_a_file_keeps_the_hash_of_its_first_pack(stored: TablesConfig, file: Path) -> None:
    """A later pack in the same folder reads only new files, so that what changed since the first pack shows."""
    Tables(stored).append("export_ranges", sample_run().export_ranges)
    path = next(Path(stored.uri, "offset_observations").glob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    first = _hashes(read_pack(file))
    later = write_evidence(stored, RUN, file.parent, kept=9)[0]
    second = _hashes(read_pack(later))
    assert first.items() <= second.items()
    assert len(second) == len(first) + 1
    assert _refused(verify_pack(stored, later)) == [("files", "offset_observations", path.name)]


def test_a_storage_that_refuses_is_no_verdict(stored: TablesConfig, file: Path) -> None:
    """Nothing can be said of the files then: an error of ours with its reason."""
    refused = PermissionError(13, "Permission denied")
    with patch("acktrail_dashboard.evidence.files_of", side_effect=refused), pytest.raises(ConfigurationError):
        verify_pack(stored, file)


def _hashes(pack: dict[str, Any]) -> dict[tuple[str, str], str]:
    return {
        (of["table"], path): each
        for of in pack["tables"]
        for path, each in of["files"].items()
        if path.endswith(".parquet")
    }


def test_what_is_no_pack_is_refused(stored: TablesConfig, file: Path) -> None:
    """Any other file is one error with its name. Parts of another type, a table that acktrail does not know, paths that
    lead out of the table are not what the tables show."""
    pack = read_pack(file)
    for text in ("", "[]", "{}", '{"schema": "acktrail-evidence/2"}', "[" * 100_000, "\x00"):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(MalformedFile, match=file.stem):
            verify_pack(stored, file)
    for broken in (
        {**pack, "tables": 3},
        {**pack, "tables": [{**pack["tables"][0], "table": "../../etc"}]},
        {**pack, "facts": None},
    ):
        file.write_text(json.dumps({**broken, "sha256": digest(broken)}), encoding="utf-8")
        assert verify_pack(stored, file).fate is not FileFate.SAME


def test_the_command_writes_and_verifies(
    stored: TablesConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`evidence write RUN` writes, `evidence verify` takes a file or a folder; 0 verified, 6 refused, 2 none."""
    out, tables = tmp_path / "packs", ("--tables", stored.uri)
    evidence = partial(run, capsys, "dashboard", "evidence")
    told = evidence("write", RUN, *tables, "--out", out, "--json").answer
    for place in (told["pack"], out):
        verified = evidence("verify", place, *tables)
        assert verified.code == 0
        assert f"verified: run {RUN}, SHA-256 {told['sha256']}" in verified.stdout
    path = next(Path(stored.uri, "reconciliations").glob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    refused = evidence("verify", out, *tables)
    assert refused.code == 6
    assert "REFUSED" in refused.stdout
    assert path.name in refused.stdout
    evidence("verify", tmp_path / "none", *tables).complaint(2)
