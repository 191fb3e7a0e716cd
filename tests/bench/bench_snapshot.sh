#!/bin/bash
# bench_snapshot.sh: by how much the clock is longer that a snapshot falls into, in one run
# of a job of 25 million parameters with momentum and a clock of about a second: that of
# the version which is marked, and the one after it, in which the snapshot is written,
# each as a ratio of medians to the clocks around, and in milliseconds.  What the mark
# itself takes of an empty clock is bench_mark's.
#
# The target is 1.1 for the first.  BENCH_CLOCKS (24) clocks, of which the first three do
# not count and each sixth has a snapshot; BENCH_WIDTH (5000) is the width of two layers.
set -eu
cd "$(dirname "$0")/../.."
bin=${FALCON_BIN:-build/release}
clocks=${BENCH_CLOCKS:-24} width=${BENCH_WIDTH:-5000} every=6
. share/crew
. tests/bats/tiny.bash
"$bin/falcon-key" init "$dir/keys"
tiny "$dir" # in which a pipe breaks
set -o pipefail
printf 'input 16\ndense %d\nrelu\ndense %d\nrelu\ndense 4\n' "$width" "$width" >"$dir/tiny.model"
serve ps "$bin/falcon-ps" -x -K "$dir/keys/keyring" -l "unix:$dir/sock" -s "$dir/state" \
	--set job.epochs=$((clocks / 4)) --set job.eval=never --set sync.scheme=bsp \
	--set optimizer.kind=momentum --set optimizer.momentum=0.9 --set optimizer.lr=1e-6 \
	--set state.clocks=$every --set state.seconds=0 --set state.keep=1000 \
	"$dir/tiny.job" >/dev/null 2>"$dir/ps.err"
# A task of 8 samples takes an eighth of a second, or what it takes.
member w "$bin/falcon-work" -k "$dir/keys/work.key" -n w --lanes 1 --cache none \
	--emulate rate=64,speed=1,cores=1 "$address"
done_by ps
marked=$(find "$dir/state" -maxdepth 1 -name 'snapshot.*' |
	sed 's/.*\.0*\([0-9]\)/\1/' | jq -sc 'map(select(. > 3))')
jq -rs --argjson marked "$marked" --arg name "snapshot.$((width * width / 1000000))M" '
	def median: sort | .[(length - 1) / 2 | floor];
	map(select(.ev == "update") | .t) as $t |
	# The clock of version v ends with it.
	[range(4; $t | length + 1) as $v | { $v, s: ($t[$v - 1] - $t[$v - 2]) }] |
	map(.v as $v | . + { marked: ($marked | index($v) != null),
		next: ($marked | index($v - 1) != null) }) |
	(map(select(.marked or .next | not).s) | median) as $other |
	(map(select(.marked).s) | median) as $mark |
	(map(select(.next).s) | median) as $next |
	"\($name).clock \($other * 1000 | round) ms",
	"\($name).marked \($mark / $other * 1000 | round / 1000) ratio",
	"\($name).written \($next / $other * 1000 | round / 1000) ratio",
	"\($name).marked-more \([($mark - $other) * 1000, 0] | max | round) ms",
	"\($name).written-more \([($next - $other) * 1000, 0] | max | round) ms"' \
	"$dir/state/trace.jsonl"
