#!/usr/bin/python3
"""holds.py KEY HOST:PORT N [dies]: a worker that keeps, for N versions, the last block of
what it contributes to one until the first blocks of it have come; with `dies`, it ends behind
the last of these instead.  Where a version is only published when it is whole nothing comes,
and it gives up after a minute."""

import sys

from client import MODEL, MOST, PUSH, Link, Worker, record


class Holding(Worker):
    def __init__(self, link, times, dies):
        super().__init__(link)
        link.s.settimeout(60)
        self.times, self.dies = times, dies
        self.held, self.version, self.over = [], 0, 0

    def push(self, contribution, ticket):
        if self.over == self.times:
            super().push(contribution, ticket)
            return
        records = [record(b, contribution["part"]["e"][b], needed, values)
                   for b, (needed, values) in enumerate(contribution["sums"])]
        rest = b""
        for one in records[:-1]:
            if len(rest) + len(one) > MOST - 128:
                self.say(PUSH, "82sI", ticket, self.epoch, rest=rest)
                rest = b""
            rest += one
        self.say(PUSH, "82sI", ticket, self.epoch, rest=rest)
        version = next(v for v, p in self.versions.items() if p is contribution["part"])
        assert not self.held or self.version == version + 1
        self.version = version + 1
        self.held.append((ticket, records[-1]))

    def on_model(self, version, first, blocks, rest):
        super().on_model(version, first, blocks, rest)
        if not self.held or version < self.version:
            return
        assert version == self.version and first == 0
        self.over += 1
        if self.dies and self.over == self.times:
            print("held %d" % self.over)
            sys.exit(0)
        for ticket, last in self.held:
            self.say(PUSH, "82sI", ticket, self.epoch, rest=last)
            self.pushes += 1
        self.held = []

    HEARD = Worker.HEARD | {MODEL: ("QII", on_model)}


if __name__ == "__main__":
    with open(sys.argv[1]) as f:
        worker = Holding(Link(f.read(), sys.argv[2]), int(sys.argv[3]), sys.argv[4:] == ["dies"])
    why = worker.run()
    print("%s: held %d" % (why, worker.over))
