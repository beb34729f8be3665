"""Runs one target under atheris: ``fuzz_process.py TARGET CORPUS [libFuzzer options]``; an exception ends it."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    import atheris

    here = Path(__file__).resolve()
    sys.path[:0] = [str(here.parent), str(here.parents[1] / "support"), str(here.parents[2] / "simulation")]
    with atheris.instrument_imports(include=["acktrail.offline", "acktrail.format.wire", "targets"]):
        from targets import TARGETS, use_scratch
    name, *options = sys.argv[1:]
    corpus = Path(options[0])
    use_scratch(corpus.with_name(f"{corpus.name}-scratch"))
    atheris.Setup([sys.argv[0], *options], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
