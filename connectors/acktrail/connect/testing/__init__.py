"""A behaviour suite for connectors: subclass one of its classes in a test module, and pytest collects its tests.

    class TestJournalSource(SourceSuite):
        connector_class = JournalSource

        def config(self): return {"folder": str(self.folder)}
        def write(self, count): ...

What every promise means stands in ``acktrail.connect.contract``. pytest is not imported.
"""

from acktrail.connect.testing.connector_suite import ConnectorSuite, TransformSuite
from acktrail.connect.testing.sink_suite import MemorySink, MemoryTables, SinkSuite
from acktrail.connect.testing.source_suite import ObservationSuite, SourceSuite

__all__ = [
    "ConnectorSuite",
    "MemorySink",
    "MemoryTables",
    "ObservationSuite",
    "SinkSuite",
    "SourceSuite",
    "TransformSuite",
]
