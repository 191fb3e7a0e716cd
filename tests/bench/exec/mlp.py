"""A perceptron of a given width, a trainer of falcon-gradient(7), and the same in plain
PyTorch, on samples that are drawn once:

    mlp.py WIDTH                    the trainer; $SPENT, if there is one, always has the
                                    CPU seconds that it spent in the model
    mlp.py WIDTH init FILE          writes its first parameters
    mlp.py WIDTH count              prints how many parameters there are
    mlp.py WIDTH fit MS             prints how many samples take so long
    mlp.py WIDTH plain TASK TASKS CLOCKS
            trains so many clocks; prints for each its wall and its CPU seconds
"""
import os
import sys
import time

import falcon
import torch
from torch.nn import Linear, ReLU, Sequential, functional


class Spent:
    """What is spent within it, added up in $SPENT."""
    total = 0

    def __init__(self):
        self.file = os.open(os.environ["SPENT"], os.O_WRONLY)

    def within(self, f):
        def timed(*args):
            begin = time.process_time()
            result = f(*args)
            self.total += time.process_time() - begin
            os.pwrite(self.file, b"%20.9f" % self.total, 0)
            return result
        return timed


def loss(task):
    at = torch.tensor(task.indices) % len(x)
    out = model(x[at])
    return functional.cross_entropy(out, y[at], reduction="sum"), (out.argmax(1) == y[at]).sum()


class Task:
    train = True

    def __init__(self, count):
        first = int(torch.randint(60000 - count, ()))
        self.indices = list(range(first, first + count))


def one(count):
    sum_of_losses, right = loss(Task(count))
    sum_of_losses.backward()
    return sum_of_losses.item(), int(right)


def fit(ms):
    def took(count, times=15):
        spent = []
        for _ in range(times):
            begin = time.process_time()
            one(count)
            spent.append(time.process_time() - begin)
        return sorted(spent)[times // 2] * 1000

    took(64)
    count = 8
    for _ in range(4):
        count = max(1, min(4000, round(count * ms / took(count))))
    return count


def plain(task, tasks, clocks):
    rule = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for _ in range(clocks):
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(tasks):
            one(task)
        for p in model.parameters():
            p.grad /= task * tasks
        rule.step()
        rule.zero_grad()
        print(time.perf_counter() - wall, time.process_time() - cpu, file=out)


torch.set_num_threads(1)
torch.manual_seed(1)
out = open(falcon._out, "w", closefd=False, buffering=1)
width, how, rest = int(sys.argv[1]), sys.argv[2:3], sys.argv[3:]
x, y = torch.randn(8192, 784), torch.randint(10, (8192,))
model = Sequential(Linear(784, width), ReLU(), Linear(width, width), ReLU(),
                   Linear(width, 10))
if not how:
    if "SPENT" in os.environ:
        spent = Spent()
        loss, torch.Tensor.backward = map(spent.within, (loss, torch.Tensor.backward))
    falcon.torch(model, loss)
elif how == ["init"]:
    falcon.save(model, rest[0])
elif how == ["count"]:
    print(sum(p.numel() for p in model.parameters()), file=out)
elif how == ["fit"]:
    print(fit(float(rest[0])), file=out)
else:
    plain(*map(int, rest))
