"""An acktrail source that follows a folder of JSON-lines files."""
