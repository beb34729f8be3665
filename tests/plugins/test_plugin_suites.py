"""The plug-ins keep the promises that any connector's suite asks for."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from connect.test_suites import TestDeltaSinkOfLogs as DeltaSinkOfLogs

from acktrail.connect.source_batches import SourcePartition
from acktrail.connect.testing import SinkSuite, TransformSuite
from acktrail_plugins.parquet.parquet_sink import ParquetSink
from acktrail_plugins.transforms import Filter, Mask, Route


class TestParquetSinkOfAnyRows(SinkSuite):
    """Rows of a stranger in plain files."""

    connector_class = ParquetSink

    def config(self) -> Mapping[str, str]:
        return {"folder": str(self.folder / "files")}

    def numbers(self, source_partition: SourcePartition) -> list[int]:
        rows = self.stored()
        return sorted(rows.filter(pc.equal(rows["part"], str(source_partition)))["number"].to_pylist())

    def stored(self) -> pa.Table:
        """As any engine reads them."""
        folder = self.folder / "files" / self.table
        if not folder.exists():
            return self.batch(self.partitions()[0], 0, 0).rows[self.table]
        return ds.dataset(folder, partitioning="hive").to_table()

    def commits(self) -> int:
        return len(list((self.folder / "files").rglob("*.parquet")))


class TestParquetSinkOfLogs(TestParquetSinkOfAnyRows):
    """State records in plain files."""

    reads_logs = True
    cluster_id = "memory"
    table = "state_records"
    partitions = DeltaSinkOfLogs.partitions
    position_after = DeltaSinkOfLogs.position_after
    batch = DeltaSinkOfLogs.batch

    def numbers(self, source_partition: SourcePartition) -> list[int]:
        rows, partition = self.stored(), int(source_partition.rsplit("/", 1)[1])
        return sorted(rows.filter(pc.equal(rows["state_partition"], partition))["offset"].to_pylist())


class TestFilter(TransformSuite):
    """Rows of some groups."""

    connector_class = Filter

    def config(self) -> Mapping[str, str]:
        return {"groups": "pay*", "topics.exclude": "test*"}

    def tables(self) -> Mapping[str, pa.Table]:
        return _named()


class TestMask(TransformSuite):
    """Hidden texts."""

    connector_class = Mask

    def config(self) -> Mapping[str, str]:
        return {"columns": "group_id", "with": "hash", "key": "k"}

    def tables(self) -> Mapping[str, pa.Table]:
        return _named()


class TestRoute(TransformSuite):
    """Renamed tables."""

    connector_class = Route

    def config(self) -> Mapping[str, str]:
        return {"regex": "state_(.*)", "replacement": r"raw_\1"}

    def tables(self) -> Mapping[str, pa.Table]:
        return _named()


def _named() -> Mapping[str, pa.Table]:
    groups = ["payments", "orders", None, "payroll", "payments"]
    rows = pa.table({"group_id": groups, "topic": ["t", "test-1", "t", None, "test-2"], "n": range(5)})
    return {"state_records": rows, "topics": rows.drop_columns(["topic"])}
