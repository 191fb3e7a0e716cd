#!/bin/sh
# tests/torch/run.sh: trains LeNet-5 on Fashion-MNIST for one epoch with one falcon-ps and
# one falcon-work, and has PyTorch judge the model that comes out: it must find as many
# right answers as Falcon did.  FALCON_BIN names the folder of the programs.
set -eu

bin=${FALCON_BIN:-build/release}
here=$(cd "$(dirname "$0")" && pwd)
share=$here/../../share
data=/usr/share/datasets/fashion-mnist

# shellcheck source=share/crew
. "$share/crew"

# normal KEY: what [data] of the job normalises with.
normal() {
	sed -n "s/^$1 = //p" "$share/jobs/fashion.job"
}

# value FILTER: of what falcon-ps printed.
value() {
	jq -er "$1" "$dir/result.json"
}

"$bin/falcon-key" init "$dir/keys"
serve ps "$bin/falcon-ps" "$share/jobs/fashion.job" --set job.epochs=1 \
	--keyring "$dir/keys/keyring" --listen 127.0.0.1:0 --state "$dir/state" \
	--exit-when-done --json >"$dir/result.json" 2>"$dir/ps.err"
member work "$bin/falcon-work" "$address" --key "$dir/keys/work.key"
done_by ps work

right=$(value '(.accuracy * 10000 | round)')
"$here/export.py" "$share/models/lenet5" "$(value .model)" \
	"$data/t10k-images-idx3-ubyte.gz" "$data/t10k-labels-idx1-ubyte.gz" \
	"$(normal mean)" "$(normal std)" "$right"
