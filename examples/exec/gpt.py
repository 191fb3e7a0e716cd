#!/usr/bin/env python3
"""A small character GPT in PyTorch on your own text, by index: sample i is the text's i-th
window; the last tenth of the windows is the test set.  Write the first parameters, then start
a worker:

    examples/exec/gpt.py TEXT init.safetensors
    falcon-work --exec 'exec examples/exec/gpt.py TEXT' ADDR

with PYTHONPATH=share; the job is gpt.job beside this file, for a text of 341340 characters
at least.
"""
import hashlib
import os
import sys

import falcon_train
import torch
from torch.nn import (Embedding, Linear, Module, TransformerEncoder,
                      TransformerEncoderLayer, functional)

WIDTH, HEADS, LAYERS, CONTEXT = 64, 4, 2, 64
NEEDED = 341340  # characters: nine tenths are 4800 windows, and one more character


class Windows(torch.utils.data.Dataset):
    def __init__(self, text):
        self.text = text

    def __len__(self):
        return (len(self.text) - 1) // CONTEXT

    def __getitem__(self, i):
        if i >= len(self):
            sys.exit("%s: has %d characters, too few for sample %d: gpt.job needs %d"
                     % (sys.argv[1], len(text), i, NEEDED))
        return self.text[i * CONTEXT:(i + 1) * CONTEXT + 1]


class GPT(Module):
    def __init__(self, letters):
        super().__init__()
        self.letter = Embedding(letters, WIDTH)
        self.place = Embedding(CONTEXT, WIDTH)
        layer = TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.1,
                                        activation="gelu", batch_first=True,
                                        norm_first=True)
        self.layers = TransformerEncoder(layer, LAYERS)
        self.head = Linear(WIDTH, letters)

    def forward(self, text):
        future = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).triu(1)
        return self.head(self.layers(self.letter(text) + self.place.weight, future))


def loss(task):
    text = torch.stack([data[task.kind][i] for i in task.indices])
    out = model(text[:, :-1])
    return functional.cross_entropy(out.flatten(0, 1), text[:, 1:].flatten(),
                                    reduction="sum") / CONTEXT, 0


torch.set_num_threads(1)
torch.manual_seed(int(os.environ.get("SEED", 1)))
with open(sys.argv[1], "rb") as f:
    raw = f.read()
text = raw.decode()
letters = sorted(set(text))
at = {letter: i for i, letter in enumerate(letters)}
text = torch.tensor([at[letter] for letter in text])
train = len(text) // 10 * 9
data = {"train": Windows(text[:train]), "eval": Windows(text[train:])}
model = GPT(len(letters))
if sys.argv[2:]:
    falcon_train.save(model, sys.argv[2])
else:
    # A worker with another text is refused.
    falcon_train.torch(model, loss, has={"data": hashlib.sha256(raw).hexdigest()})
