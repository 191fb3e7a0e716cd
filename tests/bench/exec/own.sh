#!/bin/bash
# own.sh: trainers in PyTorch by falcon-work --exec, over TCP, and the same nets in plain
# PyTorch (plain.py): clocks of 4 tasks, in turns.
#
#   exec.own.MODEL.falcon, .torch     one worker, and a loop: samples a second
#   exec.own.MODEL.falcon-2, .ddp     two workers, and two ranks of DistributedDataParallel
#                                     over Gloo
#   exec.own.MODEL.of-torch, .of-ddp  the one by the other
#
# Targets stand behind the figures.  BENCH_TURNS (5).  FALCON_BIN names the folder of the
# programs.
set -euo pipefail
cd "$(dirname "$0")/../../.."
bin=${FALCON_BIN:-build/release} turns=${BENCH_TURNS:-5} bench=exec.own
export PYTHONPATH=share PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
. share/crew
. tests/bench/figures.bash
plain=(/usr/bin/python3 "$PWD/tests/bench/exec/plain.py")
"$bin/falcon-key" init "$dir/keys" >/dev/null

# falcon MODEL TASK WORKERS: $rate, samples a second.
falcon() {
	local i time batch=$((4 * $2))
	rm -rf "$dir/state"
	serve ps "$bin/falcon-ps" -x -K "$dir/keys/keyring" -l 127.0.0.1:0 --seal-all \
		-s "$dir/state" -w "$3" --set job.epochs=1 --set job.eval=never \
		--set schedule.warmup=0 --set optimizer.lr=1e-3 --set batch.size="$batch" \
		--set batch.task="$2" --set data.samples=$((30 * batch)) \
		--set state.clocks=0 --set state.seconds=0 "$dir/job" >/dev/null 2>"$dir/ps.err"
	for ((i = 0; i < $3; i++)); do
		member "w$i" "$bin/falcon-work" -k "$dir/keys/work.key" -n "w$i" --lanes 1 \
			--cache none --exec "exec ${plain[*]} $1 trainer" "$address"
	done
	done_by ps
	for ((i = 0; i < $3; i++)); do
		done_by "w$i"
	done
	read -r time _ < <(took "$dir/state/trace.jsonl")
	rate=$(calc "$batch / $time")
}

# torch MODEL RANKS: $rate.
torch() {
	local i
	rm -f "$dir/meet"
	for ((i = 0; i < $2; i++)); do
		member "rank$i" "${plain[@]}" "$1" loop "$i" "$2" "$dir/meet" >"$dir/rank$i"
	done
	for ((i = 0; i < $2; i++)); do
		done_by "rank$i"
	done
	rate=$(cat "$dir/rank0")
}

# own MODEL TASK [TARGET TARGET-2]
own() {
	local turn what
	"${plain[@]}" "$1" init "$dir/init"
	sed "s|file = ../models/lenet5|init = $dir/init|" share/jobs/fashion.job >"$dir/job"
	for ((turn = 0; turn < turns; turn++)); do
		falcon "$1" "$2" 1
		keep "$1.falcon" "$rate"
		torch "$1" 1
		keep "$1.torch" "$rate"
		keep "$1.of-torch" "$(calc "$(tail -n 1 "$dir/$1.falcon.turns") / $rate")"
		falcon "$1" "$2" 2
		keep "$1.falcon-2" "$rate"
		torch "$1" 2
		keep "$1.ddp" "$rate"
		keep "$1.of-ddp" "$(calc "$(tail -n 1 "$dir/$1.falcon-2.turns") / $rate")"
	done
	for what in falcon torch falcon-2 ddp; do
		say "$1.$what" "$(middle "$1.$what")" samples/s
	done
	say "$1.of-torch" "$(middle "$1.of-torch")" ratio "${3-}"
	say "$1.of-ddp" "$(middle "$1.of-ddp")" ratio "${4-}"
}

own mlp 64 +0.85 +1
own gpt 4
