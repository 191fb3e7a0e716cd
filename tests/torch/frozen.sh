#!/bin/sh
# tests/torch/frozen.sh: parameters without gradient.  What has requires_grad=False when falcon_train.save
# writes it stays as it is, to the bit, as in PyTorch; weight-decay for what has no gradient
# otherwise, unused or frozen later, is refused by name.
# FALCON_BIN names the folder of the programs.
set -eu

bin=$(cd "${FALCON_BIN:-build/release}" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd)
export PATH="$bin:/usr/bin:$PATH" PYTHONPATH="$root/share" PYTHONDONTWRITEBYTECODE=1

# shellcheck source=share/crew
. "$root/share/crew"

cd "$dir"
# train.py FROZEN [INIT]: a net of which FROZEN, a pattern, is frozen; `spare` is not used.
cat >train.py <<'END'
import fnmatch
import sys

import falcon_train
import torch
import torch.nn.functional as F

torch.manual_seed(1)
model = torch.nn.ModuleDict({name: torch.nn.Linear(8, 8) for name in ("base", "head", "spare")})
for name, p in model.named_parameters():
    p.requires_grad_(not fnmatch.fnmatch(name, sys.argv[1]))
x, y = torch.randn(256, 8), torch.randint(8, (256,))


def loss(task):
    out = model["head"](torch.relu(model["base"](x[task.indices])))
    return F.cross_entropy(out, y[task.indices], reduction="sum"), 0


if sys.argv[2:]:
    falcon_train.save(model, sys.argv[2])
else:
    falcon_train.torch(model, loss)
END
cat >kept.py <<'END'
import json
import sys


def tensors(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data = f.read()
    return {k: data[slice(*t["data_offsets"])] for k, t in header.items() if k != "__metadata__"}


a, b = map(tensors, sys.argv[1:])
print(*(k for k in a if a[k] == b[k]))
END
cat >train.job <<'END'
[job]
name = mine
seed = 1
epochs = 3
eval = never
[model]
init = init
[data]
format = index
samples = 256
[batch]
size = 64
task = 16
[optimizer]
kind = adamw
lr = 0.01
weight-decay = 0.1
[sync]
scheme = epsp
END
falcon-key init keys

# run NAME SAVED SERVED [OPTION...]: a job by a worker whose net is frozen so.
run() {
	name=$1 served=$3
	python3 train.py "$2" init
	shift 3
	serve "$name" falcon-ps -jx -K keys/keyring -l 127.0.0.1:0 -s "$name" "$@" train.job \
		>"$name.json" 2>"$name.err"
	member "$name.work" falcon-work -v -k keys/work.key --exec "exec python3 train.py '$served'" \
		"$address"
}

run frozen '[bs]*' '[bs]*'
done_by frozen frozen.work
[ "$(python3 kept.py init frozen/model.safetensors)" = "base.weight base.bias spare.weight spare.bias" ]
grep -q "not stepped: base.weight, base.bias, spare.weight, spare.bias\$" frozen.work.err
run none 'spare.*' 'spare.*' --set model.freeze='base.*'
done_by none none.work
[ "$(python3 kept.py init none/model.safetensors)" = "base.weight base.bias spare.weight spare.bias" ]
run without '' '' --set optimizer.weight-decay=0
done_by without without.work
[ "$(python3 kept.py init without/model.safetensors)" = "spare.weight spare.bias" ]

# refused SAVED SERVED NAMES: the trainer says these, and the worker ends.
refused() {
	python3 train.py "$1" init
	! falcon-work --try train.job --exec "exec python3 train.py '$2'" >said 2>&1 || exit 1
	grep -q "refuses: weight-decay .*: $3" said || {
		cat said
		exit 1
	}
}
refused '' '' 'spare.weight spare.bias'
refused 'spare.*' '[bs]*' 'base.weight base.bias'
echo "parameters without gradient: ok"
