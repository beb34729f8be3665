"""The worked examples of connectors: installed beside acktrail, run by a worker, tested by the suites."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
import sysconfig
import venv
import zipfile
from contextlib import closing
from pathlib import Path

import pytest
from deltalake import DeltaTable
from drivers.own_process import printed

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(ROOT.glob("examples/acktrail-connector-*"))


def test_the_page_shows_the_code_of_the_examples() -> None:
    """Every block of code in docs/how-to/write-a-connector.md stands in a package, line by line."""
    page = (ROOT / "docs/how-to/write-a-connector.md").read_text("utf-8")
    found = (file for example in EXAMPLES for file in example.rglob("*") if file.suffix in {".py", ".toml"})
    files = [file.read_text("utf-8") for file in found]
    blocks = re.findall(r"```(?:python|toml)\n(.*?)```", page, re.DOTALL)
    assert len(blocks) > 5
    for block in blocks:
        assert any(block in text for text in files), block


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheels of acktrail and of the examples, and this one's packages for what they need."""
    folder = tmp_path_factory.mktemp("clean")
    for project in (ROOT, *EXAMPLES):
        build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder / "wheels"]
        printed(*build, cwd=project)
    venv.create(folder / "venv")
    (own,) = (folder / "venv/lib").glob("python*/site-packages")
    for wheel in (folder / "wheels").glob("*.whl"):  # of Python alone: to unpack it is to install it
        zipfile.ZipFile(wheel).extractall(own)
    (own / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")  # after its own: no checkout in there counts
    return folder / "venv/bin/python"


@pytest.mark.full
@pytest.mark.slow
def test_a_worker_runs_the_installed_example(clean: Path, tmp_path: Path) -> None:
    """Lines become rows once, over two runs; a line of another type is a dead letter; the reference has its keys."""
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    journal.mkdir()
    (journal / "1.jsonl").write_text('{"a": 1}\n{"a": "x"}\nno json\n')
    worker, connector = tmp_path / "worker.toml", tmp_path / "journal.json"
    worker.write_text(f'rest.listener = ""\nconfig.storage.dir = "{tmp_path / "store"}"\n')
    config = {
        "connector.class": "JournalSource",
        "folder": str(journal),
        "bounded": "true",
        "sink.tables": str(tables),
        "errors.tolerance": "all",
    }
    connector.write_text(json.dumps({"name": "journal", "config": config}))
    for lines in ("", '{"a": 2, "b": true}\n'):
        with (journal / "2.jsonl").open("a") as file:
            file.write(lines)
        run(clean, "connect", "standalone", str(worker), str(connector), folder=tmp_path)

    rows = DeltaTable(str(tables / "journal")).to_pyarrow_table().to_pylist()
    found = sorted((row["journal_file"], row["journal_line"], row["a"], row.get("unreadable")) for row in rows)
    assert found == [("1.jsonl", 1, 1, None), ("1.jsonl", 3, None, "no json"), ("2.jsonl", 1, 2, None)]
    (dead,) = DeltaTable(str(tables / "dead_letters")).to_pyarrow_table().to_pylist()
    assert json.loads(dead["position"]) == {"file": "1.jsonl", "line": 2}
    assert "`folder`" in run(clean, "connect", "reference", "JournalSource", folder=tmp_path)


@pytest.mark.full
@pytest.mark.slow
def test_a_worker_runs_source_transform_and_sink_of_others(clean: Path, tmp_path: Path) -> None:
    """Rows go from one example's source through the other's transform into its sink, once over two runs."""
    journal, file = tmp_path / "journal", tmp_path / "rows.sqlite"
    journal.mkdir()
    worker, connector = tmp_path / "worker.toml", tmp_path / "journal.json"
    worker.write_text('rest.listener = ""\n')
    config = {
        "connector.class": "JournalSource",
        "folder": str(journal),
        "bounded": "true",
        "sink.class": "SqliteSink",
        "sink.file": str(file),
        "transforms": "keep",
        "transforms.keep.type": "KeepColumns",
        "transforms.keep.columns": "journal_line,a",
    }
    connector.write_text(json.dumps({"name": "journal", "config": config}))
    for lines in ('{"a": 1, "b": 1}\n', '{"a": 2, "b": 2}\n{"a": 3}\n'):
        with (journal / "1.jsonl").open("a") as opened:
            opened.write(lines)
        run(clean, "connect", "standalone", str(worker), str(connector), folder=tmp_path)

    with closing(sqlite3.connect(file)) as database:
        rows = [
            json.loads(row) for (row,) in database.execute("SELECT content FROM acktrail_rows WHERE tbl = 'journal'")
        ]
    assert rows == [{"journal_line": number, "a": number} for number in (1, 2, 3)]
    for plugin, key in (("SqliteSink", "`file`"), ("KeepColumns", "`columns`")):
        assert key in run(clean, "connect", "reference", plugin, folder=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_passes_its_own_tests(clean: Path, tmp_path: Path, example: Path) -> None:
    """With what is installed, and no checkout on the path."""
    command = [clean, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", example / "tests"]
    printed(*command, cwd=tmp_path)


def run(clean: Path, *arguments: str, folder: Path) -> str:
    return printed(clean, "-c", "from acktrail.cli.main import main; main()", *arguments, cwd=folder)
