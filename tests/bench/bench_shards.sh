#!/bin/bash
# bench_shards.sh: a clock of a job of four shards, each a process that sends by a line of
# its own, and four workers, under what makes a parameter server straggle, by each static
# rule of placement:
#
#	none    alike tensors, alike lines
#	skew    one tensor has 95 % of the parameters
#	slow    a shard's line has a quarter of the bandwidth
#
# and then by psld, from our own placement on, where a shard's line falls to a quarter.
#
# and, for 3 times as many clocks, by psld, which begins with ours and moves blocks by what
# workers wait for.  For each: the median clock in ms, of psld's last third; the largest part
# of the bytes on one shard, in the end; the bound, all bytes of a clock by all lines
# together, in ms; and the clock as a ratio to it.  For psld how many times as long each rule
# takes, the last clock before blocks moved, the last before the clock is within a tenth of
# the last third's for good, the part of the blocks that moved, and by how much the longest
# clock in which some did is longer than the one before it, in ms.
# Median of BENCH_TURNS (3) turns, the rules in turn; BENCH_CLOCKS (16) clocks of each, of
# which the first three do not count; BENCH_RATE (4000000) bytes a second of a line, at
# which transfer is nearly all of a clock.
set -eu
cd "$(dirname "$0")/../.."
bin=${FALCON_BIN:-build/release}
clocks=${BENCH_CLOCKS:-16} rate=${BENCH_RATE:-4000000} turns=${BENCH_TURNS:-3}
workers=4
. share/crew
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

# turn CAUSE RULE: clock in ms, largest part, bound in ms.
turn() {
	local i last=$rate place=static:$2 epochs=$((clocks / 4))
	[ "$1" != slow ] || last=$((rate / 4))
	[ "$2" != psld ] || place=psld epochs=$((3 * clocks / 4))
	model "$1" >"$dir/tiny.model"
	rm -rf "$dir/state"
	serve ps "$bin/falcon-ps" -x -K "$dir/keys/keyring" -l 127.0.0.1:0 -s "$dir/state" \
		--rate-limit "$rate" --min-shards 3 -w $workers \
		--set job.epochs=$epochs --set job.eval=never --set sync.scheme=bsp \
		--set model.block=tensor --set "job.placement=$place" \
		--set state.clocks=0 --set state.seconds=0 \
		"$dir/tiny.job" >/dev/null 2>"$dir/ps.err"
	for i in "$rate" "$rate" "$last"; do
		n=$((${n:-0} + 1))
		member "shard$n" "$bin/falcon-ps" --join "$address" \
			-k "$dir/keys/shard.key" --rate-limit "$i"
	done
	for ((i = 0; i < workers; i++)); do
		member "w$i" "$bin/falcon-work" -k "$dir/keys/work.key" -n "w$i" --lanes 1 \
			--cache none "$address"
	done
	done_by ps
	jq -rs --argjson lines $((3 * rate + last)) --argjson workers $workers --arg rule "$2" '
		def median: sort | .[(length - 1) / 2 | floor];
		map(select(.ev == "update") | .t) as $t |
		(map(select(.ev == "job").params) | .[0]) as $params |
		map(select(.ev == "place")) as $maps |
		([.[] | select(.ev == "place" and .rule == "moved").t]) as $moves |
		[range(1; $t | length) as $v | $t[$v] - $t[$v - 1]] as $clock |
		($clock | .[if $rule == "psld" then 2 * length / 3 | floor else 2 end:] |
			median) as $typical |
		def owner: [.runs[] as $r | range($r[2]) | $r[0]];
		($maps[-1].runs | map(.[2])) as $blocks |
		[$typical * 1000, ($blocks | max / add), $params * 4 * $workers / $lines * 1000,
			([$t[] | select(. < ($moves[0] // 0))] | length),
			([$clock | to_entries[] | select(.value > 1.1 * $typical) | .key + 1] |
				if $rule == "psld" then map(select(. < ($clock | length) * 2 / 3)) |
					max // 0 else 0 end),
			([range(1; $maps | length) as $m | [($maps[$m] | owner),
				($maps[$m - 1] | owner)] | transpose |
				map(select(.[0] != .[1])) | length] | add // 0) / ($blocks | add),
			([$moves[] as $m | ([$t[] | select(. < $m)] | length) as $v |
				select($v > 1 and $v < ($t | length)) |
				($clock[$v - 1] - $clock[$v - 2]) * 1000] | max // 0)] | @tsv' \
		"$dir/state/trace.jsonl"
}

rules='blocks mxnet byteps tensorflow'
for cause in none skew slow; do
	for ((i = 0; i < turns; i++)); do
		for rule in $rules psld; do
			turn $cause "$rule" >>"$dir/$cause.$rule"
		done
	done
	for rule in $rules psld; do
		sort -n "$dir/$cause.$rule" | awk -v name="shards.$cause.$rule" \
			-v rule="$rule" -v to="$dir/$cause.$rule.clock" '
			{ for (i = 1; i <= 7; i++) v[NR, i] = $i }
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
			}'
	done
	for rule in $rules; do
		paste "$dir/$cause.$rule.clock" "$dir/$cause.psld.clock" |
			awk -v name="shards.$cause.psld.over-$rule" '
			{ printf "%s %.2f ratio\n", name, $1 / $2 }'
	done
done
