#!/usr/bin/env python3
"""A CNN in PyTorch on a Dataset with transforms; share/jobs/fashion.job is its job:

    PYTHONPATH=share falcon-work --exec 'exec python3 examples/exec/dataset.py' ADDR

A transform draws its random numbers from torch's generator, which falcon_train.torch seeds for
each task: a worker that computes the task again has the same images.
"""
import gzip

import falcon_train
import torch
from torch.nn import (Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential, functional)
from torch.utils.data import Dataset, default_collate


class Fashion(Dataset):
    def __init__(self, part, transform):
        self.transform = transform
        self.images = self.read(part + "-images-idx3", 16).reshape(-1, 1, 28, 28)
        self.labels = self.read(part + "-labels-idx1", 8).long()

    @staticmethod
    def read(name, skip):
        with gzip.open("/usr/share/datasets/fashion-mnist/%s-ubyte.gz" % name) as f:
            return torch.frombuffer(bytearray(f.read()), dtype=torch.uint8, offset=skip)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.transform(self.images[i]), self.labels[i]


def normalize(image):
    return (image / 255 - 0.2860) / 0.3530


def augment(image):
    if torch.rand(()) < 0.5:
        image = image.flip(-1)
    down, right = torch.randint(3, (2,))
    return normalize(functional.pad(image, (1, 1, 1, 1))[:, down:down + 28, right:right + 28])


def loss(task):
    images, labels = default_collate([data[task.kind][i] for i in task.indices])
    out = model(images)
    return (functional.cross_entropy(out, labels, reduction="sum"),
            (out.argmax(1) == labels).sum())


torch.set_num_threads(1)
data = {"train": Fashion("train", augment), "eval": Fashion("t10k", normalize)}
model = Sequential(
    Conv2d(1, 6, 5, padding=2), ReLU(), MaxPool2d(2),
    Conv2d(6, 16, 5), ReLU(), MaxPool2d(2), Flatten(),
    Linear(400, 120), ReLU(), Linear(120, 84), ReLU(), Linear(84, 10))
falcon_train.torch(model, loss)
