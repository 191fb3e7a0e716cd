# Workers at a unix socket, or at the door beside a port: versions and gradients go through
# shared memory, and the model is the same.

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

# What leaves no core shows its memory to root alone.
as_root() {
	[ "$(id -u)" -eq 0 ] || skip "it looks into processes that have keys: it needs root"
}

# maps AT_LEAST PID: it has.
maps() {
	[ "$(mapped "$2")" -ge "$1" ]
}

@test "two workers share memory with the coordinator, and a TCP one makes the same model" {
	drawn bsp epsp epsp:1
	FAR=1 serve --set "sync.scheme=$one" -w 1
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
	IFS=, read -r near port other <<<"$ready"
	[ "$near" = unix:sock ]
	[[ $port$other == 127.0.0.1:[1-9]*127.0.0.1:[1-9]* ]]
	drawn "$port" "$other"
	ready=$near work a --lanes 1 -v
	ready="exec:exec socat - TCP:$one" work b --lanes 1 -v
	shares a
	shares b no
	all
	again
	serve_at unix:sock,127.0.0.1:0,127.0.0.1:0 --set sync.scheme=epsp -w 2
	IFS=, read -r near port other <<<"$ready"
	ready=$port work c --lanes 1 -v
	ready=$other work d --lanes 1 -v
	shares c
	shares d
	all
	again
	FAR=1 serve -w 1
	work alone --lanes 1
	all
	# The list is one that a worker takes, in its order.
	again
	serve_at 127.0.0.1:0,unix:sock -w 1
	[[ $ready == 127.0.0.1:*,unix:sock ]]
	ready=unix:nobody,$ready work e --lanes 1 -v
	shares e
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

@test "who types a port of this machine shares memory, too" {
	local port
	drawn bsp epsp
	job+=(--set "sync.scheme=$one")
	FAR=1 serve -w 1
	work far --lanes 1 -v
	shares far no
	all
	again
	drawn 127.0.0.1:0 0.0.0.0:0
	serve_at "$one" -w 2
	port=${ready##*:}
	drawn localhost 127.0.0.1 127.1.2.3
	[[ $ready != 127.* ]] || [ "$one" != 127.1.2.3 ] || one=127.0.0.1
	ready=$one:$port work a --lanes 1 -v
	ready=127.0.0.1:$port work b --lanes 2 -v
	shares a
	shares b
	all
}

# has_door ADDRESS: is there one beside it?
has_door() {
	socat -u /dev/null "ABSTRACT-CONNECT:falcon/${1%:*}/${1##*:}" 2>/dev/null
}

@test "who is told to shares nothing" {
	serve_at unix:sock,127.0.0.1:0 -w 2 --no-shared-memory
	run ! has_door "${ready#*,}"
	ready=${ready%,*} work a --lanes 1 -v
	ready=${ready#*,} work b --lanes 1 -v
	shares a no
	shares b no
	all
	again
	serve_at unix:sock,127.0.0.1:0 -w 2
	has_door "${ready#*,}"
	ready=${ready%,*} work c --lanes 1 -v
	ready=${ready#*,} work d --lanes 1 -v
	shares c
	shares d
	all
}

# elsewhere ADDRESS: to the other server leads what is beside the coordinator's port.
elsewhere() {
	FAR=1 serve -w 1
	start door socat "ABSTRACT-LISTEN:falcon/127.0.0.1/${ready##*:},fork" "$1"
	soon "the door" has_door "$ready"
}

# passes NAME: a worker does so, at that door, and says no word of it.
passes() {
	work "$1" --lanes 1 -v
	shares "$1" no
	all
	same "what is said of its key" "$(grep -c "key\|trying" "$1.err" || :)" 0
}

@test "a door that leads elsewhere, or nowhere, is passed by" {
	falcon-key init others
	start_ready other falcon-ps -K others/keyring -l unix:away -s other.state -w 9 "${job[@]}"
	local other=$pid
	drawn UNIX-CONNECT:away UNIX-CONNECT:nobody PIPE
	elsewhere "$one"
	passes led
	again
	kill -STOP "$other"
	elsewhere UNIX-CONNECT:away
	passes waits
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
	drawn unix:sock 127.0.0.1:0
	echo "$one"
	serve_at "$one" -w 2
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
	job=("${job[@]}" --set "sync.scheme=epsp:$1" --set job.epochs=70)
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
	as_root
	local how=(at_unix) at=unix:far
	[ $((RANDOM % 2)) = 0 ] || how=(serve_at 127.0.0.1:0) at=127.0.0.1:0
	echo "${how[*]}"
	"${how[@]}" -w 2 --shards 2 --min-shards 1
	start far falcon-ps --join "$ready" -l "$at" -k "$keys/shard.key"
	work a --lanes 1 -v
	soon "both shelves" maps 4 "$pid"
	work b --lanes 1 -v
	all
}

# What is shared is some versions of 4 MB, and rings of that: three MiB less are too few, two
# more leave no room for another copy, whatever libraries take from run to run.
wide() {
	printf 'input 16\ndense %d\nrelu\ndense 1000\nrelu\ndense 4\n' $((980 + RANDOM % 40)) \
		>tiny/tiny.model
	drawn unix:sock 127.0.0.1:0
	echo "$one"
}

# most NAME MORE: so many MiB more than it said that it needs.
most() {
	echo $(($(sed -n 's/.*needs\{0,1\} \([0-9]*\) MiB.*/\1/p' "$1.err" | head -n 1) + $2))M
}

@test "a limit of memory is kept: nothing is shared beyond it" {
	wide
	serve_at "$one" -w 1
	work near --lanes 1 -v
	shares near
	all
	again
	serve_at "$one" -w 1 --max-memory "$(most ps -3)"
	work near --lanes 1 -v
	shares near no
	all
	again
	serve_at "$one" -w 1
	work near --lanes 1 -v --max-memory 1G
	shares near no
	all
}

@test "what nobody has come to share is had by what needs it, for good" {
	local limit
	wide
	serve_at "$one" -w 1
	limit=$(most ps 1)
	work first --lanes 1 -v
	shares first
	all
	again
	serve_at "$one" -w 1 --max-memory "$limit"
	work near --lanes 1 -v
	shares near
	all
	again
	serve_at "$one" -w 1 --max-memory "$limit"
	falcon-sync -k "$keys/control.key" "$ready" export copy.safetensors
	[ -s copy.safetensors ]
	work late --lanes 1 -v
	shares late no
	all
}

@test "so is that of a process of shards" {
	as_root
	local at far
	wide
	at=unix:far
	[ "$one" = unix:sock ] || at=127.0.0.1:0
	serve_at "$one" -w 2 --min-shards 1
	start far falcon-ps --join "$ready" -l "$at" -k "$keys/shard.key"
	far=$pid
	work near --lanes 1 -v
	soon "both shelves" maps 4 "$pid"
	work second --lanes 1
	all
	wait "$far"
	again
	serve_at "$one" -w 1 --min-shards 1
	start far falcon-ps --join "$ready" -l "$at" -k "$keys/shard.key" \
		--max-memory "$(most far -3)"
	far=$pid
	work near --lanes 1 -v --emulate rate=300,cores=1
	soon "the coordinator's shelf" maps 2 "$pid"
	at_clock 3
	same "maps of what the shards share" "$(mapped "$far")" 0
	all
	wait "$far"
}
