#!/usr/bin/python3
"""forge.py FALCON-STAT SEED STATE OTHER: forges the run in the folder STATE in every way of the
table below, drawn from SEED where there is a choice, and says what falcon-stat --audit makes of
each: of the trace alone, as it was left and chained anew, and of the folder, whose result then
has the new last link, too.  OTHER is another run of the same job.  Exit 1: one passed that
should not have, or one did not that should have."""

import copy
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from chain import chain  # noqa: E402

TRACE, FOLDER, NEVER = "trace", "folder", "never"


class Unfit(Exception):
    """The run has nothing to be forged so."""


def events(t, ev, fits=lambda o: True):
    return [o for o in t if o["ev"] == ev and fits(o)]


def any_of(t, ev, fits=lambda o: True):
    found = events(t, ev, fits)
    if not found:
        raise Unfit("no %s line that fits" % ev)
    return draw.choice(found)


def pick(rows):
    if not rows:
        raise Unfit("no row")
    return draw.choice(rows)


def stays(i):
    """Of who was killed nobody knows how far its last tasks had come."""
    return all(o["id"] != i for o in run if o["ev"] == "leave")


def in_time(t):
    """Where the version is told of that the last clock runs on: who is here by then, and at
    the end, has a line of that clock."""
    last = events(t, "ledger")[-1]
    return next(i for i, o in enumerate(t)
                if o["ev"] == "update" and o["version"] == last["version"])


def missed(gone):
    """Had it not left it would be here at the end, where it has no line of the last clock.
    Who has one, or came too late for one, need not leave."""
    last = events(run, "ledger")[-1]["clock"]
    came = next(o for o in run if o["ev"] == "join" and o["id"] == gone["id"])
    return run.index(came) < in_time(run) and not events(
        run, "clock", lambda o: o["id"] == gone["id"] and o["clock"] == last)


def told(name, change):
    """Another value of a clock line of one who stays."""
    return set_("clock", name, change, lambda o: stays(o["id"]))


def set_(ev, name, change, fits=lambda o: True):
    """Another value of a member."""

    def forge(t):
        o = any_of(t, ev, lambda o: name in o and fits(o))
        o[name] = change(o[name])

    return forge


def drop(ev, fits=lambda o: True):
    def forge(t):
        t.remove(any_of(t, ev, fits))

    return forge


def twice(ev):
    def forge(t):
        o = any_of(t, ev)
        t.insert(t.index(o) + 1, copy.deepcopy(o))

    return forge


def swap(ev):
    def forge(t):
        found = events(t, ev)
        i = draw.randrange(len(found) - 1)
        a, b = t.index(found[i]), t.index(found[i + 1])
        t[a], t[b] = t[b], t[a]
        t[a]["t"], t[b]["t"] = t[b]["t"], t[a]["t"]

    return forge


def row(name, change, fits=lambda o: True):
    """One row of an array of a ledger line, of those who stay."""

    def ids(r):
        return [r["c"][0]] if isinstance(r, dict) else r[:2] if name == "move" else r[:1]

    def rows(o):
        return [r for r in o[name] if all(map(stays, ids(r)))]

    def forge(t):
        o = any_of(t, "ledger", lambda o: rows(o) and fits(o))
        change(o, draw.choice(rows(o)))

    return forge


def more(n=1):
    return lambda v: v + n


def less(v):
    return v - 1


def digit(v):
    i = draw.randrange(len(v))
    return v[:i] + ("1" if v[i] != "1" else "2") + v[i + 1:]


def here_at(t, at):
    """Ids that are there at this place of the trace."""
    ids = []
    for o in t[:at]:
        if o["ev"] == "join":
            ids.append(o["id"])
        elif o["ev"] == "leave":
            ids.remove(o["id"])
    return ids


def comes(named=None, leaves=False):
    """Somebody joins who does nothing."""

    def forge(t):
        at = draw.randrange(t.index(events(t, "ledger")[0]) + 1, in_time(t) + 1)
        o = dict(any_of(t, "join"), t=t[at - 1]["t"], worker="nobody")
        o["id"] += 77
        if named is not None:
            o["worker"] = named(t, at)
        gone = {"t": o["t"], "ev": "leave", "worker": o["worker"], "id": o["id"],
                "reason": "so", "h": o["h"]}
        t[at:at] = [o, gone] if leaves else [o]

    return forge


def name_here_at(t, at):
    i = pick(here_at(t, at))
    return next(o["worker"] for o in t if o["ev"] == "join" and o["id"] == i)


def run_name(i):
    return next(o["worker"] for o in run if o["ev"] == "join" and o["id"] == i)


def credit(who):
    """The work of one worker in a round, credited to another."""

    def forge(t):
        o, to = who(t)
        rows = [c for c in o["contrib"] if c["c"][0] != to and "fills" not in c]
        old = pick(rows)["c"][0]
        for name in "grant", "clone", "regrant", "lost":
            for r in o[name]:
                r[0] = to if r[0] == old else r[0]
        for r in o["move"]:
            r[:2] = [to if i == old else i for i in r[:2]]
        for c in o["contrib"]:
            for name in "c", "fills":
                if name in c and c[name][0] == old:
                    c[name] = [to, c[name][1] + 100000]

    return forge


def who_left(t):
    gone = any_of(t, "leave", lambda o: t.index(o) < len(t) * 2 // 3)
    after = [o for o in t[t.index(gone):] if o["ev"] == "ledger"][4:]
    return pick(after), gone["id"]


def who_came_later(t):
    first = events(t, "ledger")[2]
    came = any_of(t, "join", lambda o: t.index(o) > t.index(first))
    return first, came["id"]


def who_is_here(t):
    o = any_of(t, "ledger", lambda o: len(o["contrib"]) > 1)
    others = [i for i in here_at(t, t.index(o)) if i != o["contrib"][0]["c"][0]]
    return o, pick(others)


def cut(part, end=False):
    def forge(t):
        done = t[-1]
        del t[int(len(t) * part):]
        if end:
            t.append(dict(done, t=t[-1]["t"], seconds=t[-1]["t"]))

    return forge


def splice(t):
    """Up to a clock it is this run, then the other one."""
    clock = events(t, "ledger")[len(events(t, "ledger")) // 2]["clock"]

    def after(lines):
        return next(i for i, o in enumerate(lines)
                    if o["ev"] == "update" and o["clock"] == clock) + 1

    head, tail = t[: after(t)], copy.deepcopy(other[after(other):])
    late = head[-1]["t"] - tail[0]["t"]
    for o in tail:
        o["t"] = round(o["t"] + max(late, 0), 6)
        if o["ev"] == "done":
            o["seconds"] = o["t"]
    t[:] = head + tail


def rename(t):
    if not any(o.get("move") for o in t):
        raise Unfit("nothing moved")
    for o in t:
        if "scheme" in o:
            o["scheme"] = o["scheme"].replace("epsp", "bsp")


def leave_early(t):
    told = {o["id"] for o in t if o["ev"] == "clock"}
    gone = any_of(t, "leave", lambda o: o["id"] in told)
    came = next(o for o in t if o["ev"] == "join" and o["id"] == gone["id"])
    t.remove(gone)
    at = t.index(came) + 1
    t.insert(at, dict(gone, t=came["t"]))


def other_evaluation(t):
    o = pick(events(t, "eval")[:-1])
    o["right"] += 1
    o["accuracy"] = o["right"] / o["total"]


def last_evaluation(t):
    o = events(t, "eval")[-1]
    o["right"] += 1
    o["accuracy"] = o["right"] / o["total"]


def clock_of(change):
    def forge(t):
        change(any_of(t, "clock", lambda o: o["done"] > 0 and stays(o["id"])))

    return forge


def seconds_of(t):
    """Of a line that is not its worker's first, which tells of what was before, too."""
    begun = set()

    def later(o):
        was = o["id"] in begun
        begun.add(o["id"])
        return was

    o = any_of(t, "clock", later)
    o["compute"] = more(1e4)(o["compute"])


def unseen(t):
    """The checksum of a contribution, and of the sum."""
    o = any_of(t, "ledger", lambda o: o["contrib"])
    by = draw.getrandbits(64)
    for d, name in (draw.choice(o["contrib"]), "sum"), (o, "added"):
        d[name] = "%016x" % ((int(d[name], 16) + by) % 2**64)


def behind(t):
    t.append(dict(any_of(t, "clock"), t=t[-1]["t"]))


def worker_of(o, r):
    """A row's worker becomes another one of the round."""
    ids = {g[0] for g in o["grant"] if stays(g[0])} - {r[0]}
    r[0] = draw.choice(sorted(ids)) if ids else r[0] + 1


def earlier_hash(t):
    o = pick(events(t, "update")[:-1])
    o["hash"] = digit(o["hash"])


def earlier_loss(t):
    pick(events(t, "update")[:-1])["loss"] += 1e-3


def last_loss(t, ev):
    events(t, ev)[-1]["loss"] += 1e-3


def last_hash(t):
    events(t, "update")[-1]["hash"] = digit(t[-1]["hash"])


def both_hashes(t):
    last_hash(t)
    t[-1]["hash"] = events(t, "update")[-1]["hash"]


def no_hashes(t):
    for o in events(t, "job"):
        o["hashes"] = 0
    for o in events(t, "update") + events(t, "done"):
        del o["hash"]


FENCED = lambda o: any("fills" in c for c in o["contrib"])  # noqa: E731


def fill(change):
    def forge(t):
        o = any_of(t, "ledger", FENCED)
        change(o, next(c for c in o["contrib"] if "fills" in c))

    return forge


def later_t(t):
    i = draw.randrange(2, len(t) - 2)
    t[i]["t"] = round(t[i + 1]["t"] + 1, 6)


# What is forged, how, and where it is caught at the latest: by the trace alone, by the folder,
# or never, as falcon-security(7) says.
TABLE = [
    ("nothing", lambda t: None, None),
    # the ledger
    ("a task left out of a contribution", row("contrib", lambda o, c: c.update(
        tasks=[[c["tasks"][0][0], c["tasks"][0][1] - 1]] + c["tasks"][1:])
        if c["tasks"][0][1] > 1 else c.update(tasks=[[99999, 1]])), TRACE),
    ("a task twice in a contribution", row("contrib", lambda o, c: c["tasks"].append(
        c["tasks"][0])), TRACE),
    ("a contribution twice", row("contrib", lambda o, c: o["contrib"].append(c)), TRACE),
    ("a contribution left out", row("contrib", lambda o, c: o["contrib"].remove(c)), TRACE),
    ("a contribution of another number", row("contrib", lambda o, c: c.update(
        c=[c["c"][0], max(c["c"][1] - 1, 1) if c["c"][1] > 1 else 2])), TRACE),
    ("a contribution of another worker", row("contrib", lambda o, c: worker_of(o, c["c"])),
     TRACE),
    ("a block more in a contribution", row("contrib", lambda o, c: c.update(
        blocks=c["blocks"] + 1)), TRACE),
    ("a block less in a contribution", row("contrib", lambda o, c: c.update(
        blocks=c["blocks"] - 1), lambda o: not FENCED(o)), TRACE),
    ("a grant left out", row("grant", lambda o, r: o["grant"].remove(r)), TRACE),
    ("a grant twice", row("grant", lambda o, r: o["grant"].append(r)), TRACE),
    ("a grant to another worker", row("grant", worker_of), TRACE),
    ("a move left out", row("move", lambda o, r: o["move"].remove(r)), TRACE),
    ("a move the other way", row("move", lambda o, r: r.__setitem__(
        slice(0, 2), [r[1], r[0]])), TRACE),
    ("a move that was none", row("grant", lambda o, r: o["move"].append(
        [r[0], r[0], r[1], 1])), TRACE),
    ("a clone that was none", row("grant", lambda o, r: o["clone"].append(list(r))), TRACE),
    ("a clone left out", row("clone", lambda o, r: o["clone"].remove(r)), TRACE),
    ("a claim that was not lost", row("grant", lambda o, r: o["lost"].append(list(r))), TRACE),
    ("a fill left out", fill(lambda o, c: o["contrib"].remove(c)), TRACE),
    ("a fill of nothing", fill(lambda o, c: c.pop("fills")), TRACE),
    ("a fence that was none", fill(lambda o, c: [d.pop("fenced", 0) for d in o["contrib"]]),
     TRACE),
    ("a block more in a fill", fill(lambda o, c: c.update(blocks=c["blocks"] + 1)), TRACE),
    ("a ledger line left out", drop("ledger"), TRACE),
    ("a ledger line twice", twice("ledger"), TRACE),
    ("ledger lines swapped", swap("ledger"), TRACE),
    ("samples of a round", set_("ledger", "samples", more()), TRACE),
    ("blocks of a round", set_("ledger", "blocks", more()), TRACE),
    ("tasks of a round", set_("ledger", "tasks", less), TRACE),
    ("the first task of a round", set_("ledger", "first", more()), TRACE),
    ("the clock of a round", set_("ledger", "clock", more()), TRACE),
    ("the number of a round", set_("ledger", "round", more()), TRACE),
    ("the version of a round", set_("ledger", "version", more()), TRACE),
    ("gradients called changes", set_("ledger", "kind", lambda v: "delta"), TRACE),
    ("a round that was dropped", set_("ledger", "end", lambda v: "dropped"), TRACE),
    ("a round that was abandoned", set_("ledger", "end", lambda v: "abandoned"), TRACE),
    ("staleness", set_("ledger", "stale", lambda v: dict(v, updates=v["updates"] + 1)), TRACE),
    ("another sum of a contribution", row("contrib", lambda o, c: c.update(
        sum=digit(c["sum"]))), TRACE),
    ("another sum added", set_("ledger", "added", digit), TRACE),
    ("no seed of sums", lambda t: any_of(t, "ledger").pop("seed"), TRACE),
    ("another seed of sums", set_("ledger", "seed", digit), NEVER),
    ("another sum of a contribution and added", unseen, NEVER),
    ("a round credited to who had left", credit(who_left), TRACE),
    ("a round credited to who came later", credit(who_came_later), TRACE),
    ("a round credited to who is here", credit(who_is_here), TRACE),
    # versions
    ("an update left out", drop("update"), TRACE),
    ("an update twice", twice("update"), TRACE),
    ("updates swapped", swap("update"), TRACE),
    ("the version of an update", set_("update", "version", more()), TRACE),
    ("the clock of an update", set_("update", "clock", more()), TRACE),
    ("the rounds of an update", set_("update", "rounds", lambda v: [v[0] + 1]), TRACE),
    ("samples of an update", set_("update", "samples", more()), TRACE),
    ("the divisor of an update", set_("update", "divisor", more()), TRACE),
    ("no divisor of an update", lambda t: any_of(t, "update").pop("divisor"), TRACE),
    ("the epoch of an update", set_("update", "epoch", more()), TRACE),
    ("the loss of an earlier update", earlier_loss, NEVER),
    ("the loss of the last update", lambda t: last_loss(t, "update"), FOLDER),
    ("the learning rate of an update", set_("update", "lr", more(1e-3)), NEVER),
    ("no hash of an update", lambda t: any_of(t, "update").pop("hash"), TRACE),
    ("a hash that is none", set_("update", "hash", lambda v: v[1:]), TRACE),
    ("another hash of an update", earlier_hash, NEVER),
    ("another hash of the last update", last_hash, TRACE),
    ("no hashes in the job line", lambda t: t[0].pop("hashes"), TRACE),
    ("no hashes at all", no_hashes, FOLDER),
    # evaluations
    ("right of an evaluation", set_("eval", "right", less), TRACE),
    ("total of an evaluation", set_("eval", "total", more()), TRACE),
    ("accuracy of an evaluation", set_("eval", "accuracy", more(1e-3)), TRACE),
    ("the version of an evaluation", set_("eval", "version", more()), TRACE),
    ("the epoch of an evaluation", set_("eval", "epoch", more()), TRACE),
    ("the last evaluation", last_evaluation, TRACE),
    ("the loss of the last evaluation", lambda t: last_loss(t, "eval"), FOLDER),
    ("an earlier evaluation, wholly", other_evaluation, NEVER),
    ("an evaluation twice", twice("eval"), TRACE),
    ("the keys of an evaluation", set_("eval", "keys", lambda v: [dict(
        v[0], tasks=v[0]["tasks"] + 1)] + v[1:]), TRACE),
    # workers
    ("a join left out", drop("join"), TRACE),
    ("a join twice", twice("join"), TRACE),
    ("another id joins", set_("join", "id", more(77)), TRACE),
    ("another name joins", set_("join", "worker", lambda v: v + "x"), TRACE),
    ("somebody who joins", comes(), TRACE),
    ("somebody who joins and leaves", comes(leaves=True), NEVER),
    ("the reason of a leave", set_("leave", "reason", lambda v: v + "x"), NEVER),
    ("somebody who is refused", lambda t: t.insert(in_time(t), {
        "t": t[in_time(t) - 1]["t"], "ev": "refuse", "key": "work", "why": "so",
        "count": 3}), NEVER),
    ("a charge that was none", lambda t: t.insert(in_time(t), {
        "t": t[in_time(t) - 1]["t"], "ev": "charge", "worker": run_name(1), "id": 1,
        "why": "so"}), NEVER),
    ("somebody of another's name who does", comes(name_here_at, leaves=True), TRACE),
    ("a leave left out", drop("leave", missed), TRACE),
    ("a leave twice", twice("leave"), TRACE),
    ("a leave too early", leave_early, TRACE),
    ("another one leaves", set_("leave", "worker", lambda v: v + "x"), TRACE),
    # clock lines
    ("a clock line left out", drop("clock", lambda o: o["done"] > 0 and stays(o["id"])), TRACE),
    ("some clock line left out", drop("clock", lambda o: stays(o["id"])), TRACE),
    ("all clock lines of a worker left out", lambda t: t.__setitem__(slice(None), [
        o for o in t if o["ev"] != "clock" or o["id"] != t[[
            p["ev"] for p in t].index("clock")]["id"]]), TRACE),
    ("all clock lines left out", lambda t: t.__setitem__(slice(None), [
        o for o in t if o["ev"] != "clock"]), TRACE),
    ("a clock line twice", twice("clock"), TRACE),
    ("a clock line of another clock", set_("clock", "clock", more()), TRACE),
    ("a clock line of another worker", set_("clock", "worker", lambda v: v + "x"), TRACE),
    ("done of a clock line", told("done", more()), TRACE),
    ("done of a clock line, less", clock_of(lambda o: o.update(done=o["done"] - 1)), NEVER),
    ("share of a clock line", told("share", more()), TRACE),
    ("in of a clock line", told("in", more()), TRACE),
    ("out of a clock line", told("out", more()), TRACE),
    ("cloned of a clock line", told("cloned", more()), TRACE),
    ("lost of a clock line", told("lost", more()), TRACE),
    ("seconds of a clock line", seconds_of, TRACE),
    ("staleness of a clock line", set_("clock", "staleness", more()), TRACE),
    # the job and its end
    ("the hash of the job", set_("job", "hash", digit), FOLDER),
    ("the seed of the job", set_("job", "seed", lambda v: str(int(v) + 1)), FOLDER),
    ("the name of the job", set_("job", "name", lambda v: v + "x"), FOLDER),
    ("the optimiser of the job", set_("job", "optimizer", lambda v: "sgdx"), FOLDER),
    ("samples of the job", set_("job", "samples", more()), TRACE),
    ("the batch of the job", set_("job", "batch", more()), TRACE),
    ("blocks of the job", set_("job", "blocks", more()), TRACE),
    ("epochs of the job", set_("job", "epochs", more()), TRACE),
    ("test samples of the job", set_("job", "test", more()), TRACE),
    ("no sums", set_("job", "audit", lambda v: "claims"), TRACE),
    ("epsp called bsp", rename, TRACE),
    ("epsp called bsp in the first line", set_("job", "scheme", lambda v: "bsp"), TRACE),
    ("epsp called bsp in the policy", set_("policy", "scheme", lambda v: "bsp"), TRACE),
    ("the version at the end", set_("done", "version", more()), TRACE),
    ("the model's hash at the end", set_("done", "sha256", digit), FOLDER),
    ("another hash at the end", set_("done", "hash", digit), TRACE),
    ("no hash at the end", lambda t: t[-1].pop("hash"), TRACE),
    ("another hash of the last version", both_hashes, FOLDER),
    ("fewer hashes", set_("job", "hashes", more()), FOLDER),
    ("seconds of training", set_("done", "trained", more(.01)), FOLDER),
    ("more seconds of training than of the job", set_("done", "trained", more(1e3)), TRACE),
    ("seconds at the end", set_("done", "seconds", more(1)), TRACE),
    ("accuracy at the end", set_("done", "accuracy", more(1e-3)), TRACE),
    ("a line behind the end", behind, TRACE),
    ("two runs spliced", splice, TRACE),
    ("a trace cut by a third", cut(2 / 3), TRACE),
    ("a trace cut by a third, with its end", cut(2 / 3, True), TRACE),
    ("a trace without its end", cut(1 - 1e-9), TRACE),
    ("another job first", lambda t: t.insert(1, dict(t[0])), TRACE),
    ("time that runs back", later_t, TRACE),
]


def write(path, lines):
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(lines)


def text_of(o):
    """As it was written, if nothing was forged in it."""
    return texts.get(json.dumps(o)) or json.dumps(o, separators=(",", ":")) + "\n"


def passes(path):
    got = subprocess.run([stat, "--audit", path], capture_output=True, text=True, check=False)
    said = (got.stdout + got.stderr).split("\n")[0]
    if got.returncode not in (0, 1, 2):
        sys.exit("%s: exit %d: %s" % (path, got.returncode, said))
    return got.returncode == 0, said


def judge(name, forge, dir_):
    """Where it is caught: None, NEVER for nowhere, TRACE, FOLDER; and what was said."""
    t = copy.deepcopy(run)
    forge(t)
    lines = [text_of(o) for o in t]
    trace = os.path.join(dir_, "trace.jsonl")
    write(trace, lines)
    # The links are those of before: whatever was forged breaks them.
    plain, said = passes(trace)
    if plain and lines != whole:
        return "unchained", said
    lines = list(chain(lines))
    write(trace, lines)
    with open(os.path.join(state, "result.json"), encoding="utf-8") as f:
        result = json.load(f)
    result["chain"] = json.loads(lines[-1])["h"]
    write(os.path.join(dir_, "result.json"), [json.dumps(result)])
    ok, said = passes(trace)
    if not ok:
        return TRACE, said
    ok, said = passes(dir_)
    return (NEVER if lines != whole else None) if ok else FOLDER, said


def load(path):
    with open(os.path.join(path, "trace.jsonl"), encoding="utf-8") as f:
        text = f.readlines()
    return [json.loads(line) for line in text], text


stat, seed, state = sys.argv[1], int(sys.argv[2]), sys.argv[3]
draw = random.Random(seed)
run, whole = load(state)
other, _ = load(sys.argv[4])
texts = dict(zip(map(json.dumps, run), whole))
bad = made = caught = 0
with tempfile.TemporaryDirectory() as tmp:
    for name in os.listdir(state):
        if name in ("job", "model.safetensors"):
            shutil.copy(os.path.join(state, name), tmp)
    for what, forge, want in TABLE:
        try:
            got, said = judge(what, forge, tmp)
        except Unfit as e:
            print("%-44s cannot be made of this run: %s" % (what, e))
            continue
        made += want is not None
        caught += got in (TRACE, FOLDER)
        wrong = got != want
        bad += wrong
        print("%-44s %s%s: %s" % (what, got, " WRONG" if wrong else "", said[:110]))
print("forged %d, caught %d, wrong %d" % (made, caught, bad))
sys.exit(bad > 0)
