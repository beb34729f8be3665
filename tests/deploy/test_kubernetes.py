"""The manifests of deploy/kubernetes, started by ``podman play kube`` with the images that ``make image`` built."""

from __future__ import annotations

import base64
import json
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from drivers.containers import Containers, containers, image
from servers.container_servers import add_kafka, add_s3
from servers.workload import until

pytestmark = [pytest.mark.full, pytest.mark.slow]

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
MANIFESTS: Final = DEPLOY / "kubernetes"
CONNECT, SPARK = "localhost/acktrail-connect", "localhost/acktrail-spark"
GROUPS: Final = ("billing", "shipping")
HERE: Final = {
    "ACKTRAIL_BOOTSTRAP_SERVERS": "127.0.0.1:9092",
    "S3_ENDPOINT": "http://127.0.0.1:7070",
    "S3_REGION": "us-east-1",
    "S3_ALLOW_HTTP": "true",
}
SECRETS: Final = {
    "s3-access-key-id": "acktrail",
    **{name: secrets.token_hex(24) for name in ("s3-secret-access-key", "dashboard-token", "spark-token")},
}
ASK: Final = """\
import sys, urllib.request
asked = urllib.request.Request("http://127.0.0.1:8085/groups", headers={"Authorization": "Bearer " + sys.argv[1]})
print(urllib.request.urlopen(asked).read().decode())
"""


def manifest(name: str) -> list[Any]:
    return list(yaml.safe_load_all((MANIFESTS / f"{name}.yaml").read_text("utf-8")))


@pytest.fixture(scope="module")
def podman() -> Iterator[Containers]:
    """A cluster of share groups at work, and an S3 server with a bucket, on a loopback of their own."""
    with containers(image("connect"), image("spark"), is_apart=True) as started:
        add_kafka(started, "cache")
        place = ("--folder", "/var/lib/acktrail/broker")
        broker = ("broker", "start", "--foreground", "--port", "9092", *place)
        started.done("run", "--detach", "--init", "--volume", "cache:/var/cache/acktrail", SPARK, *broker)
        s3 = ("--port", "127.0.0.1:7070", "--region", "us-east-1", "--quiet", "posix", "/data")
        login = {"ROOT_ACCESS_KEY": SECRETS["s3-access-key-id"], "ROOT_SECRET_KEY": SECRETS["s3-secret-access-key"]}
        options = [word for name, value in login.items() for word in ("--env", f"{name}={value}")]
        started.done("run", "--detach", *options, "--volume", "tables:/data/acktrail", add_s3(started), *s3)
        settings = ("--env", f"ACKTRAIL_BOOTSTRAP_SERVERS={HERE['ACKTRAIL_BOOTSTRAP_SERVERS']}", "--init")
        script = ("--volume", f"{DEPLOY}/compose/share_groups.py:/share_groups.py:ro", "--entrypoint", "python3")
        started.done("run", "--detach", *settings, *script, CONNECT, "/share_groups.py")
        yield started


@pytest.fixture(scope="module")
def secret(podman: Containers) -> None:
    """The Secret that the comment of settings.yaml says to make, in the form in which podman 4 reads its keys."""
    file = podman.folder / "secret.json"
    file.write_text(json.dumps({name: base64.b64encode(value.encode()).decode() for name, value in SECRETS.items()}))
    podman.done("secret", "create", "acktrail", file)


def play(podman: Containers, *documents: Any) -> subprocess.CompletedProcess[str]:
    """Start manifests with the settings of this machine. podman has no Service, and a network of its own for pods needs
    iptables, which may be missing here: they get that of podman's machine, without mapped ports."""
    settings = manifest("settings")
    settings[0]["data"] |= HERE
    for spec in (found for each in documents for found in _pods(each)):
        spec["hostNetwork"] = True
        for each in spec["containers"]:
            each.pop("ports", None)
    file = podman.folder / "manifest.yaml"
    file.write_text(yaml.safe_dump_all([*settings, *(each for each in documents if each["kind"] != "Service")]))
    return podman.podman("play", "kube", file)


def container(podman: Containers, deployment: str, name: str) -> str:
    """The full name of a container of a Deployment's pod, which releases of podman number or not."""
    names = podman.done("ps", "--all", "--format", "{{.Names}}").split()
    (found,) = [each for each in names if each.startswith(f"{deployment}-pod") and each.endswith(f"-{name}")]
    return found


def probe(podman: Containers, name: str, document: Any) -> bool:
    """What the exec probe of the manifest says now."""
    return podman.podman("exec", name, *probe_words(document)).returncode == 0


def probe_words(deployment: Any) -> list[str]:
    (of,) = deployment["spec"]["template"]["spec"]["containers"]
    return list(of["readinessProbe"]["exec"]["command"])


def test_a_missing_secret_is_named(podman: Containers) -> None:
    """No container starts without it."""
    done = play(podman, *manifest("worker"))
    podman.done("pod", "rm", "--all", "--force")
    podman.done("volume", "rm", "--force", "acktrail-worker")
    assert done.returncode != 0
    assert 'no secret with name or id "acktrail"' in done.stderr


@pytest.mark.usefixtures("secret")
def test_job_reconciles_what_the_worker_exports_and_pages_show_it(podman: Containers) -> None:
    """Worker and dashboard are ready by the exec probes of their manifests. The job exports and reconciles; then the
    page has both groups. The dashboard refuses a wrong token. SIGTERM ends both with 0, and no log has a secret."""
    worker, dashboard = manifest("worker"), manifest("dashboard")
    started(play(podman, *worker))
    export = container(podman, "acktrail-worker", "worker")
    until(lambda: probe(podman, export, worker[-1]), what="a ready worker")
    started(play(podman, pod_of_job("reconcile")))
    ends = {name: end_of(podman, f"acktrail-reconcile-{name}") for name in ("export", "reconcile")}
    assert {name: end for name, end in ends.items() if end[0]} == {}
    started(play(podman, *dashboard))
    name = container(podman, "acktrail-dashboard", "dashboard")
    until(lambda: probe(podman, name, dashboard[-1]), timeout_s=60, what="a ready dashboard")
    page = podman.done("exec", name, "python3", "-c", ASK, SECRETS["dashboard-token"])
    assert all(f">{group}<" in page for group in GROUPS)
    assert podman.podman("exec", name, "python3", "-c", ASK, "wrong").returncode != 0
    ends |= {each: podman.ended(each) for each in (export, name)}
    assert {name: end for name, end in ends.items() if end[0] or has_secret(end[1])} == {}


@pytest.mark.usefixtures("secret")
def test_spark_server_answers_those_with_the_token(podman: Containers) -> None:
    """It runs the job of its readiness probe, for nobody with another token. It listens beyond the address to which the
    probe goes. SIGTERM ends it with 0."""
    spark = manifest("spark")
    started(play(podman, *spark))
    name = container(podman, "acktrail-spark", "spark")
    until(lambda: probe(podman, name, spark[-1]), what="a ready Spark server")
    wrong = ("--env", "SPARK_CONNECT_AUTHENTICATE_TOKEN=guessed, and long enough")
    assert podman.podman("exec", *wrong, name, *probe_words(spark[-1])).returncode == 1
    podman.done("exec", name, "python3", "-c", "import socket; socket.create_connection(('127.0.0.2', 15002))")
    code, said = podman.ended(name)
    assert code == 0, said
    assert not has_secret(said)


def pod_of_job(name: str) -> Any:
    """The pod of a CronJob, which podman does not know: its template. An annotation keeps the ended containers that
    podman would remove with their logs."""
    (job,) = manifest(name)
    assert job["kind"] == "CronJob"
    template = job["spec"]["jobTemplate"]["spec"]["template"]
    kept = {"io.podman.annotations.init.container.type": "always"}
    metadata = {"name": job["metadata"]["name"], "annotations": kept, **template["metadata"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def end_of(podman: Containers, name: str) -> tuple[int, str]:
    """Wait until a container ends; its exit code and all that it said."""
    code = int(podman.done("wait", name))
    logs = podman.podman("logs", name)
    return code, logs.stdout + logs.stderr


def has_secret(text: str) -> bool:
    return any(value in text for key, value in SECRETS.items() if key != "s3-access-key-id")


def started(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr


def test_secrets_stand_in_no_manifest() -> None:
    """Every variable that is a secret comes from a Secret; containers are locked, and ask for resources."""
    for file in MANIFESTS.glob("*.yaml"):
        for each in (each for document in manifest(file.stem) for each in _containers(document)):
            assert all("value" not in variable for variable in each.get("env", ())), each
            assert each["securityContext"]["readOnlyRootFilesystem"]
            assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert each["resources"]["requests"].keys() == {"cpu", "memory"}


def _containers(document: Any) -> Iterator[Any]:
    for spec in _pods(document):
        yield from (*spec["containers"], *spec.get("initContainers", ()))


def _pods(document: Any) -> Iterator[Any]:
    """What describes a pod in a document, at any depth."""
    if isinstance(document, dict):
        if "containers" in document:
            yield document
        for value in document.values():
            yield from _pods(value)
