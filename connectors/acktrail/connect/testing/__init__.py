"""A behaviour suite for connectors: subclass one of its classes in a test module, and pytest collects its tests.

    class TestJournalSource(SourceSuite):
        connector_class = JournalSource

        def config(self): return {"folder": str(self.folder)}
        def write(self, count): ...

What every promise means stands in ``acktrail.connect.contract``. pytest is not imported; with hypothesis installed, the
random runs shrink to a small example.
"""

from acktrail.connect.testing.connector_suite import ConnectorSuite
from acktrail.connect.testing.memory_sink import MemorySink, MemoryTables
from acktrail.connect.testing.observation_suite import ObservationSuite
from acktrail.connect.testing.sink_suite import SinkSuite
from acktrail.connect.testing.source_suite import SourceSuite
from acktrail.connect.testing.transform_suite import TransformSuite

__all__ = [
    "ConnectorSuite",
    "MemorySink",
    "MemoryTables",
    "ObservationSuite",
    "SinkSuite",
    "SourceSuite",
    "TransformSuite",
]
