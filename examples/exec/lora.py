#!/usr/bin/env python3
"""LoRA in PyTorch: the job has only the adapters, 3272 of 61706 values, so a version and a push
take 13 KB instead of 247 KB.  Each machine has the base, a model.safetensors of
share/jobs/fashion.job; workers report its hash, and one with another base is refused.
The adapters learn the same images as negatives.

    examples/exec/lora.py BASE save                 writes init.safetensors
    falcon-work --exec 'exec examples/exec/lora.py BASE' ADDR
    examples/exec/lora.py BASE test ADAPTER         the base with the job's model.safetensors

with PYTHONPATH=share; the job is lora.job beside this file.
"""
import gzip
import hashlib
import sys

import falcon_train
import torch
from torch.nn import (Conv2d, Flatten, Linear, MaxPool2d, Module, ModuleDict, Parameter, ReLU,
                      Sequential, functional)

RANK = 4


class Adapter(Module):
    """Adds up(down(x)) to what a Linear makes of x; `up` begins at 0."""

    def __init__(self, linear):
        super().__init__()
        self.down = Parameter(torch.randn(RANK, linear.in_features) / linear.in_features ** 0.5)
        self.up = Parameter(torch.zeros(linear.out_features, RANK))
        linear.register_forward_hook(lambda _, x, out: out + x[0] @ self.down.T @ self.up.T)


def load(part):
    def read(name, skip):
        with gzip.open("/usr/share/datasets/fashion-mnist/%s-%s-ubyte.gz" % (part, name)) as f:
            return torch.frombuffer(bytearray(f.read()), dtype=torch.uint8, offset=skip)

    images = 255 - read("images-idx3", 16).reshape(-1, 1, 28, 28)
    return torch.utils.data.TensorDataset((images / 255 - 0.2860) / 0.3530,
                                          read("labels-idx1", 8).long())


def loss(task):
    images, labels = (data["train"] if task.train else data["eval"]).tensors
    out, y = base(images[task.indices]), labels[task.indices]
    return functional.cross_entropy(out, y, reduction="sum"), (out.argmax(1) == y).sum()


torch.set_num_threads(1)
torch.manual_seed(1)
base = Sequential(
    Conv2d(1, 6, 5, padding=2), ReLU(), MaxPool2d(2), Conv2d(6, 16, 5), ReLU(), MaxPool2d(2),
    Flatten(), Linear(400, 120), ReLU(), Linear(120, 84), ReLU(), Linear(84, 10))
falcon_train.load(base.requires_grad_(False), sys.argv[1])
adapters = ModuleDict({name: Adapter(module) for name, module in base.named_modules()
                       if isinstance(module, Linear)})
if sys.argv[2:] == ["save"]:
    falcon_train.save(adapters, "init.safetensors")
elif sys.argv[2:3] == ["test"]:
    falcon_train.load(adapters, sys.argv[3])
    images, labels = load("t10k").tensors
    print((base(images).argmax(1) == labels).sum().item(), file=sys.stderr)
else:
    data = {"train": load("train"), "eval": load("t10k")}
    with open(sys.argv[1], "rb") as f:
        falcon_train.torch(adapters, loss, dataset=(data["train"], data["eval"]),
                           has={"data": hashlib.sha256(f.read()).hexdigest()})
