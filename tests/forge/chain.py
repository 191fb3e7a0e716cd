#!/usr/bin/python3
"""chain.py: chains the lines of stdin anew, as falcon-trace(5), section CHAIN, says; a link that
a line has is forgotten, but for that of a gap, which is kept.  chain.py -c: says instead which
line breaks the chain, and the last link.  chain.py -s: puts the clock lines in that are
missing."""

import hashlib
import json
import sys


def link(before, body):
    return hashlib.blake2b((before + body).encode(), digest_size=32).hexdigest()[:32]


def split(line):
    """What is before the link, and the link."""
    body, found, rest = line.rstrip("\n").rpartition(',"h":"')
    return (body, rest[:-2]) if found and len(rest) == 34 else (line.rstrip("\n")[:-1], "")


def chain(lines):
    h = ""
    for line in lines:
        body, old = split(line)
        h = old if json.loads(line).get("ev") == "gap" else link(h, body)
        yield '%s,"h":"%s"}\n' % (body, h)


def samples(job, clock, tasks):
    """The samples of so many mean tasks of the clock."""
    left = job["samples"] - clock % job["clocks_per_epoch"] * job["batch"]
    left = min(left, job["batch"])
    return tasks * left // -(-left // job["task"])


def settle(lines):
    """The clock lines that are missing in a trace of rounds that all share, before its end."""
    lines = list(lines)
    trace = [json.loads(line) for line in lines]
    ids = [o["id"] for o in trace if o["ev"] == "join"]
    names = {o["id"]: o["worker"] for o in trace if o["ev"] == "join"}
    have = {(o["clock"], o["id"]) for o in trace if o["ev"] == "clock"}
    for line, o in zip(lines, trace):
        yield line
        for id_ in ids if o["ev"] == "ledger" else []:
            if (o["clock"], id_) in have:
                continue
            sums = {
                "share": sum(r[2] for r in o["grant"] if r[0] == id_),
                "done": sum(r[1] for c in o["contrib"] if c["c"][0] == id_ for r in c["tasks"]),
                "in": sum(r[3] for r in o["move"] if r[1] == id_),
                "out": sum(r[3] for r in o["move"] if r[0] == id_),
                "cloned": sum(r[2] for r in o["clone"] if r[0] == id_),
                "lost": sum(r[2] for r in o["lost"] if r[0] == id_),
            }
            zero = dict.fromkeys(("compute", "push", "pull", "wait", "push_all", "pull_all",
                                  "late", "task_s", "staleness", "tx", "rx"), 0)
            zero["samples"] = samples(trace[0], o["clock"], sums["done"] + sums["lost"])
            yield json.dumps({"t": o["t"], "ev": "clock", "clock": o["clock"],
                              "worker": names[id_], "id": id_, "lanes": 1, **sums, **zero},
                             separators=(",", ":")) + "\n"


def check(lines):
    h, n = "", 0
    for n, line in enumerate(lines, 1):
        body, is_ = split(line)
        if is_ != link(h, body) and '"ev":"gap"' not in line:
            return "line %d breaks the chain" % n
        h = is_
    return h


if __name__ == "__main__":
    if sys.argv[1:] == ["-c"]:
        print(check(sys.stdin))
    elif sys.argv[1:] == ["-s"]:
        sys.stdout.writelines(settle(sys.stdin))
    else:
        sys.stdout.writelines(chain(sys.stdin))
