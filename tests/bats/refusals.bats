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

teardown() {
	stop_all
	[ -z "${group:-}" ] || rmdir "$group"
}

# grouped BYTES: $group is a control group of so much memory.
grouped() {
	local at=/sys/fs/cgroup file=memory.max
	[ ! -d $at/memory ] || at=$at/memory file=memory.limit_in_bytes
	mkdir $at/falcon-$$ 2>/dev/null || skip "no control groups can be made here"
	group=$at/falcon-$$
	{ echo "$1" >"$group/$file"; } 2>/dev/null || skip "no control groups of memory here"
}

# within COMMAND...: in that group.
within() (
	echo "$BASHPID" >"$group/cgroup.procs"
	exec "$@"
)

# needs WORKERS: bytes, with so many of them.
needs() {
	falcon-ps --check -l unix:sock --max-memory 1 -w "$1" "${job[@]}" 2>&1 |
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
	said small "job tiny with 1 lane needs "
	has "$(<small.err)" "job tiny with 1 lane needs "
	has "$(<small.err)" " bytes, --max-memory allows 1048576"
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
		[ "$got" -eq 71 ] || same status "$got" 1 # 71: what it counts itself has no room
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

@test "strangers where there is no memory for one more: they wait, the job does not" {
	local n
	job=("${job[@]:4}")
	at_unix -w 2
	work a --lanes 1
	soon "one worker" grep -q "1 here" ps.err
	n=$(awk '/^VmSize/ { print $2 }' "/proc/$ps/status")
	prlimit --pid "$ps" --as=$(((n + RANDOM % 512) * 1024)):
	timeout 20 /usr/bin/python3 -c '
import socket, time
them = [socket.socket(socket.AF_UNIX) for i in range(200)]
for it in them:
    it.setblocking(False)
    it.connect_ex("sock")
time.sleep(3) # all are there and say nothing, for longer than it takes to accept them'
	kill -0 "$ps"
	prlimit --pid "$ps" --as=unlimited:
	work b --lanes 1
	ended "$ps" ps
}

@test "who looks on where there is no memory for it is sent away, the job goes on" {
	local n them=()
	job=(--set job.epochs=1000 tiny.job)
	at_unix
	slow a 1 3000
	at_clock 100
	n=$(awk '/^VmSize/ { print $2 }' "/proc/$ps/status")
	prlimit --pid "$ps" --as=$(((n + RANDOM % 3000) * 1024)):
	for _ in $(seq 30); do
		timeout 5 falcon-stat -k "$keys/observe.key" "$ready" >/dev/null 2>&1 &
		them+=("$!")
	done
	for n in "${them[@]}"; do
		wait "$n" || : # it is sent away, or its time is over
	done
	n=$(grep -cF '"ev":"ledger"' "$state/trace.jsonl")
	at_clock $((n + 1))
}

# OpenBLAS tries for ever to map its 128 MiB a thread; libuv's threads abort.
@test "ulimit -v, -d: what cannot be had is said, and the status is 1" {
	local kib how
	job=("${job[@]:4}")
	(ulimit -v 40000 && run -1 falcon-ps -K "$keys/keyring" -l unix:sock -s state "${job[@]}" &&
		has "$output" "tiny.job: needs " &&
		has "$output" ", ulimit -v allows 40960000 in all")
	job=(--set job.numerics=fast "${job[@]}")
	at_unix
	for how in v d; do
		kib=$((110000 + RANDOM * 4))
		echo "$how $kib"
		(ulimit -$how "$kib" && work small --lanes 2 && ended "$pid" small 1)
		said small "job tiny with 2 lanes needs "
		said small " that it has, ulimit -$how allows $((kib * 1024)) in all;"
		said small "OpenBLAS needs 128 MiB of it a lane"
	done
	# As much as it says is enough, with what it has.
	kib=$(($(sed -n 's/.* needs \([0-9]*\) bytes of address.*/\1/p' small.err) / 1024 + 80000))
	(ulimit -v "$kib" && work enough --lanes 2 && ended "$pid" enough)
	wait "$ps"
	grep -q "small left: it cannot work: job tiny with 2 lanes needs" ps.err
}

@test "the kernels' library has no threads of its own" {
	at_unix
	slow a 1 1500
	at_clock 2
	same "OpenBLAS's threads" "$(awk '/^Threads/ { print $2 <= 7 }' "/proc/$pid/status")" 1
}

@test "a control group that is too small: each says so, and none is killed" {
	large
	job=("${job[@]:4}")
	grouped 10M
	run -1 within falcon-ps -K "$keys/keyring" -l unix:sock -s state "${job[@]}"
	has "$output" " bytes, its control group allows 10485760"
	at_unix
	start small within falcon-work -k "$keys/work.key" -n small --lanes 1 --cache none "$ready"
	ended "$pid" small 1
	said small " bytes, its control group allows 10485760"
}
