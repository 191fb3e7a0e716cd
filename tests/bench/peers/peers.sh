#!/bin/bash
# peers.sh: jobs on Fashion-MNIST by falcon-work, and the same by PyTorch (plain.py): a loop
# on one core against one worker and falcon-ps, and DistributedDataParallel over Gloo
# against two workers and falcon-ps; tasks of 64, one for each worker.  The model, the rule
# and the samples of a step are the same; what PyTorch trains on is in memory, as floats.
#
#   peers.MODEL.falcon, .torch      one worker, and the loop: samples a second
#   peers.MODEL.falcon-2, .ddp      two workers, and two ranks, which Gloo connects by TCP
#   peers.MODEL.local-2             two workers over a unix socket
#   peers.MODEL.of-torch, .of-ddp, .local-of-ddp
#                                   the one by the other, in turns
#
# Targets stand behind the figures.  BENCH_TURNS (3).  FALCON_BIN names the folder of the
# programs.
set -eu
cd "$(dirname "$0")/../../.."
bin=${FALCON_BIN:-build/release} turns=${BENCH_TURNS:-3} bench=peers
. share/crew
. tests/bench/figures.bash
set -o pipefail
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
"$bin/falcon-key" init "$dir/keys" >/dev/null

# torch MODEL RANKS: $rate, samples a second.
torch() {
	local i
	rm -f "$dir/meet"
	for ((i = 0; i < $2; i++)); do
		member "rank$i" /usr/bin/python3 tests/bench/peers/plain.py \
			"share/models/$1" "$i" "$2" "$dir/meet" >"$dir/rank$i"
	done
	for ((i = 0; i < $2; i++)); do
		done_by "rank$i"
	done
	rate=$(cat "$dir/rank0")
}

# peers MODEL TARGET: the least that two workers should make of what DDP does.
peers() {
	local turn one two near listen
	for ((turn = 0; turn < turns; turn++)); do
		images "$1" 1
		keep "$1.falcon" "$rate"
		one=$rate
		torch "$1" 1
		keep "$1.torch" "$rate"
		keep "$1.of-torch" "$(calc "$one / $rate")"
		images "$1" 2
		keep "$1.falcon-2" "$rate"
		two=$rate
		listen=unix:$dir/socket
		images "$1" 2
		listen=
		keep "$1.local-2" "$rate"
		near=$rate
		torch "$1" 2
		keep "$1.ddp" "$rate"
		keep "$1.of-ddp" "$(calc "$two / $rate")"
		keep "$1.local-of-ddp" "$(calc "$near / $rate")"
	done
	for what in falcon torch falcon-2 local-2 ddp; do
		say "$1.$what" "$(middle "$1.$what")" samples/s
	done
	say "$1.of-torch" "$(middle "$1.of-torch")" ratio
	say "$1.of-ddp" "$(middle "$1.of-ddp")" ratio "$2"
	say "$1.local-of-ddp" "$(middle "$1.local-of-ddp")" ratio "$2"
}

peers mlp +1.3
peers lenet5 +2
