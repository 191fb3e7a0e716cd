"""memory.py PID FILE: where the keys of a keyring or key file are in a process's memory.

One line for each place where half a key or more stands: its name, and "hidden" where the
page is in no core dump (VmFlags dd of proc(5)), else the mapping.  Status 75 if the memory
cannot be read.
"""

import base64
import re
import sys


def keys(path):
    with open(path) as lines:
        for words in map(str.split, lines):
            kind, _, text = words[2].rpartition(":") if len(words) > 2 else ("", "", "")
            if text and kind != "public" and not words[0].startswith("#"):
                key = base64.b64decode(text)
                yield words[0], key[:16]
                yield words[0], key[16:]


def mappings(pid):
    found = []
    with open("/proc/%s/smaps" % pid) as lines:
        for line in lines:
            m = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \S+ *(.*)", line)
            if m:
                found.append([int(m[1], 16), int(m[2], 16), m[3], m[4] or "anonymous", False])
            elif line.startswith("VmFlags:"):
                found[-1][4] = "dd" in line.split()
    return found


try:
    maps = mappings(sys.argv[1])
    memory = open("/proc/%s/mem" % sys.argv[1], "rb", 0)
except PermissionError:
    sys.exit(75)
halves = list(keys(sys.argv[2]))
for begin, end, mode, name, hidden in maps:
    if not mode.startswith("rw"):
        continue
    try:
        memory.seek(begin)
        data = memory.read(end - begin)
    except OSError:
        continue
    for whose, half in halves:
        if half in data:
            print(whose, "hidden" if hidden else name)
