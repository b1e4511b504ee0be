"""What PyTorch says of the GPU, and how fast it multiplies."""

import time

import torch

print("CUDA", torch.version.cuda, "on", torch.cuda.get_device_name())
a = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
torch.cuda.synchronize()
began = time.perf_counter()
for _ in range(20):
    a @ a
torch.cuda.synchronize()
took = time.perf_counter() - began
print(f"{20 * 2 * 8192**3 / took / 1e12:.1f} TFLOP/s")
