"""The catalogue of rules: what must be true of records, states, exports, verdicts, resets; how bad a breach is."""
