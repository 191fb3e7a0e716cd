# What programs say that they need of memory, against what they had at their peak.

bats_require_minimum_version 1.5.0

load common
load job
load tiny

setup_file() {
	for_file
}

setup() {
	for_test
	! sanitized || skip "a sanitizer needs memory of its own"
	draw
	tiny tiny
}

# drawn WORD...: one of them, in $one.
drawn() {
	shift $((RANDOM % $#))
	one=$1
}

# sized PARAMS: the model has about so many.
sized() {
	local wide
	wide=$(awk -v n="$1" 'BEGIN { print int(sqrt(n + 117)) - 11 }')
	printf 'input 16\ndense %s\nrelu\ndense %s\nrelu\ndense 4\n' "$wide" "$wide" \
		>tiny/tiny.model
}

# covers NAME: what it said is at least its peak.
covers() {
	need=$(sed -n 's/.*needs \([0-9]*\) MiB.*/\1/p' "$1.err" | head -n 1)
	peak=$(<"$1.peak")
	echo "# $1: needs $need MiB, had $((peak >> 10)) MiB: $((need * 102400 / peak)) %"
	[ "$peak" -le $((need << 10)) ]
}

# holds NAME: and at most 1.3 times that.
holds() {
	local need peak
	covers "$1" && [ $((need * 10240)) -le $((peak * 13)) ]
}

# worker LANES: one of so many, named by them.
worker() {
	start "lanes$1" "$bin/tests/peak" "lanes$1.peak" falcon-work -k "$keys/work.key" \
		--cache none -n "lanes$1" --lanes "$1" "$ready"
	eval "lanes$1=$pid"
}

# train [OPTION...]: a job of two epochs, a snapshot each clock, and two workers.
train() {
	start_ready ps "$bin/tests/peak" ps.peak falcon-ps -x -K "$keys/keyring" -l unix:sock \
		-s state -w 2 --set batch.task=4 --set state.clocks=1 --set optimizer.lr=1e-6 "$@" tiny/tiny.job
	ps=$pid
	worker 1
	worker 2
	ended "$ps" ps
	ended "$lanes1" lanes1
	ended "$lanes2" lanes2
}

# about PARAMS SCHEME: a model of about so many, under this rule, by a drawn optimiser.
about() {
	sized $(($1 * (90 + RANDOM % 21) / 100))
	drawn "sgd" "momentum --set optimizer.momentum=0.9" adamw
	echo "# $(sed -n 2p tiny/tiny.model) $one $2"
	# shellcheck disable=SC2086 # words
	train --set optimizer.kind=$one --set "sync.scheme=$2"
	holds ps
	holds lanes1
	holds lanes2
}

@test "about 50 thousand parameters, bsp" {
	about 50000 bsp
}

@test "about 50 thousand parameters, epsp" {
	drawn epsp epsp:1
	about 50000 "$one"
}

@test "about a million parameters, bsp" {
	about 1000000 bsp
}

@test "about a million parameters, epsp" {
	drawn epsp epsp:1
	about 1000000 "$one"
}

@test "about eight million parameters, bsp" {
	about 8000000 bsp
}

@test "about eight million parameters, epsp" {
	drawn epsp epsp:1
	about 8000000 "$one"
}

# anew SIZE: a run of a model of about so many parameters is computed anew.
anew() {
	sized $(($1 * (90 + RANDOM % 21) / 100))
	drawn bsp epsp:1
	train --set "sync.scheme=$one" --set state.keep=2 --set optimizer.kind=adamw
	stat=(falcon-stat --audit --recompute 100% -C tiny)
	"$bin/tests/peak" stat.peak "${stat[@]}" state >stat.out 2>stat.err
	has "$(<stat.out)" ': equal'
	holds stat
	covers stat
	run -1 "${stat[@]}" --max-memory $(((need - 1) << 20)) state
	same lines "$(grep -c 'bytes, --max-memory allows' <<<"$output")" 1
	run -0 "${stat[@]}" --max-memory $(((need + 1) << 20)) state
	has "$output" ': equal'
}

@test "computing anew a run of about a million parameters" {
	anew 1000000
}

@test "computing anew a run of about four million parameters" {
	anew 4000000
}
