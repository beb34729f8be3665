"""Tables are examined where no cluster can be asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from drivers.command_line import run
from jobs.world import World, key_of, snapshot

NOBODY = ("--bootstrap-server", "127.0.0.1:1")


def test_a_dry_run_shows_the_tables_without_a_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sound tables end with the error's own code, damage with 3; what is wrong and what is not known are both said.
    With --execute the cluster is needed."""
    monkeypatch.delenv("ACKTRAIL_BOOTSTRAP_SERVERS", raising=False)
    world = World(tmp_path / "tables", state_partitions=1)
    world.write(*(snapshot(key_of(f"g{index}")) for index in range(4)))
    world.observe("r1")
    repair = ("tables", "repair", "--tables", tmp_path / "tables")
    for where, code, error in ((NOBODY, 4, "no Kafka broker answered at 127.0.0.1:1"), ((), 3, "no broker named")):
        whole = run(capsys, *repair, *where)
        assert (whole.code, whole.stdout.splitlines()[0][:16]) == (code, "nothing is wrong")
        assert f"not compared with Kafka: {error}" in whole.stdout
        assert error in run(capsys, *repair, *where, "--execute").complaint(code)

    world.tables.append("state_records", world.tables.read("state_records").slice(3))
    doubled = "1 records of state partition 0 are stored twice"
    (said,) = run(capsys, *repair, *NOBODY, "--json").rows
    assert (said["is_sound"], said["available"], said["other_faults"][0][: len(doubled)]) == (False, None, doubled)
    for file in (tmp_path / "tables" / "state_records").glob("*.parquet"):
        file.unlink()
    found = run(capsys, *repair, *NOBODY)
    assert found.code == 3
    assert "state partition 0, offsets 0 to 3 (4): lost; Kafka was not asked for them" in found.stdout
    assert "not compared with Kafka: no Kafka broker answered" in found.stdout
