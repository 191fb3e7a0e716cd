"""plain.py MODEL HOW [RANK RANKS FILE]: a model, "mlp" (670 thousand parameters) or "gpt" (3
million), on drawn samples, in clocks of 4 tasks of TASK samples.

    init FILE   writes its first parameters
    trainer     a trainer of falcon-gradient(7)
    loop        the same in plain PyTorch, a step a clock; of more than one rank by
                DistributedDataParallel over Gloo, which meet by FILE.  Prints samples a
                second of all ranks by a median clock, with passes of a task or of all that
                the rank has, whichever is the faster.
"""
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.nn import (Embedding, Linear, Module, ReLU, Sequential, TransformerEncoder,
                      TransformerEncoderLayer, functional)
from torch.nn.parallel import DistributedDataParallel

TASKS, CLOCKS, WARM = 4, 30, 5
LETTERS, CONTEXT = 96, 32


class GPT(Module):
    def __init__(self, width=256):
        super().__init__()
        self.letter = Embedding(LETTERS, width)
        self.place = Embedding(CONTEXT, width)
        layer = TransformerEncoderLayer(width, 4, 4 * width, 0, "gelu", batch_first=True,
                                        norm_first=True)
        self.layers = TransformerEncoder(layer, 4)
        self.head = Linear(width, LETTERS)

    def forward(self, text):
        future = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).triu(1)
        return self.head(self.layers(self.letter(text) + self.place.weight, future)).flatten(0, 1)


torch.set_num_threads(1)
torch.manual_seed(1)
name, how, rest = sys.argv[1], sys.argv[2], sys.argv[3:]
if name == "mlp":
    task, model = 64, Sequential(Linear(784, 512), ReLU(), Linear(512, 512), ReLU(),
                                 Linear(512, 10))
    x, y = torch.randn(8192, 784), torch.randint(10, (8192,))
else:
    task, model = 4, GPT()
    x = torch.randint(LETTERS, (8192, CONTEXT))
    y = x.roll(-1, 1)


def loss(task):
    at = torch.as_tensor(task.indices) % len(x)
    return functional.cross_entropy(model(x[at]), y[at].flatten(), reduction="sum"), 0


def clocks(net, rule, order, samples, passes):
    took, last = [], time.monotonic()
    for clock in range(CLOCKS):
        for part in range(passes):
            first = (clock * passes + part) * samples // passes
            at = order[torch.arange(first, first + samples // passes) % len(order)]
            (functional.cross_entropy(net(x[at]), y[at].flatten()) / passes).backward()
        rule.step()
        rule.zero_grad()
        now = time.monotonic()
        took.append(now - last)
        last = now
    return statistics.median(took[WARM:])


if how == "init":
    import falcon_train as falcon
    falcon.save(model, rest[0])
elif how == "trainer":
    import falcon_train as falcon
    falcon.torch(model, loss)
else:
    rank, ranks, net = int(rest[0]), int(rest[1]), model
    if ranks > 1:
        dist.init_process_group("gloo", init_method="file://" + rest[2], rank=rank,
                                world_size=ranks)
        net = DistributedDataParallel(net, gradient_as_bucket_view=True)
    rule = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    order = torch.randperm(len(x))[rank::ranks]
    # Passes of a task would be summed by all ranks, each of them.
    time_of = min(clocks(net, rule, order, TASKS * task // ranks, passes)
                  for passes in ([1] if ranks > 1 else [1, TASKS]))
    print(TASKS * task / time_of)
    if ranks > 1:
        # Whoever goes while others still talk to it may take them along.
        dist.barrier()
        dist.destroy_process_group()
