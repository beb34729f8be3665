"""pyarrow without pandas: quick to start, and nothing is taken away."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[1] / "support/golden/state_topic/4.2.1.jsonl.gz"


def run(code: str) -> list[str]:
    """The lines that `code` prints in a fresh interpreter."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split("\n")


def test_an_export_does_not_import_pandas() -> None:
    """Everything an export needs is imported and pyarrow is used, and pandas is not there."""
    said = run(
        "import sys\n"
        "from acktrail.cli.arrow_without_pandas import forgo_pandas\n"
        "forgo_pandas()\n"
        "import acktrail.kafka.state.state_source, acktrail.kafka.groups.offsets_connector\n"
        "import acktrail.tables.exported.delta_sink\n"
        "import pyarrow as pa\n"
        "print(pa.array([{'a': 1}]).to_pylist(), pa.scalar('x'), 'pandas' in sys.modules)"
    )
    assert said[0] == "[{'a': 1}] x False"


@pytest.mark.parametrize("command", ["decode", "replay"])
def test_copied_records_are_read_without_pandas(command: str) -> None:
    """Neither what is read of files nor what comes of it needs it."""
    said = run(
        "import sys\n"
        "from acktrail.cli.main import app\n"
        f"app(['record', {command!r}, {str(GOLDEN)!r}], standalone_mode=False)\n"
        "print('pyarrow' in sys.modules, 'pandas' in sys.modules)"
    )
    assert (len(said) > 3, said[-2]) == (True, "True False")


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
