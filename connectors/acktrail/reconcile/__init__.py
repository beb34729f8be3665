"""From exported records to states, verdicts, findings, statuses and the history of every record."""
