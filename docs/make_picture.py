"""Make the README's pictures of the HTML report anew: `python docs/make_picture.py` (needs Chromium)."""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "report")]

from chromium import Browser, find_chromium  # noqa: E402

import hangscope  # noqa: E402

#: Each picture: its file, the incident, and the element that it shows; None is the first screen.
PICTURES = (
    ("report.png", "mesh_stuck_loader", None),
    ("calls.png", "mesh_skipped_call", "#calls"),
)


def main() -> None:
    """Write the pictures of two incidents' reports at 1280 pixels, light theme."""
    binary = find_chromium()
    if binary is None:
        raise SystemExit("no Chromium was found: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder, Browser(binary) as browser:
        browser.call("Emulation.setScrollbarsHidden", hidden=True)
        for name, incident, element in PICTURES:
            page = Path(folder) / f"{name}.html"
            hangscope.analyze(ROOT / "fixtures" / incident / "dumps").write_html(page)
            browser.open(page, width=1280, height=800)
            area = {}
            if element is not None:
                box = browser.evaluate(
                    f"(() => {{ const b = document.querySelector({element!r}).getBoundingClientRect();"
                    " return {x: b.x - 28, y: b.y, width: b.width + 56, height: Math.min(b.height, 800), scale: 1}; })()"
                )
                area = {"clip": box, "captureBeyondViewport": True}
            shot = browser.call("Page.captureScreenshot", format="png", optimizeForSpeed=False, **area)
            picture = ROOT / "docs" / name
            picture.write_bytes(base64.b64decode(shot["data"]))
            print(f"Wrote {picture.relative_to(ROOT)}, {picture.stat().st_size // 1024} KB")


if __name__ == "__main__":
    main()
