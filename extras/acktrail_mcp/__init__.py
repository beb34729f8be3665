"""Questions about share groups, for agents: a server of the Model Context Protocol that reads, and plans changes, and
carries none out."""

from __future__ import annotations

from typing import Final

from acktrail.branches import Branch

MCP: Final = Branch(package="acktrail_mcp")
