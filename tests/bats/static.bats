#!/usr/bin/env bats
# Static keys: made where they are used, of the keyring only the public half.

bats_require_minimum_version 1.5.0

load common
load job
load tiny

setup_file() {
	for_file
	tiny "$BATS_TEST_TMPDIR"
}

setup() {
	for_test
	cp -r "$BATS_FILE_TMPDIR/keys" keys
	keys=$BATS_TEST_TMPDIR/keys
	job=("$BATS_FILE_TMPDIR/tiny.job")
	umask 077
}

# own NAME: a key of its own, in NAME.key, of which the keyring gets the public half.
own() {
	falcon-key new -c "$(falcon-key public "$keys/keyring")" -n "$1" >"$keys/$1.key"
	falcon-key add -K "$keys/keyring" "$1" "$(falcon-key public "$keys/$1.key")"
}

@test "shared keys make the model" {
	serve
	work a --lanes 1
	judge
}

@test "a worker with a key of its own joins a job that runs, and makes the same model" {
	serve
	own vm1
	run -77 timeout 60 falcon-work -k "$keys/vm1.key" --cache none "$ready"
	kill -HUP "$ps"
	soon "the keyring" grep -qF "read again: 6 keys" ps.err
	KEY=vm1 work a --lanes 1
	judge
	same "its key in the trace" "$(jq -r 'select(.ev == "join").key' "$state/trace.jsonl")" vm1
	run grep -cF "$(sed 's/.*secret:\([^ ]*\).*/\1/' "$keys/vm1.key")" "$keys/keyring"
	same "its secret in the keyring" "$output" 0
}

@test "it is the coordinator's, or nobody's" {
	falcon-key init other
	own vm1
	falcon-key new -c "$(falcon-key public other/keyring)" -n vm1 >wrong.key
	falcon-key add -K "$keys/keyring" vm1 "$(falcon-key public wrong.key)"
	serve --set job.epochs=1000
	run -77 timeout 60 falcon-work -k wrong.key --cache none "$ready"
	has "$output" "the coordinator's key does not match, or ours is not in its keyring"
	KEY=vm1 work a --lanes 1
	soon "its join" lines 1 '"ev":"join"'
}

@test "from a shared key to one of its own, by two lines of one name" {
	local old
	falcon-key add -K "$keys/keyring" --shared w1
	job+=(--set job.epochs=1000)
	serve
	KEY=w1 slow a 1
	at_clock 1
	old=$(falcon-key show "$keys/w1.key" | awk '$1 == "w1" { print $4 }')
	mv "$keys/w1.key" "$keys/w1-old.key"
	own w1
	kill -HUP "$ps"
	soon "the keyring" grep -qF "read again: 7 keys" ps.err
	KEY=w1 slow b 1
	soon "the new one" lines 2 '"ev":"join"'
	same "who left" "$(grep -c '"ev":"leave"' "$state/trace.jsonl")" 0
	falcon-key revoke -K "$keys/keyring" w1 "$old"
	kill -HUP "$ps"
	ended "${workers[0]}" a 77
	has "$(<a.err)" "key 'w1' was revoked"
	# A static key ends in the middle of a session, too.
	falcon-key revoke -K "$keys/keyring" w1
	kill -HUP "$ps"
	ended "${workers[1]}" b 77
	has "$(<b.err)" "key 'w1' was revoked"
}

@test "who steals the keyring is whoever has a shared key, and nobody who has one of his own" {
	needs_cryptography
	own vm1
	falcon-key add -K "$keys/keyring" --shared lent
	serve --set job.epochs=1000
	cp "$keys/keyring" stolen
	run /usr/bin/python3 "$root/tests/hostile/thief.py" stolen lent "$ready"
	same "a shared key" "$status $output" "0 welcome"
	run /usr/bin/python3 "$root/tests/hostile/thief.py" stolen vm1 "$ready"
	same "a static one" "$status $output" \
		"1 message 1 was taken; of message 2 no session can be made"
	KEY=vm1 work a --lanes 1
	soon "the owner of the key" lines 1 '"ev":"join"'
}

@test "a client written from the page has a key of its own" {
	needs_cryptography
	own vm1
	# Its layer is one that client.py computes as falcon-work does with this trainer.
	job=(--set job.epochs=2 --set data.samples=64 --set data.test-samples=12
		--set batch.size=32 "$BATS_FILE_TMPDIR/tiny.job")
	serve
	start one /usr/bin/python3 "$root/tests/client/client.py" "$keys/vm1.key" "$ready"
	wait "$ps"
	ended "$pid" one
	has "$(<one.out)" "the job is done: "
	same "its key in the trace" "$(jq -r 'select(.ev == "join").key' "$state/trace.jsonl")" vm1
}
