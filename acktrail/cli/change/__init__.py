"""``acktrail change``: commands, their options and their text."""
