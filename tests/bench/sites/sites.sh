#!/bin/bash
# sites.sh: one job at two sites, four unequal workers at each, with a cable of 100 Mbit/s
# and 20 ms there and back between them.  The coordinator is at the first.
#
#	one     all workers are its own: those of the second site have the cable between
#	two     a group server at each site (falcon-ps --upstream) has those of that site
#
# by the schemes bsp, epsp and groups:2; at one level the groups of groups:2 are the sites,
# as falcon-sync says.  For each the seconds from the first update to the last; ms of a
# median clock; MB on the cable meanwhile, both ways; the accuracy at the end in percent;
# seconds until it was BENCH_TARGET (78) first, at the end of an epoch, or `never`.  Then the
# ratios of one level to two.  A small net on Fashion-MNIST, by plain SGD.
#
# Then two levels where the second site is BENCH_LAG (0.4) times as fast: `slow`, by
# groups:2, and `quorum`, where a version waits for one group and BENCH_GRACE (0.05) seconds
# more; `predicted` is the time of an epoch that falcon-proj predicts for quorum by the trace
# of slow, by what it took then.
#
# The speeds of workers, of 1/4 to 1, are drawn from SEED.  Median of BENCH_TURNS (3) turns,
# in each of which all have theirs; BENCH_EPOCHS (6) of 12000 samples; BENCH_RATE (1000)
# samples a second of a worker of speed 1.  QUICK=1: one turn of three epochs.
#
# `late` is the median of how late the latest worker's emulation was: where it is not small
# the machine was too busy, and times say little.
#
# By bsp and epsp both forms must end with one SHA-256.  It needs root.
set -euo pipefail
cd "$(dirname "$0")/../../.."
bin=${FALCON_BIN:-build/release}
bin=$(realpath "$bin")
turns=${BENCH_TURNS:-${QUICK:+1}} epochs=${BENCH_EPOCHS:-${QUICK:+3}}
turns=${turns:-3} epochs=${epochs:-6}
rate=${BENCH_RATE:-1000} target=${BENCH_TARGET:-78} seed=${SEED:-$((RANDOM * 10))}
lag=${BENCH_LAG:-0.4} quorum=groups:2,quorum=1,grace=${BENCH_GRACE:-0.05}
near=falcon-near.$$ far=falcon-far.$$ bench=sites
. share/crew
clean_up() {
	dismiss || :
	ip netns del "$near" 2>/dev/null || :
	ip netns del "$far" 2>/dev/null || :
	rm -rf "$dir"
}
. tests/bench/cable.bash
. tests/bench/figures.bash
if ! { ip netns add "$near" && ip netns add "$far" &&
	cable "$near" 198.18.0.1 "$far" 198.18.0.2 100 20; }; then
	echo "${0##*/}: no hosts of network namespaces here: it needs root" >&2
	exit 1
fi

"$bin/falcon-key" init "$dir/keys"
for site in near far; do
	"$bin/falcon-key" add -K "$dir/keys/keyring" "$site"
	"$bin/falcon-key" init "$dir/$site"
done
printf 'input 784\ndense 64\ntanh\ndense 10\n' >"$dir/sites.model"
sed 's/^file = .*/file = sites.model/; s/^eval = .*//' tests/bench/schemes/lenet5.job \
	>"$dir/sites.job"
RANDOM=$((seed % 32768))
for ((i = 0; i < 8; i++)); do
	drawn=$((25 + RANDOM % 76)) # not in a subshell, whose numbers are others
	speed[i]=$(calc "$drawn / 100")
done
echo "SEED=$seed, speeds ${speed[*]}" >&2

# crowd SITE KEY ADDRESS: its four workers, the far ones $times as fast.
times=1
crowd() {
	local i first=4 times=$times
	[ "$1" = far ] || first=0 times=1
	for ((i = first; i < first + 4; i++)); do
		member "w$i" ip netns exec "falcon-$1.$$" "$bin/falcon-work" -k "$2" -n "w$i" \
			--lanes 1 --cache "$dir/cache" \
			--emulate "rate=$rate,cores=1,speed=$(calc "${speed[i]} * $times")" "$3"
	done
}

# until_says N FILE WHAT: N lines of it do.
until_says() {
	local i
	for ((i = 0; i < 1200; i++)); do
		[ "$(grep -c "$3" "$2" 2>/dev/null)" -lt "$1" ] || return 0
		sleep 0.05
	done
	echo "${0##*/}: not within a minute in $2: $3" >&2
	tail -n 3 "$dir"/*.err >&2
	exit 1
}

# train FORM CASE SCHEME: a job; its figures are lines of $dir/FORM.CASE.*, and its trace is
# $dir/CASE.jsonl.
train() {
	local form=$1 case=$2 scheme=$3 site above before i state=$dir/state
	local own=${scheme%%:*} sites=() late
	[ "$own" != groups ] || own=epsp
	rm -rf "$dir"/state*
	job=(--set job.epochs="$epochs" --set sync.scheme="$scheme" --set data.samples=12000
		--set state.clocks=0 --set state.seconds=0 "$dir/sites.job")
	serve ps ip netns exec "$near" "$bin/falcon-ps" -jx -K "$dir/keys/keyring" \
		-l 198.18.0.1:0 -s "$state" -w "$([ "$form" = one ] && echo 8 || echo 2)" \
		"${job[@]}" >/dev/null 2>"$dir/ps.err"
	above=$address
	for site in near far; do
		if [ "$form" = one ]; then
			crowd "$site" "$dir/keys/work.key" "$above"
		else
			serve "$site" ip netns exec "falcon-$site.$$" "$bin/falcon-ps" \
				-jx -K "$dir/$site/keyring" -k "$dir/keys/$site.key" -w 4 \
				-l 127.0.0.1:0 -s "$state.$site" --scheme "$own" \
				--upstream "$above" "${job[@]}" >/dev/null 2>"$dir/$site.err"
			crowd "$site" "$dir/$site/work.key" "$address"
		fi
	done
	if [ "$form.$case" = one.groups ]; then
		for ((i = 0; i < 8; i++)); do
			sites+=("site.w$i=$([ "$i" -lt 4 ] && echo near || echo far)")
		done
		until_says 8 "$state/trace.jsonl" '"ev":"join"'
		ip netns exec "$near" "$bin/falcon-sync" -k "$dir/keys/control.key" "$above" \
			set "${sites[@]}"
	fi
	until_says 1 "$state/trace.jsonl" '"ev":"update"'
	before=$(passed "$near" cable)
	done_by ps
	echo $(($(passed "$near" cable) - before)) >>"$dir/$form.$case.bytes"
	for site in near far; do
		[ "$form" = one ] || done_by "$site"
	done
	for ((i = 0; i < 8; i++)); do
		done_by "w$i"
	done
	for of in "$state"*; do
		"$bin/falcon-stat" --audit "$of" >"$dir/audit" || { cat "$dir/audit" >&2 && exit 1; }
	done
	jq -rs --argjson target "$target" 'def median: sort | .[(length - 1) / 2 | floor];
		map(select(.ev == "update").t) as $t |
		map(select(.ev == "eval")) as $evals |
		[$t[-1] - $t[0],
		1000 * ([range(1; $t | length) as $v | $t[$v] - $t[$v - 1]] | median),
		100 * $evals[-1].accuracy,
		([$evals[] | select(100 * .accuracy >= $target).t - $t[0]] | .[0] // "never")] | @tsv' \
		"$state/trace.jsonl" >>"$dir/$form.$case.figures"
	# The worst of them says how far the machine was too busy for them all.
	late=$(cat "$dir"/w?.err | sed -n 's/.*emulate: \(.*\) % late/\1/p' | sort -g | tail -n 1)
	rm "$dir"/w?.err
	keep late "${late:-0}"
	echo "$form $case: $(tail -n 1 "$dir/$form.$case.figures"), $late % late" >&2
	jq -r .sha256 "$state/result.json" >>"$dir/$case.sums"
	cp "$state/trace.jsonl" "$dir/$case.jsonl"
}

# median_of FILE COLUMN.
median_of() { cut -f "$2" "$1" | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

# figures FORM NAME: those of all turns.
figures() {
	local f=$dir/$1.$2 reached
	say "$2.$1.seconds" "$(median_of "$f.figures" 1)" s
	say "$2.$1.clock" "$(median_of "$f.figures" 2)" ms
	say "$2.$1.between" "$(calc "$(median_of "$f.bytes" 1) / 1e6")" MB
	say "$2.$1.accuracy" "$(median_of "$f.figures" 3)" %
	reached=$(median_of "$f.figures" 4)
	if [ "$reached" = never ]; then
		echo "$bench.$2.$1.reached never"
	else
		say "$2.$1.reached" "$reached" s
	fi
	median_of "$f.figures" 1 >"$f.seconds"
	median_of "$f.bytes" 1 >"$f.total"
}

for ((turn = 0; turn < turns; turn++)); do
	for scheme in bsp epsp groups:2; do
		for form in one two; do
			train "$form" "${scheme%%:*}" "$scheme"
		done
	done
	times=$lag
	train two slow groups:2
	train two quorum "$quorum"
	times=1
	predicted=$("$bin/falcon-proj" --json --what-if "$quorum" "$dir/slow.jsonl" |
		jq -e '.schemes[-1].epoch_s')
	took=$("$bin/falcon-proj" --json --what-if groups:2 "$dir/quorum.jsonl" | jq -e .measured_s)
	ratio=$(calc "$predicted / $took")
	keep predicted "$ratio"
done
for name in bsp epsp groups; do
	[ "$name" = groups ] || [ "$(sort -u "$dir/$name.sums" | wc -l)" = 1 ] || {
		echo "${0##*/}: $name: not one SHA-256 at one and two levels:" >&2
		cat "$dir/$name.sums" >&2
		exit 1
	}
	figures one "$name"
	figures two "$name"
	say "$name.faster" "$(calc "$(<"$dir/one.$name.seconds") / $(<"$dir/two.$name.seconds")")" ratio
	say "$name.less" "$(calc "$(<"$dir/one.$name.total") / $(<"$dir/two.$name.total")")" ratio
done
figures two slow
figures two quorum
say quorum.predicted "$(middle predicted)" ratio
say late "$(middle late)" %
