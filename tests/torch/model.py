"""Falcon's files in PyTorch: the model's text (falcon-model(5)) and its tensors."""
import json
import struct

import numpy as np
import torch
from torch import nn


def sequential(path):
    """The model file as an nn.Sequential that counts every layer, and its input shape."""
    layers, shape = [], None
    for line in open(path):
        words = line.split("#")[0].split()
        if not words:
            continue
        number = int(words[1]) if len(words) > 1 and words[1].isdigit() else None
        option = dict(w.split("=") for w in words[1:] if "=" in w)
        integer = {k: int(v) for k, v in option.items() if k != "init"}
        if words[0] == "input":
            shape = [int(w) for w in words[1:]]
            probe = torch.zeros([1] + shape)
            continue
        if words[0] == "conv":
            layer = nn.Conv2d(probe.shape[1], number, integer["kernel"],
                              stride=integer.get("stride", 1),
                              padding=integer.get("pad", 0))
        elif words[0] == "dense":
            layer = nn.Linear(probe.shape[1], number)
        elif words[0] in ("maxpool", "avgpool"):
            kind = nn.MaxPool2d if words[0] == "maxpool" else nn.AvgPool2d
            layer = kind(number, stride=integer.get("stride", number))
        else:
            layer = {"relu": nn.ReLU, "tanh": nn.Tanh, "flatten": nn.Flatten}[words[0]]()
        probe = layer(probe)
        layers.append(layer)
    return nn.Sequential(*layers), shape


def safetensors(path):
    """The tensors of a safetensors file, by name."""
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    tensors = {}
    for name, t in header.items():
        begin, end = t["data_offsets"]
        values = np.frombuffer(data[8 + size + begin:8 + size + end], dtype="<f4")
        tensors[name] = torch.from_numpy(values.reshape(t["shape"]).copy())
    return tensors
