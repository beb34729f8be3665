"""The demo: a real broker and a real Airflow in a folder, share groups at work, known faults."""

from acktrail.branches import Branch

DEMO = Branch(package="acktrail_demo")
