#!/bin/bash
# bench_shards.sh: a clock of a job of four shards, each a process that sends by a line of
# its own, and four workers, under what makes a parameter server straggle, by the even
# placement, by maps of what other systems would do (share/doc/schemes.md) and by psld, which
# begins with the even one and moves blocks by what workers wait for:
#
#	none    alike tensors, alike lines; but blocks that end a tensor are shorter
#	skew    one tensor has 95 % of the parameters
#	slow    a shard's line has a quarter of the bandwidth, by --rate-limit
#	tbf     the same, by a token bucket between network namespaces
#	delay   all that a shard sends comes BENCH_DELAY (150) ms later, by NFQUEUE
#	cpu     a shard has BENCH_QUOTA (4) ms of a processor in each second
#
#	tbf-later, delay-later, cpu-later   the same befalls the shard in mid-run: by the
#		rule `blocks`, and psld
#
# For each cause and rule:
#
#	clock    the median in ms; of the last third, with psld and in mid-run
#	most     the largest part of the blocks on one shard, in the end
#	bound    the clock if all lines sent all the time what the shards say that they have
#		sent, in ms; of computing it knows nothing
#	slower   clock / bound
#
# and with psld, which has 3 times as many clocks, 4 times in mid-run:
#
#	over-RULE   how many times as long a clock by that rule takes; and bound-RULE: how many
#		times as long as the bound, which no placement can exceed
#	steps, moved, bytes   moves; the part of the blocks that went to another shard in all
#		of them, and how many kB those are
#	took     the median of the ms for which a move holds the next clock up
#	stall    by how many ms the longest clock with a move is longer than the one before it
#	first    clocks until the first move is done
#	there    the last clock before all others are within a tenth of `clock`
#
# in mid-run these count from when it befalls the shard, and
#
#	before   the clock before that, in ms
#	there    the first of three clocks of which the median has at most a tenth left of what
#		can be gained, which is from the clock by `blocks` to the bound and what a clock
#		had beside its bound before; there is no such line if that is never so
#	gain     the part of that which is gained in the end
#
# tbf, delay and cpu need root, and cgroups of the first version: elsewhere they are left out.
# Medians of BENCH_TURNS (5; with QUICK=1, 1) turns.  In each the rules come in another
# order, and which process of shards it befalls, after how many clocks, sizes and the job's
# seed are drawn from BENCH_SEED, which is printed.  BENCH_CLOCKS (16) clocks of each, of
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
clocks=${BENCH_CLOCKS:-16} rate=${BENCH_RATE:-4000000} turns=${BENCH_TURNS:-5}
[ -z "${QUICK:-}" ] || turns=1
quota=${BENCH_QUOTA:-4} late=${BENCH_DELAY:-150} seed=${BENCH_SEED:-$RANDOM} workers=4
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

# below N: $drawn is from 0 to N - 1.  No command substitution, which would draw in vain.
below() { drawn=$((RANDOM % $1)); }

# prepare TURN: draws what all rules have alike in it.
prepare() {
	RANDOM=$((seed + $1))
	below 3 && lame=$drawn
	below 6 && onset=$((18 + drawn))
	below 9 && more=$drawn
	below 10000 && job_seed=$drawn
	below 1000 && order=$drawn
}

# model CAUSE: 0.2 million parameters.
model() {
	local n=$((176 + more)) layers=7
	[ "$1" != skew ] || { n=$((436 + more)) layers=2; }
	echo "input 16"
	while [ $layers != 0 ]; do
		printf 'dense %d\nrelu\n' $n
		layers=$((layers - 1))
	done
	echo "dense 4"
}

# map RULE: how many blocks each shard has by that, on stdout; all tensors are of fewer than
# 10^6 values, so that each is on one shard.  BytePS hashes the digits of 2^16 times a
# tensor's number; four shards divide any power of two that the hash is taken by.
map() {
	awk -v rule="$1" '
	function shard(t,   h, i, key) {
		if (rule == "mxnet") return t * 9973 % 4
		if (rule == "tensorflow") return t % 4
		h = 5381; key = t * 65536 ""
		for (i = 1; i <= length(key); i++) h = (h * 33 + 48 + substr(key, i, 1)) % 4
		return h
	}
	function tensor(values) { blocks[shard(n++)] += int((values + 4095) / 4096) }
	$1 == "input" { width = $2 }
	$1 == "dense" { tensor(width * $2); tensor($2); width = $2 }
	END { for (i = 0; i < 4; i++) print blocks[i] + 0 }' "$dir/tiny.model"
}

# make_far: a host with a cable to this one; fails: that is refused.
make_far() {
	ip netns add "$far" && ip link add "cable$$" type veth peer name cable netns "$far" &&
		ip addr add 198.18.0.1/24 dev "cable$$" && ip link set "cable$$" up &&
		ip -n "$far" addr add 198.18.0.2/24 dev cable && ip -n "$far" link set cable up &&
		ip -n "$far" link set lo up && line "$rate"
}

# make_late: whoever holds what comes from there, when `late` says so; fails: that is refused.
make_late() {
	local said fd
	[ -x "$bin/bench/delay" ] || return
	mkfifo "$dir/late"
	exec {fd}<>"$dir/late"
	iptables-legacy -t mangle -F PREROUTING || return
	member late "$bin/bench/delay" 1 "$late" >&"$fd"
	read -r -t 20 -u "$fd" said && [ "$said" = ready ]
}

# be_late on|off
be_late() {
	iptables-legacy -t mangle -F PREROUTING
	[ "$1" = off ] || iptables-legacy -t mangle -A PREROUTING -i "cable$$" -j NFQUEUE \
		--queue-num 1
}

# line RATE: that of the host.
line() {
	tc -n "$far" qdisc replace dev cable root tbf rate $((8 * $1))bit burst 16kb \
		latency 400ms
}

# strike CAUSE: it befalls the shard.
strike() {
	case $1 in
	tbf*) line $((rate / 4)) ;;
	delay*) be_late on ;;
	cpu*)
		echo 400000 >"$group/cpu.cfs_period_us"
		echo $((quota * 400)) >"$group/cpu.cfs_quota_us"
		;;
	esac
}

# shard CAUSE: the one that it befalls.
shard() {
	local ps=("$bin/falcon-ps" --join "$address" -k "$dir/keys/shard.key")
	case $1 in
	tbf* | delay*) member lame ip netns exec "$far" "${ps[@]}" -l 198.18.0.2:0 ;;
	cpu*)
		# shellcheck disable=SC2016 # for that shell
		member lame sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" \
			"${ps[@]}" --rate-limit "$rate"
		;;
	slow) member lame "${ps[@]}" --rate-limit $((rate / 4)) ;;
	*) member lame "${ps[@]}" --rate-limit "$rate" ;;
	esac
}

# joined NAME: waits until it is one of the job's.
joined() {
	until grep -qs ': joined, ' "$dir/$1.err"; do
		[ ! -e "$dir/$1.done" ] || done_by "$1"
		sleep 0.05
	done
}

# turn CAUSE RULE STATIC: what its trace says; STATIC: the clock by `blocks`.
turn() {
	local i last=$rate place=$2 epochs=$((clocks / 4)) from=0 at=127.0.0.1:0
	local settles=false by=0
	case $1 in slow | tbf*) last=$((rate / 4)) ;; esac
	[ "$2" != psld ] || epochs=$((3 * clocks / 4)) settles=true
	case $1 in *-later) from=$onset epochs=$clocks ;; esac
	case $1 in
	tbf* | delay*)
		at=198.18.0.1:0
		line "$rate"
		;;
	cpu*)
		mkdir -p "$group"
		echo -1 >"$group/cpu.cfs_quota_us"
		;;
	esac
	case $1 in
	delay*)
		by=$late
		be_late off
		;;
	esac
	[ "$from" -gt 0 ] || strike "$1"
	model "$1" >"$dir/tiny.model"
	case $2 in mxnet | byteps | tensorflow)
		map "$2" >"$dir/map"
		place=file:map
		;;
	esac
	rm -rf "$dir/state"
	serve ps "$bin/falcon-ps" -x -K "$dir/keys/keyring" -l "$at" -s "$dir/state" \
		--rate-limit "$rate" --min-shards 3 -w $workers \
		--set job.epochs="$epochs" --set job.eval=never --set job.seed="$job_seed" \
		--set sync.scheme=bsp --set model.block=tensor --set "job.placement=$place" \
		--set state.clocks=0 --set state.seconds=0 \
		"$dir/tiny.job" >/dev/null 2>"$dir/ps.err"
	for i in 0 1 2; do
		rm -f "$dir/lame.err" "$dir/shard$i.err"
		if [ $i = "$lame" ]; then
			shard "$1"
			joined lame
		else
			member "shard$i" "$bin/falcon-ps" --join "$address" \
				-k "$dir/keys/shard.key" --rate-limit "$rate"
			joined "shard$i"
		fi
	done
	for ((i = 0; i < workers; i++)); do
		member "w$i" "$bin/falcon-work" -k "$dir/keys/work.key" -n "w$i" --lanes 1 \
			--cache none "$address"
	done
	for ((i = 0; i < 2000 && from > 0; i++)); do
		[ "$(grep -c '"ev":"update"' "$dir/state/trace.jsonl")" -lt "$from" ] || break
		sleep 0.05
	done
	[ "$from" = 0 ] || strike "$1"
	done_by ps
	jq -cs --argjson lines $((3 * rate + last)) --argjson rate "$rate" \
		--argjson shards 4 --argjson late "$by" \
		--argjson onset "$from" --argjson settles $settles --argjson static "$3" \
		-f tests/bench/shards.jq \
		"$dir/state/trace.jsonl"
}

causes=${BENCH_CAUSES:-none skew slow tbf delay cpu tbf-later delay-later cpu-later}
# without CAUSE WHY: leaves it out.
without() {
	echo "${0##*/}: $2: without $1" >&2
	causes=$(tr ' ' '\n' <<<"$causes" | grep -v "^$1" | tr '\n' ' ')
}
if ! make_far 2>/dev/null; then
	without tbf 'no network namespaces'
	without delay 'no network namespaces'
elif [ "${causes#*delay}" != "$causes" ] && ! make_late 2>/dev/null; then
	without delay 'no NFQUEUE'
fi
if ! mkdir -p "$group" 2>/dev/null || [ ! -w "$group/cpu.cfs_quota_us" ]; then
	without cpu 'no cgroups'
fi
echo "seed $seed; $turns turns; load $(cut -d ' ' -f 1-3 /proc/loadavg)"
for cause in $causes; do
	rules='blocks mxnet byteps tensorflow psld'
	case $cause in *-later) rules='blocks psld' ;; esac
	for ((i = 0; i < turns; i++)); do
		prepare "$i"
		# In mid-run what psld gains is held against the clock by `blocks`.
		mixed=$rules static=0
		[ "${cause%-later}" != "$cause" ] ||
			mixed=$(tr ' ' '\n' <<<"$rules" | shuf --random-source=<(yes "$order"))
		for rule in $mixed; do
			turn "$cause" "$rule" "$static" >"$dir/turn"
			static=$(jq .clock "$dir/turn")
			cat "$dir/turn" >>"$dir/$cause.$rule"
		done
	done
	for rule in $rules; do
		jq -rs --arg name "shards.$cause.$rule" '
			def unit: if IN("clock", "bound", "took", "stall", "before") then
				"ms" elif . == "bytes" then "kB" elif IN("most", "slower", "moved",
				"gain") then "ratio" elif . == "steps" then "moves" else "clocks" end;
			def median: sort | .[(length - 1) / 2 | floor];
			. as $turns |
			reduce (.[] | keys_unsorted[]) as $k ([]; . + ([$k] - .)) | .[] as $k |
			($turns | map(.[$k] // empty)) as $v |
			# What comes in the smaller part of the turns is no median.
			select(2 * ($v | length) > ($turns | length)) |
			($k | unit) as $unit | ($v | median) as $is |
			"\($name).\($k) \(if $unit == "ratio" then $is * 100 | round / 100 else
				$is | round end) \($unit)"' "$dir/$cause.$rule"
	done
	for rule in ${rules% psld}; do
		paste -d ' ' "$dir/$cause.$rule" "$dir/$cause.psld" |
			jq -rs --arg cause "$cause" --arg rule "$rule" '
			def median: sort | .[(length - 1) / 2 | floor];
			def ratio: . * 100 | round / 100;
			[range(0; length; 2) as $i | [.[$i].clock, .[$i + 1].clock, .[$i].bound]] |
			"shards.\($cause).psld.over-\($rule) \(map(.[0] / .[1]) | median | ratio) ratio",
			"shards.\($cause).psld.bound-\($rule) \(map(.[0] / .[2]) | median | ratio) ratio"'
	done
done
