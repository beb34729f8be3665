"""The demo's folder is its own, and files of others are safe."""

from __future__ import annotations

from pathlib import Path

import pytest

from acktrail.errors import ConfigurationError
from acktrail_demo.demo import demo_folder


def _fill(root: Path) -> None:
    for part in ("tables/topics/x.parquet", "broker/broker.log", "airflow/airflow.db", "reports/acktrail-report.html"):
        (root / part).parent.mkdir(parents=True, exist_ok=True)
        (root / part).write_text("old")


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    """A folder that no demo made is refused, and nothing in it is touched."""
    _fill(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ConfigurationError, match="no demo made"), demo_folder(tmp_path):
        raise AssertionError("it was taken")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_new_demo_clears_the_one_before_and_nothing_else(tmp_path: Path) -> None:
    """Tables, report and servers of the last demo go; a file somebody put beside them stays."""
    root = tmp_path / "new" / "demo"
    with demo_folder(root):
        _fill(root)
    (root / "notes.txt").write_text("mine")
    with demo_folder(root) as folder:
        assert {path.name for path in root.iterdir()} == {".acktrail-demo", "notes.txt"}
        _fill(root)
        folder.clear_servers()
        assert {path.name for path in root.iterdir() if not path.name.startswith(".")} == {
            "notes.txt",
            "reports",
            "tables",
        }


def test_one_demo_at_a_time(tmp_path: Path) -> None:
    """A second demo in the same folder is refused while the first runs, and clears nothing."""
    with demo_folder(tmp_path / "demo") as first:
        _fill(first.root)
        with pytest.raises(ConfigurationError, match="another demo"), demo_folder(tmp_path / "demo"):
            raise AssertionError("it was taken")
        assert (first.tables / "topics" / "x.parquet").exists()
    with demo_folder(tmp_path / "demo"):
        pass


def test_unwritable_folder(tmp_path: Path) -> None:
    """Where a folder cannot be made the error says so, on one line, with a way out."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot write") as caught, demo_folder(tmp_path / "file" / "demo"):
        raise AssertionError("it was taken")
    assert "--out" in caught.value.hint
