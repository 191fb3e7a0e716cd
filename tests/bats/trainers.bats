# What a whole job asks of trainers, and they of it: their environment, whose results are
# compared, a clock in which nobody has a finite gradient.

load common
load job
load tiny

setup_file() {
	for_file
	falcon-key add -K "$keys/keyring" other
	falcon-key add -K "$keys/keyring" odd
	cc -O2 -DINPUTS=16 -DCLASSES=4 -o "$BATS_FILE_TMPDIR/softmax" "$root/examples/exec/softmax.c" -lm
	# Its fixed task has other bits, and each other one, too.
	cc -O2 -DINPUTS=16 -DCLASSES=4 -Dexp=exp2 -o "$BATS_FILE_TMPDIR/base2" \
		"$root/examples/exec/softmax.c" -lm
}

setup() {
	for_test
	tiny "$BATS_TEST_TMPDIR/tiny"
	job=(--set job.epochs=10 "$BATS_TEST_TMPDIR/tiny/tiny.job")
	draw
	softmax="'$BATS_FILE_TMPDIR/softmax'" base2="'$BATS_FILE_TMPDIR/base2'" # as a shell takes them
	trainer="/usr/bin/python3 '$root/tests/hostile/trainer.py'"
	export PYTHONPATH=$root/tests/hostile/bare:$root/share PYTHONDONTWRITEBYTECODE=1 TRAINER_LOG=$BATS_TEST_TMPDIR/log
}

# trains NAME COMMAND [OPTION...]: a worker with this trainer.
trains() {
	local name=$1 command=$2
	shift 2
	work "$name" --exec "exec $command" "$@"
}

@test "trainers that round differently: one line says what the model then depends on" {
	serve --min-workers 2
	trains a "$softmax"
	KEY=other trains b "$base2"
	ended "$ps" ps
	same "lines ($(<ps.err))" "$(grep -cE ": (a|b) \(trainer .*\) rounds otherwise than (a|b) \(trainer .*\): the model depends on who has which task; see falcon-gradient\(7\), NUMERICS$" ps.err)" 1
	has "$(falcon-stat "$state/trace.jsonl")" "numerics: differ: "
}

# count JQ: lines of the trace of which this is true.
count() {
	jq -c "select($1)" "$state/trace.jsonl" | wc -l
}

@test "a trainer in a virtual environment: activated, or by its path; and not without it" {
	/usr/bin/python3 -m venv --without-pip env 2>venv.err ||
		skip "no virtual environments: $(tail -n 1 venv.err)"
	# All that it needs is there.
	unset PYTHONPATH
	cp "$root/share/falcon_train.py" "$(env/bin/python3 -c \
		'import sysconfig; print(sysconfig.get_path("purelib"))')"
	{
		echo 'import os, sys'
		echo 'print("prefix:", os.path.realpath(sys.prefix), file=sys.stderr)'
		cat "$root/tests/hostile/trainer.py"
	} >train.py
	serve
	# shellcheck disable=SC1091 # it was made above
	. env/bin/activate
	trains active "python3 train.py well"
	deactivate
	judge venv
	has "$(cat active.err)" "prefix: $(realpath env)"
	again
	serve
	trains path "env/bin/python3 train.py well"
	judge venv
	has "$(cat path.err)" "prefix: $(realpath env)"
	run falcon-work --exec "exec /usr/bin/python3 train.py well" --try tiny/tiny.job
	same "status" "$status" 1
	has "$output" "No module named 'falcon_train'"
}

@test "verify: trainers of equal bits are compared, and who gets one wrong is told of" {
	job=(--set job.verify=100% --set job.epochs=30 "${job[@]:2}")
	serve --min-workers 2
	trains a "$softmax"
	KEY=other trains b "$softmax"
	judge verified
	count '.ev == "ledger" and .verified[1] > 0' | grep -qv '^0$'
	same "what differs" "$(count '.ev == "verify"')" 0
	again
	serve --min-workers 3
	trains a "$softmax"
	KEY=other trains b "$softmax"
	KEY=odd trains odd "$softmax" --emulate rate=1e6,flip=0.05
	wait "$ps"
	same "one of the two" "$(jq -r 'select(.ev == "verify").words | any(.worker == "odd")' \
		"$state/trace.jsonl" | sort -u)" true
	same "who left" "$(count '.ev == "leave"')" 0
}

# unlike COMMAND: a and b have equal bits, the third one, of another key, has others for each
# task; they are compared with nobody's.  That it is slower has tasks run twice.
unlike() {
	again
	serve --min-workers 3
	trains a "$softmax" --emulate rate=2000
	KEY=other trains b "$softmax" --emulate rate=2000
	KEY=odd trains odd "$1" --emulate rate=2000,speed=1/2
	wait "$ps" || {
		cat ./*.err
		return 1
	}
	falcon-stat --audit "$state/trace.jsonl"
	same "what differs" "$(count '.ev == "verify"')" 0
	same "charges" "$(count '.ev == "charge"')" 0
	has "$(falcon-stat "$state/trace.jsonl")" "numerics: differ: "
	echo "tasks run twice: $(jq -s '[.[] | select(.ev == "ledger").clone[]] | length' "$state/trace.jsonl")"
	# Its tasks count, too.
	count '.ev == "ledger" and .verified[1] > 0' | grep -qv '^0$'
	jq -se '([.[] | select(.ev == "join" and .worker == "odd").id][0]) as $odd |
		any(.[] | select(.ev == "ledger").contrib[]; .c[0] == $odd and (.fenced | not))' \
		"$state/trace.jsonl"
}

@test "verify: whoever computes otherwise, or each time otherwise, is compared with nobody" {
	# Not what they say of the test set, where unlike programs contradict each other.
	job=(--set job.verify=100% --set job.epochs=6 --set job.eval=never "${job[@]:2}")
	unlike "$base2"
	unlike "$trainer impure $SEED"
}

@test "a clock in which nobody has a finite gradient steps nothing, and is in ledger and audit" {
	job=(--set job.nonfinite=skip --set job.epochs=3 --set optimizer.kind=adamw
		--set optimizer.lr=0.01 "${job[@]:2}")
	serve
	trains alone "$trainer blank $SEED"
	judge blank
	same "tasks skipped" "$(member skipped)" 8
	has "$(falcon-stat --audit "$state/trace.jsonl")" ", skipped 8"
	same "samples" "$(falcon-stat -j "$state/trace.jsonl" | jq .samples)" $((11 * 64))
	same "clocks without a sample" "$(count '.ev == "ledger" and .skipped == [[0, 8]] and
		all(.contrib[]; .fenced)')" 1
	# It has a version, which is the one before it, though with momentum it would step on.
	jq -se '[.[] | select(.ev == "update")] | [., .[1:]] | transpose | map(select(.[1] != null)) |
		[.[] | select(.[1].samples == 0)] | length == 1 and (.[0] | .[1].loss == null and
		(.[1] | has("divisor") | not) and .[1].version == .[0].version + 1 and
		.[1].hash == .[0].hash and .[1].exponents == .[0].exponents)' "$state/trace.jsonl"
	same "versions" "$(count '.ev == "update"')" 12
	again
	serve --min-workers 3
	trains a "$trainer blank $SEED"
	trains b "$trainer blank $SEED" --lanes 2
	KEY=other trains c "$trainer blank $SEED"
	judge blank
	same "tasks skipped" "$(member skipped)" 8
}

# Of a stream that is at its end poll(2) tells again and again, for nothing.
@test "a trainer whose standard error is elsewhere costs falcon-work no time" {
	local was
	start w falcon-work -k "$keys/work.key" --cache none \
		--exec "exec $softmax 2>elsewhere" "unix:$PWD/nobody"
	ticks() { awk '{ print $14 + $15 }' "/proc/$pid/stat"; }
	begun() { pgrep -P "$pid" softmax; }
	soon "a trainer" begun
	was=$(ticks)
	sleep 2 # a core has 100 ticks a second
	echo "# $(($(ticks) - was)) ticks"
	[ $(($(ticks) - was)) -lt 40 ]
}

@test "a trainer that reads no more is started again" {
	cat >deaf.py <<-'END'
		import os, sys, time
		sys.stdin.readline()
		os.close(0)
		print('{"op":"hello","protocol":1,"samples":true}', flush=True)
		time.sleep(1000)
	END
	serve
	trains deaf "/usr/bin/python3 deaf.py"
	soon "what it did" grep -q "trainer 0: it closed its standard input; it starts again" deaf.err
}

@test "two unlike trainers at 1 : 20 in one job: of what both can, 95 per cent is useful" {
	# Sleep takes no core: a sample takes so many ms, and the gradient does not depend on it.
	cat >sleeps.py <<-'END'
		import sys
		import time

		import falcon_train

		free = time.monotonic()

		def gradient(task):
		    global free
		    free = max(free, time.monotonic() - 0.02) + task.count * float(sys.argv[1])
		    time.sleep(max(0, free - time.monotonic()))
		    for grad in (task.grads or {}).values():
		        for i in range(len(grad)):
		            grad[i] = 0
		    return task.count, 0

		falcon_train.serve(gradient, has={"pure": False})
	END
	printf '{"w":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}}' >header
	perl -e 'undef $/; my $h = <>; print pack("Q<", length $h), $h, pack("f<3", 1, 2, 3)' header >init
	cat >unlike.job <<-'END'
		[job]
		name = unlike
		seed = 1
		epochs = 1
		eval = never
		[model]
		init = init
		[data]
		format = index
		samples = 8000
		[batch]
		size = 1000
		task = 8
		tail = 0.25
		tail-task = 1
		[optimizer]
		kind = sgd
		lr = 0.01
		[sync]
		scheme = epsp
	END
	job=(unlike.job)
	serve --min-workers 2
	trains fast "/usr/bin/python3 sleeps.py 0.0025"
	trains slow "/usr/bin/python3 sleeps.py 0.05"
	wait "$ps"
	falcon-stat --audit "$state/trace.jsonl"
	falcon-stat "$state/trace.jsonl"
	# 400 and 20 samples a second; in the first clock speeds are learnt.
	jq -es '[.[] | select(.ev == "update")] | (last.t - .[1].t) as $s |
		(length - 2) * 1000 / $s / 420 | stderr | . >= 0.95 and . < 1.05' "$state/trace.jsonl"
	jq -es 'any(.[]; .ev == "clock" and .worker == "slow" and .done > 0)' "$state/trace.jsonl"
}
