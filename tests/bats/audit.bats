#!/usr/bin/env bats
# falcon-stat on a trace file: the audit's verdict, the table, the history, JSON.

bats_require_minimum_version 1.5.0

setup() {
	load common
	cd "$BATS_TEST_TMPDIR"
	make_trace | chain >run.trace
	make_trace | settle | chain >whole.trace
}

# settle: a trace, its clock lines those that its ledger demands.
settle() {
	grep -v '"ev":"clock"' |
		"$root/tests/forge/chain.py" -s
}

# clock_line T CLOCK WORKER ID DONE COMPUTE WAIT TASK_S
clock_line() {
	printf '{"t":%s,"ev":"clock","clock":%s,"worker":"%s","id":%s,"lanes":2,"share":4,' \
		"$1" "$2" "$3" "$4"
	printf '"done":%s,"in":0,"out":0,"cloned":0,"lost":0,"compute":%s,"push":0.1,' "$5" "$6"
	printf '"pull":0.1,"wait":%s,"push_all":0.1,"pull_all":0.1,"task_s":%s,' "$7" "$8"
	printf '"late":0,"samples":%s,"staleness":0,"tx":1,"rx":1}\n' "$((8 * $5))"
}

# ledger CLOCK TASKS SAMPLES REST: the parts in which clocks differ, and the rest.
ledger() {
	printf '{"t":%s.5,"ev":"ledger","clock":%s,"round":%s,"version":%s,"first":0,' \
		"$1" "$1" "$1" "$1"
	printf '"tasks":%s,"samples":%s,"kind":"grad","end":"applied","blocks":5,%s}\n' \
		"$2" "$3" "$4"
	printf '{"t":%s.6,"ev":"update","version":%s,"clock":%s,"rounds":[%s],' \
		"$1" "$(($1 + 1))" "$1" "$1"
	printf '"divisor":%s,"samples":%s,' "$3" "$3"
	printf '"loss":%s,' "$((4 - $1))"
	printf '"lr":0.1,"epoch":%s}\n' "$(($1 / 2 + 1))"
}

# Two epochs of 88 samples, clocks of 8 and 3 tasks.
make_trace() {
	local id name
	echo '{"t":0.0,"ev":"job","name":"toy","hash":"00","seed":"1","epochs":2,"batch":64,"task":8,"samples":88,"test":10,"params":20000,"blocks":5,"shards":1,"clocks_per_epoch":2,"clocks":4,"scheme":"epsp","audit":"claims","hashes":0,"numerics":"fast","optimizer":"sgd","incarnation":0,"version":"0.1.0"}'
	id=0
	for name in fast mid slow; do
		id=$((id + 1))
		echo '{"t":0.1,"ev":"join","worker":"'$name'","id":'$id',"lanes":[1,2],"cores":2,"fingerprint":"f00d"}'
	done
	ledger 0 8 64 '"grant":[[1,0,4],[2,4,2],[3,6,2]],"move":[[3,1,7,1]],"clone":[[2,6,1]],"regrant":[],"contrib":[{"c":[1,1],"tasks":[[0,4],[7,1]],"blocks":5},{"c":[2,1],"tasks":[[4,3]],"blocks":5}],"lost":[[3,6,1]]'
	clock_line 1.0 0 fast 1 5 0.6 0.0 0.2
	clock_line 1.0 0 mid 2 3 0.6 0.0 0.4
	clock_line 1.0 0 slow 3 1 0.6 0.2 1.2
	ledger 1 3 24 '"grant":[[1,0,1],[2,1,1],[3,2,1]],"move":[],"clone":[],"regrant":[],"contrib":[{"c":[1,2],"tasks":[[0,1]],"blocks":5},{"c":[2,2],"tasks":[[1,1]],"blocks":5},{"c":[3,2],"tasks":[[2,1]],"blocks":5}],"lost":[]'
	echo '{"t":1.7,"ev":"eval","version":2,"epoch":1,"right":7,"total":10,"loss":1.0,"accuracy":0.7}'
	ledger 2 8 64 '"grant":[[1,0,6],[2,6,2]],"move":[],"clone":[],"regrant":[[1,6,2]],"contrib":[{"c":[1,3],"tasks":[[0,6]],"blocks":5},{"c":[2,3],"tasks":[[6,2]],"blocks":2,"fenced":true},{"c":[1,4],"tasks":[[6,2]],"blocks":3,"fills":[2,3]}],"lost":[]'
	ledger 3 3 24 '"grant":[[1,0,3]],"move":[],"clone":[],"regrant":[],"contrib":[{"c":[1,5],"tasks":[[0,3]],"blocks":5}],"lost":[]'
	echo '{"t":3.9,"ev":"done","version":4,"sha256":"00","seconds":3.9,"trained":3.9,"accuracy":0.7}'
}

# tamper FROM TO: the first FROM of each line replaced.
tamper() {
	sed "s/$1/$2/" whole.trace | chain >bad.trace
	run ! cmp -s whole.trace bad.trace
	run -1 falcon-stat --audit bad.trace
}

@test "the audit passes a sound trace" {
	run -0 --separate-stderr falcon-stat --audit whole.trace
	same verdict "$output" \
		'audit: ok: 4 clocks, 22 tasks, moved 1, cloned 1, filled 2, dropped 1, 0 samples dropped (stale), 24 computed twice, used at staleness: 0: 176'
	same stderr "$stderr" ''
}

@test "the audit reads stdin" {
	run -0 falcon-stat -a - <whole.trace
	has "$output" 'audit: ok: 4 clocks'
}

@test "a task that was lost fails the audit and is named" {
	tamper '\[\[0,4\],\[7,1\]\]' '[[0,4]]'
	same findings "${lines[0]}" 'audit: clock 0: task 7: never added'
	has "${lines[1]}" 'worker 1: done is 17 in its clock lines, 16 in the ledger'
	same verdict "${lines[2]}" 'audit: failed: 2 findings'
}

@test "a task that was added twice fails the audit and is named" {
	tamper '\[\[4,3\]\]' '[[3,4]]'
	has "$output" 'audit: clock 0: task 3: added 2 times, by contributions 1.1 and 2.1'
}

@test "a fence that was not filled fails the audit" {
	tamper ',"fills":\[2,3\]' ''
	has "$output" 'clock 2: task 6: contribution 2.3 was fenced after 2 of 5 blocks'
}

@test "a clock that is missing fails the audit" {
	grep -v '"ledger","clock":2' whole.trace | chain >bad.trace
	run -1 falcon-stat --audit bad.trace
	has "$output" 'audit: clock 2: no ledger before that of clock 3'
}

@test "an unfinished trace is refused, or judged with --partial, which says how far it goes" {
	sed '/"ledger","clock":3/,$d' whole.trace >part.trace
	run -1 falcon-stat --audit part.trace
	same verdict "$output" \
		'audit: cannot tell: the trace has no end: 3 of 4 clocks (--partial judges these)'
	run -1 falcon-stat --audit --json part.trace
	same json "$(jq -c '[.ok, .cut, .findings]' <<<"$output")" '[false,true,0]'
	run -2 falcon-stat --partial part.trace
	run -0 falcon-stat --audit --partial part.trace
	same verdict "$output" \
		'audit: ok: 3 of 4 clocks, 19 tasks, moved 1, cloned 1, filled 2, dropped 1, 0 samples dropped (stale), 24 computed twice, used at staleness: 0: 152'
}

# gap FROM TO: whole.trace, these lines of it missing.
gap() {
	sed -n "$1,$2p" whole.trace >missing
	head -n $(($1 - 1)) whole.trace
	printf '{"t":%s,"ev":"gap","lines":%s,"bytes":%s,"blake2b":"00","h":"%s"}\n' \
		"$(jq -s '.[-1].t' missing)" "$(wc -l <missing)" "$(wc -c <missing)" \
		"$(tail -n 1 missing | jq -r .h)"
	tail -n +$(($2 + 1)) whole.trace
}

@test "a trace whose gap has its first lines, too: the audit cannot tell" {
	local n to
	draw
	n=$(wc -l <whole.trace)
	for to in 1 2 "$((RANDOM % n + 1))" "$n"; do
		gap 1 "$to" >gap.trace
		run -1 falcon-stat --audit gap.trace
		same "1 to $to" "${output%% line*}" "audit: cannot tell: $to"
		has "$output" "from clock 0 on"
		run -1 falcon-stat --audit --json gap.trace
		run -2 falcon-stat gap.trace
		has "$output" "gap.trace:1: gap: the first line is not job"
		run -2 falcon-proj gap.trace
		has "$output" "gap.trace:1: gap: lines are missing here"
	done
	printf '{"t":1,"ev":"now"}\n' >gap.trace
	run -2 falcon-stat --audit gap.trace
}

@test "a trace with a gap: the audit cannot tell, wherever it is" {
	local n from to
	draw
	n=$(wc -l <whole.trace)
	for from in $(seq 2 "$n"); do
		to=$((from + RANDOM % (n - from + 1)))
		gap "$from" "$to" >gap.trace
		run -1 falcon-stat --audit gap.trace
		has "$output" "audit: cannot tell: $((to - from + 1)) line"
		run -1 falcon-stat --audit --json gap.trace
		same "json of $from-$to" "$(jq -c '[.ok, .missing_lines, .findings]' <<<"$output")" \
			"[false,$((to - from + 1)),0]"
		run -0 falcon-stat gap.trace
		run -0 falcon-stat --history gap.trace
		run -2 falcon-proj gap.trace
		has "$output" "gap.trace:$from: gap: lines are missing here"
	done
	# What is wrong before it is wrong.
	gap 12 14 | sed 's/\[\[0,4\],\[7,1\]\]/[[0,4]]/' | chain >gap.trace
	run -1 falcon-stat --audit gap.trace
	same findings "${lines[0]}" 'audit: clock 0: task 7: never added'
	same verdict "${lines[1]}" 'audit: failed: 1 finding'
}

# judged: whole.trace, where one was charged, one refused, and two keys evaluated.
judged() {
	sed -e '/"ev":"join"/s/}$/,"key":"k","key_fingerprint":"k"}/' \
		-e '/"worker":"slow","id":3,"lanes":\[/s/"k"/"s"/g' \
		-e '/"ev":"eval"/s/}$/,"keys":[{"key":"k","tasks":1,"twice":1,"alone":0},{"key":"s","tasks":1,"twice":0,"alone":1}]}/' \
		-e '/"ev":"ledger","clock":1/i\
{"t":1.4,"ev":"charge","worker":"mid","id":2,"why":"so"}\
{"t":1.4,"ev":"refuse","key":"k","why":"so","count":2}' <(make_trace) | settle | chain
}

@test "the audit counts who evaluated, and was charged and refused, where anybody was" {
	run -0 falcon-stat --audit whole.trace
	for word in evaluated charged; do
		! grep "$word" <<<"$output" || return 1
	done
	judged >judged.trace
	run -0 falcon-stat --audit judged.trace
	same verdict "$output" \
		'audit: ok: 4 clocks, 22 tasks, moved 1, cloned 1, filled 2, dropped 1, 0 samples dropped (stale), 24 computed twice, evaluated 2 test tasks, confirmed 1, unconfirmed 1, used at staleness: 0: 176
audit: not proven, only said by the coordinator: charged 1, refused 1'
	run -0 falcon-stat --audit --json judged.trace
	same json "$(jq -c '[.evaluated, .evaluated_twice, .evaluated_alone, .charged,
		.refused]' <<<"$output")" '[2,1,1,1,1]'
	# Twice, and then it is to leave.
	sed '/"charge"/{p;}' judged.trace | chain >bad.trace
	run -1 falcon-stat --audit bad.trace
	has "$output" 'worker 2 was charged twice, but did not leave'
}

@test "the audit as JSON" {
	run -0 falcon-stat --audit --json whole.trace
	same json "$(jq -c '[.ok, .finished, .clocks, .tasks, .filled, .text]' <<<"$output")" \
		'[true,true,4,22,2,[]]'
	same samples "$(jq -c '[.samples_dropped, .samples_duplicated,
		.staleness.updates]' <<<"$output")" '[0,24,{"0":176}]'
	sed 's/\[\[4,3\]\]/[[4,2]]/' whole.trace | chain >bad.trace
	run -1 falcon-stat -aj bad.trace
	same text "$(jq -r '.text[0]' <<<"$output")" 'clock 0: task 6: never added'
}

@test "a file that is no trace is exit 2 and names its line" {
	head -c -5 run.trace >cut.trace
	run -2 --separate-stderr falcon-stat --audit cut.trace
	same stdout "$output" ''
	same stderr "$stderr" 'falcon-stat: cut.trace:17: ends in the middle of the line'
	echo rubbish >rubbish
	run -2 falcon-stat rubbish
	has "$output" 'falcon-stat: rubbish:1: '
	run -2 falcon-stat --audit /dev/null
	same empty "$output" 'falcon-stat: /dev/null: no job line'
	run -2 falcon-stat absent
	same absent "$output" "falcon-stat: absent: No such file or directory; 'absent' is not an address: no port: HOST:PORT is one"
	run -2 falcon-stat .
	has "$output" 'falcon-stat: ./trace.jsonl: No such file or directory'
}

@test "of one kind of finding there are 20 lines, and the number of the others" {
	{
		head -n 1 run.trace
		seq 1 500 | sed 's/.*/{"t":1,"ev":"leave","worker":"w&","id":&,"reason":"so"}/'
		seq 7 9 | sed 's/.*/{"t":1,"ev":"charge","worker":"w&","id":&,"why":"so"}/'
	} | chain >many
	run -1 falcon-stat --audit --partial many
	same lines "${#lines[@]}" 24
	same "the last of the kind" "${lines[19]}" \
		'audit: line 21: worker 20 left, but is not here, and 480 more of this kind'
	same "the last" "${lines[23]}" 'audit: failed: 503 findings'
	same json "$(falcon-stat --json --audit --partial many | jq -c '[.findings, (.text | length)]')" \
		'[503,23]'
}

@test "workers that come and go by the ten thousand are read in time" {
	{
		head -n 1 run.trace
		seq 2 60001 | sed 's/.*/{"t":1,"ev":"join","worker":"w&","id":&,"lanes":[1,1],"cores":1,"fingerprint":"f&"}/'
	} >many
	for args in "" --json --history; do
		timeout 15 falcon-stat $args many >out
	done
	chain <many >chained
	run -0 timeout 15 falcon-stat --audit --partial chained
}

@test "of a run's folder nothing may be missing, and all must be readable" {
	mkdir run
	cp whole.trace run/trace.jsonl
	run -1 falcon-stat --audit run
	has "$output" 'audit: job: is missing'
	has "$output" 'audit: model.safetensors: is missing'
	has "$output" 'audit: result.json: is missing'
	mkdir run/job
	run -2 --separate-stderr falcon-stat --audit run
	same stdout "$output" ''
	same stderr "$stderr" 'falcon-stat: run/job: Is a directory'
}

@test "wrong usage is exit 2" {
	run -2 falcon-stat
	run -2 falcon-stat a b
	run -2 falcon-stat --audit --history run.trace
	run -2 falcon-stat --nonsense run.trace
}

@test "the table names the straggler and the cause" {
	run -0 falcon-stat run.trace
	same job "${lines[0]}" 'job: toy, epsp, done'
	has "${lines[1]}" 'WORKER'
	[[ ${lines[2]} =~ ^fast\ +pioneer\ +compute\ +0\ +2\ +4\ +5\ +0\ +0\ +75.0\ +12.5\ +12.5\ +0.0\ +50.0$ ]]
	[[ ${lines[3]} =~ ^mid\ +steady\ +-\ +0\ +2\ +4\ +3 ]]
	[[ ${lines[4]} =~ ^slow\ +straggler\ +compute\ +0\ +2\ +4\ +1 ]]
	same clocks "${lines[5]}" 'clocks: 4 of 4, 1.00/s, 37.3 samples/s'
	same loss "${lines[6]}" 'training loss: 1.00000'
	same "test loss" "${lines[7]}" 'test loss: 1.00000'
	same accuracy "${lines[8]}" 'accuracy: 0.7000 after epoch 1'
	same numerics "${lines[9]}" 'numerics: identical'
	has "${lines[10]}" 'capacity: 133.3 samples/s, used 28.0 %'
	same updates "${lines[11]}" 'updates: 4, 1.00/s'
	same samples "${lines[12]}" 'samples: 176 used, 0 dropped, 24 computed twice'
	same staleness "${lines[13]}" 'staleness: 0: 176'
}

@test "the table says when emulation was late, or more was used than there is" {
	run -0 falcon-stat run.trace
	! grep 'do not believe' <<<"$output" || return 1
	sed '/"ev":"clock"/s/"late":0,/"late":0.05,/' run.trace >late.trace
	run -0 falcon-stat late.trace
	has "$output" 'emulation: 8.3 % late, so do not believe the speeds: emulate fewer or'
	sed '/"ev":"clock"/s/"task_s":[0-9.]*/"task_s":3/' run.trace >busy.trace
	run -0 falcon-stat busy.trace
	has "$output" ' %: more than there is, so do not believe the speeds'
	# A clock is told with the lanes that there are at its end.
	local is lanes
	for lanes in 2 1; do
		sed -e 's/"cores":[0-9]*/"cores":1/' -e '/"ev":"clock"/{ p
			s/"clock":0/"clock":1/; s/"lanes":2/"lanes":'$lanes'/; }' \
			run.trace >$lanes.trace
	done
	is=$(falcon-stat 2.trace | grep ^capacity)
	same capacity "$(falcon-stat 1.trace | grep ^capacity)" "$is"
}

@test "the table as JSON has what a benchmark needs" {
	run -0 falcon-stat --json run.trace
	# Newer jq keeps numbers as they were written, unless it reckons with them.
	same sums "$(jq -c '[.seconds, .updates, .samples, .dropped, .duplicated, .moved,
		.cloned, .spent.compute, .spent.wait] | map(. + 0)' <<<"$output")" \
		'[3.9,4,176,0,24,1,1,1.8,0.2]'
	same staleness "$(jq -c .staleness.updates <<<"$output")" '{"0":176}'
	same worker "$(jq -c '.workers[0] | [.clock, .share, .dropped, .stale, .stale_max,
		.spent.push] | map(. + 0)' <<<"$output")" '[0,4,0,0,0,0.1]'
}

@test "the worker that rounds differently is named" {
	sed '/"mid","id"/s/f00d/beef/' run.trace >mixed.trace
	run -0 falcon-stat mixed.trace
	has "$output" 'numerics: differ: mid'
}

@test "the table as JSON names the stragglers" {
	run -0 falcon-stat --json run.trace
	same stragglers \
		"$(jq -r '.workers[] | select(.class == "straggler") | .worker' <<<"$output")" slow
	same job "$(jq -c '[.job, .scheme, .clocks, .numerics, .differ]' <<<"$output")" \
		'["toy","epsp",4,"identical",[]]'
}

@test "the history has a line for each epoch" {
	run -0 falcon-stat --history run.trace
	same lines "${#lines[@]}" 3
	[[ ${lines[1]} =~ ^\ *1\ +3.72727\ +1.00000\ +0.7000\ +1.60\ +1.25$ ]]
	[[ ${lines[2]} =~ ^\ *2\ +1.72727\ +-\ +-\ +2.00\ +1.00$ ]]
	run -0 falcon-stat --history --json run.trace
	same json "$(jq -c '[.epoch, .clocks, .accuracy, .test_loss]' <<<"$output")" \
		$'[1,2,0.7,1]\n[2,2,null,null]'
	# The first epoch begins when the first worker gets work, at 0.2 s.
	sed 's/"wait":0.2/"wait":0.0/' run.trace >late
	same "seconds" "$(falcon-stat --history --json late | jq -c .seconds)" $'1.4\n2'
}

# Rounds of a worker's own: one dropped, one stale by 2 updates.
own_rounds() {
	head -n 4 run.trace | sed 's/"epsp"/"syncopt:1"/'
	printf '%s\n' '{"t":1.0,"ev":"ledger","round":0,"clock":0,"first":0,"tasks":4,"samples":32,"version":0,"blocks":5,"kind":"grad","owner":1,"end":"applied","stale":{"clocks":0,"updates":0},"grant":[[1,0,4]],"move":[],"clone":[],"regrant":[],"contrib":[{"c":[1,1],"tasks":[[0,4]],"blocks":5}],"lost":[]}' \
		'{"t":1.0,"ev":"update","version":1,"clock":0,"rounds":[0],"divisor":64,"samples":32,"loss":1,"lr":0.1,"epoch":1}' \
		'{"t":1.1,"ev":"ledger","round":1,"clock":0,"first":4,"tasks":4,"samples":32,"version":0,"blocks":5,"kind":"grad","owner":3,"end":"dropped","why":"stale","grant":[[3,4,4]],"move":[],"clone":[],"regrant":[],"contrib":[],"lost":[]}' \
		'{"t":1.2,"ev":"clock","clock":1,"round":1,"worker":"slow","id":3,"lanes":2,"share":4,"done":2,"in":0,"out":0,"cloned":0,"lost":0,"compute":1,"push":0,"pull":0,"wait":0,"push_all":0,"pull_all":0,"late":0,"samples":16,"task_s":0.1,"staleness":2,"tx":1,"rx":1}'
}

@test "rounds of a worker's own: staleness and what was dropped" {
	own_rounds | chain >own.trace
	run -0 falcon-stat --audit --partial own.trace
	has "$output" '1 of 4 clocks, 8 tasks'
	has "$output" '32 samples dropped (stale), 0 computed twice, used at staleness: 0: 32'
	run -0 falcon-stat own.trace
	has "${lines[1]}" 'STALE  MAX  DROPPED'
	[[ ${lines[4]} =~ ^slow\ .*\ 2.00\ +2\ +1\ +16.0$ ]]
	has "$output" 'clocks: 1 of 4'
	has "$output" 'samples: 32 used, 32 dropped, 0 computed twice'
}
