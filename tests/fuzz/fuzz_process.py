"""Runs one target under atheris: ``fuzz_process.py TARGET CORPUS [libFuzzer options]``; an exception ends it."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    import atheris

    here = Path(__file__).resolve()
    sys.path[:0] = [str(here.parents[1]), str(here.parents[1] / "support"), str(here.parents[2] / "simulation")]
    with atheris.instrument_imports(include=["acktrail_copied_logs", "acktrail.format.wire", "fuzz", "copied_logs"]):
        from fuzz.targets import TARGETS
    name, *options = sys.argv[1:]
    atheris.Setup([sys.argv[0], *options], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
