"""Configurations of groups (DescribeConfigs and IncrementalAlterConfigs on GROUP resources)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kafka.protocol.admin import DescribeConfigsRequest

from acktrail.broker.changes import ConfigsChange
from acktrail.broker.client.broker_client import BrokerClient
from acktrail.broker.client.error_codes import NONE, error_text
from acktrail.broker.descriptions import GroupConfigs

__all__ = ["alter_configs_request", "read_group_configs"]

_GROUP: Final = 32
_SET: Final = 0
_DELETE: Final = 1
_SET_ON_THE_GROUP: Final = 8
"""Kafka: ``ConfigSource.GROUP_CONFIG``."""
_GROUPS_AT_ONCE: Final = 500


def read_group_configs(client: BrokerClient, group_ids: Iterable[str]) -> tuple[GroupConfigs, ...]:
    """The configuration in force of each group, in the order asked for; a group that may not be read has an error.

    Raises:
        Unreachable: no broker answered.
    """
    wanted = tuple(dict.fromkeys(group_ids))
    found: dict[str, GroupConfigs] = {}
    for at in range(0, len(wanted), _GROUPS_AT_ONCE):
        answer = client.send(_request(wanted[at : at + _GROUPS_AT_ONCE]))
        found |= {result.resource_name: _configs(result) for result in answer.results}
    return tuple(found[group_id] for group_id in wanted)


def alter_configs_request(change: ConfigsChange) -> Any:
    """Request 44: set, or back to the broker's default."""
    from kafka.protocol.admin import IncrementalAlterConfigsRequest

    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    entries = [
        resource.AlterableConfig(name=name, config_operation=_DELETE if value is None else _SET, value=value)
        for name, value in change.configs
    ]
    return IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=_GROUP, resource_name=change.group_id, configs=entries)],
        validate_only=False,
    )


def _request(group_ids: Iterable[str]) -> Any:
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_GROUP, resource_name=group_id, configuration_keys=None
        )
        for group_id in group_ids
    ]
    return DescribeConfigsRequest(resources=resources, include_synonyms=False, include_documentation=False)


def _configs(result: Any) -> GroupConfigs:
    values = {entry.name: entry.value for entry in result.configs if entry.value is not None}
    return GroupConfigs(
        group_id=result.resource_name,
        configs=values if result.error_code == NONE else None,
        own=frozenset(entry.name for entry in result.configs if entry.config_source == _SET_ON_THE_GROUP),
        error_code=result.error_code,
        error=error_text(result.error_code, result.error_message),
    )
