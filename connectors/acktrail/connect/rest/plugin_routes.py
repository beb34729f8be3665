"""``/connector-plugins``: as Kafka's ``ConnectorPluginsResource``."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.exceptions import HTTPException

from acktrail.connect.config_def import ConfigKey
from acktrail.connect.config_values import text_of
from acktrail.connect.plugins import PluginKind, definition_of, installed
from acktrail.connect.rest.answers import ConfigInfos, ConfigTexts, KeyDefinition, KeyValue, PluginInfo, ValidatedConfig
from acktrail.connect.rest.calls import Api, PluginName
from acktrail.connect.runtime.worker_answers import ValidatedKey
from acktrail.errors import UnknownName

router: Final = APIRouter(prefix="/connector-plugins", tags=["Plug-ins"])
_SUFFIX: Final = "Connector"


@router.get("", operation_id="listConnectorPlugins", summary="List the installed plug-ins")
async def list_plugins(
    api: Api, *, connectors_only: Annotated[bool, Query(alias="connectorsOnly")] = True
) -> list[PluginInfo]:
    """Sources and sinks; with ?connectorsOnly=false transforms as well."""
    found = await api("plug-ins", installed)
    kinds = (PluginKind.SOURCE, PluginKind.SINK)
    return [
        PluginInfo(class_name=each.name, type=each.kind.value, version=each.version)
        for each in found
        if each.kind in kinds or not connectors_only
    ]


@router.get("/{plugin}/config", operation_id="getPluginConfig", summary="Get the configuration keys of a plug-in")
async def plugin_config(api: Api, name: PluginName) -> list[KeyDefinition]:
    try:
        keys = await api("plug-ins", partial(definition_of, name))
    except UnknownName:
        raise HTTPException(404, f"Unknown plugin {name}.") from None
    return _definitions(list(keys.keys.values()))


@router.put(
    "/{plugin}/config/validate",
    operation_id="validateConnectorConfig",
    summary="Validate a connector's configuration",
)
async def validate(api: Api, name: PluginName, config: ConfigTexts) -> ConfigInfos:
    """Every key, what it is, its value and what is wrong with it. Nothing is made."""
    given = config.get("connector.class")
    if given is None:
        raise HTTPException(400, "Connector config contains no connector type")
    if not _normalized(given).endswith(_normalized(name)):
        raise HTTPException(400, f"Included connector type {given} does not match request type {name}")
    found = await api("validation", partial(api.worker.validate, config))
    definitions = {each.name: each for each in _definitions([key.definition for key in found if key.definition])}
    return ConfigInfos(
        name=given,
        error_count=sum(len(each.errors) for each in found),
        groups=list(dict.fromkeys(each.group for each in definitions.values() if each.group)),
        configs=[ValidatedConfig(definition=definitions.get(each.name), value=_value(each)) for each in found],
    )


def _normalized(name: str) -> str:
    return name.removesuffix(_SUFFIX) or name


def _value(key: ValidatedKey) -> KeyValue:
    return KeyValue(
        name=key.name,
        value=key.value,
        recommended_values=list(key.recommended_values),
        errors=list(key.errors),
        visible=key.visible,
    )


def _definitions(keys: list[ConfigKey]) -> list[KeyDefinition]:
    places: Counter[str] = Counter()
    found = []
    for key in keys:
        places[key.group] += 1
        found.append(
            KeyDefinition(
                name=key.name,
                type=key.type.value,
                required=key.is_required,
                default_value=None if key.is_required else text_of(key.type, key.default),
                importance=key.importance.value,
                documentation=key.documentation,
                group=key.group,
                order_in_group=places[key.group],
                display_name=key.name,
                dependents=list(key.dependents),
            )
        )
    return found
