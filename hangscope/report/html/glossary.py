"""The words of the page that a reader may not know, one sentence each: shown where they first stand, and listed at its end."""

from __future__ import annotations

from hangscope.knowledge.catalog import CATALOG
from hangscope.report.schema.document import Document

WORDS = {
    "rank": "One process of the job, numbered over the whole job from 0.",
    "group": "A process group: the ranks that make a collective together, identified by its name and its members.",
    "seq": "The number of a call on its group, counted from 1 on each rank.",
    "collective": "A call that every rank of its group must make, such as all_reduce or barrier.",
    "enqueued": "The host thread made the call; the device may not have begun it.",
    "pending": "Called, and not seen to begin or to end.",
    "started": "Begun on the device, and not ended.",
    "completed": "Ended on this rank.",
    "end not recorded": "The recorder does not say whether this call ended.",
    "culprit": "The rank, or ranks, without which the others would go on.",
    "waiting": "In a call that cannot end before another rank makes or finishes it.",
    "root": "What all waiting ends at: the culprit, or the call that everybody made and nobody finishes.",
    "directly": "Waits in the very call that the root does not make or finish; behind: waits for a rank that waits itself.",
    "host thread": "The thread of a rank that runs the training program and makes the calls.",
    "frontier": "How far a rank has come on a group: up to which seq it enqueued, started and completed.",
    "watchdog": "The thread of torch that notices a call which does not end within its timeout, and ends the process.",
    "recorder": "Torch's Flight Recorder: a ring of each rank's last calls, dumped when a job freezes.",
    "dump": "The file that the recorder of one rank wrote.",
    "fingerprint": "A number that is equal for the same cause at the same lines, whatever the ranks and hosts.",
    "dp": "Data parallel: ranks with copies of the same weights and different data.",
    "fsdp": "Sharded data parallel: ranks that share out the weights among themselves.",
    "pp": "Pipeline parallel: ranks that hold different layers.",
    "cp": "Context parallel: ranks that share out one sequence.",
    "ep": "Expert parallel: ranks that hold different experts.",
    "tp": "Tensor parallel: ranks that share out each layer.",
    "p2p": "A send and its receive, between two ranks.",
}


_OF_A_STALL = frozenset({"culprit", "waiting", "root", "directly"})


def words(document: Document) -> dict[str, str]:
    """Return the words that a page uses; where nothing is stuck, those of a stall are not among them."""
    return {
        word: meaning
        for word, meaning in WORDS.items()
        if document.status != "no_hang" or word not in _OF_A_STALL
    }


def causes(document: Document) -> tuple[tuple[str, str], ...]:
    """Return the causes that a page names, each with what it means."""
    verdict = document.verdict
    named = [verdict.cause] if verdict is not None else []
    named += [h.cause for h in document.hypotheses]
    named += [a.cause for a in verdict.alternatives] if verdict is not None else []
    return tuple((cause, CATALOG[cause].means) for cause in dict.fromkeys(named) if cause in CATALOG)
