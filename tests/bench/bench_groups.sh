#!/bin/bash
# bench_groups.sh: HiPC'18's case (share/doc/schemes.md, groups): of eight workers one takes
# four times as long; the total time by groups over that of one group without the delay, and
# the accuracy lost.  Its abstract has progressive groups within 20 %, at 2.5 % accuracy; its
# models and data are not known: here a small net on Fashion-MNIST, plain SGD, emulated
# workers.
#
#	none       one group, nobody is slow: seconds, and the accuracy in percent
#	1, 2, 4    so many groups
#	progressive  as many as its controller makes of it
#	quorum     3 of 4 groups make a version, and who comes within 20 ms
#	epsp       tasks move instead, for comparison
#	servers-2, servers-4, servers-progressive  two levels: 2 or 4 group servers
#	           (falcon-ps --upstream) with bsp, by groups of 2 and 4 and, of 4,
#	           progressive ones
#
# Each of BENCH_SEEDS (3) seeds from SEED on draws weights and batches for all of them, in
# turn.  Times are medians of the ratios, and accuracies medians; `spread` is how far those
# of the seeds are apart, and `lost` the median of what a seed loses against none, 0 if it
# gains.
# BENCH_EPOCHS (2); BENCH_RATE (1000) samples a second of each worker; QUICK=1: one of each.
# BENCH_CASES: some of the above, none among them.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${FALCON_BIN:-build/release}
epochs=${BENCH_EPOCHS:-${QUICK:+1}} seeds=${BENCH_SEEDS:-${QUICK:+1}}
epochs=${epochs:-2} seeds=${seeds:-3} rate=${BENCH_RATE:-1000} seed=${SEED:-$((RANDOM * 10))}
bench=groups
. share/crew
. tests/bench/figures.bash
echo "SEED=$seed" >&2
"$bin/falcon-key" init "$dir/keys"
printf 'input 784\ndense 64\nrelu\ndense 10\n' >"$dir/groups.model"
sed 's/^file = .*/file = groups.model/; s/^eval = .*//; s/^test-samples = .*//' \
	tests/bench/schemes/lenet5.job >"$dir/groups.job"

for i in 1 2 3 4; do
	"$bin/falcon-key" init "$dir/keys$i"
	"$bin/falcon-key" add -K "$dir/keys/keyring" "g$i"
done

# crowd NAME FIRST LAST SPEED KEY: these workers of the one at $address, the first of all at
# this speed.
crowd() {
	local i speed
	for ((i = $2; i <= $3; i++)); do
		speed=1
		[ "$i" != 1 ] || speed=$4
		member "$1$i" "$bin/falcon-work" -k "$5" -n "w$i" --lanes 1 --cache "$dir/cache" \
			--emulate "rate=$rate,cores=1,speed=$speed" "$address"
	done
}

# train NAME SCHEME SPEED SERVERS: eight workers, the first at this speed, of so many group
# servers, or of none; seconds from the first update to the last, and the accuracy at the end,
# are added to $dir/NAME.figures.
train() {
	# Not `name`, which is done_by's.
	local which=$1 servers=$4 i each=$((8 / ($4 > 0 ? $4 : 1))) above run=$dir/$1.$seed
	local job=(--set job.epochs="$epochs" --set job.seed="$seed" --set sync.scheme="$2"
		"$dir/groups.job")
	serve "$which" "$bin/falcon-ps" -jx -K "$dir/keys/keyring" -l 127.0.0.1:0 \
		-s "$run" -w $((servers > 0 ? servers : 8)) "${job[@]}" >/dev/null 2>"$dir/$which.err"
	above=$address
	[ "$servers" -gt 0 ] || crowd "$which" 1 8 "$3" "$dir/keys/work.key"
	for ((i = 1; i <= servers; i++)); do
		serve "$which.g$i" "$bin/falcon-ps" -jx -K "$dir/keys$i/keyring" \
			-k "$dir/keys/g$i.key" -l 127.0.0.1:0 -s "$run.$i" -w "$each" --scheme bsp \
			--upstream "$above" "${job[@]}" >/dev/null 2>"$dir/$which.g$i.err"
		crowd "$which" $(((i - 1) * each + 1)) $((i * each)) "$3" "$dir/keys$i/work.key"
	done
	done_by "$which"
	for ((i = 1; i <= servers; i++)); do
		done_by "$which.g$i"
	done
	for i in 1 2 3 4 5 6 7 8; do
		done_by "$which$i"
	done
	local state
	for state in "$run"*; do
		"$bin/falcon-stat" --audit "$state" >"$dir/audit" || { cat "$dir/audit" >&2 && exit 1; }
	done
	jq -rs 'map(select(.ev == "update").t) as $t |
		"\($t[-1] - $t[0]) \((map(select(.ev == "eval")) | last).accuracy * 100)"' \
		"$run/trace.jsonl" >>"$dir/$which.figures"
	echo "$which, seed $seed: $(tail -n 1 "$dir/$which.figures")" >&2
	rm -rf "$run"*
}

# all FUNCTION: it has each case that is asked for: NAME SCHEME SPEED SERVERS.
all() {
	local words
	while read -r -a words; do
		[[ -n ${BENCH_CASES-} && " $BENCH_CASES " != *" ${words[0]} "* ]] || "$1" "${words[@]}"
	done <<-END
		none groups:1 1 0
		1 groups:1 1/4 0
		2 groups:2 1/4 0
		4 groups:4 1/4 0
		progressive groups:progressive 1/4 0
		quorum groups:4,quorum=3,grace=0.02 1/4 0
		epsp epsp 1/4 0
		servers-2 groups:2 1/4 2
		servers-4 groups:4 1/4 4
		servers-progressive groups:progressive 1/4 4
	END
}

# told NAME: its figures, against none of the same seed.
told() {
	local ratio accuracy lost
	while read -r ratio accuracy lost; do
		keep "$1.time" "$ratio"
		keep "$1.accuracy" "$accuracy"
		keep "$1.lost" "$lost"
	done < <(paste -d ' ' "$dir/none.figures" "$dir/$1.figures" |
		awk '{ print $3 / $1, $4, ($2 > $4 ? $2 - $4 : 0) }')
	if [ "$1" = none ]; then
		cut -d ' ' -f 1 "$dir/none.figures" >"$dir/none.s.turns"
		say none.time "$(middle none.s)" s
	else
		say "$1.time" "$(middle "$1.time")" ratio
		say "$1.lost" "$(middle "$1.lost")" %
	fi
	say "$1.accuracy" "$(middle "$1.accuracy")" %
	say "$1.spread" "$(sort -g "$dir/$1.accuracy.turns" |
		awk 'NR == 1 { least = $1 } END { print $1 - least }')" %
}

for ((; seeds > 0; seeds--, seed++)); do
	all train
done
all told
