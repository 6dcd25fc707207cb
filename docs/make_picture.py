"""Make the README's picture of the HTML report anew: `python docs/make_picture.py` (needs Chromium)."""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "report")]

from chromium import Browser, find_chromium  # noqa: E402

import hangscope  # noqa: E402

INCIDENT = "mesh_stuck_loader"
PICTURE = ROOT / "docs" / "report.png"


def main() -> None:
    """Write `docs/report.png`: the first screen of one incident's report at 1280 x 800, light theme."""
    binary = find_chromium()
    if binary is None:
        raise SystemExit("no Chromium was found: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder, Browser(binary) as browser:
        page = Path(folder) / "report.html"
        hangscope.analyze(ROOT / "fixtures" / INCIDENT / "dumps").write_html(page)
        browser.call("Emulation.setScrollbarsHidden", hidden=True)
        browser.open(page, width=1280, height=800)
        shot = browser.call("Page.captureScreenshot", format="png", optimizeForSpeed=False)
    PICTURE.write_bytes(base64.b64decode(shot["data"]))
    print(f"Wrote {PICTURE.relative_to(ROOT)}, {PICTURE.stat().st_size // 1024} KB")


if __name__ == "__main__":
    main()
