"""A guarded process and its descendants end with their owner."""

from __future__ import annotations

import ast
import fcntl
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from drivers.own_process import finished
from extras.embedded.processes import FAMILY, eventually, ignored_signals, lives, run_owner

from acktrail.errors import ConfigurationError, MissingDependency
from acktrail_embedded.process import guardian
from acktrail_embedded.process.guarded_process import GuardedProcess, is_held

OWNER = """
import os, sys, time
from pathlib import Path
from acktrail_embedded.process.guarded_process import GuardedProcess
folder, ending, family = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
process = GuardedProcess(
    [sys.executable, "-c", family, str(folder), "2"], log_path=folder / "log", grace_s=1.0, remove=folder / "remove"
)
process.start()
print(process.guardian_pid, flush=True)
while not all((folder / f"{n}.pid").exists() for n in range(3)):
    time.sleep(0.02)
if ending == "fork":
    forked = os.fork()
    if not forked:
        time.sleep(600)
    print(forked, flush=True)
print("ready", flush=True)
if ending == "error":
    raise ValueError("owner fails")
if ending != "forgets":
    time.sleep(600)
"""


def _family(folder: Path) -> list[int]:
    return [int((folder / f"{depth}.pid").read_text()) for depth in range(3)]


@pytest.mark.few(4)
@pytest.mark.parametrize("ending", ["SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "error", "forgets", "fork"])
def test_no_descendant_outlives_the_owner(tmp_path: Path, ending: str) -> None:
    """However the owner ends, every descendant is gone soon, other sessions and SIGTERM-proof ones included; the tests
    may themselves run under ``nohup`` or in a shell's background."""
    (tmp_path / "remove").mkdir()
    with ignored_signals():
        owner = run_owner(OWNER, str(tmp_path), ending, FAMILY)
    assert owner.stdout is not None
    lines = []
    while (line := owner.stdout.readline().strip()) != "ready":
        assert line, owner.communicate()[1]
        lines.append(int(line))
    family = _family(tmp_path)
    if ending.startswith("SIG"):
        owner.send_signal(getattr(signal, ending))
    elif ending == "fork":
        owner.kill()
    try:
        assert eventually(lambda: not any(map(lives, family)))
        assert eventually(lambda: not lives(lines[0]))
        assert eventually(lambda: not (tmp_path / "remove").exists())
    finally:
        for forked in lines[1:]:
            os.kill(forked, signal.SIGKILL)
        owner.communicate(timeout=120)


def test_stop_ends_all_descendants_and_returns_when_they_are_gone(tmp_path: Path) -> None:
    """After stop() no descendant lives; what was to be removed on the owner's death stays."""
    kept = tmp_path / "kept"
    kept.mkdir()
    command = [sys.executable, "-c", FAMILY, str(tmp_path), "2"]
    with GuardedProcess(command, log_path=tmp_path / "log", remove=kept) as process:
        assert eventually((tmp_path / "0.pid").exists)
        family = _family(tmp_path)
        assert process.pid == family[2]
        assert all(map(lives, family))
        assert process.poll() is None
    assert not any(map(lives, family))
    assert kept.exists()


def test_killing_the_guardian_ends_the_command(tmp_path: Path) -> None:
    """The command itself does not survive a SIGKILL of its guardian."""
    process = GuardedProcess(["sleep", "600"], log_path=tmp_path / "log").start()
    pid = process.pid
    assert pid is not None
    assert process.guardian_pid is not None
    os.kill(process.guardian_pid, signal.SIGKILL)
    assert eventually(lambda: not lives(pid))
    assert process.wait(120) == -signal.SIGKILL
    process.stop()


@pytest.mark.parametrize(
    ("script", "grace_s", "said", "code"),
    [
        ("trap '' TERM; echo up; while :; do sleep 1; done", 0.3, "up\n", 128 + signal.SIGKILL),
        ("trap 'sleep 0.5; echo done; exit 7' TERM; echo up; while :; do sleep 0.05; done", 10, "up\ndone\n", 7),
    ],
)
def test_a_command_has_its_grace_and_no_more(tmp_path: Path, script: str, grace_s: float, said: str, code: int) -> None:
    """SIGTERM comes first, and what the command does then is not cut short. Who ignores it is killed afterwards."""
    log = tmp_path / "log"
    process = GuardedProcess(["sh", "-c", script], log_path=log, grace_s=grace_s).start()
    assert eventually(lambda: log.read_text() == "up\n")
    process.stop()
    assert log.read_text() == said
    assert process.poll() == code


@contextmanager
def blocked(*numbers: signal.Signals) -> Iterator[None]:
    """As a thread of a C library blocks signals."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_a_command_starts_with_the_default_signals(tmp_path: Path) -> None:
    """What the owner ignores or blocks, the command does not: a broker takes SIGQUIT for a thread dump, whatever shell
    started it."""
    log = tmp_path / "log"
    with blocked(signal.SIGUSR1, signal.SIGTERM), ignored_signals():
        process = GuardedProcess(["grep", "^Sig[BI]", "/proc/self/status"], log_path=log).start()
    assert process.wait(120) == 0
    known = sum(1 << (number - 1) for number in signal.valid_signals())
    masks = {line.split()[0]: int(line.split()[1], 16) & known for line in log.read_text().splitlines()}
    assert masks == {"SigBlk:": 0, "SigIgn:": 0}


def test_a_guardian_hears_signals_that_its_owner_blocked(tmp_path: Path) -> None:
    """A process started from a thread that blocks signals (as those of C libraries do) still ends in order."""
    with blocked(signal.SIGTERM):
        process = GuardedProcess(["sleep", "600"], log_path=tmp_path / "log").start()
    assert process.guardian_pid is not None
    os.kill(process.guardian_pid, signal.SIGTERM)
    assert process.wait(120) == 128 + signal.SIGTERM


def test_what_the_command_leaves_behind_is_ended(tmp_path: Path) -> None:
    """A command that exits by itself leaves no daemon, and its exit code is passed on."""
    script = f"setsid sleep 600 & echo $! > {tmp_path}/daemon; exit 3"
    process = GuardedProcess(["sh", "-c", script], log_path=tmp_path / "log").start()
    assert process.wait(120) == 3
    assert not lives(int((tmp_path / "daemon").read_text()))
    process.stop()


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    """Nothing runs and the error says what could not be run and why."""
    process = GuardedProcess([str(tmp_path / "nothing")], log_path=tmp_path / "log")
    with pytest.raises(MissingDependency, match="nothing: No such file or directory"):
        process.start()
    assert process.poll() is not None


def test_a_released_process_outlives_its_owner_until_its_guardian_is_told(tmp_path: Path) -> None:
    """release() is the one way to leave something behind; SIGTERM to the guardian ends all of it. Its lock is held for
    so long, by the guardian alone."""
    script = """
import sys
from pathlib import Path
from acktrail_embedded.process.guarded_process import GuardedProcess
folder = Path(sys.argv[1])
process = GuardedProcess(["sleep", "600"], log_path=folder / "log", lock=folder / "lock").start()
print(process.pid, process.guardian_pid)
process.release()
"""
    answer = finished(sys.executable, "-W", "error", "-c", script, tmp_path)
    pid, guardian = map(int, answer.stdout.split())
    assert is_held(tmp_path / "lock")
    assert lives(pid)
    os.kill(guardian, signal.SIGTERM)
    assert eventually(lambda: not is_held(tmp_path / "lock"))
    assert not lives(pid)
    assert answer.stderr == ""


def test_the_guardian_loads_the_standard_library_alone() -> None:
    """So it starts fast, beside every child and on any interpreter."""
    tree = ast.parse(Path(guardian.__file__).read_text("utf-8"))
    plain = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    chosen = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {name.split(".")[0] for name in (*plain, *chosen)} <= sys.stdlib_module_names


@pytest.mark.timeout(30)
def test_a_lock_that_is_taken_in_between_is_no_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two starts in one folder the second is refused at once, also where nothing ran there when it looked."""
    monkeypatch.setattr("acktrail_embedded.process.guarded_process.is_held", lambda _: False)
    with (tmp_path / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ConfigurationError, match="another process runs"):
            GuardedProcess(["sleep", "600"], log_path=tmp_path / "log", lock=tmp_path / "lock").start()
