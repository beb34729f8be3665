"""Coverage-guided fuzzing of everything that reads bytes: bounded here, as long as you like by hand.

``tests/fuzz/fuzz_process.py TARGET FOLDER -max_total_time=600`` goes on until it finds something. What it finds goes
into ``corpus/TARGET.hex``, one input a line, and is replayed for ever.
"""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from drivers.own_process import finished
from fuzz.targets import TARGETS

HERE = Path(__file__).parent
RUNS = dict.fromkeys(TARGETS, 2_000) | {"columns": 400, "dead_letters": 500}
"""A fixed number, so that a slow machine tries what a quick one does; some take ten times as long."""

OF_ITS_OWN_MEMORY = ["sh", "-c", '"$@"; exit $?', "sh"]
"""Starts a command from a small process: Linux carries the peak memory of the starting process across ``exec`` into
``ru_maxrss``, which libFuzzer compares with its limit, so a large test process would count as the fuzzer's memory."""


def corpus(target: str) -> list[bytes]:
    """The committed inputs of a target."""
    return [bytes.fromhex(line) for line in (HERE / f"corpus/{target}.hex").read_text().split()]


@pytest.mark.few(4)
@pytest.mark.parametrize("target", sorted(TARGETS))
def test_known_inputs(target: str) -> None:
    """Every input of the corpus, cut off anywhere and with a changed byte, keeps the target's promises."""
    inputs = corpus(target)
    assert inputs
    for data in inputs:
        TARGETS[target](data)
        for at in range(0, len(data), 1 + len(data) // 3):
            TARGETS[target](data[:at])
            TARGETS[target](data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])


@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is built for Linux on x86-64 alone")
@pytest.mark.few(4)
@pytest.mark.parametrize("target", sorted(TARGETS))
def test_new_inputs(target: str, tmp_path: Path) -> None:
    """Some thousand inputs that reach new code, from the corpus on, break nothing and take no gigabyte."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for number, data in enumerate(corpus(target)):
        (folder / f"{number:04}").write_bytes(data)
    command = [sys.executable, HERE / "fuzz_process.py", target, folder, f"-artifact_prefix={folder}/found-"]
    # An input that took long is written into the folder; without -reload=0 it is read from there again, beyond -runs.
    limits = ["-reload=0", "-seed=1", "-timeout=120", "-rss_limit_mb=1024", "-max_len=2048", "-print_final_stats=1"]

    done = finished(*OF_ITS_OWN_MEMORY, *command, *limits, f"-runs={RUNS[target]}")

    assert done.returncode == 0, done.stderr[-4_000:]
    executed = re.search(r"stat::number_of_executed_units: (\d+)", done.stderr)
    assert executed
    assert int(executed[1]) == RUNS[target]
