"""``acktrail reset``: commands, their options and their text."""
