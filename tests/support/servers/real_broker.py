"""What tests do to a real broker: choose its release, end its process, ask Kafka's own tools about it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from extras.embedded.processes import eventually

from acktrail_embedded import DEFAULT_VERSION, EmbeddedBroker
from acktrail_embedded.kafka.installation import TOOLS, install

__all__ = ["broker_of_release", "kafka_tool", "kill", "releases", "restart"]


def kill(broker: EmbeddedBroker, number: signal.Signals = signal.SIGKILL) -> None:
    """End the JVM as a crash would; `start` continues with the same folder and address."""
    if broker.pid is not None:
        os.kill(broker.pid, number)
    assert eventually(lambda: broker.pid is None)


def restart(broker: EmbeddedBroker) -> None:
    """Stop in order and start again with the same folder and address."""
    kill(broker, signal.SIGTERM)
    broker.start()


def kafka_tool(main_class: str, *arguments: str, version: str = DEFAULT_VERSION) -> list[str]:
    """The command line of one of Kafka's own tools, by its main class, for a broker of `version`."""
    installation = install(TOOLS.get(version, version))
    options = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.apache.logging.log4j.level=OFF")
    return list(installation.command(main_class, *arguments, jvm_options=options))


@contextmanager
def broker_of_release(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """A broker of the release that a fixture is asked for: the shared one where it is of that release."""
    if request.param == DEFAULT_VERSION:
        yield request.getfixturevalue("broker")
        return
    with EmbeddedBroker(request.param) as own:
        yield own


def releases(always: str, *others: str) -> list[Any]:
    """Parameters of a fixture or a test: `always` in every run, `others` in a run of all tests (``make test-all``)."""
    return [always, *(pytest.param(version, marks=pytest.mark.full) for version in others)]
