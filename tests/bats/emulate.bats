# falcon-work --emulate with real processes: what is slow takes longer, and a job that
# meets faults ends with all of its samples.

load common
load job
load tiny

setup_file() {
	for_file
}

setup() {
	for_test
	tiny tiny
	job=(tiny/tiny.job)
}

# emulated NAME SPEC: a worker of one lane.
emulated() {
	work "$1" --lanes 1 --emulate "$2"
}

# judged: the job ends, and the audit finds all of it.
judged() {
	ended "$ps" ps
	run falcon-stat --audit "$state/trace.jsonl"
	has "$output" "audit: ok: 8 clocks, 64 tasks,"
	same "status of the audit" "$status" 0
}

# takes SECONDS SPEC: a job of this one worker, which takes that long at least.
takes() {
	serve
	emulated one "$2"
	judged
	ended "$pid" one
	jq -e ".seconds >= $1" "$state/result.json" >/dev/null ||
		same "seconds with $2" "$(member seconds)" "$1 or more"
	rm -r "$state" ps.ready
}

# refused SPEC LINE: what it says, and status 2.
refused() {
	run falcon-work -k "$keys/work.key" -n w1 --emulate "$1" 127.0.0.1:1
	same "status with $1" "$status" 2
	same "$1" "$output" "falcon-work: --emulate: $2"
}

# common_lines A B AT_LEAST: the lines that both files have room for are the same.
common_lines() {
	local a b n
	a=$(wc -l <"$1") b=$(wc -l <"$2")
	n=$((a < b ? a : b))
	[ "$n" -ge "$3" ] || same "lines of $1 and $2" "$a and $b" "$3 or more"
	same "$1 and $2" "$(head -n "$n" "$1")" "$(head -n "$n" "$2")"
}

# 512 samples: 0.26 s at 2000 a second.
@test "a stall holds the job up" {
	printf '0 1\n0.1 0\n0.9 1\n' >stall
	takes 1.0 rate=2000,trace=stall
}

@test "so does a pause before each clock, and a slow clock" {
	takes 0.8 rate=2000,worker=1/1,pattern=p1d:0.1
	takes 0.7 rate=2000,clock=64,pattern=random-clock:3:1
}

@test "a freeze: no task goes on, no message is answered" {
	takes 0.7 rate=2000,freeze=0.1:0.5
}

@test "latency delays each way" {
	# A clock cannot take less than a version, claims and a contribution: two ways.
	takes 0.8 rate=1e6,latency=0.05
}

# did NAME N: whether the worker has done so many tasks, as the trace has it.
did() {
	jq -se --arg w "$1" --argjson n "$2" '[.[] | select(.ev == "clock" and .worker == $w) |
		.done] | add // 0 | . >= $n' "$state/trace.jsonl" >/dev/null
}

# far_second SCHEME LINK: who comes second, over such a link, works as others do, and is no
# suspect before its round trip is known.
far_second() {
	serve --set job.epochs=100000 --set sync.scheme="$1"
	emulated first rate=400
	soon "some clocks" lines 2 '"ev":"update"'
	emulated second "rate=400,$2"
	soon "its work" did second 3
	! lines 1 '"ev":"suspect","worker":"second"' || return 1
	kill -TERM "${workers[@]}" "$ps"
	wait "$ps" || same "status" "$?" 75
	rm -r "$state" ps.ready
	workers=()
}

@test "a worker behind latency that joins second works" {
	local scheme
	for scheme in bsp asp; do
		far_second "$scheme" latency=0.3
	done
}

@test "a link that is slow for a while" {
	# All of the time here.
	takes 0.8 rate=1e6,pattern=network:0.05:1
}

@test "bandwidth: the same job takes longer" {
	# A version or a contribution is 68 parameters and its frames: 16 of them.
	takes 0.5 rate=1e6,bandwidth=8K
}

@test "emulation says how late it was" {
	serve
	emulated one rate=2000
	judged
	ended "$pid" one
	grep -qxE 'falcon-work: emulate: [0-9]+\.[0-9] % late' one.err
}

@test "a crash: the others do its tasks" {
	serve --min-workers 2
	emulated crashes rate=500,crash=0.2
	local crashes=$pid status=0
	emulated stays rate=500
	wait "$crashes" || status=$?
	same "status of the one that crashed" "$status" 137
	judged
	ended "$pid" stays
}

@test "crashes again and again, each time from the same seed" {
	serve
	emulated stays rate=100
	local stays=$pid status
	for seed in 1 2 3; do
		status=0
		emulated "again$seed" "rate=100,seed=$seed,crash-every=0.05"
		wait "$pid" || status=$?
		# 0: the job was faster.
		[ "$status" -eq 137 ] || same "status with seed $seed" "$status" 0
	done
	judged
	ended "$stays" stays
}

@test "what was recorded can be replayed, and is recorded the same" {
	local slow='pattern=slow-worker:0.05,pattern=disrupted:0.5:3:1,pattern=drift'
	takes 0.1 "rate=1000,speed=1/2,t0=0.02,seed=3,$slow,record=one"
	takes 0.1 rate=1000,trace=one,record=two
	common_lines one two 20
	same "the first line" "$(head -c 12 one)" "0.000000000 "
}

@test "the same seed gives the same slowness under another scheme" {
	local spec='rate=1000,t0=0.02,seed=5,pattern=p3:0.05,pattern=p9:10'
	takes 0.1 "$spec,record=epsp"
	job+=(--set sync.scheme=bsp --set job.epochs=3)
	serve
	emulated one "$spec,record=bsp"
	ended "$ps" ps
	ended "$pid" one
	common_lines epsp bsp 20
}

@test "a record that cannot be written is no success" {
	local status=0
	serve
	emulated one rate=2000,record=/dev/full
	judged
	wait "$pid" || status=$?
	same status "$status" 1
	has "$(cat one.err)" "--emulate: the record could not be written"
}

@test "one file for all machines" {
	cat >machines <<-END
		# Two machines, the second of them at a quarter.
		rate = 1000
		cores = 1
		pattern = persistent:4
		[fast]
		[slow]
		record = slow.speeds
	END
	serve --min-workers 2
	emulated fast @machines
	local fast=$pid
	emulated slow @machines,latency=0.001
	judged
	ended "$fast" fast
	ended "$pid" slow
	same "the slow one's speeds" "$(cat slow.speeds)" "0.000000000 0.25"
	refused @machines "machines: no machine 'w1'"
}

@test "what cannot be read is named" {
	printf 'rate = 100\n[w1]\npattern = p99\n' >machines
	refused @machines "machines:3: pattern: 'p99' is not a pattern of falcon-emulate(5)"
	printf '0 1\n1 fast\n' >speeds
	refused rate=1,trace=speeds "speeds:2: 'fast' is not a speed"
	refused rate=1,pattern=p2 "pattern random-clock needs worker=I/M"
	refused rate=1,pattern=p4:2 "pattern: p4: '2' is not a number from 0 to 1"
	refused rate=1,worker=0/4 "worker: '0/4' is not I/M, worker I of M"
	refused @none "none: No such file or directory"
}
