#!/usr/bin/python3
"""vectors.py FOLDER: holds client.py, which was written from falcon-protocol(7) alone,
against the vectors in FOLDER: the handshakes that a client judges, all records, and what
is quantised.  Says how many there were; exit 1 at the first that comes out otherwise."""

import os
import struct
import sys

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

import client


def vectors(path):
    with open(path) as f:
        for stanza in f.read().split("\n\n"):
            lines = [line for line in stanza.splitlines() if line and line[0] != "#"]
            if lines:
                yield dict((k, v.strip()) for k, _, v in (x.partition(":") for x in lines))


class Stream:
    """What the peer has said, and a note of what is sent."""

    def __init__(self, heard):
        self.heard, self.sent = heard, b""

    def sendall(self, p):
        self.sent += p

    def recv(self, n):
        out, self.heard = self.heard[:n], self.heard[n:]
        return out


class Told(client.Link):
    """A link whose keys are a vector's."""

    SUITES, suite = b"\1", 1

    def __init__(self, heard):
        self.s = Stream(heard)
        self.sent = self.got = self.newest = 0
        self.publications = {}

    def ephemeral(self):
        return X25519PrivateKey.from_private_bytes(self.mine)


def of(v, key):
    return bytes.fromhex(v[key])


def handshake(v):
    link = Told(of(v, "server"))
    link.public, link.mine, link.secret = of(v, "server-public"), of(v, "client-ephemeral"), None
    if "client-secret" in v:
        link.own_key(of(v, "client-secret"))
        assert link.psk == of(v, "common"), "another common secret"
    else:
        link.psk = of(v, "psk")
    link.BUILD = v["build"].encode()
    try:
        link.greet(v["key"].encode())
        got = "ok"
    except SystemExit as e:
        got = str(e).removeprefix("refused: ")
    except (AssertionError, InvalidTag):
        got = "refused"
    assert link.s.sent == of(v, "client"), "another client"
    if got == "ok":
        assert link.h == of(v, "hash"), "another hash"
        for mine, key in ((link.tx, "client-key"), (link.rx, "server-key")):
            assert mine == of(v, key), key
    return got


def record(v):
    link = Told(of(v, "record") + bytes.fromhex(v.get("then", "")))
    link.suite = int(v.get("suite", 1))
    if v["kind"] == "session":
        link.rx, link.got = of(v, "key"), int(v["counter"])
    else:
        link.expect(int(v["publication"]), of(v, "key"), 3 * int(v["records"]), of(v, "ad"))
        if "came" in v:
            link.publications[int(v["publication"])][1].add(int(v["came"]))
    try:
        message = link.record()
        if "then" in v:
            message += link.record()
    except (AssertionError, InvalidTag, EOFError):
        return "refused"
    assert message == of(v, "message"), "another message"
    return "ok"


def quantised(v):
    words = b"".join(struct.pack("<I", int(w, 16)) for w in v["gradient"].split())
    g = struct.unpack("<%df" % (len(words) // 4), words)
    q = client.quantise(g, int(v["exponent"]), int(v["room"]))
    if q is None:
        return "nonfinite"
    assert q == [int(x) for x in v["values"].split()], "other values"
    needed = client.needed_of(g)
    assert needed == int(v["needed"]), "needs %d" % needed
    made = client.record(int(v["block"]), int(v["exponent"]), needed, q)
    assert made == of(v, "record"), "another record"
    return "ok"


def main(folder):
    done = 0
    for name, judge, mine in (
            ("handshake.txt", handshake, lambda v: v["judge"] == "client"),
            ("records.txt", record, lambda v: True),
            ("aes.txt", record, lambda v: True),
            ("blocks.txt", quantised, lambda v: v["kind"] == "quantise")):
        for v in filter(mine, vectors(os.path.join(folder, name))):
            try:
                got = judge(v)
            except AssertionError as e:
                got = str(e)
            if got != v["expect"]:
                sys.exit("%s: %s: %s, expected %s" % (name, v["name"], got, v["expect"]))
            done += 1
    print("%d vectors" % done)


if __name__ == "__main__":
    main(sys.argv[1])
