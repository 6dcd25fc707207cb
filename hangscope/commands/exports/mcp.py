"""`hangscope mcp`: a server of read-only tools for coding agents."""

from __future__ import annotations

import click


@click.command(
    short_help="Serve read-only tools to a coding agent (MCP).",
    epilog="""\b
Example, in an agent's configuration:
  {"mcpServers": {"hangscope": {"command": "hangscope", "args": ["mcp", "/shared/jobs"]}}}
""",
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
def mcp(paths: tuple[str, ...]) -> None:
    """Serve analyze, brief, table, explain and diff over standard input and output.

    The tools only read files below PATH. Needs pip install 'hangscope[mcp]'.
    """
    from hangscope.agents.mcp import serve

    serve(paths)
