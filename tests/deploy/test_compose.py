"""deploy/compose.yaml: one command to a page with groups, with the images that ``make image`` built."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from drivers.containers import Containers, containers, image
from drivers.own_process import finished, free_port
from servers.container_servers import S3_IMAGE, add_kafka, add_s3
from servers.workload import until

pytestmark = [pytest.mark.full, pytest.mark.slow]

FILE: Final = Path(__file__).parents[2] / "deploy/compose.yaml"
SERVICES: Final = ("broker", "s3", "groups", "worker", "reconcile", "dashboard")
IMAGES: Final = {name: f"localhost/acktrail-{part}" for name, part in (("IMAGE", "connect"), ("SPARK_IMAGE", "spark"))}
GROUPS: Final = ("billing", "shipping")


@pytest.fixture(scope="module")
def compose() -> str:
    """podman-compose; Debian's 1.0 does not understand the file."""
    found = shutil.which(os.environ.get("PODMAN_COMPOSE", "podman-compose"))
    if found is None:
        pytest.skip("podman-compose is not installed: `make compose` brings it")
    return found


@pytest.fixture(scope="module")
def podman(compose: str) -> Iterator[Containers]:
    """With the images of the file, and Kafka in its cache."""
    with containers(image("connect"), image("spark")) as started:
        add_s3(started)
        add_kafka(started, "acktrail_cache")
        yield started


def run(podman: Containers, compose: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    where = ("--podman-path", podman.program, "--file", FILE)
    return finished(compose, *where, *words, env={**podman.environment, **variables})


def test_missing_secret_is_named_with_what_to_do(podman: Containers, compose: str) -> None:
    """Nothing starts; the last line has the variable and the command that makes a value."""
    done = run(podman, compose, "up", "--detach")
    assert done.returncode != 0
    last = done.stderr.splitlines()[-1]
    assert "ACKTRAIL_S3_SECRET" in last
    assert "openssl rand -hex 24" in last
    assert podman.done("ps", "--all", "--quiet") == ""


def test_one_command_leads_to_a_page_with_groups(podman: Containers, compose: str) -> None:
    """Broker, S3 server, groups, worker, reconciliation and dashboard start by one command; the dashboard shows both
    groups, and the worker is healthy. All that is acktrail's ends with 0, and no log has the secret."""
    ports = {f"ACKTRAIL_{name}_PORT": str(free_port()) for name in ("BROKER", "REST", "S3", "DASHBOARD")}
    images = {f"ACKTRAIL_{name}": place for name, place in IMAGES.items()}
    secret = secrets.token_hex(24)
    variables = {**ports, **images, "ACKTRAIL_S3_IMAGE": S3_IMAGE, "ACKTRAIL_S3_SECRET": secret}
    done = run(podman, compose, "up", "--detach", "--no-build", **variables)
    assert done.returncode == 0, done.stderr
    page = f"http://127.0.0.1:{ports['ACKTRAIL_DASHBOARD_PORT']}/groups"
    try:
        until(lambda: all(f">{name}<" in shown(page) for name in GROUPS), what="a page with groups")
        healthy = {name for name in ("broker", "worker", "dashboard") if podman.is_healthy(f"acktrail_{name}_1")}
    finally:
        said = {name: podman.ended(f"acktrail_{name}_1") for name in SERVICES}
    assert healthy == {"broker", "worker", "dashboard"}, said
    assert {name: end for name, end in said.items() if end[0]} == {}
    assert not any(secret in text for _, text in said.values())


def shown(page: str) -> str:
    """The page; nothing while no dashboard answers."""
    try:
        with urllib.request.urlopen(page) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, ConnectionError):
        return ""
