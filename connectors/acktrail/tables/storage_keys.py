"""The configuration keys with which a connector reaches a folder or an object storage."""

from __future__ import annotations

from typing import Final

from acktrail.config import TablesConfig
from acktrail.connect.config_def import NON_EMPTY, ConfigDef, ConfigKey, ConfigType, Importance, under
from acktrail.connect.contract import Config

_OPTION: Final = "option."
_TABLES: Final = "tables"


def storage_keys(root: str, documentation: str, *, group: str) -> ConfigDef:
    """The key `root` with its `documentation`, and options one by one."""
    return ConfigDef(
        [
            ConfigKey(
                name=root,
                type=ConfigType.STRING,
                documentation=documentation,
                importance=Importance.HIGH,
                validator=NON_EMPTY,
                group=group,
            ),
        ],
        {_OPTION: "any option of the object storage: aws_region, aws_endpoint_url, aws_access_key_id ..."},
    )


def storage_config(config: Config, root: str) -> TablesConfig:
    """What a parsed configuration says under ``storage_keys`` of `root`."""
    options = {name: str(value) for name, value in under(config, _OPTION).items()}
    return TablesConfig(uri=config[root], options=options)


TABLES_KEYS: Final = storage_keys(
    _TABLES, "Root of the tables: a folder or a URI such as s3://bucket/prefix.", group="Tables"
)


def tables_config(config: Config) -> TablesConfig:
    """Where the tables of a parsed configuration are. Raises as ``storage_config``."""
    return storage_config(config, _TABLES)
