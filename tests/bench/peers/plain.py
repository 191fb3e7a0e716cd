"""plain.py MODEL RANK RANKS FILE: trains a model of falcon-model(5) on Fashion-MNIST in
PyTorch, 64 samples a rank and step, and prints how many all ranks train in a second, by a
step of the middle; of more than one by DistributedDataParallel over Gloo, which meet by
FILE.  Images are in channels_last, PyTorch's fastest layout for convolutions on CPUs.
"""
import gzip
import os
import statistics
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../torch"))
import model as models  # noqa: E402

TASK, STEPS, WARM = 64, 300, 20
DATA = "/usr/share/datasets/fashion-mnist/train-"


def idx(name, head):
    with gzip.open(DATA + name) as f:
        return torch.from_numpy(np.frombuffer(f.read(), np.uint8, offset=head).copy())


torch.set_num_threads(1)
torch.manual_seed(1)
rank, ranks = int(sys.argv[2]), int(sys.argv[3])
net, shape = models.sequential(sys.argv[1])
layout = torch.channels_last if len(shape) == 3 else torch.contiguous_format
net = net.to(memory_format=layout)
if ranks > 1:
    dist.init_process_group("gloo", init_method="file://" + sys.argv[4], rank=rank,
                            world_size=ranks)
    net = DistributedDataParallel(net, gradient_as_bucket_view=True)
x = ((idx("images-idx3-ubyte.gz", 16).float() / 255 - 0.2860) / 0.3530).reshape(-1, *shape)
x = x.contiguous(memory_format=layout)
y = idx("labels-idx1-ubyte.gz", 8).long()
order = torch.randperm(len(x))[rank::ranks]
rule = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, nesterov=True,
                       weight_decay=5e-4)
took = []
last = time.monotonic()
for step in range(STEPS):
    at = order[torch.arange(step * TASK, (step + 1) * TASK) % len(order)]
    functional.cross_entropy(net(x[at].contiguous(memory_format=layout)), y[at]).backward()
    rule.step()
    rule.zero_grad()
    now = time.monotonic()
    took.append(now - last)
    last = now
print(TASK * ranks / statistics.median(took[WARM:]))
if ranks > 1:
    # Whoever goes while others still talk to it may take them along.
    dist.barrier()
    dist.destroy_process_group()
