#!/bin/sh
# tests/torch/exec.sh: LeNet-5 on a part of Fashion-MNIST by the trainer in PyTorch of
# examples/, on two workers of unequal speed, one of which loses its trainer twice: the
# model is that of one worker, to the bit, and judges as well as that of the built-in net.
# FALCON_BIN names the folder of the programs.
set -eu

bin=${FALCON_BIN:-build/release}
here=$(cd "$(dirname "$0")" && pwd)
share=$here/../../share
export PYTHONPATH="$share" PYTHONDONTWRITEBYTECODE=1
trainer="exec /usr/bin/python3 $here/../../examples/exec/fashion.py"

dir=$(mktemp -d)
# shellcheck source=share/crew
. "$share/crew"
clean_up() {
	dismiss
	rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 1' INT TERM HUP

"$bin/falcon-key" init "$dir/keys"
"$bin/falcon-work" --exec "$trainer" --try "$share/jobs/fashion.job"

# coordinator NAME [OPTION...]: of a job, its state in NAME.
coordinator() {
	name=$1
	shift
	serve "$name" "$bin/falcon-ps" "$share/jobs/fashion.job" --set job.epochs=1 \
		--set data.samples=5120 --set schedule.warmup=5 \
		--keyring "$dir/keys/keyring" --listen 127.0.0.1:0 --state "$dir/$name" \
		--exit-when-done --json "$@" >"$dir/$name.json" 2>"$dir/$name.err"
}

# work NAME [OPTION...]
work() {
	name=$1
	shift
	member "$name" "$bin/falcon-work" "$address" --key "$dir/keys/work.key" \
		--name "$name" "$@"
}

coordinator net
work built-in --lanes 1
done_by net built-in

coordinator one
work alone --exec "$trainer"
done_by one alone

coordinator two --min-workers 2
work fast --exec "$trainer" --emulate rate=800
work slow --exec "$trainer" --emulate rate=800,speed=1/4
kills=0
while ! [ -s "$dir/two.json" ] && [ "$kills" -lt 2 ]; do
	sleep 1
	# Before its first hello it would end the worker, too.
	grep -q '"ev":"ledger"' "$dir/two/trace.jsonl" || continue
	worker=$(pgrep -f -- "$dir/keys/work.key --name fast") || continue
	victim=$(pgrep -P "$worker" python3) || continue
	! kill -KILL "$victim" || kills=$((kills + 1))
done
done_by two fast slow
[ "$kills" -gt 0 ]

for name in one two; do
	"$bin/falcon-stat" --audit "$dir/$name/trace.jsonl"
done
jq -es '.[0].accuracy as $net | .[1].accuracy as $one | .[1].sha256 == .[2].sha256 and
	(($one - $net) | fabs) < 0.01' "$dir/net.json" "$dir/one.json" "$dir/two.json" || {
	jq -c '{accuracy, sha256}' "$dir/net.json" "$dir/one.json" "$dir/two.json"
	exit 1
}
