"""Rank 1 never comes back from an import: of this file, as a module."""

import os
import time

if __name__ != "__main__":
    time.sleep(600 if os.environ["RANK"] == "1" else 0)  # HERE
else:
    import hanging_import  # noqa: F401
    import torch.distributed as dist

    dist.init_process_group("gloo")
