#!/usr/bin/env bats
# Forgers: a real run's trace is changed in each way of tests/forge/forge.py, its chain made
# anew, and the audit says what is wrong with it.

bats_require_minimum_version 1.5.0

load common
load job
load tiny

setup_file() {
	for_file
	tiny "$BATS_TEST_TMPDIR"
	ran one
	ran two
}

setup() {
	for_test
}

teardown_file() {
	stop_all
}

# ran NAME: a run, in the folder NAME: tasks move, a worker is killed when its contribution is
# open, and one comes late.
ran() {
	state=$BATS_FILE_TMPDIR/$1
	rm -f ps.ready
	workers=()
	job=(--set job.epochs=6 --set job.audit=sums --set batch.task=4 tiny.job)
	serve --min-workers 4
	slow "a-$1" 1 300
	slow "b-$1" 1 300
	slow "c-$1" 1 300
	slow "d-$1" 1/4 300
	local fast=("${workers[1]}" "${workers[2]}") n
	for n in $(seq 6); do
		at_clock $((4 + 2 * n))
		! lines 1 '"fenced":true' || break
		kill -KILL "${fast[$((n - 1))]}"
		slow "late-$n-$1" 1 300
		fast+=("$pid")
	done
	ended "$ps" ps
	stop_all
}

@test "each forgery is caught, or cannot be by the trace alone" {
	draw
	run -0 falcon-stat --audit "$BATS_FILE_TMPDIR/one"
	has "$output" "audit: ok: 24 clocks"
	run /usr/bin/python3 "$root/tests/forge/forge.py" "$(command -v falcon-stat)" "$SEED" \
		"$BATS_FILE_TMPDIR/one" "$BATS_FILE_TMPDIR/two"
	echo "$output"
	same status "$status" 0
	[ "$(sed -n 's/^forged \([0-9]*\),.*/\1/p' <<<"$output")" -ge 95 ]
}
