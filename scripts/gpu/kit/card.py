"""What the host has of a card, asked without importing torch."""

import shutil
import subprocess
import sys

# Prints the number of cards, or ends with what the driver says. A process of its own: a driver may crash or hang.
COUNT = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int()
code = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
sys.exit(f"cuInit says {code}") if code else print(count.value)
"""
PATIENCE = 30  # seconds for the driver's first answer

# Dense TFLOP/s of matrix products in NVIDIA's datasheets, by a part of the card's name.
DATASHEET = {
    "H200": {"bf16": 989, "fp16": 989, "tf32": 495, "f32": 67},
    "H100 80GB HBM3": {"bf16": 989, "fp16": 989, "tf32": 495, "f32": 67},
    "H100 PCIe": {"bf16": 756, "fp16": 756, "tf32": 378, "f32": 51},
    "A100": {"bf16": 312, "fp16": 312, "tf32": 156, "f32": 19.5},
}


def why_none(torch):
    """Why nothing can be computed on a card here, in one line; None where it can be tried."""
    try:
        found = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return f"the NVIDIA driver gives no answer within {PATIENCE} s"
    if found.returncode != 0:
        lines = found.stderr.strip().splitlines() or [f"it ended with {found.returncode}"]
        return f"no NVIDIA driver: {lines[-1].removeprefix('OSError: ')}"
    if int(found.stdout) == 0:
        return "the NVIDIA driver has no card"
    if not torch.has_cuda:
        return f"torch is built without CUDA: {torch.libraries} has no libtorch_cuda.so"
    return None


def facts():
    """Name, compute capability, driver and memory of the first card, as nvidia-smi has them."""
    if shutil.which("nvidia-smi") is None:
        return {}
    words = ["nvidia-smi", "--query-gpu=name,compute_cap,driver_version,memory.total", "--format=csv,noheader"]
    try:
        said = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return {}
    values = [value.strip() for value in (said.stdout.splitlines() or [""])[0].split(",")]
    return dict(zip(("gpu", "cc", "driver", "gpu_memory"), values)) if len(values) == 4 else {}


def datasheet(name, precision):
    """The card's TFLOP/s by its datasheet; None for a card that is not in the table."""
    return next((figures[precision] for part, figures in DATASHEET.items() if part in (name or "")), None)
