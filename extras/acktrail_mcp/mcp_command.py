"""``acktrail mcp``: questions about share groups, for agents."""

from __future__ import annotations


def serve() -> None:
    """Serve the Model Context Protocol, for AI agents. The tools read, and can plan resets. No tool changes a cluster.

    The server uses stdin and stdout, and ends when stdin is closed. Brokers and tables come from the environment or a
    profile: `acktrail --profile NAME mcp`. Give it a principal that may only DESCRIBE and READ.
    """
    from acktrail_mcp.questions import server

    server.run("stdio")
