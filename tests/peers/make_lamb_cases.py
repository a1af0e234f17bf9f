#!/usr/bin/env python3
"""Updates of LAMB by the equations of You et al. 2020, algorithm 2, and of NVIDIA's Transformer-XL, in numpy.

  make_lamb_cases.py > trainer/engine/src/optim/lamb/cases.json

Needs numpy. Each case holds `[optim]`, the weights before, the sums of gradients of each update, what these are divided
by, and the weights after.
"""
import json

import numpy as np

START = {
    "body.weight": np.sin(np.arange(20.0) * 0.7),
    "body.bias": np.cos(np.arange(5.0)) * 0.1,
    "table.weight": 9 * np.sin(np.arange(9.0) + 0.5),  # a length above NVIDIA's limit
    "head.zero": np.zeros(3),
}
GRADIENTS = [
    {name: np.cos(np.arange(len(w)) * (1.3 + step) + step) * 10.0 ** (step - 3) for name, w in START.items()}
    for step in range(4)
]
DIVISOR = 4.0
CASES = {
    "the paper": dict(lr=0.02, eps=1e-12, weight_decay=0.01, no_decay=[], no_trust=[], bias_correction=True),
    "its program": dict(lr=0.02, eps=1e-6, weight_decay=0.01, no_decay=["bias"], no_trust=["bias"],
                        bias_correction=False),
    "NVIDIA's Transformer-XL": dict(lr=0.01, eps=1e-6, weight_decay=0.0, no_decay=[], no_trust=[],
                                    bias_correction=False, trust_limit=10.0),
}
BETA1, BETA2 = 0.9, 0.999


def length(x):
    return float(np.sqrt(np.sum(x * x)))


def train(name, o):
    w = START[name].copy()
    m, v = np.zeros_like(w), np.zeros_like(w)
    decay = 0.0 if any(part in name for part in o["no_decay"]) else o["weight_decay"]
    adapts = not any(part in name for part in o["no_trust"])
    for t, gradients in enumerate(GRADIENTS, start=1):
        g = gradients[name] / DIVISOR
        m = BETA1 * m + (1 - BETA1) * g
        v = BETA2 * v + (1 - BETA2) * g * g
        m_hat, v_hat = (m / (1 - BETA1**t), v / (1 - BETA2**t)) if o["bias_correction"] else (m, v)
        r = m_hat / (np.sqrt(v_hat) + o["eps"]) + decay * w
        phi = min(length(w), o.get("trust_limit") or np.inf)
        ratio = phi / (length(r) + o["eps"]) if adapts and phi > 0 and length(r) > 0 else 1.0
        w = w - o["lr"] * ratio * r
    return w


def plain(tensors):
    return {name: list(values) for name, values in tensors.items()}


def case(name, o):
    end = {n: train(n, o) for n in START}
    return {"name": name, "optim": {"kind": "lamb", **o}, "divisor": DIVISOR, "start": plain(START),
            "grads": [plain(g) for g in GRADIENTS], "end": plain(end)}


print("[" + ",\n".join(json.dumps(case(name, o)) for name, o in CASES.items()) + "]")
