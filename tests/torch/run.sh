#!/bin/sh
# tests/torch/run.sh: trains LeNet-5 on Fashion-MNIST for one epoch with one falcon-ps and
# one falcon-work, and has PyTorch judge the model that comes out: it must find as many
# right answers as Falcon did.  FALCON_BIN names the folder of the programs.
set -eu

bin=${FALCON_BIN:-build/release}
here=$(cd "$(dirname "$0")" && pwd)
share=$here/../../share
data=/usr/share/datasets/fashion-mnist

dir=$(mktemp -d)
pids=
clean_up() {
	# shellcheck disable=SC2086 # a list
	[ -z "$pids" ] || kill $pids 2>/dev/null || :
	wait
	rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 1' INT TERM HUP

# normal KEY: what [data] of the job normalises with.
normal() {
	sed -n "s/^$1 = //p" "$share/jobs/fashion.job"
}

# value FILTER: of what falcon-ps printed.
value() {
	jq -er "$1" "$dir/result.json"
}

"$bin/falcon-key" init "$dir/keys"
mkfifo "$dir/ready"
"$bin/falcon-ps" "$share/jobs/fashion.job" --set job.epochs=1 \
	--keyring "$dir/keys/keyring" --listen 127.0.0.1:0 --state "$dir/state" \
	--ready-fd 3 --exit-when-done --json 3>"$dir/ready" >"$dir/result.json" \
	2>"$dir/ps.err" &
ps=$!
pids=$ps
if ! read -r address <"$dir/ready"; then
	cat "$dir/ps.err" >&2
	exit 1
fi
"$bin/falcon-work" "$address" --key "$dir/keys/work.key" 2>"$dir/work.err" &
work=$!
pids="$pids $work"
if ! wait "$work" || ! wait "$ps"; then
	cat "$dir/ps.err" "$dir/work.err" >&2
	exit 1
fi
pids=

right=$(value '(.accuracy * 10000 | round)')
"$here/export.py" "$share/models/lenet5" "$(value .model)" \
	"$data/t10k-images-idx3-ubyte.gz" "$data/t10k-labels-idx1-ubyte.gz" \
	"$(normal mean)" "$(normal std)" "$right"
