# A worker's life: whom it believes, when it gives up, and that nothing holds it up.

bats_require_minimum_version 1.5.0

load common
load job
load tiny

setup_file() {
	for_file
	falcon-key init "$BATS_FILE_TMPDIR/other"
}

setup() {
	for_test
	tiny tiny
	job=(tiny/tiny.job)
}

teardown() {
	stop_all
	no_hosts
}

# command_file NAME: an executable file NAME, which notes each of its runs in NAME.runs and
# then does what standard input says.
command_file() {
	: >"$1.runs"
	{
		printf '#!/bin/sh\necho run >>%s.runs\nrun=$(wc -l <%s.runs)\n' "$1" "$1"
		# Takes the worker's first message and leaves in order, as a coordinator that
		# refuses it.
		echo 'refuse() { dd bs=512 count=1 of=/dev/null 2>/dev/null; exit; }'
		cat
	} >"$1"
	chmod +x "$1"
}

# through NAME FILE [OPTION...]: a worker that connects through a command.
through() {
	local name=$1 file=$2
	shift 2
	start "$name" falcon-work -k "$keys/work.key" -n "$name" --cache none "$@" \
		"exec:./$file"
}

@test "a handshake that is dropped in a crowd is tried again" {
	serve
	command_file crowd <<-END
		[ "\$run" -gt 3 ] || refuse
		exec socat STDIO TCP:$ready
	END
	through patient crowd
	ended "$pid" patient
	same "runs" "$(wc -l <crowd.runs)" 4
	wait "$ps"
	# A real machine's probe: eight tasks at once take longer than one and, of a model
	# that fits any cache, not much longer than eight.
	jq -se 'map(select(.ev == "join"))[0] | .large == 64 and .task_s > 0 and
		.large_s > .task_s and .large_s < 30 * .task_s' "$state/trace.jsonl"
}

@test "77 comes only after refusals alone, 75 when nobody was reached" {
	command_file refuses <<<'refuse'
	command_file fails <<<'exit 1'
	command_file either <<<'[ $((run % 3)) -ne 0 ] && refuse; exit 1'
	# Carries the handshake, and what the coordinator says, but nothing more to it.
	serve
	command_file swallows <<-END
		{ head -c 102; exec cat >/dev/null; } | socat STDIO TCP:$ready
	END
	through refused refuses
	local refused=$pid
	through unreached fails --give-up 4
	local unreached=$pid
	through unheard swallows --give-up 4
	local unheard=$pid
	through unsure either --give-up 4
	local unsure=$pid began=$SECONDS
	ended "$refused" refused 77
	[ $((SECONDS - began)) -ge 2 ] || same "seconds" $((SECONDS - began)) "3"
	[ "$(wc -l <refuses.runs)" -ge 2 ] || same "runs" "$(wc -l <refuses.runs)" "2 or more"
	same "lines" "$(grep -c . refused.err)" 1
	ended "$unreached" unreached 75
	ended "$unsure" unsure 75
	ended "$unheard" unheard 75
	has "$(<unheard.err)" "no answer in time"
}

@test "a job that fails is no refusal" {
	# Each step multiplies the parameters by -999.
	serve --set optimizer.lr=1000 --set optimizer.weight-decay=1 --set job.epochs=20
	work reader
	ended "$pid" reader 1
	same "lines ($(cat reader.err))" "$(grep -c . reader.err)" 2
	has "$(cat reader.err)" "refused: diverged"
}

@test "a local copy that is slow to read holds nothing up" {
	mkfifo slow.fifo
	sed -i 's/^test-images = .*/test-images = more/' tiny/tiny.job
	cp tiny/images tiny/more
	mkdir copy
	cp tiny/labels tiny/more copy
	ln -s ../slow.fifo copy/images
	serve
	work reader -v --data copy
	local reader=$pid
	soon "the job's texts" grep -q "job tiny needs" reader.err
	work quick --data tiny
	ended "$pid" quick
	wait "$ps"
	soon "word of the end" grep -q "done: the job is done" reader.err
	kill -0 "$reader"
	cat tiny/images >slow.fifo
	ended "$reader" reader
}

@test "data that are not the job's: one line beside the need, status 2" {
	serve
	cp -r tiny wrong
	printf 'x' | dd of=wrong/images bs=1 seek=100 conv=notrunc status=none
	work wrong --data wrong
	ended "$pid" wrong 2
	same "lines ($(cat wrong.err))" "$(grep -c . wrong.err)" 2
	has "$(cat wrong.err)" "falcon-work: wrong: not the training data of the job"
	soon "the coordinator's word" grep -q "wrong left: it cannot work: wrong: not the" ps.err
}

# Renaming a new file of the cache waits until somebody reads the FIFO that $GATE names.
gate() {
	cat >gate.c <<-'END'
		#define _GNU_SOURCE
		#include <dlfcn.h>
		#include <fcntl.h>
		#include <stdio.h>
		#include <stdlib.h>
		#include <unistd.h>
		int
		rename(const char *from, const char *to)
		{
			int (*real)(const char *, const char *) = dlsym(RTLD_NEXT, "rename");
			close(open(getenv("GATE"), O_WRONLY));
			return real(from, to);
		}
	END
	cc -shared -fPIC -o gate.so gate.c -ldl
	mkfifo gate
}

@test "a cache that is slow to write holds nothing up" {
	gate
	serve
	start keeper env GATE="$PWD/gate" LD_PRELOAD=./gate.so \
		ASAN_OPTIONS=verify_asan_link_order=0 \
		falcon-work -k "$keys/work.key" -n keeper --cache cache "$ready"
	local keeper=$pid
	soon "word of the end" grep -q "done: the job is done" keeper.err
	wait "$ps"
	same "files in the cache" "$(find cache -type f ! -name '.new-*' | wc -l)" 0
	kill -0 "$keeper"
	exec 5<>gate
	ended "$keeper" keeper
	exec 5>&-
	# Images and labels of both sets are the same: one chunk.
	same "files in the cache" "$(find cache -type f | wc -l)" 1
	# From now on it is read; what is fetched would be a new file.
	local file inode
	file=$(find "$PWD/cache" -type f)
	inode=$(stat -c %i "$file")
	rm -r ps.ready state
	serve
	start again falcon-work -k "$keys/work.key" -n again --cache cache "$ready"
	ended "$pid" again
	wait "$ps"
	same "the file" "$(stat -c %i "$file")" "$inode"
}

# overlap NAME: of what the worker of this name said of what went on side by side, tasks
# that began early, and tasks.
overlap() {
	sed -n 's/.*overlap: \([0-9]*\) of \([0-9]*\) tasks began before all of their version was here.*/\1 \2/p' "$1.err"
}

# Two hosts, as network namespaces with a line between them that takes some 90 ms for the
# model's 1.1 MB.
@test "over a line tasks begin before their version is whole" {
	two_hosts
	local host
	for host in "$here" "$there"; do
		tc -n "$host" qdisc add dev cable root tbf rate 100mbit burst 32kb \
			latency 400ms || skip "no slow lines here"
	done
	draw
	local wide=320 one tasks lanes size begun all sha
	! watched || wide=64
	printf 'input 16\ndense 200\nrelu\n' >deep.model
	for _ in 1 2 3; do printf 'dense %d\nrelu\n' $wide; done >>deep.model
	echo 'dense 4' >>deep.model
	drawn 1 2 && tasks=$one
	drawn 1 2 && lanes=$one
	drawn 128 256 && size=$one
	job=(--set model.file="$PWD/deep.model" --set batch.size="$size"
		--set batch.task=$((size / tasks)) --set job.epochs=$((20 * size / 256))
		--set sync.scheme=bsp --set job.eval=never tiny/tiny.job)
	drawn 1 2 3 4
	start_ready ps ip netns exec "$here" falcon-ps -jx -K "$keys/keyring" \
		-l 192.0.2.1:0 -s "$state" --shards "$one" "${job[@]}"
	ps=$pid
	start far ip netns exec "$there" falcon-work -v -k "$keys/work.key" -n far \
		--cache none --lanes "$lanes" "$ready"
	ended "$pid" far
	ended "$ps" ps
	falcon-stat --audit "$state/trace.jsonl"
	sha=$(member sha256)
	read -r begun all < <(overlap far)
	echo "$begun of $all tasks"
	same "tasks" "$all" $((20 * tasks))
	[ "$tasks" -gt 1 ] || [ "$begun" -gt 0 ]
	# Where the coordinator is, that is not worth it.
	again
	drawn 1 2 3 4
	serve --shards "$one"
	work near -v --lanes "$lanes"
	ended "$pid" near
	wait "$ps"
	same "near" "$(overlap near)" "0 $all"
	same "the model" "$(member sha256)" "$sha"
}

@test "a worker on a CPU without AVX2: both sides say so at once" {
	command -v qemu-x86_64-static || skip "no qemu-x86_64-static"
	serve
	start weak qemu-x86_64-static -cpu Nehalem "$(command -v falcon-work)" \
		-k "$keys/work.key" -n weak --cache none "$ready"
	ended "$pid" weak 1
	has "$(<weak.err)" "the CPU lacks AVX2: the layers need x86-64 with AVX2 and FMA"
	soon "the coordinator's word" grep -q \
		"tiny: weak left: it cannot work: the CPU lacks AVX2: .*: 0 here" ps.err
	work able
	ended "$pid" able
	ended "$ps" ps
	falcon-stat --audit "$state"
}

# Killed in mid-work; the last one ends in order, which is no fall.
@test "a worker that falls again and again is counted and named in falcon-stat and falcon-proj" {
	local i text
	job=(--set job.epochs=60 tiny/tiny.job)
	serve
	work once --lanes 1 --emulate rate=2000
	kept=$pid
	for i in 1 2 3; do
		slow shaky 1/4 2000
		soon "its coming" lines "$i" '"ev":"join","worker":"shaky"'
		kill -KILL "$pid"
		soon "its fall" lines "$i" '"fell":true'

	done
	slow shaky 1/4 2000
	soon "its coming" lines 4 '"ev":"join","worker":"shaky"'
	kill -TERM "$pid"
	wait "$pid"
	kill -KILL "$kept"
	work last --lanes 1
	judge falls
	same "falls" "$(falcon-stat -j "$state/trace.jsonl" |
		jq -r '.workers[] | "\(.worker) \(.falls)"' | sort | xargs)" "last 0 once 1 shaky 3"
	text=$(falcon-stat "$state/trace.jsonl" | grep " fell ")
	[[ $text =~ ^"shaky fell 3 times, "[0-9]+" s of work lost"$ ]]
	same "falcon-proj" "$(falcon-proj "$state/trace.jsonl" | grep " fell ")" "$text"
	same "its JSON" "$(falcon-proj -j "$state/trace.jsonl" |
		jq -r '.workers[] | select(.worker == "shaky").falls')" 3
}

@test "a worker has the name of its key, or the one that it is given" {
	falcon-key add -K "$keys/keyring" lab7
	serve --min-workers 2
	start keyed falcon-work -k "$keys/lab7.key" --cache none "$ready"
	start named falcon-work -k "$keys/lab7.key" --cache none -n other "$ready"
	wait "$ps"
	same "names" "$(jq -r 'select(.ev == "join").worker' "$state/trace.jsonl" | sort | xargs)" \
		"lab7 other"
}

@test "--stay: the worker is there for the next job, and a signal or a drain ends it" {
	at_unix --set job.epochs=1
	start stays falcon-work -k "$keys/work.key" --cache none --stay "unix:sock"
	local worker=$pid
	ended "$ps" ps
	state=$BATS_TEST_TMPDIR/second
	at_unix --set job.epochs=2
	ended "$ps" ps
	same "jobs done" "$(grep -c "done: " stays.err)" 2
	kill -0 "$worker"
	kill -TERM "$worker"
	ended "$worker" stays
	state=$BATS_TEST_TMPDIR/third
	at_unix --set job.epochs=100000
	start drained falcon-work -k "$keys/work.key" --cache none --stay "unix:sock"
	worker=$pid
	soon "a worker" grep -q '"ev":"join"' "$state/trace.jsonl"
	falcon-sync -k "$keys/control.key" "$ready" drain work
	ended "$worker" drained
}

@test "--bench: samples a second without a coordinator, by the net and by a trainer" {
	run -0 falcon-work --bench --lanes 2 tiny/tiny.job
	[[ $output =~ ([0-9]+)" samples/s: 2 lanes, "[0-9.e-]+" ms a task of 8 samples; " ]]
	[ "${BASH_REMATCH[1]}" -gt 100 ]
	cc -O2 -DINPUTS=16 -DCLASSES=4 -o softmax "$root/examples/exec/softmax.c" -lm
	# A trainer that sleeps 0.1 s a task computes ten tasks a second.
	cat >slow.py <<-'END'
		import time

		import falcon_train

		def gradient(task):
		    time.sleep(0.1)
		    return task.count, 0

		falcon_train.serve(gradient)
	END
	export PYTHONPATH=$root/share PYTHONDONTWRITEBYTECODE=1
	run -0 falcon-work --bench --exec "exec ./softmax" tiny/tiny.job
	has "$output" " samples/s: 1 lane, "
	run -0 falcon-work --bench --exec "exec /usr/bin/python3 slow.py" tiny/tiny.job
	[[ $output =~ ([0-9]+)" samples/s: 1 lane" ]]
	[ "${BASH_REMATCH[1]}" -le 81 ]
	[ "${BASH_REMATCH[1]}" -ge 40 ]
	run -2 falcon-work --bench none.job
	run -1 falcon-work --bench --exec false tiny/tiny.job
}
