"""A run of tests outlives the process of one of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

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
    words = ["-m", "pytest", "-q", "-p", "xdist", "-n", "2", "--dist", "loadscope", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        env={
            **inherited,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": str(Path(__file__).parents[1] / "support"),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert re.search(r"\b2 failed, 16 passed\b", done.stdout), done.stdout[-3_000:]
    assert sorted(re.findall(r"^FAILED test_(\d)\.py::test_ends", done.stdout, re.MULTILINE)) == ["3", "7"]
