"""The command line inside the test's own process: quick, and its streams are the test's. In a process of its own: what
a command loads."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow  # noqa: F401  # with numpy, which a command alone in its process may hide
import pytest
from drivers.own_process import printed

from acktrail.cli.main import _run

__all__ = ["Done", "loaded", "run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a command ended, and what it said."""

    code: int
    stdout: str
    stderr: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One JSON object a line of stdout."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def answer(self) -> dict[str, Any]:
        """The one JSON object that a command that did its work printed."""
        assert self.code == 0, self.stderr
        (found,) = self.rows
        return found

    def complaint(self, code: int) -> str:
        """The one line that was printed instead of an answer; checks exit code and form. That of ``--json`` as text."""
        assert (self.code, self.stdout) == (code, ""), self
        (line,) = self.stderr.splitlines()
        if line.startswith("{"):
            error = json.loads(line)["error"]
            assert error["exit_code"] == code
            line = f"acktrail: {error['message']}" + (f" ({error['hint']})" if error["hint"] else "")
        assert line.startswith("acktrail: ")
        return line


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Done:
    """Run ``acktrail`` with `arguments`."""
    capsys.readouterr()
    code = _run([*map(str, arguments)])
    said = capsys.readouterr()
    return Done(code=code, stdout=said.out, stderr=said.err)


def loaded(*commands: str) -> tuple[list[int], set[str]]:
    """The exit codes of ``acktrail`` with each of `commands`, one after the other in a process of their own, and the
    modules that it loaded."""
    words = [command.split() for command in commands]
    probe = f"import sys, acktrail.cli.main as cli; print('\\n', *map(cli._run, {words!r}), 'and', *sys.modules)"
    codes, _, modules = printed(sys.executable, "-c", probe).splitlines()[-1].partition(" and ")
    return [*map(int, codes.split())], {*modules.split()}
