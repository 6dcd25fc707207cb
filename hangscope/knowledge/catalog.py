"""The causes: what each means, what a verdict of it establishes and what it does not, how to fix it; and the order of the rules.

`hangscope explain CAUSE` prints these entries, and the table of docs/causes.md is made of them.
"""

from __future__ import annotations

import textwrap

from hangscope.model.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class CauseText:
    """One cause for people. `category` is code, data, hardware, network, environment, external or unknown.

    `would_decide`: what would confirm this cause where another fits better. `stack_tells`: a stack of the culprit's
    process says more about it.
    """

    cause: str
    category: str
    title: str
    means: str
    culprit: str
    establishes: str
    does_not: str
    fix: str
    would_decide: str
    stack_tells: bool = False

    def explained(self) -> str:
        """Return all of it as paragraphs for a terminal."""
        parts = (
            ("What happened", self.means),
            ("The culprit is", self.culprit),
            ("A verdict establishes", self.establishes),
            ("It does not establish", self.does_not),
            ("What to do", self.fix),
        )
        lines = [textwrap.fill(f"{title}: {text}", 96, subsequent_indent="  ") for title, text in parts]
        return "\n".join((f"{self.cause}: {self.title}", "", *lines))


_ENTRIES = (
    CauseText(
        "rank_conditional_collective",
        "code",
        "a collective that only some ranks call",
        "Some ranks issued a collective inside the training loop that the others did not issue, or skipped one: "
        "a barrier, gather or metric reduction under `if rank == 0`, a checkpoint or validation on one rank, a step skipped after NaN.",
        "the ranks in the minority",
        "That the sequences of collectives differ by an inserted or skipped one, at which seq, and from which line.",
        "Why the condition was true on those ranks; and where the ranks are evenly divided without history, which of them are wrong.",
        "Call the collective on every rank and guard only the side effect; where ranks may decide differently, agree first with an all_reduce of the flag.",
        "the next collective of the rank: one of the same step shows that it is still inside its loop",
    ),
    CauseText(
        "uneven_loader",
        "data",
        "ranks with different numbers of batches",
        "A rank ran out of batches (or has more) and exited the loop while the others started one more step.",
        "the rank whose number of batches differs",
        "That the rank exited the loop, by the line of its collective, by fewer complete steps, or by its own output.",
        "Why its data is shorter: sampler, filter, drop_last and sharding look the same.",
        "Give every rank the same number of batches (DistributedSampler, the same drop_last), wrap the loop in `Join`, or agree on min(len(loader)) before the epoch.",
        "the number of batches of each rank (len(loader)), or a line that the rank prints after its loop",
    ),
    CauseText(
        "crashed_rank",
        "code",
        "a rank whose process died",
        "The process died: exception, out of memory, signal, preemption. The others are waiting for a member that is gone.",
        "the rank that died first",
        "Which rank died first and why, where a log, an exit code or a signal shows it.",
        "That the death is the only fault. Ranks that time out, are terminated by the launcher or lose a connection are victims.",
        "Fix the exception or the reason for the signal; leave TORCH_NCCL_ASYNC_ERROR_HANDLING at its default. Raising the timeout does not help.",
        "the exit code or signal of its process, in the launcher's output or the kernel log of its host",
    ),
    CauseText(
        "early_exit",
        "code",
        "a rank that exited without an error",
        "The process ended or left the job without an error while others still had collectives to issue.",
        "the rank that exited",
        "That the rank ended with exit code 0 or is missing from the launcher's failures while others are waiting for it.",
        "Which line returned; a process that exits normally leaves no traceback.",
        "Exit together: agree on the end (an all_reduce of a flag or a barrier) before any rank returns.",
        "its exit code: 0 means that it exited by itself",
    ),
    CauseText(
        "stuck_rank",
        "environment",
        "a rank that never issues its next collective",
        "The rank is alive but blocked or slow in Python, I/O, a lock, a data loader or a kernel launch.",
        "the rank that is not blocked by any other",
        "That it has not issued the collective that its peers are blocked in.",
        "What it is doing instead, unless a stack of it was collected.",
        "Follow its stack; move work that one rank does alone out of the step, or give that group a longer timeout.",
        "a stack of its process (py-spy dump --pid PID)",
        stack_tells=True,
    ),
    CauseText(
        "shape_mismatch",
        "data",
        "the same collective with different sizes",
        "Members issued the same collective with different element counts.",
        "the minority",
        "The two sizes and the line.",
        "Which size is wrong is a matter of majority; the process that gloo aborts is the receiver and may be a victim.",
        "Pad or drop the batch of another size, or exchange sizes first.",
        "the sizes of this collective in earlier steps, from a larger recorder buffer (TORCH_FR_BUFFER_SIZE)",
    ),
    CauseText(
        "dtype_mismatch",
        "code",
        "the same collective with different element types",
        "Members issued the same collective with different element types.",
        "the minority",
        "The two types and the line.",
        "Where the tensor got its type.",
        "Use one dtype policy (autocast, `.to(dtype)`) on every rank.",
        "the element types on all ranks, which the recorder of torch 2.1 or later keeps",
    ),
    CauseText(
        "collective_mismatch",
        "code",
        "different collectives at the same seq",
        "Members issued different collectives at one seq, and none of the finer causes accounts for it.",
        "the minority",
        "Which collectives differ at which seq.",
        "Whether a collective was inserted, skipped or exchanged: what follows it is not visible.",
        "Compare the two lines; all ranks of a group must issue the same collectives in the same order.",
        "the lines of both collectives, from dumps with frames or TORCH_DISTRIBUTED_DEBUG=DETAIL",
    ),
    CauseText(
        "gradient_sync_mismatch",
        "code",
        "backward passes that reduce different gradients",
        "Backward ran a different set of gradient buckets: `no_sync`, unused parameters, a data-dependent branch.",
        "the rank whose set differs",
        "That the collectives that differ are gradient reductions inside the loop.",
        "Which parameter is missing, unless DDP names it (TORCH_DISTRIBUTED_DEBUG=INFO).",
        "Use the same accumulation boundary on every rank; make every output contribute to the loss; set find_unused_parameters=True only where a branch is legitimately unused.",
        "which parameters got a gradient on each rank (TORCH_DISTRIBUTED_DEBUG=DETAIL names them)",
    ),
    CauseText(
        "model_mismatch",
        "code",
        "ranks that built different models",
        "Ranks built different models: another parameter count or other shapes.",
        "the minority",
        "That DDP's comparison of parameters over ranks fails.",
        "Which setting differs.",
        "Build from one config and seed; compare a hash over ranks before wrapping.",
        "the number and shapes of the parameters of each rank",
    ),
    CauseText(
        "collective_order_mismatch",
        "code",
        "groups entered in different orders",
        "Collectives on two or more groups were issued in different orders, so ranks block each other: a circular wait.",
        "the rank whose order differs",
        "The cycle, rank by rank, with both orders.",
        "Without opposite orders in the dumps or a member's stack, the cycle rests on the assumption that CPU threads are blocked in their last collective.",
        "Use one global order of groups; never an order that depends on data.",
        "stacks of all ranks at one moment, which show who is blocked in which group",
    ),
    CauseText(
        "p2p_mismatch",
        "code",
        "a send or receive without its counterpart",
        "A send without its matching recv, or the reverse, or the wrong peer or size.",
        "the rank whose send or recv is missing or different",
        "Whether the send or the recv is missing, and what that rank did instead.",
        "Which of two pipeline schedules is wrong where both are consistent in themselves.",
        "Compare the schedules of both stages: the same number of microbatches, the same peers, the same order.",
        "the send and receive schedules of both ranks, from dumps with a longer history",
    ),
    CauseText(
        "gpu_stall",
        "hardware",
        "a GPU that stopped making progress",
        "All collectives were issued; the GPU of one rank did not complete collectives that its peers have completed with it.",
        "that rank",
        "That the GPU of the rank lags behind what its peers completed with it.",
        "Why the GPU stopped: a kernel that never ends, an Xid, a hung driver.",
        "Drain that GPU; look for the first CUDA error or Xid on its host, not for the timeout.",
        "the kernel log of its host (an Xid), or a second dump: in a dump that was merely older, the rank has caught up",
        stack_tells=True,
    ),
    CauseText(
        "network_stall",
        "network",
        "a collective that every rank entered and none completes",
        "All members entered the collective and it does not complete: transport, NIC, link or switch.",
        "the ranks at both ends of the failed link, where a log names them",
        "That no rank seen is missing from the collective and none issued another one.",
        "Which link failed, unless a transport error names it.",
        "Check NIC and cable of the named pair; compare NCCL_SOCKET_IFNAME and NCCL_IB_GID_INDEX; run a pairwise bandwidth test.",
        "the NCCL_DEBUG=INFO logs of the group's ranks, or a bandwidth test over these hosts",
        stack_tells=True,
    ),
    CauseText(
        "init_hang",
        "environment",
        "a group that never formed",
        "A communicator or rendezvous was never completed: a missing rank, a wrong address or port, two ranks on one GPU.",
        "the ranks that never joined",
        "Which ranks arrived and what they were waiting for.",
        "Why the others did not arrive; a rank that never started leaves nothing.",
        "Start every rank, use one free port and one rendezvous id per job, and bind each process to the GPU of its LOCAL_RANK before the first collective.",
        "which ranks reached the rendezvous, from the log of each rank",
    ),
    CauseText(
        "known_defect",
        "environment",
        "a library, driver or version with a known defect",
        "A message was printed that is known for a defect or an incompatibility: of a build, a driver, a library, or of versions that do not fit together.",
        "nobody in the job; the environment of the process that printed it",
        "That the message was printed, which versions it was reported for, and the upstream issue.",
        "That this installation is one of those versions, unless a line prints it.",
        "The upstream issue says which versions are affected and what works instead.",
        "the versions of PyTorch, NCCL, CUDA and the driver on that host",
    ),
    CauseText(
        "runtime_deadlock",
        "environment",
        "a CPU thread that never returned from CUDA, NCCL or the driver",
        "A thread of one process is blocked inside a call of CUDA, NCCL or the driver, or in a lock around one (the GIL); the rank cannot go on, and its peers wait for it.",
        "the rank whose thread never returned",
        "That the rank's own watchdog or heartbeat stood still before any collective timed out.",
        "Which call blocks, and which lock it waits for: native stacks show that.",
        "Native stacks of all threads; then the lock order between that call and the thread that holds the GIL, or a driver without the defect.",
        "a native stack of that rank: a thread inside libcuda or libnccl that does not move",
        stack_tells=True,
    ),
    CauseText(
        "slow_rank",
        "environment",
        "not a hang: a rank that arrived after the timeout",
        "A rank arrived after the others had timed out; the collective itself matches.",
        "the late rank",
        "That the late rank later issued the same collective, or that the collective completed.",
        "What delayed it.",
        "Give that group a longer timeout, or move the delay out of the step.",
        "a second dump a minute later: a slow rank has moved on",
        stack_tells=True,
    ),
    CauseText(
        "unknown",
        "unknown",
        "hung, but the evidence does not show why",
        "The job is hung, and the collected files do not establish any of the other causes.",
        "no rank, or the ranks that the evidence still names",
        "What was ruled out, and what to collect next.",
        "A cause.",
        'Collect what the report lists under "missing".',
        "dumps and stacks of the ranks that left none",
        stack_tells=True,
    ),
)

CATALOG: dict[str, CauseText] = {entry.cause: entry for entry in _ENTRIES}

#: The rules, by their places in `hangscope/causes/`, in the order in which they are asked: the first answer is the
#: verdict, later ones are its alternatives.
ORDER = (
    "ends.process.ended_from_outside",
    "known.known_defect",
    "gradients.different_models",
    "gradients.unused_parameters",
    "device.device_fault",
    "ends.process.died",
    "init.never_formed",
    "left_over.came_late",
    "left_over.arrived_late",
    "left_over.made_after_the_end",
    "ends.process.left_quietly",
    "pairs.unpaired",
    "both_send.both_send",
    "order.false_circle",
    "order.crossed_groups",
    "order.circular_wait",
    "library_calls.called_from_a_library",
    "gradients.gradient_sets",
    "loop_end.left_the_loop",
    "mismatch.other_arguments",
    "participation.one_sided_call",
    "mismatch.received_sizes",
    "mismatch.different_calls",
    "mismatch.refused",
    "mismatch.unequal_splits",
    "ends.silence.lost_by_peers",
    "known.host_thread_stuck",
    "participation.busy_elsewhere",
    "ends.silence.vanished",
    "ends.silence.may_have_died",
    "mismatch.other_roots",
    "known.known_message",
    "ends.unnamed.fault_without_rank",
    "device.network_fault",
    "ends.unnamed.end_without_rank",
)
