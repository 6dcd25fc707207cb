"""The causes: what each means, what a verdict of it establishes and what it does not, how it is mended; and who is asked first.

`hangscope explain CAUSE` prints these entries, and the table of docs/causes.md is made of them.
"""

from __future__ import annotations

import textwrap

from hangscope.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class CauseText:
    """One cause for people. `category` is code, data, hardware, network, environment, external or unknown.

    `would_decide`: what would show that it is this cause, where another explains better. `stack_tells`: what the culprit's
    process does now tells more of it.
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
        "Some ranks made a call inside the training loop that the others did not make, or left out one that the others made: "
        "a barrier, gather or metric reduction under `if rank == 0`, a checkpoint or validation on one rank, a step skipped after NaN.",
        "the ranks in the minority",
        "That the queues of calls differ by an inserted or dropped call, at which seq, and from which line.",
        "Why the condition was true on those ranks; and with two even sides and no history, which side is wrong.",
        "Call the collective on every rank and gate only the side effect; where ranks may decide differently, agree first with an all_reduce of the flag.",
        "what the rank calls next: a call of the same step shows that it is still inside its loop",
    ),
    CauseText(
        "uneven_loader",
        "data",
        "ranks with different numbers of batches",
        "A rank ran out of batches (or has more) and left the loop while the others began one more step.",
        "the rank with the odd count",
        "That the rank left the loop, seen by the line of its call, by fewer whole steps, or by its own output.",
        "Why its data is shorter: sampler, filter, drop_last and sharding look alike from here.",
        "Give every rank the same number of batches (DistributedSampler, the same drop_last), wrap the loop in `Join`, or agree on min(len(loader)) before the epoch.",
        "the number of batches of each rank (len(loader)), or a line that the rank prints behind its loop",
    ),
    CauseText(
        "crashed_rank",
        "code",
        "a rank whose process died",
        "The process died: exception, out of memory, signal, preemption. The others wait for a member that is gone.",
        "the rank that died first",
        "Which rank died first and of what, where a log, an exit code or a signal says it.",
        "That the death is the only fault. Ranks that time out, are ended by the launcher or lose a connection are victims.",
        "Mend the exception or signal itself; leave TORCH_NCCL_ASYNC_ERROR_HANDLING at its default. Raising the timeout does not help.",
        "the exit code or signal of its process, in the launcher's output or the kernel log of its host",
    ),
    CauseText(
        "early_exit",
        "code",
        "a rank that left without an error",
        "The process ended or left the job without an error while others still had calls to make.",
        "the rank that left",
        "That the rank ended with exit code 0 or is missing from the launcher's failures while others wait for it.",
        "Which line returned; a process that ends well leaves no traceback.",
        "Leave together: agree on the end (an all_reduce of a flag or a barrier) before any rank returns.",
        "its exit code: 0 says that it left by itself",
    ),
    CauseText(
        "stuck_rank",
        "environment",
        "a rank that never makes its next call",
        "The rank is alive but blocked or slow in Python, I/O, a lock, a data loader or a kernel launch.",
        "the rank that is not waiting for anyone",
        "That all its calls are complete and that it has not made the one its peers wait in.",
        "What it is doing instead, unless a stack of it was collected.",
        "Do what its stack says; move one-rank work out of the step, or give that group a longer timeout with the reason.",
        "a stack of its process (py-spy dump --pid PID)",
        stack_tells=True,
    ),
    CauseText(
        "shape_mismatch",
        "data",
        "the same call with different sizes",
        "Members made the same call with different element counts.",
        "the minority",
        "The two sizes and the line.",
        "Who sent too much or too little is a matter of majority; the process that gloo aborts is the receiver and may be innocent.",
        "Pad or drop the odd batch, or exchange sizes first.",
        "the sizes of this call in the steps before, in a longer recorder (TORCH_FR_BUFFER_SIZE)",
    ),
    CauseText(
        "dtype_mismatch",
        "code",
        "the same call with different element types",
        "Members made the same call with different element types.",
        "the minority",
        "The two types and the line.",
        "Where the tensor got its type.",
        "Use one dtype policy (autocast, `.to(dtype)`) on every rank.",
        "the element types of both sides, which a recorder of torch 2.1 or later keeps",
    ),
    CauseText(
        "collective_mismatch",
        "code",
        "different calls at the same place",
        "Members made different calls at one seq and none of the finer causes explains it.",
        "the minority",
        "Which calls meet at which seq.",
        "Whether a call was inserted, dropped or exchanged: what follows it is not visible.",
        "Compare the two lines; every member must make the same calls in the same order.",
        "the lines of both calls, from dumps with frames or TORCH_DISTRIBUTED_DEBUG=DETAIL",
    ),
    CauseText(
        "gradient_sync_mismatch",
        "code",
        "backward passes that reduce different gradients",
        "Backward ran a different set of gradient buckets: `no_sync`, unused parameters, a data-dependent branch.",
        "the rank with the odd set",
        "That the calls which differ are gradient reductions made inside the loop.",
        "Which parameter is missing, unless DDP names it (TORCH_DISTRIBUTED_DEBUG=INFO).",
        "The same accumulation boundary on every rank; make every output take part in the loss; find_unused_parameters=True only where a branch is legitimately unused.",
        "which parameters got a gradient on each rank (TORCH_DISTRIBUTED_DEBUG=DETAIL names them)",
    ),
    CauseText(
        "model_mismatch",
        "code",
        "ranks that built different models",
        "Ranks built different models: another parameter count or other shapes.",
        "the minority",
        "DDP's own comparison of parameters over ranks.",
        "Which setting differs.",
        "Build from one config and seed; compare a hash over ranks before wrapping.",
        "the number and shapes of the parameters of each rank",
    ),
    CauseText(
        "collective_order_mismatch",
        "code",
        "groups entered in different orders",
        "Calls on two or more groups were made in different orders, so each side holds what the other needs: a circular wait.",
        "the rank whose order is the odd one",
        "The cycle, rank by rank, with both orders.",
        "Without opposite orders in the dumps or a member's stack the cycle rests on the assumption that hosts are blocked in their last call.",
        "One global order of groups; no data-dependent order.",
        "stacks of all ranks at one moment: who is blocked in which group's call",
    ),
    CauseText(
        "p2p_mismatch",
        "code",
        "a send or receive without its counterpart",
        "A send without its receive, or the reverse, or the wrong peer or size.",
        "the rank whose half is missing or different",
        "Which half is missing and what that rank did instead.",
        "Which of two pipeline schedules is wrong where both are consistent in themselves.",
        "Put the schedules of both stages side by side: the same number of microbatches, the same peers, the same order.",
        "the send and receive schedules of both ranks, from dumps that reach further back",
    ),
    CauseText(
        "gpu_stall",
        "hardware",
        "a device that stopped making progress",
        "All calls were made; one rank's device did not finish calls that its peers' completions prove to be over.",
        "that rank",
        "That the rank's device lags behind what its peers completed with it.",
        "Why the device stopped: a kernel that never ends, an Xid, a hung driver.",
        "Drain that GPU; look for the first CUDA error or Xid on its host, not for the timeout.",
        "the kernel log of its host (an Xid), or a second dump: a dump that was merely older has caught up",
        stack_tells=True,
    ),
    CauseText(
        "network_stall",
        "network",
        "a call that everybody joined and nobody finishes",
        "All members joined the call and none completes it: transport, NIC, link or switch.",
        "the ranks on both sides of the failed link, where a log names them",
        "That no rank is missing and no call differs: the fault lies below Python.",
        "Which link failed, unless a transport error names it.",
        "Check the named pair's NIC and cable; NCCL_SOCKET_IFNAME and NCCL_IB_GID_INDEX; run a pairwise bandwidth test.",
        "NCCL_DEBUG=INFO of every member, or a bandwidth test over these hosts",
        stack_tells=True,
    ),
    CauseText(
        "init_hang",
        "environment",
        "a group that never formed",
        "A communicator or rendezvous never became whole: a missing rank, a wrong address or port, two ranks on one GPU.",
        "the ranks that never joined",
        "Who arrived and what they waited for.",
        "Why the others did not arrive; a rank that never started leaves nothing.",
        "Start every rank, one free port and one rendezvous id per job, bind to LOCAL_RANK before the first collective.",
        "which ranks reached the rendezvous, from each rank's own log",
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
        "a host thread that never returned from CUDA, NCCL or the driver",
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
        "not a hang: a rank that came later than the timeout",
        "A rank arrived after the others had given up waiting; the call itself agrees.",
        "the late rank",
        "That the late rank later reported the same call, or that the call completed.",
        "What took it so long.",
        "A longer timeout for that group, or the pause moved out of the step.",
        "a second dump a minute later: a rank that is slow has moved on",
        stack_tells=True,
    ),
    CauseText(
        "unknown",
        "unknown",
        "frozen, but the evidence carries no cause",
        "The job is frozen and what was left behind does not carry any of the other causes.",
        "nobody, or the ranks that the evidence still names",
        "What was ruled out, and what to collect next time.",
        "A cause.",
        'Collect what the report lists under "missing".',
        "dumps and stacks of the ranks that left none",
        stack_tells=True,
    ),
)

CATALOG: dict[str, CauseText] = {entry.cause: entry for entry in _ENTRIES}

#: The rules, by their places in `hangscope/causes/`, in the order in which they are asked: the first that answers gives the
#: verdict, later ones its alternatives.
ORDER = (
    "ends.process.ended_from_outside",
    "known.known_defect",
    "gradients.different_models",
    "gradients.unused_parameters",
    "device.device_fault",
    "ends.process.died",
    "init.never_formed",
    "left_over.late",
    "left_over.came_late",
    "left_over.made_after_the_end",
    "ends.process.left_quietly",
    "pairs.unpaired",
    "both_send.both_send",
    "order.false_circle",
    "order.crossed_groups",
    "order.crossed_threads",
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
    "left_over.held_at_its_exit",
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
