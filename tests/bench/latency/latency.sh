#!/bin/bash
# latency.sh: what latency costs a clock of EPSP, beside bsp's and asp's.  LeNet-5 on
# Fashion-MNIST, clocks of 256 samples in tasks of 8, emulated workers of one lane; hosts are
# network namespaces, each with a cable of 1 Gbit/s to a common switch.
#
#	equal.MS  four equal workers on one host, the coordinator on another, MS one way from
#	          any host to any other: epsp's clock in bsp's, for 0, 5, 20 and 50
#	shards.20 the same with two processes of shards, on two hosts more
#	schemes   eight workers of 500 samples/s and clocks of 512: MS.SCHEME.clock, and .compute,
#	          the share of their time in which they compute, of BENCH_SCHEMES, once
#	far       five workers of 250 samples/s, one of them behind 60 ms: epsp's clock in that
#	          of the other four alone, and that of epsp:1 in as many samples under asp
#	fraction  four equal workers, 20 ms one way, clocks of 1,024 samples: the part of the
#	          clock in which workers compute, under epsp with some slacks below 1.  Its
#	          bound: two ways of the clock go by, in which workers have early tasks or none.
#
# BENCH_PAIRS (5) interleaved pairs: the median of their ratios; of bsp the spread, its
# longest mean clock in its shortest.  BENCH_CLOCKS (60) of each job, whose first 20 do not
# count.  BENCH_MS: some of the times of equal and schemes.  BENCH_PARTS ("equal shards far
# fraction"), or schemes.  It needs root.
set -euo pipefail
cd "$(dirname "$0")/../../.."
bin=$(realpath "${FALCON_BIN:-build/release}")
pairs=${BENCH_PAIRS:-5} clocks=${BENCH_CLOCKS:-60} parts=${BENCH_PARTS:-equal shards far fraction}
bench=latency id=$$ batch=256
. share/crew
clean_up() {
	dismiss || :
	unlay
	rm -rf "$dir"
}
. tests/bench/cable.bash
. tests/bench/figures.bash
"$bin/falcon-key" init "$dir/keys"

unlay() {
	local host
	for host in $(ip netns list | grep -o "falcon-[a-z0-9]*\.$id"); do
		ip netns del "$host"
	done
}

# at HOST COMMAND...: there.
at() {
	local host=$1
	shift
	ip netns exec "falcon-$host.$id" "$@"
}

# lay MS HOST...: these hosts anew, so far from each other; host i has 198.18.i.2.
lay() {
	local ms=$1 host n=0
	shift
	unlay
	laid=$((${laid:-0} + 1))
	id=$$x$laid
	ip netns add "falcon-switch.$id"
	at switch sysctl -qw net.ipv4.ip_forward=1
	for host; do
		n=$((n + 1))
		ip netns add "falcon-$host.$id"
		ip link add cable netns "falcon-$host.$id" type veth \
			peer name "cable$n" netns "falcon-switch.$id"
		at "$host" ip addr add "198.18.$n.2/24" dev cable
		at switch ip addr add "198.18.$n.1/24" dev "cable$n"
		at switch ip link set "cable$n" up
		at "$host" ip link set lo up
		at "$host" ip link set cable up
		at "$host" ip route add default via "198.18.$n.1"
		# One that paces by what it has measured of a stream would compare the streams'
		# beginnings.
		at "$host" sysctl -qw net.ipv4.tcp_congestion_control=reno
		at "$host" tc qdisc replace dev cable root tbf rate 1000mbit burst 256kb latency 400ms
		at switch tc qdisc replace dev "cable$n" root \
			tbf rate 1000mbit burst 256kb latency 400ms
		[ "$ms" = 0 ] || later "falcon-$host.$id" cable $((2 * ms))
	done
}

# train SCHEME RATE HOST...: a job with a worker on each of these hosts, and with $shards
# processes of shards; $took: seconds of a clock, $compute: the share of computing.
train() {
	local scheme=$1 rate=$2 n=0 host join=()
	shift 2
	rm -rf "$dir"/state* "$dir"/w*.err
	[ "${shards:-0}" = 0 ] || join=(--min-shards "$shards")
	serve ps ip netns exec "falcon-ps.$id" "$bin/falcon-ps" -jx -K "$dir/keys/keyring" \
		-l 198.18.1.2:0 -s "$dir/state" -w $# --set job.epochs=1 --set job.eval=never \
		--set schedule.warmup=0 --set data.samples=$((batch * clocks < 60000 ? batch * clocks : 60000)) \
		--set batch.size=$batch --set batch.task=8 --set sync.scheme="$scheme" \
		--set state.clocks=0 --set state.seconds=0 "${join[@]}" \
		share/jobs/fashion.job >/dev/null 2>"$dir/ps.err"
	for ((n = 1; n <= ${shards:-0}; n++)); do
		member "s$n" ip netns exec "falcon-s$n.$id" "$bin/falcon-ps" \
			--join "$address" -k "$dir/keys/shard.key" -l "198.18.$((n + 2)).2:0"
	done
	n=0
	for host; do
		n=$((n + 1))
		member "w$n" ip netns exec "falcon-$host.$id" "$bin/falcon-work" \
			-k "$dir/keys/work.key" -n "w$n" --lanes 1 --cache "$dir/cache" \
			--emulate "rate=$rate,cores=1" "$address"
	done
	done_by ps
	for ((; n > 0; n--)); do
		done_by "w$n"
	done
	# By samples: an update of asp has one task of the clock's, or some.
	[ -z "${BENCH_KEEP-}" ] || cp "$dir/state/trace.jsonl" "$BENCH_KEEP.${scheme/\//-}"
	compute=$(jq -s 'map(select(.ev == "clock" and .clock >= 20)) |
		(map(.compute) | add) / (map(.compute + .push + .pull + .wait) | add)' \
		"$dir/state/trace.jsonl")
	took=$(jq -s --argjson batch "$batch" 'map(select(.ev == "update")) |
		map(.samples) as $n | (reduce $n[] as $i ([0]; . + [.[-1] + $i])) as $sum |
		[range(length) | select($sum[.] >= 20 * $batch)] as $k |
		(.[-1].t - .[$k[0]].t) / (($sum[-1] - $sum[$k[0] + 1]) / $batch)' "$dir/state/trace.jsonl")
}

# pair NAME TARGET RATE SCHEME HOSTS SCHEME HOSTS: the first one in the second, in turns.
pair() {
	local fig=$1 target=$2 rate=$3 turn a b
	# shellcheck disable=SC2086 # lists of hosts
	for ((turn = 0; turn < pairs; turn++)); do
		if ((turn % 2)); then
			train "$4" "$rate" $5
			a=$took
			train "$6" "$rate" $7
			b=$took
		else
			train "$6" "$rate" $7
			b=$took
			train "$4" "$rate" $5
			a=$took
		fi
		echo "$fig: $4 $a s, $6 $b s" >&2
		keep "$fig" "$(calc "$a / $b")"
		keep "$fig.a" "$a"
		keep "$fig.b" "$b"
	done
	say "$fig.clock" "$(calc "1e3 * $(middle "$fig.a")")" ms
	say "$fig.ratio" "$(middle "$fig")" ratio "$target"
	say "$fig.spread" "$(calc "$(sort -g "$dir/$fig.b.turns" | tail -n 1) / \
		$(sort -g "$dir/$fig.b.turns" | head -n 1)")" ratio
}

# fractions MS SCHEME...: the part of a clock in which workers compute, in turns; the last
# scheme has a target.
fractions() {
	local ms=$1 turn scheme of computed most target
	computed=$(calc "$batch / 4000")
	shift
	for ((turn = 0; turn < pairs; turn++)); do
		for scheme; do
			# shellcheck disable=SC2086 # a list
			train "$scheme" 1000 $four
			keep "fraction.${scheme/\//-}" "$(calc "$computed / $took")"
		done
	done
	for scheme; do
		of=${scheme#epsp}
		of=$(calc "${of#:} + 0")
		most=$(calc "(w = 2e-3 * $ms - $of * $computed) < 0 ? 1 : $computed / ($computed + w)")
		target=
		[ "$scheme" != "${!#}" ] || target=+.98
		say "fraction.${scheme//[:\/]/-}" "$(middle "fraction.${scheme/\//-}")" share $target
		say "fraction.${scheme//[:\/]/-}.bound" "$most" share
	done
}

if ! ip netns add "falcon-try.$id" 2>/dev/null; then
	echo "${0##*/}: no network namespaces here: it needs root" >&2
	exit 1
fi
four='w w w w'
# The data are in the cache of workers from here on.
lay 0 ps w
# shellcheck disable=SC2086 # a list
train bsp 1000 $four
for part in $parts; do
	case $part in
	equal)
		for ms in ${BENCH_MS:-0 5 20 50}; do
			lay "$ms" ps w
			pair "equal.$ms" 1.01 1000 epsp "$four" bsp "$four"
		done
		;;
	shards)
		lay 20 ps w s1 s2
		shards=2
		pair shards.20 1.01 1000 epsp "$four" bsp "$four"
		shards=0
		;;
	schemes)
		batch=512
		for ms in ${BENCH_MS:-0 5 20 50}; do
			lay "$ms" ps w
			for scheme in ${BENCH_SCHEMES:-epsp bsp asp wbsp}; do
				# shellcheck disable=SC2086 # lists
				train "$scheme" 500 $four $four
				say "$ms.${scheme//[:\/]/-}.clock" "$(calc "1e3 * $took")" ms
				say "$ms.${scheme//[:\/]/-}.compute" "$compute" ratio
			done
		done
		batch=256
		;;
	far)
		lay 60 ps w
		pair far 1.03 250 epsp 'ps ps ps ps w' epsp 'ps ps ps ps'
		pair far.slack 1.03 250 epsp:1 'ps ps ps ps w' asp 'ps ps ps ps w'
		;;
	fraction)
		lay 20 ps w
		batch=1024
		fractions 20 epsp epsp:1/8 epsp:1/4
		batch=256
		;;
	esac
done
