# A worker that was written from falcon-protocol(7) alone: tests/client/client.py.

load common
load job
load tiny

setup_file() {
	for_file
}

setup() {
	for_test
	needs_cryptography
	tiny "$BATS_TEST_TMPDIR/tiny"
	job=(--set job.epochs=12 --set job.audit=sums --set data.samples=64
		--set data.test-samples=12 --set batch.size=32 "$BATS_TEST_TMPDIR/tiny/tiny.job")
	export PYTHONPATH=$root/tests/hostile/bare:$root/share PYTHONDONTWRITEBYTECODE=1 TRAINER_LOG=/dev/null
	# 4,352 parameters: two blocks, for two shards.
	printf 'input 16\ndense 256\n' >"$BATS_TEST_TMPDIR/tiny/tiny.model"
}

# client NAME: it works, by nothing else of this tree (-I); its process id is in $pid.
client() {
	start "$1" /usr/bin/python3 -I "$root/tests/client/client.py" "$keys/work.key" "$ready"
}

# trainer NAME: falcon-work with the same gradients.
trainer() {
	work "$1" --lanes 1 --exec "exec /usr/bin/python3 '$root/tests/hostile/trainer.py' well"
}

@test "falcon-work makes the model" {
	serve
	trainer one
	judge
}

@test "a client written from the page makes the same model" {
	serve
	client one
	wait "$pid"
	judge
	[[ $(cat one.out) = "the job is done: "*" tasks, "*" contributions" ]]
}

@test "both together make it, with two shards, and one of them killed" {
	serve -w 3 --shards 2
	client one
	trainer two
	client three
	soon "all of them" lines 3 '"ev":"join"'
	kill -9 "$pid"
	judge
}

# unharmed FILE: nothing in it that a terminal would not print, or would print elsewhere.
unharmed() {
	/usr/bin/python3 -c '
import sys, unicodedata
text = open(sys.argv[1], "rb").read().decode()
odd = [c for c in text if c not in "\n\t" and unicodedata.category(c)[0] == "C"]
sys.exit("%s: %a" % (sys.argv[1], odd) if odd else 0)' "$1"
}

@test "names and reasons that would do harm are refused, and printed by nobody" {
	serve
	/usr/bin/python3 "$root/tests/client/names.py" "$keys/work.key" "$ready" >said
	same "names: $(cat said)" "$(grep -c "^name .*: 'refused: " said)" 11
	[ "$(grep -c '^name .*: closed' said)" = 0 ]
	same "keys: $(cat said)" "$(grep -c '^key .*: heard' said)" 0
	soon "who left" grep -q "plain left: ?31mred" ps.err
	client one
	wait "$pid"
	judge
	unharmed ps.err
	unharmed "$state/trace.jsonl"
	falcon-stat "$state/trace.jsonl" >table
	unharmed table
	falcon-stat -j "$state/trace.jsonl" >table
	unharmed table
	# No more than a line for each of them, of a key at most one in ten seconds.
	[ "$(grep -c "refused" ps.err)" -le 16 ]
	[ "$(grep -c '"ev":"refuse"' "$state/trace.jsonl")" -le 4 ]
	lines 1 '"ev":"leave","worker":"plain"'
}
