"""What is built and installed is whole: the page's templates, the demo's scripts, the types, the command."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
INCIDENT = ROOT / "fixtures" / "rank_conditional_barrier" / "dumps"
TEMPLATES = sorted(path.name for path in (ROOT / "report_templates").iterdir())


def call(*words: str | Path, cwd: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {
        k: v
        for k, v in os.environ.items()
        if k not in ("PYTHONPATH", "HANGSCOPE_DEBUG", "NO_COLOR", "FORCE_COLOR")
    }
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env={**environment, **settings},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the source archive, built by the project's own backend."""
    pytest.importorskip("hatchling", reason="building needs hatchling, which the `test` extra installs")
    folder = tmp_path_factory.mktemp("sdist")
    done = call("-c", f"from hatchling.build import build_sdist; build_sdist({str(folder)!r})", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    (archive,) = folder.iterdir()
    return archive


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel, built from the source archive, as a package index would serve it."""
    folder = tmp_path_factory.mktemp("wheel")
    done = call(
        "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, sdist, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    (archive,) = folder.iterdir()
    return archive


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheel installed and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    done = call("-m", "pip", "install", "-q", "--no-deps", "--target", folder, wheel, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_source_archive_holds_what_a_build_needs(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"report_templates/{name}" for name in TEMPLATES} <= names
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "hangscope/py.typed"} <= names
    assert not [name for name in names if name.startswith(("fixtures/", "tests/")) or "__pycache__" in name]


def test_the_wheel_holds_templates_scenarios_types_and_every_module(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    sources = (path for path in (ROOT / "hangscope").rglob("*.py"))
    assert {f"hangscope/report_templates/{name}" for name in TEMPLATES} <= names
    assert {path.relative_to(ROOT).as_posix() for path in sources} | {"hangscope/py.typed"} <= names
    assert not [name for name in names if not name.startswith(("hangscope/", "hangscope-"))]


def test_the_wheel_holds_the_templates_compiled_and_renders_the_same_page_with_them(
    installed: Path, tmp_path: Path
) -> None:
    code = (
        "import sys, hangscope; from hangscope.report.html.templates import COMPILED, page_environment;"
        "page = hangscope.analyze(sys.argv[1]).to_html(); print(type(page_environment().loader).__name__, COMPILED);"
        "open(sys.argv[2], 'w').write(page)"
    )
    pages = []
    for name, root in (("installed", installed), ("checkout", ROOT)):
        done = call("-c", code, INCIDENT, tmp_path / name, cwd=tmp_path, PYTHONPATH=str(root))
        assert done.returncode == 0, done.stderr
        loader, compiled = done.stdout.split()
        assert loader == ("ModuleLoader" if name == "installed" else "FileSystemLoader")
        pages.append((tmp_path / name).read_text(encoding="utf-8"))
    assert pages[0] == pages[1]
    (installed / "hangscope" / "report_templates" / compiled).rename(tmp_path / "other")  # of another jinja2
    done = call("-c", code, INCIDENT, tmp_path / "again", cwd=tmp_path, PYTHONPATH=str(installed))
    (tmp_path / "other").rename(installed / "hangscope" / "report_templates" / compiled)
    assert done.returncode == 0 and (tmp_path / "again").read_text(encoding="utf-8") == pages[0]


def test_an_installed_wheel_analyses_and_renders_the_page(installed: Path, tmp_path: Path) -> None:
    where = call("-c", "import hangscope; print(hangscope.__file__)", cwd=tmp_path, PYTHONPATH=str(installed))
    assert Path(where.stdout.strip()).is_relative_to(installed), (
        "the checkout must not be what is tested here"
    )
    done = call(
        "-m", "hangscope", "analyze", INCIDENT, "-o", "hang.html", cwd=tmp_path, PYTHONPATH=str(installed)
    )
    assert done.returncode == 0, done.stderr
    assert "hang[rank_conditional_collective]" in done.stdout
    page = (tmp_path / "hang.html").read_text(encoding="utf-8")
    assert "<h1" in page and "save_checkpoint" in page and page.rstrip().endswith("</html>")


def test_an_installed_wheel_knows_its_demo_and_its_version(
    installed: Path, wheel: Path, tmp_path: Path
) -> None:
    listed = call("-m", "hangscope", "demo", "--list", cwd=tmp_path, PYTHONPATH=str(installed))
    assert listed.stdout.startswith("rank_conditional ")
    code = (
        "from hangscope.demo import scenarios; print(all(s.script.is_file() for s in scenarios().values()))"
    )
    assert call("-c", code, cwd=tmp_path, PYTHONPATH=str(installed)).stdout.strip() == "True"
    version = call("-m", "hangscope", "--version", cwd=tmp_path, PYTHONPATH=str(installed)).stdout.split()[-1]
    assert wheel.name.startswith(f"hangscope-{version}-")


def test_the_import_needs_neither_torch_nor_pandas(installed: Path, tmp_path: Path) -> None:
    code = "import sys, hangscope; print(sorted({'torch', 'pandas', 'jinja2', 'numpy'} & set(sys.modules)))"
    assert call("-c", code, cwd=tmp_path, PYTHONPATH=str(installed)).stdout.strip() == "[]"
