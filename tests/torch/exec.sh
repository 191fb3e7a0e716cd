#!/bin/sh
# tests/torch/exec.sh: LeNet-5 on a part of Fashion-MNIST, with AdamW, by the trainers in
# PyTorch of examples/.  One worker is as good as plain PyTorch on the same batches, and as the
# built-in net; four of unequal speed, whose trainers are killed at random again and
# again, give its model, to the bit.  EXEC_SEED repeats what is drawn.
# FALCON_BIN names the folder of the programs.
set -eu

bin=${FALCON_BIN:-build/release}
here=$(cd "$(dirname "$0")" && pwd)
share=$here/../../share
examples=$here/../../examples/exec
export PYTHONPATH="$share" PYTHONDONTWRITEBYTECODE=1
python="exec /usr/bin/python3"
seed=${EXEC_SEED:-$(date +%N)}
echo "EXEC_SEED=$seed"

# shellcheck source=share/crew
. "$share/crew"

"$bin/falcon-key" init "$dir/keys"
job=$dir/fashion.job
sed -e "s|^file = .*/models|file = $share/models|" -e 's/^kind = nesterov/kind = adamw/' \
	-e 's/^lr = .*/lr = 0.002/' -e 's/^weight-decay = .*/weight-decay = 0.01/' \
	-e '/^momentum/d' "$share/jobs/fashion.job" >"$job"
sed -e 's/^\( *\)out = model(.*)/\1with torch.autocast("cpu", dtype=torch.bfloat16):\n    &/' \
	"$examples/fashion.py" >"$dir/bfloat16.py"
grep -q autocast "$dir/bfloat16.py"
for script in "$examples/fashion.py" "$examples/dataset.py" "$dir/bfloat16.py"; do
	"$bin/falcon-work" --exec "$python $script" --try "$job"
done

# coordinator NAME [OPTION...]: of a job, its state in NAME.
coordinator() {
	name=$1
	shift
	serve "$name" "$bin/falcon-ps" "$job" --set job.epochs=1 \
		--set data.samples=5120 --set data.test-samples=5000 --set batch.size=128 \
		--set schedule.warmup=5 --keyring "$dir/keys/keyring" --listen 127.0.0.1:0 \
		--state "$dir/$name" --exit-when-done --json "$@" \
		>"$dir/$name.json" 2>"$dir/$name.err"
}

# work NAME [OPTION...]
work() {
	name=$1
	shift
	member "$name" "$bin/falcon-work" "$address" --key "$dir/keys/work.key" \
		--name "$name" --cache "$dir/cache" "$@"
}

# clocks NAME: that are over.
clocks() {
	grep -c '"ev":"update"' "$dir/$1/trace.jsonl" || :
}

# strike NAME: kills the trainer of this worker, if it has one.
strike() {
	worker=$(pgrep -f -- "$dir/keys/work.key --name $1 ") &&
		victim=$(pgrep -P "$worker" python3) && kill -KILL "$victim"
}

coordinator net
work built-in --lanes 1
done_by net built-in

coordinator one
work alone --exec "$python $here/plain.py record $dir/record $examples/fashion.py"
done_by one alone
"$here/plain.py" train "$dir/record" "$dir/one" "$examples/fashion.py" >"$dir/plain.json"

coordinator augmented
work alone --exec "$python $here/plain.py record $dir/augmented.record $examples/dataset.py"
done_by augmented alone
"$here/plain.py" train "$dir/augmented.record" "$dir/augmented" "$examples/dataset.py" \
	>"$dir/augmented.plain.json"

coordinator four --min-workers 4
speed=0
for name in a b c d; do
	speed=$((speed + 1))
	work $name --exec "$python $examples/fashion.py" --emulate "rate=400,speed=$speed/4"
done
# Every fourth clock one of them, drawn, loses its trainer.
kills=0
draw=$(awk -v seed="$seed" 'BEGIN {
	srand(seed)
	for (i = 0; i < 1000; i++)
		print substr("abcd", 1 + int(4 * rand()), 1)
}')
for name in $draw; do
	until [ -s "$dir/four.json" ] || [ "$(clocks four)" -gt $((kills * 4)) ]; do
		sleep 0.1
	done
	[ ! -s "$dir/four.json" ] || break
	! strike "$name" || kills=$((kills + 1))
done
done_by four a b c d
echo "$kills trainers were killed"
[ "$kills" -ge 5 ]

for name in one four; do
	"$bin/falcon-stat" --audit "$dir/$name/trace.jsonl"
done
cd "$dir"
results="net.json plain.json one.json four.json augmented.plain.json augmented.json"
# shellcheck disable=SC2086 # a list
jq -c '{accuracy, test_loss, sha256}' $results
# shellcheck disable=SC2086
jq -es 'def near($by): (.[0].accuracy - .[1].accuracy | fabs) < $by and
		(.[0].test_loss - .[1].test_loss | fabs) < $by;
	.[2].sha256 == .[3].sha256 and ([.[0, 2]] | near(0.01)) and
	([.[1, 2]] | near(0.005)) and (.[4:6] | near(0.005)) and
	.[5].accuracy > 0.6' $results >/dev/null
