"""Search for lines that a parser fails on, led by coverage: `python benchmarks/fuzz_lines.py [FOLDER] -max_total_time=600`.

Needs Atheris (`pip install atheris`; wheels for Linux and some versions of Python). What is fed are whole logs: the parsers keep state
from line to line. The seeds are the excerpts of text among the fixtures; FOLDER keeps what was found to be worth going on from. Checked:
nothing is raised, no parser leaves a note of its own failure, every event passes the check that events from a file must pass, and a
log takes no more than a second.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import atheris  # type: ignore[import-not-found,unused-ignore]

with atheris.instrument_imports(include=["hangscope.ingest"]):
    from hangscope.ingest.recorder.members import Interner
    from hangscope.ingest.workers.reading import read_log, read_ras, read_stacks
    from hangscope.ingest.workers.wire_check import check_wire

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 20_000
SECONDS = 1.0


def one(data: bytes) -> None:
    """Read one log with all parsers of text."""
    began = time.process_time()
    for read in (read_log, read_stacks, read_ras):
        wire = read(io.BytesIO(data), "job.log")
        notes = [note for note in wire["notes"] if note[0] == "parser_failed"]
        if notes:
            raise AssertionError(notes)
        check_wire("job.log", wire, Interner())
    seconds = time.process_time() - began
    if seconds > SECONDS:
        raise AssertionError(f"{seconds:.1f} s for {len(data)} bytes")


def main() -> None:
    """Run until the time that libFuzzer is given is over."""
    folders = [word for word in sys.argv[1:] if not word.startswith("-")]
    options = [word for word in sys.argv[1:] if word.startswith("-")]
    with tempfile.TemporaryDirectory(prefix="fuzz-lines-") as temporary:
        corpus = Path(folders[0] if folders else temporary)
        corpus.mkdir(parents=True, exist_ok=True)
        for path in sorted((ROOT / "fixtures" / "text").glob("*.txt")):
            shutil.copy(path, corpus / path.name)
        atheris.Setup([sys.argv[0], str(corpus), f"-max_len={LONGEST}", *options], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
