"""Make the files of a container image: the wheel with one of its extras, in the lock's versions, without what no
command of acktrail reads.

    .venv/bin/python tools/image_files.py connect .image/connect

The folder is the context of deploy/Containerfile. `make image` calls this, then builds and tries the image. A line is
printed for each step that leaves something out, with the megabytes that it saves.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
UV: Final = ROOT / ".uv/bin/uv"
PLATFORM: Final = "x86_64-manylinux_2_36"
"""Of Debian 12; its C library is the oldest one that the wheels of the lock are chosen for."""


class Step(NamedTuple):
    """What is left out, by patterns below the folder of packages, and why nothing misses it."""

    what: str
    why: str
    patterns: tuple[str, ...]


STEPS: Final = (
    Step(
        "Arrow Flight",
        "no import loads it: acktrail has no Flight client",
        ("pyarrow/*arrow_flight*", "pyarrow/_flight*", "pyarrow/*arrow_python_flight*"),
    ),
    Step(
        "Arrow's own S3 client",
        "tables in a bucket are read by delta-rs; pyarrow.fs works without it",
        ("pyarrow/libarrow_s3.*", "pyarrow/_s3fs*"),
    ),
    Step(
        "second and third copies of one library",
        "a wheel has no links; programs load the name with the ABI version",
        ("pyarrow/libarrow_python*.so", "pyarrow/libarrow_python*.so.*.*.*"),
    ),
    Step("tests of packages", "no command runs them", ("**/tests", "pyarrow/_pyarrow_cpp_tests*")),
    Step(
        "headers, stubs and sources of extensions",
        "compilers and type checkers read them, Python does not",
        ("pyarrow/include", "numpy/**/include", "**/*.pyi", "**/*.pyx", "**/*.pxd", "**/*.pxi", "**/*.h", "**/*.a"),
    ),
    Step("command lines of packages", "the image has one entry point, acktrail", ("bin", "share")),
)


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


def requirements(extra: str) -> str:
    """The lock's versions of what an extra needs."""
    words = ["export", "--quiet", "--locked", "--no-emit-project", "--no-hashes", "--no-dev"]
    for each in extra.split(","):
        words += ["--extra", each]
    return subprocess.run([UV, *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def install(extra: str, python: str, into: Path) -> None:
    """Put the wheel of dist/ and what `extra` needs into an empty folder. PySpark is built: it has no wheel."""
    (wheel,) = (ROOT / "dist").glob("acktrail-*.whl")
    locked = into.with_name("requirements.txt")
    locked.write_text(requirements(extra))
    words = ["pip", "install", "--quiet", "--no-deps", "--link-mode", "copy"]
    words += ["--python-version", python, "--python-platform", PLATFORM, "--target", str(into)]
    subprocess.run([UV, *words, "--requirement", str(locked), str(wheel)], cwd=ROOT, check=True)


def leave_out(site: Path) -> Iterator[tuple[str, int]]:
    """Carry out each step, and the last one: symbols that only debuggers read, where `strip` is installed."""
    for step in STEPS:
        yield step.what, saved(site, lambda step=step: remove(site, step.patterns))
    if shutil.which("strip"):
        yield "symbols of debuggers", saved(site, lambda: strip(site))


def saved(site: Path, work: Callable[[], None]) -> int:
    before = size_of(site)
    work()
    return before - size_of(site)


def remove(site: Path, patterns: tuple[str, ...]) -> None:
    for pattern in patterns:
        for place in [*site.glob(pattern)]:
            if place.is_dir():
                shutil.rmtree(place)
            else:
                place.unlink(missing_ok=True)


def strip(site: Path) -> None:
    """Libraries and extension modules keep the names that the loader looks up. What a wheel brings from elsewhere (in
    NAME.libs) was rewritten for it, in a way that does not load any more after `strip`."""
    libraries = [str(file) for file in site.rglob("*.so*") if file.is_file() and file.parent.suffix != ".libs"]
    subprocess.run(["strip", "--strip-unneeded", *libraries], check=True)


def write_program(file: Path) -> None:
    """The entry point, for whichever Python the base image has on its path."""
    file.write_text("#!/usr/bin/env python3\nfrom acktrail.cli.main import main\n\nmain()\n")
    file.chmod(0o755)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("extra", help="the extras of the wheel, with commas: connect, or connect,spark")
    parser.add_argument("folder", type=Path, help="made anew")
    parser.add_argument("--python", default="3.11", help="release of Python in the base image (default 3.11)")
    given = parser.parse_args()
    shutil.rmtree(given.folder, ignore_errors=True)
    site = given.folder / "site"
    site.mkdir(parents=True)
    install(given.extra, given.python, site)
    print(f"{size_of(site) / 1e6:7.1f} MB installed: acktrail[{given.extra}]")
    for what, bytes_saved in leave_out(site):
        print(f"{-bytes_saved / 1e6:7.1f} MB {what}")
    write_program(given.folder / "acktrail")
    print(f"{size_of(site) / 1e6:7.1f} MB in {site}")


if __name__ == "__main__":
    main()
