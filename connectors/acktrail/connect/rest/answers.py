"""Bodies of requests and answers, as those of Kafka's ``org.apache.kafka.connect.runtime.rest.entities``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from acktrail.connect.config_def import ConfigType, text_of
from acktrail.connect.runtime.task_thread import RunState


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
    config: dict[str, Any]


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
