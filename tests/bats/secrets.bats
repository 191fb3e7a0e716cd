#!/usr/bin/env bats
# Keys in memory: their text is nowhere but in key files, and no core dump has any.

load common
load job
load tiny

setup() {
	cd "$BATS_TEST_TMPDIR" || return 1
	falcon-key init --shared lab
	falcon-key add -K lab/keyring vm1 # a pair
	tiny .
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
	done < <(cat "/proc/$1/maps" 2>/dev/null)
}

# keys_of FILE: the secrets in it, as text.
keys_of() {
	awk '!/^#/ && $3 !~ /^public:/ { sub(/^secret:/, "", $3); print $3 }' "$1"
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
	start_ready ps falcon-ps -K lab/keyring -l 127.0.0.1:0 -s state --min-workers 3 tiny.job
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
	start own falcon-work -k lab/vm1.key --lanes 1 --cache none "$ready"
	soon "the other worker" grep -qF '"key":"vm1"' state/trace.jsonl
	holds_none "$pid" lab/vm1.key lab/vm1.key
	start stat falcon-stat --follow -k lab/observe.key "$ready"
	soon "the observer" grep -qF '"ev":"join"' stat.out
	holds_none "$pid" lab/observe.key lab/observe.key
}

# hidden PID FILE NAME: keys of the file are only where no dump has them, that of NAME is.
hidden() {
	local status=0
	/usr/bin/python3 "$root/tests/secrets/memory.py" "$1" "$2" >places || status=$?
	[ "$status" -ne 75 ] || skip "the memory of another process cannot be read here"
	same "scan" "$status" 0
	grep -qx "$3 hidden" places || {
		echo "$3 is not in the memory: the test could not fail"
		return 1
	}
	same "keys elsewhere" "$(grep -v ' hidden$' places | sort -u)" ""
}

@test "keys themselves are in no memory that is dumped: none is left by handshakes" {
	! sanitized || skip "a sanitizer maps more than can be read"
	start_ready ps falcon-ps -K lab/keyring -l 127.0.0.1:0 -s state \
		--set job.epochs=1000000 tiny.job
	ps=$pid
	start work falcon-work -k lab/work.key --lanes 1 --cache none "$ready"
	work=$pid
	soon "work" grep -qF '"ev":"update"' state/trace.jsonl
	for _ in 1 2 3; do # strangers, with names that there are
		sed 's/^work work .\{5\}/work work AAAAA/' lab/work.key >wrong
		chmod 600 wrong
		timeout 1 falcon-stat -k wrong "$ready" || :
		falcon-stat -k lab/observe.key "$ready" >stat.out
	done
	kill -HUP "$ps"
	soon "the keyring" grep -qF "read again" ps.err
	hidden "$ps" lab/keyring coordinator
	hidden "$ps" lab/keyring work
	hidden "$work" lab/work.key work
	start own falcon-work -k lab/vm1.key --lanes 1 --cache none "$ready"
	soon "the other worker" grep -qF '"key":"vm1"' state/trace.jsonl
	hidden "$pid" lab/vm1.key vm1
	start stat falcon-stat --follow -k lab/observe.key "$ready"
	soon "the observer" grep -qF '"ev":"join"' stat.out
	hidden "$pid" lab/observe.key observe
}

@test "what is run has no key: not in its environment, not by a descriptor, and no core" {
	windows
	# Of the transport; a trainer's are in exec.bats.  It says nothing, and is killed.
	start work falcon-work -k lab/work.key --cache none \
		'exec:tr "\\0" "\\n" </proc/$$/environ >environ; readlink /proc/$$/fd/* >fds; tr "\\0" "\\n" </proc/$PPID/cmdline >cmdline; ulimit -c >core; exec sleep 60'
	soon "the command" test -s core
	[ -s environ ]
	same "a key in an environment or an argument" \
		"$(grep -aFf windows environ cmdline || :)" ""
	same "a descriptor of a key's file" "$(grep -F lab fds || :)" ""
	same "the limit of its core" "$(cat core)" 0
}

# Pieces of the secrets in lab, 16 characters each, at drawn places.
pieces() {
	keys_of lab/keyring
	keys_of lab/vm1.key
	awk '!/^#/ { print $4 }' lab/*.key
}

# mangled N FILE DRAW: the file, spoiled in way N; what begins with a key, too.
mangled() {
	case $1 in
	0) cat "$2" ;;
	1) tail -c +"$(($3 % 40 + 1))" "$2" ;;
	2) tr -d = <"$2" ;;
	3) sed 's/./& /'"$(($3 % 60 + 20))" "$2" ;;
	4) printf '[job]\n' && cat "$2" ;;
	5) printf '[optimizer]\nlr = ' && cat "$2" ;;
	6) printf '{"a":"' && cat "$2" ;;
	7) awk '{ print $3 }' "$2" ;;
	8) awk '{ print "{\"" $3 "\": 1}" }' "$2" ;;
	9) awk '{ print "input " $3; print $3 }' "$2" ;;
	10) awk '{ print "[job]"; print "name = " $3; print "name = " $3; print "[" $3 "]" }' "$2" ;;
	11) awk '{ print "{\"workers\":{\"" $3 "\":1}}" }' "$2" ;;
	esac
}

# told_by COMMAND...: it has not said a piece of a secret.  What dials is not waited for.
told_by() {
	timeout 1 "$@" >said 2>&1 </dev/null 3>&- || :
	! grep -qaFf windows said || {
		echo "$* quotes a key:"
		cut -c 1-300 said
		return 1
	}
	runs=$((runs + 1))
}

# windows: each 16 characters of the secrets in lab.
windows() {
	pieces | awk '{ for (i = 1; i + 15 <= length($1); i++) print substr($1, i, 16) }' >windows
	[ "$(wc -l <windows)" -gt 200 ]
}

@test "no program quotes a key, whichever option the file of keys is given to" {
	local runs=0 first file way draw key option
	draw
	first=$((RANDOM % 3))
	windows
	head -c 300 /dev/urandom >model
	for file in lab/keyring lab/vm1.key lab/control.key; do
		# Each way with one of the files: all of them take longer than a test should.
		first=$(((first + 1) % 3))
		for way in $(seq "$first" 3 11); do
			draw=$RANDOM # not in the subshell, which does not go by the seed
			(umask 077 && mangled "$way" "$file" "$draw" >bad)
			mkdir -p -m 700 state
			cp bad state/job
			told_by falcon-ps -K lab/keyring -s state -l exec:no tiny.job
			rm -r state
			mkdir -m 700 state
			cp tiny.job state/job
			cp bad state/policy.jsonl
			told_by falcon-ps -K lab/keyring -s state -l exec:no tiny.job
			cp bad state/result.json
			told_by falcon-ps -K lab/keyring -s state -l exec:no tiny.job
			rm -r state
			told_by falcon-ps -K tiny.job bad
			told_by falcon-ps --check bad
			told_by falcon-ps --check -K bad bad
			for key in model.file data.train-images data.train-labels \
				data.test-images data.test-labels; do
				told_by falcon-ps --check --set "$key=bad" tiny.job
			done
			told_by falcon-work --eval bad tiny.job
			told_by falcon-work --eval model bad
			told_by falcon-work -k lab/work.key --emulate @bad 127.0.0.1:1
			told_by falcon-work -k lab/work.key --emulate rate=1,trace=bad 127.0.0.1:1
			for option in "" --audit --history --json "--audit --json"; do
				# shellcheck disable=SC2086 # an option or two
				told_by falcon-stat $option bad
			done
			for option in "" --policy --json --strict "--what-if all" "--plot x.svg"; do
				# shellcheck disable=SC2086
				told_by falcon-proj $option bad
			done
			told_by falcon-sync -k lab/control.key unix:sock apply bad
			told_by falcon-key show bad
			told_by bash -c 'falcon-key public bad >/dev/null'
			told_by bash -c 'falcon-key new -K bad >/dev/null'
			told_by falcon-ps -K bad --trace none/x tiny.job
			[ "$way" -eq 0 ] || {
				told_by falcon-work -k bad unix:sock
				told_by falcon-stat -k bad unix:sock
				told_by falcon-sync -k bad unix:sock show
			}
		done
	done
	echo "$runs runs"
	[ "$runs" -gt 300 ]
}

@test "no program quotes a key that is given where a name or a value belongs" {
	local runs=0 key option
	windows
	mkdir none
	# The line of a key file, the secret alone, and as people paste them.
	for key in "$(<lab/work.key)" "$(keys_of lab/work.key)" "FALCON_KEY=$(<lab/work.key)" \
		"$(tail -n 2 lab/keyring | head -n 1)" "$(<lab/vm1.key)" \
		"$(awk '{ print $3 }' lab/vm1.key)"; do
		told_by env FALCON_KEY="$key" falcon-work unix:sock
		told_by env FALCON_KEY="$key" falcon-stat unix:sock
		told_by env FALCON_KEY="$key" falcon-sync unix:sock show
		for option in -k -n --emulate --cache --lanes --exec; do
			told_by falcon-work "$option" "$key" unix:sock
		done
		told_by falcon-work -k lab/work.key "$key"
		told_by falcon-work --eval "$key" tiny.job
		for option in -K -l -t --set "--set job.name" "--set model.file" \
			"--set sync.scheme" "--set optimizer.lr" "--set a.b" --compress; do
			told_by falcon-ps --check -K lab/keyring "${option% *}" \
				"$([ "${option% *}" = "$option" ] || echo "${option#* }=")$key" \
				tiny.job
		done
		told_by falcon-ps --check "$key"
		told_by falcon-stat "$key"
		told_by falcon-stat -k lab/observe.key "$key"
		for option in "" scheme= lanes.a= share.a= exclude.a=; do
			told_by falcon-sync -k lab/control.key unix:sock set "$option$key"
		done
		told_by falcon-sync -k lab/control.key unix:sock drain "$key"
		told_by falcon-sync -k lab/control.key unix:sock "$key"
		told_by falcon-proj "$key"
		told_by falcon-proj --what-if "$key" /dev/null
		told_by falcon-key show "$key"
		told_by falcon-key add -K lab/keyring "$key"
		told_by falcon-key add -K "$key" vm1
		told_by falcon-key add -K lab/keyring vm2 "$key"
		told_by falcon-key new -c "$key x"
	done
	echo "$runs runs"
	[ "$runs" -gt 100 ]
}

@test "a file without keys is no secret, whoever can read it" {
	chmod 644 tiny.job
	run falcon-ps -K tiny.job -l unix:sock tiny.job
	same "status" "$status" 2
	[[ $output != *chmod* ]]
	has "$output" "tiny.job:1:"
	run falcon-work -k tiny.job unix:sock
	[[ $output != *chmod* ]]
	has "$output" "tiny.job:1:"
}

@test "keys that others can read are refused, with what to type" {
	local mode
	for mode in 640 604 644; do
		chmod "$mode" lab/keyring lab/work.key lab/control.key lab/observe.key
		run falcon-ps -K lab/keyring -l unix:sock tiny.job
		same "falcon-ps ($mode)" "$status ${lines[-1]}" \
			"2 falcon-ps: lab/keyring: others can read this secret: chmod go= 'lab/keyring'"
		run falcon-work -k lab/work.key unix:sock
		same "falcon-work ($mode)" "$status $output" \
			"77 falcon-work: lab/work.key: others can read this secret: chmod go= 'lab/work.key'"
		run falcon-stat -k lab/observe.key unix:sock
		same "falcon-stat ($mode)" "$status $output" \
			"77 falcon-stat: lab/observe.key: others can read this secret: chmod go= 'lab/observe.key'"
		run falcon-sync -k lab/control.key unix:sock show
		same "falcon-sync ($mode)" "$status $output" \
			"77 falcon-sync: lab/control.key: others can read this secret: chmod go= 'lab/control.key'"
	done
}
