"""Containers by podman, in a storage of their own that ends with the block: nothing of them stays on the machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from drivers.own_process import finished

__all__ = ["IMAGES", "Containers", "containers", "image"]

IMAGES: Final = Path(__file__).parents[3] / ".image"
_HYBRID: Final = Path("/sys/fs/cgroup/unified")
_SYS_RESOURCE: Final = 24
_SETTINGS: Final = """\
[containers]
netns = "host"
{ulimits}
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
"""
_FEW: Final = 'default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]'
"""podman asks for limits of its own choice. Raising one needs a capability that a container of CI may lack."""
_HOLDER: Final = "umount {hybrid} 2>/dev/null; {network} echo ready; exec cat"
"""What keeps the namespaces until its input ends. crun refuses machines that have both versions of cgroups,
so that the newer one is hidden there, where it is."""


@dataclass(frozen=True)
class Containers:
    """podman; each command runs in the namespaces of process `holder`."""

    folder: Path
    holder: int

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "CONTAINERS_CONF": str(self.folder / "containers.conf"), "PODMAN": str(self.program)}

    @property
    def program(self) -> Path:
        """A program that takes podman's arguments: of this storage, in that namespace."""
        return self.folder / "podman"

    def podman(self, *words: str | Path, **how: Any) -> subprocess.CompletedProcess[str]:
        """How a command of podman ended; what podman itself says about a missing systemd is no news of a container."""
        done = finished(self.program, *words, env=self.environment, **how)
        lines = [line for line in done.stderr.splitlines() if not line.startswith("time=")]
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout, "\n".join(lines))

    def done(self, *words: str | Path, **how: Any) -> str:
        """What it printed; it ended well."""
        found = self.podman(*words, **how)
        assert found.returncode == 0, (found.stdout + found.stderr)[-4_000:]
        return found.stdout.strip()

    def inspected(self, name: str) -> Any:
        return json.loads(self.done("inspect", name))[0]

    def is_healthy(self, name: str) -> bool:
        """What its health command says now; the container has not ended."""
        state = self.inspected(name)["State"]
        assert state["Running"] or not state["ExitCode"], self.podman("logs", name)
        return self.podman("healthcheck", "run", name).returncode == 0

    def ended(self, name: str) -> tuple[int, str]:
        """Send SIGTERM, wait; the exit code and all that the container said."""
        self.done("stop", "--time", "60", name)
        logs = self.podman("logs", name)
        return self.inspected(name)["State"]["ExitCode"], logs.stdout + logs.stderr


@cache
def _missing() -> str:
    names = [name for name in ("podman", "crun", "catatonit") if not shutil.which(name)]
    return ", ".join(names)


def image(name: str) -> Path:
    """The file that ``make image`` made; skips where there is none, or no podman."""
    if os.geteuid():
        pytest.skip("containers of a storage of their own need root here")
    if _missing():
        pytest.skip(f"not installed: {_missing()} (Debian: apt-get install podman crun catatonit netavark)")
    file = IMAGES / f"{name}.tar"
    if not file.exists():
        pytest.skip(f"there is no {file.name}: `make image` builds it")
    return file


@contextmanager
def containers(*images: Path, is_apart: bool = False) -> Iterator[Containers]:
    """podman with these images; its containers have the network of this machine, or (`is_apart`) a loopback of their
    own, where every port is free. In the end all containers, pods and volumes are removed, the storage is deleted."""
    folder = Path(tempfile.mkdtemp(prefix="acktrail-containers-"))
    spaces = ("--mount", *(["--net"] if is_apart else []))
    script = _HOLDER.format(hybrid=_HYBRID, network="ip link set lo up;" if is_apart else "")
    words = ["unshare", *spaces, "sh", "-c", script]
    holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout
        assert holder.stdout.readline() == "ready\n"
        found = Containers(folder, holder.pid)
        _write_settings(found)
        for each in images:
            found.done("load", "--quiet", "--input", each)
        try:
            yield found
        finally:
            for words in (("pod", "rm"), ("rm",), ("volume", "rm")):
                found.podman(*words, "--all", "--force", *(["--time", "5"] if words != ("volume", "rm") else []))
            found.podman("rmi", "--all", "--force")
    finally:
        holder.communicate()
        shutil.rmtree(folder, ignore_errors=True)


def _write_settings(found: Containers) -> None:
    may_raise = int(Path("/proc/self/status").read_text().partition("CapEff:")[2].split()[0], 16) >> _SYS_RESOURCE & 1
    text = _SETTINGS.format(ulimits="" if may_raise else _FEW)
    (found.folder / "containers.conf").write_text(text)
    places = f"--root {found.folder}/root --runroot {found.folder}/run"
    found.program.write_text(f'#!/bin/sh\nexec nsenter --mount --net --target {found.holder} podman {places} "$@"\n')
    found.program.chmod(0o755)
