# Models that are larger than any queue: they train, in bounded memory, and nothing of a
# contribution is lost or counted twice when its worker ends in the middle of its push.

load common
load job
load tiny

setup_file() {
	for_file
	unset MALLOC_PERTURB_ # pages that nobody writes take no memory
}

setup() {
	for_test
}

# large WIDE CLOCKS: a job for a model of 65536 · WIDE parameters and some more; of an
# eighth where TSan watches.
large() {
	local wide=$1
	! watched || wide=$((wide / 8))
	tiny "$BATS_TEST_TMPDIR/large"
	printf 'input 16\ndense 65536\nrelu\ndense %s\nrelu\ndense 4\n' "$wide" >large/tiny.model
	job=(--set job.epochs=1 --set job.eval=never --set data.samples=$((8 * $2))
		--set batch.size=8 --set batch.task=4 --set optimizer.lr=1e-5
		--set job.audit=sums large/tiny.job)
}

# peaks PID...: waits until they end; the most memory each of them had, in MiB.
peaks() {
	local p now most=() more=yes
	while [ "$more" ]; do
		more=
		for p; do
			now=
			read -r -d '' now 2>/dev/null <"/proc/$p/status" || :
			[[ $now != *VmHWM:* ]] || {
				now=${now#*VmHWM:}
				more=yes most[p]=$((${now%%kB*} >> 10))
			}
		done
		nap 0.05
	done
	for p; do
		echo "${most[p]}"
	done
}

# needs NAME: what the program said that it needs, in MiB.
needs() {
	sed -n 's/.*needs \([0-9]*\) MiB.*/\1/p' "$BATS_TEST_TMPDIR/$1.err" | head -n 1
}

# within NAME PEAK: the program had no more than it said.
within() {
	! sanitized || return 0
	echo "# $1: $2 MiB, needs $(needs "$1")"
	[ "$2" -le "$(needs "$1")" ]
}

# judge CLOCKS: the job ends well, every sample is accounted for, every clock was one.
judge() {
	wait "$ps" "${workers[@]}" || {
		tail -n 5 "$BATS_TEST_TMPDIR"/*.err
		return 1
	}
	falcon-stat --audit "$state/trace.jsonl"
	same "clocks" "$(grep -c '"ev":"update"' "$state/trace.jsonl")" "$1"
}

@test "25 million parameters" {
	large 364 4
	serve
	work alone --lanes 1 -v
	read -r -d '' -a most < <(peaks "$ps" "$pid") || :
	judge 4
	within ps "${most[0]}"
	within alone "${most[1]}"
	same "reconnections" "$(grep -c "trying again" alone.err || :)" 0
	member sha256 >"$BATS_FILE_TMPDIR/sha"
}

# sent PID BYTES: whether the process has written so many.
sent() {
	[ "$(sed -n 's/^wchar: //p' "/proc/$1/io")" -ge "$2" ]
}

@test "a worker is killed in the middle of its push" {
	large 364 4
	serve
	work killed --lanes 1 --emulate "rate=8000,cores=1,bandwidth=60M"
	soon "the worker" lines 1 '"ev":"join"'
	# Of who has read a key, only root is told.
	sent "$pid" 0 2>/dev/null || skip "the system does not tell what the worker has written"
	local push=20000000
	! watched || push=$((push / 8))
	soon "the push" sent "$pid" "$push"
	kill -KILL "$pid"
	same "clocks so far" "$(grep -c '"ev":"update"' "$state/trace.jsonl" || :)" 0
	workers=()
	work second --lanes 1
	judge 4 >judged
	grep -q 'filled [1-9]' judged
	same "sha256" "$(member sha256)" "$(cat "$BATS_FILE_TMPDIR/sha")"
}

@test "100 million parameters" {
	[ "$(sed -n 's/^MemAvailable:[^0-9]*\([0-9]*\) kB/\1/p' /proc/meminfo)" -gt 8000000 ] ||
		skip "less than 8 GB are free"
	large 1509 2
	serve
	work alone --lanes 1 -v
	read -r -d '' -a most < <(peaks "$ps" "$pid") || :
	judge 2
	within ps "${most[0]}"
	within alone "${most[1]}"
}

@test "a slow reader costs the coordinator no memory" {
	large 120 24
	serve --set sync.scheme=epsp:2 --min-workers 2
	work slow --lanes 1 --emulate "rate=8000,cores=1,bandwidth=2M"
	work quick --lanes 1
	read -r -d '' -a most < <(peaks "$ps") || :
	judge 24
	within ps "${most[0]}"
}
