"""The images that ``make image`` built do their work as nobody, on a file system that they cannot write to."""

from __future__ import annotations

import html
import json
import os
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
from drivers.containers import Containers, containers, image
from drivers.own_process import free_port, printed
from servers.s3_server import S3
from servers.workload import Worked, until

from acktrail.config import TablesConfig
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

pytestmark = [pytest.mark.full, pytest.mark.slow]

NAME, SPARK = "localhost/acktrail-connect", "localhost/acktrail-spark"
LOCKED: Final = ("--read-only", "--cap-drop=all", "--security-opt=no-new-privileges")
"""How every container here runs."""
MOST_MB: Final = {NAME: 450, SPARK: 1_300}
USER: Final = 1001
PROGRAM: Final = Path(sys.executable).with_name("acktrail")


@pytest.fixture(scope="module")
def podman() -> Iterator[Containers]:
    with containers(image("connect"), image("spark")) as started:
        yield started


def acktrail(podman: Containers, *words: str, options: tuple[str, ...] = ()) -> Any:
    return podman.podman("run", "--rm", *LOCKED, *options, NAME, *words)


@pytest.mark.parametrize("name", [NAME, SPARK])
def test_image_is_small_and_belongs_to_nobody(podman: Containers, name: str) -> None:
    """At most 450 MB, with Spark 1,300; user 1001, the one entry point, three places to write, and a health check."""
    found = podman.inspected(name)
    assert found["Size"] < MOST_MB[name] * 1_000_000
    config, health = found["Config"], found["Healthcheck"]
    assert (config["User"], config["Entrypoint"]) == ("1001:1001", ["acktrail"])
    assert set(config["Volumes"]) == {"/var/lib/acktrail", "/var/cache/acktrail", "/data/acktrail"}
    assert health["Test"][:4] == ["CMD", "acktrail", "connect", "health"]


@pytest.mark.parametrize("name", [NAME, SPARK])
def test_container_can_write_only_to_its_volumes(podman: Containers, name: str) -> None:
    """No file of the image can be changed, and no capability is left."""
    script = (
        "id -u; grep CapBnd /proc/self/status; "
        "for each in / /opt/acktrail /usr/local/bin /etc/acktrail /var/lib/acktrail /data/acktrail; do "
        "touch $each/new 2>/dev/null && echo $each; done"
    )
    said = podman.done("run", "--rm", *LOCKED, "--entrypoint", "sh", name, "-c", f"{script}; true").splitlines()
    assert said == [str(USER), f"CapBnd:\t{0:016x}", "/var/lib/acktrail", "/data/acktrail"]


def test_groups_are_described_from_within(podman: Containers, broker: EmbeddedBroker, worked: Worked) -> None:
    """The image gives the answer that the checkout gives; the lag is that of the records that were not accepted."""
    words = ("groups", "describe", worked.group, "--bootstrap-server", broker.bootstrap_servers, "--json")
    done = acktrail(podman, *words)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows == [json.loads(line) for line in printed(PROGRAM, *words).splitlines()]
    (group,) = rows
    assert group["group"] == worked.group
    lags = {each["partition"]: each["lag"] for each in group["offsets"]}
    assert lags[0] == worked.produced - worked.accepted


def test_every_library_of_the_image_loads(podman: Containers) -> None:
    """What was left out of it is needed by none of the modules that are there."""
    script = "import ctypes, pathlib; [ctypes.CDLL(str(file)) for file in pathlib.Path('/opt/acktrail').rglob('*.so*')]"
    modules = "import acktrail.tables.delta.store, pyarrow.dataset, pyarrow.compute, deltalake, numpy, confluent_kafka"
    podman.done("run", "--rm", *LOCKED, "--entrypoint", "python3", NAME, "-c", f"{modules}; {script}")


def test_missing_configuration_is_one_clear_line(podman: Containers) -> None:
    """Without a worker's file, without brokers, without tables."""
    for words, said in (
        ((), "cannot read /etc/acktrail/worker.toml: No such file or directory"),
        (("groups", "list"), "no Kafka broker is given"),
        (("dashboard", "serve"), "no root of tables is given"),
        (("connect", "health", "/etc/acktrail/worker.toml"), "cannot read /etc/acktrail/worker.toml"),
    ):
        done = acktrail(podman, *words)
        assert (done.returncode, done.stdout) == (3, ""), done.stderr
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"acktrail: {said}")


@pytest.fixture
def settings(tmp_path: Path, bucket: TablesConfig, s3: S3, broker: EmbeddedBroker) -> Path:
    """A folder for /etc/acktrail: a worker that exports to the bucket; the bucket's secret is a file of its user."""
    options = {**s3.direct(bucket).options, "aws_secret_access_key": "${file:s3.secret}"}
    lines = [
        f'rest.listener = "127.0.0.1:{free_port()}"',
        'config.storage.dir = "/var/lib/acktrail/connect"',
        "[connector]",
    ]
    lines += [f'kafka.bootstrap.servers = "{broker.bootstrap_servers}"', f'sink.tables = "{bucket.uri}"']
    lines += [f'sink.option.{name} = "{value}"' for name, value in options.items()]
    made = tmp_path / "etc"
    made.mkdir(mode=0o755)
    (made / "worker.toml").write_text("\n".join(lines).replace("${file:s3", "${file:/etc/acktrail/s3"))
    for name, plugin in (("state", "ShareGroupStateSource"), ("observations", "ShareGroupOffsetsSource")):
        config = {"connector.class": plugin, **({"interval.ms": "1000"} if name == "observations" else {})}
        (made / f"{name}.json").write_text(json.dumps({"name": name, "config": config}))
    (made / "tables.properties").write_text("".join(f"{name}={value}\n" for name, value in options.items()))
    secret = made / "s3.secret"
    secret.write_text(bucket.options["aws_secret_access_key"])
    secret.chmod(0o400)
    os.chown(secret, USER, USER)
    return made


def test_worker_exports_spark_reconciles_and_dashboard_shows(
    podman: Containers,
    settings: Path,
    bucket: TablesConfig,
    s3: S3,
    broker: EmbeddedBroker,
    worked: Worked,
    tmp_path: Path,
) -> None:
    """A worker in a container exports to S3, reports itself healthy, and ends with 0 on SIGTERM. The image with Spark
    reconciles that, and a dashboard in another one shows the group. None says the secret."""
    options = (*LOCKED, "--detach", "--init", "--volume", f"{settings}:/etc/acktrail:ro")
    files = [f"/etc/acktrail/{name}" for name in ("worker.toml", "state.json", "observations.json")]
    podman.done("run", *options, "--name", "worker", NAME, "connect", "standalone", *files)
    until(lambda: podman.is_healthy("worker"), what="a healthy worker")
    here = s3.direct(bucket)
    wanted = {f"tables/{name}/_delta_log" for name in ("state_records", "group_observations")}
    until(lambda: wanted <= {key.rpartition("/")[0] for key in s3.keys(here.uri.split("/")[2])}, what="exported tables")
    code, said = podman.ended("worker")
    assert code == 0, said
    own = tmp_path / "options"
    own.write_text("".join(f"{name}={value}\n" for name, value in here.options.items()))
    at = ("--tables", here.uri, "--tables-options", own)
    printed(PROGRAM, "run", "export", "--bootstrap-server", broker.bootstrap_servers, *at)
    there = ("--tables", here.uri, "--tables-options", "/etc/acktrail/tables.properties")
    job = ("run", "reconcile", "--master", "local[2]", *there)
    done = podman.podman("run", "--rm", *LOCKED, "--volume", f"{settings}:/etc/acktrail:ro", SPARK, *job)
    assert done.returncode == 0, done.stderr
    said += done.stdout + done.stderr

    port = str(free_port())
    words = (*there, "--port", port)
    health = ("--health-cmd", json.dumps(["acktrail", "dashboard", "health", "--port", port]))
    podman.done("run", *options, *health, "--name", "dashboard", NAME, "dashboard", "serve", *words)
    until(lambda: podman.is_healthy("dashboard"), what="a healthy dashboard")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/groups?search={quote(worked.group)}") as page:
        assert html.escape(worked.group) in page.read().decode()

    code, more = podman.ended("dashboard")
    assert code == 0, more
    assert here.options["aws_secret_access_key"] not in said + more


def test_missing_secret_is_one_clear_line(podman: Containers, settings: Path) -> None:
    """The worker names the key and, in its log, the file; it does not start."""
    (settings / "s3.secret").unlink()
    done = acktrail(podman, options=("--volume", f"{settings}:/etc/acktrail:ro"))
    assert (done.returncode, done.stdout) == (3, "")
    logged, line = done.stderr.splitlines()[-2:]
    assert "cannot read /etc/acktrail/s3.secret: No such file or directory" in logged
    assert line.startswith("acktrail: sink.option.aws_secret_access_key: its reference gives no value")
