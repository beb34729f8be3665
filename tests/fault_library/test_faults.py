"""Each fault of the library fires exactly its checks; where there is none, nothing fires."""

from __future__ import annotations

from pathlib import Path

import pytest
from fault_library.faulty_world import FaultyWorld

from acktrail.faults.fault import StateFault
from acktrail.faults.library import FAULTS

ALL = tuple(FAULTS.values())


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> FaultyWorld:
    """A share partition for each fault, exported and reconciled once; nothing was found."""
    added = [number for number, fault in enumerate(ALL) if fault.is_new_partition]
    world = FaultyWorld(tmp_path_factory.mktemp("healthy") / "tables", partitions=len(ALL), without_state=added)
    assert world.run().others == frozenset()
    return world


def test_nothing_is_found_where_nothing_happened(healthy: FaultyWorld, tmp_path: Path) -> None:
    """A second run of a healthy cluster is as quiet as the first."""
    assert healthy.copied(tmp_path / "tables").run().others == frozenset()


@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.name)
def test_a_fault_fires_exactly_its_checks(healthy: FaultyWorld, tmp_path: Path, fault: StateFault) -> None:
    """Findings, failing expectations and verdicts are those that the fault names, no more and no fewer."""
    world = healthy.copied(tmp_path / "tables")
    found = world.run([world.inject(fault, ALL.index(fault))])
    assert (found.missing, found.others) == ((frozenset(),), frozenset())


def test_all_faults_at_once_are_found_one_by_one(healthy: FaultyWorld, tmp_path: Path) -> None:
    """No fault hides another one: together they fire what each of them fires alone."""
    world = healthy.copied(tmp_path / "tables")
    pruned_first = sorted(ALL, key=lambda fault: fault.name != "export_gap")
    found = world.run([world.inject(fault, ALL.index(fault)) for fault in pruned_first])
    assert found.is_exact, found
