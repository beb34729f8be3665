"""The folder a demo works in: its own, used by one demo at a time, empty of the one before."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from acktrail.errors import ConfigurationError

__all__ = ["DemoFolder", "demo_folder"]

_MARKER: Final = ".acktrail-demo"
_REPORT: Final = "acktrail-report.html"


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """`root` holds ``tables/``, the report, and while it is needed ``broker/`` and ``airflow/``."""

    root: Path

    @property
    def tables(self) -> Path:
        """Root of the Delta tables."""
        return self.root / "tables"

    @property
    def broker(self) -> Path:
        """The broker's data and log."""
        return self.root / "broker"

    @property
    def airflow(self) -> Path:
        """Airflow's configuration, metadata and logs."""
        return self.root / "airflow"

    @property
    def report(self) -> Path:
        """The HTML report."""
        return self.root / _REPORT

    def clear(self) -> None:
        """Remove what a demo made."""
        self.clear_servers()
        shutil.rmtree(self.tables, ignore_errors=True)
        self.report.unlink(missing_ok=True)

    def clear_servers(self) -> None:
        """Remove what broker and Airflow kept; tables and report stay."""
        for folder in (self.broker, self.airflow):
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def demo_folder(root: Path) -> Iterator[DemoFolder]:
    """`root`, cleared and held against other demos.

    Raises:
        ConfigurationError: it holds something that no demo made, another demo is using it, or it cannot be written.
    """
    folder = DemoFolder(root.absolute())
    marker = folder.root / _MARKER
    if folder.root.is_dir() and any(folder.root.iterdir()) and not marker.exists():
        raise ConfigurationError(f"{root} holds files that no demo made", hint="name a new folder with --out")
    try:
        folder.root.mkdir(parents=True, exist_ok=True)
        lock = marker.open("a", encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"cannot write to {root}: {error.strerror}", hint="name another with --out") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigurationError(
                f"another demo is using {root}", hint="end it, or name another with --out"
            ) from error
        folder.clear()
        yield folder
