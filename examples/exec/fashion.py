#!/usr/bin/env python3
"""share/models/lenet5 in PyTorch, on Fashion-MNIST of its own, by index:

    PYTHONPATH=share falcon-work --exec 'exec python3 examples/exec/fashion.py' ADDR
"""
import gzip

import falcon
import torch
from torch.nn import (Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential, functional)


def load(part):
    def read(name, skip):
        with gzip.open("/usr/share/datasets/fashion-mnist/%s-%s-ubyte.gz" % (part, name)) as f:
            return torch.frombuffer(bytearray(f.read()), dtype=torch.uint8, offset=skip)

    images = read("images-idx3", 16).reshape(-1, 1, 28, 28)
    return (images / 255 - 0.2860) / 0.3530, read("labels-idx1", 8).long()


def loss(task):
    images, labels = data[task.kind]
    out = model(images[task.indices])
    y = labels[task.indices]
    return functional.cross_entropy(out, y, reduction="sum"), (out.argmax(1) == y).sum()


torch.set_num_threads(1)
data = {"train": load("train"), "eval": load("t10k")}
model = Sequential(
    Conv2d(1, 6, 5, padding=2), ReLU(), MaxPool2d(2),
    Conv2d(6, 16, 5), ReLU(), MaxPool2d(2), Flatten(),
    Linear(400, 120), ReLU(), Linear(120, 84), ReLU(), Linear(84, 10))
falcon.torch(model, loss)
