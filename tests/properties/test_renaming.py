"""The renaming itself: what is the user's gets other names, and what is a library's keeps its own."""

from __future__ import annotations

from pathlib import Path

from tests.properties.renaming import rename


def test_renaming_leaves_libraries_and_changes_the_rest(tmp_path: Path) -> None:
    text = (
        "Traceback (most recent call last):\n"
        '[rank1]:   File "/workspace/train/train.py", line 17, in save_checkpoint\n'
        "[rank1]:     dist.barrier()\n"
        '[rank1]:   File "/opt/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", line 81, in wrapper\n'
        "[rank1]:     return func(*args)\n"
        '  File "/workspace/train/train.py", line 9 in <module>\n'
        "train.py FAILED\n"
    )
    (tmp_path / "rank_1.log").write_text(text)
    rename(tmp_path)
    said = (tmp_path / "rank_1.log").read_text()
    assert "save_checkpoint" not in said
    assert "train.py" not in said
    assert "dist.barrier" not in said
    assert 'u0.py", line 20, in f' in said
    assert 'u0.py", line 10 in <module>' in said
    assert 'c10d_logger.py", line 81, in wrapper\n[rank1]:     return func(*args)' in said
