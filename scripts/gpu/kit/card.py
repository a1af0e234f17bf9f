"""What the host has of a card, asked without importing torch."""

import json
import shutil
import subprocess
import sys

# Prints the number of cards that this process sees, the newest CUDA that the driver knows, such as 13000 for 13.0, and the first card's own
# number in all of the world, or ends with what the driver says. A process of its own: a driver may crash or hang.
ASK = """
import ctypes, json, sys, uuid
cuda = ctypes.CDLL("libcuda.so.1")
count, version, card, own = ctypes.c_int(), ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(16)
code = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or cuda.cuDriverGetVersion(ctypes.byref(version))
if code:
    sys.exit(f"the driver says {code}")
known = count.value and not (cuda.cuDeviceGet(ctypes.byref(card), 0) or cuda.cuDeviceGetUuid(own, card))
print(json.dumps({"cards": count.value, "cuda": version.value, "uuid": f"GPU-{uuid.UUID(bytes=own.raw)}" if known else None}))
"""
PATIENCE = 30  # seconds for the driver's first answer

# Dense TFLOP/s of matrix products in NVIDIA's datasheets, by a part of the card's name.
DATASHEET = {
    "H200": {"bf16": 989, "fp16": 989, "tf32": 495, "f32": 67},
    "H100 80GB HBM3": {"bf16": 989, "fp16": 989, "tf32": 495, "f32": 67},
    "H100 PCIe": {"bf16": 756, "fp16": 756, "tf32": 378, "f32": 51},
    "A100": {"bf16": 312, "fp16": 312, "tf32": 156, "f32": 19.5},
}


def ask():
    """What the driver says, and why it says nothing: one of both."""
    try:
        found = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return None, f"the NVIDIA driver gives no answer within {PATIENCE} s"
    if found.returncode != 0:
        lines = found.stderr.strip().splitlines() or [f"it ended with {found.returncode}"]
        return None, f"no NVIDIA driver: {lines[-1].removeprefix('OSError: ')}"
    return json.loads(found.stdout), None


def why_none(torch):
    """Why nothing can be computed on a card here, in one line; None where it can be tried."""
    driver, silent = ask()
    if silent:
        return silent
    if driver["cards"] == 0:
        return "the NVIDIA driver has no card"
    if not torch.has_cuda:
        return f"torch is built without CUDA: {torch.libraries} has no libtorch_cuda.so"
    # Drivers run programs of every CUDA of their major version, and of older ones.
    newest, needed = driver["cuda"] // 1000, torch.cuda
    if needed and newest < int(needed.split(".")[0]):
        return f"the NVIDIA driver is for CUDA {newest}.{driver['cuda'] % 1000 // 10}, and torch was built with CUDA {needed}"
    return None


def facts():
    """Name, compute capability, driver and memory of the first card that this process sees, as nvidia-smi has them."""
    if shutil.which("nvidia-smi") is None:
        return {}
    words = ["nvidia-smi", "--query-gpu=name,compute_cap,driver_version,memory.total", "--format=csv,noheader"]
    driver, _ = ask()
    if driver and driver["uuid"]:
        # It lists all cards of the host, whatever CUDA_VISIBLE_DEVICES leaves of them.
        words.append(f"--id={driver['uuid']}")
    try:
        said = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return {}
    values = [value.strip() for value in (said.stdout.splitlines() or [""])[0].split(",")]
    return dict(zip(("gpu", "cc", "driver", "gpu_memory"), values)) if len(values) == 4 else {}


def datasheet(name, precision):
    """The card's TFLOP/s by its datasheet; None for a card that is not in the table."""
    return next((figures[precision] for part, figures in DATASHEET.items() if part in (name or "")), None)
