#!/usr/bin/python3 -B
"""A trainer of examples/exec without Falcon: the same script, unchanged, in plain PyTorch.

plain.py record DIR SCRIPT [ARG...]
        is a trainer for falcon-work --exec, SCRIPT, and writes down in DIR what the job
        began with and which samples it saw in which task.
plain.py train DIR STATE SCRIPT [ARG...]
        trains SCRIPT's model on those batches, with torch.optim and the learning rates of
        the job in STATE, judges it, and prints a JSON object: accuracy, test_loss, and how
        far the tensors are apart that Falcon's model and this one have: the largest
        distance of two, as a part of the length of one.
"""

import configparser
import json
import os
import runpy
import sys
import types

import torch

OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {}),
    "momentum": (torch.optim.SGD, {"momentum": "momentum"}),
    "nesterov": (torch.optim.SGD, {"momentum": "momentum"}),
    "adagrad": (torch.optim.Adagrad, {"eps": "eps"}),
    "adamw": (torch.optim.AdamW, {"eps": "eps"}),
}


def optimizer(text, model):
    kind, keys = OPTIMIZERS[text["kind"]]
    keys = {k: text.getfloat(v) for k, v in keys.items() if v in text}
    if text["kind"] == "nesterov":
        keys["nesterov"] = True
    if text["kind"] == "adamw":
        keys["betas"] = (text.getfloat("beta1", 0.9), text.getfloat("beta2", 0.999))
    return kind(model.parameters(), lr=text.getfloat("lr"),
                weight_decay=text.getfloat("weight-decay", 0), **keys)


def tasks_of(lines):
    """[clock][task] = (seed, indices): those of a task that came twice are the same."""
    clocks = {}
    for line in lines:
        clock, task, seed, *indices = map(int, line.split())
        clocks.setdefault(clock, {})[task] = seed, indices
    return [[t for _, t in sorted(clocks[c].items())] for c in sorted(clocks)]


def task(kind, indices, seed=0):
    return types.SimpleNamespace(kind=kind, train=kind == "train", count=len(indices),
                                 indices=indices, seed=seed)


def judge(model, loss, total):
    model.eval()
    right = losses = 0
    with torch.no_grad():
        for first in range(0, total, 100):
            t = task("eval", list(range(first, min(first + 100, total))))
            one, ok = loss(t)
            losses, right = losses + one.item(), right + int(ok)
    return {"accuracy": right / total, "test_loss": losses / total}


def apart(model, state):
    mine, worst = model.state_dict(), {}
    with open(state + "/model.safetensors", "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data = bytearray(f.read())
    for name, t in header.items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            theirs = torch.frombuffer(data, dtype=torch.float32, offset=begin,
                                      count=(end - begin) // 4).reshape(t["shape"])
            worst[name] = float((theirs - mine[name]).norm() / mine[name].norm())
    return worst


def train(folder, state, model, loss):
    job = configparser.ConfigParser(inline_comment_prefixes=(" ;",), strict=False)
    job.read(state + "/job")
    with open(state + "/trace.jsonl") as f:
        trace = [json.loads(line) for line in f]
    rates = [e["lr"] for e in trace if e["ev"] == "update"]
    with open(folder + "/tasks") as f:
        batches = tasks_of(f)
    assert len(batches) == len(rates), (len(batches), len(rates))
    model.load_state_dict(torch.load(folder + "/first.pt"), strict=False)
    rule, clip = optimizer(job["optimizer"], model), job["optimizer"].getfloat("clip", 0)
    for rate, batch in zip(rates, batches):
        count = sum(len(indices) for _, indices in batch)
        model.train()
        rule.zero_grad()
        for seed, indices in batch:
            torch.manual_seed(seed)
            one, _ = loss(task("train", indices, seed))
            (one / count).backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        rule.param_groups[0]["lr"] = rate
        rule.step()
    return {**judge(model, loss, trace[0]["test"]), "apart": apart(model, state)}


def record(folder, model, loss):
    os.makedirs(folder, exist_ok=True)
    log = open(folder + "/tasks", "a", buffering=1)

    def recorded(t):
        # Not the fixed task of the beginning, which is on other parameters.
        if t.train and t.id < 1 << 48:
            if not os.path.exists(folder + "/first.pt"):
                torch.save(model.state_dict(), folder + "/first.pt")
            print(t.clock, t.task, t.seed, *t.indices, file=log)
        return loss(t)

    return recorded


def main():
    how, folder, *rest = sys.argv[1:]
    if how == "record":
        import falcon_train
        begin = falcon_train.torch
        falcon_train.torch = lambda model, loss, **o: begin(model, record(folder, model, loss), **o)
    else:
        state = rest.pop(0)
        sys.modules["falcon_train"] = types.SimpleNamespace(
            torch=lambda model, loss, **o: print(json.dumps(train(folder, state, model, loss))))
    sys.argv = rest
    sys.path.insert(0, os.path.dirname(os.path.abspath(rest[0])))
    runpy.run_path(rest[0], run_name="__main__")


main()
