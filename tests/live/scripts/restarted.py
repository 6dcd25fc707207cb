import os, sys, time, torch, torch.distributed as dist

time.sleep(3 * (os.environ["RANK"] == "0") if os.environ.get("TORCHELASTIC_RESTART_COUNT") == "1" else 0)
dist.init_process_group("gloo")
attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))


def fetch(step):
    if attempt == 1 and step == 4 and dist.get_rank() == 0:
        time.sleep(600)


for step in range(100):
    fetch(step)
    print("step", step, flush=True)
    if attempt == 0 and step == 3 and dist.get_rank() == 1:
        raise ValueError("bad sample")
    dist.all_reduce(torch.ones(4))
