"""What the ranks of a generated job call: its groups, the step that they repeat, and where they freeze.

Layouts:

- `world`: one group;
- `mesh`: tensor parallelism over 8 neighbours, sharded data parallelism over ranks of equal place, and the world: three
  groups whose calls interleave on every rank;
- `experts`: as `mesh`, but neighbours exchange tokens (all_to_all) as many as their routers chose: no two calls are of
  equal sizes;
- `pipeline`: stages of their own depth and sizes, which send to each other in batches of point-to-point calls, with tensor
  and data parallelism inside each.

One rank stops before the last step (`CULPRIT` of the world's size), its peers wait for it, and theirs for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

TP = 8
LAYERS = 4
STAGES = 8
HIDDEN = 4096
#: the share of the way through the ranks at which the culprit sits
CULPRIT = 0.66
LAYOUTS = ("world", "mesh", "experts", "pipeline")
_LIBRARY = "/opt/venv/lib/python3.11/site-packages/torch"
_INNER = (
    ("all_reduce", f"{_LIBRARY}/distributed/distributed_c10d.py", 3012),
    ("wrapper", f"{_LIBRARY}/distributed/c10d_logger.py", 83),
)
_OUTER = (
    ("forward", "/workspace/train/layers.py"),
    ("_call_impl", f"{_LIBRARY}/nn/modules/module.py"),
    ("forward_step", "/workspace/train/schedules.py"),
    ("train_step", "/workspace/train/trainer.py"),
)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a step: the local number of its group, its op, element counts and line.

    `p2p`: a send or receive, which is a member of a batch; the entry `coalesced` behind it ends the batch. `routed`: its
    sizes are drawn for each call of each rank.
    """

    group: int
    op: str
    numel_in: int
    numel_out: int
    line: int
    p2p: bool = False
    routed: bool = False

    @property
    def ends_batch(self) -> bool:
        """Return whether this is no call of its own, but the end of a batch."""
        return self.op == "coalesced"


@dataclass(frozen=True, slots=True)
class Job:
    """What is generated.

    `timing`: recorded with TORCH_NCCL_ENABLE_TIMING; `ragged`: each rank's ring begins at another call; `own_stacks`: a
    frame of each call site lies in a file of the rank's own; `as_json`: dumps as JSON; `log_kb`: of each rank's log beside
    its dump, 0 for none, with a stack of it.
    """

    ranks: int
    entries: int = 2000
    frames: int = 12
    layout: str = "world"
    timing: bool = False
    ragged: bool = False
    own_stacks: bool = False
    as_json: bool = False
    log_kb: int = 0

    @property
    def culprit(self) -> int:
        """Return the rank that stops first."""
        return int(self.ranks * CULPRIT)

    @property
    def stages(self) -> int:
        """Return how many stages a pipeline has."""
        return min(STAGES, self.ranks // TP)

    def step(self, stage: int = 0) -> list[Call]:
        """Return the calls of one training step."""
        if self.layout == "world":
            return [Call(0, "all_reduce", 1024 * (i + 1), 1024 * (i + 1), 300 + i) for i in range(24)]
        return self._stage_step(stage) if self.layout == "pipeline" else self._mesh_step()

    def _mesh_step(self) -> list[Call]:
        replicas = self.ranks // TP
        routed = self.layout == "experts"
        op = "all_to_all" if routed else "all_reduce"

        def pair(line: int) -> list[Call]:
            return [Call(1, op, 4096, 4096, line + n, routed=routed) for n in (1, 2)]

        calls = []
        for layer in range(LAYERS):
            line, part = 100 + 20 * layer, 512 * (layer + 1)
            calls += [Call(2, "_all_gather_base", part, part * replicas, line), *pair(line)]
        for layer in reversed(range(LAYERS)):
            line, part = 110 + 20 * layer, 512 * (layer + 1)
            calls += [Call(2, "_all_gather_base", part, part * replicas, line), *pair(line)]
            calls.append(Call(2, "_reduce_scatter_base", part * replicas, part, line + 3))
        return [*calls, Call(0, "all_reduce", 1, 1, 412)]

    def _stage_step(self, stage: int) -> list[Call]:
        """Return the calls of a stage: what it is asked, two microbatches through its own layers, and its gradients."""
        replicas = self.ranks // (TP * self.stages)
        size = HIDDEN * (1 + stage % 3)

        def send(word: str, line: int) -> list[Call]:
            return [Call(3, word, HIDDEN, HIDDEN, line, p2p=True), Call(3, "coalesced", 0, 0, line)]

        calls = [Call(0, "all_reduce", 1, 1, 90)]
        for _ in range(2):
            calls += send(f"recv {stage}<-{stage - 1}", 500) if stage else []
            for layer in range(2 + stage % 4):
                calls += [Call(1, "all_reduce", size, size, 100 + 10 * layer + n) for n in (1, 2)]
            calls += send(f"send {stage}->{stage + 1}", 510) if stage + 1 < self.stages else []
        for _ in range(2):
            calls += send(f"recv {stage}<-{stage + 1}", 520) if stage + 1 < self.stages else []
            for layer in range(2 + stage % 4):
                calls += [Call(1, "all_reduce", size, size, 200 + 10 * layer + n) for n in (1, 2)]
            calls += send(f"send {stage}->{stage - 1}", 530) if stage else []
        part = 512 * (stage + 1)
        calls.append(Call(2, "_reduce_scatter_base", part * replicas, part, 600 + stage))
        return [*calls, Call(2, "_all_gather_base", part, part * replicas, 620 + stage)]

    def groups(self, rank: int) -> list[tuple[str, str, str]]:
        """Return (name, description, members as torch prints them) of a rank's groups, by local number."""
        groups = [("0", "default_pg", _members(0, self.ranks, 1))]
        if self.layout == "world":
            return groups
        near, block = rank // TP, self.ranks // (self.stages if self.layout == "pipeline" else 1)
        first, place = rank // block * block, rank % TP
        dense = "mesh_ep" if self.layout == "experts" else "mesh_tp"
        groups.append((str(1 + near), dense, _members(near * TP, near * TP + TP, 1)))
        name = 1 + self.ranks // TP + rank // block * TP + place
        groups.append((str(name), "mesh_dp", _members(first + place, first + block, TP)))
        if self.layout == "pipeline":
            name = 1 + self.ranks // TP + TP * self.stages + rank % block
            groups.append((str(name), "mesh_pp", _members(rank % block, self.ranks, block)))
        return groups

    def role(self, rank: int) -> str:
        """Return what a rank is: its stage, and `culprit`, `near` (waits for the culprit) or `far` (for a near one)."""
        if self.layout == "pipeline":
            stage = rank // (self.ranks // self.stages)
            return f"{stage} {'culprit' if rank == self.culprit else 'near'}"
        if rank == self.culprit:
            return "0 culprit"
        return "0 near" if self.layout == "world" or rank % TP == self.culprit % TP else "0 far"

    def calls(self, role: str) -> list[Call]:
        """Return all calls of a role, from the job's first on; the last step is cut where the role stops."""
        stage, _, place = role.partition(" ")
        step = self.step(int(stage))
        far = (
            2 if self.layout in ("mesh", "experts") else 1
        )  # the call among neighbours behind the first gather
        steps, rest = divmod(self.entries - far, len(step))
        if self.layout == "pipeline":
            rest = 0  # all stages make equally many steps
            steps = (self.entries - far) // max(len(self.step(s)) for s in range(self.stages))
        wait = {"culprit": 0, "near": 1, "far": far}[place]
        return step[len(step) - rest :] + step * steps + step[:wait]

    def begins(self, rank: int) -> int:
        """Return how many of a rank's oldest calls its ring has lost."""
        return int(np.random.default_rng(rank).integers(len(self.step()))) if self.ragged else 0

    def frames_of(self, call: Call) -> Iterator[tuple[str, str, int]]:
        """Yield a call's frames, innermost first: the library's, the call site, and what all sites share."""
        yield from _INNER
        yield "reduce_from_region", "/workspace/train/mappings.py", call.line
        for depth in range(self.frames - 4):
            name, file = _OUTER[depth % len(_OUTER)]
            yield name, file, 40 + 17 * depth
        if self.own_stacks:
            yield "compiled", OWN_FILE.format(0), call.line
        yield "<module>", "/workspace/train/train.py", 90


#: a file of one rank, such as a compiler's cache holds
OWN_FILE = "/scratch/compiled/rank_{:06d}/graph.py"


@lru_cache(maxsize=64)
def _members(first: int, behind: int, step: int) -> str:
    return str(list(range(first, behind, step)))
