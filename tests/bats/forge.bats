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

# edited FILTER WHAT: result.json, changed by jq so, is found not to be that of the run.
edited() {
	jq -c "$1" result >"$state/result.json"
	run falcon-stat --audit "$state"
	same "status of $1 ($output)" "$status" 1
	has "$output" "result.json: $2"
}

@test "a result that is not what the trace and the files say is found" {
	local key
	draw
	tiny .
	job=(--set job.epochs=4 --set optimizer.ema=0.9 --set state.best=yes tiny.job)
	serve
	work a
	ended "$ps" ps
	cp "$state/result.json" result
	# Another place of the folder is none of another result.
	mv "$state" "$state.2"
	state=$state.2
	run -0 falcon-stat --audit "$state"
	for key in $(jq -r 'keys[]' result); do
		edited "del(.$key)" ""
		edited "if .$key | type == \"string\" then .$key |= (.[:-1] + \"!\")
			else .$key += 0.$((RANDOM % 89 + 10)) end" ""
		edited ".$key = {}" ""
	done
	edited '.clocks += 1' "clocks is not 16, as the trace and the files say"
	edited '.failed = "so"' "the run has no failed"
	edited '.f1 = 0.99' "has a member that no result has"
	edited '.best_accuracy = 0.99' "best_accuracy is of no evaluation"
	cp "$state/model.safetensors" "$state/best.safetensors"
	edited . best_sha256
	# Of a job without a best model and an average nobody has one.
	sed -i 's/^best.*//; s/^ema.*//' "$state/job"
	edited . "the run has no best"
	has "$output" "the run has no average_sha256"
	edited '[.]' "is not a JSON object"
}

# found WHAT: the folder, with the lines on stdin for its journal, is not one whole run.
found() {
	chain >"$state/policy.jsonl"
	run falcon-stat --audit "$state"
	same "status ($output)" "$status" 1
	has "$output" "policy.jsonl: $1"
}

@test "a journal that is not what the trace says is found" {
	local n
	draw
	tiny .
	job=(--set job.epochs=40 tiny.job)
	serve
	slow a 1 800
	for n in 1 2 3; do
		at_clock "$n"
		falcon-sync -k "$keys/control.key" "$ready" set scheme=epsp:$((n % 2 + 1))
	done
	work hurry --lanes 1
	ended "$ps" ps
	falcon-stat --audit "$state"
	cp "$state/policy.jsonl" was
	same "lines of the journal" "$(wc -l <was)" 3
	n=$((RANDOM % 3 + 1))
	sed "${n}d" was | found "line $n is not the trace's change"
	sed "${n}s/\"by\":\"[^\"]*\"/\"by\":\"eve\"/" was |
		found "line $n is not the trace's change by 'control'"
	sed "${n}s/\"clock\":/&9/" was | found "line $n is not the trace's change"
	sed "${n}s/epsp:[12]/epsp:3/" was | found "line $n is not the trace's change"
	sed "${n}p" was | found "line "
	sed '1{h;d};2G' was | found "line 1 is not the trace's change"
	sed '$p' was | found "line 4 is a change that is not in the trace"
	# What the trace does not say by itself: when, and at which version.
	sed "${n}s/\"time\":/&1/" was | found "its last link is "
	sed "${n}s/\"version\":/&1/" was | found "its last link is "
	found "line 1 is not the trace's change" </dev/null
	sed "${n}s/.*/{}/" was | found "line $n is not a line of a journal"
	# Not chained anew.
	sed "${n}s/\"time\":/&1/" was >"$state/policy.jsonl"
	run -1 falcon-stat --audit "$state"
	has "$output" "policy.jsonl: line $n does not chain the line before, or was changed"
	rm "$state/policy.jsonl"
	run -1 falcon-stat --audit "$state"
	has "$output" "policy.jsonl: is missing"
	# What is torn at the end is no line; and of the job's end nothing else is wrong.
	{ cat was; printf '{"clock":9,"ver'; } >"$state/policy.jsonl"
	run -0 falcon-stat --audit "$state"
}
