"""Labelled parts of a text: who shows something else, whatever tool printed it."""

from hangscope.ingest.excerpts.sections import sides

KERNELS = """\
cuda-gdb rank0
(cuda-gdb) info cuda kernels
*  0  -  0 4711 Active (4,1,1) (288,1,1) ncclDevKernel_AllGather_RING_LL()
cuda-gdb rank1
(cuda-gdb) info cuda kernels
No CUDA kernels.
cuda-gdb rank2
(cuda-gdb) info cuda kernels
*  0  -  2 4711 Active (4,1,1) (288,1,1) ncclDevKernel_AllGather_RING_LL()
"""
STACKS = """\
Process 81: Engine_DP0
Thread 81 (active): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2915)
    unfinished (serve/parallel.py:398)
Process 82: Engine_DP1
Thread 82 (active): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2915)
    coordinate (serve/worker.py:41)
"""
TRACES = """\
[RANK 3] [E] Thread 139 stack trace:
  File "/opt/venv/engine/loop.py", line 12, in step
    batch = self.comm.broadcast()
  File "/opt/venv/engine/comm.py", line 40, in broadcast
   (RANK 1 and RANK 2: identical)
[RANK 0] [E] Thread 140 stack trace:
  File "/opt/venv/engine/loop.py", line 19, in step
    self.cache.wait()
  File "/opt/venv/engine/cache.py", line 7, in wait
"""
SCORES = """\
  Rank=3 Node=a Score=0.61
  Rank=6 Node=a Score=0.98
  Rank=1 Node=a Score=0.99
  Rank=0 Node=a Score=1.00
"""
LOADS = """\
spark-1 $ nvidia-smi --query-gpu=name,utilization.gpu
NVIDIA GB10, 96 %
spark-2 $ nvidia-smi --query-gpu=name,utilization.gpu
NVIDIA GB10, 0 %
"""
STREAM = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "/opt/a.py", line 3, in run
[rank1]: Traceback (most recent call last):
[rank1]:   File "/opt/b.py", line 9, in fly
"""


def _read(text: str) -> list[tuple[tuple[str, ...], tuple[int, ...], str]]:
    return [(side.labels, side.ranks, side.text) for side in sides(text.splitlines())]


def test_the_part_that_shows_something_else_is_told_from_those_that_show_the_same() -> None:
    many, few = _read(KERNELS)
    assert (many[0], few[0]) == (("rank 0", "rank 2"), ("rank 1",))
    assert (few[1], few[2]) == ((1,), "No CUDA kernels.")


def test_stacks_are_compared_at_their_first_difference_and_say_what_they_share() -> None:
    one, other = sides(STACKS.splitlines())
    assert {one.text, other.text} == {"unfinished (serve/parallel.py:398)", "coordinate (serve/worker.py:41)"}
    assert one.labels == ("Engine_DP0 (process 81)",)
    assert one.inside == "all_reduce (torch/distributed/distributed_c10d.py:2915)"


def test_ranks_that_are_said_to_show_the_same_count_with_their_part() -> None:
    (_, waiting, at), (_, odd, elsewhere) = _read(TRACES)
    assert (waiting, at) == ((1, 2, 3), "broadcast (comm.py:40)")
    assert (odd, elsewhere) == ((0,), "wait (cache.py:7)")


def test_a_number_far_from_all_others_is_found_in_rows_and_in_parts() -> None:
    assert _read(SCORES)[1][:2] == (("rank 3",), (3,))
    assert [labels for labels, _, _ in _read(LOADS)] == [("spark-1",), ("spark-2",)]


def test_a_log_whose_lines_have_prefixes_has_no_parts() -> None:
    assert not _read(STREAM)
    assert not _read(SCORES.replace("0.61", "0.97"))
    assert not _read(
        KERNELS.replace(
            "No CUDA kernels.", "*  0  -  1 4711 Active (4,1,1) (288,1,1) ncclDevKernel_AllGather_RING_LL()"
        )
    )


def test_parts_without_text_of_their_own_and_signs_like_the_mask_are_no_parts() -> None:
    assert not _read("cuda-gdb rank0\n(the same)\ncuda-gdb rank1\n(identical)\n")
    assert not _read("Rank=0 # 3\nRank=1 4 4\nRank=2 # 5\nRank=3 4 6\n")
