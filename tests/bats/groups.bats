# What is seen of group servers: falcon-stat at the coordinator above them, and at each.

bats_require_minimum_version 1.5.0

load common
load job
load tiny

setup_file() {
	for_file
	draw
	for group in one two three; do
		falcon-key add -K "$keys/keyring" "$group"
		falcon-key init "$BATS_FILE_TMPDIR/$group"
	done
	tiny "$BATS_FILE_TMPDIR/tiny"
}

setup() {
	for_test
	draw
	job=(--set job.epochs=100000 --set batch.task=$((RANDOM % 6 + 5))
		"$BATS_FILE_TMPDIR/tiny/tiny.job")
}

# group NAME: a group server at unix:NAME, below the coordinator; with $RULE by that.
group() {
	start "ps.$1" falcon-ps -K "$BATS_FILE_TMPDIR/$1/keyring" -l "unix:$1" -s "state.$1" \
		--upstream "$ready" -k "$keys/$1.key" \
		--scheme "${RULE:-epsp}" "${job[@]}"
	soon "$1" grep -q "listening on" "ps.$1.err"
}

# in_group GROUP NAME SPEED [LANES]: a worker of it, at this part of 8000 samples a second.
in_group() {
	local keys=$BATS_FILE_TMPDIR/$1 ready=unix:$1
	work "$2" --lanes "${4:-1}" --emulate "rate=8000,speed=$3,cores=${4:-1}"
}

# stat [OPTION...]: of the coordinator above, or of group $OF, each by the key of an observer
# there.
stat() {
	local at=$ready key=$keys/observe.key
	[ -z "${OF:-}" ] || at=unix:$OF key=$BATS_FILE_TMPDIR/$OF/observe.key
	timeout 90 falcon-stat -k "$key" "$@" "$at"
}

# shows JQ [OPTION...]: what falcon-stat says in JSON is so.
shows() {
	stat -j "${@:2}" >seen.json 2>seen.err && jq -e "$1" seen.json >jq.out
}

@test "groups are shown with the sums of their members, and each shows its own" {
	at_unix
	local lanes=$((RANDOM % 3 + 1))
	group one
	group two
	local two=$pid
	in_group one a 1/8 "$lanes"
	in_group one b 1/8
	in_group two c 1/8
	soon "all are seen" shows "[.workers[] | [.worker, .members, .lanes]] | sort ==
		[[\"one\", 2, $((lanes + 1))], [\"two\", 1, 1]]"
	soon "bytes between sites" shows '[.workers[] | .bytes_up > 0 and .bytes_down > 0] | all'
	stat >seen
	grep -qE "^GROUP +CLASS +CAUSE +MEMBERS +LANES +SAMPLES/S +MB_UP +MB_DOWN$" seen
	grep -qE "^one +[a-z]+ +[-a-z]+ +2 +$((lanes + 1)) +[0-9.]+ +[0-9.]+ +[0-9.]+$" seen
	OF=one soon "what one has given" shows '.samples > 0 and .updates > 0 and .above == "'"$ready"'"
		and ([.workers[].worker] | sort) == ["a", "b"]'
	OF=two stat >seen
	has "$(<seen)" "job: tiny, epsp, a group of $ready"
	grep -q "^c " seen
	OF=one stat --history >history
	# What they have told of themselves outlives the last 100 rounds.
	soon "clocks" shows '.clocks > 110 and ([.workers[].members] | sort) == [1, 2]'
	# One that has gone stays, as a worker does.
	kill -KILL "$two"
	soon "it is gone" shows '[.workers[] | select(.worker == "two")][0] | .left'
	stat | grep -qE "^two +left +- +1 +1 "
}

@test "a straggler is named at its level" {
	# Nobody above takes the tasks away that it is slow with.
	job=(--set sync.scheme=bsp "${job[@]}")
	at_unix
	# Slow enough that a busy machine makes nobody else one.
	RULE=bsp group one
	group two
	group three
	in_group one a 1/16
	in_group two c 1/16
	in_group three d 1/128
	soon "a group" shows 'any(.workers[]; .worker == "three" and .class == "straggler")'
	stat | grep -qE "^three +(straggler +compute|silent +-) +1 +1 "
	in_group one e 1/16
	in_group one b 1/128
	OF=one soon "a member" shows 'any(.workers[]; .worker == "b" and .class == "straggler")'
}

@test "falcon-proj: a straggling group by the trace above, its member by the group's" {
	# Nobody above takes the tasks away that it is slow with.
	job=(--set job.epochs=$((RANDOM % 3 + 5)) --set sync.scheme=bsp
		"$BATS_FILE_TMPDIR/tiny/tiny.job")
	serve_at unix:sock -w 3
	group one
	RULE=bsp group two
	group three
	in_group one a 1/16
	in_group three c 1/16
	in_group two b 1/64
	in_group two slowest 1/192
	wait "$ps"
	for name in one two three; do
		soon "$name ends" grep -q "done: the job is done" "ps.$name.err"
	done
	falcon-proj "$state/trace.jsonl" >report
	grep -qE "^two .*(straggler|slow at times) .*its own trace names whom$" report ||
		{ cat report && false; }
	falcon-proj -j "$state/trace.jsonl" | jq -e '.workers | map(select(.worker == "two"))[0] |
		.members == 2 and .class == "straggler" and .lanes_max == 2 and .cores == 2' >jq.out
	falcon-proj state.two/trace.jsonl >report
	has "$(head -n 1 report)" ", a group of $ready"
	grep -qE "^slowest (is a persistent straggler|is slow at times) " report ||
		{ cat report && false; }
	run ! grep -q "clock: \|(model)" report
	# What would be is asked of the level that decides.
	for ask in --what-if=bsp --policy; do
		run -2 falcon-proj "$ask" state.two/trace.jsonl
		has "$output" "state.two/trace.jsonl: a group server's trace cannot predict other schemes: "
	done
	falcon-proj --what-if 'bsp;epsp' "$state/trace.jsonl" >what.out
	grep -q "^3 workers\|: 3 workers," what.out
}

# With numerics = fast.  NEHALEM is OpenBLAS's name for kernels without AVX: they round differently.  (Those of
# older cores crash in OpenBLAS 0.3.34.)
odd() {
	OPENBLAS_CORETYPE=NEHALEM in_group "$@"
}

@test "numerics: a group whose members differ is impure, and named" {
	job=(--set job.numerics=fast "${job[@]}")
	at_unix
	# Either may be the first to join: the others are not held against an impure one.
	local first=one second=two
	[ $((RANDOM % 2)) = 0 ] || first=two second=one
	group one
	group two
	in_group "$first" "of-$first" 1/8
	soon "the first is there" shows '[.workers[].members] == [1]'
	in_group "$second" "of-$second" 1/8
	soon "both are there" shows '[.workers[].members] == [1, 1]'
	shows '.numerics == "identical"'
	odd two d 1/8
	soon "it is named" shows '.impure == ["two"] and .differ == ["two"] and
		([.workers[] | select(.worker == "two" and .members == 2 and (.left | not))] |
		length) == 1'
	has "$(stat)" "numerics: differ: two (impure)"
	has "$(<ps.two.err)" "its members do not all compute the same bits; trying again"
	OF=two soon "and who of it" shows '.differ | length == 1'
	# It stays so: once is enough, and nothing goes back and forth.
	kill -KILL "$pid"
	soon "one has gone" shows '[.workers[] | select(.worker == "two" and .members == 1)] |
		length == 1'
	shows '.impure == ["two"]'
	same "times that it joined" "$(grep -c "joined as one worker" ps.two.err)" 2
}

@test "numerics: groups of other CPUs are alike" {
	at_unix
	group one
	group two
	in_group one a 1/8
	WORKER=$bin/tests/falcon-work-avx2 in_group two c 1/8
	soon "both are there" shows '[.workers[].members] == [1, 1]'
	shows '.numerics == "identical"'
}

@test "numerics: a trainer that gives other bits each time makes its group impure" {
	export PYTHONPATH=$root/tests/hostile/bare:$root/share PYTHONDONTWRITEBYTECODE=1
	at_unix
	group one
	group two
	in_group one a 1/8
	# Its worker beside it is pure.
	in_group two c 1/8
	soon "both are there" shows '[.workers[].members] == [1, 1]'
	badly() {
		local keys=$BATS_FILE_TMPDIR/two ready=unix:two
		TRAINER_LOG=$BATS_TEST_TMPDIR/log work bad --lanes 1 \
			--exec "exec /usr/bin/python3 '$root/tests/hostile/trainer.py' impure $SEED"
	}
	badly
	soon "it is named" shows '.impure == ["two"]'
	OF=two soon "and who of it" shows '.impure == ["bad"]'
}

@test "another build, a key of elsewhere, of another role: a line each" {
	[ -x "$bin/tests/protocol/falcon-ps" ] # make check builds other versions
	at_unix
	falcon-key init "$BATS_TEST_TMPDIR/other"
	falcon-key add -K "$BATS_TEST_TMPDIR/other/keyring" one
	# says STATUS WHAT PROGRAM OPTION...: of a group server.
	says() {
		local code=$1 want=$2
		run timeout 30 "$3" -K "$BATS_FILE_TMPDIR/one/keyring" -l unix:odd -s state.odd \
			--upstream "$ready" "${@:4}" "${job[@]}"
		same "exit status: $output" "$status" "$code"
		same "lines of $output" "$(grep -c "^falcon-ps: .*$want" <<<"$output")" 1
	}
	says 1 "it is Falcon .*, we are Falcon 9.9.9 with protocol 10.1" \
		"$bin/tests/protocol/falcon-ps" -k "$keys/one.key"
	says 77 "key does not match, or ours is not in its keyring" falcon-ps \
		-k "$BATS_TEST_TMPDIR/other/one.key"
	for role in observe control shard; do
		says 77 "a key of role $role may not work" falcon-ps -k "$keys/$role.key"
	done
}
