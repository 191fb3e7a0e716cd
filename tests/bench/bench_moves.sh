#!/bin/bash
# bench_moves.sh: the clock in which a quarter of the blocks of a large model moves, beside
# the others of the same run, and the time that the bytes take at the rate of the line.
#
# Two processes have half of it each; a third one joins and gets half of the coordinator's;
# later it is drained, and half of what it had goes on to the second by way of the
# coordinator.  A clock is the time from a version to the next.
#
#	normal     median clock of those in which nothing moves
#	transfer   what moves, by the rate of one line
#	join       the clock of the move
#	join-more  what of it is not the transfer, as a ratio to the normal one: the target is 1.5
#	drain      the clock of the way back, of which half has two hops, and the same of it
#
# BENCH_WIDTH (4928): of the square in the model's middle: 24 million parameters
# in an even number of blocks, so that the two halves are alike;
# BENCH_RATE (100000000) bytes a second that each process sends.
set -eu
cd "$(dirname "$0")/../.."
bin=${FALCON_BIN:-build/release}
width=${BENCH_WIDTH:-4928} rate=${BENCH_RATE:-100000000}
. share/crew
. tests/bats/tiny.bash
"$bin/falcon-key" init "$dir/keys"
tiny "$dir"
printf 'input 16\ndense %d\nrelu\ndense %d\nrelu\ndense 4\n' "$width" "$width" \
	>"$dir/tiny.model"
trace=$dir/state/trace.jsonl

# shard NAME: a process of shards.
shard() {
	member "$1" "$bin/falcon-ps" --join "$address" -k "$dir/keys/shard.key" \
		--rate-limit "$rate"
}

# clock N: waits for the trace to come to it.
clock() {
	until [ "$(grep -c '"ev":"update"' "$trace")" -ge "$1" ]; do
		! grep -q '"ev":"failed"' "$trace" || done_by ps
		sleep 0.2
	done
}

serve ps "$bin/falcon-ps" -x -K "$dir/keys/keyring" -l 127.0.0.1:0 -s "$dir/state" \
	--rate-limit "$rate" --min-shards 1 -w 1 --set job.epochs=5 --set job.eval=never --set batch.task=64 \
	--set optimizer.lr=0.0001 \
	--set job.hashes=1000 --set sync.scheme=bsp --set state.clocks=0 \
	--set state.seconds=0 "$dir/tiny.job" >/dev/null 2>"$dir/ps.err"
shard one
member work "$bin/falcon-work" -k "$dir/keys/work.key" -n work --lanes 1 --cache none \
	"$address"
clock 7
shard two
clock 13
at=$(sed -n 's/.*: joined, listening on //p' "$dir/two.err")
"$bin/falcon-sync" -k "$dir/keys/control.key" "$address" drain "$at" 2>/dev/null
done_by ps
jq -rs --argjson rate "$rate" '
	def median: sort | .[(length - 1) / 2 | floor];
	map(select(.ev == "update") | .t) as $t |
	map(select(.ev == "place" and .rule == "moved") | .t) as $moves |
	(map(select(.ev == "job").params) | .[0]) as $params |
	[range(3; $t | length) as $v | {from: $t[$v - 1], to: $t[$v]}] as $clocks |
	def is_move: . as $c | any($moves[]; . > $c.from and . <= $c.to);
	($clocks | map(select(is_move | not) | .to - .from) | median) as $normal |
	($clocks | map(select(is_move) | .to - .from)) as $moved |
	($params / 4 * 4 / $rate) as $transfer |
	"moves.normal \($normal * 1000 | round) ms",
	"moves.transfer \($transfer * 1000 | round) ms",
	"moves.join \($moved[0] * 1000 | round) ms",
	"moves.join-more \(($moved[0] - $transfer) / $normal * 100 | round / 100) ratio",
	"moves.drain \($moved[1] * 1000 | round) ms",
	"moves.drain-more \(($moved[1] - $transfer) / $normal * 100 | round / 100) ratio"
' "$trace"
