"""Assets by their real addresses, for DAGs that are scheduled by them: ``s3://bucket/acktrail/state_records``,
``kafka://broker-1:9092/orders``. A run knows its tables and its cluster only when it works, so a task publishes them
through an `AssetAlias` among its outlets."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from airflow.sdk import Asset, AssetAlias, Context

from acktrail.config import KafkaConfig, TablesConfig


def table_assets(tables: TablesConfig, names: Iterable[str]) -> list[Asset]:
    """Tables by their addresses; none where the address has a login in it."""
    root = tables.uri.rstrip("/")
    address = root if urlsplit(root).scheme else Path(root).absolute().as_uri()
    return [] if "@" in urlsplit(address).netloc else [Asset(uri=f"{address}/{name}") for name in names]


def topic_assets(kafka: KafkaConfig, topics: Iterable[str]) -> list[Asset]:
    """Topics by the first broker of the client configuration."""
    broker = kafka.bootstrap_servers.split(",")[0].strip()
    return [Asset(uri=f"kafka://{broker}/{topic}") for topic in sorted(set(topics))]


def publish(context: Context, assets: Iterable[Asset]) -> None:
    """Add an event for each asset to the aliases among the task's outlets."""
    aliases = [each for each in getattr(context.get("task"), "outlets", ()) if isinstance(each, AssetAlias)]
    for asset in assets:
        for alias in aliases:
            context["outlet_events"][alias].add(asset)
