#!/bin/sh
# tests/torch/models.sh: models of examples/ that Falcon knows by their first parameters
# only, against plain PyTorch with sums in float32, on the same batches and with as many
# updates.
#
# The ResNet, one task an update, as PyTorch lets running statistics go on with each batch:
# after 10 updates loss and accuracy to 0.1 %, running statistics to 0.01 % of their length.
# Training amplifies what is rounded: after 80, to 2 % and 20 %.
# The character GPT, AdamW and clipping on the server, from five seeds: the held-out loss
# is within 1 %.  GPT_SEEDS names other seeds.
# FALCON_BIN names the folder of the programs.
# shellcheck disable=SC2016 # jq's dollars
set -eu

bin=${FALCON_BIN:-build/release}
here=$(cd "$(dirname "$0")" && pwd)
share=$here/../../share
examples=$here/../../examples/exec
export PYTHONPATH="$share" PYTHONDONTWRITEBYTECODE=1 SEED=1

# shellcheck source=share/crew
. "$share/crew"

"$bin/falcon-key" init "$dir/keys"

# train NAME ARG OPTION...: an example, its script called with ARG if that is not empty,
# with these options of the coordinator, and then in plain PyTorch.
train() {
	script=$examples/$1.py
	arg=$2
	at=$dir/$1.$SEED
	mkdir "$at"
	cp "$examples/$1.job" "$at"
	job=$at/$1.job
	shift 2
	/usr/bin/python3 "$script" ${arg:+"$arg"} "$at/init.safetensors"
	"$bin/falcon-work" --exec "exec /usr/bin/python3 $script $arg" --try "$job"
	serve ps "$bin/falcon-ps" "$job" --keyring "$dir/keys/keyring" --listen 127.0.0.1:0 \
		--state "$at/state" --exit-when-done --json "$@" >"$at/falcon.json" \
		2>"$dir/ps.err"
	member work "$bin/falcon-work" "$address" --key "$dir/keys/work.key" --exec \
		"exec /usr/bin/python3 $here/plain.py record $at/record $script $arg"
	done_by ps work
	"$here/plain.py" train "$at/record" "$at/state" "$script" ${arg:+"$arg"} >"$at/plain.json"
}

# judge FILTER: of both results, $falcon and $plain.
judge() {
	jq -cn --slurpfile falcon "$at/falcon.json" --slurpfile plain "$at/plain.json" '
		"'"${at##*/}"'", ($falcon[0] | {accuracy, test_loss}), $plain[0]'
	jq -en --slurpfile falcon "$at/falcon.json" --slurpfile plain "$at/plain.json" '
		$falcon[0] as $falcon | $plain[0] as $plain | '"$1" >/dev/null
}

# resnet UPDATES NEAR APART: loss and accuracy are so near, running statistics so far apart.
resnet() {
	train resnet '' --set data.samples=$(($1 * 32)) --set data.test-samples=2000 \
		--set batch.size=32 --set optimizer.lr=0.05 --set schedule.warmup=5
	judge '($falcon.accuracy - $plain.accuracy | fabs) <= '"$2"' and
		($falcon.test_loss / $plain.test_loss - 1 | fabs) <= '"$2"' and
		([$plain.apart | to_entries[] | select(.key | test("running_")) | .value] |
			length == 12 and max <= '"$3"')'
}

resnet 10 0.001 0.0001
SEED=2
resnet 80 0.02 0.2

"$share/data/fetch" kjv "$dir/kjv"
for SEED in ${GPT_SEEDS:-1 2 3 4 5}; do
	train gpt "$dir/kjv/kjv.txt" --set job.seed="$SEED"
	judge '$plain.test_loss < 2.7 and ($falcon.test_loss / $plain.test_loss - 1 | fabs) <= 0.01'
done
