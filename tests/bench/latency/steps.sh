#!/bin/bash
# steps.sh: what early tasks cost in updates.  Pairs of jobs of one seed, under bsp and under
# a fraction of slack, LeNet-5 and the MLP on 10 batches of Fashion-MNIST, so that each 10
# updates are an epoch and evaluated: the updates to a test loss, interpolated.
#
#	MODEL.updates  by which bsp comes to the loss, in the mean
#	MODEL.ratio    the fraction's updates in bsp's, geometric mean, and .most, the upper end
#	               of its 95 % interval
#
# BENCH_SEEDS (10), BENCH_SLACK (1/4), BENCH_EPOCHS (11), BENCH_LOSS: "MODEL LOSS ...".  With
# 10 seeds 20 minutes.
set -euo pipefail
cd "$(dirname "$0")/../../.."
bin=$(realpath "${FALCON_BIN:-build/release}")
seeds=${BENCH_SEEDS:-10} slack=${BENCH_SLACK:-1/4} epochs=${BENCH_EPOCHS:-11}
bench=steps
. share/crew
. tests/bench/figures.bash
"$bin/falcon-key" init "$dir/keys"

# updates MODEL LOSS SEED SCHEME: $reached, the updates to the loss.
updates() {
	rm -rf "$dir/state"
	serve ps "$bin/falcon-ps" -x -K "$dir/keys/keyring" -l "unix:$dir/sock" -s "$dir/state" \
		--set model.file="../models/$1" --set job.seed="$3" --set sync.scheme="$4" \
		--set job.epochs="$epochs" --set batch.size=1024 --set batch.task=64 \
		--set data.samples=10240 --set data.test-samples=4000 \
		--set state.clocks=0 --set state.seconds=0 \
		share/jobs/fashion.job >/dev/null 2>"$dir/ps.err"
	member w "$bin/falcon-work" -k "$dir/keys/work.key" -n w --lanes 2 --cache "$dir/cache" \
		"$address"
	done_by ps w
	reached=$(jq -rs --argjson loss "$2" '[{ version: 0, loss: 2.303 }] +
		map(select(.ev == "eval")) | map([.version, .loss]) |
		[range(1; length) as $i | select(.[$i][1] <= $loss) |
		 .[$i - 1] as [$v, $l] | $v + (.[$i][0] - $v) * ($l - $loss) / ($l - .[$i][1])] |
		first // "never"' "$dir/state/trace.jsonl")
}

read -ra pairs <<<"${BENCH_LOSS:-lenet5 0.65 mlp 0.5}"
for ((i = 0; i < ${#pairs[@]}; i += 2)); do
	model=${pairs[i]} loss=${pairs[i + 1]}
	for ((seed = 1; seed <= seeds; seed++)); do
		updates "$model" "$loss" "$seed" bsp
		bsp=$reached
		updates "$model" "$loss" "$seed" "epsp:$slack"
		echo "$model, seed $seed: bsp $bsp, epsp:$slack $reached" >&2
		echo "$bsp $reached" >>"$dir/$model"
	done
	awk '{ r = log($2 / $1); n++; all += $1; sum += r; square += r * r } END {
		# Of the distribution of Student for 9 degrees of freedom, as an approximation.
		t = 2.262; mean = sum / n; spread = n > 1 ? sqrt((square / n - mean * mean) / (n - 1)) : 0
		print all / n, exp(mean), exp(mean + t * spread) }' "$dir/$model" |
		while read -r mean ratio most; do
			say "$model.updates" "$mean" updates
			say "$model.ratio" "$ratio" ratio
			say "$model.ratio.most" "$most" ratio 1.05
		done
done
