"""What coding agents plug in: the tools of an MCP server."""
