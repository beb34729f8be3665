"""Messages to people about what changed: a gate that stops runs, critical findings, the status of a group."""
