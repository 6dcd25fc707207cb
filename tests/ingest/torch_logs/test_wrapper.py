from __future__ import annotations

import io

import pytest

from hangscope.ingest.torch_logs.wrapper import fingerprints, garbled_peer
from hangscope.ingest.workers.reading import read_log
from hangscope.model.incident import Event

OPTIONS = "TensorOptions(dtype=float (default), device={}, layout=Strided (default), requires_grad=false (default), memory_format=(nullopt))"


def tensor_print(
    number: int, op: str = "ALLREDUCE", shape: str = "58", dtype: str = "Float", device: str = "cpu"
) -> str:
    return f"CollectiveFingerPrint(SequenceNumber={number}, OpType={op}, TensorShape=[{shape}], TensorDtypes={dtype}, TensorDeviceTypes={OPTIONS.format(device)})"


def bare_print(number: int, op: str = "BARRIER") -> str:
    return f"CollectiveFingerPrint(SequenceNumber={number}OpType={op})"


def mismatch(own: str, peer: str, aspects: str = "", rank: int = 2, other: int = 1) -> str:
    return f"RuntimeError: Detected mismatch between collectives on ranks. Rank {rank} is running collective: {own}, but Rank {other} is running collective: {peer}.Collectives differ in the following aspects: {aspects}"


def one(text: str, kind: str = "fingerprint") -> Event:
    reading = read_log(io.BytesIO(text.encode()), "job.log")
    assert reading.notes == []
    (event,) = [event for event in reading.events if event.kind == kind]
    return event


def test_own_half_is_the_fact_and_every_aspect_is_named() -> None:
    aspects = "\t Sequence number: 8vs 9  Op type: ALLREDUCEvs BROADCAST  Tensor Tensor shapes: 58vs 4  Tensor Tensor dtypes: Floatvs Double  Tensor Tensor devices: avs b"
    event = one("[rank5]: " + mismatch(tensor_print(8), tensor_print(9, "BROADCAST", "4", "Double"), aspects))
    assert (event.rank, event.group_rank) == (5, 2)
    assert (
        event.seq,
        event.op,
        event.shape,
        event.dtype,
        event.device,
    ) == (9, "all_reduce", (58,), "Float", "cpu")
    assert (event.peer_group_rank, event.peer_op, event.peer_shape) == (
        1,
        "broadcast",
        (4,),
    )
    assert event.aspects == ("sequence number", "op", "shapes", "dtypes", "devices")
    assert event.context == "mismatch"


@pytest.mark.parametrize(
    ("own", "peer", "meaning"),
    [
        (tensor_print(8), bare_print(0, "REDUCE"), "without tensors"),
        (bare_print(8), bare_print(0, "GATHER"), "one 1-D tensor"),
        (bare_print(8), bare_print(0, "ALLGATHER_COALESCED"), "one 0-D tensor"),
        (tensor_print(8), bare_print(0, "SCATTER"), "one 2-D tensor"),
        (tensor_print(8), bare_print(0, "REDUCE_SCATTER"), "one 3-D tensor"),
        (tensor_print(8), bare_print(0, "ALLTOALL_BASE"), "one 4-D tensor"),
        (tensor_print(8), bare_print(0, "ALLTOALL"), "one 5-D tensor"),
    ],
)
def test_a_garbled_peer_is_decoded_from_the_length_it_prints(own: str, peer: str, meaning: str) -> None:
    event = one(mismatch(own, peer, "\t Sequence number: 8vs 0  Op type: Xvs Y"))
    assert meaning in event.peer_op
    assert event.garbled is True and event.aspects == ()


@pytest.mark.parametrize(
    ("own", "peer"),
    [
        (tensor_print(0), tensor_print(0, shape="4")),
        (bare_print(0), bare_print(0, "ALLTOALL")),
        (bare_print(3), bare_print(4)),
    ],
)
def test_a_whole_peer_is_trusted(own: str, peer: str) -> None:
    first, second = fingerprints(own + peer)
    assert garbled_peer(first, second) is None


def test_older_wordings() -> None:
    event = one(
        "[Rank 0] is odd. Rank 0 is running inconsistent collective: CollectiveFingerPrint(OpType=BROADCAST, TensorShape=[4, 2], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(device=cuda))"
    )
    assert (event.group_rank, event.op, event.shape, event.device) == (
        0,
        "broadcast",
        (4, 2),
        "cuda",
    )
    assert not event.seq
    random = one(mismatch(tensor_print(683057617), tensor_print(683057618)))
    assert not random.seq and random.sequence_number == 683057617


def test_several_tensors_and_cut_lines() -> None:
    (found,) = fingerprints(tensor_print(3, "ALLGATHER", "2, 3", "Float Long"))
    assert (found[0]["shape"], found[0]["dtype"]) == ((2, 3), "Float Long")
    assert one(mismatch(tensor_print(8), tensor_print(9))[:160]).op == "all_reduce"
    assert (
        read_log(io.BytesIO(b"Detected mismatch between collectives on ranks. Rank 0 is runn"), "a").events
        == []
    )


def test_a_late_rank_says_what_it_wanted() -> None:
    event = one(
        f"[rank1]: RuntimeError: ProcessGroupWrapper: Monitored Barrier encountered error running collective: {tensor_print(4)}. Error: "
    )
    assert (event.rank, event.context, event.seq) == (1, "barrier_error", 5)


@pytest.mark.parametrize(
    ("text", "absent"),
    [
        ("[Rank 0]: Rank 1 failed to pass monitoredBarrier in 4000 ms", (1,)),
        ("[Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 4000 ms", (1, 3)),
        ("No ranks successfully processed in monitoredBarrier.", ()),
    ],
)
def test_monitored_barrier_names_absentees(text: str, absent: tuple[int, ...]) -> None:
    event = one(f"[rank0]:[E1016 03:31:38.928019586 ProcessGroupGloo.cpp:2901] {text}", "monitored_barrier")
    assert event.absent == absent


def test_monitored_barrier_witness() -> None:
    text = "[rank2]: RuntimeError: Rank 2 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank."
    event = one(text, "monitored_barrier_witness")
    assert (event.rank, event.group_rank, event.from_group_rank) == (2, 2, 0)


@pytest.mark.parametrize(
    ("text", "kind", "fields"),
    [
        (
            "[/x/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation to complete",
            "gloo_timeout",
            {"what": "recv"},
        ),
        (
            "[/x/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.7]:7323. This is typically",
            "gloo_closed",
            {"peer": "10.0.0.7"},
        ),
        (
            "[/x/gloo/transport/tcp/pair.cc:537] Read error [10.0.0.7]:7323: Connection reset by peer. This",
            "gloo_closed",
            {"peer": "10.0.0.7"},
        ),
        ("[/x/gloo/pair.cc:1] Application timeout caused pair closure", "gloo_closed", {}),
        (
            "[enforce fail at /x/gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 40 vs 4. Received data",
            "gloo_size_mismatch",
            {"received": 40, "expected": 4},
        ),
        (
            "[enforce fail at ../third_party/gloo/gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 40 vs 4",
            "gloo_size_mismatch",
            {"received": 40, "expected": 4},
        ),
    ],
)
def test_gloo_symptoms(text: str, kind: str, fields: dict[str, object]) -> None:
    event = one(f"[rank1]: RuntimeError: {text}", kind)
    assert event.rank == 1
    assert {name: getattr(event, name) for name in fields} == fields


def test_the_peers_half_is_not_taken_for_an_own_one_that_is_damaged() -> None:
    text = mismatch(tensor_print(8).replace("Collective", "Collestive"), tensor_print(8, dtype="Half"))
    reading = read_log(io.BytesIO(f"[rank2]: {text}".encode()), "job.log")
    assert not [event for event in reading.events if event.kind == "fingerprint"]
