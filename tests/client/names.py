#!/usr/bin/python3
"""names.py KEY HOST:PORT: says names and reasons that would do harm where they are printed,
each in a session of its own; a line for each says what came of it."""

import sys

from client import LEAVE, READY, Link, Worker

HOSTILE = (b"\xc2\x9b31mred", "\u202eexe.vrow".encode(), b"\x9b2J", b"\x1b[2J", b"a\nb: forged",
           b"../../x", b"a b", b'a"},{', b"", b"x" * 64, b"x" * 300)


class Named(Worker):
    """A worker that is ready, and no more."""

    ready = False

    def say(self, kind, *rest, **more):
        super().say(kind, *rest, **more)
        self.ready = self.ready or kind == READY

    def __init__(self, key, addr):
        super().__init__(Link(key, addr))
        self.link.s.settimeout(60)

    def get_ready(self, name):
        self.hello(name)
        while not self.ready:
            self.hear(self.link.receive())

    def answer(self):
        try:
            while True:
                self.hear(self.link.receive())
        except SystemExit as e:
            return str(e)
        except (EOFError, ConnectionError):
            return "closed"


def main(key, addr):
    for text in HOSTILE:
        worker = Named(key, addr)
        worker.hello(text)
        print("name %s: %s" % (ascii(text), ascii(worker.answer())))
    for text in HOSTILE[:3]:
        worker = Named(key, addr)
        worker.get_ready(b"plain")
        worker.say(LEAVE, "H%dsB" % len(text), len(text), text, 0)
        worker.link.s.close()
        print("why %s: said" % ascii(text))
    for text in (t for t in HOSTILE if len(t) < 256):
        try:
            Link(key, addr, text)
            print("key %s: heard" % ascii(text))
        except (EOFError, ConnectionError, SystemExit) as e:
            print("key %s: %s" % (ascii(text), ascii(str(e)) or "closed"))


if __name__ == "__main__":
    with open(sys.argv[1]) as f:
        main(f.read(), sys.argv[2])
