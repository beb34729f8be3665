"""The data pipeline on Spark: from the exported tables to verdicts, findings, history and statuses.

A step is a query on DataFrames (``frames``): executors read pieces of the tables and make typed rows. These are
exchanged, judged and written as files; the driver commits the names of files. In the order of a run:

1. ``reconcile``: state records to states (replay); states and the brokers' descriptions to verdicts and findings.
2. ``history``: new state records, file after file, to changes of the status of records.
3. ``statuses``: verdicts and counted changes to statuses, what changed, and trends.
4. ``history.verify_tables``: everything that runs leave for the next one, made again from all records.

``api`` has a function for each: what DAGs and programs call. ``views`` shows the tables, and what a run wrote, to SQL.
Each module has an example: state partition 3 with the records of the group `billing` on partition 0 of `orders`.
"""
