"""What is asked of every plug-in: its configuration is documented, complete and keeps secrets. What transforms promise,
and the random runs that sources and sinks go through."""

from __future__ import annotations

import random
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa

from acktrail.connect.config_def import ConfigDef, ConfigKey, reference
from acktrail.connect.config_values import ConfigType
from acktrail.errors import InvalidConfiguration

_SECRET: Final = re.compile(r"password|secret|token|credential|private_key|access_key")
_MOST_GROWN: Final = 6
_MOST_POLLS: Final = 4
_MOST_RUNS: Final = 5


class ConnectorSuite:
    """Subclass it as ``Test...``; set `connector_class` and ``config``. `folder` is a new folder for each test."""

    connector_class: ClassVar[type[Any]]
    folder: Path

    def config(self) -> Mapping[str, str]:
        """The plug-in's own keys, as texts: the least that it needs."""
        return {}

    def prepare(self) -> None:
        """Make what a test needs, for example an empty origin in `folder`."""

    def clean_up(self) -> None:
        """Remove what ``prepare`` made outside `folder`."""

    def setup_method(self) -> None:
        """pytest calls it before each test."""
        self.folder = Path(tempfile.mkdtemp(prefix="acktrail-suite-"))
        self.prepare()

    def teardown_method(self) -> None:
        """pytest calls it after each test."""
        try:
            self.clean_up()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def connector(self) -> Any:
        """A new object of the plug-in, configured."""
        return self.connector_class(self.definition.parse(self.config()))

    @property
    def definition(self) -> ConfigDef:
        found: ConfigDef = self.connector_class.config_def
        return found

    def test_every_key_is_documented(self) -> None:
        """Each key says in a sentence what it means, and the reference shows it."""
        assert self.connector_class.description.endswith("."), "the plug-in has no description: one sentence"
        text = reference(self.definition)
        for key in self.definition.keys.values():
            assert key.documentation.strip().endswith("."), f"{key.name} has no documentation: a sentence"
            assert f"`{key.name}`" in text, f"{key.name} is not in the reference"

    def test_the_least_configuration_is_enough(self) -> None:
        """Defaults are values of their types, and with the keys that must be given nothing else is needed."""
        required = {key.name for key in self.definition.keys.values() if key.is_required}
        assert required <= self.config().keys(), f"config() lacks {required - self.config().keys()}"
        assert set(self.definition.keys) <= set(self.definition.parse(self.config()))
        self.connector()

    def test_an_unknown_key_is_refused(self) -> None:
        """A misspelt key is an error that names the nearest one, not a default."""
        for name in self.definition.keys:
            wrong = f"x{name}"
            if wrong.startswith(tuple(self.definition.open_prefixes)):
                continue
            assert name in self._refused(wrong), f"{wrong} was taken, or the error does not name {name}"

    def _refused(self, name: str) -> str:
        try:
            self.definition.parse({**self.config(), name: "1"})
        except InvalidConfiguration as error:
            return str(error.errors)
        return ""

    def test_secrets_are_passwords(self) -> None:
        """A key whose name says that it is a secret has the type PASSWORD: it is shown nowhere."""
        shown = [key.name for key in self.definition.keys.values() if _is_shown_secret(key)]
        assert not shown, f"{shown} must have the type PASSWORD"


def _is_shown_secret(key: ConfigKey) -> bool:
    is_file = key.name.endswith((".file", ".location", ".path"))
    return bool(_SECRET.search(key.name)) and key.type is not ConfigType.PASSWORD and not is_file


@dataclass(frozen=True, slots=True)
class RandomRun:
    """One run of a task: the origin grows by `grown` rows, `polls` batches are read, those before `flushed` of them are
    committed; the source hears of that unless `is_killed`. Then the process is gone."""

    grown: int
    polls: int
    flushed: int
    is_killed: bool


def for_random_runs(check: Callable[[list[RandomRun]], None], *, examples: int) -> None:
    """Call `check` with several sequences of runs, the same ones every time."""
    chance = random.Random(20_260_101)  # noqa: S311  # not for secrets
    for _ in range(examples):
        check([_drawn(chance) for _ in range(chance.randint(1, _MOST_RUNS))])


def _drawn(chance: random.Random) -> RandomRun:
    polls, flushed = chance.randint(0, _MOST_POLLS), chance.randint(0, _MOST_POLLS)
    return RandomRun(chance.randint(0, _MOST_GROWN), polls, flushed, chance.random() < 0.5)


class TransformSuite(ConnectorSuite):
    """Set also ``tables``."""

    def tables(self) -> Mapping[str, pa.Table]:
        """Rows that the transform changes, and others, by table."""
        raise NotImplementedError

    def test_the_same_rows_give_the_same_result(self) -> None:
        """Applied by two objects, whole and row by row: after a restart batches are cut elsewhere."""
        for table, rows in self.tables().items():
            name, whole = self.connector().apply(table, rows)
            other, again = self.connector().apply(table, rows)
            assert (name, whole.to_pylist()) == (other, again.to_pylist())
            one = self.connector()
            singles = [one.apply(table, rows.slice(number, 1)) for number in range(rows.num_rows)]
            assert {each for each, _ in singles} <= {name}, "the table depends on how batches are cut"
            assert [row for _, part in singles for row in part.to_pylist()] == whole.to_pylist()

    def test_columns_keep_their_types(self) -> None:
        """A column that is left has the type that it had; empty batches pass."""
        for table, rows in self.tables().items():
            for part in (rows, rows.slice(0, 0)):
                _, changed = self.connector().apply(table, part)
                kept = [name for name in changed.column_names if name in rows.column_names]
                for name in kept:
                    assert changed.schema.field(name).type == rows.schema.field(name).type, f"{name} has another type"

    def test_rows_are_changed_in_a_copy(self) -> None:
        """What was given stays as it was."""
        for table, rows in self.tables().items():
            before = rows.to_pylist()
            self.connector().apply(table, rows)
            assert rows.to_pylist() == before
