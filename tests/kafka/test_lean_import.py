"""The Kafka client is imported in part, without an effect on other users of it."""

from __future__ import annotations

import subprocess
import sys


def run(code: str) -> str:
    """What `code` prints in a fresh interpreter."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_asking_questions_imports_neither_producer_nor_consumer() -> None:
    """They are a third of the client's import time."""
    heavy = run(
        "import sys, acktrail.kafka.admin\n"
        "print([name for name in ('kafka.producer', 'kafka.consumer', 'pyarrow', 'confluent_kafka')"
        " if name in sys.modules])"
    )
    assert heavy == "[]"


def test_the_whole_package_is_there_for_whoever_wants_it() -> None:
    """Its names, its submodules, and what it does not have, before and after."""
    said = run(
        "import acktrail.kafka.admin, kafka\n"
        "print(hasattr(kafka, 'no_such_name'), kafka.KafkaProducer.__name__, kafka.__title__)\n"
        "from kafka import KafkaAdminClient, errors\n"
        "from kafka.consumer import KafkaConsumer\n"
        "print(kafka.KafkaConsumer is KafkaConsumer, errors.__name__, hasattr(kafka, 'no_such_name'))"
    )
    assert said.splitlines() == ["False KafkaProducer kafka", "True kafka.errors False"]


def test_a_package_that_was_imported_before_is_left_alone() -> None:
    """Another library's import of the client wins."""
    assert run("import kafka, acktrail.kafka.admin as a\nprint('__getattr__' in vars(kafka), bool(a))") == "False True"
