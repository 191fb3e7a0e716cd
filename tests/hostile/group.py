#!/usr/bin/python3
"""group.py KEY HOST:PORT MODE [TRACE]: a group server whose key is good, that has one worker and whose
trace is what it should not be, when somebody looks at it:

    hang     it says nothing, or no more than the first line of TRACE
    old      the same, of protocol 8.0, which has no looks
    trickle  a part of a line
    garbage  no trace, but what would move a cursor
    line     such a line behind a good one
    endless  one without end, as fast as it is asked for; it begins as TRACE
    slowly   one without end, a line a second
    flood    more of it than was asked for, behind TRACE's line, once there is a file `go`
    unasked  some before anybody asks
    why      that it cannot be, for reasons of its own
"""

import os
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../client"))
import client  # noqa: E402 pylint: disable=wrong-import-position

CAPACITY, LOOKED, LOOK_AT, LOOK_ON = 13, 14, 56, 57
PIECE = 61440


class Old(client.Link):
    """A session by protocol 8.0."""

    VERSION = (8, 0)


class Group(client.Worker):
    """It joins, and waits for work that does not come."""

    def __init__(self, link, name, mode, first):
        super().__init__(link)
        self.name, self.mode, self.first, self.look = name, mode, first, None

    def hello(self, name, version=b"1.0"):
        instance = os.urandom(16)
        self.say(client.HELLO, "HHH%dsH%dsIII16s16s" % (len(self.name), len(version)),
                 *self.link.VERSION, len(self.name), self.name, len(version), version, 1, 1, 1,
                 instance, instance)

    def on_chunk(self, *args):
        super().on_chunk(*args)
        if sum(map(len, self.chunks.values())) == sum(map(len, self.data)):
            self.say(CAPACITY, "IIQ", 1, 1, 0)
            if self.mode == "unasked":
                self.looked(b"{}\n")

    def looked(self, rest=b"", over=0, status=0):
        self.say(LOOKED, "IBB", self.look or 1, over, status, rest=rest)

    def pieces(self, n):
        for _ in range(n if self.mode == "slowly" else 0):
            time.sleep(1)
            self.looked(b'{"t":0.000000,"ev":"hm","why":"x"}\n')
        if self.mode not in ("endless", "flood"):
            return
        # Long lines, of which whoever looks has read 64 MiB soon.
        line = b'{"t":0.000000,"ev":"hm","why":"%s"}\n' % (b"x" * 1000)
        for _ in range(n * (3 if self.mode == "flood" else 1)):
            self.looked(line * (PIECE // len(line)))

    def on_look_at(self, look, live, pieces, rest):
        self.look = look
        if self.first:
            self.looked(self.first)
            pieces -= 1
        while self.mode == "flood" and not os.path.exists("go"):
            time.sleep(0.05)
        if self.mode == "trickle":
            self.looked(b"\x1b[2J{")
        if self.mode == "garbage":
            self.looked(b"\x1b[2J\x1b[31m" * 100 + b"\n")
        if self.mode == "line":
            self.looked(b'{"t":0.000000,"ev":"hm"}\n{"t":0.000000,"ev":"\x1b[2J"}\n')
        if self.mode == "why":
            self.looked(b"\x1b[2J" + b"so there " * 500, over=1, status=200)
        self.pieces(pieces)

    def on_look_on(self, look, pieces, rest):
        if look == self.look:
            self.pieces(pieces)

    HEARD = dict(client.Worker.HEARD)
    HEARD[client.CHUNK] = ("BIII", on_chunk)
    HEARD[LOOK_AT] = ("IBI", on_look_at)
    HEARD[LOOK_ON] = ("II", on_look_on)


def main(path, addr, mode, trace=None):
    first = b""
    with open(path, encoding="ascii") as f:
        key = f.read()
    if trace is not None:
        with open(trace, "rb") as f:
            first = f.readline()
    link = (Old if mode == "old" else client.Link)(key, addr)
    print(Group(link, key.split()[0].encode(), mode, first).run())


main(*sys.argv[1:])
