# A good key in bad hands that asks for more than a worker does: it costs what its own
# sessions are, not the job's time, the coordinator's memory or its disk.

load common
load job
load tiny

setup_file() {
	for_file
	unset MALLOC_PERTURB_ # pages that nobody writes take no memory
	falcon-key add -K "$BATS_FILE_TMPDIR/keys/keyring" greedy
}

setup() {
	for_test
	tiny .
	job=(tiny.job)
}

# asks WORD...: what became of it, in $said, by name.
asks() {
	said=$(timeout 100 "$bin/tests/asks" "$keys/greedy.key" "$ready" "$@")
	echo "$said"
}

# got NAME: a number of it.
got() {
	local rest=${said#*"$1 "}
	echo "${rest%%[ :]*}"
}

# large MIB: a job of so many MiB that do not compress, drawn from a seed.
large() {
	local n=$(($1 * 1024))
	{
		printf '\0\0\010\003'
		printf '%08x' "$n" | sed 's/../\\x&/g' | xargs -0 printf
		printf '\0\0\0\40\0\0\0\40'
		/usr/bin/python3 -c 'import random, sys
for n in range(int(sys.argv[1])):
	sys.stdout.buffer.write(random.Random(n).randbytes(1024))' "$n"
	} >images
	{
		printf '\0\0\010\001'
		printf '%08x' "$n" | sed 's/../\\x&/g' | xargs -0 printf
		head -c "$n" /dev/zero | tr '\0' '\1'
	} >labels
	sed -i 's/^input .*/input 1024/' tiny.model
}

@test "a chunk before HELLO" {
	serve
	asks early
	same "refused" "$(got refused)" 1
	has "$said" "CHUNK_GET before HELLO"
}

@test "the trace is told once in a session" {
	serve
	said=$(timeout 100 "$bin/tests/asks" "$keys/observe.key" "$ready" follow 2)
	same "refused: $said" "$(got refused)" 1
	has "$said" "a second FOLLOW"
	falcon-stat -k "$keys/observe.key" "$ready" >table
	has "$(cat table)" "job: tiny"
}

@test "requests under way: 16 wait, more are refused" {
	large 8
	serve
	# Two leave at once, 16 wait.
	asks flood 100
	same "refused" "$(got refused)" 1
	has "$said" "asks for too many chunks at once"
	has "$(cat ps.err)" "greedy: refused: asks for too many chunks at once"
}

@test "a key has 256 sessions" {
	serve
	start greedy "$bin/tests/asks" "$keys/greedy.key" "$ready" sessions 270 60
	local greedy=$pid
	soon "a refusal" grep -q "greedy: refused: its key has too many sessions" ps.err
	work honest --lanes 1
	wait "$ps"
	wait "$greedy"
	said=$(cat greedy.out)
	same "refused of: $said" "$(got refused)" 14
	has "$said" "its key has too many sessions"
}

@test "where all workers share one key a source has 256 sessions" {
	falcon-key init one
	keys=$PWD/one
	serve
	start greedy "$bin/tests/asks" "$keys/work.key" "$ready" sessions 270 60
	local greedy=$pid
	soon "a refusal" grep -q "refused: its key has too many sessions" ps.err
	ready="exec:exec socat - TCP:$ready,bind=127.0.0.2" work honest --lanes 1
	wait "$ps"
	wait "$greedy"
	said=$(cat greedy.out)
	same "refused of: $said" "$(got refused)" 14
	[ "$(grep -c refused honest.err)" = 0 ]
}

# rss: KiB of the coordinator.
rss() {
	sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$ps/status"
}

@test "bytes queued are few over all sessions of a key" {
	large 24
	serve
	asks read 1 24
	local before after
	before=$(rss)
	start greedy "$bin/tests/asks" "$keys/greedy.key" "$ready" stall 100 4
	wait "$pid"
	after=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$ps/status")
	echo "$before KiB before, $after KiB at most; $(cat greedy.out)"
	sanitized || [ $((after - before)) -le $((40 << 10)) ]
	# Whoever takes what it gets is served.
	work honest --lanes 1
	wait "$ps"
}

@test "data that were had already come slowly" {
	large 4
	serve
	# As much as there is in both sets; then 2 MiB, and 1 MiB a second, of the key.
	asks read 1 $((8 + 2 + 4))
	[ "$(got bytes)" -ge $(((8 + 2 + 4) << 20)) ]
	[ "$(got seconds)" -ge 3 ]
	asks read 8 $((8 * 8 + 2 + 6))
	[ "$(got bytes)" -ge $(((8 * 8 + 2 + 6) << 20)) ]
	[ "$(got seconds)" -ge 2 ]
}

# lasting: a job that takes hours, with a worker; over: sooner, by another one.
lasting() {
	serve --set job.epochs=1000
	slow w 1 20
}

over() {
	kill -TERM "${workers[0]}" || :
	work fast --lanes 1
	wait "$ps"
}

@test "coming and going: the trace has few lines of it, and its sums are right" {
	lasting
	soon "some clocks" lines 2 '"ev":"update"'
	local began=$SECONDS took joins
	asks churn 400
	took=$((SECONDS - began + 1))
	# 256 at once, and one more in 10 seconds.
	[ "$(got welcome)" -ge 256 ]
	[ "$(got welcome)" -le $((257 + took / 10)) ]
	same "all of them" $(($(got welcome) + $(got later))) 400
	has "$said" "too many sessions of its key came and went"
	over
	joins=$(grep -c '"ev":"join","worker":"asks' "$state/trace.jsonl")
	[ "$joins" -le "$(got welcome)" ]
	# A line at once, one in 10 seconds, and one at the end.
	lines 2 '"ev":"refuse","key":"greedy"'
	! lines $((4 + took / 10)) '"ev":"refuse","key":"greedy"' || return 1
	same "counted" "$(jq -s 'map(select(.ev == "refuse") | .count) | add' "$state/trace.jsonl")" \
		"$(got later)"
	falcon-stat --audit "$state/trace.jsonl"
}

@test "who comes too often is sent away, and comes back" {
	lasting
	asks churn 257
	# An honest worker of the same key: later.
	start late falcon-work -k "$keys/greedy.key" -n late --cache none --lanes 1 "$ready"
	soon "what it says" grep -q "came and went; trying again" late.err
	local late=$pid
	soon "that it comes" grep -q "connected again" late.err
	over
	ended "$late" late
}
