"""Expansions audited by Spark's workers."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from samples.audited_ledger import check
from samples.expansion_world import random_world

from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail_jobs.commands.engine import executors_on

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def test_spark_says_what_the_plain_laws_say(tmp_path: Path) -> None:
    """R003-01: the same tables, with each worker reading some of the files and judging some of the topics."""
    assert check(tmp_path, random_world(Random(13), runs=40), KeyMapping.MURMUR2, executors_on(None))
