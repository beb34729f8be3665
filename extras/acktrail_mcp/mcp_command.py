"""``acktrail mcp``: questions about share groups, for agents."""

from __future__ import annotations


def serve() -> None:
    """Answer questions of agents by the Model Context Protocol. It reads, and plans resets; nothing here changes a
    cluster.

    Speaks on stdin and stdout, until stdin ends. Brokers and tables come from the environment or a profile:
    `acktrail --profile NAME mcp`. Give it a principal that may only DESCRIBE and READ.
    """
    from acktrail_mcp.questions import server

    server.run("stdio")
