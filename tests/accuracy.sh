#!/bin/bash
# accuracy.sh: trains the shipped jobs with one worker on all cores of this machine, and
# says whether their test accuracies are what the literature leads one to expect: LeNet-5
# on Fashion-MNIST within 10 epochs 0.89, a perceptron of two layers on MNIST 0.98; and whether
# the first, which is the demo's, has the accuracy and the model that README shows.
# Exit status: 0 both are reached, 1 one is not or a job failed.
#
# FALCON_BIN names the folder of the programs.  ACCURACY_EPOCHS cuts both jobs short.
# share/data/fetch mnist comes before.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${FALCON_BIN:-build/release}
. share/crew
"$bin/falcon-key" init "$dir/keys"
epochs=${ACCURACY_EPOCHS:+--set job.epochs=$ACCURACY_EPOCHS}
verdict=0

# train JOB: the result is $dir/JOB/result.json.
train() {
	# shellcheck disable=SC2086 # two words or none
	serve "ps-$1" "$bin/falcon-ps" -jx -K "$dir/keys/keyring" -l 127.0.0.1:0 \
		-s "$dir/$1" $epochs "share/jobs/$1.job" >/dev/null 2>"$dir/ps-$1.err"
	member "work-$1" "$bin/falcon-work" -k "$dir/keys/work.key" --lanes "$(nproc)" \
		--cache "$dir/cache" "$address"
	done_by "ps-$1" "work-$1"
}

# reached JOB BOUND: prints the accuracy beside the bound.
reached() {
	train "$1"
	jq -r --arg job "$1" --argjson bound "$2" '(.accuracy >= $bound) as $ok |
		"\($job): test accuracy \(.accuracy), at least \($bound): " +
		if $ok then "reached" else "MISSED" end' "$dir/$1/result.json"
	jq -e --argjson bound "$2" '.accuracy >= $bound' "$dir/$1/result.json" \
		>/dev/null || verdict=1
}

reached fashion 0.89
reached mnist-mlp 0.98
if [ -z "$epochs" ]; then
	jq -r '"    test accuracy   \(.accuracy)", "    EPSP\u0027s model    \(.sha256)"' \
		"$dir/fashion/result.json" >"$dir/shown"
	same=$(grep -cFxf "$dir/shown" README.md)
	echo "fashion: $same of the 2 lines of README that say how it ends"
	[ "$same" = 2 ] || verdict=1
fi
[ "$verdict" -eq 0 ]
