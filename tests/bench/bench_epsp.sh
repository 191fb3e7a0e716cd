#!/bin/bash
# bench_epsp.sh: clocks per second of EPSP and of bsp with one worker of four being four
# times slower, against the capacity bound (all speeds added up) and the whole-task bound
# (the best that whole tasks allow).  LeNet-5 on Fashion-MNIST, emulated workers.
# Then, without emulation, two one-lane workers, one under a CPU quota of 25 %.
#
# BENCH_SAMPLES (24,000) of one epoch; the first ten clocks warm up and do not count.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${FALCON_BIN:-build/release}
samples=${BENCH_SAMPLES:-24000}
dir=$(mktemp -d)
group=
clean_up() {
	jobs -p | xargs -r kill 2>/dev/null || :
	wait
	if [ -n "$group" ]; then rmdir "$group"; fi
	rm -rf "$dir"
}
trap clean_up EXIT
"$bin/falcon-key" init "$dir/keys"

# serve NAME WORKERS OPTION...: starts a coordinator; its address is in $address.
serve() {
	local name=$1 workers=$2
	shift 2
	mkfifo "$dir/$name.ready"
	"$bin/falcon-ps" -jx -K "$dir/keys/keyring" -l 127.0.0.1:0 -s "$dir/$name" \
		-w "$workers" --ready-fd 3 --set job.epochs=1 --set job.eval=never \
		--set data.samples="$samples" "$@" share/jobs/fashion.job \
		3>"$dir/$name.ready" >/dev/null 2>"$dir/$name.err" &

	read -r address <"$dir/$name.ready"
}

# work NAME OPTION...: starts a worker.
work() {
	local name=$1
	shift
	"$bin/falcon-work" -k "$dir/keys/work.key" -n "$name" -l 1 --cache "$dir/cache" \
		"$@" "$address" 2>>"$dir/$name.err" &
}

# clock_s NAME: mean seconds of a whole clock, by the versions' times.
clock_s() {
	jq -s '[.[] | select(.ev == "update" and .samples == 256) | .t] |
		(.[-1] - .[9]) / (length - 10)' "$dir/$1/trace.jsonl"
}

# emulated NAME SCHEME: three workers at speed 1, one at 1/4, of 4,000 samples/s.
emulated() {
	serve "$1" 4 --set sync.scheme="$2"
	for w in 1 2 3; do
		work "w$w" --emulate rate=4000,speed=1,cores=1
	done
	work w4 --emulate rate=4000,speed=1/4,cores=1
	wait
}

# quota NAME SCHEME: two real workers, one with a quarter of a core.
quota() {
	serve "$1" 2 --set sync.scheme="$2"
	work free
	( echo "$BASHPID" >"$group/cgroup.procs"
	  exec "$bin/falcon-work" -k "$dir/keys/work.key" -n quarter -l 1 \
		--cache "$dir/cache" "$address" 2>>"$dir/quarter.err" ) &
	wait
}

emulated epsp epsp
emulated bsp bsp
# 32 tasks of 2 ms: 19.69 ms if they could be cut; whole tasks 10, 10, 10, 2: 20 ms.
awk -v epsp="$(clock_s epsp)" -v bsp="$(clock_s bsp)" 'BEGIN {
	capacity = 32 * 2e-3 / 3.25; whole = 20e-3
	printf "one of four workers 4 times slower, LeNet-5, K = 32, 2 ms a task\n"
	printf "%-18s %10s %14s %14s\n", "", "clocks/s", "of capacity", "of whole tasks"
	printf "%-18s %10.2f %14.3f %14.3f\n", "capacity bound", 1 / capacity, 1, ""
	printf "%-18s %10.2f %14.3f %14.3f\n", "whole-task bound", 1 / whole, capacity / whole, 1
	printf "%-18s %10.2f %14.3f %14.3f\n", "epsp", 1 / epsp, capacity / epsp, whole / epsp
	printf "%-18s %10.2f %14.3f %14.3f\n", "bsp", 1 / bsp, capacity / bsp, whole / bsp
	printf "epsp is %.2f times as fast as bsp\n", bsp / epsp }'

if [ -w /sys/fs/cgroup/cpu/cgroup.procs ]; then
	group=/sys/fs/cgroup/cpu/falcon-bench.$$
	mkdir "$group"
	echo 100000 >"$group/cpu.cfs_period_us"
	echo 25000 >"$group/cpu.cfs_quota_us"
	quota quota-epsp epsp
	quota quota-bsp bsp
	awk -v epsp="$(clock_s quota-epsp)" -v bsp="$(clock_s quota-bsp)" 'BEGIN {
		printf "two real workers, one with a quarter of a core: epsp %.2f clocks/s, ", 1 / epsp
		printf "bsp %.2f: %.2f times as fast\n", 1 / bsp, bsp / epsp }'
else
	echo "no cgroup v1 cpu controller to write to: the quota part is left out"
fi
