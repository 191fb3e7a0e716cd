# falcon-work --exec: trainers that do their work, and trainers that do not.

bats_require_minimum_version 1.5.0

load common
load job
load tiny

setup_file() {
	for_file
	falcon-key add -K "$keys/keyring" other
	cc -O2 -DINPUTS=16 -DCLASSES=4 -o "$BATS_FILE_TMPDIR/softmax" "$root/examples/exec/softmax.c" -lm
}

setup() {
	for_test
	tiny "$BATS_TEST_TMPDIR/tiny"
	job=(--set job.epochs=10 "$BATS_TEST_TMPDIR/tiny/tiny.job")
	draw
	softmax="'$BATS_FILE_TMPDIR/softmax'" # as a shell takes them
	trainer="/usr/bin/python3 '$root/tests/hostile/trainer.py'"
	export PYTHONPATH=$root/tests/hostile/bare:$root/share PYTHONDONTWRITEBYTECODE=1
}

# trains NAME COMMAND [OPTION...]: a worker with this trainer.
trains() {
	local name=$1 command=$2
	shift 2
	work "$name" --exec "exec $command" "$@"
}

# badly WAY [OPTION...]: a worker whose trainer misbehaves so.
badly() {
	local way=$1
	shift
	TRAINER_LOG=$BATS_TEST_TMPDIR/log.$way trains "$way" "$trainer $way $SEED" "$@"
}

# losses STATE: those of the evaluations.
losses() {
	jq -s '[.[] | select(.ev == "eval") | .loss]' "$1/trace.jsonl"
}

# like_net NAME COMMAND: a trainer whose losses are those of the built-in net.
like_net() {
	serve
	trains "$1" "$2"
	judge "$1"
	losses "$state" >"$1.losses"
	again
	serve
	work net --lanes 1
	judge net
	losses "$state" >net.losses
	jq -es '.[0] as $a | .[1] | [length == 10, (to_entries[] |
		(.value - $a[.key]) * (.value - $a[.key]) < 1e-10)] | all' "$1.losses" net.losses
}

@test "a trainer in C: the loss of the built-in net" {
	like_net c "$softmax"
}

@test "a trainer in NumPy: the loss of the built-in net" {
	PYTHONPATH='' /usr/bin/python3 -c 'import numpy' 2>import.err || skip "no NumPy"
	PYTHONPATH=$root/share like_net numpy "/usr/bin/python3 '$root/examples/exec/softmax.py'"
}

@test "two trainers of one worker, and a slow one, some killed at random: the law" {
	serve --min-workers 3
	trains wide "$softmax" --lanes 2 --emulate rate=600,cores=2
	trains fast "$softmax" --emulate rate=600
	trains slow "$softmax" --emulate rate=600,speed=1/4
	for i in 1 2 3 4 5 6; do
		at_clock $((i * 4))
		mapfile -t children < <(pgrep -P "$(IFS=, && echo "${workers[*]}")" softmax)
		kill -KILL "${children[RANDOM % ${#children[@]}]}"
	done
	judge c
	[ "$(member moved)" -gt 0 ]
	cat ./*.err >said
	[ "$(grep -c 'it was ended by signal 9; it starts again' said)" -ge 3 ]
}

@test "whatever a trainer does costs tasks, not the job" {
	serve --set job.epochs=5
	badly well
	judge five
	for ways in "crash exit rubbish long stranger" "half nan fail fork print"; do
		again
		serve --min-workers 5 --set job.epochs=5
		for way in $ways; do
			badly "$way"
		done
		judge five
		for way in $ways; do
			[ -s "log.$way" ] || {
				echo "$way: never"
				return 1
			}
		done
	done
	has "$(cat crash.err)" "trainer 0: it was ended by signal 9; it starts again"
	has "$(cat exit.err)" "trainer 0: it exited with status 3; it starts again"
	has "$(cat rubbish.err)" "on its standard output: not a JSON object: 'epoch 1: loss 2.3'; it"
	has "$(cat long.err)" "a line of more than 65536 bytes: '$(printf 'x%.0s' {1..60})'; it"
	has "$(cat stranger.err)" "which it does not have"
	has "$(cat nan.err)" "its gradient is not finite"
	has "$(cat fail.err)" "a task failed: RuntimeError: by intention"
	has "$(cat print.err)" "trainer 0: epoch 1: loss 2.3"
	has "$(cat print.err)" "trainer 0: from a child"
	same "restarts for a print" "$(grep -c again print.err || :)" 0
}

# What it writes counts or does not, within what was there; the first of it, it may be,
# as a gradient that is not finite.
@test "a trainer that writes to a gradient that it has given away: finite, and in the audit" {
	serve --set job.epochs=5 --set job.nonfinite=skip
	badly late
	judge late
	[ -s log.late ]
}

# A drawn sample has no finite gradient: a task of each epoch.
@test "what has no finite gradient is skipped, by whom ever: the law; or it ends the job" {
	serve --set job.epochs=3 --set job.nonfinite=skip
	badly odd
	judge skip
	same "tasks skipped" "$(member skipped)" 3
	has "$(falcon-stat --audit "$state/trace.jsonl")" ", skipped 3"
	has "$(falcon-stat "$state/trace.jsonl")" "skipped: 3 tasks without a finite gradient"
	same "samples" "$(falcon-stat -j "$state/trace.jsonl" | jq .samples)" $((3 * 248))
	again
	serve --min-workers 3 --set job.epochs=3 --set job.nonfinite=skip
	badly odd
	badly odd --lanes 2
	KEY=other badly odd
	judge skip
	same "tasks skipped" "$(member skipped)" 3
	again
	serve --set job.epochs=3
	badly odd
	KEY=other badly odd
	status=0
	wait "$ps" || status=$?
	same "status: $(cat ps.err)" "$status" 1
	has "$(cat ps.err)" "a gradient is not finite, on two runs"
	run falcon-ps --check --set sync.scheme=consgd --set job.nonfinite=skip "${job[@]}"
	same "status" "$status" 2
	has "$output" "takes steps outside the server, which job.nonfinite = skip is not for"
}

# What overflows in a built-in net: the sample is finite, its products are not.
@test "a sample that overflows in a built-in net is skipped, too" {
	/usr/bin/python3 - "$SEED" <<-'END'
		import random, struct, sys
		draw = random.Random(int(sys.argv[1]))
		odd = draw.randrange(256)
		x = [[3e38] * 4 if i == odd else [draw.random() for _ in range(4)] for i in range(256)]
		open("x.csv", "w").write("a,b,c,d,y\n" + "".join(
		    ",".join("%.9g" % v for v in r) + ",%d\n" % (i % 4) for i, r in enumerate(x)))
	END
	printf 'input 4\ndense 4\ndense 4\n' >net.model
	printf '%s\n' '[job]' 'name = csv' 'seed = 1' 'epochs = 3' 'eval = never' 'nonfinite = skip' \
		'[model]' 'file = net.model' '[data]' 'format = csv' 'train = x.csv' 'label = y' \
		'[batch]' 'size = 64' 'task = 8' '[optimizer]' 'kind = adamw' 'lr = 0.01' \
		'[sync]' 'scheme = epsp:1' >csv.job
	job=(csv.job)
	serve
	work alone --lanes 1
	judge csv
	same "tasks skipped" "$(member skipped)" 3
	same "said to be finite" "$(grep -c "gradient is finite" alone.err || :)" 0
	again
	serve --min-workers 3
	work one --lanes 1
	work two --lanes 2
	KEY=other work three --lanes 1
	judge csv
}

# Of a clock's tasks, all together, sums have room for 2^25 in version 0, of each for 2^20.
@test "a gradient that is finite, but too large, is called so, by a run as by --try" {
	local task most text
	drawn 1 2 4 8
	task=$one most=$((one << 17))
	sed "s/^size = .*/size = 256/; s/^task = .*/task = $task/; s/^epochs = .*/epochs = 1/" \
		tiny/tiny.job >tiny/sized.job
	job=(tiny/sized.job)
	text="gradient is finite, but reaches $most, and there is room for less than $most, as \
which it counts: scale the data or the loss"
	export TRAINER_LOG=log
	run -1 falcon-work --try tiny/sized.job --exec "exec $trainer size:$most $task"
	has "$output" "no: a $text"
	[[ $output != *"each twice"* ]]
	serve --set job.eval=never # its weights are large, too
	trains large "$trainer size:$most $task"
	KEY=other trains larger "$trainer size:$most $task"
	judge large
	has "$(cat large.err larger.err)" "tiny: a $text"
	same "restarts" "$(cat large.err larger.err | grep -c "starts again" || :)" 0
	same "not finite" "$(grep -c '"ev":"nonfinite"' "$state/trace.jsonl" || :)" 0
	# The next smaller one of single precision.
	most=$(/usr/bin/python3 -c "print($most - $most / 2 ** 24)")
	run -0 falcon-work --try tiny/sized.job --exec "exec $trainer size:$most $task"
	has "$output" "same bits"
	again
	serve --set job.eval=never # its weights are large, too
	trains fits "$trainer size:$most $task"
	judge fits
	same "restarts" "$(grep -c "starts again" fits.err || :)" 0
}

@test "a built-in net says once that its gradients are finite, but too large" {
	/usr/bin/python3 - "$SEED" <<-'END'
		import random, sys
		draw = random.Random(int(sys.argv[1]))
		open("x.csv", "w").write("a,b,y\n" + "".join(
		    "%d,%d,%d\n" % (draw.randrange(10**8, 10**9), draw.randrange(9), i % 4)
		    for i in range(256)))
	END
	printf 'input 2\ndense 4\n' >net.model
	printf '%s\n' '[job]' 'name = csv' 'seed = 1' 'epochs = 3' 'eval = never' \
		'[model]' 'file = net.model' '[data]' 'format = csv' 'train = x.csv' 'label = y' \
		'[batch]' 'size = 64' 'task = 8' '[optimizer]' 'kind = adamw' 'lr = 0.01' \
		'[sync]' 'scheme = epsp' >csv.job
	job=(csv.job)
	serve
	work one --lanes 2
	KEY=other work two --lanes 1
	wait "$ps" || :
	# Which of them gets a task is not known.
	cat one.err two.err | grep "gradient is finite" >said
	same "more than a line" "$(grep -c "gradient is finite" one.err two.err | grep -v ':[01]$')" ""
	has "$(cat said)" "falcon-work: csv: a gradient is finite, but reaches "
	has "$(cat said)" " and there is room for less than "
	same "not finite" "$(grep -c '"ev":"nonfinite"' "$state/trace.jsonl" || :)" 0
}

@test "a trainer that hangs is ended after a deadline of its own, or by the end" {
	serve
	badly hang
	soon "the end of one" grep -q "trainer 0: no answer in time; it starts again" hang.err
	KEY=other badly well # three in a row end the other one
	judge python
}

# short.py: as a data set that has fewer samples than the job says; the fixed task is well.
# With a word more it ends instead, with nothing said by a line.
short() {
	cat >short.py <<-'END'
		import sys

		import falcon_train

		images = list(range(200))


		def gradient(task):
		    try:
		        loss = sum(images[i] for i in task.indices if task.id < 1 << 47)
		    except IndexError as e:
		        if sys.argv[1:]:
		            sys.exit("no sample: %s\n" % e)
		        raise
		    for grad in (task.grads or {}).values():
		        for i in range(len(grad)):
		            grad[i] = 0
		    return loss, 0

		falcon_train.serve(gradient)
	END
}

@test "an exception in a trainer: its line is in log, trace and falcon-stat, and ends worker and job" {
	local text="IndexError: list index out of range" how
	short
	keys=$PWD/one # of a single worker key
	falcon-key init "$keys"
	for how in raises ends; do
		[ "$how" = raises ] || text="it exited with status 1; it said last: no sample: list index"
		again
		serve
		trains pc1 "/usr/bin/python3 short.py ${how#raises}"
		ended "$pid" pc1 1
		has "$(<pc1.err)" "falcon-work: trainer 0: it failed 3 times in a row; it is given up"
		ended "$ps" ps 1
		has "$(<ps.err)" "pc1 left: $text"
		has "$(<ps.err)" "tiny: clock 0: trainer of pc1 failed: $text"
		has "$(falcon-stat "$state/trace.jsonl")" "trainer of pc1 failed: $text"
		has "$(falcon-stat -j "$state/trace.jsonl" | jq -r .trainer)" "trainer of pc1 failed: $text"
		has "$(jq -r 'select(.ev == "trainer") | .key + ", " + .why' "$state/trace.jsonl")" \
			"work, trainer of pc1 failed: $text"
		falcon-stat --audit --partial "$state/trace.jsonl"
	done
	# Nothing is lost: with a trainer that is well the same folder goes on.
	rm ps.ready
	serve
	trains well "$softmax"
	ended "$ps" ps
	# Nor is what was trained before.
	again
	sed 's/except IndexError/except KeyError/; s/images\[i\] for i/{**dict.fromkeys(range(60))}[task.id] or 1 for i/' \
		short.py >late.py
	serve --set state.clocks=1
	trains late "/usr/bin/python3 late.py"
	ended "$pid" late 1
	ended "$ps" ps 1
	has "$(<ps.err)" ": trainer of late failed: KeyError: "
	rm ps.ready
	serve --set state.clocks=1
	trains well2 "$softmax"
	ended "$ps" ps
	has "$(<ps.err)" "tiny: resumed at clock "
	falcon-stat --audit "$state"
}

# The first task of all, which is the fixed one, comes before its worker has joined.
@test "a trainer that fails at its first task, or refuses: falcon-ps says so, and waits for others" {
	sed 's/task.id < 1 << 47/True/; s/range(200)/range(0)/' <(short && cat short.py) >never.py
	short
	printf '%s\n' 'import falcon_train' 'falcon_train._say(op="hello", protocol=1, train=4937)' \
		'falcon_train._word(), falcon_train._word(), falcon_train._word()' >fewer.py
	serve --min-workers 2
	KEY=other trains never "/usr/bin/python3 never.py"
	ended "$pid" never 1
	has "$(<never.err)" "trainer 0: it failed 3 times in a row; it is given up"
	trains fewer "/usr/bin/python3 fewer.py"
	ended "$pid" fewer 1
	has "$(<ps.err)" "never left: IndexError: list index out of range: 0 here"
	has "$(<ps.err)" "fewer left: it cannot work: tiny: the trainer has 4937 training samples, the job 256: 0 here"
	soon "why nobody is here" grep -q "it waits for 2 more of 2 workers: .*; trainer of never failed: IndexError: " ps.err
	soon "the trace's word" lines 1 '"ev":"trainer","key":"other"'
	run -1 grep -q '"ev":"trainer","key":"work"' "$state/trace.jsonl"
	# Of those who compute nobody minds, nor is the job over while there are any.
	trains good "$softmax"
	KEY=other trains never2 "/usr/bin/python3 never.py"
	ended "$pid" never2 1
	trains good2 "$softmax"
	judge c
	has "$(<ps.err)" "never2 left: IndexError"
}

@test "of several trainers the reason is that of who failed, by stderr or in its word alone" {
	sed 's/task.id < 1 << 47/True/' <(short && cat short.py) |
		sed 's/range(200)/range(0 if os.environ["FALCON_LANE"] == "1" else 256)/; 1i import os' >second.py
	cat >quiet.py <<-'END'
		import falcon_train

		falcon_train._word()
		falcon_train._say(op="hello", protocol=1)
		falcon_train._word()
		while True:
		    word = falcon_train._word()
		    if word["op"] == "task" and word["id"] >= 1 << 48:
		        falcon_train._say(op="done", id=word["id"], loss=1, right=0)
		    elif word["op"] == "task":
		        falcon_train._say(op="fail", id=word["id"], why="the disk is full")
	END
	serve --min-workers 2
	KEY=other trains second "/usr/bin/python3 second.py" --lanes 2
	ended "$pid" second 1
	has "$(<ps.err)" "second left: IndexError: list index out of range: 0 here"
	again
	serve
	trains quiet "/usr/bin/python3 quiet.py" --lanes 2
	ended "$pid" quiet 1
	has "$(<quiet.err)" "it failed at 2 tasks in a row; it starts again"
	has "$(<ps.err)" "quiet left: the disk is full"
}

@test "a trainer that fails at task after task is started again" {
	serve --set job.epochs=5
	badly poison
	soon "the end" ended_pid "$ps"
	judge five
	[ -s log.poison ]
	has "$(cat poison.err)" "a task failed: RuntimeError: no more"
	has "$(cat poison.err)" "trainer 0: it failed at 2 tasks in a row; it starts again"
}

@test "a trainer has its descriptors and no others, its environment, and no key" {
	serve
	cp "$keys/work.key" named
	FALCON_KEY=named CREDENTIALS_DIRECTORY=/x NOTIFY_SOCKET=@x SEEN=1 \
		start env falcon-work -n env --cache none --emulate rate=400 \
		--exec "exec $softmax" "$ready" 9<"$keys/keyring"
	at_clock 1
	child=$(pgrep -P "$pid" softmax)
	same "descriptors" "$(find "/proc/$child/fd" -type l -printf '%f\n' |
		sort -n | xargs)" "0 1 2 3 4 5 6 7"
	same "its group" "$(ps -o pgid= "$child" | xargs)" "$child"
	tr '\0' '\n' <"/proc/$child/environ" >environ
	judge c
	same "keys" "$(grep -E 'named|=/x$|@x' environ || :)" ""
	has "$(cat environ)" SEEN=1
	has "$(cat environ)" FALCON_LANE=0
	has "$(cat environ)" FALCON_PARAMS_FD=3
}

@test "a command that is not a trainer is said before anything else" {
	local text
	while IFS='|' read -r command text; do
		run falcon-work -k "$keys/work.key" --exec "$command" 127.0.0.1:1
		same "status" "$status" 1
		same "what it said" "$(grep -v '^sh: \|^falcon-work: trainer 0: sh: \|/bin/sh: ' <<<"$output")" \
			"falcon-work: --exec: $command: $text"
	done <<-'END'
		no-such-command|it cannot be started: the shell exited with status 127
		exec /|it cannot be started: the shell exited with status 126
		echo '{"op":"hello","protocol":9}'|its hello: it speaks protocol 9, not 1
		echo '{"op":"refuse","why":"no GPU"}'|it refuses: no GPU
	END
}

@test "a trainer that dies before its first hello is started again, but not for ever" {
	cat >shy <<-END
		#!/bin/sh
		echo >>starts
		case \$(wc -l <starts) in
		1) exit 3 ;;
		2) kill -9 \$\$ ;;
		3) echo 'loading ...' ;;
		4) echo '{"op":"done","id":1}' ;;
		*) exec $softmax ;;
		esac
	END
	chmod +x shy
	serve
	trains shy ./shy
	judge c
	has "$(cat shy.err)" "it exited with status 3 before it said hello; it starts again"
	has "$(cat shy.err)" "it was ended by signal 9 before it said hello; it starts again"
	has "$(cat shy.err)" "on its standard output: not a JSON object: 'loading ...'; it starts again"
	has "$(cat shy.err)" "it answers before it was asked; it starts again"
	run falcon-work -k "$keys/work.key" --exec "exit 3" 127.0.0.1:1
	same "status" "$status" 1
	same "starts again" "$(grep -c 'it starts again$' <<<"$output")" 7
	same "at last" "$(tail -n 1 <<<"$output")" "falcon-work: --exec: exit 3: it exited \
with status 3 before it said hello; 8 starts in a row without a hello"
}

@test "a trainer that refuses the job, or says hello no more, ends its worker" {
	cat >once <<-END
		#!/bin/sh
		[ ! -e was ] && touch was && exec $softmax
		echo '{"op":"hello","protocol":1}' # the other one asks for samples
	END
	cat >refuses <<-'END'
		#!/bin/sh
		echo '{"op":"hello","protocol":1}'
		while read -r line; do
			case $line in
			*'"op":"job"'*) echo '{"op":"refuse","why":"another model"}' ;;
			esac
		done
	END
	chmod +x once refuses
	serve --min-workers 3
	trains once ./once --emulate rate=1000
	once=$pid
	trains refuses ./refuses
	status=0
	wait "$pid" || status=$?
	same "its status" "$status" 1
	same "what it said" "$(grep -v "connected\|needs" refuses.err)" \
		"falcon-work: trainer 0: it refuses: another model; it is given up"
	trains good "$softmax" --emulate rate=1000
	trains other "$softmax" --emulate rate=1000
	at_clock 3
	kill -KILL "$(pgrep -P "$once" softmax)"
	status=0
	wait "$once" || status=$?
	same "its status" "$status" 1
	has "$(cat once.err)" "its hello is not that of its first start; it is given up"
	judge c
}

@test "whoever gives other bits each time is impure, and named" {
	serve
	badly impure
	wait "$ps"
	has "$(cat impure.err)" "the trainer is impure"
	has "$(falcon-stat "$state/trace.jsonl")" "numerics: differ: impure (impure)"
	same "impure" "$(falcon-stat --json "$state/trace.jsonl" | jq -c .impure)" '["impure"]'
	again
	serve --set job.epochs=2
	badly impure-says
	wait "$ps"
	has "$(cat impure-says.err)" "the trainer is impure, as it says itself; "
	same "impure" "$(falcon-stat --json "$state/trace.jsonl" | jq -c .impure)" '["impure-says"]'
}

@test "whoever computes otherwise than before is no worker any more" {
	cc -O2 -DINPUTS=16 -DCLASSES=4 -Dexp=exp2 -o other "$root/examples/exec/softmax.c" -lm
	cat >changes <<-END
		#!/bin/sh
		[ ! -e was ] && touch was && exec $softmax
		exec ./other
	END
	chmod +x changes
	serve --min-workers 2
	trains changes ./changes --emulate rate=1000
	changes=$pid
	trains good "$softmax" --emulate rate=1000
	at_clock 3
	kill -KILL "$(pgrep -P "$changes" softmax)"
	status=0
	wait "$changes" || status=$?
	same "its status" "$status" 1
	has "$(cat changes.err)" "started again, it computes otherwise than before"
	judge c
}

@test "trainers on a slow link, where results wait for verdicts: the law" {
	serve
	trains near "$softmax"
	judge c
	again
	serve --min-workers 2 --rate-limit "$((40 + RANDOM % 60))K"
	trains far "$softmax" --lanes 2
	trains farther "$softmax"
	judge c
}

@test "each lane has a trainer of its own: the same model" {
	serve
	badly well --lanes 4 --emulate rate=600
	at_clock 2
	same "trainers" "$(pgrep -cP "$pid" python3)" 4
	judge python
}

# What is drawn from it is the same for whoever computes the task again.
@test "a task has a seed of its own, the same for clone and fill: the law" {
	local seeded="$trainer seeded"
	export TRAINER_LOG=seeds
	serve
	trains alone "$seeded"
	judge seeded
	again
	serve --min-workers 3
	trains a "$seeded" --emulate rate=600
	trains b "$seeded" --emulate rate=600
	trains c "$seeded" --emulate rate=600,speed=1/4
	at_clock 4
	kill -KILL "${workers[-2]}"
	judge seeded
	local tasks
	tasks=$(cut -d " " -f 1,2 seeds | sort -u | wc -l)
	same "tasks" "$tasks" $((40 * 8))
	same "their seeds" "$(sort -u seeds | wc -l)" "$tasks"
	same "which differ" "$(cut -d " " -f 3 seeds | sort -u | wc -l)" "$tasks"
}

@test "local steps: each is on the weights of its own" {
	for scheme in wbsp consgd dynsgd; do
		again
		serve --set sync.scheme=$scheme --set job.epochs=6
		trains $scheme "$softmax"
		judge $scheme
		losses "$state" >c.losses
		again
		serve --set sync.scheme=$scheme --set job.epochs=6
		work net.$scheme --lanes 1
		judge net.$scheme
		losses "$state" >net.losses
		jq -es '.[0] as $a | .[1] | [length == 6, (to_entries[] |
			(.value - $a[.key]) * (.value - $a[.key]) < 1e-8)] | all' \
			c.losses net.losses
	done
}

@test "buffers run by a rule of their own, and are among the parameters of eval" {
	sed -i 's/^file = .*/init = init.safetensors\nbuffers = *.running *.seen/' tiny/tiny.job
	cat >trainer.py <<-'END'
		import json
		import struct
		import sys

		import falcon_train

		shapes = {"n.running": [2], "n.seen": [], "w": [3]}
		if sys.argv[1] == "init":
		    header, data = {}, b""
		    for name, shape in shapes.items():
		        value = struct.pack("<q", 7) if name == "n.seen" else \
		            struct.pack("<%df" % shape[0], *[0.5] * shape[0])
		        header[name] = {"dtype": "I64" if name == "n.seen" else "F32", "shape": shape,
		                        "data_offsets": [len(data), len(data) + len(value)]}
		        data += value
		    header = json.dumps(header).encode()
		    with open(sys.argv[2], "wb") as f:
		        f.write(struct.pack("<Q", len(header)) + header + data)
		    sys.exit()


		def gradient(task):
		    if not task.train:  # the test set shows what runs
		        return abs(task.params["n.running"][0]) * task.count, 0
		    if task.id < 1 << 48:
		        with open(sys.argv[1], "a") as f:
		            print(task.clock, *task.indices, file=f)
		    # The mean of the samples' numbers, and its opposite, times how many there are.
		    task.grads["n.running"][0] = sum(task.indices)
		    task.grads["n.running"][1] = -sum(task.indices)
		    for i in range(3):
		        task.grads["w"][i] = 0.01 * i * (sys.argv[1] == "mean" or task.count)
		    return task.count, 0

		falcon_train.serve(gradient)
	END
	cat >plain.py <<-'END'
		import json
		import struct
		import sys

		seen = {}
		with open("record") as f:
		    for line in f:
		        clock, *indices = map(int, line.split())
		        seen.setdefault(clock, set()).update(indices)
		run, losses = 0.5, []
		for clock in sorted(seen):
		    run = 0.75 * run + 0.25 * sum(seen[clock]) / len(seen[clock])
		    if clock % 4 == 3:
		        losses.append(run)
		with open(sys.argv[1], "rb") as f:
		    n, = struct.unpack("<Q", f.read(8))
		    assert "n.seen" not in json.loads(f.read(n))
		    a, b, *w = struct.unpack("<5f", f.read())
		with open(sys.argv[2]) as f:
		    evals = [e["loss"] for e in map(json.loads, f) if e["ev"] == "eval"]
		# Sums of the block are as fine as its largest value lets them be.
		for got, want in (
		        (a, run), (b, 0.75 ** len(seen) - run), *zip(evals, losses),
		        *((v, 0.5 - 0.1 * 0.01 * i * len(seen)) for i, v in enumerate(w))):
		    assert abs(got - want) < 1e-3 * abs(want), (got, want)
		assert len(evals) == len(losses) == 3
	END
	/usr/bin/python3 trainer.py init tiny/init.safetensors
	job=(--set model.buffer-momentum=0.25 --set job.epochs=3 tiny/tiny.job)
	same "tensors" "$(falcon-ps --check "${job[@]}")" "tensor     shape  values
n.running      2       2
w              3       3"
	serve
	trains alone "/usr/bin/python3 trainer.py record"
	judge buffers
	/usr/bin/python3 plain.py "$state/model.safetensors" "$state/trace.jsonl"
	again
	serve --min-workers 2
	trains one "/usr/bin/python3 trainer.py other" --emulate rate=2000
	for scheme in wbsp consgd dynsgd; do
		run falcon-sync -k "$keys/control.key" "$ready" set "scheme=$scheme"
		same "status of $scheme" "$status" 1
		same "what it says of $scheme" "$output" "falcon-sync: scheme: takes steps \
outside the server, which the job's model.buffers is not for"
	done
	trains two "/usr/bin/python3 trainer.py other" --emulate rate=500
	judge buffers
	run falcon-ps --check --set sync.scheme=wbsp "${job[@]}"
	same "status" "$status" 2
	has "$output" "sync.scheme: takes steps outside the server, which model.buffers is not for"
	# They are no weights of the trainer's where they stay as they are, either.
	sed 's/^buffers = .*/&\nfreeze = n.*/' tiny/tiny.job >tiny/frozen.job
	falcon-work --exec 'tee heard | /usr/bin/python3 trainer.py other' --try tiny/frozen.job
	same "buffers" "$(jq -r 'select(.op == "job").buffers[]' heard)" n.running
	run falcon-work --exec 'exec /usr/bin/python3 trainer.py other' --try tiny/tiny.job
	has "$output" "ok the sum of two half tasks is the whole task"
	has "$output" "ok a task of 8 samples takes "
	has "$output" "ok the statistics of batch norm are those of 8 samples (batch.task)"
	run -1 falcon-work --exec 'exec /usr/bin/python3 trainer.py mean' --try tiny/tiny.job
	has "$output" "no: the gradient is a MEAN over the task's samples"
}

# frozen.py: "init" writes tensors a, b and c, of which b is frozen; else it is a trainer of them.
@test "what is frozen in model.init is not stepped, nor decays, and is told: the law, and a resume" {
	cat >frozen.py <<-'END'
		import json
		import struct
		import sys

		import falcon_train

		if sys.argv[1:]:
		    header = {"__metadata__": {"b": "frozen", "format": "pt"}} if sys.argv[1] == "b" else {}
		    header.update({name: {"dtype": "F32", "shape": [2], "data_offsets": [8 * i, 8 * i + 8]}
		                   for i, name in enumerate("abc")})
		    text = json.dumps(header).encode()
		    with open("init.safetensors", "wb") as f:
		        f.write(struct.pack("<Q", len(text)) + text + struct.pack("<6f", *[0.5] * 6))
		    sys.exit()


		def gradient(task):
		    for name, grad in (task.grads or {}).items():
		        for i in range(2):
		            grad[i] = 0.01 * sum(task.indices) * (name == "a")
		    return task.count, 0

		falcon_train.serve(gradient)
	END
	sed -i 's/^file = .*/init = init.safetensors/; s/^kind = .*/kind = adamw\nweight-decay = 0.1/' \
		tiny/tiny.job
	weights() { # of b, and of c, which has no gradient either
		tail -c 16 "$state/model.safetensors" | od -An -v -f -w4 | xargs
	}
	(cd tiny && /usr/bin/python3 ../frozen.py b)
	serve --set state.clocks=5
	work alone --exec "tee heard | /usr/bin/python3 frozen.py" -v --emulate rate=4000
	at_clock 12
	kill -TERM "$ps"
	ended "$ps" ps
	kill -KILL "$pid"
	rm ps.ready
	serve --set state.clocks=5
	trains other "/usr/bin/python3 frozen.py"
	judge frozen
	has "$(<alone.err)" "; not stepped: b"
	same "decay" "$(jq 'select(.op == "job").decay' heard)" true
	same "b" "$(weights | cut -d " " -f 1-2)" "0.5 0.5"
	[[ $(weights) != *" 0.5" ]] || return 1
	# A job without a break, of three workers, has its model.
	again
	serve --min-workers 3
	for i in 1 2 3; do
		trains $i "/usr/bin/python3 frozen.py"
	done
	judge frozen
	# Without the mark it is the decay's.
	(cd tiny && /usr/bin/python3 ../frozen.py none)
	again
	serve
	trains none "/usr/bin/python3 frozen.py"
	judge none
	same "kept" "$(weights | grep -c "0.5 0.5" || :)" 0
}

@test "a loss below 0 is one like others" {
	job=(--set job.epochs=4 --set state.best=yes "$BATS_TEST_TMPDIR/tiny/tiny.job")
	serve
	badly below
	judge below
	losses "$state" >below.losses
	jq -es '.[0] | length == 4 and all(-10 < . and . < -7)' below.losses
	jq -es '.[0] | .[3] < .[0]' below.losses
	same "updates" "$(jq -s '[.[] | select(.ev == "update") | -10 < .loss and .loss < -7] |
		all' "$state/trace.jsonl")" true
	same "the best one's clock" "$(jq .best_clock "$state/result.json")" "$(jq -s '[.[] |
		select(.ev == "eval")] | max_by([.accuracy, -.loss]).version' "$state/trace.jsonl")"
	falcon-stat --history "$state/trace.jsonl" | awk 'NR > 1 && !($2 < -7) { exit 1 }'
	has "$(falcon-ps -K "$keys/keyring" -s "$state" "${job[@]}")" "training loss  -"
}

@test "a loss that is not known is none, and no better than others" {
	local best
	job=(--set job.epochs=4 --set state.best=yes "$BATS_TEST_TMPDIR/tiny/tiny.job")
	serve
	badly lost
	judge lost
	losses "$state" >lost.losses
	jq -es '.[0] | map(type) == ["null", "number", "number", "null"]' lost.losses
	best=$(jq 'if .[1] <= .[2] then 8 else 12 end' lost.losses)
	same "the result" "$(jq -c '[.test_loss, .best_clock]' "$state/result.json")" "[null,$best]"
	# One that is beyond what a message has.
	/usr/bin/python3 - "$state/model.safetensors" <<-'END'
		import struct
		import sys

		with open(sys.argv[1], "r+b") as f:
		    at = 8 + struct.unpack("<Q", f.read(8))[0]
		    f.seek(at)
		    v = f.read()
		    f.seek(at)
		    f.write(struct.pack("<%df" % (len(v) // 4),
		                        *(1e9 * x for x, in struct.iter_unpack("<f", v))))
	END
	has "$(falcon-work --eval "$state/model.safetensors" "${job[-1]}")" " -"
	same "as JSON" "$(falcon-work -j --eval "$state/model.safetensors" "${job[-1]}" |
		jq .test_loss)" null
}

@test "a loss of training that is not known: of its updates and epochs there is none" {
	job=(--set job.epochs=4 --set state.best=yes "$BATS_TEST_TMPDIR/tiny/tiny.job")
	serve
	badly untold
	judge untold
	# Of evaluations the last may be the best, as far as is known.
	same "the best one's clock" "$(jq .best_clock "$state/result.json")" 16
	same "updates without" "$(jq -sc '[.[] | select(.ev == "update" and .loss == null).clock]' \
		"$state/trace.jsonl")" "[5,15]"
	same "the result" "$(jq .training_loss "$state/result.json")" null
	has "$(falcon-ps -K "$keys/keyring" -s "$state" "${job[@]}")" "training loss  -"
	has "$(falcon-stat "$state/trace.jsonl")" "training loss: -"
	same "epochs" "$(falcon-stat --history "$state/trace.jsonl" |
		awk 'NR > 1 { printf "%s ", $2 == "-" }')" "0 1 0 1 "
	same "as JSON" "$(falcon-stat -j --history "$state/trace.jsonl" |
		jq -sc 'flatten | [.[].training_loss == null]')" "[false,true,false,true]"
}

@test "a trainer goes with its worker, however that goes" {
	serve
	trains c "$softmax" --emulate rate=300
	at_clock 2
	child=$(pgrep -P "$pid" softmax)
	kill -KILL "$pid"
	soon "its end" ended_pid "$child"
	badly hang
	hang=$pid
	soon "a hang" test -s log.hang
	child=$(pgrep -P "$hang" python3)
	kill -TERM "$hang"
	wait "$hang" || :
	soon "its end" ended_pid "$child"
}

@test "what a trainer has started ends with it" {
	cat >family <<-END
		#!/bin/sh
		sleep 1000 &
		echo \$! >>sleepers
		exec $softmax
	END
	chmod +x family
	serve
	trains family ./family --emulate rate=600
	at_clock 2
	kill -KILL "$(pgrep -P "$pid" softmax)"
	soon "the end of its child" ended_pid "$(head -n 1 sleepers)"
	judge c
	wait "$pid"
	same "starts" "$(wc -l <sleepers)" 2
	soon "the end of the other child" ended_pid "$(tail -n 1 sleepers)"
}

@test "--try: what is well, and what is to be changed" {
	run falcon-work --exec "$softmax" --try tiny/tiny.job
	same "status" "$status" 0
	has "$output" "ok hello 2 tensors, 68 parameters"
	TRAINER_LOG=log run falcon-work --try tiny/tiny.job \
		--exec "exec $trainer well"
	same "status" "$status" 0
	has "$output" "ok hello Python, 2 tensors, 68 parameters"
	has "$output" "ok 3 tasks, each twice: same bits; "
	has "$output" "a SUM, not a mean"
	has "$output" "ok a task of 8 samples takes "
	has "$output" "ok judging: 2 of 8 right, "
	TRAINER_LOG=log run falcon-work --try tiny/tiny.job \
		--exec "exec $trainer drop"
	same "status" "$status" 0
	has "$output" "ok the sum of two half tasks is the whole task, but for what is drawn"
	TRAINER_LOG=log run falcon-work --try tiny/tiny.job \
		--exec "exec $trainer coarse"
	same "status" "$status" 0
	has "$output" "ok the sum of two half tasks is the whole task (to "
	has "$output" ", as with bfloat16; with float32 "
	TRAINER_LOG=log run falcon-work --try tiny/tiny.job \
		--exec "exec $trainer impure-says"
	same "status" "$status" 0
	has "$output" "ok 3 tasks, each twice: other bits, as it says itself; "
	# Halves need not be of one size.
	sed 's/^task = .*/task = 7/' tiny/tiny.job >tiny/seven.job
	run falcon-work --exec "$softmax" --try tiny/seven.job
	same "status" "$status" 0
	has "$output" "a SUM, not a mean"
	has "$output" "ok a task of 7 samples takes "
	# A text that falcon-ps has kept names the weights of its --from, which are not here, nor
	# is what shards are made by.
	sed "s/^file = .*/&\nfrom-sha256 = $(printf '%064d' 1)/
		s/^name = .*/&\nplacement = file:none/" tiny/tiny.job >tiny/kept.job
	run falcon-work --exec "$softmax" --try tiny/kept.job
	same "status of a kept text" "$status" 0
	TRAINER_LOG=log run falcon-work --try tiny/seven.job \
		--exec "exec $trainer mean"
	has "$output" "no: the gradient is a MEAN over the task's samples"
	while IFS='|' read -r way text; do
		TRAINER_LOG=log run falcon-work --try tiny/tiny.job \
			--exec "exec $trainer $way"
		same "status of $way" "$status" 1
		has "$output" "no: $text"
		[[ $output != *"starts again"* ]] # nobody would wait for that
	done <<-'END'
		mean|the gradient is a MEAN over the task's samples
		drop-mean|the gradient is a MEAN over the task's samples
		twice|the sum of two half tasks is not the whole task
		impure|the same task gives other bits the second time
		every-nan|gradients are not finite on the job's first parameters
		every-exit|a task of 8 samples was not computed
		no-hello|no hello: exec /usr/bin/python3
	END
	# A loss need not be known, of training, of judging, or of a task.
	for way in null null-train null-eval; do
		TRAINER_LOG=log run falcon-work --try tiny/tiny.job \
			--exec "exec $trainer $way"
		same "status of $way" "$status" 0
		has "$output" "ok 3 tasks, each twice: same bits; "
		case $way in
		null-eval) [[ $output != *"loss is null"* ]] ;;
		*) has "$output" "ok its loss is null: not finite, or not known" ;;
		esac
		case $way in
		null-train) has "$output" "ok judging: 2 of 8 right, loss 1" ;;
		*) has "$output" "ok judging: 2 of 8 right, loss not known" ;;
		esac
	done
}

@test "--try: the ends of a trainer's data, tensors without gradient, data without a hash" {
	cat >own.py <<-'END'
		import sys

		import falcon_train

		def gradient(task):
		    for i in task.indices:
		        (train if task.train else test)[i]
		    for name, grad in (task.grads or {}).items():
		        for i in range(len(grad)):
		            grad[i] = task.count * (sys.argv[1] != name)
		    return task.count, 0

		train, test = [*range(int(sys.argv[2]))], [*range(int(sys.argv[3]))]
		falcon_train.serve(gradient, dataset=(train, test) if sys.argv[4:] else None)
	END
	sed -i 's/^\(seed\|epochs\) = .*/&/; s/^format = idx/format = index\nsamples = 640\ntest-samples = 64/
		/^\(train\|test\)-[il]/d; /^mean/d; /^std/d' tiny/tiny.job
	sed 's/^file = .*/init = init/' tiny/tiny.job >own.job
	printf '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}' >header
	perl -e 'undef $/; my $h = <>; print pack("Q<", length $h), $h, pack("f<3", 1, 2, 3)' header >init
	run -0 falcon-work --exec 'exec /usr/bin/python3 own.py b 640 64' --try own.job
	has "$output" "ok the trainer gives no hash of its data"
	has "$output" "ok no gradient for b: "
	has "$output" "ok first and last sample of the training set: 0 and 639; last of the test set: 63"
	run -0 falcon-work --exec 'exec /usr/bin/python3 own.py none 640 64 hash' --try own.job
	[[ $output != *"no gradient"* ]] || return 1
	has "$output" "ok data $(/usr/bin/python3 -c 'import falcon_train
print(falcon_train._census((range(640), range(64)), lambda i: None, "")["data"])' 2>&1): "
	# Neither of the first tasks has the last sample.
	run -1 falcon-work --exec 'exec /usr/bin/python3 own.py none 639 64' --try own.job
	has "$output" "IndexError"
	run -1 falcon-work --exec 'exec /usr/bin/python3 own.py none 640 63' --try own.job
	has "$output" "no: this was sample 63 of the test set"
	run -1 falcon-work --exec 'exec /usr/bin/python3 own.py none 639 64 hash' --try own.job
	has "$output" "no: the trainer has 639 training samples, the job 640"
}

@test "dataset=: whoever has another item is refused, and both hashes are named" {
	cat >own.py <<-'END'
		import random
		import sys

		import falcon_train

		class Items:
		    def __len__(self):
		        return 640

		    def __getitem__(self, i):
		        # What a transform draws does not count.
		        return b"%d" % i, {"a": [i, 0.5]}, "x" * (i == 639) * int(sys.argv[1])

		def gradient(task):
		    for grad in (task.grads or {}).values():
		        for i in range(len(grad)):
		            grad[i] = 0
		    return task.count, 0
		falcon_train.serve(gradient, dataset=Items())
	END
	sed -i 's/^format = idx/format = index\nsamples = 640\ntest-samples = 64/
		/^\(train\|test\)-[il]/d; /^mean/d; /^std/d; s/^file = .*/init = init/' tiny/tiny.job
	printf '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}' >header
	perl -e 'undef $/; my $h = <>; print pack("Q<", length $h), $h, pack("f<2", 1, 2)' header >init
	cp init tiny
	falcon-key add -K "$keys/keyring" pc3
	serve --min-workers 3
	trains pc1 "/usr/bin/python3 own.py 0"
	KEY=other trains pc2 "/usr/bin/python3 own.py 0"
	soon "two workers" grep -q "pc2 joined" ps.err
	run -77 timeout 60 falcon-work -k "$keys/pc3.key" --exec "exec /usr/bin/python3 own.py 1" "$ready"
	has "$output" "its trainer has the data "
	has "$output" ", that of others has "
	has "$(<ps.err)" "pc3: refused: its trainer has the data "
	KEY=pc3 trains pc3 "/usr/bin/python3 own.py 0"
	judge dataset
}

@test "a loss that is not known: the job is done all the same" {
	serve --set job.epochs=3
	badly null
	judge null
	same "restarts" "$(grep -c "starts again" null.err || :)" 0
	same "losses" "$(losses "$state" | jq -c .)" "[null,null,null]"
}

@test "pipes: a toy in shell and awk; a gradient of another length" {
	local few=(--set job.epochs=4 --set optimizer.lr=0.5 --set batch.task=32)
	serve "${few[@]}"
	trains awk "'$root/examples/exec/line.sh'"
	judge awk
	losses "$state" >awk.losses
	jq -es '.[0] | .[3] < .[0] / 2' awk.losses
	# One of another length costs its task, no more.
	sed 's/n="$bytes"/n="$([ -e was ] || echo $((bytes + 4)); [ ! -e was ] || echo "$bytes"; : >was)"/' \
		"$root/examples/exec/line.sh" >once
	chmod +x once
	again
	serve "${few[@]}"
	trains once ./once
	judge awk
	has "$(<once.err)" "its gradient has 276 bytes, not 272; it starts again"
	sed 's/n="$bytes"/n="$((bytes + 4))"/' "$root/examples/exec/line.sh" >longer
	chmod +x longer
	run timeout 30 falcon-work --exec "exec ./longer" --try tiny/tiny.job
	same "status" "$status" 1
	has "$output" "its gradient has 276 bytes, not 272"
}

# ended_pid PID: whether there is no such process.
ended_pid() {
	! kill -0 "$1" 2>/dev/null
}

@test "falcon_train.py: a word's members come in any order, and may be new" {
	local word='{"do":"task","indices":[3,1,2],"of":{"later":[7]},"count":3}'
	/usr/bin/python3 -c '
import falcon_train
word = falcon_train._word()
assert list(word["indices"]) == [3, 1, 2] and word["count"] == 3, word
assert word["of"] == {"later": [7]}, word
' <<<"$word"
}

@test "falcon_train.py is one file of 280 lines with nothing but Python's own; examples are short" {
	local file most
	while read -r file most; do
		[ "$(wc -l <"$root/$file")" -le "$most" ] || {
			echo "$file: more than $most lines"
			return 1
		}
	done <<-'END'
		share/falcon_train.py 280
		examples/exec/fashion.py 30
		examples/exec/softmax.c 60
	END
	/usr/bin/python3 - "$root/share/falcon_train.py" <<-'END'
		import ast
		import sys

		names = set()
		with open(sys.argv[1]) as f:
		    for node in ast.walk(ast.parse(f.read())):
		        if isinstance(node, ast.Import):
		            names |= {name.name for name in node.names}
		        assert not isinstance(node, ast.ImportFrom), node.lineno
		assert names - sys.stdlib_module_names == {"numpy", "torch"}, names
	END
}

@test "what a trainer says last is heard before falcon-work ends" {
	local i ends=('refuse","why":"no such model here"' 'done","id":"1"')
	cat >never.py <<-'END'
		import falcon_train

		def gradient(task):
		    raise ValueError("bad \udc80")

		falcon_train.serve(gradient)
	END
	serve --min-workers 2
	run -1 falcon-work -k "$keys/work.key" --cache none \
		--exec 'exec /usr/bin/python3 never.py' "$ready"
	has "$output" "a task failed: ValueError: bad ?"
	has "$output" "trainer 0: it failed 3 times in a row; it is given up"
	for i in {1..6}; do
		run -1 falcon-work --try "${job[-1]}" --exec \
			"echo '{\"op\":\"hello\",\"protocol\":1}'; read a; read b; read c; echo '{\"op\":\"${ends[i % 2]}}'"
		has "$output" "trainer 0: "
		# Who has gone is not written to.
		run -1 falcon-work --try "${job[-1]}" --exec "echo '{\"op\":\"hello\",\"protocol\":1}'"
	done
}

@test "falcon_train.py: of an exception's text, however long, as much as tells what it is" {
	cat >long.py <<-'END'
		import sys

		import falcon_train

		def gradient(task):
		    raise ValueError("a\0" + sys.argv[1] * int(sys.argv[2]))

		falcon_train.serve(gradient)
	END
	for text in x é; do
		for n in 3 900 $((30000 + RANDOM * 4)); do
			run -1 falcon-work --try "${job[-1]}" --exec \
				"exec /usr/bin/python3 long.py $text $n 2>/dev/null"
			has "$output" "a task failed: ValueError: a?$text$text$text"
			[[ $output != *"standard output"* ]]
		done
	done
}

# Each NUL is a '?', as other controls are.
@test "stderr of a trainer: all of it, in pieces of 900 bytes, whatever bytes there are" {
	cat >bytes.py <<-'END'
		import os
		import random
		import sys

		draw = random.Random(int(sys.argv[1]))
		lines = [b"%d NULs" % n + b"\0" * n + b"end" for n in (1, 899, 5000)]
		for i in range(60):
		    size = draw.choice((0, 1, 2, 899, 900, 901, 1800, draw.randrange(20000)))
		    line = bytearray(draw.choices(b"falcon 1", k=size))
		    for _ in range(draw.choice((0, 1, 3, size)) if size else 0):
		        line[draw.randrange(size)] = draw.choice((0, 0, 9, 27))
		    lines.append(bytes(line))
		lines.append(b"end")
		with open("want", "wb") as f:
		    for line in lines:
		        line = bytes(c if c >= 32 else ord("?") for c in line)
		        for at in range(0, max(len(line), 1), 900):
		            f.write(b"falcon-work: trainer 0: %s\n" % line[at:at + 900])
		text = b"\n".join(lines) + b"\n" * draw.randrange(2)
		while text:
		    text = text[os.write(2, text[:draw.randrange(1, 9000)]):]
		sys.exit(3)
	END
	status=0
	(
		ulimit -f 20000 # KiB: it is not to fill the disk
		timeout -k 5 30 falcon-work --try tiny/tiny.job \
			--exec "exec /usr/bin/python3 bytes.py $SEED"
	) >out 2>got || status=$?
	same "status" "$status" 1
	has "$(<out)" "no: no hello: "
	diff <(grep -a "^falcon-work: trainer 0: " got) want | head -c 2000 >unlike
	same "unlike lines" "$(<unlike)" ""
	# A bar of progress, and lines of another system.
	run -1 timeout -k 5 10 falcon-work --try tiny/tiny.job \
		--exec "printf '\r 10%%\r 20%%' >&2; printf '\none\r\n\r\ntwo\r' >&2"
	same "lines" "$(grep -a "^falcon-work: trainer 0: " <<<"$output" | cut -c 25- | head -n 6)" \
		"$(printf '\n 10%%\n 20%%\none\n\ntwo')"
	# What came before lies behind it in memory.
	run -1 timeout -k 5 10 falcon-work --try tiny/tiny.job --exec "printf '\303\251\nx' >&2"
	has "$output" "falcon-work: trainer 0: é"
	has "$output" "falcon-work: trainer 0: x"
}

# figures: what the trace says of the metrics, but for clocks that were done twice.
figures() {
	jq -c 'select(.ev == "update" or .ev == "eval") | [.ev, .version, .metrics]' \
		"$state/trace.jsonl" | sort -u
}

# of_epoch FILTER: of the last epoch's line of falcon-stat --history --json.
of_epoch() {
	falcon-stat --json --history "$state" | jq -c -s ".[-1] | $1"
}

@test "a trainer's own metrics: the same sums from one worker, from three, and after a restart" {
	cat >own.py <<-'END'
		import math, random, time
		import falcon_train

		def gradient(task):
		    for grad in (task.grads or {}).values():
		        grad = grad.reshape(-1) if hasattr(grad, "reshape") else grad
		        for i in range(len(grad)):
		            grad[i] = task.count * 1e-3
		    places = [int(i) for i in task.indices]
		    time.sleep(random.random() * 0.01)
		    task.metric("picked", sum(places[1:]))
		    task.metric("picked", places[0])
		    if task.train:
		        task.metric("trained", task.count)
		    hole = math.inf if 17 in places else 1
		    return 0.5 * task.count, 1, {"third": sum(i / 3 for i in places), "hole": hole}

		falcon_train.serve(gradient)
	END
	job=(--set "job.metrics=picked third trained hole" --set job.epochs=3 --set state.clocks=1
		"${job[-1]}")
	serve
	trains one "/usr/bin/python3 own.py"
	judge own
	falcon-stat --audit "$state"
	figures >want
	same "epoch" "$(of_epoch .metrics.picked)" \
		'{"training":127.5,"training_sum":32640,"test":127.5,"test_sum":32640}'
	same "epoch" "$(of_epoch .metrics.hole)" \
		'{"training":null,"training_sum":null,"test":null,"test_sum":null}'
	same "result" "$(member metrics.trained | jq -c .)" \
		'{"training":1,"training_sum":64,"test":null,"test_sum":null}'
	same "result" "$(member metrics.third.test)" 42.5
	has "$(<ps.err)" ", picked 127.5 (sum 32640), test 127.5 (sum 32640), third 42.5 (sum 10880), test 42.5 (sum 10880), trained 1 (sum 256), test -, hole -, test -"
	run -0 falcon-stat "$state"
	has "$output" "trained: training 1 (sum 64), test -"
	run -0 falcon-stat --history "$state"
	has "$output" "picked"
	has "$output" "test_picked"
	run -0 falcon-stat --openmetrics "$state"
	has "$output" 'falcon_metric{run="tiny",metric="third",of="test_sum"} 10880'
	# A wrong figure in the result, and one too many.
	for wrong in .metrics.picked.test=1 'del(.metrics)' .metrics.more.test=1; do
		cp -r "$state" forged
		jq -c "$wrong" "$state/result.json" >forged/result.json
		run -1 falcon-stat --audit forged
		has "$output" "result.json: metrics are not what the trace says"
		rm -r forged
	done

	again
	serve --min-workers 3
	for name in a b c; do
		trains "$name" "/usr/bin/python3 own.py"
	done
	at_clock 4
	kill -KILL "$pid"
	judge own
	same "three workers" "$(figures)" "$(<want)"

	again
	at_unix
	trains one "/usr/bin/python3 own.py"
	at_clock $((RANDOM % 9 + 2))
	killed
	at_unix
	judge own
	same "restarted" "$(figures)" "$(<want)"
	same "restarted" "$(of_epoch .metrics.picked.training_sum)" 32640
	falcon-stat --audit "$state"
}

@test "metrics that the job does not name, and numbers of another job: said, by --try as well" {
	cat >few.py <<-'END'
		import sys
		import falcon_train

		def gradient(task):
		    if sys.argv[1] == "more":
		        task.metrics["more"] = 1
		        return 1, 0
		    return 1, 0, {sys.argv[1]: 1}

		falcon_train.serve(gradient)
	END
	run -1 falcon-work --try "${job[-1]}" --exec "exec /usr/bin/python3 few.py tokens"
	has "$output" "'tokens' is not among job.metrics of the job"
	run -1 falcon-work --try "${job[-1]}" --exec "exec /usr/bin/python3 few.py more"
	has "$output" "it has 1 metric, but the job 0"
	local line
	for line in "9 names: x x2 x3 x4 x5 x6 x7 x8 x9: 'x9' is one too many: a job has at most 8 metrics" \
		"twice: a a: 'a' stands there twice" \
		"a name: Top5: 'Top5' is not a name of at most 32 characters of a-z, 0-9 and _"; do
		run -2 falcon-ps --check --set "job.metrics=$(cut -d: -f2 <<<"$line" | cut -c2-)" "${job[-1]}"
		has "$output" "$(cut -d: -f3- <<<"$line" | cut -c2-)"
	done
}
