"""``acktrail expand audit`` reports what it found, and names of topics move no cursor."""

from __future__ import annotations

from pathlib import Path

import pytest
from drivers.command_line import run
from samples.audited_ledger import filled
from samples.expansion_world import BEGIN, ExpansionRows

from acktrail.tables.delta.store import Tables

HOSTILE = "or\x1b[2Jders\n"


def rows() -> ExpansionRows:
    """A topic that goes from one partition to two, and to one."""
    found = ExpansionRows()
    for number, count in enumerate((1, 2, 1)):
        for partition in range(count):
            own = {
                "cluster_id": "c",
                "run_id": f"run-{number}",
                "observed_at": BEGIN.replace(minute=number),
                "topic_id": "t",
                "topic": HOSTILE,
                "partition": partition,
                "error_code": 0,
            }
            look = {"partition_count": count, "consistency": "consistent", "log_end_offset": 5}
            found.observations.append({**own, **look})
            found.positions.append({**own, "group_id": "g", "group_type": "consumer", "position": 0})
    return found


def test_the_command_says_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts of expansions, verdicts and beginnings, the mapping and settle time of the environment, and topics that
    have fewer partitions than before."""
    config = filled(tmp_path, rows())
    done = run(capsys, "expand", "audit", "--tables", config.uri)

    assert done.code == 0
    assert "1 expansion among 1 topic, 1 of them settling; 1 pair of group and topic" in done.stdout
    assert "not_started" in done.stdout
    assert r"fewer partitions than before, which no broker does: or\x1b[2Jders\n" in done.stdout

    monkeypatch.setenv("ACKTRAIL_KEY_MAPPINGS", "or*=crc32")
    monkeypatch.setenv("ACKTRAIL_SETTLE", "1s")
    [summary] = run(capsys, "expand", "audit", "--tables", config.uri, "--json").rows
    assert (summary["expansions"], summary["settling"], summary["fallen"]) == (1, 1, [HOSTILE])
    [row] = Tables(config).read("partition_expansions").to_pylist()
    assert (row["key_mapping"], (row["settles_at"] - row["first_seen_new_at"]).seconds) == ("crc32", 1)


def test_tables_without_looks_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 3 with the command that takes a look."""
    line = run(capsys, "expand", "audit", "--tables", tmp_path).complaint(3)
    assert "run `acktrail expand observe` first" in line
