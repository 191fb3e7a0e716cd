"""A perceptron of a given width, a trainer of falcon-gradient(7), and the same in plain
PyTorch, on samples that are drawn once:

    mlp.py WIDTH                    the trainer; with $SPENT, as many tasks in plain
                                    PyTorch, a few before each few, and for each $TASKS a
                                    line in that file of what was spent so far, in
                                    seconds: by it and falcon-work, CPU and wall; by plain
                                    PyTorch, likewise
    mlp.py WIDTH init FILE          writes its first parameters
    mlp.py WIDTH count              prints how many parameters there are
"""
import os
import sys
import time

import falcon_train
import torch
from torch.nn import Linear, ReLU, Sequential, functional


def made(width):
    return Sequential(Linear(784, width), ReLU(), Linear(width, width), ReLU(),
                      Linear(width, 10))


def judged(model, indices):
    at = torch.as_tensor(indices) % len(x)
    out = model(x[at])
    return functional.cross_entropy(out, y[at], reduction="sum"), (out.argmax(1) == y[at]).sum()


def loss(task):
    return judged(model, task.indices)


def one(model, count):
    first = int(torch.randint(60000 - count, ()))
    sum_of_losses, right = judged(model, order[first:first + count])
    sum_of_losses.backward()
    return sum_of_losses.item(), int(right)


def parent():
    """CPU seconds of falcon-work: of all its threads, as each of them ran."""
    threads, spent = "/proc/%d/task" % os.getppid(), 0
    for thread in os.listdir(threads):
        with open("%s/%s/schedstat" % (threads, thread)) as f:
            spent += int(f.read().split()[0])
    return spent / 1e9


class Turns:
    """Tasks of plain PyTorch between those of falcon-work: so many that neither begins
    each time with the caches of the other, as it did at 4; no more, as a trainer that does
    not answer for long is ended."""
    FEW = 16

    def __init__(self, width, tasks):
        self.model, self.tasks, self.seen = made(width), tasks, 0
        self.rule = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.plain = [0, 0]

    def step(self, samples):
        for p in self.model.parameters():
            p.grad /= samples
        self.rule.step()
        self.rule.zero_grad()

    def turn(self, task):
        before = self.now()
        if self.seen > 0 and self.seen % self.tasks == 0:
            self.step(task * self.tasks)
        for _ in range(self.FEW):
            one(self.model, task)
        after = self.now()
        self.plain = [p + b - a for p, a, b in zip(self.plain, before, after)]
        if self.seen % self.tasks == 0:
            both = after[0] + parent() - self.plain[0], after[1] - self.plain[1]
            with open(os.environ["SPENT"], "a") as f:
                print(*both, *self.plain, file=f)

    def loss(self, task):
        if task.train and task.id < 1 << 48:  # not the fixed task of the beginning
            if self.seen % self.FEW == 0:
                self.turn(task.count)
            self.seen += 1
        return loss(task)

    @staticmethod
    def now():
        return time.process_time(), time.perf_counter()


torch.set_num_threads(1)
torch.manual_seed(1)
out = open(falcon_train._out, "w", closefd=False, buffering=1)
width, how, rest = int(sys.argv[1]), sys.argv[2:3], sys.argv[3:]
x, y = torch.randn(8192, 784), torch.randint(10, (8192,))
order = torch.randperm(60000)  # as falcon-ps draws one
model = made(width)
if not how:
    turns = Turns(width, int(os.environ["TASKS"])) if "SPENT" in os.environ else None
    falcon_train.torch(model, turns.loss if turns else loss)
elif how == ["init"]:
    falcon_train.save(model, rest[0])
else:
    print(sum(p.numel() for p in model.parameters()), file=out)
