#!/usr/bin/python3 -B
"""optim.py DUMP_STEPS: compare Falcon's optimisers with PyTorch's.

DUMP_STEPS is the program built from dump_steps.c.  Both take the same 300 gradients; exit
status: 0 when no weight is further from PyTorch's than 1e-5 of the way that weights went,
else 1.
"""
import subprocess
import sys

import numpy as np
import torch

TOLERANCE = 1e-5
N, STEPS = 4096, 300
CASES = [
    ("sgd", dict(lr=0.01), torch.optim.SGD, {}),
    ("sgd", dict(lr=0.01, decay=0.1), torch.optim.SGD, dict(weight_decay=0.1)),
    ("momentum", dict(lr=0.01, momentum=0.9, decay=0.01), torch.optim.SGD,
     dict(momentum=0.9, weight_decay=0.01)),
    ("nesterov", dict(lr=0.01, momentum=0.9, decay=0.01), torch.optim.SGD,
     dict(momentum=0.9, nesterov=True, weight_decay=0.01)),
    ("adagrad", dict(lr=0.01, eps=1e-10), torch.optim.Adagrad, dict(eps=1e-10)),
    ("adagrad", dict(lr=0.01, eps=1e-6, decay=0.01), torch.optim.Adagrad,
     dict(eps=1e-6, weight_decay=0.01)),
    ("adamw", dict(lr=0.001, eps=1e-8, how="decoupled"), torch.optim.AdamW,
     dict(weight_decay=0)),
    ("adamw", dict(lr=0.001, eps=1e-8, decay=0.1, how="decoupled"), torch.optim.AdamW,
     dict(weight_decay=0.1)),
    ("adamw", dict(lr=0.003, beta1=0.8, beta2=0.95, eps=1e-6, decay=0.01,
                   how="decoupled"),
     torch.optim.AdamW, dict(betas=(0.8, 0.95), eps=1e-6, weight_decay=0.01)),
]


def ours(program, kind, first, grads, lr, momentum=0, beta1=0.9, beta2=0.999, eps=1e-8,
         decay=0, how="coupled"):
    args = [program, kind] + [str(v) for v in (N, lr, momentum, beta1, beta2, eps, decay)]
    out = subprocess.run(args + [how], check=True, capture_output=True,
                         input=first.tobytes() + grads.tobytes()).stdout
    return np.frombuffer(out, dtype="<f4")


def theirs(optimizer, options, first, grads, lr):
    w = torch.nn.Parameter(torch.from_numpy(first.copy()))
    o = optimizer([w], lr=lr, **options)
    for g in grads:
        w.grad = torch.from_numpy(g.copy())
        o.step()
    return w.detach().numpy()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    rng = np.random.default_rng(20261122)
    good = True
    for kind, options, optimizer, torch_options in CASES:
        first = rng.standard_normal(N).astype("<f4")
        scale = np.exp(rng.uniform(-12, 4, N))
        grads = (scale * (rng.standard_normal((STEPS, N)) + 0.3)).astype("<f4")
        a = ours(sys.argv[1], kind, first, grads, **options)
        b = theirs(optimizer, torch_options, first, grads, options["lr"])
        off = float(np.max(np.abs(a - b) / (np.abs(b - first) + np.abs(first))))
        ok = off <= TOLERANCE
        good = good and ok
        print("%s %-8s %s: %.1e" % ("ok " if ok else "BAD", kind, torch_options, off))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
