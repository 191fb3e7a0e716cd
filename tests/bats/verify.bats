# A worker whose machine flips one bit of a value now and then, and tasks that another key
# runs, too: it is found, and the model is the one that it would be without it.

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
	job=(--set job.epochs=120 --set job.eval=end --set job.numerics=portable --set job.verify=100%
		"$BATS_FILE_TMPDIR/job/tiny.job")
}

# flips SPEC...: the worker `odd`.
flips() {
	KEY=odd work odd --lanes 1 --emulate "rate=1e6,$1"
}

@test "the honest job, and each task is run by two keys" {
	serve --min-workers 2
	work a --lanes 1
	KEY=other work b --lanes 1
	judge
	lines 1 '"verified":[['
	same "what differs" "$(grep -c '"ev":"verify"' "$state/trace.jsonl" || :)" 0
	same "charges" "$(grep -c '"ev":"charge"' "$state/trace.jsonl" || :)" 0
}

@test "one flipped bit in a task of a hundred: named at the first one, and evicted" {
	serve --min-workers 3
	# A millisecond a task, so that the odd one, which is quicker, has its share.
	slow a 1
	KEY=other slow b 1
	flips flip=0.01
	judge
	# In its own contribution, or as a witness.
	same "whom two contradict" \
		"$(jq -r 'select(.ev == "verify").worker' "$state/trace.jsonl" | sort -u)" odd
	lines 1 '"ev":"charge","worker":"odd"'
	lines 1 '"ev":"leave","worker":"odd"'
	same "who else left" "$(grep '"ev":"leave"' "$state/trace.jsonl" |
		grep -cv '"worker":"odd"' || :)" 0
	has "$(cat ps.err)" "odd with key 'odd' got task"
	falcon-stat "$state/trace.jsonl" >table
	has "$(cat table)" "found wrong: odd"
	has "$(falcon-stat --audit "$state/trace.jsonl")" found_wrong 
}

@test "with two keys both are named, and none is evicted" {
	serve --min-workers 2
	work a --lanes 1
	flips flip=0.05
	wait "$ps"
	lines 1 '"verdict":"undecided"'
	# Of each key at once, and then ever more seldom, with how often it was so.
	[ "$(grep -c '"verdict":"undecided"' "$state/trace.jsonl")" -le $((2 + SECONDS / 5)) ] ||
		same "lines" "$(grep -c '"ev":"verify"' "$state/trace.jsonl")" "a few"
	[ "$(grep -c "no third key can decide" ps.err)" -le $((2 + SECONDS / 5)) ]
	same "charges" "$(grep -c '"ev":"charge"' "$state/trace.jsonl" || :)" 0
	same "who left" "$(grep -c '"ev":"leave"' "$state/trace.jsonl" || :)" 0
	has "$(cat ps.err)" "and no third key can decide"
	falcon-stat --audit "$state/trace.jsonl"
}
