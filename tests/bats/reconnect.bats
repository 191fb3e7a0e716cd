# Workers outlive what is between them and their coordinator: a link that is cut and comes
# back, a laptop that was suspended, an address that changed, a tunnel that swallows all.

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
	perl -e 'print pack "q2", 0, 1e9 * shift' "$seconds" | dd of=clock conv=notrunc status=none
	kill -CONT "${workers[1]}"
	grep -q "nothing was heard for 60 s; trying again" far.err
}

@test "an address that changed, behind a command that does not notice" {
	! sanitized || skip "clocks that leap: not under a sanitizer"
	serve
	link
	slow near 1 60
	head -c 16 /dev/zero >clock
	ready="exec:exec socat - TCP:$at" LD_PRELOAD=chaos-clock.so \
		LD_LIBRARY_PATH=$bin/tests CHAOS_CLOCK=$PWD/clock slow far 1 2000
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
		far.err | sed 's/^falcon-work: \(unix:[a-z]*\):.*, lost/\1 lost/')" "unix:here lost
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
