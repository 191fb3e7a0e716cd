#!/usr/bin/python3 -B
"""grad.py DUMP_GRAD MODEL...: compare Falcon's gradients with PyTorch's.

DUMP_GRAD is the program built from dump_grad.c.  For each model file it makes tasks of 1,
8 and 32 samples; this script rebuilds the model as an nn.Sequential from the text, loads
the exported parameters by name, and compares gradient, loss and right answers.  Exit
status: 0 when every tensor is within 1e-4 of its largest element, else 1.
"""
import subprocess
import sys
import tempfile

import numpy as np
import torch
from torch import nn

from model import safetensors, sequential

TOLERANCE = 1e-4


def compare(dump_grad, path, samples):
    """The largest relative differences (gradient, loss) of one task; right answers equal?"""
    model, shape = sequential(path)
    with tempfile.TemporaryDirectory() as folder:
        out = subprocess.run([dump_grad, path, str(samples), "1", folder], check=True,
                             capture_output=True, text=True).stdout.split()
        model.load_state_dict(safetensors(folder + "/params.safetensors"), strict=True)
        grad = safetensors(folder + "/grad.safetensors")
        x = np.fromfile(folder + "/x", dtype="<f4").reshape([samples] + shape)
        label = np.fromfile(folder + "/label", dtype="<u4").astype(np.int64)
    logits = model(torch.from_numpy(x))
    loss = nn.functional.cross_entropy(logits, torch.from_numpy(label), reduction="sum")
    loss.backward()
    right = int((logits.argmax(1).numpy() == label).sum())
    worst = max(float((grad[name] - p.grad).abs().max() / p.grad.abs().max())
                for name, p in model.named_parameters())
    loss_error = abs(float(out[0]) - loss.item()) / loss.item()
    return worst, loss_error, right == int(out[1])


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    good = True
    for path in sys.argv[2:]:
        for samples in (1, 8, 32):
            worst, loss, right = compare(sys.argv[1], path, samples)
            ok = worst <= TOLERANCE and loss <= TOLERANCE and right
            good = good and ok
            print(f"{'ok' if ok else 'FAILED'} {path} task {samples}: gradient {worst:.1e}, "
                  f"loss {loss:.1e}, right answers {'equal' if right else 'differ'}")
    sys.exit(0 if good else 1)


main()
