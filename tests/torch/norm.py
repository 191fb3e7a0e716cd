#!/usr/bin/python3 -B
"""A model with BatchNorm, on data of its own, by index.

norm.py init FILE         writes the job's model.init, with the counters that PyTorch keeps
norm.py serve LOG         is a trainer, which writes down the tasks that it computes
norm.py plain LOG INIT MODEL
        trains plain PyTorch, whose own running statistics run, on those tasks, each of
        which is a whole update, and compares each tensor with that of MODEL.
"""

import json
import struct
import sys

import torch
from torch.nn import BatchNorm1d, BatchNorm2d, Conv2d, Flatten, Linear, ReLU, Sequential

torch.set_num_threads(1)
torch.manual_seed(1)
model = Sequential(Conv2d(1, 4, 3, bias=False), BatchNorm2d(4), ReLU(), Flatten(),
                   Linear(16, 8), BatchNorm1d(8), ReLU(), Linear(8, 4))
images = torch.randn(256, 1, 4, 4) * 2 + 1
labels = torch.arange(256) % 4
images += labels.reshape(-1, 1, 1, 1)


def loss(task):
    if task.train and task.id < 1 << 48:
        print(task.clock, *task.indices, file=log, flush=True)
    out = model(images[task.indices])
    y = labels[task.indices]
    return torch.nn.functional.cross_entropy(out, y, reduction="sum"), \
        (out.argmax(1) == y).sum()


def write(path):
    header, data = {}, b""
    for name, tensor in model.state_dict().items():
        value = tensor.numpy().tobytes()
        header[name] = {"dtype": "F32" if tensor.is_floating_point() else "I64",
                        "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(value)]}
        data += value
    header = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header + data)


def read(path):
    with open(path, "rb") as f:
        n, = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(n)), bytearray(f.read())
    return {name: torch.frombuffer(data[slice(*t["data_offsets"])], dtype=torch.float32)
            .reshape(t["shape"]) for name, t in header.items()
            if name != "__metadata__" and t["dtype"] == "F32"}


def plain(log, init, trained):
    model.load_state_dict(read(init), strict=False)
    rule = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model.train()
    with open(log) as f:
        for line in f:
            at = [int(i) for i in line.split()[1:]]
            rule.zero_grad()
            torch.nn.functional.cross_entropy(model(images[at]), labels[at]).backward()
            rule.step()
    for name, want in model.state_dict().items():
        if want.is_floating_point():
            got = read(trained)[name]
            off = ((got - want).abs().max() / want.abs().max()).item()
            print("%s: off by %.1e" % (name, off))
            assert off < 1e-3, (name, got, want)


if sys.argv[1] == "init":
    write(sys.argv[2])
elif sys.argv[1] == "plain":
    plain(*sys.argv[2:])
else:
    import falcon_train
    log = open(sys.argv[2], "a")
    falcon_train.torch(model, loss)
