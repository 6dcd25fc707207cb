"""torch 2.15's second NCCL backend, which `nccl` means by default (TORCH_DIST_USE_NCCL2=0 brings the first one back).

    [rank3]:[E1102 19:05:51.300711023 ...cpp:402] [TC][rank=3][name=0] Aborting process on rank 3 due to timeout - timeout watchdog detected operation timeout
    RuntimeError: Watchdog caught collective operation timeout: NCCL operation timed out

(torch/csrc/distributed/c10d/nccl2/Logging.hpp and ProcessGroupNCCLUtils.cpp, WorkNCCL.cpp; read in the 2.15.0 wheel.) No line
names the collective that timed out: the dump does.
"""

from __future__ import annotations

from hangscope.ingest.lines.forms import says
from hangscope.ingest.torch_logs.c10d_names import GroupEvent
from hangscope.model.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Nccl2Timeout(GroupEvent, same_by=(), prints_group_rank=True):
    """nccl2's watchdog gave a collective up, which none of its lines names. `what`: who noticed, in its own words."""

    what: str
    forms = (
        says(
            r"\[TC\].{0,300}due to timeout - "
            r"(?P<what>collective operation timed out|timeout watchdog detected operation timeout)"
        ),
        says(
            r"Watchdog caught collective operation timeout: (?P<what>NCCL operation timed out)",
            literal="NCCL operation timed out",
        ),
    )
