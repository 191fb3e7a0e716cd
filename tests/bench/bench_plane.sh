#!/bin/bash
# bench_plane.sh: what a clock costs beside its computation, held against limits that are
# taken in the same turn: copying the same bytes, a TCP stream of them, a message there and
# back, and the same clock by plain sockets (tests/bench/twin.c), which seal nothing, pack
# nothing, and keep no second version: first all pushes, then all pulls (twin), and both at
# once (duplex).
#
#   clock      push + update + pull of 61 k, 670 k and 25 M floats by 1, 2 and 4 workers, all
#              on this machine: a median clock less the median of what its workers computed.
#              Tasks are of one sample.  The target is that of the suite which was measured
#              to be faster here.
#   bits       the same of 25 M floats by one worker with push.bits = 16
#   local      the same over a unix socket, so unsealed, and the twin over TCP; and
#              the jobs below
#   server-cpu what each further worker costs falcon-ps, of what it costs the twin's server
#   readers    what each further worker costs falcon-ps that has no task, and so only reads
#              versions, of a plain socket's writing as many bytes
#   rss        the peaks of large models, in sizes of the model; faults: pages that are
#              touched for the first time in a clock of the others
#   empty      clocks of a model of 68 floats; what each further task of one takes
#   workers    clocks/s of that model with 1, 8, 32 and 128 workers
#   mlp        a job of one worker, tasks of 64, of what its engine makes alone; lenet5: of
#              LeNet-5
#
# Targets stand behind the figures.  BENCH_TURNS (3); BENCH_LARGE=1: 100 M floats, too, for
# which 16 GiB are enough.  BENCH_PARTS: some of "clock readers bits local empty workers mlp
# lenet5".
set -eu
cd "$(dirname "$0")/../.."
bin=${FALCON_BIN:-build/release}
turns=${BENCH_TURNS:-3} parts=${BENCH_PARTS:-clock readers bits local empty workers mlp lenet5}
twin=$bin/bench/twin
. share/crew
. tests/bench/figures.bash
. tests/bench/plane.bash
bench=plane
"$bin/falcon-key" init "$dir/keys"
plane_begin
set -o pipefail

# least_of AES CHACHA FIGURE: its target; that of AES if one turn of it went by that.
least_of() {
	if grep -q AES "$dir/$3.suite"; then
		echo "$1"
	else
		echo "$2"
	fi
}

# clock_turn SIZE FLOATS CLOCKS: all of a size, once; the twin and the job side by side.
clock_turn() {
	local of=$1 floats=$2 clocks=$3 workers limits plain time compute n
	limits=$("$twin" limits $((floats * 4)))
	for what in memcpy stream ping; do
		keep "$of.$what" "$(value "$what" <<<"$limits")"
	done
	for workers in 1 2 4; do
		plain=$("$twin" clock "$floats" $workers "$clocks")
		keep "$of.$workers.twin" "$(value clock <<<"$plain")"
		keep "$of.$workers.twin-cpu" "$(value cpu <<<"$plain")"
		keep "$of.$workers.duplex" \
			"$("$twin" duplex "$floats" $workers "$clocks" | value clock)"
		job $workers $workers "$clocks"
		grep -o 'AES-256-GCM\|ChaCha20-Poly1305' "$dir/w$workers.0.err" \
			>>"$dir/$of.$workers.suite"
		read -r time compute n < <(took "$dir/state/trace.jsonl")
		keep "$of.$workers.clock" "$time"
		keep "$of.$workers.compute" "$compute"
		keep "$of.$workers.beside" "$(calc "$time - $compute")"
		keep "$of.$workers.of-twin" \
			"$(calc "($time - $compute) / $(value clock <<<"$plain")")"
		read -r rss cpu faults <"$dir/ps.spent"
		keep "$of.$workers.ps-cpu" "$(calc "$cpu / $n")"
		keep "$of.$workers.ps-rss" "$(calc "$rss / 4 / $floats")"
		keep "$of.$workers.ps-faults" "$(calc "$faults / $n")"
		read -r rss cpu faults <"$dir/w0.spent"
		keep "$of.$workers.work-rss" "$(calc "$rss / 4 / $floats")"
		keep "$of.$workers.work-faults" "$(calc "$faults / $n")"
	done
}

# clock_size SIZE WIDTH CLOCKS [TARGET [BY_CHACHA]]
# (done_by has a `name` of its own.)
clock_size() {
	local of=$1 width=$2 clocks=$3 most=${4-} workers turn what
	model "$width" >"$dir/tiny.model"
	for ((turn = 0; turn < turns; turn++)); do
		clock_turn "$of" "$(floats "$width")" "$clocks"
	done
	for what in memcpy stream; do
		say "$of.$what" "$(calc "1e3 * $(middle "$of.$what")")" ms
	done
	for workers in 1 2 4; do
		local at=$of.$workers
		for what in clock compute beside twin duplex; do
			say "$at.$what" "$(calc "1e3 * $(middle "$at.$what")")" ms
		done
		if [ $workers = 1 ]; then
			[ -z "${5-}" ] || most=$(least_of "$4" "$5" "$at")
			say "$at.of-twin" "$(middle "$at.of-twin")" ratio "$most"
			say "$at.of-streams" "$(calc "$(middle "$at.beside") / \
				(2 * $(middle "$of.stream"))")" ratio
		else
			say "$at.of-twin" "$(middle "$at.of-twin")" ratio
		fi
	done
	# Of three further workers; what both do but once cancels out.
	what=$(calc "$(middle "$of.4.ps-cpu") - $(middle "$of.1.ps-cpu")")
	say "$of.server-cpu" "$(calc "1e3 * $what / 3")" ms/worker
	say "$of.server-cpu-of-twin" "$(calc "$what / \
		($(middle "$of.4.twin-cpu") - $(middle "$of.1.twin-cpu"))")" ratio 1.2
	if [ "$clocks" -ge 100 ]; then # else nearly all are of the beginning
		say "$of.ps-faults" "$(middle "$of.4.ps-faults")" a-clock
		say "$of.work-faults" "$(middle "$of.1.work-faults")" a-clock
	else
		# 4.5, and momentum.
		say "$of.ps-rss" "$(middle "$of.1.ps-rss")" models 5.5
		say "$of.work-rss" "$(middle "$of.1.work-rss")" models 4.5
	fi
}

# further FIGURE: of three more, what one takes.
further() { calc "($(middle "$1.4") - $(middle "$1.1")) / 3"; }

# readers_size SIZE WIDTH CLOCKS: all workers are sent all versions, one of them has a task.
readers_size() {
	local of=readers.$1 width=$2 clocks=$3 turn workers cpu n
	model "$width" >"$dir/tiny.model"
	for ((turn = 0; turn < turns; turn++)); do
		for workers in 1 4; do
			job $workers 1 "$clocks"
			read -r _ _ n < <(took "$dir/state/trace.jsonl")
			read -r _ cpu _ <"$dir/ps.spent"
			keep "$of.cpu.$workers" "$(calc "$cpu / $n")"
			keep "$of.write.$workers" "$("$twin" write "$(floats "$width")" \
				$workers "$clocks" | value cpu)"
		done
	done
	say "$of.cpu" "$(calc "1e3 * $(further "$of.cpu")")" ms/reader
	say "$of.of-write" "$(calc "$(further "$of.cpu") / $(further "$of.write")")" ratio 1.2
}

readers() {
	readers_size 62k 238 1024
	readers_size 671k 808 512
	readers_size 25M 4989 24
}

bits() {
	local of=25M-bits width=4989 turn plain time compute
	model "$width" >"$dir/tiny.model"
	for ((turn = 0; turn < turns; turn++)); do
		plain=$("$twin" clock "$(floats "$width")" 1 12 | value clock)
		job 1 1 12 --set push.bits=16
		read -r time compute _ < <(took "$dir/state/trace.jsonl")
		keep "$of.beside" "$(calc "$time - $compute")"
		keep "$of.of-twin" "$(calc "($time - $compute) / $plain")"
	done
	say "$of.beside" "$(calc "1e3 * $(middle "$of.beside")")" ms
	say "$of.of-twin" "$(middle "$of.of-twin")" ratio 1.4
}

# local_size SIZE WIDTH CLOCKS: of such a model, over a unix socket.
local_size() {
	local of=local.$1 workers turn
	model "$2" >"$dir/tiny.model"
	for ((turn = 0; turn < turns; turn++)); do
		clock_turn "$of" "$(floats "$2")" "$3"
	done
	for workers in 1 2 4; do
		say "$of.$workers.beside" "$(calc "1e3 * $(middle "$of.$workers.beside")")" ms
		say "$of.$workers.of-twin" "$(middle "$of.$workers.of-twin")" ratio
	done
}

local_parts() {
	local listen=unix:$dir/socket
	local_size 62k 238 256
	local_size 671k 808 256
	local_size 25M 4989 12
	of_engine mlp
	of_engine lenet5
}

# An empty clock, and what each further task adds to it.
empty() {
	local turn time tasks=64
	model 0 >"$dir/tiny.model"
	for ((turn = 0; turn < turns; turn++)); do
		keep ping "$("$twin" limits 65536 | value ping)"
		job 1 1 2000
		read -r time _ < <(took "$dir/state/trace.jsonl")
		keep empty "$time"
		job 1 $tasks 200
		read -r full _ < <(took "$dir/state/trace.jsonl")
		keep task "$(calc "($full - $time) / ($tasks - 1)")"
	done
	say empty.ping "$(calc "1e6 * $(middle ping)")" us
	say empty.clock "$(calc "1e6 * $(middle empty)")" us
	say empty.of-ping "$(calc "$(middle empty) / $(middle ping)")" ratio 2.5
	say empty.task "$(calc "1e6 * $(middle task)")" us 20
}

workers() {
	local turn n time
	model 0 >"$dir/tiny.model"
	for ((turn = 0; turn < turns; turn++)); do
		for n in 1 8 32 128; do
			job $n $n $((n < 100 ? 400 : 100))
			read -r time _ < <(took "$dir/state/trace.jsonl")
			keep "workers.$n" "$time"
		done
	done
	for n in 1 8 32 128; do
		say "workers.$n" "$(calc "1 / $(middle "workers.$n")")" clocks/s
	done
}

# One worker on images of Fashion-MNIST, 64 at a time: of what its engine makes alone.
mlp() { of_engine mlp +0.8; }
lenet5() { of_engine lenet5; }
of_engine() {
	local turn engine at=${listen:+local.}$1
	for ((turn = 0; turn < turns; turn++)); do
		engine=$("$bin/bench/bench_nn" 0.5 | value "nn.$1.task64.rate")
		images "$1" 1
		keep "$at.engine" "$engine"
		keep "$at.job" "$rate"
		keep "$at.of-engine" "$(calc "$rate / $engine")"
	done
	say "$at.engine" "$(middle "$at.engine")" samples/s
	say "$at.job" "$(middle "$at.job")" samples/s
	say "$at.of-engine" "$(middle "$at.of-engine")" ratio "${2-}"
}

for part in $parts; do
	if [ "$part" = clock ]; then
		clock_size 62k 238 256
		clock_size 671k 808 256 1.5
		clock_size 25M 4989 12 1.6 1.9
		[ -z "${BENCH_LARGE-}" ] || clock_size 100M 9989 8 1.6 1.9
	elif [ "$part" = local ]; then
		local_parts
	else
		"$part"
	fi
done
