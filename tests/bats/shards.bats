# Shards of other processes: the law, over their deaths, too.

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
	job=(--set job.epochs=8 --set "state.clocks=$clocks" tiny.job)
}

# join NAME [OPTION...]: a process of shards; its process id is in $pid.
join() {
	start "$1" falcon-ps --join "$ready" -k "$keys/shard.key" "${apart[@]}" "${@:2}"
}

# restarts: how often the trace tells that the job went on.
restarts() {
	jq -s -c 'map(select(.ev == "restart")) | length' "$state/trace.jsonl"
}

# shards: of each incarnation.
shards() {
	jq -s -c 'map(select(.ev == "job").shards)' "$state/trace.jsonl"
}

@test "the model does not know where its shards are" {
	serve
	work a --lanes 1
	judge
	for n in 1 2 3; do
		local here=$((RANDOM % 3 + 1)) all
		again
		serve --min-shards $n --shards $here --min-workers 3
		all=$here
		for i in $(seq $n); do
			local own=$((RANDOM % 3 + 1))
			join "shard$n$i" --shards $own
			all=$((all + own))
		done
		work "b$n" --lanes 1
		work "c$n" --lanes 2
		# By a command, whose %h and %p are the shards', too.
		ready="exec:p=%p; [ \$p != 7000 ] || p=${ready##*:}; exec socat - TCP:%h:\$p" \
			work "d$n" --lanes 1
		judge
		has "$(jq -r 'select(.ev == "join").worker' "$state/trace.jsonl")" "d$n"
		same "shards of $n processes, and $here here" "$(shards)" "[$all]"
		for i in $(seq $n); do
			has "$(<"shard$n$i.err")" "done: the job is done"
		done
	done
}

@test "a worker that comes before the shards waits, says what for, and is there with them" {
	serve --min-shards 1
	work early --lanes 1
	local early=$pid
	soon "what it waits for" grep -qF \
		"falcon-work: $ready: the job waits for its shards; trying again" early.err
	same "what it says" "$(grep -c . early.err)" 1
	join one
	judge
	ended "$early" early
	same "restarts" "$(restarts)" 0
}

@test "a shard is killed: one on standby has its blocks, from the last snapshot on" {
	at_unix --min-shards 2
	local one
	join one
	one=$pid
	join other --shards 2
	join spare --standby
	slow a 1 1500
	slow b 0.5 1500
	at_clock $((clocks + 1 + RANDOM % 10))
	kill -KILL "$one"
	judge
	same "restarts ($(<ps.err))" "$(restarts)" 1
	has "$(<ps.err)" ": lost: "
	has "$(<spare.err)" "of 4"
	has "$(<other.err)" "connected again"
}

@test "a shard is stopped: that is found out in seconds, and one on standby has its blocks" {
	at_unix --min-shards 2
	local one began
	join one
	one=$pid
	join other
	join spare --standby
	slow a 1 800
	slow b 0.5 800
	at_clock $((clocks + 1 + RANDOM % 10))
	kill -STOP "$one"
	began=$SECONDS
	soon "that it is lost" grep -q ": lost: it does not answer for 1[0-9] s" ps.err
	echo "# after $((SECONDS - began)) s"
	[ $((SECONDS - began)) -lt 30 ]
	soon "the one on standby" grep -q "has shards" spare.err
	kill -CONT "$one"
	soon "it is back" grep -q "connected again" one.err
	judge
	same "restarts ($(<ps.err))" "$(restarts)" 1
}

@test "nobody comes for a shard that was killed: the coordinator has its blocks" {
	at_unix --min-shards 1 --set state.clocks=0 --set state.seconds=0
	join one
	local one=$pid
	slow a 1 1500
	at_clock $((RANDOM % 10 + 1))
	# Without any snapshot: from the first clock on; and with a new one, or alone.
	kill -KILL "$one"
	soon "another incarnation" grep -q ": lost: " ps.err
	join two
	judge
	same "shards" "$(shards)" "[2]"
}

# computed: the worker has done all 64 samples of the clock that is open.
computed() {
	falcon-stat -j -k "$keys/observe.key" "$ready" |
		jq -e '.workers[0].samples == .samples + 64' >/dev/null
}

# went_up AT_LEAST: bytes, to the shard.
went_up() {
	[ -e up ] && [ "$(wc -c <up)" -ge "$1" ]
}

@test "what was computed before a shard's stream opens goes out when it does" {
	serve
	# Its second stream waits for "go"; what goes up there is kept.
	ready="exec:p=%p; [ \$p != 7000 ] || exec socat - TCP:%h:${ready##*:}; \
until [ -e $PWD/go ]; do sleep 0.01; done; tee $PWD/up | socat - TCP:%h:\$p" \
		work a --lanes 1
	at_clock 2
	join late
	soon "its blocks" grep -q "blocks from here on" late.err
	soon "all tasks" computed
	# Nobody else may remind it.
	kill -STOP "$ps"
	touch go
	soon "a contribution" went_up 10000
	kill -CONT "$ps"
	judge
}

@test "who joins late has blocks; a stop and a start find their place; a copy of the model" {
	at_unix
	slow a 1 1500
	at_clock 2
	join late
	soon "its blocks" grep -q "blocks from here on" late.err
	kill -TERM "$ps"
	wait "$ps"
	at_unix --min-shards 1
	soon "the shard" grep -q "has shards" late.err
	at_clock 12
	falcon-sync -k "$keys/control.key" "$ready" checkpoint
	falcon-sync -k "$keys/control.key" "$ready" export copy.safetensors
	[ -s copy.safetensors ]
	judge
	has "$(<ps.err)" "shard 2 of 2: "
}

@test "a part that needs more than --max-memory is refused, and the job goes on" {
	at_unix --min-shards 1
	join small --max-memory 1M
	local small=$pid got=0
	wait "$small" || got=$?
	same "status ($(<small.err))" "$got" 1
	has "$(<small.err)" "need"
	has "$(<small.err)" "bytes, --max-memory allows 1048576"
	join large --max-memory 4G
	work a --lanes 1
	judge
	has "$(<large.err)" "shards 2 to 2 of 2 need"
}

@test "a shard at a fraction of the bandwidth is blamed, and named" {
	serve --min-shards 3
	# 24 blocks of 16 kB, 6 on each: two workers want 0.2 MB a clock of it.
	local slow=$((RANDOM % 3 + 1)) i rate at
	for i in 1 2 3; do
		rate=16M
		[ $i != $slow ] || rate=2M
		join "shard$i" --rate-limit $rate
		soon "the shard" grep -q "listening on" "shard$i.err"
	done
	at=$(sed -n 's/.*listening on //p' "shard$slow.err")
	work a --lanes 1
	work b --lanes 1
	judge
	falcon-stat --json "$state/trace.jsonl" >row
	same "the slow one ($(jq -c .shards row))" \
		"$(jq -r --arg at "$at" '.shards[] | select(.address == $at) | "\(.class) \(.cause)"' row)" \
		"straggler pace"
	same "blamed most" "$(jq -r '.shards | max_by(.blame).address' row)" "$at"
	falcon-proj "$state/trace.jsonl" >out
	has "$(<out)" "at $at is a straggler by pace"
}

@test "a process of shards ends while versions are on their way" {
	at_unix --min-shards 1
	join slow --rate-limit 50K
	local slow=$pid got=0
	work a --lanes 1
	soon "a worker" grep -q '"ev":"join"' "$state/trace.jsonl"
	kill -TERM "$slow"
	wait "$slow" || got=$?
	same "status ($(<slow.err))" "$got" 0
	join next
	judge
}

@test "SIGTERM to coordinator and shards within 4 ms: both hear it, whichever comes first" {
	local i one first
	job=(--set job.epochs=2000 "${job[@]}")
	for i in {1..20}; do
		again
		serve --min-shards 1
		join one
		one=$pid
		slow "w$i" 1 2000
		at_clock 1
		first=$((RANDOM % 3)) # mostly the shards
		[ $first = 0 ] && kill -TERM "$ps" || kill -TERM "$one"
		perl -e 'select undef, undef, undef, shift' "0.00$((RANDOM % 4))$((RANDOM % 10))"
		[ $first = 0 ] && kill -TERM "$one" || kill -TERM "$ps"
		ended "$ps" ps
		has "$(<ps.err)" ", and goes on from there when it is started again"
		ended "$one" one
		kill -TERM "$pid"
	done
}

@test "a key whose processes end again and again is sent away; the job goes on with others" {
	cp -r "$keys" keys
	keys=$PWD/keys
	falcon-key add --keyring keys/keyring other --role shard
	at_unix --min-shards 1
	local n
	for ((n = 0; n < 40; n++)); do
		join "one$n"
		soon "a word" grep -qE "has shards|too often" "one$n.err"
		! grep -q "too often" "one$n.err" || break
		kill -KILL "$pid"
		wait "$pid" || :
	done
	[ "$n" -ge 16 ]
	[ "$n" -lt 40 ] # it pays off one in 160 s
	has "$(<ps.err)" "too often"
	start other falcon-ps --join "$ready" -k keys/other.key
	work a --lanes 1
	judge
	has "$(<other.err)" "done: the job is done"
}

@test "who may not: a worker's key, a standby without a job, a job beside --join" {
	serve
	local got=0
	timeout 20 falcon-ps --join "$ready" -k "$keys/work.key" 2>err || got=$?
	same "status ($(<err))" "$got" 77
	got=0
	falcon-ps --standby tiny.job 2>err || got=$?
	same "status ($(<err))" "$got" 2
	has "$(<err)" "--standby: only with --join"
	got=0
	falcon-ps --join "$ready" tiny.job 2>err || got=$?
	same "status ($(<err))" "$got" 2
	has "$(<err)" "--join: takes no JOB"
}

@test "a worker's key that is none is the coordinator's fault, and the process says so" {
	local status=0
	start_ready ps "$bin/tests/falcon-ps-keyless" -jx -K "$keys/keyring" -l unix:sock \
		-s "$state" --min-shards 1 "${job[@]}"
	start shard falcon-ps --join "$ready" -k "$keys/shard.key" -l unix:shard
	shard=$pid
	slow a 1 800
	wait "$shard" || status=$?
	same "status: $(<shard.err)" "$status" 1
	has "$(<shard.err)" "unix:sock: ADMIT: "
}
