#!/usr/bin/env python3
"""A small ResNet with batch norm in PyTorch on Fashion-MNIST.  Write its first parameters, then
start a worker:

    examples/exec/resnet.py init.safetensors
    falcon-work --exec 'exec examples/exec/resnet.py' ADDR

with PYTHONPATH=share; the job is resnet.job beside this file.
"""
import gzip
import sys

import falcon_train
import torch
from torch.nn import (AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Flatten, Identity, Linear,
                      Module, ReLU, Sequential, functional)


def load(part):
    def read(name, skip):
        with gzip.open("/usr/share/datasets/fashion-mnist/%s-%s-ubyte.gz" % (part, name)) as f:
            return torch.frombuffer(bytearray(f.read()), dtype=torch.uint8, offset=skip)

    images = read("images-idx3", 16).reshape(-1, 1, 28, 28)
    return (images / 255 - 0.2860) / 0.3530, read("labels-idx1", 8).long()


def conv(inside, outside, size, stride=1):
    return (Conv2d(inside, outside, size, stride, size // 2, bias=False),
            BatchNorm2d(outside))


class Block(Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.body = Sequential(*conv(inside, outside, 3, stride), ReLU(),
                               *conv(outside, outside, 3))
        self.skip = Identity() if inside == outside else Sequential(
            *conv(inside, outside, 1, stride))

    def forward(self, x):
        return functional.relu(self.body(x) + self.skip(x))


def loss(task):
    images, labels = data[task.kind]
    out, y = model(images[task.indices]), labels[task.indices]
    return functional.cross_entropy(out, y, reduction="sum"), (out.argmax(1) == y).sum()


torch.set_num_threads(1)
torch.manual_seed(1)
model = Sequential(*conv(1, 8, 3, 2), ReLU(), Block(8, 8, 1), Block(8, 16, 2),
                   AdaptiveAvgPool2d(1), Flatten(), Linear(16, 10))
if sys.argv[1:]:
    falcon_train.save(model, sys.argv[1])
else:
    data = {"train": load("train"), "eval": load("t10k")}
    falcon_train.torch(model, loss)
