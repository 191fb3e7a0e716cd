# What a job endures: full disks, no descriptors, a coordinator that goes and comes back.

bats_require_minimum_version 1.5.0

load common
load job
load tiny

setup_file() {
	for_file
}

setup() {
	for_test
	tiny .
	job=(tiny.job)
}

teardown() {
	stop_all
	[ ! -e full ] || umount full 2>/dev/null || :
}

# undisturbed: the model of the job when nothing happens to it.
undisturbed() {
	local state=$BATS_TEST_TMPDIR/calm
	serve "$@"
	work calm --lanes 1
	ended "$ps" ps
	sha=$(member sha256)
	rm ps.ready
}

# cannot_tell FILE: the audit of a trace with a gap.
cannot_tell() {
	local got=0
	falcon-stat --audit "$1" >said || got=$?
	same "status of the audit ($(cat said))" "$got" 1
	has "$(cat said)" "audit: cannot tell: "
	# The gap's own words are those of what is missing: none of it is anywhere else.
	jq -se 'map(select(.ev == "gap")) | length >= 1 and all(.lines > 0 and
		.bytes > .lines and (.blake2b | length) == 64)' "$1" >/dev/null
	falcon-stat "$1" >table
	has "$(cat table)" "job: tiny"
}

@test "a trace that reaches a limit: the job ends with its model, the trace has a gap" {
	local limit
	draw
	undisturbed --set job.epochs=20
	for limit in $((RANDOM % 8 + 5)) $((RANDOM % 30 + 13)); do
		echo "limit $limit KiB"
		# Room for the result, not for the trace; the copy has the same.
		start_ready ps bash -c 'ulimit -f "$0" && exec "$@"' "$limit" \
			falcon-ps -jx -K "$keys/keyring" -l 127.0.0.1:0 -s "state.$limit" \
			-t "copy.$limit" --set job.epochs=20 tiny.job
		ps=$pid
		work "w$limit" --lanes 1
		ended "$ps" ps
		ended "$pid" "w$limit"
		same "the model" "$(jq -r .sha256 "state.$limit/result.json")" "$sha"
		has "$(cat ps.err)" "state.$limit/trace.jsonl: File too large: lines are missing"
		cannot_tell "state.$limit/trace.jsonl"
		cannot_tell "copy.$limit"
		rm ps.ready
	done
}

# full_disk SIZE: the folder full is a disk of that size.
full_disk() {
	mkdir full
	mount -t tmpfs -o "size=$1" none full 2>/dev/null || {
		rmdir full
		skip "a disk cannot be mounted here"
	}
}

@test "a full disk: the job ends with its model, the copy of the trace goes on when there is room" {
	undisturbed --set job.epochs=40
	full_disk 1m
	head -c 1040000 /dev/zero >full/ballast
	serve --set job.epochs=40 -t full/copy
	slow w 1 500
	soon "the gap" grep -q "full/copy: No space left on device: lines are missing" ps.err
	rm full/ballast
	soon "room" grep -q "full/copy: is written again: " ps.err
	work fast --lanes 1
	ended "$ps" ps
	same "the model" "$(member sha256)" "$sha"
	cannot_tell full/copy
	same "gaps" "$(grep -c '"ev":"gap"' full/copy)" 1
	# What is missing is what the whole trace has between.
	jq -r 'select(.ev == "gap") | "\(.lines) \(.bytes)"' full/copy >missing
	same "lines and bytes" "$(cat missing)" \
		"$(($(wc -l <"$state/trace.jsonl") - $(wc -l <full/copy) + 1)) $(($(wc -c \
			<"$state/trace.jsonl") - $(grep -v '"ev":"gap"' full/copy | wc -c)))"
	same "the chain goes on behind the gap" "$("$root/tests/forge/chain.py" -c <full/copy)" \
		"$(tail -n 1 "$state/trace.jsonl" | jq -r .h)"
	sed '$s/"version":/"version":1/' full/copy >changed
	run -1 falcon-stat --audit changed
	has "$output" "it does not chain the line before"
	command -v b2sum >/dev/null || skip "no b2sum"
	local before
	before=$(grep -n '"ev":"gap"' full/copy | cut -d: -f1)
	same "the hash" "$(jq -r 'select(.ev == "gap") | .blake2b' full/copy)" \
		"$(tail -n +"$before" "$state/trace.jsonl" | head -n "$(cut -d' ' -f1 missing)" |
			b2sum -l 256 | cut -d' ' -f1)"
	run falcon-stat --audit "$state/trace.jsonl"
	same "the trace in the state ($output)" "$status" 0
}

@test "a disk that is full when the job ends keeps its model; one that never had room is refused" {
	undisturbed --set job.epochs=20
	full_disk 128k
	state=full/state
	serve --set job.epochs=20
	slow w 1 200
	soon "some clocks" lines 3 '"ev":"ledger"'
	dd if=/dev/zero of=full/ballast bs=4k 2>/dev/null || :
	work fast --lanes 1
	ended "$ps" ps
	same "the model" "$(member sha256)" "$sha"
	same "its file" "$(sha256sum <full/state/model.safetensors | cut -d' ' -f1)" "$sha"
	cannot_tell full/state/trace.jsonl
	run falcon-ps -x -K "$keys/keyring" -l 127.0.0.1:0 -s full/other tiny.job
	same "the next one ($output)" "$status" 1
	has "$output" "No space left on device"
}

# paused_for_good: the clock that was under way has ended.
paused_for_good() {
	local clock
	clock=$(sed -n 's/.*: paused by .* at clock //p' ps.err)
	[ -n "$clock" ] && [ "$(grep -c '"ev":"update"' "$state/trace.jsonl")" = "$clock" ]
}

@test "SIGTERM on a full disk: the snapshot of its clock is there already, status 0" {
	undisturbed --set job.epochs=20
	full_disk 1m
	state=full/state
	serve --set job.epochs=20 --set state.clocks=1000
	slow w 1 100
	soon "some clocks" lines 3 '"ev":"ledger"'
	falcon-sync -k "$keys/control.key" "$ready" pause
	soon "its clock" paused_for_good
	falcon-sync -k "$keys/control.key" "$ready" checkpoint
	dd if=/dev/zero of=full/ballast bs=4k 2>/dev/null || :
	kill "$ps"
	ended "$ps" ps
	has "$(cat ps.err)" "No space left on device"
	has "$(cat ps.err)" "and goes on from there when it is started again"
	rm full/ballast ps.ready
	serve --set job.epochs=20 --set state.clocks=1000
	has "$(cat ps.err)" "resumed at clock"
	falcon-sync -k "$keys/control.key" "$ready" resume
	work fast --lanes 1
	ended "$ps" ps
	same "the model" "$(member sha256)" "$sha"
}

@test "48 descriptors and 32 observers: the model is there" {
	undisturbed --set job.epochs=20
	start_ready ps bash -c 'ulimit -n 48 && exec "$@"' - \
		falcon-ps -jx -K "$keys/keyring" -l 127.0.0.1:0 -s "$state" \
		--set job.epochs=20 tiny.job
	ps=$pid
	slow w 1 50
	soon "the worker" lines 1 '"ev":"join"'
	local n
	for n in $(seq 32); do
		start "observer$n" falcon-stat --follow -k "$keys/observe.key" "$ready"
	done
	soon "an observer" grep -q '"ev":"join"' observer{1,2,3}.out
	work fast --lanes 1
	soon "a refusal" grep -q "refused: no descriptor is left" ps.err
	soon "another worker" lines 2 '"ev":"join"'
	ended "$ps" ps
	same "the model" "$(member sha256)" "$sha"
}

@test "a worker whose files may not grow keeps no data, and works on" {
	undisturbed --set job.epochs=20
	at_unix --set job.epochs=20
	start w bash -c 'ulimit -f 1 && exec "$@"' - falcon-work -k "$keys/work.key" \
		-n w --lanes 1 --cache "$PWD/cache" "$ready"
	ended "$ps" ps
	ended "$pid" w
	same "the model" "$(member sha256)" "$sha"
}

@test "too few descriptors are called that, and 24 are enough for a worker, 32 for its falcon-ps" {
	local n p least
	draw
	n=$((RANDOM % 16 + 8))
	for p in "falcon-ps tiny.job" "falcon-work unix:nowhere" "falcon-key init other" \
		"falcon-sync -k $keys/control.key unix:nowhere resume" \
		"falcon-stat nothing" "falcon-proj nothing"; do
		echo "$n: $p"
		least=24
		[ "${p%% *}" != falcon-ps ] || least=32
		# shellcheck disable=SC2086 # a command line
		run -1 bash -c 'ulimit -n "$0" && exec "$@"' "$n" $p
		same "what it says" "$output" \
			"${p%% *}: $n descriptors are too few: it takes $least (ulimit -n)"
	done
	[ ! -e other ]
	run -0 bash -c 'ulimit -n 8 && exec falcon-ps --version'
	# What may be raised is.
	start_ready ps bash -c 'ulimit -n 32 && ulimit -Sn 8 && exec "$@"' - falcon-ps -jx \
		-K "$keys/keyring" -l 127.0.0.1:0 -s "$state" -t trace --set state.best=yes \
		--set optimizer.ema=0.5 tiny.job
	ps=$pid
	start w bash -c 'ulimit -n 24 && exec "$@"' - falcon-work -k "$keys/work.key" \
		-n w --lanes 1 --cache none "$ready"
	ended "$ps" ps
	ended "$pid" w
	run -1 bash -c 'ulimit -n 31 && exec "$@"' - falcon-ps -K "$keys/keyring" \
		-l 127.0.0.1:0 -s other tiny.job
	same "of one less" "$output" \
		"falcon-ps: 31 descriptors are too few: it takes 32 (ulimit -n)"
}

@test "where no worker could ever be served falcon-ps does not start" {
	local n=32 got all="unix:s1,unix:s2,unix:s3,unix:s4,unix:s5,unix:s6,unix:s7,unix:s8"
	# What is listened at takes some.
	run -1 bash -c 'ulimit -n "$0" && exec "$@"' "$n" falcon-ps -x -K "$keys/keyring" \
		-l "$all" -s "$state" tiny.job
	n=$(sed -n 's/^falcon-ps: 32 descriptors are too few: with what is open it takes \([0-9]*\) (ulimit -n)$/\1/p' \
		<<<"$output")
	[ "$n" -gt 32 ] || {
		echo "$output"
		return 1
	}
	# That is true.
	run -1 bash -c 'ulimit -n "$0" && exec "$@"' $((n - 1)) falcon-ps -x \
		-K "$keys/keyring" -l "$all" -s "$state" tiny.job
	has "$output" "falcon-ps: $((n - 1)) descriptors are too few: with what is open it takes $n "
	start_ready ps bash -c 'ulimit -n "$0" && exec "$@"' "$n" falcon-ps -x \
		-K "$keys/keyring" -l "$all" -s "$state" tiny.job
	ps=$pid
	ready=${ready##*,} work w --lanes 1
	ended "$ps" ps
}

@test "where descriptors run out that is what is said, and not that memory does" {
	local n said
	for n in $(seq 32 36); do
		run timeout 2 bash -c 'ulimit -n "$0" && for ((i = 10; i < 28; i++)); do
			eval "exec $i</dev/null"
			done && exec "$@"' "$n" falcon-ps -x -K "$keys/keyring" \
			-l 127.0.0.1:0 -s "state.$n" tiny.job
		said+="$n: $status, $output"$'\n'
	done
	echo "$said"
	[[ $said == *"falcon-ps: "[Tt]"oo many open files"* ]]
	[[ $said != *memory* ]]
}

@test "SIGTERM of falcon-ps: workers keep dialling, and go on with the next one" {
	at_unix --set job.epochs=20
	slow w 1 100
	local w=$pid
	soon "some clocks" lines 2 '"ev":"update"'
	kill -TERM "$ps"
	ended "$ps" ps
	has "$(cat ps.err)" ", and goes on from there when it is started again"
	soon "what the worker says" grep -q "trying again" w.err
	cp "$state/trace.jsonl" first
	at_unix --set job.epochs=20 --restart
	soon "the worker" grep -q "connected again" w.err
	work fast --lanes 1
	ended "$ps" ps
	ended "$w" w
	cmp first "$state/trace.1.jsonl"
	same "what it says" "$(grep -v "emulate\|needs" w.err)" "falcon-work: unix:sock: the coordinator \
stops, and may be back; trying again
falcon-work: unix:sock: connected again
falcon-work: done: the job is done"
	# A third time: another number.
	rm "$state/result.json"
	at_unix --set job.epochs=20 --restart
	work again --lanes 1
	ended "$ps" ps
	cmp first "$state/trace.1.jsonl"
	lines 1 '"ev":"done"'
	same "traces" "$(cd "$state" && echo trace*)" "trace.1.jsonl trace.2.jsonl trace.jsonl"
}

# hangs_there: a job, one of whose workers takes no word any more.
hangs_there() {
	serve --set job.epochs=400
	slow fine 1 400
	work hangs --lanes 1 --emulate "rate=400,cores=1"
	soon "both" lines 2 '"ev":"join"'
	soon "some clocks" lines 4 '"ev":"update"'
	kill -STOP "$pid"
}

# over_within SECONDS STATUS: falcon-ps has ended in that time, by itself, and tidily.
over_within() {
	local began=$EPOCHREALTIME took
	ended "$ps" ps "$2"
	took=$(jq -n "$EPOCHREALTIME - $began")
	echo "# after $took s"
	jq -ne "$took < $1" >/dev/null
	same "what is left" "$(find "$state" -name '*.new')" ""
}

@test "SIGTERM: whoever hangs holds falcon-ps up for 5 seconds, and no longer" {
	hangs_there
	kill -TERM "$ps"
	over_within 6 0
	has "$(<ps.err)" ", and goes on from there when it is started again"
	has "$(<fine.err)" "the coordinator stops, and may be back"
}

@test "a second SIGTERM does not wait, and is not what it ends by" {
	hangs_there
	kill -TERM "$ps"
	soon "that it stops" grep -q "the coordinator stops, and may be back" fine.err
	kill -TERM "$ps"
	over_within 2 0
	has "$(<ps.err)" ", and goes on from there when it is started again"
}

@test "--give-up: a coordinator that stays away" {
	at_unix --set job.epochs=20
	slow w 1 100
	work brief --give-up 1 --lanes 1 --emulate rate=100
	local brief=$pid
	soon "both" lines 2 '"ev":"join"'
	killed
	# Others would dial for a day.
	ended "$brief" brief 75
	kill -0 "${workers[0]}"
	run falcon-work -k "$keys/work.key" --give-up x unix:sock
	same "status ($output)" "$status" 2
}

@test "falcon-sync stop ends the workers, and SIGTERM does not" {
	at_unix --set job.epochs=20
	slow w 1 100
	soon "some clocks" lines 2 '"ev":"update"'
	falcon-sync -k "$keys/control.key" unix:sock stop
	ended "$ps" ps 75
	ended "$pid" w
	has "$(cat w.err)" "falcon-work: done: the job was stopped"
}

# goes_on TIMES: whether falcon-ps has said so often that it does.
goes_on() {
	[ "$(grep -c "goes on after" ps.err)" -ge "$1" ]
}

@test "falcon-ps that listens on all addresses says one to dial" {
	start_ready ps falcon-ps -jx -K "$keys/keyring" -l 0.0.0.0:0 -s "$state" "${job[@]}"
	ps=$pid
	soon "a name" grep -q "it waits for a worker: falcon-work $(uname -n):${ready##*:}" ps.err
}

# waits_stopped STATUS AT: the coordinator waits for its shards, and says so; then where it
# is stopped.
waits_stopped() {
	soon "what it waits for" grep -q \
		"it waits for 1 more of 2 processes of shards: falcon-ps --join unix:sock" ps.err
	kill -TERM "$ps"
	ended "$ps" ps "$1"
	has "$(<ps.err)" "tiny: stopped at clock $2"
}

@test "falcon-ps says that it waits for shards, and where it was when it is stopped then" {
	job=(--set job.epochs=5 --set state.clocks=1 tiny.job)
	at_unix --min-shards 2
	start shard falcon-ps --join unix:sock -k "$keys/shard.key" -l 127.0.0.1:0
	waits_stopped 75 "0 of 20"
	at_unix
	slow a 1 500
	soon "some clocks" lines 2 '"ev":"update"'
	kill -TERM "$ps"
	ended "$ps" ps
	local at
	at=$(sed -n 's/.*stopped at clock \([0-9]*\) .*/\1/p' ps.err)
	[ "$at" -ge 1 ]
	at_unix --min-shards 2
	waits_stopped 0 "$at of 20, and goes on from there when it is started again"
}

@test "falcon-ps says who joins, who leaves and whom it waits for" {
	serve -w 2 --set job.epochs=1000
	soon "whom it waits for" grep -q "it waits for 2 more of 2 workers: falcon-work $ready" ps.err
	slow a 1 200
	soon "a" grep -q "tiny: a joined with key 'work': 1 here" ps.err
	soon "one more" grep -q "it waits for 1 more of 2 workers" ps.err
	slow b 1 200
	soon "some clocks" lines 2 '"ev":"update"'
	soon "that it goes on" goes_on 1
	kill -TERM "$pid"
	soon "b" grep -q "tiny: b left: SIGTERM: 1 here" ps.err
	falcon-sync -k "$keys/control.key" "$ready" set exclude.a=yes
	soon "the only one" grep -q "it waits: all who are here are excluded (a): " ps.err
	falcon-sync -k "$keys/control.key" "$ready" set exclude.a=no
	soon "that it goes on again" goes_on 2
	kill -STOP "${workers[0]}"
	soon "who is silent" grep -q "it waits for work of a: " ps.err
	falcon-stat -k "$keys/observe.key" "$ready" >table
	has "$(cat table)" "stalled for "
	has "$(grep '^a ' table)" silent
	same stalled "$(falcon-stat --json -k "$keys/observe.key" "$ready" |
		jq -c '[.stalled > 5, .clocks_s == 0, (.workers[] | select(.worker == "a") | .silent)]')" \
		"[true,true,true]"
	kill -CONT "${workers[0]}"
	# Whoever is drained has gone.
	falcon-sync -k "$keys/control.key" "$ready" drain a
	soon "that nobody is here" grep -q "it waits for a worker: falcon-work $ready" ps.err
	falcon-sync -k "$keys/control.key" "$ready" stop
}

@test "a stop that waits for a worker is told of with it" {
	serve --set job.epochs=1000
	slow a 1 200
	soon "some clocks" lines 2 '"ev":"update"'
	kill -STOP "${workers[0]}"
	falcon-sync -k "$keys/control.key" "$ready" stop
	soon "what waits" grep -q "it waits for work of a: .*; its stop waits with it" ps.err
	kill -CONT "${workers[0]}"
	wait "$ps" 3>&- || same "status" "$?" 75
}

@test "falcon-ps that stood still itself blames nobody" {
	serve --set job.epochs=1000
	slow a 1 200
	soon "some clocks" lines 2 '"ev":"update"'
	kill -STOP "$ps"
	# For longer than anybody is waited for in silence.
	sleep 12
	kill -CONT "$ps"
	soon "whose fault it was" \
		grep -q "tiny: stood still itself for 1[0-9] s: it was stopped, or had" ps.err
	local n
	n=$(grep -c '"ev":"update"' "$state/trace.jsonl")
	soon "that it goes on" lines $((n + 4)) '"ev":"update"'
	! grep "it waits\|goes on\|owes" ps.err || return 1
	falcon-sync -k "$keys/control.key" "$ready" stop
}

@test "churn: comings and goings are told in few lines" {
	local since=$SECONDS
	serve --set job.epochs=1000
	slow stays 1 100
	local n many=()
	for n in $(seq 30); do
		falcon-work -k "$keys/work.key" -n "n$n" --cache none --lanes 1 \
			--emulate rate=100 "$ready" 2>/dev/null 3>&- &
		many+=($!)
	done
	started+=("${many[@]}")
	soon "all of them" lines 31 '"ev":"join"'
	# At once, however long it took them to come.
	kill -KILL "${many[@]}"
	soon "a summary" grep -q "more joined, .* left: 1 here" ps.err
	# 20, and one more every two seconds.
	[ "$(grep -c "tiny: n[0-9]* " ps.err)" -le $((20 + (SECONDS - since + 1) / 2)) ]
}

@test "a name that nobody has cannot be excluded" {
	serve --set job.epochs=1000
	# A key's name: its worker is still to come.  Nobody works with an observer's.
	falcon-sync -k "$keys/control.key" "$ready" set exclude.work=yes
	falcon-sync -k "$keys/control.key" "$ready" set exclude.work=no
	run falcon-sync -k "$keys/control.key" "$ready" set exclude.observe=yes
	same "status ($output)" "$status" 1
	slow a 1 200
	soon "a" lines 1 '"ev":"join"'
	local sync=(falcon-sync -k "$keys/control.key" "$ready")
	local key
	for key in exclude.typo=yes lanes.typo=1:2 share.typo=3; do
		run "${sync[@]}" set $key
		same "status of $key ($output)" "$status" 1
		has "$output" "'typo' is no worker of this job, and no key"
	done
	"${sync[@]}" set exclude.typo=no
	# A key's name is that of a worker only while none has come under another one.
	for key in exclude.work=yes lanes.work=1:2 share.work=3; do
		run "${sync[@]}" set $key
		same "status of $key ($output)" "$status" 1
		has "$output" "'work' is a key: its worker is called 'a'"
	done
	"${sync[@]}" set exclude.work=no
	"${sync[@]}" set exclude.a=yes
	"${sync[@]}" set exclude.a=no
	kill -TERM "$pid"
	wait "$pid"
	# Who was here may be back.
	"${sync[@]}" set exclude.a=yes
}
