#!/bin/sh
# tests/torch/norm.sh: BatchNorm.  Where a task is a whole update, Falcon trains what plain
# PyTorch does, running statistics as well; where it is a part, two workers and one give
# the same model.  FALCON_BIN names the folder of the programs.
set -eu

bin=${FALCON_BIN:-build/release}
here=$(cd "$(dirname "$0")" && pwd)
share=$here/../../share
export PYTHONPATH="$share" PYTHONDONTWRITEBYTECODE=1

# shellcheck source=share/crew
. "$share/crew"

"$bin/falcon-key" init "$dir/keys"
"$here/norm.py" init "$dir/init"
# Data that the trainer does not look at, and as many samples as it has.
{
	printf '\0\0\010\003\0\0\1\0\0\0\0\4\0\0\0\4'
	head -c 4096 /dev/zero
} >"$dir/images"
{
	printf '\0\0\010\001\0\0\1\0'
	head -c 256 /dev/zero
} >"$dir/labels"
cat >"$dir/norm.job" <<-END
	[job]
	name = norm
	seed = 1
	epochs = 4
	[model]
	init = init
	buffers = *.running_mean *.running_var *.num_batches_tracked
	[data]
	format = idx
	train-images = images
	train-labels = labels
	test-images = images
	test-labels = labels
	[batch]
	size = 32
	task = 32
	[optimizer]
	kind = momentum
	momentum = 0.9
	lr = 0.05
	[sync]
	scheme = epsp
END
"$bin/falcon-work" --exec "exec $here/norm.py serve $dir/tried" --try "$dir/norm.job"

# coordinator NAME [OPTION...]: its state in NAME.
coordinator() {
	name=$1
	shift
	serve "$name" "$bin/falcon-ps" "$dir/norm.job" --keyring "$dir/keys/keyring" \
		--listen 127.0.0.1:0 --state "$dir/$name" --exit-when-done --json "$@" \
		>"$dir/$name.json" 2>"$dir/$name.err"
}

# work NAME [OPTION...]
work() {
	name=$1
	shift
	member "$name" "$bin/falcon-work" "$address" --key "$dir/keys/work.key" \
		--name "$name" --cache none --exec "exec $here/norm.py serve $dir/log.$name" "$@"
}

coordinator whole
work whole
done_by whole whole
"$here/norm.py" plain "$dir/log.whole" "$dir/init" "$dir/whole/model.safetensors"

coordinator one --set batch.task=8
work alone
done_by one alone
coordinator two --set batch.task=8 --min-workers 2
work fast --emulate rate=4000
work slow --emulate rate=1000
done_by two fast slow
cmp "$dir/one/model.safetensors" "$dir/two/model.safetensors"
echo "BatchNorm: ok"
