"""Let a Python program compute the gradients of a Falcon job: falcon-gradient(7).

    falcon-work --exec 'python3 train.py' HOST:PORT

NumPy, any library, or none:

    import falcon

    def gradient(task):             # fill task.grads, return the SUM of losses
        x, y = data[task.indices]   # and how many samples are right
        ...
        task.grads["weight"][:] = ...
        return loss, right

    falcon.serve(gradient)

PyTorch, for a model whose parameters have the names of the job's:

    def loss(task):                 # the SUM of losses, not the mean
        out = model(x[task.indices])
        return F.cross_entropy(out, y[task.indices], reduction="sum"), \\
            (out.argmax(1) == y[task.indices]).sum()

    falcon.torch(model, loss)

From the import on, what is printed goes to stderr.  One file, to be copied anywhere.
"""

import collections
import json
import math
import mmap
import os
import select
import sys
import traceback

try:
    import numpy
except ImportError:
    numpy = None

# Descriptors 0 and 1 are the protocol's: nobody else is to read or print there.
_in, _out = os.dup(0), os.dup(1)
os.dup2(2, 1)
_null = os.open(os.devnull, os.O_RDONLY)
os.dup2(_null, 0)
os.close(_null)

_DTYPES = {"F32": ("f", 4), "I64": ("q", 8)}


def _say(**word):
    line = json.dumps(word).encode() + b"\n"
    while line:
        line = line[os.write(_out, line):]


class _Lines:
    """What falcon-work says, with a look at what has come already."""

    def __init__(self):
        self.rest, self.lines = b"", collections.deque()

    def next(self, wait=True):
        """A message; None: there is none yet.  Ends the program with falcon-work."""
        while not self.lines:
            if not wait and not select.select([_in], [], [], 0)[0]:
                return None
            some = os.read(_in, 1 << 20)
            if not some:
                sys.exit(0)
            *whole, self.rest = (self.rest + some).split(b"\n")
            self.lines.extend(whole)
        return json.loads(self.lines.popleft())


class _Area:
    """A memory of places or slots, each a safetensors file of the same header."""

    def __init__(self, variable, shape, count, writable):
        fd, self.stride = int(os.environ[variable]), shape["stride"]
        size = self.stride * shape[count]
        # A private mapping looks writable to those who insist, and shows what is new.
        self.map = mmap.mmap(fd, size) if writable else mmap.mmap(
            fd, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
        n = int.from_bytes(self.map[:8], "little")
        self.header = json.loads(self.map[8:8 + n])
        self.data, self.views = 8 + n, {}

    def tensors(self, place, wrap):
        """{name: tensor} of a place; `wrap` makes one."""
        if place not in self.views:
            self.views[place] = {
                name: wrap(self.map, t["dtype"], t["shape"],
                           place * self.stride + self.data + t["data_offsets"][0])
                for name, t in self.header.items() if name != "__metadata__"}
        return self.views[place]


def _array(buffer, dtype, shape, offset):
    kind, size = _DTYPES[dtype]
    n = math.prod(shape)
    if numpy is not None:
        return numpy.frombuffer(buffer, kind, n, offset).reshape(shape)
    return memoryview(buffer)[offset:offset + n * size].cast(kind)


class Task:
    """id, kind ("train" or "eval"), clock, task, version, seed, indices, count; params
    and grads, {name: array} in shared memory, flat ones where there is no NumPy; x and y,
    if samples were asked for."""

    def __init__(self, word, areas, wrap):
        self.__dict__.update(word)
        self.seed = int(word["seed"], 16)
        self.train = word["kind"] == "train"
        self.params = areas["params"].tensors(self.place, wrap)
        self.grads = areas["grads"].tensors(self.slot, wrap) if self.train else None
        if "samples" in areas:
            full = areas["samples"].header["y"]["shape"][0]
            at = areas["samples"].tensors(self.slot, wrap)
            # A view without NumPy has no dimensions, and more than `full` elements.
            self.x, self.y = (at[k][:len(at[k]) // full * self.count] for k in "xy")


def _answer(task, gradient):
    try:
        loss, right = gradient(task)
        loss = float(loss)
        _say(op="done", id=task.id, loss=loss if math.isfinite(loss) else None,
             right=int(right))
    except Exception as e:  # of this task; the next one may be well
        traceback.print_exc()
        _say(op="fail", id=task.id, why="%s: %s" % (type(e).__name__, e))


def serve(gradient, samples=False, depth=1, ahead=None, about="", has=None, _wrap=_array,
          _begin=None):
    """Computes tasks until falcon-work ends.

    gradient(task)  fills task.grads (nothing for task.kind "eval") with the SUM of the
                    gradients over the task's samples; returns the sum of losses, and how
                    many samples are right
    samples         task.x and task.y are to be Falcon's data
    depth           so many tasks are here at a time, one of them at work;
    ahead(task)     is called when one has come: a good moment to begin to load it
    has             of data of your own: {"train": samples, "test": samples, "data": 64
                    digits of a hash of them}; whoever has other data is sent away
    """
    lines, areas, queue = _Lines(), {}, collections.deque()
    while True:
        word = lines.next(wait=not queue)
        if word is None:
            _answer(queue.popleft(), gradient)
        elif word["op"] == "hello":
            _say(op="hello", protocol=1, samples=samples, depth=depth,
                 about=about or "Python %s" % sys.version.split()[0], **(has or {}))
        elif word["op"] == "job":
            for key, count, writable in (("params", "places", False),
                                         ("grads", "slots", True),
                                         ("samples", "slots", False)):
                if key in word:
                    areas[key] = _Area("FALCON_%s_FD" % key.upper(), word[key], count,
                                       writable)
            if _begin is not None:
                _begin(areas["params"].header, word["buffers"])
        elif word["op"] == "task":
            queue.append(Task(word, areas, _wrap))
            if ahead is not None:
                ahead(queue[-1])
        elif word["op"] == "cancel":
            for task in [t for t in queue if t.id == word["id"]]:
                queue.remove(task)
                _say(op="cancelled", id=task.id)


def torch(model, loss, **options):
    """serve() for a torch.nn.Module on any device: loss(task) returns the SUM of losses
    of the task's samples as a tensor, and how many samples are right.  The job's
    model.buffers are to be the running statistics of the model's BatchNorm."""
    import torch as t

    def wrap(buffer, dtype, shape, offset):
        kind = {"F32": t.float32, "I64": t.int64}[dtype]
        return t.frombuffer(buffer, dtype=kind, count=math.prod(shape),
                            offset=offset).reshape(shape)

    named, stats = dict(model.named_parameters()), set()
    for prefix, module in model.named_modules():
        if getattr(module, "track_running_stats", False):
            module.momentum = 1.0  # what it keeps is the task's own; Falcon lets it run
            stats |= {prefix + "." * bool(prefix) + k for k in ("running_mean", "running_var")}

    def begin(header, buffers):
        named.update((k, b) for k, b in model.named_buffers() if k in header or k in stats)
        job = {(k, tuple(v["shape"])) for k, v in header.items() if k != "__metadata__"}
        mine = {(k, tuple(p.shape)) for k, p in named.items()}
        for what, off in ("tensors", job ^ mine), ("model.buffers", stats ^ set(buffers)):
            if off:
                _say(op="refuse", why="the job's %s are not the model's: only here or there, "
                     "or of another shape: %s" % (what, sorted(off)))

    def gradient(task):
        with t.no_grad():
            for name, p in named.items():
                p.copy_(task.params[name])
                p.grad = None
        model.train(task.train)
        t.manual_seed(task.seed)
        with t.set_grad_enabled(task.train):
            sum_of_losses, right = loss(task)
        if task.train:
            sum_of_losses.backward()
            for name, p in named.items():
                grad = p * task.count if name in stats else p.grad
                task.grads[name].copy_(grad) if grad is not None else task.grads[name].zero_()
        return sum_of_losses.item(), right

    device = next(iter(named.values())).device
    about = "torch %s %s" % (t.__version__, device)
    serve(gradient, **{"about": about, **options}, _wrap=wrap, _begin=begin)


def save(model, path):
    """Writes what a torch.nn.Module begins with as a safetensors file, for model.init."""
    header, data, tensors = {}, b"", dict(model.named_parameters())
    tensors.update((k, b) for k, b in model.named_buffers()
                   if k.endswith(("running_mean", "running_var")))
    for name, t in tensors.items():
        raw = bytes(t.detach().float().cpu().contiguous().numpy())
        header[name] = {"dtype": "F32", "shape": list(t.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + data)
