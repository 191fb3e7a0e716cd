# Memory that is refused when the job runs already: one line says so, the status is that of
# the man page, and nothing is lost.

bats_require_minimum_version 1.5.0

load common
load job
load tiny

setup_file() {
	for_file
}

setup() {
	for_test
	! sanitized || skip "a sanitizer needs memory of its own"
	tiny .
	draw
	job=(--set job.epochs=4 --set state.clocks=1 --set optimizer.kind=adamw
		--set optimizer.lr=1e-4 tiny.job)
}

# needs WORKERS: bytes, with so many of them.
needs() {
	falcon-ps --check --max-memory 1 -w "$1" "${job[@]}" 2>&1 |
		sed -n 's/.*needs \([0-9]*\) bytes, .*/\1/p'
}

# large: the model is of a few hundred thousand parameters.
large() {
	printf 'input 16\ndense 500\nrelu\ndense %s\nrelu\ndense 4\n' $((400 + RANDOM % 400)) \
		>tiny.model
}

# short PID: it has what memory it has, and gets no more.
short() {
	prlimit --pid "$1" --data="$(awk '/^VmData/ { print $2 * 1024 }' "/proc/$1/status"):"
}

# said NAME TEXT: its last word but for what it sums up has it, and none is of another fault.
said() {
	has "$(grep -v ': emulate: ' "$1.err" | tail -n 1)" "$2"
	! grep -iE 'assert|abort|segm|core|overflow' "$1.err"
}

@test "with one worker more the coordinator needs too much: it waits, and the job goes on" {
	local least most
	large
	job=(--set sync.scheme=asp "${job[@]:2}" --set job.epochs=200)
	least=$(needs 2)
	most=$((least + ($(needs 3) - least) / 2))
	at_unix --min-workers 2 --max-memory "$most"
	slow a 1 1500
	slow b 1 1500
	soon "two workers" lines 2 '"ev":"join"'
	falcon-sync -k "$keys/control.key" "$ready" pause
	work c --lanes 1 --give-up 1
	ended "${workers[2]}" c 75
	has "$(<c.err)" "with one worker more the coordinator needs"
	has "$(<c.err)" "bytes, --max-memory allows $most"
	work d --lanes 1
	soon "a word to it" grep -q "with one worker more" d.err
	kill -TERM "${workers[0]}"
	soon "the place that is free" lines 3 '"ev":"join"'
	kill -TERM "$ps"
	ended "$ps" ps 75
	falcon-stat --audit --partial "$state/trace.jsonl"
}

@test "a job that is too large for a worker: it refuses, and the others go on" {
	large
	at_unix
	slow a 1 1500
	at_clock 2
	falcon-sync -k "$keys/control.key" "$ready" pause
	work small --lanes 1 --max-memory 1M
	ended "${workers[1]}" small 1
	said small "job tiny needs "
	has "$(<small.err)" "bytes with 1 lane, --max-memory allows 1048576"
	falcon-sync -k "$keys/control.key" "$ready" resume
	ended "$ps" ps
	falcon-stat --audit "$state/trace.jsonl"
	lines 1 '"ev":"join"' && ! lines 2 '"ev":"join"'
}

@test "a coordinator that gets no more memory: what was kept is gone on from" {
	local got=0
	large
	at_unix
	work a --lanes 1
	judge coordinator
	rm -rf "$state"
	at_unix
	slow a 1 3000
	at_clock $((2 + RANDOM % 8))
	short "$ps"
	wait "$ps" || got=$?
	echo "# it ends with $got: $(tail -n 1 ps.err)"
	if [ "$got" -ne 0 ]; then
		same status "$got" 1
		said ps "memory"
		at_unix
		work b --lanes 1 --give-up 1 # who was told that the job has failed is gone
	fi
	judge coordinator
}

@test "a worker that gets no more memory: another one ends the job" {
	local got=0
	large
	at_unix
	work first --lanes 1
	judge worker
	rm -rf "$state"
	at_unix
	slow a 1 3000
	at_clock $((2 + RANDOM % 8))
	short "${workers[1]}"
	work b --lanes 1
	judge worker
	wait "${workers[1]}" || got=$?
	echo "# it ends with $got: $(tail -n 1 a.err)"
	[ "$got" -eq 0 ] || said a memory
}
