# Workers at a unix socket, or at the door beside a port: nothing is sealed, and the model is
# the same.

load common
load job
load tiny

bats_require_minimum_version 1.5.0

setup_file() {
	for_file
}

# A model of some hundred thousand parameters.
setup() {
	for_test
	draw
	tiny tiny
	printf 'input 16\ndense %d\nrelu\ndense %d\nrelu\ndense 4\n' \
		300 $((280 + RANDOM % 80)) >tiny/tiny.model
	job=(--set optimizer.lr=1e-4 --set job.epochs=6 "$PWD/tiny/tiny.job")
}

# seals NAME [no]: whether the worker says that its records are sealed.
seals() {
	soon "what $1 joins" grep -q "joined job" "$1.err"
	[ "${2:-yes}" != no ] || grep -q "joined job tiny by .*, unsealed on this machine;" "$1.err"
	[ "${2:-yes}" = no ] || run -1 grep -q unsealed "$1.err"
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

@test "two workers at a unix socket seal nothing, and a TCP one makes the same model" {
	drawn bsp epsp epsp:1
	FAR=1 serve --set "sync.scheme=$one" -w 1
	work far --lanes 1 -v
	seals far
	all
	again
	at_unix --set "sync.scheme=$one" -w 2
	work a --lanes 1 -v
	work b --lanes 2 -v
	seals a no
	seals b no
	all
	# Bytes are counted as those of a port.
	jq -se --arg one "$one" 'map(select(.ev == "clock")) |
		([.[].tx] | add) > 1000000 and ([.[].rx] | add) > 1000000' "$state/trace.jsonl"
}

@test "a server at several addresses seals nothing for workers of this machine" {
	serve_at unix:sock,127.0.0.1:0,127.0.0.1:0 --set sync.scheme=epsp -w 2
	IFS=, read -r near port other <<<"$ready"
	[ "$near" = unix:sock ]
	[[ $port$other == 127.0.0.1:[1-9]*127.0.0.1:[1-9]* ]]
	drawn "$port" "$other"
	ready=$near work a --lanes 1 -v
	ready="exec:exec socat - TCP:$one" work b --lanes 1 -v
	seals a no
	seals b
	all
	again
	serve_at unix:sock,127.0.0.1:0,127.0.0.1:0 --set sync.scheme=epsp -w 2
	IFS=, read -r near port other <<<"$ready"
	ready=$port work c --lanes 1 -v
	ready=$other work d --lanes 1 -v
	seals c no
	seals d no
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
	seals e no
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

@test "a worker at a port of this machine seals nothing, either" {
	local port
	drawn bsp epsp
	job+=(--set "sync.scheme=$one")
	FAR=1 serve -w 1
	work far --lanes 1 -v
	seals far
	all
	again
	drawn 127.0.0.1:0 0.0.0.0:0
	serve_at "$one" -w 2
	port=${ready##*:}
	drawn localhost 127.0.0.1 127.1.2.3
	[[ $ready != 127.* ]] || [ "$one" != 127.1.2.3 ] || one=127.0.0.1
	ready=$one:$port work a --lanes 1 -v
	ready=127.0.0.1:$port work b --lanes 2 -v --max-memory 1G
	seals a no
	seals b no
	all
}

# has_door ADDRESS: is there one beside it?
has_door() {
	socat -u /dev/null "ABSTRACT-CONNECT:falcon/${1%:*}/${1##*:}" 2>/dev/null
}

@test "with --seal-all, all is sealed" {
	serve_at unix:sock,127.0.0.1:0 -w 2 --seal-all
	run ! has_door "${ready#*,}"
	ready=${ready%,*} work a --lanes 1 -v
	ready=${ready#*,} work b --lanes 1 -v
	seals a
	seals b
	all
	again
	serve_at unix:sock,127.0.0.1:0 -w 2
	has_door "${ready#*,}"
	ready=${ready%,*} work c --lanes 1 -v
	ready=${ready#*,} work d --lanes 1 -v
	seals c no
	seals d no
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
	seals "$1"
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

@test "through a relay all is sealed, and the model is the same" {
	at_unix -w 1
	work near --lanes 1 -v
	seals near no
	all
	again
	at_unix -w 2
	start relay socat UNIX-LISTEN:relayed,fork UNIX-CONNECT:sock
	soon "the relay" [ -S relayed ]
	ready=unix:relayed work through --lanes 1 -v
	ready="exec:exec socat - UNIX-CONNECT:sock" work piped --lanes 1 -v
	seals through
	all
	seals piped
}

@test "on an emulated line all is sealed" {
	drawn unix:sock 127.0.0.1:0
	echo "$one"
	serve_at "$one" -w 2
	work slow --lanes 1 -v --emulate "rate=8000,speed=1,cores=1,bandwidth=100M"
	work near --lanes 1 -v
	seals slow
	seals near no
	all
}

# sent OPTION...: $sent is how many bytes of versions a process of shards sends to a worker.
sent() {
	again
	"${at[@]}" -w 1 --min-shards 1 --set sync.scheme=bsp
	start far falcon-ps --join "$ready" -l "$one" -k "$keys/shard.key" "$@"
	work a --lanes 1
	all
	sent=$(jq -s 'map(select(.ev == "shard" and .address != null).tx) | add' \
		"$state/trace.jsonl")
}

@test "for shards of other processes nothing is sealed, either" {
	local sealed at=(at_unix)
	drawn unix:far 127.0.0.1:0
	[ "$one" = unix:far ] || at=(serve_at 127.0.0.1:0)
	sent --seal-all
	sealed=$sent
	sent
	# Without a tag of 16 bytes in each record.
	echo "$sealed, then $sent"
	[ "$sent" -lt "$sealed" ]
	[ $(((sealed - sent) % 16)) = 0 ]
}
