"""pyarrow without pandas: quick to start, and nothing is taken away."""

from __future__ import annotations

import subprocess
import sys


def run(code: str) -> list[str]:
    """The lines that `code` prints in a fresh interpreter."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split("\n")


def test_an_export_does_not_import_pandas() -> None:
    """Everything an export needs is imported and pyarrow is used, and pandas is not there."""
    said = run(
        "import sys\n"
        "from acktrail.cli.arrow_without_pandas import forgo_pandas\n"
        "forgo_pandas()\n"
        "import acktrail.kafka.state.state_source, acktrail.kafka.groups.observation\n"
        "import acktrail.tables.exported.delta_sink\n"
        "import pyarrow as pa\n"
        "print(pa.array([{'a': 1}]).to_pylist(), pa.scalar('x'), 'pandas' in sys.modules)"
    )
    assert said[0] == "[{'a': 1}] x False"


def test_pandas_is_there_for_whoever_wants_it_later() -> None:
    """An import afterwards works, and so does pyarrow's way to pandas."""
    said = run(
        "from acktrail.cli.arrow_without_pandas import forgo_pandas\n"
        "forgo_pandas()\n"
        "import pyarrow as pa\n"
        "print(pa.table({'a': [1, 2]}).to_pandas().a.sum())\n"
        "import pandas\n"
        "print(pandas.DataFrame({'b': [3]}).b.sum())"
    )
    assert said[:2] == ["3", "3"]


def test_rows_are_read_and_written_without_numpy() -> None:
    """Times, texts and null come back from a table as they were, and neither numpy nor pandas is imported."""
    said = run(
        "import sys, tempfile, datetime as dt\n"
        "from acktrail.cli.arrow_without_pandas import row_tables\n"
        "config = row_tables(tempfile.mkdtemp(), None)\n"
        "from acktrail.tables.delta.store import Tables\n"
        "tables = Tables(config)\n"
        "row = {'plan_id': 'p', 'created_at': dt.datetime(2026, 1, 2, tzinfo=dt.UTC), 'group_ids': ['a', 'b']}\n"
        "tables.append('reset_plans', [row])\n"
        "(found,) = tables.rows('reset_plans', {'plan_id': 'p'})\n"
        "print({name: found[name] for name in row} == row, found['reason'])\n"
        "print('numpy' in sys.modules, 'pandas' in sys.modules)"
    )
    assert said[:2] == ["True None", "False False"]
