"""Real brokers for resets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from change.world import RECORDS, TOPIC, Command, Scene
from drivers.command_line import Done, run
from servers.real_broker import releases

from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker


@pytest.fixture(scope="session", params=releases("4.3.1", "4.4.0"))
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with EmbeddedBroker(request.param) as broker:
        made = Scene.at(broker.config(), tmp_path_factory.mktemp("life"))
        made.broker = broker
        made.make_topic(TOPIC, 2, RECORDS)
        yield made


@pytest.fixture
def ask(scene: Scene, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line, with the scene's broker and tables where a command takes them."""

    def command(*words: str, tables: bool = True) -> Done:
        brokers, stored = scene.arguments()[:2], scene.arguments()[2:]
        return run(capsys, *words, *(() if words[1] in ("reject", "show") else brokers), *(stored if tables else ()))

    return command
