#!/usr/bin/env bats
# Keys that change while a job runs: revoked, expired, rotated; and where no key is left.

bats_require_minimum_version 1.5.0

load common
load job
load tiny

setup_file() {
	for_file
	tiny "$BATS_TEST_TMPDIR"
	local name
	for name in w1 w2; do
		falcon-key add -K "$keys/keyring" "$name"
	done
}

setup() {
	for_test
	cp -r "$BATS_FILE_TMPDIR/keys" keys
	keys=$BATS_TEST_TMPDIR/keys
	draw
	job=(--set job.epochs=8 "$BATS_FILE_TMPDIR/tiny.job")
}

# events EVENT: those lines of the trace.
events() {
	grep -F "\"ev\":\"$1\"" "$state/trace.jsonl" || :
}

# ids NAME: the ids under which the worker joined, as a JSON array.
ids() {
	jq -sc --arg name "$1" 'map(select(.ev == "join" and .worker == $name).id)' \
		"$state/trace.jsonl"
}

@test "a key that is revoked ends its sessions at once; others do its tasks" {
	# At each address that there is.
	serve_at 127.0.0.1:0,unix:sock --min-workers 2
	IFS=, read -r far near <<<"$ready"
	drawn "$far $near" "$near $far"
	read -r one other <<<"$one"
	ready=$one KEY=w1 slow a 1 50
	ready=$far KEY=w2 slow b 1 50
	start stat falcon-stat --follow -k "$keys/observe.key" "$other"
	at_clock 3
	falcon-key revoke -K "$keys/keyring" w1
	falcon-key revoke -K "$keys/keyring" observe
	kill -HUP "$ps"
	ended "${workers[0]}" a 77
	has "$(<a.err)" "$one: refused: key 'w1' was revoked"
	soon "the coordinator's word" grep -qF "w1: refused: key 'w1' was revoked" ps.err
	has "$(<ps.err)" "keyring: read again: 5 keys"
	wait "$pid" || status=$?
	same "falcon-stat" "$status" 77
	has "$(<stat.err)" "key 'observe' was revoked"
	ready=$far KEY=w2 work quick --lanes 1
	judge
	has "$(events refuse)" "\"key\":\"w1\",\"why\":\"key 'w1' was revoked\""
	has "$(events leave)" "\"reason\":\"key 'w1' was revoked\""
	# The last round is without it.
	same "its part of the last round" \
		"$(events ledger | tail -n 1 | jq -c "[.grant[][0] | select(IN($(ids a)[]))]")" "[]"
}

@test "a key that expires ends its live sessions and opens no new one" {
	local until
	serve --min-workers 2 --set job.epochs=1000
	KEY=w1 slow a 1 1000
	KEY=w2 slow b 1 1000
	at_clock 2
	until=$(date -ud '+2 seconds' +%Y-%m-%dT%H:%M:%SZ)
	sed -i "/^w1 /s/\$/ $until/" "$keys/keyring"
	kill -HUP "$ps"
	ended "${workers[0]}" a 77
	[ "$(date -u +%s)" -ge "$(date -ud "$until" +%s)" ]
	has "$(<a.err)" "$ready: refused: key 'w1' has expired, $until; it is $(date -u +%Y-%m-%dT%H:)"
	soon "the coordinator's word" grep -qF "w1: refused: key 'w1' has expired" ps.err
	soon "its leave" lines 1 '"ev":"leave"'
	same "who left" "$(events leave | jq -r .worker)" a
	run -77 timeout 60 falcon-work -k "$keys/w1.key" -n a --cache none "$ready"
	soon "the stranger" grep -qF "handshake from 127.0.0.1: key 'w1' has expired, $until; it is 2" ps.err
	same "who left" "$(events leave | jq -r .worker)" a
	run falcon-key show "$keys/keyring"
	has "$output" "$until"
	[[ $output =~ w1\ +work\ +$until\ [0-9a-f]{32}\ expired ]]
}

@test "two keys of a name are both taken, until one is revoked by its fingerprint" {
	local old
	serve --min-workers 2
	old=$(falcon-key show "$keys/w1.key" | awk '$1 == "w1" { print $4 }')
	(umask 077 && falcon-key new -K "$keys/keyring" -n w1 >"$keys/w1-new.key")
	kill -HUP "$ps"
	soon "the keyring" grep -qF "read again: 8 keys" ps.err
	KEY=w1 slow a 1 50
	KEY=w1-new slow b 1 50
	at_clock 3
	falcon-key revoke -K "$keys/keyring" w1 "$old"
	kill -HUP "$ps"
	ended "${workers[0]}" a 77
	has "$(<a.err)" "key 'w1' was revoked"
	KEY=w1-new work quick --lanes 1
	judge
	same "who stayed" "$(events leave | grep -c '"worker":"b"' || :)" 0
}

@test "a keyring that cannot be read changes nothing" {
	serve --set job.epochs=1000
	KEY=w1 slow a 1 1000
	at_clock 1
	chmod 644 "$keys/keyring"
	falcon-key revoke -K "$keys/keyring" w1 && return 1
	kill -HUP "$ps"
	soon "its complaint" grep -qF "others can read this secret" ps.err
	has "$(<ps.err)" "(the old keyring holds)"
	at_clock 6
	same "who left" "$(events leave)" ""
}

# unlocked COMMAND...: with no right to lock memory, whoever runs this.
unlocked() {
	prlimit --memlock=0 setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock -- "$@"
}

@test "where no memory can be locked that is said at the start" {
	local said="keys are not in locked memory, and may be written to swap: see ulimit -l"
	! sanitized || skip "under a sanitizer mlock(2) does nothing, and never fails"
	unlocked true || skip "no setpriv here"
	start_ready ps unlocked falcon-ps -jx -K "$keys/keyring" -l 127.0.0.1:0 -s "$state" "${job[@]}"
	start a unlocked falcon-work -k "$keys/w1.key" --cache none "$ready"
	ended "$pid" a
	has "$(<ps.err)" "falcon-ps: $said"
	has "$(<a.err)" "falcon-work: $said"
	run -0 falcon-stat "$state/trace.jsonl"
	again
	serve
	run grep -F "locked memory" ps.err
	same "of who may" "$output" ""
}
