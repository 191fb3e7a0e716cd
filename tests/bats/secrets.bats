#!/usr/bin/env bats
# Keys in memory: their text is nowhere but in key files, and no core dump has any.

load common
load job
load tiny

setup() {
	cd "$BATS_TEST_TMPDIR" || return 1
	falcon-key init lab
	tiny .
}

teardown() {
	stop_all
}

# memory PID: all that the process may write to, of mappings up to 64 MiB.
memory() {
	local range rest from to
	while read -r range rest; do
		[[ $rest == rw* ]] || continue
		from=$((16#${range%-*})) to=$((16#${range#*-}))
		[ $((to - from)) -le $((64 << 20)) ] || continue
		dd if="/proc/$1/mem" bs=64K iflag=skip_bytes,count_bytes skip="$from" \
			count=$((to - from)) status=none 2>/dev/null || :
	done <"/proc/$1/maps"
}

# keys_of FILE: the secrets in it, as text.
keys_of() {
	awk '!/^#/ { print $3 }' "$1"
}

# holds_none PID FILE KNOWN: no key of the file is in the memory as text, but KNOWN is.
holds_none() {
	memory "$1" >seen
	[ -s seen ] || skip "the memory of another process cannot be read here"
	grep -qaF -- "$3" seen || {
		echo "'$3' is not in the memory: the test could not fail"
		return 1
	}
	keys_of "$2" >secrets
	[ -s secrets ]
	same "keys in memory" "$(grep -aoFf secrets seen | sort -u | cut -c1-4)" ""
	same "limit of core dumps" \
		"$(awk '/^Max core file size/ { print $5, $6 }' "/proc/$1/limits")" "0 0"
	rm seen
}

@test "keys are not in memory as text: falcon-ps, after SIGHUP too; falcon-work; falcon-stat" {
	start_ready ps falcon-ps -K lab/keyring -l 127.0.0.1:0 -s state --min-workers 2 tiny.job
	ps=$pid
	holds_none "$ps" lab/keyring lab/keyring
	cp lab/keyring good
	echo wrong >>lab/keyring
	kill -HUP "$ps"
	soon "the bad keyring" grep -qF "the old keyring holds" ps.err
	cp good lab/keyring
	kill -HUP "$ps"
	# Who is there has been let in by the keyring that was read last.
	start work falcon-work -k lab/work.key --lanes 1 --cache none "$ready"
	soon "the worker" grep -qF '"ev":"join"' state/trace.jsonl
	holds_none "$ps" lab/keyring lab/keyring
	holds_none "$pid" lab/work.key lab/work.key
	start stat falcon-stat --follow -k lab/observe.key "$ready"
	soon "the observer" grep -qF '"ev":"join"' stat.out
	holds_none "$pid" lab/observe.key lab/observe.key
}
