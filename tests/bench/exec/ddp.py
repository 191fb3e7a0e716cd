"""ddp.py RATE BATCH UPDATES SCRIPT: a trainer of examples/exec, unchanged, under
DistributedDataParallel over Gloo: this rank takes the time of a machine that trains RATE
samples in a second.  RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are in the environment.
Rank 0 prints, of each update, when it was done and the mean loss of its samples.
"""
import os
import runpy
import sys
import time
import types

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SAMPLES = 60000


def drawn(update, rank, share):
    order = torch.Generator().manual_seed(update)
    return torch.randint(SAMPLES, (share * dist.get_world_size(),),
                         generator=order)[rank * share:(rank + 1) * share].tolist()


class Whole(torch.nn.Module):
    def __init__(self, model, loss):
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, task):
        return self.loss(task)[0] / task.count


def train(model, loss):
    rate, batch, updates = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    dist.init_process_group("gloo")
    rank, share = dist.get_rank(), batch // dist.get_world_size()
    ddp = DistributedDataParallel(Whole(model, loss))
    rule = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9, nesterov=True,
                           weight_decay=5e-4)

    def task(update):
        indices = drawn(update, rank, share)
        return types.SimpleNamespace(kind="train", train=True, indices=indices, count=share)

    def backward_alone():
        with ddp.no_sync():
            one = ddp(task(0))
            begin = time.monotonic()
            one.backward()
            model.zero_grad()
        return time.monotonic() - begin

    alone = min(backward_alone() for _ in range(5))
    dist.barrier()
    first = time.monotonic()
    for update in range(updates):
        begin = time.monotonic()
        one = ddp(task(update))
        # What is left of it is backward, and the sums of all ranks.
        time.sleep(max(0, begin + share / rate - alone - time.monotonic()))
        one.backward()
        rule.step()
        rule.zero_grad()
        mean = one.detach()
        dist.all_reduce(mean)
        if rank == 0:
            print(time.monotonic() - first, mean.item() / dist.get_world_size(), flush=True)
    # Whoever goes while others still talk to it may take them along.
    dist.barrier()
    dist.destroy_process_group()


LR = float(os.environ["LR"])
torch.manual_seed(1)
sys.modules["falcon_train"] = types.SimpleNamespace(torch=train)
runpy.run_path(sys.argv[4], run_name="__main__")
