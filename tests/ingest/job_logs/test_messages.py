"""Known messages: the table is sound, its lines are read, and lines that only resemble them are not."""

from __future__ import annotations

import io
import re

import pytest

from hangscope.ingest.job_logs import messages
from hangscope.ingest.workers.reading import read_log
from hangscope.knowledge.catalog import CATALOG
from hangscope.model.tables import entries

BLANK = re.compile(r"\{(\w+)\}")


def read(text: str) -> list[messages.Message]:
    found = read_log(io.BytesIO(text.encode()), "train.log")
    return [event for event in found.events if isinstance(event, messages.Message)]


@pytest.mark.parametrize("entry", entries("messages", "message"), ids=lambda entry: str(entry["id"]))
def test_an_entry_has_what_its_sentences_need(entry: dict[str, object]) -> None:
    known = messages.table()[str(entry["id"])]
    pattern = re.compile(str(entry.get("pattern", "")))
    blanks = {name for text in (known.says, known.means, known.collect) for name in BLANK.findall(text)}
    assert blanks <= {*pattern.groupindex, "who"}
    assert known.cause in ("", *CATALOG) and known.collect_what in ("dump", "log", "stack", "other")
    assert known.cause != "known_defect" or (known.versions and known.upstream.startswith("https://"))


@pytest.mark.parametrize(
    "entry", [e for e in entries("messages", "message") if "example" in e], ids=lambda entry: str(entry["id"])
)
def test_an_example_is_read_by_its_entry_alone(entry: dict[str, object]) -> None:
    assert [event.id for event in read(f"{entry['example']}\n")] == [entry["id"]]


def test_ids_are_unique_and_literals_are_long_enough_to_be_searched_for() -> None:
    ids = [entry["id"] for entry in entries("messages", "message")]
    assert len(ids) == len(set(ids))
    assert not [literal for literal in messages.MessageParser().literals if len(literal) < 6]


@pytest.mark.parametrize(
    ("line", "id"),
    [
        ("DEBUG 11-02 19:05:51 [utils.py:773] Waiting for 1 local, 7 remote core engine proc(s) to start.", "vllm_waits_for_cores"),
        ("DeepEP combine RDMA sender timeout, channel: 3, RDMA: 0, nvl: 1, dst RDMA: 1, tail: 4", "deepep_timeout"),
        ("E9999: Inner Error! remote rank: [11], tag[AllReduce_1]", "hccl_remote"),
        ("xe 0000:03:00.0: [drm] GT0: Timedout job: seqno=1, lrc_seqno=1, guc_id=7, flags=0x0 in python [811]", "xe_timedout_job"),
        ("RuntimeError: use_libuv was requested but PyTorch was build without libuv support", "libuv"),
        ("ImportError: libtorch_cuda.so: undefined symbol: ncclCommRegister", "nccl_symbol"),
        ("h1:8:9 [0] transport/nvls.cc:254 NCCL WARN Cuda failure 1 'invalid argument'", "nvls"),
        ("node9:8:9 [3] x:15 NCCL WARN NET/OFI Couldn't open AV. RC: -22, ERROR: Invalid argument", "ofi_av"),
        ("(raylet) file_system_monitor.cc:111: /tmp/ray/s_1 is over 95% full, available space: 10; capacity: 90.", "ray_disk_full"),
        ("ERROR 03-02 10:11:12 [multiproc_executor.py:380] Worker proc VllmWorker-1 died unexpectedly (exit code: -9), shutting down executor.", "vllm_core_proc_died"),
        ("RuntimeError: Engine core process EngineCore_DP1 died unexpectedly.", "vllm_core_proc_died"),
        ("[2026-01-11 10:00:01] SIGQUIT received. signum=3, frame=None. It usually means one child failed.", "sglang_child_failed"),
        ("[2026-01-11 10:00:01] DataParallelController hit an exception: Traceback (most recent call last):", "sglang_exception"),
        ("(Worker_TP1 pid=11) ERROR 03-02 10:11:12 [x.py:671] RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)", "nccl_cuda_error"),
        ("[TensorRT-LLM][ERROR] Assertion failed: Failed, NCCL error a/ncclCommunicator.cpp:90 'unhandled system error (run with NCCL_DEBUG=WARN for details)'", "nccl_system_error"),
        ("ERROR 03-02 10:11:12 [dump_input.py:69] Dumping input data for V1 LLM engine (v0.10.1) with config: model='m'", "vllm_core_exception"),
        ("Transport init error! createLink para:rank[7]-localUserrank[7]-localIpAddr[192.0.2.39/7], remoteRank[15]-remoteUserrank[15]-remoteIpAddr[192.0.2.67/7]", "hccl_link"),
        ("Barrier timed out. Id: [Init]Wait_for_all_tasks_to_register. # of tasks that reached the barrier: 3/4.", "jax_barrier"),
    ],
)  # fmt: skip
def test_a_known_line_is_read(line: str, id: str) -> None:
    assert id in [event.id for event in read(line + "\n")]


@pytest.mark.parametrize(
    "line",
    [
        "DeepEP buffer initialised with timeout 100 s",
        "remote rank: 3 joined",
        "h1:8:9 [0] NCCL INFO transport/nvls.cc:254 -> 0",
        "the job can be preempted at any time",
        "Traceback through torch/utils/cpp_extension.py",
        "sd_model loaded; no kernel was needed",
        "amdgpu 0000:c3:00.0: amdgpu: no uncorrectable hardware errors detected in umc block",
        "amdgpu 0000:c3:00.0: amdgpu: 0 uncorrectable hardware errors detected in umc block",
        "EDAC MC0: 0 UE memory read error",
        "mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 8: 8c00004000010090",
        "raise the limit of the shell to avoid 'Too many open files'",
        "NVRM: Xid (PCI:0000:18:00): 154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)",
        "mlx5_core 0000:2a:00.0: Port module event: module 0, Cable plugged",
        "GPU 0 has a total capacity of 79.10 GiB of which 1.02 GiB is free. Including non-PyTorch memory, this process has 77.00 GiB memory in use.",
        "subprocess exited with non-zero status: 3",
        "nvidia-container-cli: warning: no devices requested",
        "UCX  INFO  ep_cfg[0]: tag(tcp/eth0) transport to node2",
        "device-side assert triggered is explained in the FAQ",
        "h1:8:9 [0] NCCL INFO Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_2:1, curr state INIT, next state RTR, local GID index 3, local GID fe80::1, remote GID fe80::2, retrying 1/20 after 100 msec of sleep",
        "pcieport 0000:15:01.0: AER: enabled with IRQ 38",
        "EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode",
        "[n1:7781:0:7781] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8)",
        "world size (8) is divisible by tensor_model_parallel_size (4)",
        "DeepSpeed uses launcher 'slurm' for 2 hosts",
        "API request to http://mlflow:5000/api/2.0/mlflow/runs/search took 0.2 s",
        "Process 2 exit with status code 0.",
        "wandb: Waiting for W&B process to finish... (success).",
        "0/1 tasks in gang unschedulable: pod group is not ready, 1 Succeeded, 4 minAvailable",
        "release notes: free(): invalid pointer at exit is fixed in 2.8",
        "918273            llama  COMPLETED      0:0",
        "NCCL_TIMEOUT 1800 12:30",
        "loaded state_dict for LlamaForCausalLM",
        "RPC agent for worker2 encountered error when reading incoming request from worker0: eof (this is expected to happen during shutdown)",
        "the client could not pickle a cucumber",
        "Failed to connect to GCS bucket gs://data: 403 Forbidden",
        "The replica set has 3 members",
        "spot instances are used for workers 4 to 7",
        "limits: open files 65536, Too many would be refused",
        "DataLoader worker (pid 2217) started",
        "ulimit -n is 1024; 300 files are open",
        "srun: job 918273 has been allocated resources",
        "model.py: rank should not be the same everywhere",
        "RuntimeError: NCCL shared memory: No space left on device",
        "OSError: [Errno 28] inotify watch limit reached: No space left on device",
        "earlyoom v1.7: sending SIGTERM when mem avail <= 10.00%",
        "PipeliningShapeError is raised for other shapes",
        "Waiting 300 seconds for other agents",
        "KeyError: 'RANKING'",
        "pyarrow 17.0.0 read a schema message",
        "python: can't open the box",
        "compiled with torch._inductor.config.max_autotune",
        "the scheduler is up; DataParallelController started",
        "ZMQError was handled",
        "connect to n2: ssh is not needed",
        "OMP: Info #276: omp_set_nested routine deprecated",
        "srun: Step created for StepId=55102.1",
        "srun: StepId=55102.0 tasks 0-6: running",
        "munge: Munge decode succeeded",
        "55102             llama  COMPLETED      0:0",
        "55102.batch  batch    CANCELLED     0:15",
        "sft-worker-3     1/1     Running   0          88m",
        "gpu-node-8   Ready      <none>   44d   v1.29.3",
        "/dev/loop3       56M   56M     0 100% /snap/core18/2829",
        "/dev/nvme1n1      1.8T   1.2T   600G  67% /scratch",
        "scratch-OST0011_UUID   100.0T      60.0T      40.0T  60% /lustre[OST:17]",
        "no space left on device plans for this quarter",
        'the config map "nccl-env" was found',
        "job step may run on any node",
        "An error occurred (404) when calling the HeadObject operation: Not Found",
        "the certificate is valid until 2027",
        "systemd[1]: session-42.scope: Deactivated successfully.",
        "[1]+  Running                 torchrun --nproc_per_node 8 train.py &",
        "chronyd[812]: System clock TAI offset set to 37 seconds",
        "127.0.0.1 localhost",
        "        State: Active",
        "mlx5_core 0000:2a:00.0 ens6f0np0: Link up",
        "64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=0.2 ms",
        "pdsh@master: gpu-07: done",
        "worker-1: Host file was read: worker-1 slots=8",
        "Exit Code:    0",
        "the store listens on 10.0.0.4 (errno 0)",
        "Unable to find address book",
        "Process ApiServer_1 (PID: 4411) started",
        "RuntimeError: cancelled by the user",
        "remote engines use --headless with one front end",
        "The placement group corresponding to this run is ready",
        "0 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons at node (ID: 8c, IP: 10.0.0.5) over the last time period.",
        "        State                             : Enabled",
        "GPU 3's NvLink link 2 is up",
        "amdgpu 0000:83:00.0: amdgpu: MES responded to msg=SUSPEND",
        "Failed to register memory usage callback",
        "HTTPConnectionPool(host='127.0.0.1', port=9000): Max retries exceeded with url: /metrics (Caused by NewConnectionError: Connection refused)",
        "text_generation_launcher: Shard ready in 3.2s rank=1",
        "TP rank 2 could finish the model loading",
        "synStatus=0 [Success]",
        "nvidia-fabricmanager.service: Main process exited, code=exited, status=0/SUCCESS",
        "nvidia-fabricmanager.service: Deactivated successfully.",
        "Shard process was signaled to shutdown with signal 15 rank=2",
        "Only 18 NvLinks are up, all of them",
        "Worker 5 failed to initialize: retrying",
        "DP Coordinator process started",
        "Stub process started for model tensorrt_llm",
        "Some workers of the worker process(4411) have registered within the timeout",
        "NCCL error: none so far; unhandled cuda errors would be shown here",
        "StopIteration is raised by next()",
        "Loss is 2.31, stopping training soon",
        "FileNotFoundError: [Errno 2] No such file or directory: 'python3'",
        "WARNING: cache miss (FileNotFoundError: [Errno 2] No such file or directory: '/x/a'), building",
        "MemoryError handler installed",
        "subprocess.CalledProcessError: Command '['nvcc', '-V']' returned non-zero exit status 1.",
        "subprocess.CalledProcessError: Command '['git', 'rev-parse', 'HEAD']' returned non-zero exit status 128.",
        "FlashAttention only supports Ampere GPUs or newer, falling back to sdpa",
        "Rank 3 exhausted all inputs of the cache",
        "shape '[4, 512]' is valid",
        "tensor sizes must match the size of tensor b",
        "Renaming /out/tmp-checkpoint-500 to /out/checkpoint-500",
        "redistribute from Shard(0) to Replicate() took 3 ms, async is not supported yet",
        "Mesh dimension 'tp' has size 4",
        "hidden_size must be divisible by pipeline stages",
        "JSONDecodeError: Expecting ',' delimiter: line 3 column 2 (char 40)",
        "Attempting to deserialize object on CPU",
        "Gradient overflow. Skipping step is rare",
        "Target 12 is out of bounds for the metric",
        "Backend gloo is used for CPU tensors",
        "the new checkpoint tag name is consistent",
    ],
)
def test_a_line_that_resembles_one_is_not_read(line: str) -> None:
    assert not [event for event in read(line + "\n") if not isinstance(event, messages.Notice)]


def test_a_process_is_told_by_its_coordinates() -> None:
    lines = [
        f"[2026-08-11 01:57:24 PP{n} TP1] DeepEP error: timeout (dispatch CPU) of a peer" for n in (0, 1)
    ]
    assert [event.process for event in read("\n".join(lines) + "\n")] == ["PP0 TP1", "PP1 TP1"]
