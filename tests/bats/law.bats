# The law, with real processes on real data: whatever happens to the workers, one SHA-256.
# Each run proves from its own trace that the disturbance took place, and passes the audit.

load common
load job

setup_file() {
	for_file
}

setup() {
	for_test
	draw
	job=(--set job.hashes=1 --set data.samples=6000 --set data.test-samples=1000 --set job.epochs=2
		--set schedule.warmup=5 --set job.audit=sums "$root/share/jobs/fashion.job")
	thin
}

# serve [OPTION...]: at an address of a kind, and with as many threads, as are drawn.
serve() {
	local one
	drawn 127.0.0.1:0 unix:sock
	serve_at "$one" --threads $((1 + RANDOM % 4)) "$@"
}

teardown() {
	stop_all
	no_hosts
}

@test "one worker, one lane" {
	serve
	work alone --lanes 1
	judge
	same "workers" "$(grep -c '"ev":"join"' "$state/trace.jsonl")" 1
}

@test "one worker, four lanes" {
	serve --set sync.lanes.start=4
	work wide --lanes 4:4
	judge
	same "lanes" "$(grep -o '"lanes":4,' "$state/trace.jsonl" | sort -u)" '"lanes":4,'
}

@test "four workers, one four times slower: tasks move and are cloned" {
	serve --min-workers 4
	slow a 1
	slow b 1
	slow c 1
	slow d 1/4
	# Held up for a moment, its running task is one that others must clone.
	at_clock 5
	kill -STOP "${workers[3]}"
	soon "a clone" lines 1 '"clone":[['
	kill -CONT "${workers[3]}"
	judge
	[ "$(member moved)" -gt 0 ]
	[ "$(member cloned)" -gt 0 ]
}

@test "bsp: the same model, and nothing moves" {
	serve --min-workers 2 --set sync.scheme=bsp
	slow a 1
	slow b 1/2
	judge
	same "moved, cloned" "$(member moved) $(member cloned)" "0 0"
}

@test "bsp by speed: the same model, and nothing moves" {
	serve --min-workers 2 --set sync.scheme=bsp,shares=speed
	slow a 1
	slow b 1/2
	judge
	same "moved, cloned" "$(member moved) $(member cloned)" "0 0"
}

@test "ssp:0 is bsp" {
	serve --min-workers 3 --set sync.scheme=ssp:0
	slow a 1
	slow b 1
	slow c 1/2
	judge
}

@test "flexrr:0 is bsp, and moves work" {
	serve --min-workers 3 --set sync.scheme=flexrr:0
	slow a 1
	slow b 1
	slow c 1/4
	judge
	[ "$(member moved)" -gt 0 ]
}

@test "slack 2: another model" {
	serve --set sync.scheme=epsp:2
	work alone --lanes 2
	judge slack
	run cmp -s "$BATS_FILE_TMPDIR/law." "$BATS_FILE_TMPDIR/law.slack"
	same "cmp of the two laws" "$status" 1
}

@test "slack 2: the same model from four workers, one slow and one killed" {
	serve --min-workers 4 --set sync.scheme=epsp:2
	slow a 1 600
	slow b 1 600
	slow c 1 600
	slow d 1/4 600
	at_clock 5
	kill -KILL "${workers[1]}"
	at_clock 9
	slow late 1 600
	judge slack
	same "staleness" "$(jq -s '[.[] | select(.ev == "ledger") | .clock - .version] |
		unique' -c "$state/trace.jsonl")" "[0,1,2]"
}

@test "slack 1/4: another model, by the versions that the rule says" {
	serve --set sync.scheme=epsp:1/4
	work alone --lanes 2
	judge quarter
	run cmp -s "$BATS_FILE_TMPDIR/law." "$BATS_FILE_TMPDIR/law.quarter"
	same "cmp of the two laws" "$status" 1
	same "versions before the clock" "$(jq -s '[.[] | select(.ev == "ledger") |
		[.clock - .version, has("late")]] | unique' -c "$state/trace.jsonl")" \
		"[[0,false],[1,true]]"
	same "late tasks" "$(jq -s '[.[] | select(.ev == "ledger" and .late) | [.late, .tasks]] | unique' \
		-c "$state/trace.jsonl")" "[[3,26],[8,56]]"
	forged "a late task that was early" 'first_line(.late; .late += 1)'
	forged "no late task" 'first_line(.late; del(.late))'
	forged "late tasks in the first clock" 'first_line(.clock == 0; { late: 1 } + .)'
}

@test "slack 1/4: the same model from three workers" {
	serve --min-workers 3 --set sync.scheme=epsp:1/4
	slow a 1
	slow b 1/2
	slow c 1
	judge quarter
}

# Of a fenced contribution all tasks are early: its worker was killed before the first late
# one; and early tasks were filled when others had begun with late ones.
killed_between() {
	jq -se 'map(select(.ev == "ledger" and .late) | .late as $late | .contrib |
		(map(select(.fenced) | .tasks | map(.[0] + .[1] <= $late) | all) | any) and
		(map(select(.fills) | .tasks[0][0] < $late) | any)) | any' \
		"$state/trace.jsonl" >/dev/null
}

@test "slack 1/4: the same model from five workers, killed between early and late tasks" {
	serve --min-workers 5 --shards 2 --set sync.scheme=epsp:1/4
	local fast=()
	for n in a b c; do
		slow "$n" 1 600
		fast+=("$pid")
	done
	slow d 1/4 600
	slow e 1/2 600
	for n in $(seq 12); do
		at_clock $((3 * n))
		! killed_between || break
		kill -KILL "${fast[$((n - 1))]}"
		slow "late-$n" 1 600
		fast+=("$pid")
	done
	judge quarter
	killed_between
}

@test "kill -9 in mid-clock and a late join: contributions are filled" {
	serve --min-workers 4
	slow a 1 600
	slow b 1 600
	slow c 1 600
	slow d 1/4 600
	# A fast worker's contribution is open most of the time: a few kills hit one.
	local fast=("${workers[1]}" "${workers[2]}")
	for n in $(seq 10); do
		at_clock $((4 * n))
		! lines 1 '"fenced":true' || break
		kill -KILL "${fast[$((n - 1))]}"
		slow "late-$n" 1 600
		fast+=("$pid")
	done
	judge
	[ "$(member filled)" -gt 0 ]
	same "fenced" "$(grep -c '"fenced":true' "$state/trace.jsonl" | sed 's/[1-9].*/some/')" some
	[ "$(grep -c '"ev":"leave"' "$state/trace.jsonl")" -ge 1 ]
	[ "$(grep -c '"ev":"join"' "$state/trace.jsonl")" -ge 5 ]
	tampered
}

@test "two shards: the same model, under a kill" {
	serve --shards 2 --min-workers 3
	slow a 1 600
	slow b 1 600
	slow c 1/4 600
	at_clock 4
	kill -KILL "${workers[-2]}"
	at_clock 8
	slow late 1 600
	judge
	same "shards" "$(jq 'select(.ev == "job").shards' "$state/trace.jsonl")" 2
}

@test "three shards: the same model, under a kill, and where a worker stands still" {
	serve --shards 3 --min-workers 3
	slow a 1 600
	slow b 1 600
	slow c 1/4 600
	at_clock 4
	kill -KILL "${workers[-2]}"
	at_clock 6
	kill -STOP "${workers[0]}"
	at_clock 8
	slow late 1 600
	at_clock 10
	kill -CONT "${workers[0]}"
	at_clock 12
	kill -KILL "${workers[2]}"
	judge
	same "shards" "$(jq 'select(.ev == "job").shards' "$state/trace.jsonl")" 3
	[ "$(grep -c '"ev":"leave"' "$state/trace.jsonl")" -ge 2 ]
}

@test "three shards and slack 2: the same model" {
	run falcon-ps --shards 65 --check "${job[@]}"
	same "status" "$status" 2
	has "$output" "--shards: 65 is not 1 to 64"
	serve --shards 3 --set sync.scheme=epsp:2
	work alone --lanes 2
	judge slack
	same "shards" "$(jq 'select(.ev == "job").shards' "$state/trace.jsonl")" 3
}

# forged WHAT FILTER: the audit refuses the run's trace after jq's FILTER of its lines.
# first_line(CONDITION; CHANGE) changes the first ledger line that fits, or fails.
forged() {
	local file=$BATS_TEST_TMPDIR/forged.jsonl
	jq -cn "def first_line(fits; change):
			(map(.ev == \"ledger\" and fits) | index(true)) as \$i | .[\$i] |= change;
		[inputs] | $2 | .[]" "$state/trace.jsonl" | chain >"$file"
	run falcon-stat --audit "$file"
	same "$1: status" "$status" "${3:-1}"
	has "$output" "audit: ${4:-failed}"
}

# What happened in this run, denied in a dozen ways.
tampered() {
	forged "untouched" . 0 ok
	forged "a task left out" 'first_line(.contrib[0].tasks[0][1] > 1;
		.contrib[0].tasks[0][1] -= 1)'
	forged "a task twice in a contribution" 'first_line(true;
		.contrib[0].tasks += [.contrib[0].tasks[0]])'
	forged "a task in two contributions" 'first_line(.contrib | length > 1;
		.contrib[1].tasks += .contrib[0].tasks[:1])'
	# To a worker that was given no task of others in this clock.
	forged "a task in the contribution of another worker" 'first_line(
		.contrib[-1].c[0] as $to | .contrib[0].c[0] != $to and
		.contrib[0].tasks[0][1] > 1 and
		all(.move[]; .[1] != $to) and all((.clone + .regrant)[]; .[0] != $to);
		.contrib[0].tasks[0] as [$first, $n] | .contrib[0].tasks[0][1] -= 1 |
		.contrib[-1].tasks += [[$first + $n - 1, 1]])'
	forged "a clock left out" 'first_line(true; null) | map(select(.))'
	forged "a block more in a fill" 'first_line(any(.contrib[]; .fills);
		(.contrib[] | select(.fills).blocks) += 1)'
	forged "a fill left out" 'first_line(any(.contrib[]; .fills);
		.contrib |= map(select(.fills | not)))'
	forged "a contribution not fenced" 'first_line(any(.contrib[]; .fills);
		del(.contrib[].fenced))'
	local sum
	for sum in added contrib[0].sum; do
		forged "another digit in $sum" "first_line(true; .$sum |=
			(if .[:1] == \"0\" then \"1\" else \"0\" end) + .[1:])"
	done
	forged "a grant left out" 'first_line(true; .grant |= .[1:])'
	forged "a grant twice" 'first_line(true; .grant += .grant[:1])'
	forged "a worker that never joined" 'del(.[map(.ev == "join") | index(true)])'
}

@test "a worker that is frozen is suspected, and is in again when it thaws" {
	# Under bsp nobody else takes its tasks while it is only slow.
	serve --min-workers 2 --set sync.scheme=bsp
	slow a 1 3000
	slow b 1 3000
	at_clock 3
	kill -STOP "${workers[1]}"
	soon "suspicion" lines 1 '"regrant":[['
	kill -CONT "${workers[1]}"
	judge
	local last
	last=$(grep '"ev":"ledger"' "$state/trace.jsonl" | tail -1)
	has "$last" '{"c":[1,'
	has "$last" '{"c":[2,'
}

@test "SIGTERM: the worker hands back what it has and exits 0" {
	serve --min-workers 2
	slow a 1 1500
	slow b 1 1500
	at_clock 3
	kill -TERM "${workers[1]}"
	wait "${workers[1]}"
	judge
	has "$(grep '"ev":"leave"' "$state/trace.jsonl" | head -1)" SIGTERM
}

# A shard that errs: the ledger is right, the sums are not.
@test "audit = sums: a block added twice is caught" {
	caught falcon-ps-twice
}

@test "audit = sums: a block not added is caught" {
	caught falcon-ps-never
}

# caught PROGRAM: the job ends, and the audit says which clock is wrong, and no other.
caught() {
	start_ready ps "$bin/tests/$1" -jx -K "$keys/keyring" -l 127.0.0.1:0 -s "$state" \
		--set job.eval=never "${job[@]}"
	ps=$pid
	work alone --lanes 1
	wait "$ps"
	run falcon-stat --audit "$state/trace.jsonl"
	same status "$status" 1
	# The 20th block that comes is of the first clock, but of thin models.
	watched || has "$output" "clock 1"
	has "$output" "audit: clock "
	has "$output" " was added"
	has "$output" "audit: failed: 1 finding"
}

# Two hosts, as network namespaces with a cable between them.
@test "the cable is pulled for a while: its host's tasks are granted again" {
	two_hosts
	start_ready ps ip netns exec "$here" falcon-ps -jx -K "$keys/keyring" \
		-l 192.0.2.1:0 -s "$state" -w 2 --set sync.scheme=bsp "${job[@]}"
	ps=$pid
	for host in "$here" "$there"; do
		start "$host" ip netns exec "$host" falcon-work -k "$keys/work.key" \
			-n "$host" --lanes 1 --cache "$BATS_FILE_TMPDIR/cache" \
			--emulate rate=3000,cores=1 "$ready"
	done
	at_clock 3
	ip -n "$there" link set cable down
	soon "suspicion" lines 1 '"regrant":[['
	ip -n "$there" link set cable up
	judge
}

# With numerics = fast.  NEHALEM is OpenBLAS's name for kernels without AVX: they round
# differently.  (Those of older cores crash in OpenBLAS 0.3.34.)
odd() {
	OPENBLAS_CORETYPE=NEHALEM work odd --lanes 1
}

@test "numerics: workers that round differently are named" {
	serve --min-workers 2 --set job.numerics=fast
	work a --lanes 1
	odd
	wait "$ps"
	has "$(falcon-stat "$state/trace.jsonl")" "numerics: differ: "
	same "words of it" "$(grep -cE ": (a|odd) \([^()]* [^()]*\) rounds otherwise than (a|odd) \([^()]* [^()]*\): the model depends" ps.err)" 1
	falcon-stat --json "$state/trace.jsonl" | jq -e '.workers[] | select(.worker == "odd") |
		.kernels | test("^[^ ]+ [^ ]+ OpenBLAS Nehalem$"; "i")'
	has "$(falcon-stat "$state/trace.jsonl")" "KERNELS"
}

@test "numerics: a worker of another CPU changes no bit" {
	serve --min-workers 2
	slow a 1/8
	WORKER=$bin/tests/falcon-work-avx2 slow b 1/8
	judge
	falcon-stat --json "$state/trace.jsonl" | jq -e '.numerics == "identical" and
		([.workers[].tasks > 0] | all)'
	[ "$(uname -m)" != x86_64 ] || falcon-stat --json "$state/trace.jsonl" |
		jq -e '.workers[] | select(.worker == "b").kernels == "x86_64 avx2"'
}
