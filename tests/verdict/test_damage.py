"""A verdict that rests on a damaged line or file is not as sure as the same one on a whole one."""

from __future__ import annotations

import gzip
from pathlib import Path

from tests.conftest import analyze

DEATH = (
    b"Traceback (most recent call last):\n"
    b'  File "/workspace/train.py", line 3, in <module>\n    main()\n'
    b"ValueError: sample 37 is broken\n"
)


def test_bytes_that_are_no_text_lower_it(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_bytes(DEATH)
    whole = analyze(log)
    log.write_bytes(DEATH.replace(b"sample 37", b"sa\xff\xfe\x80 37"))
    torn = analyze(log)
    assert whole.verdict is not None and torn.verdict is not None
    assert (whole.verdict.confidence, torn.verdict.confidence) == ("high", "medium")
    assert "no text" in " ".join(torn.to_dict()["confidence_why"])


def test_a_file_that_breaks_off_lowers_it(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log.gz"
    data = gzip.compress(DEATH + b"".join(b"line %d\n" % (n * n) for n in range(20_000)))
    log.write_bytes(data[:-2000])
    torn = analyze(log)
    assert torn.verdict is not None and torn.verdict.confidence == "medium"
    assert "is damaged" in " ".join(torn.to_dict()["confidence_why"])
