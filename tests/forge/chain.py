#!/usr/bin/python3
"""chain.py: chains the lines of stdin anew, as falcon-trace(5), section CHAIN, says; a link that
a line has is forgotten, but for that of a gap, which is kept.  chain.py -c: says instead which
line breaks the chain, and the last link."""

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
    else:
        sys.stdout.writelines(chain(sys.stdin))
