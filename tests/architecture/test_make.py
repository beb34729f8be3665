"""What `make lint` runs of its own finds what it looks for, where it stands, and nothing else. A run of tests outlives
the process of one of them."""

from __future__ import annotations

import ast
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest
from drivers.own_process import finished

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import check_documents  # programs of the folder `tools`
import mutate
import plain_english
import write_rules

ROOT: Final = Path(__file__).parents[2]


def lines(text: str, *, is_python: bool = False) -> list[int]:
    return [line for line, _, _ in plain_english.findings(text, is_python=is_python)]


@pytest.mark.parametrize("sentence", ["Nobody is told what was passed over.", "The law by which replay goes on."])
def test_a_planted_sentence_is_found(sentence: str) -> None:
    """In a docstring, in a comment and in a document; across lines, too, with the line of the first word."""
    assert lines(f'"""{sentence}"""\n', is_python=True)
    assert lines(f"x = 1  # {sentence}\n", is_python=True)
    assert lines(f"# Title\n\n{sentence}\n")
    assert lines("x = 1\n# rows are passed\n# over here\n", is_python=True) == [2]
    assert lines("One.\n\nRows are passed\nover here.\n") == [3]


@pytest.mark.parametrize(
    "sentence",
    [
        "The share coordinator writes a snapshot after 500 updates; the leader epoch fences older writers.",
        "`nobody` and ``told`` are names of columns.",
        "One `x`.\n\n```console\n$ echo nobody\n```\n",
    ],
)
def test_plain_sentences_and_terms_of_the_field_pass(sentence: str) -> None:
    """No false alarm on Kafka's words, on quoted names and on commands."""
    assert lines(sentence) == []


def test_what_a_document_names_and_is_gone_is_found() -> None:
    """A member, a module, a path and a link; those that are there pass."""
    there = "`acktrail.model.share_partition:SharePartition.group_id`, `tests/conftest.py`, [all](docs/index.md#x)"
    gone = "`acktrail.model.gone:replay`, `acktrail.model.share_partition:Gone`, `tests/gone.py`, [none](docs/gone.md)"

    assert list(check_documents.missing(there, ROOT)) == []
    assert len(list(check_documents.missing(gone, ROOT))) == 4


def test_a_printed_table_with_old_columns_is_found() -> None:
    """The head of a table that a command prints passes, one with a column that is gone does not."""
    page = "```console\n$ acktrail status\n```\n\n```\nGROUP  STATUS  SINCE  SHARE PARTITIONS  {}\n```\n"

    assert list(check_documents.old_headings(page.format("UNFINISHED"))) == []
    assert len(list(check_documents.old_headings(page.format("LAG")))) == 1


def test_the_threat_model_names_every_file_of_attacks() -> None:
    """Who reads it finds what was tried; who adds an attack says whose it is."""
    files = {str(file.relative_to(ROOT)) for file in (ROOT / "tests/attacks").glob("test_*.py")}
    page = (ROOT / "docs/explanation/threat-model.md").read_text("utf-8")
    assert [file for file in sorted(files) if f"`{file}`" not in page] == []


def test_files_that_make_names_are_there() -> None:
    """Targets that seldom run do not name a program or a test that moved."""
    named = re.findall(r"\b(?:tests|tools|benchmarks)/[\w/]+\.py", (ROOT / "Makefile").read_text("utf-8"))
    assert len(named) > 4
    assert [name for name in named if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("folder", ["benchmarks", "tools"])
def test_programs_import_what_is_there(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No check of types sees them, and some seldom run. A branch may be left out."""
    monkeypatch.syspath_prepend(str(ROOT / folder))
    trees = [ast.parse(file.read_text("utf-8")) for file in sorted((ROOT / folder).glob("*.py"))]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    named = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    there = {name for name in named if find_spec(name.partition(".")[0])}
    assert len(there) > 20
    assert [name for name in sorted(there) if find_spec(name) is None] == []


PLAIN = "def test_first(): pass\ndef test_second(): pass\n"
ENDS = "import os\ndef test_first(): pass\ndef test_ends(): os._exit(3)\ndef test_last(): pass\n"
SHARES = """
from drivers.process_sharing import ScopeSharing
def pytest_xdist_make_scheduler(config, log):
    return ScopeSharing(config, log)
"""


def test_a_process_that_ends_fails_one_test(tmp_path: Path) -> None:
    """Whichever module it is in: all other tests are run once, and the run ends."""
    (tmp_path / "conftest.py").write_text(SHARES)
    for number in range(8):
        (tmp_path / f"test_{number}.py").write_text(ENDS if number in {3, 7} else PLAIN)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    own = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(Path(__file__).parents[1] / "support")}
    words = ["-m", "pytest", "-q", "-p", "xdist", "-n", "2", "--dist", "loadscope", "-p", "no:cacheprovider"]
    done = finished(sys.executable, *words, cwd=tmp_path, env={**inherited, **own})
    assert re.search(r"\b2 failed, 16 passed\b", done.stdout), done.stdout[-3_000:]
    assert sorted(re.findall(r"^FAILED test_(\d)\.py::test_ends", done.stdout, re.MULTILINE)) == ["3", "7"]


def test_the_page_of_rules_is_the_catalogue() -> None:
    """``tools/write_rules.py`` gives the page that is there, with the condition of each rule of trunk and branches."""
    assert write_rules.PAGE.read_text("utf-8") == write_rules.page()


def test_every_mutant_fits_the_sources() -> None:
    """`make mutants` is run by hand: what it would change is there, and each of its rows names a test."""
    shown = mutate.tests_of_rows()
    for each in mutate.mutants():
        assert all(shown[row] for row in each["rows"]), each["name"]
        for name, before, after in each["edits"]:
            assert before in (ROOT / name).read_text("utf-8"), (each["name"], name)
            assert before != after
