"""The ledger of partitions: how many a topic has, who leads them, where their logs begin and end, at which time."""
