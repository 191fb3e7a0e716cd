# falcon-proj on traces of real jobs: what it predicts, what it refuses, and the pipe that
# mends a running job.

load common
load job
load tiny

# undisturbed: a trace of such a job as it would be on machines that do nothing else, so
# that what is predicted from it does not depend on what else this one does.
undisturbed() {
	jq -cs 'def computes: .samples * if .worker == "host7" then 0.005 else 0.00125 end;
		def works: computes + 0.001;
		(reduce (.[] | select(.ev == "clock")) as $l ([];
			.[$l.clock] = ([.[$l.clock], ($l | works)] | max))) as $clock |
		def ends: 0.5 + ($clock[:. + 1] | add);
		map(if .ev == "clock" then
			.task_s = computes / .done | .compute = computes | .late = 0 | del(.paces) |
			.wait = $clock[.clock] - works |
			.push = 0.0005 | .pull = 0.0005 | .push_all = 0.0005 | .pull_all = 0.0005
		else . end |
		if .ev == "done" then .t = (39 | ends) | .seconds = .t
		elif .t == 0 then .
		elif has("clock") then .t = (.clock | ends)
		else .t = 0.5 end) | sort_by(.t)[]'
}

# A job of 40 clocks under bsp, two workers at full speed and one at a quarter; its trace is
# $BATS_FILE_TMPDIR/bsp.  Six tasks a clock: what was left over would go to the fastest, and
# on a busy machine that is anybody.
setup_file() {
	for_file
	tiny .
	job=(tiny.job --set job.epochs=10 --set job.eval=never --set sync.scheme=bsp
		--set batch.task=11)
	serve -w 3
	slow fast1 1 800
	slow fast2 1 800
	slow host7 1/4 800
	ended "$ps" ps
	undisturbed <"$state/trace.jsonl" >bsp
	zstd -q bsp -o bsp.zst
	stop_all
}

setup() {
	for_test
	trace=$BATS_FILE_TMPDIR/bsp
}

# refuses STATUS TEXT COMMAND...: it ends so, with the text in its one line on stderr.
refuses() {
	local want=$1 text=$2 got=0
	shift 2
	"$@" >out 2>err || got=$?
	same "status of $*: $(cat err)" "$got" "$want"
	has "$(cat err)" "$text"
	same "lines on stderr" "$(wc -l <err)" 1
}

@test "what-if: the backtest, and what else would have been" {
	falcon-proj --json --what-if 'bsp;epsp;asp;wbsp;ssp:3' "$trace" >rows
	same "schemes" "$(jq -r '[.schemes[].scheme] | join(" ")' rows)" "bsp epsp asp wbsp ssp:3"
	same "what ran" "$(jq -r .scheme rows)" bsp
	# The straggler does a third of the tasks in four times the time.
	jq -e '.backtest_s / .measured_s | . > 0.98 and . < 1.02' rows
	jq -e '(.schemes | map({(.scheme): .epoch_s}) | add) |
		.epsp < 0.7 * .bsp and .wbsp < 0.7 * .bsp and .["ssp:3"] > 0.9 * .bsp' rows
	jq -e --argjson samples "$(head -n 1 "$trace" | jq .samples)" '.capacity as $all |
		all(.schemes[]; $samples / .epoch_s <= 1.001 * $all)' rows
	falcon-proj --what-if all "$trace" >table
	has "$(cat table)" "backtest: "
	# What no trace tells is not called measured.
	grep -Eq '^coordinator: [0-9.]* ms an update; assumed 25.0 us a message, ' table
	same "rows" "$(sed -n '/^scheme/,$p' table | grep -c %)" 11
	grep -qE '^tasks a clock: 6 of 11 samples; whole tasks cost [0-9.]* % of computing, small tasks 0.0 %$' table
	grep -q '^bsp \* ' table
}

@test "what tasks' sizes cost is measured, and said by falcon-ps, too" {
	jq -se 'map(select(.ev == "join")) | length == 3 and
		all(.task_s > 0 and .large == 44 and .large_s > 0)' "$trace"
	grep -q '3 lanes of 3 workers, 6 tasks of 11 samples a clock: [0-9.]* % is lost as tasks are whole' \
		"$BATS_FILE_TMPDIR/ps.err"
	falcon-proj --json "$trace" | jq -e '.clock.small_tasks == 0 and
		(.workers | all(.fixed == 0))'
}

@test "another model is marked, warned of, and never proposed" {
	falcon-proj --what-if 'bsp;epsp;epsp:2;asp' "$trace" >table
	grep -Eq '^bsp \* +same ' table
	grep -Eq '^epsp +same ' table
	grep -Eq '^epsp:2 +another ' table
	grep -Eq '^asp +another ' table
	has "$(cat table)" "only training shows its accuracy"
	sed '1s/"optimizer":"[a-z]*"\(,"momentum":[0-9.e-]*\)*/"optimizer":"nesterov","momentum":0.9/' \
		"$trace" >momentum
	falcon-proj --what-if 'epsp;epsp:2' momentum >table
	same "warnings" "$(grep '^warning' table)" \
		"warning: slack 2 with momentum 0.9: stable learning rates are up to 17 times lower"
	falcon-proj --policy --allow-model --what-if 'epsp:2;asp' momentum >policy 2>err
	! grep -E 'epsp:2|asp' policy || return 1
	has "$(cat err)" "another model: not proposed, as seconds are not accuracy"
}

@test "a batch of more samples than there are: a clock has what there is" {
	local have
	have=$(head -n 1 "$trace" | jq .samples)
	draw
	tiny .
	job=(tiny.job --set job.epochs=4 --set job.eval=never
		--set batch.size=$((have + 1 + RANDOM)) --set batch.task="$((have + RANDOM % 2))")
	serve
	work alone --lanes 1
	wait "$ps"
	has "$(cat ps.err)" "1 lane of 1 worker, 1 task of $have samples a clock: "
	falcon-proj --json "$state/trace.jsonl" >all
	# All but the clock that begins with joining.
	jq -e '.clocks == 3 and .clock.mean > 0 and .clock.mean < 2 * .seconds / .clocks' all
	falcon-proj --what-if bsp "$state/trace.jsonl" >table
	grep -q "^tasks a clock: 1 of $have samples; " table
	again
	serve --set job.epochs=1
	work alone --lanes 1
	wait "$ps"
	falcon-proj "$state/trace.jsonl" >text
	sed '1,/^ms of/d' text | grep -Eq '^alone +- +- +- +- '
	grep -q '^no clock counts yet: ' text
	falcon-proj --json "$state/trace.jsonl" | jq -e '.clocks == 0 and .clock.mean == null and
		.clock.ideal == null and .workers[0].compute == null and
		.workers[0].speed[0].clocks == 1'
}

# alike TEXT WHAT OPTION...: the table, the last line and the JSON say the same of the model:
# "same" or "another", of the scheme that ran with these options, and of WHAT alone.
alike() {
	local want=$1 what=$2 other=false tail=""
	shift 2
	[ "$want" = same ] || other=true tail=", another model"
	falcon-proj "$@" "$trace" >table
	grep -Eq "^bsp \* +$want " table
	grep -Eqx "$what: [+-][0-9.]* s per epoch$tail" table
	falcon-proj --json "$@" "$trace" >all
	same "$*, of a scheme and of what alone" "$(jq -c --arg what "$what" '[
		(.schemes[] | select(.scheme == "bsp")).another_model,
		(.changes[] | select(.what == $what)).another_model]' all)" "[$other,$other]"
}

@test "lanes alter no model, sizes that are others do, wherever it is said" {
	local batch task=11 n
	draw
	batch=$(head -n 1 "$trace" | jq .batch)
	n=$((RANDOM % 9 + 1))
	alike same "lanes = $n" --lanes "$n"
	alike same "task = $task" --task "$task"
	alike same "batch = $batch" --batch "$batch" --what-if 'bsp;epsp'
	n=$((task + 1 + RANDOM % (batch - task - 1)))
	alike another "task = $n" --task "$n"
	alike another "batch = $n" --batch "$n"
	# What alone could be no job is worth nothing alone.
	n=$((batch + 1 + RANDOM % 100))
	falcon-proj --json --task "$n" --batch "$((2 * n))" "$trace" >all
	same "changes" "$(jq -c '[.changes[].what]' all)" "[\"batch = $((2 * n))\"]"
	refuses 2 "--task: a task of $n samples is more than a batch of $batch" \
		falcon-proj --task "$n" "$trace"
	refuses 2 "--task: a task of $n samples is more than a batch of $((n - 1))" \
		falcon-proj --task "$n" --batch "$((n - 1))" "$trace"
	refuses 2 "--batch: a task of $task samples is more than a batch of 10" \
		falcon-proj --batch 10 "$trace"
	falcon-proj --workers 30 "$trace" >table
	grep -Eq '^bsp \* +another ' table
}

@test "machines and sizes: what each is worth" {
	falcon-proj --without host7 --with name=host9,like=fast1,speed=2 --task 4 "$trace" >text
	grep -qx 'host7 is not worth keeping: without it -[0-9.]* s per epoch' text
	grep -qx 'host9 is \(not \|hardly \)*worth adding: [+-][0-9.]* s per epoch' text
	grep -qx 'task = 4: [+-][0-9.]* s per epoch, another model' text
	falcon-proj --json --without host7 --with name=host9,like=fast1 --task 4 "$trace" >all
	same "changes" "$(jq -c '[.changes[] | [.kind, .what]]' all)" \
		'[["add","host9"],["remove","host7"],["size","task = 4"]]'
	jq -e '.task == 4 and .workers == 3 and (.changes[1].by_s | type) == "number" and
		.granularity >= 0 and .small_tasks == 0' all
	falcon-proj --json --workers 500 --what-if epsp "$trace" >many
	same "workers" "$(jq .workers many)" 500
	falcon-proj --json --workers '3,like=fast1;4,like=fast1,speed=0.5:1,cores=2' \
		--what-if bsp "$trace" >group
	same "workers of groups" "$(jq .workers group)" 7
	refuses 2 "--workers: '0': not a number of workers, of up to 1000000 in all" \
		falcon-proj --workers 0 "$trace"
	refuses 2 "--workers: '600000': not a number" falcon-proj --workers '600000;600000' "$trace"
	refuses 2 "--workers: speed: '2:1': not a number" falcon-proj --workers 9,speed=2:1 "$trace"
	refuses 2 "--workers: speed: '2': given twice" \
		falcon-proj --workers 9,speed=1,speed=2 "$trace"
	falcon-proj --without host7 --with name=host7b,like=host7 "$trace" >text
	grep -q '^host7b is ' text
	refuses 2 "--workers: 'name' is not one of like, speed" \
		falcon-proj --workers 9,name=x "$trace"
	refuses 2 "--without: 'host8': no such worker in the trace" \
		falcon-proj --without host8 "$trace"
	refuses 2 "speed: 'x'" falcon-proj --with name=a,speed=x "$trace"
	for item in speed lanes cores; do
		refuses 2 "$item: '0'" falcon-proj --with "name=a,$item=0" "$trace"
	done
	refuses 2 "like: 'nobody': no such worker" falcon-proj --with name=a,like=nobody "$trace"
	refuses 2 "'host7': not a new name" falcon-proj --with name=host7 "$trace"
	refuses 2 "'colour' is not one of" falcon-proj --with name=a,colour=red "$trace"
	# A policy is for the machines that there are; only curves are of several traces.
	refuses 2 "--policy on the machines as they are" falcon-proj -p --without host7 "$trace"
	refuses 2 "several traces only for --plot or --tsv alone" \
		falcon-proj --what-if epsp --plot x.svg "$trace" "$trace"
}

@test "--tsv: the numbers of each picture, which its script draws as --plot does" {
	command -v gnuplot || skip "no gnuplot"
	local kind args
	mkdir first second
	cp "$trace" first/trace.jsonl
	jq -c '., (select(.ev == "update") | {t, ev: "eval", version, epoch, right: 1, total: 2,
		loss: 0.5, accuracy: 0.5})' "$trace" >second/trace.jsonl
	for kind in bands bars curves; do
		case $kind in
		bands) args=(--gantt "$trace") ;;
		bars) args=(--what-if 'bsp;epsp' "$trace") ;;
		curves) args=("$trace" first second/trace.jsonl) ;;
		esac
		falcon-proj --tsv "${args[@]}" >"$kind.tsv" 2>err
		falcon-proj --plot "$kind.svg" "${args[@]}" 2>err
		gnuplot -c "$root/share/plots/$kind.gp" "$kind.tsv" svg >by-hand.svg
		same "$kind" "$(grep -v '<desc>\|<title>' by-hand.svg)" \
			"$(grep -v '<desc>\|<title>' "$kind.svg")"
	done
	same "runs have their folders' names" \
		"$(awk -F '\t' '/^# curve\tkind/ { exit } /^[0-9]/ { print $2 }' curves.tsv | tail -n 2)" \
		$'first\nsecond'
	same "kinds" "$(awk -F '\t' 'NF == 5 && !/^#/ { print $2 }' curves.tsv | sort -u | tr '\n' ' ')" \
		"accuracy test_loss training_loss "
	same "time begins with training" "$(awk -F '\t' 'NF == 5 && !/^#/ && $3 < 0' curves.tsv)" ""
	gnuplot -c "$root/share/plots/bands.gp" bands.tsv svg 1000 >wide.svg
	grep -Eq '> *0<' wide.svg && grep -Eq '> *1000<' wide.svg
	same "parts of a worker follow each other" "$(awk -F '\t' '
		/^#/ { parts = $2 == "begin"; next }
		!parts || NF != 9 { next }
		$1 in at && ($2 - at[$1]) ^ 2 > 1e-9 { print "row " $1 ": " $2 ", not " at[$1] }
		{ at[$1] = $2 + $3 + $4 + $5 + $6 }' bands.tsv)" ""
}

@test "the same from a file, a pipe, and compressed" {
	falcon-proj -j --what-if 'bsp;epsp' "$trace" | jq 'del(.trace)' >plain
	falcon-proj -j --what-if 'bsp;epsp' <"$trace" | jq 'del(.trace)' >piped
	falcon-proj -j --what-if 'bsp;epsp' "$trace.zst" | jq 'del(.trace)' >packed
	cmp plain piped
	cmp plain packed
	falcon-stat --json "$trace" >a
	falcon-stat --json "$trace.zst" >b
	cmp a b
}

@test "--strict: a model that does not fit what happened" {
	# Tasks that are said to have taken three times the time that passed.
	jq -c 'if .ev == "clock" then del(.paces) | .task_s *= 3 else . end' "$trace" >held
	falcon-proj --strict --what-if epsp "$trace" >/dev/null
	falcon-proj --what-if epsp held >out 2>err
	has "$(cat err)" "held: the backtest is off by +"
	refuses 1 "the backtest is off by +" falcon-proj --strict --what-if epsp held
}

@test "traces that are none" {
	: >empty
	refuses 2 "empty: " falcon-proj --what-if epsp empty
	echo nonsense >bad
	refuses 2 "bad:1: " falcon-proj --what-if epsp bad
	head -3 "$trace" >short
	refuses 2 "short: " falcon-proj --what-if epsp short
	tac "$trace" >reversed
	refuses 2 "reversed:" falcon-proj --what-if epsp reversed
	{ head -20 "$trace" && sed 's/"t":[0-9.]*/"t":0.5/' <(sed -n 21p "$trace"); } >back
	cat "$trace" "$trace" >twice
	refuses 2 "twice:" falcon-proj --what-if epsp twice
	refuses 2 "nowhere: No such file" falcon-proj --what-if epsp nowhere
	refuses 2 "'fast' is not" falcon-proj --what-if 'epsp;fast' "$trace"
	# Cut in mid-line: said, and the rest counts.
	head -c $(($(wc -c <"$trace") - 20)) "$trace" >part
	falcon-proj --what-if epsp part >out 2>err
	has "$(cat err)" "; the rest counts"
	has "$(cat out)" "backtest: "
	# One frame is whole, the next is not.
	{ sed '$d' "$trace" | zstd -q && tail -1 "$trace" | zstd -q | head -c 20; } >part.zst
	falcon-proj --what-if epsp part.zst >out 2>err
	has "$(cat err)" "; the rest counts"
}

# bad_trace LINE: all programs say just that of the trace `bad`, from a file or a pipe.
# shellcheck disable=SC2086 # a command is several words
bad_trace() {
	local command
	for command in falcon-stat 'falcon-stat --audit' 'falcon-stat --history' falcon-proj \
		'falcon-proj --what-if epsp' 'falcon-proj --policy' \
		"falcon-proj --plot x.svg"; do
		refuses 2 "" $command bad
		same "$command" "$(cat err)" "${command%% *}: bad$1"
		refuses 2 "" $command - <bad
		same "$command -" "$(cat err)" "${command%% *}: standard input$1"
	done
	[ ! -e x.svg ]
}

@test "bad traces: the same line from all programs" {
	head -60 "$trace" >good
	sed 1d good >bad
	bad_trace ":1: the first line is not job"
	head -c 100 good >bad
	bad_trace ":1: ends in the middle of the line"
	sed '9s/"t":[0-9.]*/"t":0/' good >bad
	bad_trace ":9: $(sed -n 9p good | jq -r .ev).t: 0 is before $(sed -n 8p good | jq .t) of line 8"
	echo '{"a":[1,2]}' >bad
	bad_trace ":1: t: missing"
	echo '[]' >bad
	bad_trace ":1: not a JSON object"
	sed '2s/"t":[0-9.]*/"t":NaN/' good >bad
	bad_trace ":2: column 8: invalid token near 'NaN'"
	sed '2s/"t":[0-9.]*/"t":1e300/' good >bad
	bad_trace ":2: t: 1e+300 seconds"
	cat good good >bad
	bad_trace ":61: a second job line: the trace of the same job (incarnation 0) begins here"
	# Nothing is wrong with any line: there is none, or too little in them.
	: >empty
	head -1 good >young
	for command in falcon-stat 'falcon-stat --audit' falcon-proj 'falcon-proj --policy'; do
		# shellcheck disable=SC2086 # several words
		refuses 2 "${command%% *}: empty: no job line" $command empty
	done
	refuses 2 "falcon-proj: young: no worker has told of a clock" falcon-proj young
	refuses 2 "falcon-proj: young: no worker that is here has run a task" falcon-proj -p young
	refuses 2 "falcon-proj: young: no clock ended" falcon-proj --gantt --plot x.svg young
	refuses 2 "falcon-proj: young: neither loss nor accuracy" \
		falcon-proj --plot x.svg "$trace" young
	falcon-stat young >/dev/null
}

@test "--policy: what gains enough, and nothing else" {
	falcon-proj --policy "$trace" >policy 2>why
	same "lines" "$(wc -l <policy)" 1
	same "scheme" "$(jq -r .scheme policy)" epsp
	has "$(cat why)" " predicted ("
	same "nothing gains so much" "$(falcon-proj --policy --min-gain 99 "$trace")" ""
	# bsp alone: shares by speed.
	falcon-proj --policy --what-if bsp "$trace" >shares 2>/dev/null
	jq -e '.workers.host7.share < 0.6 and .workers.fast1.share > 1.1' shares
	same "epsp needs no change" "$(jq -c '.scheme |= (if . == "bsp" then "epsp" else . end)' \
		"$trace" | falcon-proj --policy --min-gain 40)" ""
}

@test "a running job mends itself" {
	tiny .
	job=(tiny.job --set job.epochs=100 --set sync.scheme=bsp)
	serve -w 3
	slow fast1 1 800
	slow fast2 1 800
	slow host7 1/4 800
	at_clock 3
	FALCON_KEY=$keys/control.key start pipe "$root/examples/proj-pipe" "$ready" 60 2
	soon "epsp" lines 1 '"scheme":"epsp","by":"control"'
	# What the straggler does of the 8 tasks of a clock, before and after the change.
	local at
	at=$(grep '"scheme":"epsp","by":"control"' "$state/trace.jsonl" | jq .clock)
	at_clock $((at + 20))
	sed '$d' "$state/trace.jsonl" | jq -s --argjson at "$at" '
		map(select(.ev == "clock" and .worker == "host7")) |
		def does(a; b): (map(select(.clock >= a and .clock < b).done) | add) / (b - a);
		{before: does(0; $at), after: does($at + 5; $at + 20)}' >tasks
	jq -e '.before >= 2 and .after < 0.75 * .before' tasks || {
		cat tasks pipe.err
		return 1
	}
	falcon-sync -k "$keys/control.key" "$ready" stop
	wait "$ps" || [ $? -eq 75 ]
	falcon-stat --audit --partial "$state/trace.jsonl"
}

# far_away SCHEME SECONDS: of three equal workers the last is so far away, each way.
far_away() {
	rm -rf "$state" ps.ready
	job=(tiny.job --set job.epochs=6 --set job.eval=never --set "sync.scheme=$1"
		--set batch.task=4)
	serve -w 3
	slow near1 1 400
	slow near2 1 400
	work far --lanes 1 --emulate "rate=400,cores=1,latency=$2"
	ended "$ps" ps
	falcon-proj --json "$state/trace.jsonl" >all
	same "$1 at $2: who is named" "$(jq -c '[.workers[] | select(.cause == "latency") |
		[.worker, .class]]' all)" '[["far","straggler"]]'
	# The machine may be busy with other things: 3 % where it is not.
	jq -e '.clock.coordinator <= 0.25 * .clock.mean' all || { jq -c .clock all && return 1; }
	jq -se 'all(.[] | select(.ev == "clock" and .worker == "far" and .clock > 3);
		.rtt >= 2 * '"$2"')' "$state/trace.jsonl"
}

@test "latency is a worker's own, whether it gets tasks or not" {
	tiny .
	far_away epsp 0.15
	far_away bsp 0.06
	falcon-proj --json --without far "$state/trace.jsonl" >all
	jq -e '.changes[0].by_s < 0' all || { jq -c .changes all && return 1; }
}

# made WORKERS CLOCKS SLOW TIMES: a trace of bsp in which all workers need 10 ms for
# each of their 4 tasks a clock, and the last one TIMES as much; clock SLOW is its last: a
# policy then excludes it.  SLOW -1: none does.
made() {
	awk -v workers="$1" -v clocks="$2" -v slow="$3" -v times="$4" '
	function line(who, n, task_s, wait) {
		printf "{\"t\":%.6f,\"ev\":\"clock\",\"clock\":%d,\"worker\":\"w%d\",\"id\":%d,", t, c, who, who
		printf "\"lanes\":1,\"share\":%d,\"done\":%d,\"in\":0,\"out\":0,\"cloned\":0,\"lost\":0,", n, n
		printf "\"compute\":%.6f,\"push\":0.001,\"pull\":0.001,\"wait\":%.6f,\"samples\":%d,", n * task_s, wait, 8 * n
		printf "\"push_all\":0.001,\"pull_all\":0.001,\"late\":0,\"task_s\":%.6f,", (n > 0 ? task_s : 0)
		printf "\"staleness\":0,\"tx\":20000,\"rx\":20000}\n"
	}
	BEGIN {
		batch = 32 * workers
		printf "{\"t\":0,\"ev\":\"job\",\"name\":\"made\",\"hash\":\"aa\",\"epochs\":1,\"batch\":%d,", batch
		printf "\"task\":8,\"samples\":%d,\"test\":0,\"params\":20000,\"blocks\":5,\"shards\":1,\"clocks_per_epoch\":%d,", batch * clocks, clocks
		printf "\"clocks\":%d,\"scheme\":\"bsp\",\"audit\":\"claims\",\"incarnation\":0,\"seed\":\"1\",", clocks
		printf "\"hashes\":1,\"numerics\":\"fast\",\"optimizer\":\"sgd\",\"version\":\"1\"}\n"
		for (i = 1; i <= workers; i++)
			printf "{\"t\":0.5,\"ev\":\"join\",\"worker\":\"w%d\",\"id\":%d,\"lanes\":[1,1],\"cores\":1,\"fingerprint\":\"f\"}\n", i, i
		t = 1
		for (c = 0; c < clocks; c++) {
			out = slow >= 0 && c > slow
			n = out ? 4 * workers / (workers - 1) : 4
			last = out ? n * 0.01 : n * 0.01 * times
			t += last + 0.003
			printf "{\"t\":%.6f,\"ev\":\"update\",\"version\":%d,\"clock\":%d,\"rounds\":[%d],\"samples\":%d,\"loss\":1,\"lr\":0.1,\"epoch\":1}\n", t, c + 1, c, c, batch
			for (i = 1; i < workers; i++)
				line(i, n, 0.01, last + 0.001 - n * 0.01)
			line(workers, out ? 0 : 4, 0.01 * times, out ? last : 0.001)
			if (c == slow)
				printf "{\"t\":%.6f,\"ev\":\"policy\",\"clock\":%d,\"scheme\":\"bsp\",\"by\":\"k\",\"version\":%d,\"policy\":{\"scheme\":\"bsp\",\"workers\":{\"w%d\":{\"exclude\":true}}}}\n", t, c + 1, c + 1, workers
		}
	}'
}

@test "--policy: nothing by few clocks, nor by one window; who is left out may come back" {
	# 13 of 18 clocks count, then 35 of 40.
	made 5 18 -1 4 >few
	same "by few clocks" "$(falcon-proj --policy --what-if bsp few 2>&1)" ""
	made 5 40 -1 4 >some
	same "with all of them" "$(falcon-proj --policy --what-if bsp some | wc -l)" 1
	same "one window" "$(falcon-proj --follow --policy --window 1000 --what-if bsp some 2>&1)" ""
	falcon-proj --follow --policy --window 1 --what-if bsp some >policy 2>why
	same "windows that agree: $(cat policy)" "$(wc -l <policy)" 1
	same "lines on stderr: $(cat why)" "$(wc -l <why)" 1
	# Excluded by three slow clocks, as nobody else was; or by 30.
	made 5 60 2 4 >hasty
	falcon-proj --policy --what-if bsp hasty >policy 2>why
	same "who comes back: $(cat why)" "$(jq -c .workers.w5 policy)" '{"exclude":false}'
	made 5 90 30 4 >proven
	same "it was slow" "$(falcon-proj --policy --what-if bsp proven 2>&1)" ""
	made 5 90 30 1 >well
	falcon-proj --policy --what-if bsp well >policy 2>why
	same "who comes back: $(cat why)" "$(jq -c .workers.w5 policy)" '{"exclude":false}'
}

@test "many workers: no more is played than a few seconds take" {
	local n
	for n in 1 8; do
		made "$n" 1175 -1 1 >fresh
		timeout 100 falcon-proj --json --workers 10000 fresh >many
		same "workers" "$(jq .workers many)" 10000
		jq -e '.schemes[0] | .samples > 0 and .samples / 8 <= 2e6' many
	done
}
