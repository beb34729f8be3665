"""The suite of expectations and its gate, metrics, and messages."""
