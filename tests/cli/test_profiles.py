"""Named profiles: the file, the option before the command, and the commands about them."""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drivers.command_line import Done, run
from samples.health_tables import HealthTables

from acktrail.cli import main as command_line
from acktrail.config import KafkaConfig, TablesConfig, chosen_profile, profiles_file
from acktrail.errors import ConfigurationError, UnknownName
from acktrail.profiles import read_profiles
from acktrail.tables.commit_order import number_at
from acktrail.view.cluster_health import ClusterHealth, GapsOfReason, cluster_health
from acktrail.view.finding_rows import FindingRow
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

HIDDEN = "hidden-w0rd"
Written = Callable[[str], Path]

GOOD = Path(__file__).with_name("profiles.toml").read_text("utf-8")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of whoever runs the tests."""
    for name in ("BOOTSTRAP_SERVERS", "CLIENT_CONFIG", "TABLES", "TABLES_OPTIONS", "PROFILE", "PROFILES"):
        monkeypatch.delenv(f"ACKTRAIL_{name}", raising=False)
    monkeypatch.setenv("PROBE", HIDDEN)


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    """Write a file of profiles, and let the environment name it."""

    def write(text: str) -> Path:
        file = tmp_path / "profiles.toml"
        file.write_text(text, encoding="utf-8")
        monkeypatch.setenv("ACKTRAIL_PROFILES", str(file))
        return file

    return write


def test_a_profile_is_where_brokers_and_tables_come_from(written: Written, tmp_path: Path) -> None:
    """Client properties of its file and its own, which win, as Kafka writes values; tables under the common root."""
    written(GOOD)
    (tmp_path / "eu.properties").write_text("security.protocol=PLAINTEXT\nsasl.username=${env:PROBE}\n")
    (tmp_path / "storage.properties").write_text("region=eu\naws_secret_access_key=${env:PROBE}\n")
    with chosen_profile("prod-eu"):
        kafka, tables = KafkaConfig.from_environment(), TablesConfig.from_environment()
    assert kafka.bootstrap_servers == "eu-1:9093,eu-2:9093"
    assert kafka.properties == {
        "security.protocol": "SASL_SSL",
        "sasl.username": HIDDEN,
        "sasl.password": HIDDEN,
        "enable.ssl.certificate.verification": "false",
        "retries": "3",
    }
    assert tables.uri == "s3://warehouse/acktrail/prod-eu"
    assert tables.options == {"region": "eu", "aws_secret_access_key": HIDDEN}
    assert HIDDEN not in repr((kafka, tables, read_profiles(tmp_path / "profiles.toml").profile("prod-eu")))


def test_what_is_given_wins_over_the_profile_and_the_profile_over_the_environment(
    written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each option by itself. No variable slips under a profile that lacks something: that would be another cluster. A
    profile's paths begin at the file, wherever the command is called; a broken file concerns only who names one."""
    monkeypatch.setenv("ACKTRAIL_BOOTSTRAP_SERVERS", "of-the-environment:1")
    written("no toml")
    assert KafkaConfig.from_environment().bootstrap_servers == "of-the-environment:1"
    written(GOOD + '[profiles.bare]\n[profiles.bare.kafka]\n"client.id" = "x"\n')
    monkeypatch.setenv("ACKTRAIL_TABLES", "of-the-environment")
    monkeypatch.setenv("ACKTRAIL_PROFILE", "local")
    monkeypatch.chdir("/")
    own = tmp_path / "own.properties"
    own.write_text("client.id=mine\n")
    assert KafkaConfig.from_environment().bootstrap_servers == "localhost:9092"
    assert KafkaConfig.from_environment("mine:1").bootstrap_servers == "mine:1"
    assert KafkaConfig.from_environment(None, own).properties == {"client.id": "mine"}
    assert TablesConfig.from_environment().uri == str(tmp_path / "tables")
    assert TablesConfig.from_environment("/mine", own).uri == "/mine"
    monkeypatch.setenv("ACKTRAIL_PROFILE", "bare")
    with pytest.raises(ConfigurationError, match="profile 'bare' names no broker"):
        KafkaConfig.from_environment()
    written('[profiles.bare]\n"bootstrap.servers" = "x:1"\n')
    with pytest.raises(ConfigurationError, match="profile 'bare' names no tables"):
        TablesConfig.from_environment()
    assert TablesConfig.optional_from_environment() is None


def test_where_the_file_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the user's configuration folder, unless a variable names another."""
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert profiles_file() == Path("/home/ann/.config/acktrail/profiles.toml")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/xdg")
    assert profiles_file() == Path("/xdg/acktrail/profiles.toml")
    monkeypatch.setenv("ACKTRAIL_PROFILES", "/here.toml")
    assert profiles_file() == Path("/here.toml")


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('[profiles.p]\nbotstrap.servers="x"', "unknown key 'botstrap.servers'", "did you mean bootstrap.servers?"),
        ('[profiles.p]\ntable="x"', "unknown key 'table'", "did you mean tables?"),
        ('[profiles.p]\ntables="s3://k:hidden-w0rd@b/x"', "tables contains credentials", "tables.options"),
        ('[profiles.p.kafka]\nsasl.password="hidden-w0rd"', "sasl.password is a secret in plain text", "${env:NAME}"),
        ('[profiles.p]\nbootstrap.servers=["hidden-w0rd"]', "bootstrap.servers: not a text", "a text"),
        ('[profiles]\np="hidden-w0rd"', "not a table", "[profiles.NAME]"),
        ('[profiles."p.q"]\ntables="x"\n[profiles.p]\ntables=""', "tables: not a text", "a text"),
    ],
)
def test_a_wrong_profile_is_refused_and_no_other(written: Written, text: str, message: str, hint: str) -> None:
    """With the nearest key, without any value; the other profiles of the file work."""
    found = read_profiles(written(text + '\n[profiles.good]\nbootstrap.servers="x:1"\n'))
    assert found.profile("good").brokers() == "x:1"
    with pytest.raises(ConfigurationError) as caught:
        found.profile("p")
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert HIDDEN not in caught.value.message + caught.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f'[profiles.p]\ntables="x"\ntables.options="{HIDDEN}"', "is not TOML, end of document"),
        (f"x = {HIDDEN}", "is not TOML, line 1, column 5"),
        (f'rot = "{HIDDEN}"', "unknown key 'rot'"),
        (f'profiles = "{HIDDEN}"', "profiles is not a table"),
    ],
)
def test_a_wrong_file_is_one_line(written: Written, text: str, message: str) -> None:
    """With the place of the fault and nothing else of the file."""
    file = written(text)
    with pytest.raises(ConfigurationError) as caught:
        read_profiles(file)
    assert message in caught.value.message
    assert HIDDEN not in caught.value.message + caught.value.hint


@pytest.mark.parametrize("name", ["../up", "a/b", "", "-x", "a" * 64, "a.b", "a b"])
def test_names_that_cannot_be_a_folder_are_refused(written: Written, name: str) -> None:
    """A profile's tables lie in a folder of its name."""
    found = read_profiles(written(f'root = "/tables"\n[profiles.{json.dumps(name)}]\n"bootstrap.servers" = "x:1"\n'))
    with pytest.raises(ConfigurationError, match="not a valid name of a profile"):
        found.profile(name)


def test_an_unknown_profile_is_refused_with_the_nearest(written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    """Before the command begins, whatever the command; by variable when it is needed. Completion knows the names."""
    written(GOOD)
    assert "did you mean 'prod-eu'?" in run(capsys, "--profile", "prod-ue", "groups", "list").complaint(2)
    assert command_line._profile_names("pr") == ["prod-eu"]
    with pytest.raises(UnknownName, match="unknown profile 'zzz'") as caught:
        read_profiles(profiles_file()).profile("zzz")
    assert caught.value.nearest == ("local", "prod-eu")


def test_the_option_belongs_before_the_command(written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    """Behind it, the error says where."""
    written(GOOD)
    assert command_line._command_in(["--profile", "local", "run", "export", "--json"]) == "run.export"
    said = run(capsys, "groups", "list", "--profile", "local").complaint(2)
    assert "acktrail --profile NAME groups list" in said


def test_no_file_says_where_it_should_be(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One line."""
    monkeypatch.setenv("ACKTRAIL_PROFILES", "/no/such.toml")
    assert "/no/such.toml" in run(capsys, "--profile", "x", "doctor").complaint(3)
    assert "/no/such.toml" in run(capsys, "config", "profiles").complaint(3)


def test_the_list_shows_names_brokers_and_tables(written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    """Also the profile that is wrong, with its reason; no reference is followed, so nothing secret can show."""
    written(GOOD + f'[profiles.bad.kafka]\nsasl.password = "{HIDDEN}"\n')
    shown = run(capsys, "config", "profiles")
    assert shown.code == 3
    assert [line.split() for line in shown.stdout.splitlines()] == [
        ["PROFILE", "BROKERS", "TABLES"],
        ["prod-eu", "eu-1:9093,eu-2:9093", "s3://warehouse/acktrail/prod-eu"],
        ["local", "localhost:9092", "tables"],
        ["bad", "-", "-"],
    ]
    assert "secret in plain text" in shown.stderr
    told = run(capsys, "config", "profiles", "--json")
    eu, local, bad = told.rows
    assert eu["client_properties"] == [
        *("enable.ssl.certificate.verification", "retries", "sasl.password", "security.protocol")
    ]
    assert (local["tables"], local["error"]) == ("tables", None)
    assert "plain text" in bad["error"]
    assert HIDDEN not in str((shown, told))
    (only,) = run(capsys, "config", "profiles", "--name", "local", "--json").rows
    assert only == local
    assert "did you mean 'local'?" in run(capsys, "config", "profiles", "--name", "locale").complaint(2)


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of several clusters under one root: `well`, reconciled; `fresh`, only exported; `lossy` with a gap and a
    critical finding; `damaged`, one table of which cannot be read; `empty`, which has none."""
    root = tmp_path_factory.mktemp("clusters")
    well, fresh, lossy = (HealthTables(root / name) for name in ("well", "fresh", "lossy"))
    for each in (well, fresh, lossy):
        each.exported(9)
    well.reconciled([well.queue("billing", "ok")])
    lossy.exported(1, reason="pruned", lost=2)
    lossy.reconciled(findings=[{"rule": "past_log_end", "severity": "critical"}], run_id="r2")
    shutil.copytree(root / "well", root / "damaged")
    for log in (root / "damaged/export_ranges/_delta_log").glob("*.json"):
        log.write_text("no json")
    return root


def test_only_what_counts_is_counted(tmp_path: Path) -> None:
    """Records pruned before the first export are no gap, nor what a person asked for; a replaced log is one without
    offsets; verdicts and findings are those of the newest reconciliation; an observation counts as an export does."""
    health = HealthTables(tmp_path)
    for reason in ("pruned_before_first_export", "log_replaced", "pruned", "lost_from_tables", "dropped_by_retention"):
        health.exported(5, reason=reason, lost=5)
    health.tables.append("state_records", [{"timestamp_ms": at} for at in (7, 9, 8)])
    observed_at = health.ago(0.5)
    health.tables.append("offset_observations", [{"observed_at": observed_at, "run_number": number_at(observed_at)}])
    health.reconciled(findings=[{"rule": "x", "severity": "critical"}], run_id="r0", minutes=9, mismatches=[1])
    health.reconciled(run_id="r1")
    found = cluster_health(health.tables, health.now)
    assert (found.newest_record_ms, health.now - (found.exported_at or health.now)) == (9, dt.timedelta(minutes=0.5))
    assert found.lasting_gaps == (3, 10)
    assert (found.verdicts, found.findings) == ({"match": 1}, ())


def test_the_overview_shows_what_to_look_at_first_on_top(
    worlds: Path, written: Written, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of all clusters, also one whose profile is wrong; reasons on stderr; the same as JSON."""
    names = ("well", "fresh", "lossy", "empty", "damaged")
    profiles = "".join(f'[profiles.{name}]\n"bootstrap.servers" = "unused:1"\n' for name in names)
    written(f'root = "{worlds}"\n{profiles}[profiles.bad.kafka]\nsasl.password = "{HIDDEN}"\n')
    done = run(capsys, "config", "profiles", "overview")
    assert done.code == 0, done.stderr
    order = [line.split()[0] for line in done.stdout.splitlines()[1:]]
    assert set(order[:3]) == {"bad", "empty", "damaged"}
    assert order[3:] == ["lossy", "fresh", "well"]
    assert re.search("empty: .*last export.* unknown: no tables at .*: there is no such folder", done.stderr)
    assert "fresh: share groups unknown: no status was written yet" in done.stderr
    told = run(capsys, "config", "profiles", "overview", "--json").rows
    by_name: dict[str, dict[str, Any]] = {each["profile"]: each for each in told}
    assert [each["profile"] for each in told] == order
    assert by_name["well"]["unknown"] == {}
    assert by_name["empty"]["newest_record_at"] is None
    assert (by_name["fresh"]["gaps"], by_name["fresh"]["verdicts"], by_name["fresh"]["findings"]) == ({}, None, None)
    assert by_name["damaged"]["gaps"] is None
    assert "export_ranges" in by_name["damaged"]["unknown"]["gaps"]
    assert by_name["damaged"]["verdicts"] == by_name["well"]["verdicts"] == {"match": 1}
    assert "plain text" in by_name["bad"]["unknown"]["gaps"]
    assert HIDDEN not in str((done, told))
    (one,) = run(capsys, "config", "profiles", "overview", "--name", "lossy", "--json").rows
    assert [each["offsets"] for each in one["gaps"].values()] == [2]


def _found(severity: str) -> tuple[FindingRow, ...]:
    rest = dict.fromkeys(name for name in FindingRow.__slots__ if name not in {"severity", "is_open"})
    return (FindingRow(severity=severity, is_open=True, **rest),)  # type: ignore[arg-type]  # no more is looked at


def test_urgency_puts_signs_before_age() -> None:
    """A critical finding before a stale export, that before an error, a gap, a warning and what was not reconciled."""
    now = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    minute, day = now - dt.timedelta(minutes=1), now - dt.timedelta(days=1)
    gap = {"pruned": GapsOfReason(gaps=1, offsets=1, newest_at=None)}
    worst_first = [
        ClusterHealth(unknown={"exported_at": "a reason"}),
        ClusterHealth(exported_at=minute, findings=_found("critical")),
        ClusterHealth(exported_at=day, findings=()),
        ClusterHealth(exported_at=minute, findings=_found("error")),
        ClusterHealth(exported_at=minute, findings=(), gaps=gap),
        ClusterHealth(exported_at=minute, findings=_found("warning")),
        ClusterHealth(exported_at=minute, unknown={"findings": "a reason"}),
        ClusterHealth(exported_at=minute, findings=_found("info"), gaps={}),
        ClusterHealth(exported_at=now, findings=(), gaps={}),
    ]
    ranks = [each.urgency(now) for each in worst_first]
    assert ranks == sorted(ranks, reverse=True)
    assert len(set(ranks)) == len(ranks)


def _ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> Done:
    done = run(capsys, *arguments)
    assert HIDDEN not in done.stdout + done.stderr
    return done


@pytest.mark.usefixtures("worked")
def test_two_profiles_of_real_clusters(
    broker: EmbeddedBroker, written: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command works with the profile that is named, or says why it does not."""
    written(
        f"""
        root = "{tmp_path / "tables"}"
        [profiles.one]
        bootstrap.servers = "{broker.bootstrap_servers}"
        [profiles.two]
        bootstrap.servers = "{broker.bootstrap_servers}"
        kafka.sasl.password = "${{env:PROBE}}"
        [profiles.away]
        bootstrap.servers = "127.0.0.1:1"
        [profiles.unset]
        bootstrap.servers = "{broker.bootstrap_servers}"
        kafka.sasl.password = "${{env:NO_SUCH_PROBE}}"
        """
    )
    assert _ask(capsys, "--profile", "one", "run", "export", "--json").answer["cluster_id"]
    assert (tmp_path / "tables/one/group_observations").is_dir()
    assert _ask(capsys, "--profile", "two", "groups", "list").code == 0
    assert _ask(capsys, "--profile", "away", "groups", "list").code == 4
    assert "NO_SUCH_PROBE" in _ask(capsys, "--profile", "unset", "groups", "list").complaint(3)
