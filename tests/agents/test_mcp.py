"""The MCP server as a client of the official SDK meets it, in one process."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hangscope.agents.mcp import Allowed, _bounded, server
from hangscope.errors import UsageError
from tests.conftest import FIXTURES, Run
from tests.needs import needs

pytestmark = needs("mcp")

INCIDENT = FIXTURES / "rank_conditional_barrier"


def sdk() -> Any:
    """Return the SDK. It takes seconds to import: no test module does it when it is imported."""
    pytest.importorskip("mcp.server.mcpserver", reason="the SDK before version 2")
    return pytest.importorskip("mcp")


def call(root: Path, tool: str, **arguments: Any) -> tuple[bool, str]:
    """Call a tool; return whether it failed, and its text."""

    mcp = sdk()

    async def talk() -> tuple[bool, str]:
        async with mcp.Client(server(Allowed.of([str(root)]))) as client:
            result = await client.call_tool(tool, arguments)
            return bool(result.is_error), result.content[0].text

    return asyncio.run(talk())


@pytest.mark.slow
def test_all_tools_only_read() -> None:
    mcp = sdk()

    async def listed() -> list[Any]:
        async with mcp.Client(server(Allowed.of([str(INCIDENT)]))) as client:
            return list((await client.list_tools()).tools)

    tools = asyncio.run(listed())
    assert {tool.name for tool in tools} == {"analyze", "brief", "table", "explain", "diff"}
    assert all(tool.annotations.read_only_hint and tool.description for tool in tools)
    assert "self" not in tools[0].input_schema["properties"]


@pytest.mark.slow
def test_the_tools_answer() -> None:
    failed, text = call(INCIDENT, "analyze", paths=["dumps"])
    assert not failed and json.loads(text)["verdict"]["cause"] == "rank_conditional_collective"
    failed, text = call(INCIDENT, "brief", paths=[str(INCIDENT)], max_bytes=2000)
    assert not failed and text.startswith("# Rank 0 called barrier") and len(text.encode()) <= 2000
    failed, text = call(INCIDENT, "table", paths=["dumps"], ranks="0-1", pending=True)
    assert [line.split(",")[0] for line in text.splitlines()] == ["rank", "0", "1"]
    failed, text = call(INCIDENT, "table", paths=["dumps"], most_rows=3)
    assert len(text.splitlines()) == 5 and text.endswith("[more rows: narrow the selection]\n")
    assert "loader" in call(INCIDENT, "explain", cause="uneven_loader")[1]
    assert "uneven_loader" in call(INCIDENT, "explain", cause="nonsense")[1]
    assert call(INCIDENT, "diff", first="dumps", second="dumps")[1].startswith("same bug")


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../shape_mismatch", "..", "-", "s3://bucket/job", "no-such-file"]
)
def test_nothing_else_is_read(path: str) -> None:
    for tool, arguments in (("analyze", {"paths": [path]}), ("diff", {"first": "dumps", "second": path})):
        failed, text = call(INCIDENT, tool, **arguments)
        assert failed and "is not below" in text


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    inside = tmp_path / "job"
    inside.mkdir()
    (inside / "rank0.log").symlink_to("/etc/passwd")
    failed, text = call(inside, "brief", paths=["."])
    assert failed and "leads out" in text


def test_a_wrong_selection_is_told_and_no_crash() -> None:
    failed, text = call(INCIDENT, "table", paths=["dumps"], group="tp9")
    assert failed and "no group is called 'tp9'" in text and "default_pg" in text


def test_a_long_report_loses_lists_by_name() -> None:
    data = {"status": "hang", "missing": ["x"], "warnings": ["y" * 1000] * 100}
    assert json.loads(_bounded(data)) == {"status": "hang", "missing": ["x"], "left_out": ["warnings"]}


def test_a_missing_package_or_path_is_one_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run("mcp", "no-such-folder")
    assert done.returncode == 2 and "no-such-folder" in done.stderr
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    with pytest.raises(UsageError) as raised:
        server(Allowed.of([str(INCIDENT)]))
    assert "hangscope[mcp]" in raised.value.hint
