"""PyTorch that has loaded its libraries and holds memory: for who looks at how much that is. `limits_torch.py BYTES GO`"""

import json
import os
import sys
import time

import torch

size, go = int(sys.argv[1]), sys.argv[2]
kept = [torch.ones(64 << 20, dtype=torch.uint8, device="cuda") for _ in range(size // (64 << 20))]
x = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
x @ x
torch.nn.functional.conv2d(torch.randn(8, 64, 56, 56, device="cuda"), torch.randn(64, 64, 3, 3, device="cuda"))
torch.linalg.svd(torch.randn(64, 64, device="cuda"))
torch.cuda.synchronize()
free, total = torch.cuda.mem_get_info()
print(json.dumps({"stage": "full", "pid": os.getpid(), "taken": torch.cuda.memory_reserved(), "free": free, "total": total}), flush=True)
while not os.path.exists(f"{go}.1"):
    time.sleep(0.005)
try:
    kept += [torch.ones(64 << 20, dtype=torch.uint8, device="cuda") for _ in range(1000)]
    last = "none"
except torch.OutOfMemoryError:
    last = "CUDA_ERROR_OUT_OF_MEMORY"
print(json.dumps({"stage": "again", "pid": os.getpid(), "taken": torch.cuda.memory_reserved(), "last": last}), flush=True)
