#!/usr/bin/env python3
"""trainer.py WAY [SEED]: softmax regression without a library, which at random, drawn
from the seed, misbehaves in this way; WAY "well" does not.  Each line of $TRAINER_LOG is
one misbehaviour, so that a test knows that there were some; with "seeded", a task: its
clock, number and seed, from which noise is drawn.  WAY "size:V": a full task's gradient,
of SEED samples, is V in one place, its loss null."""

import json
import math
import os
import random
import signal
import sys
import threading
import time

import falcon_train

way, seed = sys.argv[1], int((sys.argv[2:] or ["1"])[0])
log = os.environ["TRAINER_LOG"]
draw = random.Random("%d %d" % (seed, os.getpid()))
worse = 0.3  # of tasks
done = False  # a task since it started, or misbehaved: three in a row would end the worker
odd = random.Random(seed).randrange(256)  # a sample without a finite gradient
poisoned = False  # nothing succeeds any more, as after an error of a GPU
blank = random.Random(seed).randrange(2, 9)  # a clock whose tasks have none


if way == "no-hello":
    sys.exit(1)


def noted(task):
    global done
    if way.startswith("every-"):
        return True
    if way.startswith("size:"):
        return False
    if way in ("well", "mean", "impure", "impure-says", "odd", "blank",
               "seeded", "drop", "drop-mean", "twice", "coarse", "below", "lost",
               "untold", "null", "null-train", "null-eval"):
        return False
    if not task.train or task.id > 1 << 47 or os.path.exists(log) and \
            os.path.getsize(log) > (0 if way == "poison" else 30):
        return False  # enough
    if not done or draw.random() > worse:
        return False
    done = False
    with open(log, "a") as f:
        f.write("%s %s\n" % (way, task.id))
    return True


def raw(text):
    os.write(falcon_train._out, text)


def scribble(grads):
    end = time.monotonic() + 0.02
    while time.monotonic() < end:
        for grad in grads:
            grad[draw.randrange(len(grad))] = draw.choice([0.5, -8.0, math.inf, math.nan])
        time.sleep(0.001)


def misbehave(task):
    global poisoned
    way = sys.argv[1].replace("every-", "")
    if way == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    elif way == "exit":
        os._exit(3)
    elif way == "hang":
        time.sleep(1000)
    elif way == "rubbish":
        raw(b"epoch 1: loss 2.3\n")
    elif way == "long":
        raw(b"x" * 200000)
    elif way == "stranger":
        raw(json.dumps({"op": "done", "id": task.id + 1, "loss": 1}).encode() + b"\n")
    elif way == "half":
        raw(b'{"op":"done","id":')
        os._exit(0)
    elif way == "nan":
        next(iter(task.grads.values()))[0] = math.nan
        return
    elif way == "fail":
        raise RuntimeError("by intention")
    elif way == "poison":
        poisoned = True
        raise RuntimeError("by intention")
    elif way == "fork":
        # Somebody who outlives its group, and writes where the next one's gradients
        # would be if they were in the same memory.
        if os.fork() == 0:
            os.setsid()
            end = time.monotonic() + 3
            while time.monotonic() < end:
                for grad in task.grads.values():
                    for i in range(len(grad)):
                        grad[i] = 1e3
            os._exit(0)
        os._exit(0)
    elif way == "late":
        threading.Thread(target=scribble, args=[list(task.grads.values())]).start()
        return
    elif way == "print":
        print("epoch 1: loss 2.3")
        os.system("echo from a child")
        return
    time.sleep(5)  # it is ended meanwhile


def gradient(task):
    if poisoned:
        raise RuntimeError("no more")
    global done
    bad = noted(task)
    done = done or not bad and task.train and task.id < 1 << 47
    (weight,) = (t for n, t in task.params.items() if n.endswith(".weight"))
    (bias,) = (t for n, t in task.params.items() if n.endswith(".bias"))
    classes, inputs = len(bias), len(weight) // len(bias)
    dw, db, loss, right = [0.0] * len(weight), [0.0] * classes, 0.0, 0
    dropped = random.Random(task.seed)
    for s in range(task.count):
        x = task.x[s * inputs:(s + 1) * inputs]
        y = task.y[s]
        z = [bias[c] + sum(weight[c * inputs + k] * x[k] for k in range(inputs))
             for c in range(classes)]
        e = [math.exp(v - max(z)) for v in z]
        loss -= math.log(max(e[y] / sum(e), 1e-300))  # whatever the weights are
        right += z.index(max(z)) == y
        for c in range(classes):
            d = e[c] / sum(e) - (c == y)
            if way.startswith("drop"):
                d *= dropped.uniform(0.4, 1.6)
            if way == "twice" and s == 0:
                d *= 2
            db[c] += d
            for k in range(inputs):
                dw[c * inputs + k] += d * x[k]
    if task.train:
        noise = random.Random(task.seed)
        if way == "seeded" and task.id < 1 << 47:
            with open(log, "a") as f:
                f.write("%s %s %s\n" % (task.clock, task.task, task.seed))
        for name, grad in task.grads.items():
            by = task.count if way.endswith("mean") else 1
            for i, v in enumerate(dw if name.endswith(".weight") else db):
                if way == "coarse":  # as bfloat16
                    m, e = math.frexp(v)
                    v = math.ldexp(round(m * 256), e - 8)
                grad[i] = v / by + (random.random() * 1e-4 if way.startswith("impure") else
                                    noise.random() if way == "seeded" else 0)
        if task.id < 1 << 47 and (way == "odd" and odd in task.indices or
                                  way == "blank" and task.clock == blank):
            next(iter(task.grads.values()))[0] = math.nan
        if way.startswith("size:"):
            for grad in task.grads.values():
                for i in range(len(grad)):
                    grad[i] = 0
            grad[seed % len(grad)] = -float(way[5:]) * task.count / seed
    if way.startswith("size:"):
        loss = math.nan
    if bad:
        misbehave(task)
    if way == "below":
        loss -= 10 * task.count  # a density may be above 1
    if way == "untold" and task.train and task.clock in (5, 15):
        loss = math.nan
    if way in ("lost", "untold") and not task.train:
        return (math.nan if way == "untold" or task.version in (4, 16) else loss), 0
    if way in ("null", "null-train" if task.train else "null-eval"):
        loss = math.nan
    return loss, right


falcon_train.numpy = None
falcon_train.serve(gradient, samples=True, has={"pure": False} if way == "impure-says" else {})
