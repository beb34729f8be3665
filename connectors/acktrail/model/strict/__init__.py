"""Replay by policy ``strict``: the same states as a broker's, with every violation of the rules as a value."""
