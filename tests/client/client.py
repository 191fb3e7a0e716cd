#!/usr/bin/python3
"""client.py KEY HOST:PORT: a worker, written from falcon-protocol(7) and the pages that it
names, and from nothing else; for jobs of one dense layer, whose gradients it makes as
tests/hostile/trainer.py does.  Needs python3-cryptography.  Says on its last line what it
did; exit 0: the job is done."""

import base64
import configparser
import ctypes
import ctypes.util
import hashlib
import hmac
import math
import os
import socket
import struct
import subprocess
import sys

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

BLOCK = 4096
MOST = 65536  # bytes of a message
EMPTY = -128  # needed of a block of zeros
(HELLO, READY, CLAIM, PUSH, WORKED, CHUNK_GET, EVALUATED, LEAVE, PONG, CHECKED, SEAL) = range(1, 12)
(WELCOME, TEXT, VERSION, MODEL, GRANT, REVOKE, VERDICT, LANES, FENCE, CHUNK, EVAL, PING, DONE,
 REFUSE, ACCOUNT, DRAIN) = range(32, 48)
LATER, TICKET, PUBLISHED, BLOCKS = 51, 52, 53, 55


def schema():
    """That of the messages."""
    said = subprocess.check_output(["falcon-ps", "--version"], text=True)
    return int(said.split("schema ")[1].rstrip(")\n"), 16)


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


# ---- compression: libzstd, which Falcon itself needs --------------------------------------

zstd = ctypes.CDLL(ctypes.util.find_library("zstd") or "libzstd.so.1")
zstd.ZSTD_getFrameContentSize.restype = ctypes.c_ulonglong
zstd.ZSTD_decompress.restype = ctypes.c_size_t


def unzip(frame):
    size = zstd.ZSTD_getFrameContentSize(frame, ctypes.c_size_t(len(frame)))
    assert size <= MOST, "a frame that tells no size, or too large a one"
    out = ctypes.create_string_buffer(max(size, 1))
    got = zstd.ZSTD_decompress(out, ctypes.c_size_t(size), frame, ctypes.c_size_t(len(frame)))
    assert got == size, "a frame that is none"
    return out.raw[:size]


# ---- random numbers ----------------------------------------------------------------------


class Stream:
    """The stream (seed, purpose, epoch)."""

    def __init__(self, seed, purpose, epoch):
        self.key = (seed & 0xffffffff, seed >> 32)
        self.tail, self.block, self.words = (epoch, purpose), 0, []

    def u32(self):
        if not self.words:
            c = [self.block & 0xffffffff, self.block >> 32, *self.tail]
            k = list(self.key)
            for _ in range(10):
                a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
                c = [b >> 32 ^ c[1] ^ k[0], b & 0xffffffff, a >> 32 ^ c[3] ^ k[1], a & 0xffffffff]
                k = [k[0] + 0x9E3779B9 & 0xffffffff, k[1] + 0xBB67AE85 & 0xffffffff]
            self.block, self.words = self.block + 1, c
        return self.words.pop(0)

    def below(self, n):
        while True:
            m = self.u32() * n
            if (m & 0xffffffff) >= (1 << 32) % n:
                return m >> 32

    def u64(self):
        return self.u32() | self.u32() << 32

    def shuffle(self, v):
        for i in range(len(v) - 1, 0, -1):
            j = self.below(i + 1)
            v[i], v[j] = v[j], v[i]
        return v


# ---- the session -------------------------------------------------------------------------


def cipher(suite, key, number):
    """What seals and opens the record of this number, and its nonce."""
    if suite == 1:
        return ChaCha20Poly1305(key), struct.pack("<4xQ", number)
    return AESGCM(key), struct.pack(">4xQ", number)


def renewed(suite, key, records):
    """The key of a direction behind so many records."""
    if records % 65536:
        return key
    by, nonce = cipher(suite, key, 2**64 - 1)
    return by.encrypt(nonce, bytes(32), b"")[:32]


def raw(secret):
    """Its public half."""
    return secret.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


class Link:
    """The handshake and the records."""

    VERSION, BUILD, SUITES = (9, 0), b"client.py", b"\2\1"

    def __init__(self, key, addr, name=None):
        own, _, mine, public = key.split()
        self.public = base64.b64decode(public)
        kind, _, text = mine.rpartition(":")
        if kind == "secret":
            self.own_key(base64.b64decode(text))
        else:
            self.secret, self.psk = None, base64.b64decode(text)
        host, port = addr.rsplit(":", 1)
        self.s = socket.create_connection((host, int(port)))
        self.s.settimeout(10)
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent = self.got = 0
        self.publications, self.newest = {}, 0
        self.greet(name if name is not None else own.encode())

    def own_key(self, secret):
        """A static key: what it has in common with the coordinator's makes the MACs."""
        self.secret = X25519PrivateKey.from_private_bytes(secret)
        self.psk = hashlib.blake2b(self.meet(self.secret, self.public), digest_size=32,
                                   key=self.public + raw(self.secret),
                                   person=b"falcon static").digest()

    @staticmethod
    def meet(secret, public):
        return secret.exchange(X25519PublicKey.from_public_bytes(public))

    def derive(self, label):
        """The key for one use of what both have."""
        return hashlib.blake2b(digest_size=32, key=self.public + self.psk,
                               person=label).digest()

    def mac(self, label, said):
        return hashlib.blake2b(said, digest_size=32, person=label,
                               key=self.public + self.derive(b"falcon mac")).digest()

    @staticmethod
    def ephemeral():
        return X25519PrivateKey.generate()

    # Noise, section 5

    def mix_hash(self, data):
        self.h = hashlib.blake2b(self.h + data).digest()

    def hkdf(self, data, n):
        temp, out, one = hmac.digest(self.ck, data, "blake2b"), [], b""
        for i in range(n):
            one = hmac.digest(temp, one + bytes([i + 1]), "blake2b")
            out.append(one)
        return out

    def mix_key(self, data):
        self.ck, k = self.hkdf(data, 2)
        self.k, self.n = k[:32], 0

    def seal(self, plain):
        out = ChaCha20Poly1305(self.k).encrypt(struct.pack("<4xQ", self.n), plain, self.h)
        self.n += 1
        self.mix_hash(out)
        return out

    def open(self, sealed):
        out = ChaCha20Poly1305(self.k).decrypt(struct.pack("<4xQ", self.n), sealed, self.h)
        self.n += 1
        self.mix_hash(sealed)
        return out

    def greet(self, name):
        static = self.secret is not None
        after = struct.pack("<B", len(name)) + name
        if self.VERSION >= (6, 0):
            after += struct.pack("<B", len(self.BUILD)) + self.BUILD
        after += struct.pack("<BIB", 1 + static, 0, len(self.SUITES)) + self.SUITES
        first = 96 if static else 48
        said = b"FALC" + struct.pack("<HHH", *self.VERSION, len(after) + first + 32) + after
        protocol = b"Noise_%s_25519_ChaChaPoly_BLAKE2b" % (b"IK" if static else b"NKpsk0")
        self.h = self.ck = protocol.ljust(64, b"\0")
        self.mix_hash(said)
        self.mix_hash(self.public)
        mine = self.ephemeral()
        e = raw(mine)
        if not static:  # psk
            self.ck, mixed, k = self.hkdf(self.derive(b"falcon psk"), 3)
            self.mix_hash(mixed)
            self.k, self.n = k[:32], 0
        self.mix_hash(e)  # e
        said += e
        if not static:
            self.mix_key(e)
        self.mix_key(self.meet(mine, self.public))  # es
        if static:
            said += self.seal(raw(self.secret))  # s
            self.mix_key(self.meet(self.secret, self.public))  # ss
        said += self.seal(b"")
        said += self.mac(b"falcon hello", said)
        self.s.sendall(said)
        answer = self.read(10)
        if answer[8] != 0:
            build = b""
            if min(self.VERSION, struct.unpack_from("<HH", answer, 4)) >= (6, 0):
                build = self.read(1)
                build += self.read(build[0])
            assert self.read(32) == self.mac(b"falcon refusal", said + answer + build)
            sys.exit("refused: verdict %d" % answer[8])
        theirs = self.read(32)
        self.mix_hash(theirs)  # e
        if not static:
            self.mix_key(theirs)
        self.mix_key(self.meet(mine, theirs))  # ee
        if static:
            self.mix_key(self.meet(self.secret, theirs))  # se
        assert self.open(self.read(26)) == answer
        assert answer[:9] == b"FALC" + struct.pack("<HHB", *self.VERSION, 0)
        self.suite = answer[9]
        assert self.suite in self.SUITES
        first, second = self.hkdf(b"", 2)
        self.tx, self.rx = first[:32], second[:32]

    def read(self, n):
        out = b""
        while len(out) < n:
            try:
                some = self.s.recv(n - len(out))
            except TimeoutError:
                self.send(b"")  # a sign of life
                continue
            if not some:
                raise EOFError
            out += some
        return out

    def send(self, message):
        assert len(message) <= MOST
        head = struct.pack("<IBBH", len(message) + 16, 1, 0, 0)
        by, nonce = cipher(self.suite, self.tx, self.sent)
        self.s.sendall(head + by.encrypt(nonce, message, head))
        self.sent += 1
        self.tx = renewed(self.suite, self.tx, self.sent)

    def expect(self, publication, key, blocks, ad):
        assert publication not in self.publications
        self.newest = max(self.newest, publication)
        self.publications[publication] = [key, set(), struct.pack("<I", -(-blocks // 3)) + ad]
        while len(self.publications) > 72 * 64:
            del self.publications[next(iter(self.publications))]  # told first

    def receive(self):
        """The next message that is no sign of life."""
        while not (message := self.record()):
            pass
        return message

    def record(self):
        """The next record that is one of a publication in use, or of the session."""
        while True:
            head = self.read(8)
            length, kind, flags, zero = struct.unpack("<IBBH", head)
            assert kind in (1, 2, 3) and zero == 0 and length <= MOST + 28
            assert flags <= 1 or kind == 2 and flags <= 3 and self.suite == 2
            body = self.read(length)
            if kind != 2:
                by, nonce = cipher(self.suite, self.rx, self.got)
                out = by.decrypt(nonce, body, head)
                self.got += 1
                self.rx = renewed(self.suite, self.rx, self.got)
                if kind == 3:  # memory, which is let be
                    assert flags == 0 and len(out) == 17 and out[0] == 1
                    continue
            else:
                publication, index = struct.unpack_from("<QI", body)
                assert publication <= self.newest
                if publication not in self.publications:
                    continue
                pub = self.publications[publication]
                assert index not in pub[1] and index < struct.unpack("<I", pub[2][:4])[0]
                pub[1].add(index)
                by, nonce = cipher(1 + (flags >> 1), pub[0], index)
                out = by.decrypt(nonce, body[12:], head + body[:12] + pub[2])
            return unzip(out) if flags & 1 else out


# ---- exact sums --------------------------------------------------------------------------


def needed_of(values):
    most = max(map(abs, values))
    if most == 0:
        return EMPTY
    m, e = math.frexp(most)
    return min(max(e - (m == 0.5), -100), 100)


def quantise(g, e, room):
    """The integers of a block, or None."""
    if not all(map(math.isfinite, g)):
        return None
    most = 2**room - 2 ** (room - 24)
    return [max(-most, min(most, round(math.ldexp(v, 23 - e)))) for v in g]


def task_hash(exponents, sums):
    """Of all blocks, each (needed, its integers)."""
    h = hashlib.blake2b(digest_size=32)
    for e, (needed, v) in zip(exponents, sums):
        width = 0 if not any(v) else 4 if max(map(abs, v)) < 1 << 31 else 8
        h.update(struct.pack("<bbBB", e, needed, width, 0))
        if width:
            h.update(struct.pack("<%d%s" % (len(v), "i" if width == 4 else "q"), *v))
    return h.digest()[:16]


def plane(numbers, w, rows):
    """Numbers of w bits, 128 columns by rows."""
    words = -(-rows * w // 32)
    columns = []
    for c in range(128):
        bits = 0
        for r in range(rows):
            bits |= numbers[r * 128 + c] << r * w
        columns.append([bits >> 32 * i & 0xffffffff for i in range(words)])
    return b"".join(struct.pack("<I", columns[c][i]) for i in range(words) for c in range(128))


def record(block, e, needed, v):
    base = min(v)
    width = (max(v) - base).bit_length()
    rows = -(-len(v) // 128)
    low = [x - base for x in v] + [0] * (rows * 128 - len(v))
    out = struct.pack("<IbbBBq", block, e, needed, width, 0, base)
    out += plane([x & 0xffffffff for x in low], min(width, 32), rows)
    if width > 32:
        out += plane([x >> 32 for x in low], width - 32, rows)
    return out


# ---- the job -----------------------------------------------------------------------------


class Job:
    """What the three texts say."""

    def __init__(self, texts):
        ini = configparser.ConfigParser(inline_comment_prefixes=(";",), strict=False)
        ini.read_string(texts[0].decode())
        self.hash = hashlib.blake2b(texts[0], digest_size=32).digest()
        self.seed = ini.getint("job", "seed")
        metrics = ini.get("job", "metrics", fallback="").split()
        self.metrics = struct.pack("<%dd" % len(metrics), *[math.nan] * len(metrics))
        self.batch = ini.getint("batch", "size")
        self.task = ini.getint("batch", "task", fallback=min(max(self.batch // 64, 8), self.batch))
        self.whole = ini.get("data", "shuffle", fallback="window") == "full"
        data = dict(ini["data"])
        self.mean = f32(float(data.get("mean", "0")))
        self.std = f32(float(data.get("std", "1")))
        layers = [line.split("#")[0].split() for line in texts[1].decode().splitlines()]
        (_, inputs), (dense, classes, *_) = [layer for layer in layers if layer]
        assert dense == "dense"
        self.inputs, self.classes = int(inputs), int(classes)
        self.n = self.classes * self.inputs + self.classes
        self.manifest(texts[2])
        self.clocks = -(-self.sets[0]["n"] // self.batch)
        first = min(self.batch, self.sets[0]["n"])
        small = ini.has_option("batch", "tail-task") or -(-first // self.task) >= 8
        self.tail = ini.getfloat("batch", "tail", fallback=0.25 if small else 0)
        self.small = ini.getint("batch", "tail-task", fallback=max(self.task // 4, 1))
        self.room = min(55, 60 - (self.cut(first)[2] - 1).bit_length())

    def manifest(self, p):
        assert p[:4] == b"FALD" and p[4] == 1
        at, self.sets = 5, []
        for _ in range(2):
            (n,) = struct.unpack_from("<I", p, at)
            at += 4
            part = {"n": n, "names": [], "m": 1}
            if n > 0:
                *_, part["m"] = struct.unpack_from("<5I", p, at)
                at += 20
                for _ in range(-(-n // part["m"])):
                    part["names"].append(p[at:at + 32])
                    at += 32
            self.sets.append(part)
        assert at == len(p)

    def order(self, epoch):
        train, stream = self.sets[0], Stream(self.seed, 2, epoch)
        if self.whole:
            return stream.shuffle(list(range(train["n"])))
        chunks, out = stream.shuffle(list(range(len(train["names"])))), []
        for i in range(0, len(chunks), 8):
            out += stream.shuffle([s for c in chunks[i:i + 8] for s in range(
                c * train["m"], min((c + 1) * train["m"], train["n"]))])
        return out

    def cut(self, samples):
        """Tasks of a clock's head, samples of one of its tail, and all tasks."""
        head = int((1 - self.tail) * samples / self.task)
        small = self.small if self.tail > 0 else self.task
        return head, small, head - (head * self.task - samples) // small

    def places(self, clock, task):
        n = self.sets[0]["n"]
        first = clock % self.clocks * self.batch
        end = min(first + self.batch, n)
        head, small, _ = self.cut(end - first)
        at = first + min(task, head) * self.task + max(task - head, 0) * small
        return clock // self.clocks, range(at, min(at + (self.task if task < head else small), end))


class Worker:
    def __init__(self, link):
        self.link, self.incarnation = link, 0
        self.texts, self.chunks, self.job = [b"", b"", b""], {}, None
        self.oldest, self.versions, self.route, self.kept = 0, {}, {}, None
        self.queue, self.evals, self.eval_version = [], [], 0
        self.open, self.pending, self.closed, self.seq = None, [], {}, 0
        self.ahead = {}
        self.steps = self.tasks = self.pushes = 0
        self.orders = {}
        self.why = None

    def say(self, kind, fmt="", *fields, rest=b""):
        self.link.send(struct.pack("<HHI", kind, 0, self.incarnation) +
                       struct.pack("<" + fmt, *fields) + rest)

    def hello(self, name, version=b"1.0"):
        self.say(HELLO, "QH%dsH%dsIII16sB" % (len(name), len(version)), schema(),
                 len(name), name, len(version), version, 1, 1, 1, os.urandom(16), 0)

    def run(self):
        self.hello(b"python")
        while self.why is None:
            self.hear(self.link.receive())
            while self.why is None and self.work():
                # What has come meanwhile goes first: it may revoke the next task.
                while self.link_has():
                    self.hear(self.link.receive())
        return self.why

    def link_has(self):
        self.link.s.setblocking(False)
        try:
            return len(self.link.s.recv(1, socket.MSG_PEEK)) > 0
        except BlockingIOError:
            return False
        finally:
            self.link.s.setblocking(True)

    # -- messages

    def hear(self, p):
        kind, zero, incarnation = struct.unpack_from("<HHI", p)
        assert zero == 0
        if kind == WELCOME:
            self.incarnation = incarnation
        assert kind in self.HEARD, "message %d" % kind
        fmt, method = self.HEARD[kind]
        size = struct.calcsize("<" + fmt) if fmt is not None else 0
        fields = struct.unpack_from("<" + fmt, p, 8) if fmt is not None else ()
        method(self, *fields, p[8 + size:])

    def on_welcome(self, clock, job, model, manifest, epoch, rest):
        self.sizes, self.epoch = (job, model, manifest), epoch

    def on_text(self, which, offset, rest):
        assert len(self.texts[which]) == offset
        self.texts[which] += rest
        if tuple(map(len, self.texts)) == self.sizes:
            self.job = Job(self.texts)
            self.data = [bytearray(s["n"] * (self.job.inputs + 1)) for s in self.job.sets]
            self.blocks = -(-self.job.n // BLOCK)
            self.wanted = [(t, c) for t in (0, 1) for c in range(len(self.job.sets[t]["names"]))]
            for t, c in self.wanted[:4]:
                self.say(CHUNK_GET, "BI", t, c)

    def on_chunk(self, test, chunk, offset, total, rest):
        got = self.chunks.setdefault((test, chunk), b"")
        assert len(got) == offset
        self.chunks[test, chunk] = got = got + rest
        if len(got) < total:
            return
        part = self.job.sets[test]
        assert hashlib.blake2b(got, digest_size=32).digest() == part["names"][chunk]
        if len(self.chunks) + 3 < len(self.wanted):
            self.say(CHUNK_GET, "BI", *self.wanted[len(self.chunks) + 3])
        if sum(map(len, self.chunks.values())) == sum(map(len, self.data)):
            self.say(READY, "16sQIQ32sH", b"python" + os.urandom(10), 0, 0, 0, bytes(32), 0)
        self.steps += 1

    def sample(self, test, i):
        part = self.job.sets[test]
        chunk, at = divmod(i, part["m"])
        p, size = self.chunks[test, chunk], self.job.inputs
        count = len(p) // (size + 1)
        x = [f32(f32(f32(u / 255) - self.job.mean) / self.job.std)
             for u in p[at * size:(at + 1) * size]]
        return x, p[count * size + at]

    def on_version(self, version, oldest, keep, rest):
        self.oldest = oldest
        part = self.versions.setdefault(version, {"left": self.blocks, "w": {}, "e": {}})
        if keep:
            self.kept = (version, part)
        self.prune()

    def on_blocks(self, epoch, rest):
        assert epoch > 0 and len(rest) % 8 == 0
        self.epoch, self.route = epoch, {}
        for shard, (first, count) in enumerate(struct.iter_unpack("<II", rest), 1):
            for b in range(first, first + count):
                self.route[b] = shard
        assert len(self.route) == self.blocks

    def on_published(self, version, order, shard, first, blocks, publication, key, rest):
        assert shard > 0 and 0 < blocks <= self.blocks - first
        self.versions.setdefault(version, {"left": self.blocks, "w": {}, "e": {}})
        self.link.expect(publication, key, blocks,
                         self.job.hash + struct.pack("<IQ", self.incarnation, version))

    def on_model(self, version, first, blocks, rest):
        self.steps += 1
        part = self.versions.get(version)
        if part is None and self.kept is not None and self.kept[0] == version:
            part = self.kept[1]
        if part is None:
            return
        at = blocks
        for b in range(first, first + blocks):
            n = min(BLOCK, self.job.n - b * BLOCK)
            if b not in part["w"]:
                part["w"][b] = struct.unpack_from("<%df" % n, rest, at)
                part["e"][b] = struct.unpack_from("<b", rest, b - first)[0]
                part["left"] -= 1
            at += 4 * n
        assert at == len(rest)

    def prune(self):
        named = {g[v] for g in self.queue for v in ("version", "by")} | {self.oldest}
        for v in [v for v in self.versions if v < self.oldest and v not in named]:
            del self.versions[v]

    def on_grant(self, round_, clock, version, by, first, count, fw, fs, seq, kind, base, since,
                 from_, of, *rest):
        assert kind in (1, 3), "local steps are not for this one"
        if seq and (round_, seq) not in self.ahead:
            self.ahead[round_, seq] = {"round": round_, "seq": seq, "tasks": 0, "of": of,
                                       "part": None, "sums": [None] * self.blocks,
                                       "ticket": None}
        for task in range(first, first + count):
            if not any((g["round"], g["task"], g["kind"]) == (round_, task, kind)
                       for g in self.queue):
                self.queue.append({"round": round_, "clock": clock, "version": version,
                                   "by": by, "task": task, "fills": (fw, fs), "kind": kind,
                                   "seq": seq})
        self.queue.sort(key=lambda g: g["round"])

    def on_revoke(self, round_, first, count, check, rest):
        for seq in {g["seq"] for g in self.queue if g["round"] == round_ and g["seq"]
                    and not check and first <= g["task"] < first + count}:
            self.drop(round_, seq)
        self.queue = [g for g in self.queue
                      if g["round"] != round_ or (g["kind"] == 3) != bool(check)
                      or not first <= g["task"] < first + count]
        if self.open is not None and not self.more():
            self.say(SEAL, "QI", self.open["round"], self.open["seq"])
            self.close()

    def on_verdict(self, round_, task, seq, won, rest):
        at = next(i for i, p in enumerate(self.pending) if p[:3] == (round_, task, seq))
        *_, contribution, sums = self.pending.pop(at)
        if won:
            self.add(contribution, sums)

    def add(self, contribution, sums):
        contribution["tasks"] += 1
        for b, (needed, values) in enumerate(sums):
            if contribution["sums"][b] is None:
                contribution["sums"][b] = (needed, values)
            else:
                n, v = contribution["sums"][b]
                contribution["sums"][b] = (max(n, needed), [x + y for x, y in zip(v, values)])

    def on_ticket(self, rest):
        round_, _, seq, tasks = struct.unpack_from("<QIII", rest)
        assert len(rest) == 74
        if (round_, seq) in self.ahead:
            assert self.ahead[round_, seq]["of"] == tasks
            self.ahead[round_, seq]["ticket"] = rest
            self.push_ahead(round_, seq)
            return
        contribution = self.closed.pop((round_, seq))
        assert contribution["tasks"] == tasks
        self.push(contribution, rest)

    def drop(self, round_, seq):
        """Nothing comes of what was claimed ahead."""
        del self.ahead[round_, seq]
        self.queue = [g for g in self.queue if (g["round"], g["seq"]) != (round_, seq)]

    def on_fence(self, round_, seq, rest):
        if (round_, seq) in self.ahead:
            self.drop(round_, seq)
        self.closed.pop((round_, seq), None)
        if self.open is not None and (self.open["round"], self.open["seq"]) == (round_, seq):
            self.open = None

    def on_lanes(self, lanes, rest):
        assert lanes == 1

    def on_eval(self, version, first, count, rest):
        if version > self.eval_version:
            self.evals = []
        self.eval_version = version
        self.evals += range(first, first + count)

    def on_ping(self, stamp, rest):
        self.say(PONG, "QQ", stamp, self.steps)

    def on_account(self, mark, rest):
        self.say(WORKED, "8Q", mark, 0, 0, 0, 0, 0, 0, 0)

    def on_end(self, rest):
        self.why = rest[2:].decode()

    def on_refuse(self, rest):
        sys.exit("refused: " + rest[2 : 2 + rest[0] + 256 * rest[1]].decode())

    HEARD = {
        WELCOME: ("QIIII", on_welcome), TEXT: ("BI", on_text), VERSION: ("QQB", on_version),
        BLOCKS: ("I", on_blocks), PUBLISHED: ("QIIIIQ32s", on_published), MODEL: ("QII", on_model),
        GRANT: ("QQQQIIIIIBBQIIIf", on_grant), REVOKE: ("QIIB", on_revoke),
        VERDICT: ("QIIB", on_verdict), TICKET: (None, on_ticket), FENCE: ("QI", on_fence),
        LANES: ("I", on_lanes), CHUNK: ("BIII", on_chunk), EVAL: ("QII", on_eval),
        PING: ("Q", on_ping), ACCOUNT: ("Q", on_account), DONE: (None, on_end),
        REFUSE: (None, on_refuse), LATER: (None, on_refuse), DRAIN: (None, on_refuse),
    }

    # -- work

    def whole(self, version):
        part = self.versions.get(version)
        return part if part is not None and part["left"] == 0 else None

    def work(self):
        """One task; False: there is none that can run."""
        for i, g in enumerate(self.queue):
            if self.whole(g["version"]) is not None and self.whole(g["by"]) is not None:
                del self.queue[i]
                self.train(g)
                return True
        if self.evals and self.kept is not None and self.kept[1]["left"] == 0 and \
                self.kept[0] == self.eval_version:
            self.evaluate(self.evals.pop(0))
            return True
        return False

    def weights(self, part):
        flat = [v for b in range(self.blocks) for v in part["w"][b]]
        return flat[:-self.job.classes], flat[-self.job.classes:]

    def gradient(self, samples, part, test):
        weight, bias = self.weights(part)
        classes, inputs = self.job.classes, self.job.inputs
        dw, db, loss, right = [0.0] * len(weight), [0.0] * classes, 0.0, 0
        for s in samples:
            x, y = self.sample(test, s)
            z = [bias[c] + sum(weight[c * inputs + k] * x[k] for k in range(inputs))
                 for c in range(classes)]
            e = [math.exp(v - max(z)) for v in z]
            loss -= math.log(e[y] / sum(e))
            right += z.index(max(z)) == y
            for c in range(classes):
                d = e[c] / sum(e) - (c == y)
                db[c] += d
                for k in range(inputs):
                    dw[c * inputs + k] += d * x[k]
            self.steps += 1
        return [f32(v) for v in dw + db], loss, right

    @staticmethod
    def said(loss, samples):
        most = 65536.0 * samples
        return round((most if math.isnan(loss) else min(max(loss, -most), most)) * (1 << 20))

    def train(self, g):
        epoch, places = self.job.places(g["clock"], g["task"])
        if epoch not in self.orders:
            self.orders = {epoch: self.job.order(epoch)}
        samples = [self.orders[epoch][p] for p in places]
        part = self.whole(g["by"])
        grad, loss, _ = self.gradient(samples, self.whole(g["version"]), 0)
        sums = []
        for b in range(self.blocks):
            block = grad[b * BLOCK:(b + 1) * BLOCK]
            sums.append((needed_of(block), quantise(block, part["e"][b], self.job.room)))
        if g["kind"] == 3:
            self.say(CHECKED, "QIB16s", g["round"], g["task"], 0, task_hash(part["e"], sums))
            return
        assert all(v is not None for _, v in sums), "a gradient that is not finite"
        self.claim(g, part, sums, self.said(loss, len(samples)))

    def report(self, g, part, sums, loss):
        """A result of what was claimed when it was granted."""
        contribution = self.ahead[g["round"], g["seq"]]
        contribution["part"] = part
        self.add(contribution, sums)
        self.tasks += 1
        self.say(CLAIM, "QIIIIQQqBB16s", g["round"], g["task"], g["seq"], *g["fills"],
                 g["version"], 1000000, loss, 0, 0, task_hash(part["e"], sums),
                 rest=self.job.metrics)
        self.push_ahead(g["round"], g["seq"])

    def push_ahead(self, round_, seq):
        """If all of its tasks are done, and its ticket is here."""
        contribution = self.ahead[round_, seq]
        if contribution["tasks"] == contribution["of"] and contribution["ticket"] is not None:
            self.push(contribution, contribution["ticket"])
            del self.ahead[round_, seq]

    def claim(self, g, part, sums, loss):
        if g["seq"]:
            self.report(g, part, sums, loss)
            return
        key = (g["round"], g["by"], g["fills"])
        if self.open is not None and self.open["key"] != key:
            self.say(SEAL, "QI", self.open["round"], self.open["seq"])
            self.close()
        if self.open is None:
            self.seq += 1
            self.open = {"key": key, "round": g["round"], "seq": self.seq, "tasks": 0,
                         "part": part, "sums": [None] * self.blocks}
        seq, last = self.open["seq"], not self.more()
        self.tasks += 1
        self.pending.append((g["round"], g["task"], seq, self.open, sums))
        self.say(CLAIM, "QIIIIQQqBB16s", g["round"], g["task"], seq, *g["fills"], g["version"],
                 1000000, loss, 0, last, task_hash(part["e"], sums), rest=self.job.metrics)
        if last:
            self.close()

    def more(self):
        """Would anything in the queue go into the open contribution?"""
        return any((g["round"], g["version"], g["fills"]) == self.open["key"]
                   and g["kind"] == 1 and not g["seq"]
                   for g in self.queue)

    def close(self):
        self.closed[self.open["round"], self.open["seq"]] = self.open
        self.open = None

    def push(self, contribution, ticket):
        records, shard = b"", None
        for b, (needed, values) in enumerate(contribution["sums"]):
            one = record(b, contribution["part"]["e"][b], needed, values)
            if records and (self.route[b] != shard or len(records) + len(one) > MOST - 128):
                self.say(PUSH, "74sI", ticket, self.epoch, rest=records)
                records = b""
            records, shard = records + one, self.route[b]
        self.say(PUSH, "74sI", ticket, self.epoch, rest=records)
        self.pushes += 1

    def evaluate(self, task):
        n = self.job.sets[1]["n"]
        samples = range(task * self.job.task, min((task + 1) * self.job.task, n))
        _, loss, right = self.gradient(samples, self.kept[1], 1)
        self.say(EVALUATED, "QIIIqQ", self.kept[0], task, right, len(samples),
                 self.said(loss, len(samples)), 1000000, rest=self.job.metrics)


if __name__ == "__main__":
    with open(sys.argv[1]) as f:
        worker = Worker(Link(f.read(), sys.argv[2]))
    print("%s: %d tasks, %d contributions" % (worker.run(), worker.tasks, worker.pushes))
