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


@pytest.fixture
def sdist(tmp_path: Path) -> Path:
    """Return the source archive, built by the project's own backend."""
    pytest.importorskip("hatchling", reason="building needs hatchling, which the `test` extra installs")
    folder = tmp_path / "sdist"
    folder.mkdir()
    done = call("-c", f"from hatchling.build import build_sdist; build_sdist({str(folder)!r})", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    (archive,) = folder.iterdir()
    return archive


@pytest.fixture
def wheel(sdist: Path, tmp_path: Path) -> Path:
    """Return the wheel, built from the source archive, as a package index would serve it."""
    folder = tmp_path / "wheel"
    folder.mkdir()
    done = call(
        "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, sdist, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    (archive,) = folder.iterdir()
    return archive


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Path:
    """Return a folder with the wheel installed and nothing else."""
    folder = tmp_path / "installed"
    folder.mkdir()
    done = call("-m", "pip", "install", "-q", "--no-deps", "--target", folder, wheel, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def check_source_archive(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"report_templates/{name}" for name in TEMPLATES} <= names
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "hangscope/py.typed"} <= names
    assert not [name for name in names if name.startswith(("fixtures/", "tests/")) or "__pycache__" in name]


def check_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    sources = (path for path in (ROOT / "hangscope").rglob("*.py"))
    assert {f"hangscope/report_templates/{name}" for name in TEMPLATES} <= names
    assert {path.relative_to(ROOT).as_posix() for path in sources} | {"hangscope/py.typed"} <= names
    assert not [name for name in names if not name.startswith(("hangscope/", "hangscope-"))]


def check_compiled_templates(installed: Path, tmp_path: Path) -> None:
    code = (
        "import sys, hangscope; from hangscope.report.html.templates import COMPILED, own_environment;"
        "page = hangscope.analyze(sys.argv[1]).to_html(); print(type(own_environment().loader).__name__, COMPILED);"
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


def check_analysis(installed: Path, tmp_path: Path) -> None:
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


def check_demo_and_version(installed: Path, wheel: Path, tmp_path: Path) -> None:
    listed = call("-m", "hangscope", "demo", "--list", cwd=tmp_path, PYTHONPATH=str(installed))
    assert listed.stdout.startswith("rank_conditional ")
    code = (
        "from hangscope.demo import scenarios; print(all(s.script.is_file() for s in scenarios().values()))"
    )
    assert call("-c", code, cwd=tmp_path, PYTHONPATH=str(installed)).stdout.strip() == "True"
    version = call("-m", "hangscope", "--version", cwd=tmp_path, PYTHONPATH=str(installed)).stdout.split()[-1]
    assert wheel.name.startswith(f"hangscope-{version}-")


def check_import(installed: Path, tmp_path: Path) -> None:
    code = "import sys, hangscope; print(sorted({'torch', 'pandas', 'jinja2', 'numpy'} & set(sys.modules)))"
    assert call("-c", code, cwd=tmp_path, PYTHONPATH=str(installed)).stdout.strip() == "[]"


def test_what_is_built_is_whole_and_works_where_it_is_installed(
    sdist: Path, wheel: Path, installed: Path, tmp_path: Path
) -> None:
    """In one test: each worker of pytest would build them anew."""
    here = tmp_path / "here"
    here.mkdir()
    check_source_archive(sdist)
    check_wheel(wheel)
    check_compiled_templates(installed, here)
    check_analysis(installed, here)
    check_demo_and_version(installed, wheel, here)
    check_import(installed, here)
