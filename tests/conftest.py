"""What every test may use. Real servers are started once a run, at free ports, and end with the run."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from drivers.process_sharing import ScopeSharing
from hypothesis import HealthCheck, settings
from servers.guarded_broker import GuardedBroker
from servers.s3_server import S3, running_s3
from servers.workload import Worked, Workload

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

_LEFT_ALONE = {
    "share.coordinator.state.topic.prune.interval.ms": "86400000",
    "share.coordinator.cold.partition.snapshot.interval.ms": "86400000",
    "broker.session.timeout.ms": "60000",  # a machine that is busy for nine seconds must not fence its only broker
}

sys.dont_write_bytecode = False  # five processes would rewrite the assertions of all tests, in every run
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell: what tests start gets Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
gc.disable()  # until all tests are collected: what is imported and collected stays
os.environ.setdefault("ACKTRAIL_SPARK_MASTER", "in-process")  # tests of Spark ask for it
settings.register_profile("quick", max_examples=30, derandomize=True, deadline=None)
settings.register_profile("exhaustive", max_examples=5_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

_LEFT_OUT = pytest.StashKey[int]()
"""How many tests were left to a run of all tests."""

_FOREIGN = "must be less than or equal to"
"""What a coordinator says of records that are not its own; from then on it answers nobody."""

_LONGEST_FIRST = ("airflow", "spark", "slow", "broker")
"""Markers of modules, by how long all of them take: what is begun last should end soon."""
_MARKED = {"broker": "broker", "guarded": "broker", "spark": "spark"}
"""The marker that a test has by each fixture."""
_ONE_PROCESS = {
    "airflow": re.compile(r"\bmark\.airflow\b"),
    "spark": re.compile(r"\bSparkSession\b|usefixtures\(\"spark\"\)"),
    "expectations": re.compile(r"\badd_spark\("),
    "faults": re.compile(r"\brunning: Export\b"),
    "rights": re.compile(r"\bguarded_workload\b|\bguarded: GuardedBroker\b|fixturevalue\(\"guarded\"\)"),
    "plans": re.compile(r"\bchange\.world import .*\bScene\b"),
}
"""All modules whose text matches run in one process: one Spark session serves them, and two Airflows at once would
starve each other; the faults share a broker and a worker, others a broker of their own. Great Expectations on Spark has
a process of its own: after other tests' sessions it was seen to end the session that frames are of. A module that
starts Spark in processes of its own runs in any."""

_SHARED_SERVERS = ("guarded", "spark", "scene")
"""Fixtures that such modules share. They do not wait for the end of the run: an idle broker takes CPU all the time."""
_running: list[tuple[pytest.FixtureDef[Any], Any]] = []

_TROUBLE: Final = re.compile(r" (WARN|ERROR|FATAL) |OutOfMemory|deadlock|Too many open files", re.IGNORECASE)
_LINES: Final = 15


def diagnosis(broker: EmbeddedBroker) -> str:
    """The last lines of trouble in its log; of a broker that is not running, the last lines of all."""
    if not broker.log_path.exists():
        return "has ended, and its folder is removed"
    lines = broker.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
    trouble = lines if broker.pid is None else [line[:300] for line in lines if _TROUBLE.search(line)]
    return "\n".join(trouble[-_LINES:])


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--all``: every test, also those marked ``full``."""
    parser.addoption("--all", action="store_true", help="also the tests that `make test` leaves to `make test-all`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """First the modules that share a process, then the others in the order of their heaviest marker; the tests of a
    module in their own. Without ``--all`` those marked ``full`` or ``few`` are left out, unless they are named."""
    for item in items:
        for fixture in _MARKED.keys() & {*getattr(item, "fixturenames", ())}:
            item.add_marker(_MARKED[fixture])
    if not config.getoption("--all") and not any("::" in argument for argument in config.args):
        left_out = _left_out(items)
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=list(left_out))
        config.stash[_LEFT_OUT] = len(left_out)
    heaviest: dict[Path, int] = {}
    for item in items:
        own = (rank for rank, name in enumerate(_LONGEST_FIRST) if item.get_closest_marker(name))
        heaviest[item.path] = min(heaviest.get(item.path, len(_LONGEST_FIRST)), *own, len(_LONGEST_FIRST))
    places = {name: place for place, name in enumerate(_ONE_PROCESS)}
    place_of = {path: places.get(_process_of(str(path)), len(places)) for path in heaviest}
    items.sort(key=lambda item: (place_of[item.path], heaviest[item.path]))


def pytest_collection_finish() -> None:
    """What stays is not looked through again."""
    gc.freeze()
    gc.enable()


def _left_out(items: list[pytest.Item]) -> dict[pytest.Item, None]:
    """Those marked ``full``, and of a test marked ``few(n)`` the cases after its first `n`; in the order of `items`."""
    cases: Counter[str] = Counter()
    left_out: dict[pytest.Item, None] = {}
    for item in items:
        few = item.get_closest_marker("few")
        test = item.nodeid.partition("[")[0]
        if item.get_closest_marker("full") or (few and cases[test] >= few.args[0]):
            left_out[item] = None
        else:
            cases[test] += 1
    return left_out


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of several says how many tests it left out."""
    gc.freeze()  # pytest collects garbage several times when a process ends
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash.get(_LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """All processes leave out the same tests."""
    node.config.stash[_LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ScopeSharing:
    """How tests are shared out between processes: by module, those of ``_ONE_PROCESS`` together."""
    return _ByModule(config, log)


class _ByModule(ScopeSharing):
    def _split_scope(self, nodeid: str) -> str:
        return _process_of(nodeid.split("::", maxsplit=1)[0])


@cache
def _process_of(module: str) -> str:
    """By what a module's text marks: the process that shares out has nothing else."""
    text = (Path(__file__).parents[1] / module).read_text(encoding="utf-8")
    return next((name for name, pattern in _ONE_PROCESS.items() if pattern.search(text)), module)


def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: Any) -> None:
    """Remembers what is to end early."""
    if fixturedef.argname in _SHARED_SERVERS and request.scope == "session":
        _running.append((fixturedef, request))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """What modules of one process share ends with the last of them, and starts again for who asks later."""
    name = _process_of(str(item.path))
    if name in _ONE_PROCESS and (nextitem is None or _process_of(str(nextitem.path)) != name):
        while _running:
            fixture, request = _running.pop()
            fixture.finish(request)


@pytest.fixture(autouse=True)
def _keep_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that runs inside the test's process must not hide pandas from pyarrow for the next tests."""
    monkeypatch.setattr("acktrail.format.columns.arrow_without_pandas.forgo_pandas", lambda: None)


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    """A real Kafka broker of the default release, shared by the run: use topic and group names of your own.

    It writes no snapshot and prunes nothing, however long the run takes.
    """
    with EmbeddedBroker(properties=_LEFT_ALONE) as running:
        _shared.append(running)
        yield running
        _shared.clear()
        log = running.log_path.read_text(encoding="utf-8", errors="replace")
        assert _FOREIGN not in log, f"a test wrote into an internal topic of the shared broker: {_FOREIGN}"


_shared: list[EmbeddedBroker] = []


@pytest.fixture(scope="session")
def workload(broker: EmbeddedBroker) -> Workload:
    """Topics, records and members of the shared broker."""
    return Workload(broker.config())


@pytest.fixture(scope="session")
def guarded() -> Iterator[GuardedBroker]:
    """A broker with logins and ACLs: `admin` may do everything, the others nothing until it is granted."""
    names = ("admin", "reader", "revoked", "resetter", "deleter", "half-sighted", "member", "fewest", "sinker")
    with GuardedBroker({name: f"{name}-secret" for name in (*names, "unwelcome")}) as running:
        yield running


@pytest.fixture(scope="session")
def guarded_workload(guarded: GuardedBroker) -> Workload:
    """State that the guarded broker keeps: group g accepted all of topic orders."""
    workload = Workload(guarded.config())
    workload.create_topic("orders")
    workload.produce("orders", 5)
    workload.acknowledge("g", "orders", 5)
    return workload


@pytest.fixture(scope="session")
def _s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3(_s3: S3) -> Iterator[S3]:
    """Buckets for all tests: use names of your own. What a test makes fail ends with it."""
    yield _s3
    _s3.proxy.heal()


@pytest.fixture
def bucket(s3: S3) -> TablesConfig:
    """Tables in an empty bucket."""
    return s3.bucket(f"bucket-{uuid4().hex}")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The session that jobs find and use until it ends."""
    from acktrail_jobs.session import spark_session

    with pytest.MonkeyPatch.context() as patched, spark_session("local[2]") as session:
        patched.delenv("ACKTRAIL_SPARK_MASTER")
        yield session


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure on a broker shows what that broker says."""
    report = yield
    if report.failed:
        own = [each for each in getattr(item, "funcargs", {}).values() if isinstance(each, EmbeddedBroker)]
        for each in {id(broker): broker for broker in [*own, *_shared]}.values():
            report.sections.append((f"broker {each.version}", diagnosis(each)))
    return report


@pytest.fixture
def kafka(broker: EmbeddedBroker) -> KafkaConfig:
    """How to reach the shared broker."""
    return KafkaConfig(bootstrap_servers=broker.bootstrap_servers)


@pytest.fixture(scope="session")
def worked(workload: Workload) -> Worked:
    """State that nothing touches any more."""
    name = f"broker-{uuid4().hex[:8]}"
    worked = Worked(group=f"{name}-ü:😀", topic=f"{name}-orders", partitions=2, produced=40, accepted=25)
    workload.create_topic(worked.topic, worked.partitions)
    workload.produce(worked.topic, worked.produced)
    workload.acknowledge(worked.group, worked.topic, worked.accepted)
    return worked


@pytest.fixture
def admin(kafka: KafkaConfig) -> Iterator[ShareGroupAdmin]:
    with ShareGroupAdmin(kafka) as asked:
        yield asked


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What the tests of faults counted: kills, records, gaps. How many tests were left out, and why."""
    if left_out := config.stash.get(_LEFT_OUT, 0):
        terminalreporter.section("left out")
        why = "other releases of Kafka, more cases of the same, the longest faults, containers, heavy benchmarks"
        terminalreporter.write_line(f"{left_out} tests are left to `make test-all`: {why}")
    reports = [report for reports in terminalreporter.stats.values() for report in reports if hasattr(report, "nodeid")]
    found = [
        (each.nodeid, text)
        for each in reports
        for name, text in getattr(each, "user_properties", ())
        if name == "faults"
    ]
    if found:
        terminalreporter.section("faults survived")
    for nodeid, text in sorted(set(found)):
        terminalreporter.write_line(f"{nodeid.split('::')[-1]}: {text}")
