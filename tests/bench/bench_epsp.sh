#!/bin/bash
# bench_epsp.sh: the share of workers' time in which EPSP computes what counts: of clocks
# of 256 and of 1,024 samples, by 4 and by 8 workers of 1,000 samples/s, one of which is
# four times slower ("slow"), or each of which has slow clocks now and then ("random",
# falcon-emulate(5)).  LeNet-5 on Fashion-MNIST, emulated workers.  With each its targets;
# the whole-task bound, which no sharing of its tasks is above, where one worker is slow;
# and the share of computing that was thrown away.
# Beside them bsp and bsp,shares=speed where one of 4 is slow, and EPSP without a tail.
# Then, without emulation, two one-lane workers, one under a CPU quota of 25 %.
#
# One case is run once more with a batch and a task that are drawn from BENCH_SEED, which is
# printed: mostly the one is no multiple of the other.
#
# BENCH_CLOCKS (50) of each run; the first ten warm up and do not count.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${FALCON_BIN:-build/release}
clocks=${BENCH_CLOCKS:-50}
seed=${BENCH_SEED:-$RANDOM}
group=
bench=epsp
. share/crew
. tests/bench/figures.bash
clean_up() {
	dismiss
	if [ -n "$group" ]; then rmdir "$group" || :; fi
	rm -rf "$dir"
}
"$bin/falcon-key" init "$dir/keys"

# begin NAME WORKERS BATCH OPTION...: starts a coordinator; its address is in $address.
begin() {
	local name=$1 workers=$2 batch=$3
	shift 3
	serve "$name" "$bin/falcon-ps" -jx -K "$dir/keys/keyring" -l 127.0.0.1:0 \
		-s "$dir/$name" -w "$workers" --set job.epochs=1 --set job.eval=never \
		--set schedule.warmup=0 --set data.samples=$((clocks * batch)) \
		--set batch.size="$batch" "$@" \
		share/jobs/fashion.job >/dev/null 2>"$dir/$name.err"
}

# work NAME OPTION...: starts a worker.
work() {
	local name=$1
	shift
	member "$name" "$bin/falcon-work" -k "$dir/keys/work.key" -n "$name" --lanes 1 \
		--cache "$dir/cache" "$@" "$address"
}

# clock_s NAME: mean seconds of a clock, by the versions' times.
clock_s() {
	jq -s '[.[] | select(.ev == "update") | .t] | (.[-1] - .[9]) / (length - 10)' \
		"$dir/$1/trace.jsonl"
}

# shares NAME: the share of computing that counts, and that of it which was thrown away:
# tasks whose claim lost, and what ran of those that were taken back.
shares() {
	jq -rs 'map(select(.ev == "clock" and .clock >= 10)) |
		(map((.lost // 0) * (.task_s // 0) + (.cut // 0) * (.cut_s // 0)) | add) as $waste |
		(map(.compute) | add) as $compute |
		(map(.compute + .push + .pull + .wait) | add) as $all |
		[($compute - $waste) / $all, $waste / $compute] | @tsv' "$dir/$1/trace.jsonl"
}

# late NAME: by which part emulated tasks ended late, in percent.
late() {
	jq -s 'map(select(.ev == "clock")) |
		100 * (map(.late) | add) / (map(.compute) | add)' "$dir/$1/trace.jsonl"
}

# emulated NAME SCHEME WORKERS PATTERN BATCH OPTION...: such a run.  One in which tasks were
# more than 2 % late is made once more; then this machine is too slow, or too busy.
emulated() {
	local late name=$1
	shift
	for try in 1 2; do
		emulate "$name.$try" "$@"
		late=$(late "$name.$try")
		if awk "BEGIN { exit !($late <= 2) }"; then
			mv "$dir/$name.$try" "$dir/$name"
			return
		fi
	done
	printf 'bench_epsp: %s: emulated tasks were %.1f %% late: no figures\n' "$name" \
		"$late" >&2
	exit 1
}

emulate() {
	local name=$1 scheme=$2 workers=$3 pattern=$4 batch=$5 how who=()
	shift 5
	begin "$name" "$workers" "$batch" --set sync.scheme="$scheme" "$@"
	for w in $(seq "$workers"); do
		how=speed=1
		[ "$pattern" != slow ] || [ "$w" -lt "$workers" ] || how=speed=1/4
		[ "$pattern" != random ] || how=seed=1,worker=$w/$workers,pattern=random-clock
		work "w$w" --emulate "rate=1000,cores=1,$how"
		who+=("w$w")
	done
	done_by "$name" "${who[@]}"
}

# bound WORKERS BATCH TASK: the whole-task bound where one worker is at a quarter, as a share:
# three quarters of a clock in tasks of TASK, the rest in those of a quarter of TASK.
bound() {
	awk -v w="$1" -v batch="$2" -v task="$3" 'BEGIN {
		small = int(task / 4) > 1 ? int(task / 4) : 1
		head = int(0.75 * batch / task)
		tail = batch - head * task
		ideal = batch / (w - 0.75)
		for (t = ideal; ; t += 0.01) { # samples of a quick worker
			q = int(t / task + 1e-9); s = int(t / 4 / task + 1e-9)
			full = ((w - 1) * q + s) * task
			rest = (w - 1) * int((t - q * task) / small + 1e-9) * small
			rest += int((t / 4 - s * task) / small + 1e-9) * small
			if (full + (rest < tail ? rest : tail) >= batch - 1e-9)
				break
		}
		print ideal / t }'
}

# case_of PATTERN WORKERS BATCH TARGET
case_of() {
	local name=$1.$2.$3 share waste
	emulated "$name" epsp "$2" "$1" "$3" --set batch.task=8
	read -r share waste < <(shares "$name")
	say "$name.share" "$share" ratio "+$4"
	[ "$1" = random ] || say "$name.bound" "$(bound "$2" "$3" 8)" ratio
	say "$name.thrown-away" "$waste" ratio 0.015
}

case_of slow 4 1024 0.98
case_of slow 8 1024 0.97
case_of slow 4 256 0.955
case_of slow 8 256 0.92
case_of random 4 1024 0.97
case_of random 8 1024 0.97
case_of random 4 256 0.95
case_of random 8 256 0.90

emulated none epsp 4 slow 256 --set batch.task=8 --set batch.tail=0
read -r share waste < <(shares none)
say slow.4.256.without-tail "$share" ratio
for scheme in bsp bsp,shares=speed; do
	emulated "$scheme" "$scheme" 4 slow 256 --set batch.task=8
	read -r share waste < <(shares "$scheme")
	say "slow.4.256.$scheme" "$share" ratio
done

read -r batch task < <(awk -v seed="$seed" 'BEGIN {
	srand(seed)
	printf "%d %d\n", 200 + 120 * rand(), 5 + 7 * rand()
}')
echo "drawn from seed $seed: batch $batch, task $task"
emulated drawn epsp 4 slow "$batch" --set batch.task="$task"
read -r share waste < <(shares drawn)
say drawn.share "$share" ratio
say drawn.bound "$(bound 4 "$batch" "$task")" ratio

# make_group: a cgroup with a quarter of a core, of v1 or v2, in $group; 1: neither.
make_group() {
	local root=/sys/fs/cgroup dir
	for dir in "$root/cpu" "$root" "$root/unified"; do
		if [ -e "$dir/cgroup.subtree_control" ]; then # v2
			grep -qw cpu "$dir/cgroup.subtree_control" ||
				echo +cpu >"$dir/cgroup.subtree_control" || continue
		fi
		group=$dir/falcon-bench.$$
		mkdir "$group" || continue
		if [ -e "$group/cpu.max" ]; then
			echo 25000 100000 >"$group/cpu.max" && return
		elif [ -e "$group/cpu.cfs_quota_us" ]; then
			echo 100000 >"$group/cpu.cfs_period_us" &&
				echo 25000 >"$group/cpu.cfs_quota_us" && return
		fi
		rmdir "$group"
	done
	group=
	return 1
}

# quota NAME SCHEME: two real workers, one with a quarter of a core.
quota() {
	begin "$1" 2 256 --set sync.scheme="$2" --set batch.task=8
	work free
	# shellcheck disable=SC2016 # for that shell
	member quarter sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" \
		"$bin/falcon-work" -k "$dir/keys/work.key" -n quarter --lanes 1 \
		--cache "$dir/cache" "$address"
	done_by "$1" free quarter
}

if make_group 2>/dev/null; then
	quota quota-epsp epsp
	quota quota-bsp bsp
	awk -v epsp="$(clock_s quota-epsp)" -v bsp="$(clock_s quota-bsp)" 'BEGIN {
		form = "%-36s %12.4f %s\n"
		printf form, "quota.epsp", 1 / epsp, "clocks/s"
		printf form, "quota.bsp", 1 / bsp, "clocks/s"
		printf form, "quota.epsp-to-bsp", bsp / epsp, "ratio" }'
else
	echo "quota: NOT SHOWN: no cgroup cpu controller to write to"
fi
