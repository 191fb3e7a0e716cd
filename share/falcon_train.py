"""Let a Python program compute the gradients of a Falcon job: falcon-gradient(7).
From its import on, what is printed goes to stderr.  One file, to be copied anywhere.

    falcon-work --exec 'python3 train.py' HOST:PORT

NumPy, any library, or none:
    import falcon_train
    def gradient(task):             # fill task.grads, return the SUM of losses
        x, y = data[task.indices]   # and how many samples are right
        ...
        task.grads["weight"][:] = ...
        task.metric("tokens", n)    # a sum of your own, if the job's metrics name it
        return loss, right          # or loss, right, {"tokens": n}
    falcon_train.serve(gradient)

PyTorch, for a model whose parameters have the names of the job's:
    def loss(task):                 # the SUM of losses
        out = model(x[task.indices])
        return F.cross_entropy(out, y[task.indices], reduction="sum"), \\
            (out.argmax(1) == y[task.indices]).sum()
    falcon_train.torch(model, loss)
"""

import collections
import ctypes
import functools
import hashlib
import json
import math
import mmap
import os
import random
import sys
import traceback

try:
    import numpy
except ImportError:
    numpy = None

# Descriptors 0 and 1 are the protocol's: nobody else is to read or print there.
_in, _out = os.dup(0), os.dup(1)
os.dup2(2, 1)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
_heard = collections.deque([b""])  # lines, of which the last one is not whole
_read = json.JSONDecoder().raw_decode


def _say(**word):  # a file's name in it may be no UTF-8
    os.write(_out, json.dumps(word, ensure_ascii=False).encode(errors="replace") + b"\n")


def _word():
    """The next message.  Ends the program with falcon-work."""
    while len(_heard) == 1:
        some = os.read(_in, 1 << 16) or sys.exit(0)
        _heard.extend((_heard.pop() + some).split(b"\n"))
    line, found, many = _heard.popleft().decode().partition(',"indices":[')
    many, end, rest = many.partition("]")
    if numpy is None or not found:
        return _read(line + found + many + end + rest)[0]
    return {**_read(line + rest)[0], "indices": numpy.fromstring(many, int, sep=",")}


class _Area:
    """A memory that is a safetensors file; its data begin at `data`, `wrap` makes a tensor."""

    def __init__(self, name, data, wrap):
        fd = int(os.environ["FALCON_%s_FD" % name.upper()])
        # A private mapping looks writable to those who insist, and shows what is new.
        self.map = mmap.mmap(fd, 0, mmap.MAP_SHARED if name == "grads" else mmap.MAP_PRIVATE)
        n = int.from_bytes(self.map[:8], "little")
        self.header = json.loads(self.map[8:8 + n])
        self.frozen = self.header.pop("__metadata__", {})
        self.wrap = wrap
        self.tensors = self.at(data)

    def at(self, data):
        flat, kinds = memoryview(self.map)[data:], {"F32": "f", "I64": "q"}
        return {name: self.wrap(flat[slice(*t["data_offsets"])].cast(kinds[t["dtype"]]), t["shape"])
                for name, t in self.header.items()}


class Task:
    """id, kind ("train" or "eval"), clock, task, version, seed, indices (an array), count;
    params and grads, {name: array}, without NumPy flat ones; x and y, if they are wanted."""

    def __init__(self, word, areas):
        self.__dict__.update(word)
        self.metrics = dict.fromkeys(areas["metrics"])  # None: not known
        self.seed = int(word["seed"], 16)
        self.train = word["kind"] == "train"
        self.params = areas["params"].tensors
        self.grads = areas["grads"](word["grads"]) if self.train else None
        if "samples" in areas:
            full = areas["samples"].header["y"]["shape"][0]  # views may have no dimensions
            at = areas["samples"].tensors
            self.x, self.y = (at[k][:len(at[k]) // full * self.count] for k in "xy")

    def metric(self, name, value):
        """Adds to the task's sum of a metric of the job: a SUM over samples, not a mean."""
        if name not in self.metrics:
            raise ValueError("'%s' is not among job.metrics of the job" % name)
        self.metrics[name] = (self.metrics[name] or 0) + float(value)


def _number(x):  # json.dumps costs more
    return b"%a" % x if x is not None and math.isfinite(x) else b"null"


def _answer(task, gradient):
    try:
        loss, right, *more = gradient(task)
        for name, value in more[0].items() if more else ():
            task.metric(name, value)
        metrics = b",".join(map(_number, task.metrics.values()))
        os.write(_out, b'{"op":"done","id":%d,"loss":%b,"right":%d,"metrics":[%b]}\n'
                 % (task.id, _number(float(loss)), right, metrics))
    except Exception as e:  # of this task; the next one may be well
        traceback.print_exc()
        _say(op="fail", id=task.id, why=f"{type(e).__name__}: {e}"[:1000].replace("\0", "?"))


def _item(x):
    """Bytes that are the same wherever this item of a data set is the same."""
    if isinstance(x, dict):
        x = [*x.items()]
    if isinstance(x, (list, tuple)):
        return b"(%b)" % b",".join(map(_item, x))
    x = x.detach().cpu().numpy() if hasattr(x, "detach") else x
    if hasattr(x, "tobytes"):  # of NumPy, or an image of PIL
        kind = getattr(x, "dtype", None) or x.mode
        return b"%a%b" % ((str(kind), getattr(x, "shape", None) or x.size), x.tobytes())
    if isinstance(x, (bool, int, float, str, bytes, type(None))):
        return b"%a" % (x,)
    raise TypeError("dataset: an item of type %s: give falcon_train has= with a hash of your own"
                    % type(x).__name__)


def _census(sets, seed, also):
    """What hello says of data: the lengths, and a hash of them and of 64 items of each."""
    sets = sets if isinstance(sets, tuple) else [sets]
    data = hashlib.sha256(also.encode())
    for items in sets:
        n = len(items)
        data.update(b"%d;" % n)
        for i in sorted({0, n - 1, *random.Random(n).sample(range(n), min(n, 62))}):
            random.seed(i), numpy and numpy.random.seed(i), seed(i)  # a transform may draw
            data.update(b"%d:%b;" % (i, _item(items[i])))
    return {**dict(zip(("train", "test"), map(len, sets))), "data": data.hexdigest()}


def serve(gradient, samples=False, about="Python", has={}, dataset=None, _seed=lambda seed: None,
          _wrap=lambda flat, shape: numpy.asarray(flat).reshape(shape) if numpy else flat,
          _begin=lambda area, job: None):
    """Computes tasks until falcon-work ends.

    gradient(task)  fills task.grads (nothing for task.kind "eval") with the SUM over the
                    task's samples; returns the sum of losses, how many are right,
                    and perhaps a dict of metrics (Task.metric)
    samples         task.x and task.y are to be Falcon's data
    dataset         data of your own, indexed as the job's samples, or (training, test):
                    whoever has another length, or other items, is sent away
    has             the same by hand: {"train": samples, "test": samples, "data": 64 digits
                    of a hash}; with dataset, "data" is of what else all must have
    """
    areas = {}
    if dataset is not None:
        has = {**has, **_census(dataset, _seed, has.get("data", ""))}
    while True:
        word = _word()
        if word["op"] == "hello":
            _say(op="hello", protocol=1, samples=samples, about=about, **has)
        elif word["op"] == "job":
            areas = {name: _Area(name, word[name]["data"], _wrap)
                     for name in ("params", "grads", "samples") if name in word}
            areas["grads"] = functools.cache(areas["grads"].at)
            areas["metrics"] = word.get("metrics", [])
            _begin(areas["params"], word)
        elif word["op"] == "task":
            _answer(Task(word, areas), gradient)


def torch(model, loss, **options):
    """serve() for a torch.nn.Module on any device: loss(task) returns the SUM of losses, a
    tensor, how many samples are right, and perhaps a dict of metrics.  The job's
    model.buffers are BatchNorm's.  What it writes to parameters ends with the task, but for
    what goes through .data.  The options are serve()'s, such as dataset=."""
    import torch as t

    def wrap(flat, shape):
        return t.frombuffer(flat, dtype={"f": t.float32, "q": t.int64}[flat.format]).reshape(shape)
    named, stats, kept, held, bare = dict(model.named_parameters()), set(), [], [], []
    modules = [*model.modules()]
    for prefix, module in model.named_modules():
        if getattr(module, "track_running_stats", False):
            module.momentum = 1.0  # what it keeps is the task's own; Falcon lets it run
            stats |= {prefix + "." * bool(prefix) + k for k in ("running_mean", "running_var")}

    def begin(area, job):
        named.update((k, b) for k, b in model.named_buffers() if k in area.header or k in stats)
        kept[:] = [p for name, p in named.items() if name not in stats]
        bare[:] = [name for name in named if job["decay"] and name not in {*stats, *area.frozen}]
        its = {(k, tuple(v["shape"])) for k, v in area.header.items()}
        mine = {(k, tuple(p.shape)) for k, p in named.items()}
        if stats - set(job["buffers"]):
            _say(op="refuse", why="the model has batch statistics: the job's [model] lacks the "
                 "line 'buffers = *.running_mean *.running_var'")
        elif its != mine or stats != set(job["buffers"]):
            _say(op="refuse", why=("the job's tensors or buffers are not the model's: only here, "
                 "there, or reshaped: %s %s" % (its ^ mine, stats ^ {*job["buffers"]}))[:1000])

    def gradient(task):
        for name in stats if held == [task.edition, *(p._version for p in kept)] else named:
            named[name].detach().copy_(task.params[name])  # a loss that wrote there is undone, too
        held[:] = task.edition, *(p._version for p in kept)
        for p in kept:
            p.grad = None
        if any(m.training != task.train for m in modules):
            model.train(task.train)
        seed(task.seed)
        with t.set_grad_enabled(task.train):
            sum_of_losses, *counts = loss(task)
        if task.train:
            sum_of_losses.backward()
            lack, bare[:] = [name for name in bare if named[name].grad is None], []
            if lack:  # in the first task; PyTorch would leave them alone
                _say(op="refuse", why=("weight-decay pulls at parameters without gradient: freeze "
                     "them in the job, or before falcon_train.save: " + " ".join(lack))[:1000])
            for name, p in named.items():
                grad = p * task.count if name in stats else p.grad
                task.grads[name].copy_(grad) if grad is not None else task.grads[name].zero_()
        return sum_of_losses.item(), *counts

    mallopt = getattr(ctypes.CDLL(None), "mallopt", max)  # what a task frees is for the next:
    mallopt(-1, 1 << 30), mallopt(-3, 1 << 25)  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of glibc
    device = next(model.parameters()).device  # t.manual_seed costs 0.2 ms without a GPU:
    seed = (t.default_generator if device.type == "cpu" else t).manual_seed
    about = "torch %s %s" % (t.__version__, device)
    serve(gradient, **{"about": about, **options}, _wrap=wrap, _begin=begin, _seed=t.manual_seed)


def _running(model):
    return {k: b for k, b in model.named_buffers() if "running_" in k}


def save(model, path):
    """Writes what a torch.nn.Module begins with as a safetensors file, for model.init."""
    frozen = {k: "frozen" for k, p in model.named_parameters() if not p.requires_grad}
    header, data = {"__metadata__": frozen} if frozen else {}, b""
    for name, t in (*model.named_parameters(), *_running(model).items()):
        at, data = len(data), data + bytes(t.detach().float().cpu().contiguous().numpy())
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [at, len(data)]}
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + data)


def load(model, path):
    """Reads a safetensors file, such as a job's model.safetensors, into a torch.nn.Module,
    whose parameters and running statistics must be those of the file."""
    import torch as t
    kinds = {"F64": t.float64, "F32": t.float32, "F16": t.float16, "BF16": t.bfloat16,
             "I64": t.int64}
    with open(path, "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data = bytearray(f.read())
    header.pop("__metadata__", None)
    mine = {**dict(model.named_parameters()), **_running(model)}
    its = {(k, tuple(v["shape"])) for k, v in header.items() if v["dtype"] != "I64"}
    odd = its ^ {(k, tuple(p.shape)) for k, p in mine.items()}
    if odd:
        raise ValueError("%s: only there, in the model, or reshaped: %s" % (path, sorted(odd)))
    mine.update(model.named_buffers())
    with t.no_grad():
        for name, v in header.items():
            at, end = v["data_offsets"]
            if name in mine and end > at:
                mine[name].copy_(t.frombuffer(data[at:end], dtype=kinds[v["dtype"]])
                                 .reshape(v["shape"]))
