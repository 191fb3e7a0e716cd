# falcon-sync checkpoint, whatever the workers do: a snapshot at once, or soon, or a clear
# word in time.

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
	printf 'input 16\ndense 200\nrelu\ndense 4\n' >tiny.model
	job=(--set job.epochs=1000 --set state.clocks=100000 --set optimizer.lr=0.001 tiny.job)
	# After half a second one of its tasks takes a quarter of an hour.
	printf '0 1\n0.5 0.00001\n' >hang
}

# order VERB...: of a controller.
order() {
	falcon-sync -k "$keys/control.key" "$ready" "$@"
}

# kept AT_LEAST: the last snapshot is of that clock, or a later one.
kept() {
	local last
	last=$(basename "$(printf '%s\n' "$state"/snapshot.0* | tail -n 1)")
	[ "$((10#${last#snapshot.}))" -ge "$1" ]
}

# updates: how many the trace tells of.
updates() {
	grep -c '"ev":"update"' "$state/trace.jsonl" || :
}

# still: nothing has become of the job since this was asked before.
still() {
	local was=${now:-}
	now=$(wc -l <"$state/trace.jsonl")
	nap 0.5
	[ "$now" = "$was" ]
}

@test "all workers hang while they answer: where the job stands is kept at once" {
	local i
	draw
	serve -w 2 --set "sync.scheme=epsp:$((RANDOM % 3))"
	for i in a b; do
		work "$i" --lanes 1 --emulate "rate=800,cores=1,trace=$PWD/hang"
	done
	soon "that all hang" grep -q "its lanes stand still" ps.err
	soon "that nothing happens" still
	order checkpoint --timeout 20 2>said
	kept "$(updates)"
	order pause
	order checkpoint --timeout 20
}

@test "who hangs has all claimed, and owes what it has not pushed: that is said, in time" {
	serve --set sync.scheme=bsp
	mkfifo link.in
	exec 5<>link.in
	start link sh -c 'exec "$0" <link.in' "$root/tests/chaos/relay"
	soon "the relay" grep -q '^at ' link.out
	echo "to $ready" >&5
	here=$ready
	ready=$(sed -n 's/^at //p' link.out)
	work far --lanes 1 --emulate rate=2000,cores=1
	ready=$here
	soon "some clocks" lines 3 '"ev":"update"'
	order checkpoint
	kept 3
	echo "watch push" >&5
	soon "a push" grep -q held link.out
	soon "that nothing happens" still
	run -75 order checkpoint --timeout 3
	has "$output" "waiting: version "
	has "$output" "no snapshot within 3 s: version $(($(updates) + 1)) is not made yet; the last snapshot is of clock "
	# Whoever is gone is in nobody's way.
	start waits falcon-sync -k "$keys/control.key" "$ready" checkpoint
	waits=$pid
	soon "that it waits" grep -q "waiting: " waits.err
	run -1 order checkpoint
	has "$output" "another request waits for a snapshot"
	echo go >&5
	ended "$waits" waits
	kept 4
}

@test "the job is over, or there can be none" {
	job=(--set job.epochs=1 --set state.clocks=1 tiny.job)
	start_ready ps falcon-ps -K "$keys/keyring" -l unix:sock -s "$state" "${job[@]}"
	ps=$pid
	work a
	ended "$pid" a
	run -1 order checkpoint
	has "$output" "the job is over"
	run -2 order show --timeout 3
	has "$output" "--timeout: only with checkpoint"
	kill "$ps"
	wait "$ps" || :
	again
	serve --set sync.scheme=asp --set job.epochs=1000
	slow a 1 500
	soon "some clocks" lines 2 '"ev":"update"'
	run -1 order checkpoint
	has "$output" "rounds of this scheme are not shared"
}
