"""The words of the page that a reader may not know, one sentence each: shown where they first occur, and listed at the end of the page."""

from __future__ import annotations

from hangscope.knowledge.catalog import CATALOG
from hangscope.report.schema.document import Document

WORDS = {
    "rank": "One process of the job, numbered over the whole job from 0.",
    "group": "A process group: the ranks that take part in a collective, identified by its name and its members.",
    "seq": "The number of a collective on its group, counted from 1 on each rank.",
    "collective": "An operation that every rank of its group must issue, such as all_reduce or barrier.",
    "enqueued": "Issued by the CPU thread; the GPU may not have started it.",
    "pending": "Issued, and not known to have started or completed.",
    "started": "Started on the GPU, and not completed.",
    "completed": "Completed on this rank.",
    "end not recorded": "The recorder does not show whether this collective completed.",
    "culprit": "The rank, or ranks, that caused the hang.",
    "waiting": "In a collective that cannot complete before another rank issues or completes it.",
    "root": "The root cause: the culprit, or the collective that every rank seen has entered and none completes.",
    "directly": "Blocked in the collective that the root cause does not issue or complete; indirectly: blocked by a rank that is blocked itself.",
    "CPU thread": "The thread of a rank that runs the training program and issues the collectives.",
    "watchdog": "The thread of torch that notices a collective that does not complete within its timeout, and ends the process.",
    "recorder": "Torch's Flight Recorder: a buffer with the last collectives of each rank, dumped when a job hangs.",
    "dump": "The file that the recorder of one rank wrote.",
    "fingerprint": "A hash that is equal for the same cause at the same lines, whatever the ranks and hosts.",
    "dp": "Data parallel: ranks with copies of the same weights and different data.",
    "fsdp": "Sharded data parallel: ranks that shard the weights.",
    "pp": "Pipeline parallel: ranks that hold different layers.",
    "cp": "Context parallel: ranks that shard one sequence.",
    "ep": "Expert parallel: ranks that hold different experts.",
    "tp": "Tensor parallel: ranks that shard each layer.",
    "p2p": "A send and its matching recv, between two ranks.",
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
