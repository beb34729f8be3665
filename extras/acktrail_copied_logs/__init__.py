"""Copied logs of the state topic: record dumps, tables of records and Kafka's log segments, without a cluster.

They are decoded and replayed record by record, or imported into the tables. ``drafts`` has the formats that KIP-932
drafted before Kafka 4.0, which no release wrote: they occur only in copied files.
"""

from acktrail.branches import Branch

COPIED_LOGS = Branch(package="acktrail_copied_logs")
