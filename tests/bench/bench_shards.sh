#!/bin/bash
# bench_shards.sh: a clock of a job of four shards, each a process that sends by a line of
# its own, and four workers, under what makes a parameter server straggle, by each static
# rule of placement:
#
#	none    alike tensors, alike lines
#	skew    one tensor has 95 % of the parameters
#	slow    a shard's line has a quarter of the bandwidth
#
# For each: the median clock in ms; the largest part of the bytes on one shard; the bound,
# all bytes of a clock by all lines together, in ms; and the clock as a ratio to it.
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
	local i last=$rate
	[ "$1" != slow ] || last=$((rate / 4))
	model "$1" >"$dir/tiny.model"
	rm -rf "$dir/state"
	serve ps "$bin/falcon-ps" -x -K "$dir/keys/keyring" -l 127.0.0.1:0 -s "$dir/state" \
		--rate-limit "$rate" --min-shards 3 -w $workers \
		--set job.epochs=$((clocks / 4)) --set job.eval=never --set sync.scheme=bsp \
		--set model.block=tensor --set "job.placement=static:$2" \
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
	jq -rs --argjson lines $((3 * rate + last)) --argjson workers $workers '
		def median: sort | .[(length - 1) / 2 | floor];
		map(select(.ev == "update") | .t) as $t |
		(map(select(.ev == "job").params) | .[0]) as $params |
		(map(select(.ev == "place")) | .[0].runs | map(.[2])) as $blocks |
		[([range(3; $t | length) as $v | $t[$v] - $t[$v - 1]] | median) * 1000,
			($blocks | max / add),
			$params * 4 * $workers / $lines * 1000] | @tsv' "$dir/state/trace.jsonl"
}

for cause in none skew slow; do
	for ((i = 0; i < turns; i++)); do
		for rule in blocks mxnet byteps tensorflow; do
			turn $cause $rule >>"$dir/$cause.$rule"
		done
	done
	for rule in blocks mxnet byteps tensorflow; do
		sort -n "$dir/$cause.$rule" | awk -v name="shards.$cause.$rule" '
			{ clock[NR] = $1; most = $2; bound = $3 }
			END {
				c = clock[int((NR + 1) / 2)]
				printf "%s.clock %.0f ms\n%s.most %.2f ratio\n", name, c, name, most
				printf "%s.bound %.0f ms\n%s.slower %.2f ratio\n", name, bound,
					name, c / bound
			}'
	done
done
