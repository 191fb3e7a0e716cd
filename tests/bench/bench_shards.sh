#!/bin/bash
# bench_shards.sh: a clock of a job of four shards, each a process that sends by a line of
# its own, and four workers, under what makes a parameter server straggle, by each static
# rule of placement:
#
#	none    alike tensors, alike lines; but blocks that end a tensor are shorter
#	skew    one tensor has 95 % of the parameters
#	slow    a shard's line has a quarter of the bandwidth, by --rate-limit
#	tbf     the same, by a token bucket between network namespaces
#	cpu     a shard has BENCH_QUOTA (4) ms of a processor in each second
#
# and, for 3 times as many clocks, by psld, which begins with ours and moves blocks by what
# workers wait for.  For each: the median clock in ms, of psld's last third; the largest part
# of the bytes on one shard, in the end; the bound, all bytes of a clock by all lines
# together, in ms; and the clock as a ratio to it.  For psld how many times as long each rule
# takes, the last clock before blocks moved, the last before the clock is within a tenth of
# the last third's for good, the part of the blocks that moved and the bytes of it, and by how
# much the longest clock in which some did is longer than the one before it, in ms.
#
#	tbf-later, cpu-later   the same befalls the shard when 20 clocks are over
#
# with the rule `blocks` and with psld, for 4 times as many clocks: there the numbers of
# clocks count from then on, and `there` is the first of three clocks of which the median has
# at most a tenth left of what is won in the end.
# tbf and cpu need root, and cgroups of the first version: elsewhere they are left out.
# Median of BENCH_TURNS (3) turns, the rules in turn; BENCH_CLOCKS (16) clocks of each, of
# which the first three do not count; BENCH_RATE (4000000) bytes a second of a line, at
# which transfer is nearly all of a clock; BENCH_CAUSES: those that are asked for.
set -eu
# On a host of its own, where that may be.
if [ -z "${BENCH_HOST:-}" ] && unshare -n true 2>/dev/null; then
	BENCH_HOST=1 exec unshare -n bash "$0"
fi
[ -z "${BENCH_HOST:-}" ] || ip link set lo up
cd "$(dirname "$0")/../.."
bin=${FALCON_BIN:-build/release}
clocks=${BENCH_CLOCKS:-16} rate=${BENCH_RATE:-4000000} turns=${BENCH_TURNS:-3}
quota=${BENCH_QUOTA:-4} workers=4 onset=20
far=falcon-far.$$ group=/sys/fs/cgroup/cpu/falcon.$$
. share/crew
clean_up() {
	dismiss
	ip netns del "$far" 2>/dev/null || :
	rmdir "$group" 2>/dev/null || :
	rm -rf "$dir"
}
. tests/bats/tiny.bash
"$bin/falcon-key" init "$dir/keys"
tiny "$dir"
set -o pipefail

# model CAUSE: 0.2 million parameters.
model() {
	local n=160 layers=7
	[ "$1" != skew ] || { n=440 layers=2; }
	echo "input 16"
	while [ $layers != 0 ]; do
		printf 'dense %d\nrelu\n' $n
		layers=$((layers - 1))
	done
	echo "dense 4"
}

# make_far: a host with a cable to this one; fails: that is refused.
make_far() {
	ip netns add "$far" && ip link add "cable$$" type veth peer name cable netns "$far" &&
		ip addr add 198.18.0.1/24 dev "cable$$" && ip link set "cable$$" up &&
		ip -n "$far" addr add 198.18.0.2/24 dev cable && ip -n "$far" link set cable up &&
		ip -n "$far" link set lo up && line "$rate"
}

# line RATE: that of the host.
line() {
	tc -n "$far" qdisc replace dev cable root tbf rate $((8 * $1))bit burst 16kb \
		latency 400ms
}

# strike CAUSE: it befalls the last shard.
strike() {
	case $1 in
	tbf*) line $((rate / 4)) ;;
	cpu*)
		echo 400000 >"$group/cpu.cfs_period_us"
		echo $((quota * 400)) >"$group/cpu.cfs_quota_us"
		;;
	esac
}

# lame CAUSE: the shard that it befalls.
lame() {
	local ps=("$bin/falcon-ps" --join "$address" -k "$dir/keys/shard.key")
	case $1 in
	tbf*) member lame ip netns exec "$far" "${ps[@]}" -l 198.18.0.2:0 ;;
	cpu*)
		# shellcheck disable=SC2016 # for that shell
		member lame sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" \
			"${ps[@]}" --rate-limit "$rate"
		;;
	slow) member lame "${ps[@]}" --rate-limit $((rate / 4)) ;;
	*) member lame "${ps[@]}" --rate-limit "$rate" ;;
	esac
}

# turn CAUSE RULE: clock in ms, largest part, bound in ms.
turn() {
	local i last=$rate place=static:$2 epochs=$((clocks / 4)) from=0 at=127.0.0.1:0
	case $1 in slow | tbf*) last=$((rate / 4)) ;; esac
	[ "$2" != psld ] || place=psld epochs=$((3 * clocks / 4))
	case $1 in *-later) from=$onset epochs=$clocks ;; esac
	case $1 in
	tbf*)
		at=198.18.0.1:0
		line "$rate"
		;;
	cpu*)
		mkdir -p "$group"
		echo -1 >"$group/cpu.cfs_quota_us"
		;;
	esac
	[ $from -gt 0 ] || strike "$1"
	model "$1" >"$dir/tiny.model"
	rm -rf "$dir/state"
	serve ps "$bin/falcon-ps" -x -K "$dir/keys/keyring" -l "$at" -s "$dir/state" \
		--rate-limit "$rate" --min-shards 3 -w $workers \
		--set job.epochs="$epochs" --set job.eval=never --set sync.scheme=bsp \
		--set model.block=tensor --set "job.placement=$place" \
		--set state.clocks=0 --set state.seconds=0 \
		"$dir/tiny.job" >/dev/null 2>"$dir/ps.err"
	for i in 1 2; do
		member "shard$i" "$bin/falcon-ps" --join "$address" \
			-k "$dir/keys/shard.key" --rate-limit "$rate"
	done
	lame "$1"
	for ((i = 0; i < workers; i++)); do
		member "w$i" "$bin/falcon-work" -k "$dir/keys/work.key" -n "w$i" --lanes 1 \
			--cache none "$address"
	done
	for ((i = 0; i < 2000 && from > 0; i++)); do
		[ "$(grep -c '"ev":"update"' "$dir/state/trace.jsonl")" -lt $from ] || break
		sleep 0.05
	done
	[ $from = 0 ] || strike "$1"
	done_by ps
	jq -rs --argjson lines $((3 * rate + last)) --argjson workers $workers --arg rule "$2" \
		--argjson from $from '
		def median: sort | .[(length - 1) / 2 | floor];
		map(select(.ev == "update") | .t) as $t |
		(map(select(.ev == "job").params) | .[0]) as $params |
		map(select(.ev == "place")) as $maps |
		([.[] | select(.ev == "place" and .rule == "moved").t]) as $moves |
		[range(1; $t | length) as $v | $t[$v] - $t[$v - 1]] as $clock |
		($clock | .[if $rule == "psld" or $from > 0 then 2 * length / 3 | floor else 2
			end:] | median) as $typical |
		# What is not within this of the end is not there yet.
		(if $from == 0 then 1.1 * $typical else
			0.9 * $typical + 0.1 * ($clock[$from:$from + 4] | max) end) as $near |
		def owner: [.runs[] as $r | range($r[2]) | $r[0]];
		($maps[-1].runs | map(.[2])) as $blocks |
		[$typical * 1000, ($blocks | max / add), $params * 4 * $workers / $lines * 1000,
			(($moves | map(select($from == 0 or . > $t[$from - 1])) | .[0] // 0) as $m |
				([$t[] | select(. < $m)] | length) - (if $m > 0 then $from else 0 end)),
			(if $rule != "psld" then 0 elif $from == 0 then
				[$clock | to_entries[] | select(.value > $near) | .key + 1 |
					select(. < ($clock | length) * 2 / 3)] | max // 0
			else
				[range($from; ($clock | length) - 2) |
					select(($clock[.:. + 3] | median) <= $near)] |
					.[0] + 1 - $from
			end),
			([range(1; $maps | length) as $m | [($maps[$m] | owner),
				($maps[$m - 1] | owner)] | transpose |
				map(select(.[0] != .[1])) | length] | add // 0) / ($blocks | add),
			([$moves[] as $m | ([$t[] | select(. < $m)] | length) as $v |
				select($v > 1 and $v < ($t | length)) |
				($clock[$v - 1] - $clock[$v - 2]) * 1000] | max // 0),
			$params * 4] | @tsv' \
		"$dir/state/trace.jsonl"
}

causes=${BENCH_CAUSES:-none skew slow tbf cpu tbf-later cpu-later}
if ! make_far 2>/dev/null; then
	echo "${0##*/}: no network namespaces: without tbf" >&2
	causes=$(tr ' ' '\n' <<<"$causes" | grep -v '^tbf' | tr '\n' ' ')
fi
if ! mkdir -p "$group" 2>/dev/null || [ ! -w "$group/cpu.cfs_quota_us" ]; then
	echo "${0##*/}: no cgroups: without cpu" >&2
	causes=$(tr ' ' '\n' <<<"$causes" | grep -v '^cpu' | tr '\n' ' ')
fi
for cause in $causes; do
	rules='blocks mxnet byteps tensorflow'
	case $cause in *-later) rules=blocks ;; esac
	for ((i = 0; i < turns; i++)); do
		for rule in $rules psld; do
			turn "$cause" "$rule" >>"$dir/$cause.$rule"
		done
	done
	for rule in $rules psld; do
		sort -n "$dir/$cause.$rule" | awk -v name="shards.$cause.$rule" \
			-v rule="$rule" -v to="$dir/$cause.$rule.clock" '
			{ for (i = 1; i <= 8; i++) v[NR, i] = $i }
			END {
				m = int((NR + 1) / 2)
				printf "%s.clock %.0f ms\n%s.most %.2f ratio\n", name, v[m, 1],
					name, v[m, 2]
				printf "%s.bound %.0f ms\n%s.slower %.2f ratio\n", name, v[m, 3],
					name, v[m, 1] / v[m, 3]
				print v[m, 1] >to
				if (rule != "psld") exit
				printf "%s.first %d clocks\n%s.there %d clocks\n", name, v[m, 4],
					name, v[m, 5]
				printf "%s.moved %.2f ratio\n%s.stall %.0f ms\n", name, v[m, 6],
					name, v[m, 7]
				printf "%s.bytes %.0f kB\n", name, v[m, 6] * v[m, 8] / 1000
			}'
	done
	for rule in $rules; do
		paste "$dir/$cause.$rule.clock" "$dir/$cause.psld.clock" |
			awk -v name="shards.$cause.psld.over-$rule" '
			{ printf "%s %.2f ratio\n", name, $1 / $2 }'
	done
done
