#!/usr/bin/python3
"""thief.py KEYRING NAME HOST:PORT: has a coordinator's keyring and nothing else, and tries to
join under the client's name NAME there.  With a shared key it has all that the client has.
With a static one it makes the MAC, and a first message that opens, of the coordinator's
secret key; but no session.  Says how far it came; exit 0: WELCOME."""

import base64
import hashlib
import os
import sys

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../client"))
import client  # noqa: E402 pylint: disable=wrong-import-position


class Known:
    """The static key of a client of which the public half is known."""

    def __init__(self, public):
        self.public = X25519PublicKey.from_public_bytes(public)

    def public_key(self):
        return self.public


class Thief(client.Link):
    """What the keyring has in the place of a client's file."""

    def __init__(self, keyring, name, addr):
        lines = [line.split() for line in keyring.splitlines() if line[:1] not in ("", "#")]
        self.coordinator = X25519PrivateKey.from_private_bytes(
            base64.b64decode(next(line[2] for line in lines if line[1] == "self")))
        kind, _, text = next(line[2] for line in lines if line[0] == name).rpartition(":")
        self.victim = base64.b64decode(text) if kind == "public" else None
        public = base64.b64encode(client.raw(self.coordinator)).decode()
        key = "secret:" + base64.b64encode(bytes(32)).decode() if self.victim else text
        super().__init__(" ".join((name, "work", key, public)), addr)

    def own_key(self, secret):
        self.secret = Known(self.victim)
        ss = self.coordinator.exchange(self.secret.public)
        self.psk = hashlib.blake2b(ss, digest_size=32, key=self.public + self.victim,
                                   person=b"falcon static").digest()

    def meet(self, secret, public):  # pylint: disable=arguments-differ
        if secret is not self.secret:
            return client.Link.meet(secret, public)
        if public == self.public:  # ss, from the other side
            return self.coordinator.exchange(self.secret.public)
        # se: of what is known, the most that can be tried.
        return self.coordinator.exchange(X25519PublicKey.from_public_bytes(public))


def main(path, name, addr):
    with open(path) as f:
        keyring = f.read()
    try:
        worker = client.Worker(Thief(keyring, name, addr))
    except EOFError:
        sys.exit("no answer")
    except InvalidTag:
        sys.exit("message 1 was taken; of message 2 no session can be made")
    worker.hello(b"thief")
    kind = int.from_bytes(worker.link.receive()[:2], "little")
    if kind != client.WELCOME:
        sys.exit("message %d" % kind)
    print("welcome")


if __name__ == "__main__":
    main(*sys.argv[1:4])
