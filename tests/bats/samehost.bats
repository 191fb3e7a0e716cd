# Workers at a unix socket: versions and gradients go through shared memory, and the model
# is the same.

load common
load job
load tiny

bats_require_minimum_version 1.5.0

setup_file() {
	for_file
}

# A model of some hundred thousand parameters, so that sharing memory is worth it.
setup() {
	for_test
	draw
	tiny tiny
	printf 'input 16\ndense %d\nrelu\ndense %d\nrelu\ndense 4\n' \
		300 $((280 + RANDOM % 80)) >tiny/tiny.model
	job=(--set optimizer.lr=1e-4 --set job.epochs=6 "$PWD/tiny/tiny.job")
}

# shares NAME [YES]: what the worker says of it.
shares() {
	soon "what $1 joins" grep -q "joined job" "$1.err"
	[ "${2:-yes}" != yes ] || grep -q "joined job tiny by .* and shared memory;" "$1.err"
	[ "${2:-yes}" = yes ] || run -1 grep -q "shared memory" "$1.err"
}

# all NAME...: these end well, and so does the job, with one model for all of a test.
all() {
	local one
	judge "$BATS_TEST_NUMBER"
	for one in "${workers[@]}"; do
		wait "$one"
	done
	workers=()
}

# mapped PID: how many places of shared memory it has.
mapped() {
	grep -c 'memfd:falcon' "/proc/$1/maps" || :
}

@test "two workers share memory with the coordinator, and a TCP one makes the same model" {
	drawn bsp epsp epsp:1
	serve --set "sync.scheme=$one" -w 1
	work far --lanes 1 -v
	shares far no
	all
	again
	at_unix --set "sync.scheme=$one" -w 2
	work a --lanes 1 -v
	work b --lanes 2 -v
	shares a
	shares b
	all
	# Bytes that go through memory count.
	jq -se --arg one "$one" 'map(select(.ev == "clock")) |
		([.[].tx] | add) > 1000000 and ([.[].rx] | add) > 1000000' "$state/trace.jsonl"
}

@test "who listens at several addresses shares memory with those who are near" {
	serve_at unix:sock,127.0.0.1:0,127.0.0.1:0 --set sync.scheme=epsp -w 2
	IFS=, read -r near far other <<<"$ready"
	[ "$near" = unix:sock ]
	[[ $far$other == 127.0.0.1:[1-9]*127.0.0.1:[1-9]* ]]
	ready=$near work a --lanes 1 -v
	ready=$far work b --lanes 2 -v
	shares a
	shares b no
	all
	again
	serve -w 1
	work alone --lanes 1
	all
	# The list is one that a worker takes, in its order.
	again
	serve_at 127.0.0.1:0,unix:sock -w 1
	[[ $ready == 127.0.0.1:*,unix:sock ]]
	ready=unix:nobody,$ready work c --lanes 1 -v
	shares c no
	all
	# All of them, or none: what was opened before is closed.
	start relay socat UNIX-LISTEN:taken,fork -
	# Its file is there before it listens.
	soon "who listens there" socat -u OPEN:/dev/null UNIX-CONNECT:taken
	run -1 falcon-ps -K "$keys/keyring" -s other -l unix:first,unix:taken "${job[@]}"
	[[ $output == *"unix:taken: "* ]]
	[ ! -e first ]
	[ -S taken ]
	run -2 falcon-ps -K "$keys/keyring" -l unix:first,nowhere "${job[@]}"
	[[ $output == *"nowhere"* ]]
	run -2 falcon-ps -K "$keys/keyring" -l "$(printf 'unix:%d,' {1..9})" "${job[@]}"
	[[ $output == *"more than 8 addresses"* ]]
	run -2 falcon-ps -k "$keys/shard.key" --join "$ready" -l unix:first,unix:second
	[[ $output == *"--listen: 'unix:first,unix:second': with --join there is one"* ]]
}

@test "through a relay nothing is shared, and the model is the same" {
	at_unix -w 1
	work near --lanes 1 -v
	shares near
	all
	again
	at_unix -w 2
	start relay socat UNIX-LISTEN:relayed,fork UNIX-CONNECT:sock
	soon "the relay" [ -S relayed ]
	ready=unix:relayed work through --lanes 1 -v
	ready="exec:exec socat - UNIX-CONNECT:sock" work piped --lanes 1 -v
	shares through no
	all
	shares piped no
}

@test "on an emulated line nothing is shared" {
	at_unix -w 2
	work slow --lanes 1 -v --emulate "rate=8000,speed=1,cores=1,bandwidth=100M"
	work near --lanes 1 -v
	shares slow no
	shares near
	all
}

# stopped SLACK TEXT: one of two workers is, again and again; it says this, and the model is
# that of one who works alone.
stopped() {
	local clock=4
	job=("${job[@]}" --set "sync.scheme=epsp:$1" --set job.epochs=50)
	serve -w 1
	work alone --lanes 1
	all
	again
	at_unix -w 2
	# At a pace that leaves time for it.
	work near --lanes 1 --emulate rate=3200,cores=1
	work stopped --lanes 1 -v --emulate rate=3200,cores=1
	while [ "$clock" -lt 170 ]; do
		at_clock "$clock"
		kill -STOP "$pid"
		clock=$((clock + 6 + RANDOM % 8))
		at_clock "$clock"
		kill -CONT "$pid"
		clock=$((clock + 2))
	done
	all
	grep -q "$2" stopped.err
}

@test "who is stopped while versions are overwritten goes on with newer ones" {
	stopped 0 "was overwritten before it was read"
}

@test "what is still to be computed on is asked for, and comes by the stream" {
	stopped $((4 + RANDOM % 3)) "was overwritten before it was read, and is asked for"
}

@test "shards of other processes share their memory, too" {
	at_unix -w 2 --shards 2 --min-shards 1
	start far falcon-ps --join "$ready" -l unix:far -k "$keys/shard.key"
	work a --lanes 1 -v
	work b --lanes 1 -v
	shares a
	soon "both shelves" [ "$(mapped "$pid")" -ge 4 ]
	all
}

@test "a limit of memory is kept: nothing is shared beyond it" {
	at_unix -w 1
	local need
	need=$(sed -n 's/.*needs \([0-9]*\) MiB.*/\1/p' ps.err | head -n 1)
	work near --lanes 1 -v
	shares near
	all
	again
	at_unix -w 1 --max-memory $((need - 1))M
	work near --lanes 1 -v
	shares near no
	all
	again
	at_unix -w 1
	work near --lanes 1 -v --max-memory 1G
	shares near no
	all
}
