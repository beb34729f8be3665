"""Connectors beside the core (Parquet files, Kafka topics, tables as a source, transforms of rows), suites of tests for
those who write connectors, and the plan of a migration to another cluster."""

from acktrail.branches import Branch

PLUGINS = Branch(
    package="acktrail_plugins", change_kinds={"migration": "acktrail_plugins.migration.migration_kind:MIGRATION"}
)
