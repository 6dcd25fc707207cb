"""`python -m tests.accept_golden` writes the golden reports anew; read the difference before committing it."""

from __future__ import annotations

from tests.golden_reports import FOLDER, INCIDENTS, render


def main() -> None:
    """Write every golden file, and remove those that nothing makes any more."""
    wanted = {name: text for incident in INCIDENTS for name, text in render(incident).items()}
    for path in sorted(FOLDER.iterdir()):
        if path.name not in wanted and path.name != "README.md":
            path.unlink()
            print(f"removed {path.name}")
    for name, text in sorted(wanted.items()):
        path = FOLDER / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {name}")


if __name__ == "__main__":
    main()
