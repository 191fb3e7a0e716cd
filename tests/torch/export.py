#!/usr/bin/python3 -B
"""export.py MODEL TENSORS IMAGES LABELS MEAN STD RIGHT: does an export mean the same here?

Rebuilds the model file MODEL as an nn.Sequential, loads the safetensors file TENSORS into
it by name, and judges the IDX test set IMAGES and LABELS (.gz too): pixels divided by 255,
less MEAN, divided by STD.  Prints the number of right answers.  Exit status: 0 when it is
within 2 of 10,000 of RIGHT, else 1.
"""
import gzip
import sys

import numpy as np
import torch

from model import safetensors, sequential

BATCH = 1000
TOLERANCE = 2e-4


def idx(path):
    """The unsigned bytes of an IDX file as an array."""
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as f:
        data = f.read()
    if data[:3] != b"\0\0\x08":
        sys.exit(f"{path}: not an IDX file of unsigned bytes")
    shape = np.frombuffer(data, dtype=">u4", count=data[3], offset=4)
    return np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * data[3]).reshape(shape)


def main():
    if len(sys.argv) != 8:
        sys.exit(__doc__)
    path, tensors, images, labels = sys.argv[1:5]
    mean, std, want = float(sys.argv[5]), float(sys.argv[6]), int(sys.argv[7])
    torch.set_num_threads(1)
    model, shape = sequential(path)
    model.load_state_dict(safetensors(tensors), strict=True)
    x, label = idx(images), idx(labels)
    right = 0
    with torch.no_grad():
        for i in range(0, len(x), BATCH):
            batch = (x[i:i + BATCH].astype(np.float32) / 255 - mean) / std
            logits = model(torch.from_numpy(batch.reshape([-1] + shape)))
            right += int((logits.argmax(1).numpy() == label[i:i + BATCH]).sum())
    ok = abs(right - want) <= TOLERANCE * len(x)
    print(f"{'ok' if ok else 'FAILED'} {tensors}: {right} of {len(x)} right, want {want}")
    sys.exit(0 if ok else 1)


main()
