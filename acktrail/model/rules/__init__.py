"""The catalogue of rules about records, states, exports, verdicts and resets, with their severities."""
