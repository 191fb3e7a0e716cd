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
#
# BENCH_EPOCHS (2); BENCH_RATE (1000) samples a second of each worker.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${FALCON_BIN:-build/release}
epochs=${BENCH_EPOCHS:-2} rate=${BENCH_RATE:-1000}
. share/crew
"$bin/falcon-key" init "$dir/keys"
printf 'input 784\ndense 64\nrelu\ndense 10\n' >"$dir/groups.model"
sed 's/^file = .*/file = groups.model/; s/^eval = .*//; s/^test-samples = .*//' \
	tests/bench/schemes/lenet5.job >"$dir/groups.job"

# train NAME SCHEME SPEED: eight workers, the first at this speed; prints seconds, from when
# all are there, and the accuracy at the end.
train() {
	local name=$1 i speed
	serve "$name" "$bin/falcon-ps" -jx -K "$dir/keys/keyring" -l 127.0.0.1:0 \
		-s "$dir/$name" -w 8 --set job.epochs="$epochs" --set sync.scheme="$2" \
		"$dir/groups.job" >/dev/null 2>"$dir/$name.err"
	for i in 1 2 3 4 5 6 7 8; do
		speed=1
		[ "$i" != 1 ] || speed=$3
		member "$name$i" "$bin/falcon-work" -k "$dir/keys/work.key" -n "w$i" \
			--lanes 1 --cache "$dir/cache" \
			--emulate "rate=$rate,cores=1,speed=$speed" "$address"
	done
	done_by "$name"
	"$bin/falcon-stat" --audit "$dir/$name/trace.jsonl" >/dev/null
	jq -rs 'def last_of(ev): map(select(.ev == ev)) | last;
		"\(last_of("update").t - (map(select(.ev == "join").t) | max)) " +
		"\(last_of("eval").accuracy * 100)"' "$dir/$name/trace.jsonl" >"$dir/$name.figures"
}

# compare NAME SCHEME: with the delay, against none.
compare() {
	train "$1" "$2" 1/4
	paste -d ' ' "$dir/none.figures" "$dir/$1.figures" | awk -v name="$1" '{
		printf "groups.%s.time %.2f ratio\n", name, $3 / $1
		printf "groups.%s.accuracy %.1f %%\n", name, $4
	}'
}

train none groups:1 1
awk '{ printf "groups.none.time %.1f s\ngroups.none.accuracy %.1f %%\n", $1, $2 }' \
	"$dir/none.figures"
compare 1 groups:1
compare 2 groups:2
compare 4 groups:4
compare progressive groups:progressive
compare quorum groups:4,quorum=3,grace=0.02
compare epsp epsp
