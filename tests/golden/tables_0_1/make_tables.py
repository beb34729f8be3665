"""Write the tables of ``tables.tar.gz``. Run it in a checkout of commit fff5a7e (release 0.1) with its Python:

    cd CHECKOUT && PYTHONPATH=tests .venv/bin/python -B make_tables.py /tmp/tables

Three observations of working groups on three state partitions, with records that cannot be read and a pruned range; the
first two are reconciled and validated, with history. One reset with its audit rows and quality results.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from acktrail.tables.sink import DeltaSink
from acktrail_expectations.change_gate import validate_plan
from acktrail_jobs.checks import check
from acktrail_jobs.command import reconcile
from jobs.exported_world import ExportedWorld
from jobs.test_history import live
from reset.change_tables import attempt

from acktrail.config import TablesConfig
from acktrail.errors import QualityGateFailed
from acktrail_expectations.gate import validate

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    world = ExportedWorld(folder, DeltaSink)
    dice = random.Random(7)
    for number in range(3):
        run = f"r{number}"
        live(world, {}, number, records=90)
        world.sample(run, "before")
        lost = {1: world.exported[1] + 3} if number == 1 else {}
        world.export(run, lost=lost)
        world.sample(run, "after")
        tables = TablesConfig(uri=str(folder))
        if number < 2:
            check(tables, run, run, world.now)
            reconcile(tables, run, with_history=True)
            try:
                validate(tables, run)
            except QualityGateFailed as error:
                sys.stderr.write(f"{error}\n")
    plan = attempt(folder, 1)
    try:
        validate_plan(tables, plan.plan_id)
    except QualityGateFailed as error:
        sys.stderr.write(f"{error}\n")
