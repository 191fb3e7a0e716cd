# Workers outlive what is between them and their coordinator: a link that is cut and comes
# back, a laptop that was suspended, an address that changed, a tunnel that swallows all.

bats_require_minimum_version 1.5.0

load common
load job
load tiny

setup_file() {
	for_file
}

teardown() {
	stop_all
	no_hosts
}

setup() {
	for_test
	tiny .
	job=(--set job.epochs=20 tiny.job)
}

# link: a relay (tests/chaos/relay) to the coordinator; its address is in $at.
link() {
	mkfifo link.in
	exec 5<>link.in
	start link sh -c 'exec "$0" <link.in' "$root/tests/chaos/relay"
	soon "the relay" grep -q '^at ' link.out
	at=$(sed -n 's/^at //p' link.out)
	tell to "$ready"
}

tell() {
	echo "$*" >&5
}

# over: the job is done, with the model of the first test, and who was away knows.
over() {
	work fast --lanes 1
	kill -TERM "${workers[0]}"
	judge
	for i in "${workers[@]}"; do
		wait "$i"
	done
	same "what the worker says" "$(grep -v "emulate\|needs" far.err |
		sed 's/^falcon-work: .*: [^:]*\(; trying again\)$/\1/; s/^falcon-work: .*: //')" \
		"; trying again
connected again
the job is done"
}

@test "a link that is cut and comes back" {
	serve
	link
	slow near 1 60
	ready=$at slow far 1 2000
	soon "both" lines 2 '"ev":"join"'
	tell cut
	soon "that it is lost" grep -q 'trying again' far.err
	soon "that it is gone" lines 1 '"ev":"leave","worker":"far"'
	tell heal
	soon "that it is back" lines 3 '"ev":"join"'
	over
}

@test "a laptop that was suspended for longer than its deadline, and its connection gone" {
	serve
	link
	slow near 1 60
	ready=$at slow far 1 2000
	local far=$pid
	soon "both" lines 2 '"ev":"join"'
	kill -STOP "$far"
	soon "the suspect" lines 1 '"ev":"suspect","worker":"far"'
	falcon-stat -k "$keys/observe.key" "$ready" >table
	has "$(grep '^far ' table)" suspect
	tell cut
	soon "that it is gone" lines 1 '"ev":"leave","worker":"far"'
	falcon-stat -k "$keys/observe.key" "$ready" >table
	has "$(grep '^far ' table)" left
	tell heal
	kill -CONT "$far"
	soon "that it is back" lines 3 '"ev":"join"'
	falcon-stat -k "$keys/observe.key" "$ready" >table
	run -1 grep -E '^far .*(left|suspect)' table
	over
}

# passes: whether it is told by now that nothing is heard; if not, 11 seconds pass for it.
# Only who was stopped looks at the clock before it planned to.
passes() {
	seconds=$((${seconds:-0} + 11))
	kill -STOP "${workers[1]}"
	leaps "$seconds" 0
	kill -CONT "${workers[1]}"
	grep -q "nothing was heard for 60 s; trying again" far.err
}

# leaps MONOTONIC SLEPT: seconds, of the clocks of whoever is begun by `leaping`.
leaps() {
	perl -e 'print pack "q3", 0, 1e9 * shift, 1e9 * shift' "$@" |
		dd of=clock conv=notrunc status=none
}

leaping() {
	head -c 24 /dev/zero >clock
	LD_PRELOAD=chaos-clock.so LD_LIBRARY_PATH=$bin/tests CHAOS_CLOCK=$PWD/clock "$@"
}

@test "an address that changed: there is work again within 8 seconds, whatever comes between" {
	local i began
	two_hosts
	job=(--set job.epochs=2000 "${job[@]:2}")
	start_ready ps ip netns exec "$here" falcon-ps -jx -K "$keys/keyring" \
		-l 192.0.2.1:0 -s "$state" "${job[@]}"
	start far ip netns exec "$there" falcon-work -k "$keys/work.key" -n far --lanes 1 \
		--cache none --emulate rate=2000 "$ready"
	soon "it" lines 1 '"ev":"join"'
	for i in 3 4; do
		ip -n "$there" addr flush dev cable
		[ $i = 3 ] || soon "that it notices" grep -q "has another address now; trying" far.err
		ip -n "$there" addr add "192.0.2.$i/24" dev cable
		began=$SECONDS
		soon "that it is back" lines $((i - 1)) '"ev":"join"'
		[ $((SECONDS - began)) -le 8 ] || same seconds $((SECONDS - began)) "8 or less"
	done
	# What comes and goes beside the connection's own address is no matter.
	ip -n "$there" link add other type veth peer name another
	ip -n "$there" link set other up
	ip -n "$there" addr add 198.51.100.1/24 dev other
	sleep 2.2
	ip -n "$there" link del other
	sleep 2.2
	same "connections" "$(grep -c "connected again" far.err)" 2
}

@test "a machine that slept takes no connection to have outlived that" {
	! sanitized || skip "clocks that leap: not under a sanitizer"
	serve
	link
	slow near 1 60
	ready=$at leaping slow far 1 2000
	soon "both" lines 2 '"ev":"join"'
	tell orphan
	leaps 0 60
	soon "that it notices" grep -q "this machine slept; trying again" far.err
	soon "that it is back" lines 3 '"ev":"join"'
	tell heal
	over
}

@test "after an hour a worker's session is another one, and nothing is lost or said" {
	! sanitized || skip "clocks that leap: not under a sanitizer"
	printf 'input 16\ndense 300\nrelu\ndense 4\n' >tiny.model
	job=(--set job.epochs=20 --set optimizer.lr=0.001 tiny.job)
	at_unix --min-shards 1
	start shard falcon-ps --join "$ready" -k "$keys/shard.key"
	leaping slow far 1 300
	soon "work" lines 3 '"ev":"update"'
	leaps 3000 0
	sleep 2.1
	same "sessions" "$(lines 2 '"ev":"join"' && echo 2)" ""
	leaps 3700 0
	soon "another one" lines 2 '"ev":"join"'
	same why "$(jq -r 'select(.ev == "leave").reason' "$state/trace.jsonl")" "a new session"
	at_clock $(($(grep -c '"ev":"ledger"' "$state/trace.jsonl") + 2))
	# SIGTERM is heard in the midst of it.
	kill -STOP "$ps"
	leaps 7500 0
	sleep 2.1
	kill -TERM "${workers[0]}"
	kill -CONT "$ps"
	ended "${workers[0]}" far
	same "what it says" "$(grep -v "emulate\|needs" far.err)" ""
	work fast --lanes 1
	judge hour
	again
	serve
	work fast --lanes 1
	judge hour
}

# seconds LEAST MOST COMMAND...: it ends with 75, by then.
seconds() {
	local began=$EPOCHREALTIME took
	run -75 "${@:3}"
	took=$(jq -n "$EPOCHREALTIME - $began")
	echo "after $took s: $output"
	jq -ne "$took >= $1 and $took < $2"
}

@test "--give-up: as long as it says, before there was a coordinator and after; whom it looks for" {
	! sanitized || skip "clocks that leap: not under a sanitizer"
	local work=(falcon-work -k "$keys/work.key" --cache none -n far --lanes 1)
	# It boots before falcon-ps.
	leaping start early "${work[@]}" --emulate rate=100 --give-up 100 unix:sock
	local early=$pid
	soon "a word" grep -q "unix:sock: no such file or directory; trying again" early.err
	leaps 60 0
	sleep 1.2 # it has looked at the clock
	at_unix
	soon "it" lines 1 '"ev":"join"'
	killed
	soon "that it notices" grep -q "closed by the peer; trying again" early.err
	leaps 170 0
	ended "$early" early 75
	seconds 2 3.9 "${work[@]}" --give-up 2 unix:nobody
	# Nobody says a word there: an attempt is cut.
	start silent socat UNIX-LISTEN:silent,fork EXEC:'sleep 100'
	soon "silence" test -S silent
	seconds 3 4.9 "${work[@]}" --give-up 3 unix:silent
	has "$output" "unix:silent: does not answer yet"
	has "$output" "unix:silent: no answer in time"
	timeout 1 getent hosts nobody.invalid && [ $? = 2 ] || return 0
	seconds 1 2.9 "${work[@]}" --give-up 1 nobody.invalid:7000
	has "$output" "nobody.invalid:7000: there is no host of this name; trying again"
	seconds 0 1.9 falcon-stat -k "$keys/observe.key" nobody.invalid:7000
	has "$output" "there is no host of this name"
}

@test "an address that changed, behind a command that does not notice" {
	! sanitized || skip "clocks that leap: not under a sanitizer"
	serve
	link
	slow near 1 60
	ready="exec:exec socat - TCP:$at" leaping slow far 1 2000
	soon "both" lines 2 '"ev":"join"'
	tell orphan
	tell from 127.0.0.2
	# It waits for a minute of its own.
	soon "that it notices" passes
	soon "that it is back" lines 3 '"ev":"join"'
	tell heal
	over
}

@test "a coordinator that comes back at another address of a list" {
	serve_at unix:here --set state.clocks=1
	ready=unix:nowhere,unix:here,unix:there slow far 1 2000
	soon "some clocks" lines 20 '"ev":"update"'
	killed
	rm ps.ready
	serve_at unix:there --set state.clocks=1
	soon "that it is back" lines 2 '"ev":"join"'
	work fast --lanes 1
	judge
	for i in "${workers[@]}"; do
		wait "$i"
	done
	same "what the worker says" "$(sed -n 's/; trying again$/, lost/p
		s/^falcon-work: \(unix:[a-z]*\): connected again/\1 connected again/p' \
		far.err | sed 's/^falcon-work: \(unix:[a-z]*\):.*, lost/\1 lost/')" "unix:nowhere lost
unix:here lost
unix:there connected again"
}

@test "a list with what is no address" {
	run -2 falcon-work -k "$keys/work.key" unix:a,lab
	has "$output" "'lab'"
}

@test "SIGTERM before the first clock after a restart: the snapshot is still there" {
	printf 'input 16\ndense 200\nrelu\ndense 4\n' >tiny.model
	job=(--set job.epochs=20 --set state.clocks=2 --set sync.scheme=bsp --set optimizer.lr=0.001 tiny.job)
	at_unix
	link
	ready=$at work far --lanes 1 --emulate rate=1000,cores=1
	soon "some clocks" lines 3 '"ev":"update"'
	killed
	tell watch push
	at_unix
	# All is claimed, and half of it is there: nothing can be kept now.
	soon "a push" grep -q held link.out
	kill -TERM "$ps"
	ended "$ps" ps
	has "$(cat ps.err)" ", and goes on from there when it is started again"
}

# What ssh and socat do: who comes while nobody is at the other end is taken, and let go.
@test "a coordinator that is gone at the end of a tunnel has not refused a key" {
	cat >passage <<-'END'
		#!/bin/sh
		[ -e open ] && socat -t 1 - UNIX-CONNECT:sock 2>/dev/null || dd bs=4096 count=1 of=/dev/null
	END
	chmod +x passage
	touch open
	at_unix
	start tunnel socat UNIX-LISTEN:tunnel,fork EXEC:./passage
	soon "the tunnel" test -S tunnel
	ready=unix:tunnel slow far 1 4000
	local far=$pid
	soon "some clocks" lines 3 '"ev":"update"'
	rm open
	killed
	# Nothing but silence, for longer than refusals of a key are borne.
	sleep 5
	kill -0 "$far"
	touch open
	at_unix
	soon "that it is back" grep -q 'connected again' far.err
	work fast --lanes 1
	judge
	ended "$far" far
	# Whose key was never taken is told, and does not wait for long.
	rm open
	run -77 falcon-work -k "$keys/work.key" unix:tunnel
	has "$output" "or ours is not in its keyring, or a tunnel leads nowhere"
}
