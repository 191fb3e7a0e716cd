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
# With PSLITE=FOLDER, of a built ps-lite (build/libps.a), and a C++ compiler, CXX:
#
#   peers.SIZE.falcon, .pslite      push + update + pull of so many floats by one worker over
#                                   TCP: as bench_plane.sh has it, and the same by ps-lite
#                                   (pslite.cc), which seals nothing
#   peers.SIZE.of-pslite            the one by the other, in turns
#
# Targets stand behind the figures.  BENCH_TURNS (3).  FALCON_BIN names the folder of the
# programs.
set -eu
cd "$(dirname "$0")/../../.."
bin=${FALCON_BIN:-build/release} turns=${BENCH_TURNS:-3} bench=peers
. share/crew
. tests/bench/figures.bash
. tests/bench/plane.bash
twin=$bin/bench/twin
plane_begin
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

# pslite_clock FLOATS CLOCKS: seconds of ps-lite's.  Who meets by a port that is not free
# tries the next one.
pslite_clock() {
	local role clock
	for _ in 1 2 3 4; do
		export DMLC_PS_ROOT_PORT=$((20000 + RANDOM % 10000))
		for role in scheduler server; do
			DMLC_ROLE=$role timeout 60 "$dir/pslite" "$@" 2>"$dir/pslite.$role.err" &
		done
		clock=$(DMLC_ROLE=worker timeout 60 "$dir/pslite" "$@" 2>"$dir/pslite.err" | value clock) || :
		wait
		[ -z "$clock" ] || break
	done
	echo "$clock"
}

# of_pslite SIZE WIDTH CLOCKS [TARGET]
of_pslite() {
	local turn time compute theirs
	model "$2" >"$dir/tiny.model"
	for ((turn = 0; turn < turns; turn++)); do
		job 1 1 "$3"
		read -r time compute _ < <(took "$dir/state/trace.jsonl")
		theirs=$(pslite_clock "$(floats "$2")" "$3")
		if [ -z "$theirs" ]; then
			cat "$dir"/pslite.*.err >&2
			exit 1
		fi
		keep "$1.falcon" "$(calc "$time - $compute")"
		keep "$1.pslite" "$theirs"
		keep "$1.of-pslite" "$(calc "($time - $compute) / $theirs")"
	done
	say "$1.falcon" "$(calc "1e3 * $(middle "$1.falcon")")" ms
	say "$1.pslite" "$(calc "1e3 * $(middle "$1.pslite")")" ms
	say "$1.of-pslite" "$(middle "$1.of-pslite")" ratio "${4-}"
}

if [ -n "${PSLITE-}" ]; then
	"${CXX:-g++}" -O3 -march=native -std=c++17 -I"$PSLITE/include" -I"$PSLITE/deps/include" \
		tests/bench/peers/pslite.cc "$PSLITE/build/libps.a" -L"$PSLITE/deps/lib" \
		-lzmq -lprotobuf -pthread -o "$dir/pslite"
	export DMLC_NUM_SERVER=1 DMLC_NUM_WORKER=1 DMLC_PS_ROOT_URI=127.0.0.1 \
		DMLC_NODE_HOST=127.0.0.1
	of_pslite 671k 808 256 1
	of_pslite 25M 4989 12
fi
peers mlp +1.3
peers lenet5 +2
