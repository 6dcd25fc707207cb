"""How far rules could be trusted on incidents that nobody had tuned them to: `python benchmarks/retrospect.py [--least 5]`.

Each set of the corpus is analyzed by the version of hangscope just before the set was added, in a temporary work tree of
this repository. Printed are the answers by level, and by the rule that gave them: how many, how many right in ranks and
cause, in ranks, in the cause, and how many named an innocent rank. Versions that are too old for this program are left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CORPUS = "fixtures/corpus"
Row = dict[str, Any]


def git(*words: str) -> str:
    """Return what git prints."""
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True).stdout


def added() -> Iterator[tuple[str, str]]:
    """Yield the sets of the corpus, each with the commit before the one that added it."""
    lines = git("log", "--diff-filter=A", "--name-only", "--format=%h", "--", f"{CORPUS}/*.json").split()
    commit = ""
    for line in lines:
        if not line.endswith(".json"):
            commit = line
        elif (ROOT / line).exists():
            yield Path(line).stem, f"{commit}~1"


def answers() -> list[Row]:
    """Return the answers of all sets, each by the version before it."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        tree, sets = Path(folder) / "tree", Path(folder) / "sets"
        git("worktree", "add", "--detach", str(tree), "HEAD")
        try:
            for name, version in added():
                git("-C", str(tree), "checkout", "--quiet", version)
                with tarfile.open(ROOT / CORPUS / f"{name}.tar.xz") as archive:
                    archive.extractall(sets / name, filter="data")
                command = [sys.executable, __file__, "--child", str(tree), str(sets / name)]
                done = subprocess.run(command, capture_output=True, text=True, cwd=tree)
                rows += json.loads(done.stdout) if done.returncode == 0 else []
                print(f"{name}: {'analyzed' if done.returncode == 0 else 'too old'}", file=sys.stderr)
        finally:
            git("worktree", "remove", "--force", str(tree))
    return rows


def child(tree: str, folder: Path) -> list[Row]:
    """Return the answers of the version in `tree` to one set, with the rules that gave them."""
    sys.path[:0] = [tree, f"{tree}/benchmarks"]
    from corpus_answers import INPUTS, Truth, _given, mark  # of that version, like all below

    import hangscope
    from hangscope.causes import case
    from tests.in_thread import InThisThread

    by_match: dict[str, str] = {}
    make = case.Match.__init__

    def recorded(self: Any, *args: Any, **options: Any) -> None:
        make(self, *args, **options)
        frame, name = sys._getframe(1), ""
        while frame is not None:
            file = Path(frame.f_code.co_filename)
            if "causes" in file.parts and file.stem not in ("case", "rules"):
                name = f"{file.stem}.{frame.f_code.co_name}"
            frame = frame.f_back  # type: ignore[assignment]
        by_match.setdefault(self.cause, name)

    case.Match.__init__ = recorded
    rows = []
    for path in sorted(folder.glob("*/truth.json")):
        truth = Truth.read(path)
        for asked, parts in INPUTS.items():
            inputs = [path.parent / part for part in parts]
            if asked in truth.skip_inputs or not all(p.is_dir() and any(p.iterdir()) for p in inputs):
                continue
            by_match.clear()
            given = _given(hangscope.analyze([*map(str, inputs)], executor=InThisThread()), truth)
            found = mark(truth, given, asked)
            rule = by_match.get(given.cause or "", "none")
            row = {"rule": rule, "level": given.confidence or "no verdict", "named": bool(given.ranks)}
            rows.append(row | {"ranks": found.ranks, "cause": found.cause, "innocent": found.innocent})
    return rows


def table(rows: Sequence[Row], head: str, key: Callable[[Row], tuple[str, ...]], least: int) -> str:
    """Return a table in Markdown, one line per value of `key`, of those with at least so many answers."""
    parts: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        parts[key(row)].append(row)
    lines = [
        f"| {head} | n | right | ranks | cause | innocent named |",
        f"|{' --- |' * (head.count('|') + 1)}{' ---: |' * 5}",
    ]
    for values, some in sorted(parts.items()):
        if len(some) >= least:
            counts = [
                sum(r["ranks"] and r["cause"] for r in some),
                *(sum(r[k] for r in some) for k in ("ranks", "cause", "innocent")),
            ]
            lines.append(f"| {' | '.join(values)} | {len(some)} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--least", type=int, default=10, help="answers of a rule that is listed")
    parser.add_argument("--child", nargs=2, metavar=("TREE", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(options.child[0], Path(options.child[1]))))
        return
    rows = answers()
    named = {True: "ranks named", False: "nobody named"}
    print(table(rows, "confidence | answer", lambda r: (r["level"], named[r["named"]]), 1), end="\n\n")
    print(
        table(
            rows,
            "rule | confidence | answer",
            lambda r: (r["rule"], r["level"], named[r["named"]]),
            options.least,
        )
    )


if __name__ == "__main__":
    main()
