# Blocks that move while the job runs: to who joins, from who is drained, and back where one
# of them dies in the midst of it.

load common
load job
load tiny

setup_file() {
	for_file
}

setup() {
	for_test
	tiny .
	# 24 blocks.
	printf 'input 16\ndense 300\nrelu\ndense 300\nrelu\ndense 4\n' >tiny.model
	draw
	clocks=$((RANDOM % 4 + 2))
	# What moves has a state, and an average.
	job=(--set job.epochs=8 --set optimizer.kind=adamw --set optimizer.ema=0.9 \
		--set optimizer.lr=0.01 --set "state.clocks=$clocks" tiny.job)
}

teardown() {
	stop_all
	no_hosts
}

# join NAME [OPTION...]: a process of shards; its process id is in $pid.
join() {
	start "$1" falcon-ps --join "$ready" -k "$keys/shard.key" "${apart[@]}" "${@:2}"
}

# sync VERB...: what a controller asks for.
sync() {
	falcon-sync -k "$keys/control.key" "$ready" "$@"
}

# moves: how often blocks have moved.
moves() {
	jq -s 'map(select(.ev == "place" and .rule == "moved")) | length' "$state/trace.jsonl"
}

# halt N: the job comes to clock N, and waits for `sync resume`, however long it takes to ask
# what comes next; its blocks move meanwhile.
halt() {
	at_clock "$1"
	sync pause
}

# at NAME: where the process of shards listens.
at() {
	sed -n 's/.*: joined, listening on //p' "$1.err"
}

@test "a process joins a running job, and is drained: the model does not know" {
	serve
	slow a 1 3000
	slow b 0.7 3000
	judge
	again
	job+=(--set job.epochs=8)
	serve
	# So slow that it is not over, of 32 clocks, before the drain is asked for.
	slow c 1 200
	slow d 0.7 200
	at_clock $((RANDOM % 6 + 1))
	local shards=$((RANDOM % 3 + 1))
	join one --shards $shards
	local one=$pid
	soon "blocks at the new one" grep -q "blocks from here on" one.err
	at_clock $((RANDOM % 6 + 8))
	sync drain "$(at one)"
	ended "$one" one
	has "$(<one.err)" "done: drained by 'control': others have its blocks"
	has "$(<ps.err)" "drained by 'control'"
	work quick --lanes 1
	judge
	same "moves" "$(moves)" 2
	same "incarnations" "$(grep -c '"ev":"job"' "$state/trace.jsonl")" 1
	# What the last one was: all that went to it has come back.
	local told='last move: by control at [0-9.]* s: [0-9]* blocks\? in [0-9.]* s: shard 1 +'
	falcon-stat "$state/trace.jsonl" >table
	grep -q "^$told" table
	same "the last move" "$(falcon-stat --json "$state/trace.jsonl" |
		jq -c '[.moves, .last_move.by, .last_move.blocks > 0, .last_move.took >= 0]')" \
		'[2,"control",true,true]'
}

@test "the coordinator's own shard is drained, and those of two that joined, in any order" {
	serve --shards $((RANDOM % 2 + 1))
	# An eighth of a second a clock, of 32.
	slow a 1 300
	slow b 0.7 300
	halt 2
	join one
	local one=$pid
	join two --shards 2
	local two=$pid n
	for n in one two; do
		soon "blocks at $n" grep -q "blocks from here on" $n.err
	done
	sync resume
	halt 6
	sync drain shard:1
	has "$(<ps.err)" "blocks have moved"
	sync resume
	halt 10
	sync checkpoint
	sync export copy.safetensors
	[ -s copy.safetensors ]
	local got=0
	sync drain "$(at one)"
	ended "$one" one
	sync drain "$(at two)" 2>err || got=$?
	same "nobody is left ($(<err))" "$got $(<err)" "1 falcon-sync: no other process has blocks"
	sync resume
	halt 14
	join three
	soon "blocks at the third" grep -q "blocks from here on" three.err
	sync drain "$(at two)"
	ended "$two" two
	sync resume
	work quick --lanes 1
	judge
	has "$(<three.err)" "done: the job is done"
}

# Two hosts, as network namespaces with a cable between them.
@test "a second host joins, and the first has nothing but the coordinator from then on" {
	two_hosts
	start_ready ps ip netns exec "$here" falcon-ps -jx -K "$keys/keyring" \
		-l 192.0.2.1:0 -s "$state" -w 2 "${job[@]}"
	ps=$pid
	local host lab=(ip netns exec "$here") far=(ip netns exec "$there")
	for host in "$here" "$there"; do
		start "$host" ip netns exec "$host" falcon-work -k "$keys/work.key" \
			-n "$host" --lanes 1 --cache none --emulate rate=300,cores=1 "$ready"
	done
	at_clock 2
	start vm "${far[@]}" falcon-ps --join "$ready" -k "$keys/shard.key" -l 0.0.0.0:0
	soon "blocks at the second host" grep -q "blocks from here on" vm.err
	has "$(<ps.err)" "'shard' joins with 1 shard at 192.0.2.2:"
	"${lab[@]}" falcon-sync -k "$keys/control.key" "$ready" drain shard:1
	has "$(<ps.err)" "blocks have moved: shard 2 has 24"
	judge
	has "$(<vm.err)" "done: the job is done"
}

@test "drain: names that are no shard's, and a process on standby" {
	serve
	slow a 1 100
	at_clock 1
	join spare --standby
	local spare=$pid got
	soon "the spare one" grep -q "on standby" ps.err
	for name in shard:0 shard:x shard:9 127.0.0.1:1; do
		got=0
		sync drain $name 2>err || got=$?
		same "status of $name ($(<err))" "$got" 1
		has "$(<err)" "$name' is no shard"
	done
	got=0
	sync drain shard:1 2>err || got=$?
	same "the only one ($(<err))" "$got $(<err)" "1 falcon-sync: no other process has blocks"
	sync drain "$(at spare)"
	ended "$spare" spare
	work quick --lanes 1
	judge
}

# mid_move: all blocks are at `one`, and a half of them is on its way to `two`, which has
# some of that and not yet the rest: till there is a file `go`.
mid_move() {
	at_unix
	slow a 1 300
	slow b 0.7 300
	halt 1
	join one
	one=$pid
	soon "blocks at one" grep -q "blocks from here on" one.err
	sync drain shard:1
	sync resume
	halt $((RANDOM % 4 + 4))
	# Of 200 kB or more; what comes before is some kB.
	local way='socat - UNIX-CONNECT:sock | { stdbuf -o0 head -c 50000; : >held'
	way+='; while [ ! -e go ] && kill -0 $PPID 2>&-; do sleep 0.05; done; cat; }'
	start two falcon-ps --join "exec:$way" -k "$keys/shard.key"
	two=$pid
	soon "half a move" test -e held
	sync resume
	soon "its need" grep -q "shards 3 to 3 of 3 need" two.err
}

# held_on: nobody begins a round in the midst of a move.
held_on() {
	local now before
	sleep 0.6 # what was told before is in the file by then
	before=$(grep -c '"ev":"update"' "$state/trace.jsonl")
	sleep 0.5
	now=$(grep -c '"ev":"update"' "$state/trace.jsonl")
	same "updates" "$now" "$before"
	same "moves" "$(moves)" 2
}

@test "who has no memory for what it should have beside what it has: the move never was" {
	serve --min-shards 1
	start small falcon-ps --join "$ready" -k "$keys/shard.key" --max-memory 1M
	local small=$pid need got=0
	wait "$small" || got=$?
	need=$(sed -n 's/.*needs \([0-9]*\) bytes.*/\1/p' small.err)
	# It has 12 blocks of 16 kB; with the others there would be 36 for a while.
	join one --max-memory $((need + 600000))
	slow a 1 150
	slow b 0.7 150
	at_clock 2
	got=0
	sync drain shard:1 2>err || got=$?
	same "status" "$got $(tail -n 1 err)" "1 falcon-sync: a process that should get more has refused blocks"
	has "$(<ps.err)" "refuses a move: needs"
	work quick --lanes 1
	judge
	same "moves" "$(moves)" 0
	same "incarnations" "$(grep -c '"ev":"job"' "$state/trace.jsonl")" 1
	has "$(<one.err)" "done: the job is done"
}

@test "in mid-move the one that was to get blocks dies: the move never was" {
	mid_move
	held_on
	soon "what it waits for" grep -q "it waits for blocks that move to shard 3 at " ps.err
	kill -KILL "$two"
	judge
	: >go
	same "moves" "$(moves)" 2
	same "incarnations" "$(grep -c '"ev":"job"' "$state/trace.jsonl")" 1
	has "$(<one.err)" "done: the job is done"
}

@test "in mid-move the one that has the blocks dies: all go back to the last snapshot" {
	mid_move
	kill -KILL "$one"
	: >go
	judge
	has "$(<ps.err)" ": lost: "
	same "restarts" "$(grep -c '"ev":"restart"' "$state/trace.jsonl")" 1
	has "$(<two.err)" "done: the job is done"
}

@test "in mid-move the coordinator dies: it goes on from its last snapshot" {
	mid_move
	killed
	: >go
	at_unix
	judge
	same "restarts" "$(grep -c '"ev":"restart"' "$state/trace.jsonl")" 1
}

@test "in mid-move a worker dies, and another one comes" {
	mid_move
	kill -KILL "${workers[0]}"
	slow c 1 1500
	: >go
	judge
	same "moves" "$(moves)" 3
	has "$(<two.err)" "done: the job is done"
}

@test "who gets blocks, and is to be drained, dies meanwhile: the move never was" {
	mid_move
	sync drain "$(at two)" 2>err &
	local asks=$!
	soon "that it waits" grep -q "waiting: the next boundary, and its blocks" err
	kill -KILL "$two"
	wait "$asks"
	judge
	same "moves" "$(moves)" 2
}

@test "a move and a stop: the job goes on from where it was" {
	mid_move
	local got=0
	sync drain "$(at two)" 2>err &
	local asks=$!
	soon "that it waits" grep -q "waiting: the next boundary, and its blocks" err
	kill -TERM "$ps"
	wait "$asks" || got=$?
	same "status ($(<err))" "$got" 1
	has "$(<err)" "falcon-sync: the job is over"
	: >go
	ended "$ps" ps
	at_unix
	judge
}

@test "who gets blocks is drained meanwhile: as soon as it has them" {
	mid_move
	sync drain "$(at two)" 2>err &
	local asks=$!
	soon "that it waits" grep -q "waiting: the next boundary, and its blocks" err
	: >go
	ended "$two" two
	wait "$asks"
	has "$(<two.err)" "done: drained by 'control'"
	judge
	same "moves" "$(moves)" 4
}

# On the shard of number N, by the newest map: blocks.
has_blocks() {
	jq -s --argjson n "$1" 'map(select(.ev == "place")) | last | .runs |
		map(select(.[0] == $n) | .[2]) | add // 0' "$state/trace.jsonl"
}

fewer() {
	[ "$(has_blocks "$1")" -lt "$2" ]
}

@test "placement = psld: blocks leave the shard with the slow line; the model does not know" {
	serve
	slow a 1 3000
	slow b 0.7 3000
	judge
	again
	printf '[job]\nplacement = psld\n' >>tiny.job
	serve --min-shards 2
	join one
	join lame --rate-limit 300K
	slow c 1 3000
	slow d 0.7 3000
	judge
	local last
	last=$(grep -o 'shard [0-9] of 3: .*' ps.err | grep -F "$(at lame)" | cut -c7)
	same "by whom" "$(jq -rs 'map(select(.rule == "moved") | .by)[0]' "$state/trace.jsonl")" \
		psld:place
	fewer "$last" 8 # it had a third of 24
}
