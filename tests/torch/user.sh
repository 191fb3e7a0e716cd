#!/bin/sh
# tests/torch/user.sh: what falcon-gradient(7) tells a user of PyTorch to type, from a
# script of his to workers on two hosts, works as it stands there; both hosts are folders.
# Prints how much is typed, and how long what is typed takes.
# FALCON_BIN names the folder of the programs.
set -eu

bin=$(cd "${FALCON_BIN:-build/release}" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd)
export PATH="$bin:/usr/bin:$PATH" PYTHONDONTWRITEBYTECODE=1

# shellcheck source=share/crew
. "$root/share/crew"

cd "$dir"
mkdir first other
# The second block is the end of the script, the third its job, then come both hosts.
awk '/^\.Sh/ { on = /EXAMPLES/ } /^\.Ed/ { code = 0 } code { print >("block." n) }
	on && /^\.Bd/ { code = 1; n++ }' "$root/man/falcon-gradient.7"
cat >first/train.py - block.2 <<'EOF'
import sys

import falcon_train
import torch
import torch.nn.functional as F
from torch.utils.data import TensorDataset, default_collate

torch.manual_seed(1)
numbers = torch.randn(2000, 8)
train = TensorDataset(numbers, (numbers.sum(1) > 0).long())
model = torch.nn.Linear(8, 2)
EOF
sed 's/^samples = .*/samples = 2000/' block.3 >first/train.job
cp "$root/share/falcon_train.py" first

# typed BLOCK LINE: the command there; the coordinator's port is one that is free.
typed() {
	sed -n "$2{s/0\\.0\\.0\\.0:7000/127.0.0.1:0/; s/[a-z0-9.]*:7000/\$address/; s/ &\$//; p}" \
		"block.$1"
}

# at HOST COMMAND: in its folder.
at() (
	cd "$1"
	eval "exec $2"
)

begin=$(date +%s)
for line in 1 2 3 4; do
	at first "$(typed 4 $line)"
done
# crew calls it with more options.
ps() {
	at first "$(typed 4 5) $*"
}
serve ps ps --min-workers 2
cp first/lab/other.key first/train.py first/falcon_train.py other
member first at first "$(typed 4 7) --name first"
member other at other "$(typed 5 1) --name other"
done_by ps first other
echo "typed: $(wc -l <block.2) lines of the script, $(wc -l <block.3) of a job," \
	"$(cat block.4 block.5 | wc -l) commands; they took $(($(date +%s) - begin)) s"
"$bin/falcon-stat" --audit first/run/trace.jsonl
jq -es '[.[] | select(.ev == "update") | .loss] | .[-1] < .[0]' first/run/trace.jsonl

# A loss that changes the parameters changes those of its own task alone.
sed 's/^def loss(task):.*/&\n    with torch.no_grad():\n        for p in model.parameters():\n            p.mul_(0.9)/' \
	first/train.py >first/writes.py
at first "falcon-work --exec 'exec python3 writes.py' --try train.job" >tried
grep -q "^ok 3 tasks, each twice: same bits" tried
