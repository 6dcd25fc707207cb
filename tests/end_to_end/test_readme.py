"""What README.md and docs/ say is what the tool does: outputs, tables, links, and every piece of code."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

from hangscope import cli
from hangscope.knowledge.catalog import CATALOG

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
USAGE = (ROOT / "docs" / "usage.md").read_text(encoding="utf-8")
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        ROOT / "fixtures" / "README.md",
        *(ROOT / "docs").glob("*.md"),
    ]
)
INCIDENT = ROOT / "fixtures" / "rank_conditional_barrier" / "dumps"


def load_refresh() -> ModuleType:
    spec = importlib.util.spec_from_file_location("refresh", ROOT / "docs" / "refresh.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced code of a page in one language."""
    return re.findall(
        rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def block(page: Path, word: str, language: str = "python") -> str:
    """Return the first fenced code of a page that has a word in it."""
    return next(code for code in blocks(page, language) if word in code)


CODE = [
    pytest.param(page, language, index, id=f"{page.name}-{language}-{index}")
    for page in PAGES
    for language in ("python", "bash")
    for index in range(len(blocks(page, language)))
]


def test_the_report_and_the_causes_are_what_the_tool_prints_now() -> None:
    for page, text in load_refresh().renewed().items():
        assert text == page.read_text(encoding="utf-8"), "run `python docs/refresh.py` and read what changed"


def test_a_printed_block_is_put_between_its_markers_and_an_unknown_one_is_refused() -> None:
    refresh = load_refresh()
    page = "a\n<!-- score -->\nold\n<!-- /score -->\nz\n"
    printed = "sizes ...\n| a |\n| - |\n\n\n| b |\ndone in 3 s\n"
    assert refresh.put(page, "score", refresh.tables(printed)) == (
        "a\n<!-- score -->\n| a |\n| - |\n\n| b |\n<!-- /score -->\nz\n"
    )
    with pytest.raises(ValueError, match="speed"):
        refresh.put(page, "speed", "")
    for name, page in refresh.PAGES.items():
        assert f"<!-- /{name} -->" in page.read_text(encoding="utf-8")


def test_the_readme_is_read_in_two_minutes() -> None:
    assert len(README.splitlines()) <= 130


def test_every_command_and_option_is_documented() -> None:
    missing = []
    for name, command in cli.main.commands.items():
        if f"hangscope {name}" not in USAGE:
            missing.append(name)
        for option in (p for p in command.params if isinstance(p, click.Option)):
            if name == "analyze":
                missing += [flag for flag in option.opts if f"`{flag}" not in USAGE]
    assert not missing


def test_documented_options_exist() -> None:
    table = USAGE[USAGE.index("| option of") : USAGE.index("| exit code")]
    known = {flag for command in cli.main.commands.values() for p in command.params for flag in p.opts}
    assert set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", table)) <= known


def test_every_key_of_the_json_report_is_documented(
    inside: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    section = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    report: dict[str, Any] = json.loads(inside("analyze", INCIDENT, "--format", "json").stdout)
    words = set(re.findall(r"`(\w+)`", section))
    assert not (set(report) | set(report["verdict"])) - words
    nested = {key for group in report["groups"] for key in group} | {
        key for rank in report["ranks"] for key in rank
    }
    nested |= {key for item in report["inputs"] for key in item}
    # The table leaves out what explains itself: a key of one of the rows' own subjects.
    assert not nested - words - {"members_known", "file"}


def test_every_cause_is_in_the_table_and_can_be_explained(
    inside: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    table = (ROOT / "docs" / "causes.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(CATALOG)
    assert set(re.findall(r"^(\w+) ", inside("explain").stdout, re.MULTILINE)) == set(CATALOG)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor:
            titles = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", t.lower()).replace(" ", "-") for t in titles}, target


@pytest.mark.parametrize(("page", "language", "index"), CODE)
def test_code_is_well_formed(page: Path, language: str, index: int) -> None:
    code = blocks(page, language)[index]
    if language == "python":
        ast.parse(code)
    else:
        done = subprocess.run(["bash", "-n"], input=code, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_modules_that_the_architecture_names_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:ingest|align|causes|report)/\w+\.py|\w+\.py)`", text)
    everywhere = {path.name for path in (ROOT / "hangscope").rglob("*.py")} | {"refresh.py"}
    assert len(named) > 20
    assert not [name for name in named if not (ROOT / "hangscope" / name).exists() and name not in everywhere]


@pytest.mark.slow
def test_the_library_example_runs(environment: dict[str, str], tmp_path: Path) -> None:
    shutil.copytree(INCIDENT, tmp_path / "dumps")
    code = block(ROOT / "docs" / "library.md", 'report.write_html("hang.html")')
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("rank_conditional_collective ")
    assert "hangscope" in (tmp_path / "hang.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "said"), [(INCIDENT, "rank_conditional_collective"), (ROOT / "no-such-folder", "there is no")]
)
def test_the_failure_hook_answers_for_any_folder(
    environment: dict[str, str], tmp_path: Path, folder: Path, said: str
) -> None:
    (tmp_path / "hook.py").write_text(block(ROOT / "README.md", "def on_job_failure"))
    if folder.exists():
        folder = Path(shutil.copytree(folder, tmp_path / "job"))
    else:
        folder = tmp_path / folder.name
    done = subprocess.run(
        [sys.executable, "hook.py", str(folder)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert said in done.stdout.replace("\\", "")
    assert (tmp_path / f"{folder.name}-hang.html").stat().st_size > 1000


@pytest.mark.slow
def test_the_retry_example_tells_code_from_hardware(environment: dict[str, str]) -> None:
    code = block(ROOT / "docs" / "hooks.md", "def should_retry")
    namespace: dict[str, Any] = {}
    exec(compile(code, "hooks.md", "exec"), namespace)
    assert namespace["should_retry"](str(INCIDENT)) is False
    assert namespace["should_retry"](str(ROOT / "no-such-folder")) is True


def test_ci_runs_the_test_command_of_the_readme() -> None:
    command = re.search(r"^\.venv\S+ install .*pytest$", README, re.MULTILINE)
    assert command is not None
    ci = (ROOT / ".ci" / "run").read_text()
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    pattern = re.search(r"sed -n '(.*)' README\.md", ci)
    assert pattern is not None
    found = subprocess.run(
        ["sed", "-n", pattern.group(1), "README.md"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == command.group()


def test_the_picture_is_small_and_has_the_size_of_a_first_screen() -> None:
    data = (ROOT / "docs" / "report.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert (int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")) == (1280, 800)
    assert len(data) < 200_000


@pytest.mark.slow
def test_the_examples_of_the_library_are_typed(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    text = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL)):
        (tmp_path / f"example_{number}.py").write_text(code, encoding="utf-8")
    examples = map(str, tmp_path.glob("*.py"))
    # The package's own settings: what `mypy` has cached of it is read again.
    settings = [f"--config-file={ROOT / 'pyproject.toml'}", f"--cache-dir={ROOT / '.mypy_cache'}"]
    out, problems, _ = api.run([*settings, *examples])
    of_others = ("[import-not-found]", "[no-untyped-call]")  # libraries that are not installed or not typed
    errors = [line for line in out.splitlines() if ": error: " in line and not line.endswith(of_others)]
    assert (errors, problems) == ([], "") and "checked" in out, out
