"""Bodies of requests and answers, as those of Kafka's ``org.apache.kafka.connect.runtime.rest.entities``; and the calls
into the worker that give them, each on a thread with a time limit, so that one waits for no other."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import Annotated, Any, Final, Literal
from weakref import WeakValueDictionary

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from starlette.exceptions import HTTPException

from acktrail.errors import AcktrailError
from acktrail_connect.config_def import ConfigType, text_of
from acktrail_connect.worker.task_thread import RunState
from acktrail_connect.worker.worker import Worker

_LOG: Final = logging.getLogger("acktrail.connect")
_MOST: Final = 16


def _unicode(text: str) -> str:
    """Raises ValueError for half a character (a lone surrogate), which JSON can have."""
    if any("\ud800" <= each <= "\udfff" for each in text):
        raise ValueError("no valid Unicode")
    return text


def _text(value: Any) -> Any:
    """A number or truth value of JSON as Kafka's parser makes a text of it."""
    if isinstance(value, bool):
        return text_of(ConfigType.BOOLEAN, value)
    return str(value) if isinstance(value, int | float) else value


Text = Annotated[str, AfterValidator(_unicode)]
ConfigText = Annotated[Text, BeforeValidator(_text, json_schema_input_type=str | float | bool)]
ConfigTexts = dict[Text, ConfigText]
ConfigChanges = dict[Text, ConfigText | None]


class Problem(BaseModel):
    """Every error has this shape."""

    error_code: int = Field(description="The HTTP status.")
    message: str


class ServerInfo(BaseModel):
    """The worker."""

    version: str
    commit: str
    kafka_cluster_id: str | None = Field(description="The cluster of the connectors; null: not known, or several.")


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else "RUNNING" if value is None else value


class NewConnector(BaseModel):
    """A connector to be created."""

    model_config = ConfigDict(extra="forbid")

    name: Text = Field(description="Unique; without control characters.")
    config: ConfigTexts
    initial_state: Annotated[Literal["RUNNING", "PAUSED", "STOPPED"], BeforeValidator(_upper)] = "RUNNING"


class TaskId(BaseModel):
    """A task's address."""

    connector: str
    task: int


class ConnectorInfo(BaseModel):
    """A connector, its secrets hidden."""

    name: str
    config: dict[str, Any]
    tasks: list[TaskId]
    type: str = "source"


class ConnectorState(BaseModel):
    """A connector's own state; `trace` only when something is wrong, `version` of the plug-in where it is known
    (KIP-891)."""

    state: RunState
    worker_id: str
    version: str | None = None
    trace: str | None = None


class TaskState(ConnectorState):
    """A task's state."""

    id: int


class ConnectorStatus(BaseModel):
    """The states of a connector and its tasks."""

    name: str
    connector: ConnectorState
    tasks: list[TaskState]
    type: str = "source"


class TaskInfo(BaseModel):
    """A task and its part of the work."""

    id: TaskId
    config: dict[str, str]


class ConnectorOffset(BaseModel):
    """A source partition and where its reading continues; offset null: forget it."""

    model_config = ConfigDict(extra="forbid")

    partition: dict[str, Any]
    offset: dict[str, Any] | None


class ConnectorOffsets(BaseModel):
    """The positions of a connector."""

    model_config = ConfigDict(extra="forbid")

    offsets: list[ConnectorOffset]


class PluginInfo(BaseModel):
    """An installed plug-in."""

    class_name: str = Field(serialization_alias="class")
    type: str
    version: str


class KeyDefinition(BaseModel):
    """A configuration key."""

    name: str
    type: str
    required: bool
    default_value: str | None
    importance: str
    documentation: str
    group: str | None
    order_in_group: int = Field(description="Its place in its group, from 1.")
    width: str = "NONE"
    display_name: str
    dependents: list[str] = []


class KeyValue(BaseModel):
    """A configuration key's value, and what is wrong with it."""

    name: str
    value: str | None
    recommended_values: list[str] = []
    errors: list[str]
    visible: bool = True


class ValidatedConfig(BaseModel):
    """One key; definition null: it is not known."""

    definition: KeyDefinition | None
    value: KeyValue


class ConfigInfos(BaseModel):
    """A whole configuration after validation."""

    name: str
    error_count: int
    groups: list[str]
    configs: list[ValidatedConfig]


@dataclass(slots=True, kw_only=True)
class Calls:
    """What every handler needs. `timeout_s` is the longest that a caller waits, `worker_id` this worker's address. At
    most 16 calls of one kind about one connector run at a time, others wait for them: those that a broker holds up take
    no thread from the others."""

    worker: Worker
    worker_id: str = ""
    timeout_s: float = 90.0
    _turns: WeakValueDictionary[tuple[str, str], asyncio.Semaphore] = field(default_factory=WeakValueDictionary)

    async def in_time(self, kind: str, connector: str, function: Callable[[], Any]) -> Any:
        """What `function` gives or raises, secrets hidden. Raises HTTPException: 500 as Connect, when it takes longer
        than the limit (it runs on), or for a defect."""
        try:
            return await asyncio.wait_for(self._in_turn(kind, connector, function), self.timeout_s)
        except TimeoutError:
            raise HTTPException(500, "Request timed out") from None

    async def _in_turn(self, kind: str, connector: str, function: Callable[[], Any]) -> Any:
        turns = self._turns.setdefault((kind, connector), asyncio.Semaphore(_MOST))
        await turns.acquire()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()

        def told(result: Any, error: Exception | None) -> None:
            turns.release()
            if not answer.done():
                answer.set_result(result) if error is None else answer.set_exception(error)

        def run() -> None:
            outcome = self._outcome(connector, function)
            with suppress(RuntimeError):  # the interface was closed meanwhile
                loop.call_soon_threadsafe(told, *outcome)

        Thread(target=run, name="acktrail-rest-call", daemon=True).start()
        return await answer

    def _outcome(self, connector: str, function: Callable[[], Any]) -> tuple[Any, Exception | None]:
        try:
            return function(), None
        except HTTPException as error:
            return None, error
        except AcktrailError as error:
            return None, self.worker.redaction(connector).error(error)
        except Exception as error:  # noqa: BLE001  # the caller gets an answer
            _LOG.error("REST: %s", self.worker.redact_all("".join(traceback.format_exception(error))))
            return None, HTTPException(500, f"Internal error: {type(error).__name__}")
