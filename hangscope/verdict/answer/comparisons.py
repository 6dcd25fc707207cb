"""Reports that compare ranks: which ranks called, counted or submitted what, those alike together, and which of them are the fewer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from hangscope.causes.case import Case, who
from hangscope.causes.mismatch import describe
from hangscope.explain.finding import Stalled
from hangscope.explain.statements.pending_calls import last_calls
from hangscope.explain.statements.statements import Statements
from hangscope.explain.text import analyzer_reports, reports
from hangscope.explain.text.fingerprints import fingerprints
from hangscope.explain.text.group_size import formed, others_of, stated_size, world_size
from hangscope.explain.text.stop import proofs, says_it_hangs
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.ingest.excerpts.line_groups import tells_of_trouble
from hangscope.ingest.job_logs.last_lines import Printed
from hangscope.ingest.job_logs.messages import Notice
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.job_logs.starts import Announced
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.model.events import Event
from hangscope.model.incident import Incident
from hangscope.model.rankset import agree, ranks_phrase
from hangscope.model.regex import regex
from hangscope.verdict.answer.observation import Observation
from hangscope.verdict.phrasing import short

_SHOWN = 4  # sides
_ADAPTERS = "nccl_adapters"  # of knowledge/messages/start.toml
_OUTPUTS = 3  # lines that differ
_LEAST = 3  # ranks of which one may be the outlier
_SEVERAL = regex(
    r"(?i)\b(?:[2-9]|\d{2,4}|two|three|four|multi|both)[- ]{1,2}(?:nodes?|machines?|hosts?|servers?|boxes)\b"
)
_ON_ONE_HOST = "a run with NCCL_DEBUG=INFO and NCCL_P2P_DISABLE=1, and all_reduce_perf of nccl-tests: if it gets on, the direct path between the GPUs does not work (IOMMU or ACS, the driver, NVLink); else a stack of every process with native frames (py-spy dump --native --pid PID)"
_ACROSS_HOSTS = "a run with NCCL_DEBUG=INFO and with NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME set to the interface of the network between the hosts, and all_reduce_perf of nccl-tests over them; else a stack of every process (py-spy dump --pid PID)"
_Sides = Mapping[str, Sequence[int]]
#: Each with what to collect after it.
_REPORTS: tuple[tuple[Callable[[Incident, Statements], reports.Report | None], str], ...] = (
    (reports.horovod, "a stack of {who} now (py-spy dump), and what runs there before that call"),
    (fingerprints, "what {who} did differently in that step (a branch, a batch, a dtype, other trainable parameters), and this error of every rank"),
    (analyzer_reports.analyzer, "stacks of {who} and of one other rank (py-spy dump --native), or where the tensor comes from: configuration, batch, branch"),
    (reports.ras, "a stack with native frames of {who} (py-spy dump --native), its log, and whether its host answers"),
    (reports.desync, "a stack and the log of {who}"),
)  # fmt: skip


def compared(
    head: str,
    sides: _Sides,
    wanted: str,
    events: Sequence[Event],
    *,
    what: str = "log",
    suspects: Sequence[int] | None = None,
) -> Observation:
    """Return what ranks show side by side, the fewest ranks first.

    `sides` has the ranks of each side by what they show. The suspects are the given ones, else the smaller of two sides, else all ranks.
    """
    ordered = sorted(sides.items(), key=lambda side: (len(side[1]), *side[1]))
    few, many = ordered[0][1], ordered[-1][1]
    outlier = len(ordered) == 2 and len(few) < len(many)
    everyone = sorted({r for ranks in sides.values() for r in ranks})
    named = tuple(suspects if suspects is not None else few if outlier else everyone)
    parts = [f"{who(ranks, 'other ranks')} {text}" for text, ranks in ordered]
    more = f"; {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else ""
    wanted = wanted.format(who=who(named, "these ranks"))
    joint = "" if not head else ", " if head.startswith("according to ") else ": "
    shows = f"{head}{joint}{'; '.join(parts[:_SHOWN])}{more}"
    return Observation(shows, wanted, what, named, True, outlier or bool(suspects), tuple(events))


def reported(case: Case) -> Iterator[Observation]:
    """Yield what reports say of several ranks at once."""
    for read, wanted in _REPORTS:
        report = read(case.incident, case.statements)
        if report is not None:
            named = report.named or (() if isinstance(report.finding, Stalled) else None)
            yield compared(report.by, report.sides, wanted, report.events, what="stack", suspects=named)


def last_lines(case: Case) -> Observation | None:
    """Compare the last lines of the ranks' own programs: those that are alike but for numbers together."""
    last = {e.rank: e for e in case.statements.all(Printed) if e.rank is not None and e.templates}
    sides: dict[str, list[int]] = defaultdict(list)
    for rank, event in sorted(last.items()):
        sides[event.templates[-1]].append(rank)
    if len(last) < _LEAST or len(sides) != 2:
        return None
    gave_up: dict[int | None, int] = {}
    for stop in sorted(proofs(case.statements), key=lambda e: -e.line):
        gave_up[stop.rank] = stop.line
    if all(gave_up.get(rank, event.numbers[-1]) < event.numbers[-1] for rank, event in last.items()):
        return None  # all of them had given up before: what they print then sets nobody apart
    shown = {}
    for ranks in sides.values():
        texts = [last[r].texts[-1] for r in ranks]
        shown[f"printed{' lines like' if len({*texts}) > 1 else ''} '{short(texts[0])}'"] = ranks
    wanted = "what {who} did between the last line that all of them printed and these"
    seen = compared("the last lines of the ranks' own programs differ", shown, wanted, [*last.values()])
    return replace(seen, proves=False, blamed=False)


def equally_far(case: Case) -> Observation | None:
    """Read that all ranks of a job, whose number is known, ended with one and the same line of their own program."""
    printed = sorted(case.statements.all(Printed), key=lambda e: e.numbers[-1:])
    last = {e.rank: e for e in printed if e.templates}
    if None in last or len(last) < 2 or len(last) != world_size(case.statements):
        return None
    alike = len({e.templates[-1] for e in last.values()}) == 1
    # Who printed such lines less often than the others is not as far.
    if not alike or case.finding.culprits or not says_it_hangs(case.statements):
        return None
    text = printed[-1].texts[-1]
    if tells_of_trouble(text):
        return None  # what was printed when the wait was over shows no progress
    shows = f"all {len(last)} ranks got equally far: the last line of each is '{short(text)}', so none of them is missing, and what comes next is in all of them or in the path between their GPUs"
    return Observation(shows, path_between(case), "other", events=tuple(last.values()))


def connected(case: Case) -> Observation | None:
    """Read that NCCL formed the communicator of all ranks, and that nothing follows: everybody is there."""
    ranks, statements = formed(case.statements), case.statements
    if not ranks or statements.any_of(Progress, WatchdogTimeout) or not says_it_hangs(statements):
        return None
    every = "both" if len(ranks) == 2 else f"all {len(ranks)}"
    shows = f"{every} ranks completed NCCL's initialization (Init COMPLETE), so none of them is missing; no collective and no step is shown after it: usually the first collective does not complete because of the path between their GPUs (P2P)"
    return Observation(shows, path_between(case), "other", proves=True)


def alike(case: Case) -> Observation | None:
    """Read that all ranks of a job of known size logged one and the same collective last: everybody is there."""
    incident = case.incident
    size = stated_size(incident, case.statements)
    last = [last_calls(incident, rank) for rank in sorted(incident.ranks)]
    if case.finding.culprits or size != len(last) or len(last) < 2:
        return None
    if any(kinds != last[0] for kinds in last) or len(last[0]) != 1:
        return None  # in several groups nothing shows which one was the last
    every = "both" if size == 2 else f"all {size}"
    shows = f"{every} ranks issued the same collective last, {describe(last[0][0])}: the program agrees and none of them is missing; if it does not complete, the path between their GPUs or a device is in question"
    return Observation(shows, path_between(case), "other", proves=True)


def path_between(case: Case) -> str:
    """Return what to try where all ranks are there and the transfer between their GPUs is in question."""
    several = any(_SEVERAL.search(e.prose) for e in case.statements.all(Excerpt))
    hosts = {e.host for events in case.statements.kinds.values() for e in events} - {None}
    return _ACROSS_HOSTS if several or len(hosts) > 1 else _ON_ONE_HOST


def outputs(case: Case) -> str:
    """Return where one command prints something else on another host; empty where none does."""
    found = [unlike for e in case.statements.all(Excerpt) for unlike in e.unlike]
    text = "'{}' shows '{}' on {} and '{}' on {}"
    parts = [
        (short(u.command, 60), short(u.one[1], 60), u.one[0], short(u.other[1], 60), u.other[0])
        for u in found
    ]
    return "; ".join(text.format(*part) for part in parts[:_OUTPUTS])


def other_values(case: Case) -> Observation | None:
    """Read the line in which one rank alone printed another number than all others, where nobody's number had changed before."""
    odd = [line for line in case.statements.outlier_lines if line.telling and line.how == "value"]
    if len({line.ranks for line in odd}) != 1:
        return None
    line, ranks = odd[-1], odd[-1].ranks
    wanted = f"what differs on {who(ranks)} before that line: its configuration, its data, a branch"
    return Observation(f"{line.note}: '{short(line.text)}'", wanted, suspects=ranks)


def adapters(case: Case) -> Observation | None:
    """Compare the InfiniBand or RoCE adapters that NCCL uses on each host."""
    events = [e for e in case.statements.all(Notice) if e.id == _ADAPTERS]
    hosts: dict[str, list[str]] = defaultdict(list)
    for host, used in sorted({(dict(e.values)["host"], dict(e.values)["adapters"]) for e in events}):
        hosts[used].append(host)
    if len(hosts) < 2:
        return None
    sides = [f"{' and '.join(some[:_SHOWN])} {used}" for used, some in hosts.items()]
    shows = f"NCCL does not use the same adapters on every host: {'; '.join(sides[:_SHOWN])}"
    text = "NCCL_IB_HCA, set on every host to the adapters that all of them have and that share one network (ibdev2netdev, show_gids)"
    return Observation(shows, text, "other", events=tuple(events))


def listed(case: Case) -> Observation | None:
    """Read a list by rank in which one has a number that is far off, or another word than all others: where it is, and what runs there."""
    text = next((e for e in case.statements.all(Excerpt) if e.outlier), None)
    if text is None or text.outlier is None:
        return None
    rank, shows, is_word = text.outlier
    wanted = f"clocks, temperature, power and memory of the GPU of rank {rank} (nvidia-smi -q), and whether the slowness stays with the GPU or with the rank"
    if is_word:
        wanted = f"the same of rank {rank} again a minute later, with its native stack (py-spy dump --native): whether it moves; if not, test its GPU alone"
    what = "stack" if is_word else "other"
    return Observation(shows, wanted, what, (rank,), blamed=is_word, events=(text,))


def tabled(case: Case) -> Observation | None:
    """Read a table by rank: which ranks have another value in a column than most others."""
    text = next((e for e in case.statements.all(Excerpt) if e.odd_cells), None)
    if text is None:
        return None
    ranks = sorted({rank for rank, _ in text.odd_cells})
    parts = [f"rank {rank} has {cell}" for rank, cell in text.odd_cells]
    wanted = f"what {who(ranks)} did right before (a branch, an empty batch): the one with the smaller count skipped a call, and the others wait for it"
    shows = f"the table of ranks sets {who(ranks)} apart: {'; '.join(parts[:_SHOWN])}"
    return Observation(shows, wanted, "other", tuple(ranks), events=(text,))


def announced(case: Case) -> Observation | None:
    """Read which ranks reported that they came, of how many."""
    events = [e for e in case.statements.all(Announced) if e.rank is not None]
    world = max((e.world_size for e in events if e.world_size), default=None) or world_size(case.statements)
    came = sorted({e.rank for e in events if e.rank is not None})
    if world is None or not came or case.statements.all(Progress, WatchdogTimeout):
        return None
    missing = others_of(world, came)
    if len(came) >= world or len(formed(case.statements)) == world:
        return None
    shows = f"{len(came)} of {world} members announced themselves ({ranks_phrase(came)})"
    shows += f"; {ranks_phrase(missing)} {agree(missing, 'is', 'are')} not in this text" if missing else ""
    text = "NODE_RANK (or SLURM_NODEID), MASTER_ADDR and WORLD_SIZE as each node was started with them"
    return Observation(shows, text, "other", missing, events=tuple(events))
