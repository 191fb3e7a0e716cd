#!/usr/bin/env python3
"""share/models/lenet5 in PyTorch, with its own copy of Fashion-MNIST, by index:

    PYTHONPATH=share falcon-work --exec 'exec python3 examples/exec/fashion.py' ADDR"""
import gzip

import falcon_train
import torch
from torch.nn import Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential, functional


def read(name, skip):
    with gzip.open("/usr/share/datasets/fashion-mnist/%s-ubyte.gz" % name) as f:
        return torch.frombuffer(bytearray(f.read()), dtype=torch.uint8, offset=skip)


def loss(task):
    part = "train" if task.train else "t10k"
    x, y = images[part][task.indices], labels[part][task.indices]
    out = model((x.reshape(-1, 1, 28, 28) / 255 - 0.2860) / 0.3530)
    return functional.cross_entropy(out, y, reduction="sum"), (out.argmax(1) == y).sum()


torch.set_num_threads(1)
images = {p: read(p + "-images-idx3", 16).reshape(-1, 784) for p in ("train", "t10k")}
labels = {p: read(p + "-labels-idx1", 8).long() for p in ("train", "t10k")}
model = Sequential(
    Conv2d(1, 6, 5, padding=2), ReLU(), MaxPool2d(2), Conv2d(6, 16, 5), ReLU(), MaxPool2d(2),
    Flatten(), Linear(400, 120), ReLU(), Linear(120, 84), ReLU(), Linear(84, 10))
falcon_train.torch(model, loss)
