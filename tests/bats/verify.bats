# A worker whose machine flips one bit of a value now and then, and claims that another key
# computes once more: unlike results are told, and end the job that says so.

load common
load tiny
load job

setup_file() {
	for_file
	falcon-key add -K "$BATS_FILE_TMPDIR/keys/keyring" odd
	falcon-key add -K "$BATS_FILE_TMPDIR/keys/keyring" other
	tiny "$BATS_FILE_TMPDIR/job"
}

setup() {
	for_test
	job=(--set job.epochs=120 --set job.eval=end --set job.verify=100%
		"$BATS_FILE_TMPDIR/job/tiny.job")
}

# flips SPEC...: the worker `odd`.
flips() {
	KEY=odd work odd --lanes 1 --emulate "rate=1e6,$1"
}

# verified FIELD: what falcon-stat has of it.
verified() {
	falcon-stat -j "$state/trace.jsonl" | jq ".verify.$1"
}

@test "the honest job: claims are computed by two keys, and come out equal" {
	serve --min-workers 2
	work a --lanes 1
	KEY=other work b --lanes 1
	judge
	[ "$(verified asked)" -ge 480 ] || same "asked" "$(verified asked)" "480 tasks at least"
	[ "$(verified equal)" -gt 0 ]
	same "unlike" "$(verified unlike)" 0
	same "unanswered" "$(verified unanswered)" $(($(verified asked) - $(verified equal)))
	has "$(falcon-stat "$state/trace.jsonl")" \
		"verify: $(verified asked) asked, $(verified equal) equal, 0 unlike"
	same "what differs" "$(grep -c '"ev":"verify"' "$state/trace.jsonl" || :)" 0
	same "charges" "$(grep -c '"ev":"charge"' "$state/trace.jsonl" || :)" 0
}

@test "one flipped bit in a task of twenty: both keys are named, and nothing else follows" {
	serve --min-workers 3
	work a --lanes 1
	KEY=other work b --lanes 1
	flips flip=0.05
	wait "$ps"
	same "one of the two" "$(jq -r 'select(.ev == "verify").words | any(.worker == "odd")' \
		"$state/trace.jsonl" | sort -u)" true
	same "unlike" "$(verified unlike)" "$(grep -c '"ev":"verify"' "$state/trace.jsonl")"
	same "charges" "$(grep -c '"ev":"charge"' "$state/trace.jsonl" || :)" 0
	same "who left" "$(grep -c '"ev":"leave"' "$state/trace.jsonl" || :)" 0
	has "$(cat ps.err)" "with key 'odd'" "have unlike results of task "
	# Of many at once, and then ever more seldom, with how often it was so.
	[ "$(grep -c "have unlike results" ps.err)" -le $((2 + SECONDS / 5)) ]
	has "$(falcon-stat "$state/trace.jsonl")" "unlike: " "odd"
	has "$(falcon-stat --audit "$state/trace.jsonl")" "unlike $(verified unlike)"
}

@test "verify.stop = yes: unlike results end the job" {
	job=(--set verify.stop=yes "${job[@]}")
	serve --min-workers 2
	work a --lanes 1
	flips flip=0.05
	local status=0
	wait "$ps" || status=$?
	same "status" "$status" 1
	lines 1 '"ev":"failed"'
	has "$(cat ps.err)" "two keys have unlike results of a task (verify.stop)"
	falcon-stat --audit "$state/trace.jsonl"
}
