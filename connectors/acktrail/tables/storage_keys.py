"""The configuration keys with which a connector reaches a folder or an object storage."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from acktrail.config import TablesConfig
from acktrail.connect.config_def import ConfigDef, ConfigKey, Importance, NonEmpty
from acktrail.connect.config_values import ConfigType, under
from acktrail.connect.contract import Config
from acktrail.secrets import resolved_properties

_OPTIONS: Final = ".options"
_OPTION: Final = "option."
_TABLES: Final = "tables"


def storage_keys(root: str, documentation: str, *, group: str) -> ConfigDef:
    """The key `root` with its `documentation`, a file of options, and options one by one."""
    return ConfigDef(
        [
            ConfigKey(
                name=root,
                type=ConfigType.STRING,
                documentation=documentation,
                importance=Importance.HIGH,
                validator=NonEmpty(),
                group=group,
            ),
            ConfigKey(
                name=root + _OPTIONS,
                type=ConfigType.STRING,
                default=None,
                documentation="A file with key=value lines for the object storage; options given here win over it.",
                group=group,
                lines_under=_OPTION,
            ),
        ],
        {_OPTION: "any option of the object storage: aws_region, aws_endpoint_url, aws_access_key_id ..."},
    )


def storage_config(config: Config, root: str) -> TablesConfig:
    """What a parsed configuration says under ``storage_keys`` of `root`. Raises ConfigurationError when the file cannot
    be read."""
    file = config[root + _OPTIONS]
    options = {} if file is None else resolved_properties(Path(file))
    options |= {name: str(value) for name, value in under(config, _OPTION).items()}
    return TablesConfig(uri=config[root], options=options)


TABLES_KEYS: Final = storage_keys(
    _TABLES, "Root of the tables: a folder or a URI such as s3://bucket/prefix.", group="Tables"
)


def tables_config(config: Config) -> TablesConfig:
    """Where the tables of a parsed configuration are. Raises as ``storage_config``."""
    return storage_config(config, _TABLES)
