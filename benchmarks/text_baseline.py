"""Compare hangscope with a short heuristic on text alone: `python benchmarks/text_baseline.py [FOLDER...]`.

Every incident below the folders (default: this project's fixtures) is copied without its recorder dumps and stacks; what
is left is logs. The heuristic asks in this order: killed by a signal, raised an exception of its own, own DETAIL
fingerprint in the minority, absent from a monitored barrier, exited with 0 while others failed, blocked at a line in the
minority, progress in the minority. It knows the layout of these folders, hangscope does not.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT))

_WITNESS = re.compile(
    r"Connection (?:closed|reset) by peer|Timed out waiting|Detected mismatch|onitored ?[Bb]arrier|DistBackendError"
    r"|preamble\.length|same model across all ranks"
)


def baseline(folder: Path) -> list[int]:
    """Return the ranks that the heuristic names; empty where it cannot decide."""
    text: dict[int, str] = {}
    for path in sorted(folder.rglob("*")):
        name = re.search(r"(?:attempt_\d+/(\d+)/std|/rank(\d+)\.(?:err|out)$)", str(path))
        if path.is_file() and name:
            rank = int(name[1] or name[2])
            text[rank] = text.get(rank, "") + path.read_text("utf-8", "replace") + "\n"
    launcher = "\n".join(p.read_text("utf-8", "replace") for p in sorted(folder.rglob("torchrun.std*")))
    exits = {
        int(r): int(c)
        for r, c in re.findall(r"rank +: (\d+) \(local_rank: \d+\)\s+exitcode +: (-?\d+)", launcher)
    }
    whole = "\n".join(text.values()) + launcher
    steps = [
        {r for r, code in exits.items() if code < 0 and code != -15},
        {r for r, t in text.items() if "Traceback (most recent" in t and not _WITNESS.search(t)},
        _minority(
            {
                r: m[1]
                for r, t in text.items()
                if (
                    m := re.search(
                        r"Rank \d+ is running collective: (CollectiveFingerPrint\(.*?\))(?:, but|\.)", t
                    )
                )
            }
        ),
        {
            int(r)
            for m in re.findall(r"Ranks? ([\d, ]+) failed to pass monitoredBarrier", whole)
            for r in m.split(",")
        },
        {r for r in text if r not in exits} if exits else set(),
        _minority({r: site for r, t in text.items() if (site := _site(t))}),
        _minority({r: line for r, t in text.items() if (line := _progress(t))}),
    ]
    return next((sorted(named) for named in steps if named and len(named) < max(2, len(text))), [])


def _minority(values: Mapping[int, Hashable]) -> set[int]:
    counts = Counter(values.values()).most_common()
    if len(counts) < 2 or counts[0][1] == counts[1][1]:
        return set()
    return {rank for rank, value in values.items() if value != counts[0][0]}


def _site(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r'File "((?!.*(?:site-packages|/torch/|<frozen)).*?", line \d+)', text))


def _progress(text: str) -> str | None:
    lines = [line for line in text.splitlines() if re.search(r"\bstep \d+|\bepoch \d+|loop ended|done", line)]
    return re.sub(r"[\d.]*\.\d+|^rank \d+", "", lines[-1]) if lines else None


# --- the comparison ---


def without_dumps(incident: Path, scratch: Path) -> Path:
    """Copy an incident's `dumps` folder without recorder dumps and stacks; return the copy."""
    target = scratch / incident.name
    shutil.copytree(incident / "dumps", target, ignore=shutil.ignore_patterns("recorder", "stacks"))
    return target


def incidents(folders: Iterable[Path]) -> list[Path]:
    """Return the folders that hold a `truth.json`, sorted."""
    return sorted(path.parent for folder in folders for path in folder.glob("*/truth.json"))


def compare(incident: Path) -> tuple[bool, bool, str]:
    """Return whether hangscope and whether the heuristic name the right ranks, and a line of the table."""
    import hangscope

    truth = json.loads((incident / "truth.json").read_text())
    answers = truth.get("answers") or [truth["culprits"]]
    with tempfile.TemporaryDirectory(prefix="hangscope-text-") as scratch:
        folder = without_dumps(incident, Path(scratch))
        other = baseline(folder)
        try:
            verdict = hangscope.analyze(str(folder)).verdict
        except hangscope.HangscopeError:
            verdict = None
    own = sorted(verdict.culprit_ranks) if verdict is not None else []
    right, theirs = own in answers, other in answers
    cause = f"{verdict.cause} ({verdict.confidence})" if verdict is not None else "-"
    marks = [
        f"{'ok' if good else 'WRONG' if named else '-'} {named or ''}"
        for good, named in ((right, own), (theirs, other))
    ]
    return right, theirs, f"| {incident.name} | {truth['culprits']} | {marks[0]} | {cause} | {marks[1]} |"


def main() -> int:
    """Run the command; exit 1 where hangscope misses what the heuristic gets, or is wrong at `high`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, default=[_ROOT / "fixtures"])
    rows = [compare(incident) for incident in incidents(parser.parse_args().folders)]
    print("| incident | truth | hangscope | cause | heuristic |\n| --- | --- | --- | --- | --- |")
    print("\n".join(line for _, _, line in rows))
    print(
        f"\n{len(rows)} incidents, ranks right: hangscope {sum(r for r, _, _ in rows)}, heuristic {sum(t for _, t, _ in rows)}"
    )
    return int(
        any(
            (theirs and not right) or ("WRONG" in line.split("|")[3] and "(high)" in line)
            for right, theirs, line in rows
        )
    )


if __name__ == "__main__":
    sys.exit(main())
