# What is seen of group servers: falcon-stat at the coordinator above them, and through it.

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
	falcon-key add -K "$BATS_FILE_TMPDIR/one/keyring" three
	tiny "$BATS_FILE_TMPDIR/tiny"
	look_for_long
}

teardown_file() {
	stop_all
}

# A look that does not come to its end within a minute goes on beside the tests.
look_for_long() {
	local job=(--set job.epochs=100000 "$BATS_FILE_TMPDIR/tiny/tiny.job")
	has_cryptography || return 0
	serve -w 2
	start slowly /usr/bin/python3 "$root/tests/hostile/group.py" "$keys/three.key" "$ready" \
		slowly "$state/trace.jsonl"
	soon "it is there" shows '[.workers[].members] == [1]'
	start look sh -c 'falcon-stat -k "$1" -g three "$2"; echo $? >look.code' - \
		"$keys/observe.key" "$ready"
}

setup() {
	for_test
	draw
	job=(--set job.epochs=100000 --set batch.task=$((RANDOM % 6 + 5))
		"$BATS_FILE_TMPDIR/tiny/tiny.job")
}

# group NAME [UP]: a group server at unix:NAME, below the coordinator, or group UP; with $RULE
# by that.
group() {
	local up=$ready from=$keys
	[ -z "${2:-}" ] || up=unix:$2 from=$BATS_FILE_TMPDIR/$2
	start "ps.$1" falcon-ps -K "$BATS_FILE_TMPDIR/$1/keyring" -l "unix:$1" -s "state.$1" \
		--upstream "$up" -k "$from/$1.key" \
		--scheme "${RULE:-epsp}" "${job[@]}"
	soon "$1" grep -q "listening on" "ps.$1.err"
}

# in_group GROUP NAME SPEED [LANES]: a worker of it, at this part of 8000 samples a second.
in_group() {
	local keys=$BATS_FILE_TMPDIR/$1 ready=unix:$1
	work "$2" --lanes "${4:-1}" --emulate "rate=8000,speed=$3,cores=${4:-1}"
}

# stat [OPTION...]: of the coordinator above, by the key of an observer there.
stat() {
	local most=90 # more than the minute that a look may take
	! sanitized || most=150
	timeout "$most" falcon-stat -k "$keys/observe.key" "$@" "$ready"
}

# shows JQ [OPTION...]: what falcon-stat says in JSON is so.
shows() {
	stat -j "${@:2}" >seen.json 2>seen.err && jq -e "$1" seen.json >jq.out
}

@test "groups are shown with the sums of their members, and looked through" {
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
	# Each with its own table, which is that of its own observers.
	soon "what one has given" shows '.samples > 0 and .updates > 0 and .above == "'"$ready"'"
		and ([.workers[].worker] | sort) == ["a", "b"]' -g one
	falcon-stat -k "$BATS_FILE_TMPDIR/one/observe.key" -j unix:one >own.json
	same "workers" "$(jq -c '[.workers[].worker] | sort' own.json)" \
		"$(jq -c '[.workers[].worker] | sort' seen.json)"
	stat -g two >seen
	has "$(<seen)" "job: tiny, epsp, a group of $ready"
	grep -q "^c " seen
	# It need not be reached.
	rm two
	stat -g two | grep -q "^c "
	stat -g one --history >history
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
	soon "a member" shows 'any(.workers[]; .worker == "b" and .class == "straggler")' -g one
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
		has "$output" "state.two/trace.jsonl: the trace of a group server: "
	done
	falcon-proj --what-if 'bsp;epsp' "$state/trace.jsonl" >what.out
	grep -q "^3 workers\|: 3 workers," what.out
}

@test "lines of a group as they come, and through two levels" {
	at_unix
	group one
	group three one
	in_group three d 1/8
	soon "three is there" shows '[.workers[].worker] == ["d"]' -g one/three
	stat -g one | grep -qE "^three +[a-z]+ +[-a-z]+ +1 +1 "
	start follow falcon-stat -k "$keys/observe.key" -f -g one/three "$ready"
	soon "lines" grep -q '"end":"given"' follow.out
	local n
	n=$(wc -l <follow.out)
	soon "more lines" eval "[ \$(wc -l <follow.out) -gt $n ]"
	kill -INT "$pid"
	wait "$pid"
	jq -es '.[0].ev == "job"' follow.out >jq.out
	run -2 stat -g one/two
	same said "$output" "falcon-stat: $ready: group one: group two: nobody of this name is \
here, or may come"
}

@test "who may not look, and what cannot be seen: a line each" {
	at_unix
	group one
	in_group one a 1/8
	slow beside 1/8
	soon "both are there" shows '[.workers[].worker] | sort == ["beside", "one"]'
	says() {
		local code=$1 want=$2
		shift 2
		run timeout 30 falcon-stat "$@"
		same "exit status of $*: $output" "$status" "$code"
		same "lines" "$(grep -c "^falcon-stat: .*$want" <<<"$output")" 1
	}
	local as=(-k "$keys/observe.key")
	says 77 "a key of role work may not send LOOK" -k "$keys/work.key" -g one "$ready"
	# A key of the group opens nothing above, and one of above nothing below.
	says 77 "$ready: " -k "$BATS_FILE_TMPDIR/one/observe.key" -g one "$ready"
	says 77 "unix:one: " "${as[@]}" unix:one
	says 2 "group beside: it is a worker, and no group server" "${as[@]}" -g beside "$ready"
	says 2 "group four: nobody of this name" "${as[@]}" -g four "$ready"
	says 75 "group two: it is not here now" "${as[@]}" -g two "$ready"
	for odd in / one/ /one one//a "one a" a/b/c/d/e "$(bytes 64 x)" "$(bytes 256 a/b)"; do
		says 2 "no name of a group" "${as[@]}" -g "$odd" "$ready"
	done
	says 2 "group needs an address" "${as[@]}" -g one "$state"
	says 2 "several traces are for --audit alone" "${as[@]}" -g one "$ready" "$ready"
}

@test "a group server that hangs, and one that is gone, cost the look alone" {
	at_unix
	group one
	group two
	local two=$pid
	in_group one a 1/8
	in_group two c 1/8
	soon "both are there" shows '[.workers[].members] == [1, 1]'
	kill -STOP "$two"
	run -75 --separate-stderr stat -g two
	same said "$stderr" "falcon-stat: $ready: group two: it does not answer within 4 s"
	stat -g one | grep -q "^a "
	stat -g two 2>gone.err &
	local look=$!
	read -r -t 0.3 <> <(:) || :
	kill -KILL "$two"
	local code=0
	wait "$look" || code=$?
	same "exit status" "$code" 75
	grep -qE "group two: it (is gone|does not answer within 4 s)$" gone.err
}

@test "a group server that lies and floods" {
	needs_cryptography
	serve -w 3
	local name=one
	# odd MODE STATUS WHAT: the group server's trace is of this kind.
	odd() {
		start "$1" /usr/bin/python3 "$root/tests/hostile/group.py" "$keys/$name.key" \
			"$ready" "$1" ${4:+"$4"}
		local is=$pid
		soon "it is there" shows '[.workers[] | select(.left | not) | .members] == [1]'
		run -"$2" --separate-stderr stat -g "$name"
		has "$stderr" "$3"
		same "lines" "${#stderr_lines[@]}" 1
		! grep -q $'\e' <<<"$stderr$output" || return 1
		[ "$1" != line ] || {
			run --separate-stderr stat -f -g "$name"
			! grep -q $'\e' <<<"$stderr$output" || return 1
		}
		kill -KILL "$is" 2>kill.err || :
		soon "it is gone" shows '[.workers[].left] | all'
	}
	odd garbage 2 "group one:1: "
	odd line 2 "group one:1: "
	odd trickle 75 "group one: it does not answer within 4 s"
	odd why 1 "group one: ?[2Jso there so there"
	# 64 MiB of it: with a sanitizer, longer than an observer may take.
	sanitized || odd endless 1 "group one: its trace is longer than can be" "$state/trace.jsonl"
	# With a sanitizer what nobody has asked for is asked for before it comes.
	# Whoever looks must not be as fast: then it is not more than was asked for.
	sanitized || {
		start flood /usr/bin/python3 "$root/tests/hostile/group.py" "$keys/$name.key" \
			"$ready" flood "$state/trace.jsonl"
		local is=$pid code=0
		soon "it is there" shows '[.workers[] | select(.left | not) | .members] == [1]'
		start look falcon-stat -k "$keys/observe.key" -f -g "$name" "$ready"
		local look=$pid
		soon "its first line" [ -s look.out ]
		kill -STOP "$look"
		: >go
		soon "it is refused" grep -q "one: refused: sends more of its trace than was asked for" ps.err
		kill -CONT "$look"
		wait "$look" || code=$?
		same "exit status" "$code" 75
		grep -q "group one: it is gone" look.err
		same "lines" "$(wc -l <look.err)" 1
		kill -KILL "$is" 2>kill.err || :
		soon "it is gone" shows '[.workers[].left] | all'
	}
	start unasked /usr/bin/python3 "$root/tests/hostile/group.py" "$keys/two.key" "$ready" unasked
	soon "it is sent away" grep -q "two: refused: sends more of its trace" ps.err
	# Nobody else has lost anything.
	shows '.workers | length == 2'
}

@test "as many look through a group server as may, and none through one of before" {
	needs_cryptography
	serve -w 3
	liar() {
		start "$2" /usr/bin/python3 "$root/tests/hostile/group.py" "$keys/$1.key" \
			"$ready" "$2" "$state/trace.jsonl"
	}
	# look N: as lines come; there is one.
	look() {
		start "look$1" falcon-stat -k "$keys/observe.key" -f -g one "$ready"
		soon "look $1" grep -q '"ev":"job"' "look$1.out"
	}
	liar one hang
	soon "one is there" shows '[.workers[].members] == [1]'
	local i last
	for ((i = 1; i <= 16; i++)); do
		look "$i"
		last=$pid
	done
	run -75 --separate-stderr stat -g one
	same said "$stderr" "falcon-stat: $ready: group one: too many look through it just now"
	kill -KILL "$last"
	room() { ! stat -g one 2>room.err && ! grep -q "too many" room.err; }
	soon "there is room again" room
	has "$(<room.err)" "group one: it does not answer within 4 s"
	look 17
	run -75 stat -g one
	has "$output" "too many look through it just now"
	# Who cannot be asked is not asked: what it does not know would end its session.
	liar two old
	soon "two is there" shows '[.workers[].members] == [1, 1]'
	run -1 stat -g two
	same said "$output" "falcon-stat: $ready: group two: its build is one that cannot be \
looked through"
	shows '[.workers[] | select(.left | not)] | length == 2'
}

@test "an observer that does not read: its look alone ends" {
	at_unix
	group one
	keys=$BATS_FILE_TMPDIR/one ready=unix:one work a --lanes 1
	soon "it is there" shows '[.workers[].worker] == ["a"]' -g one
	start follow falcon-stat -k "$keys/observe.key" -f -g one "$ready"
	local follow=$pid from
	soon "lines" grep -q '"end":"given"' follow.out
	kill -STOP "$follow"
	from=$(command stat -c %s state.one/trace.jsonl)
	longer() { [ $(($(command stat -c %s state.one/trace.jsonl) - from)) -gt $((12 << 20)) ]; }
	soon "more than is kept for it" longer
	shows '[.workers[].worker] == ["a"]' -g one
	kill -CONT "$follow"
	ended "$follow" follow 1
	has "$(<follow.err)" "group one: lines come faster than they are taken"
	shows '[.workers[].worker] == ["a"]' -g one
}

# NEHALEM is OpenBLAS's name for kernels without AVX: they round differently.  (Those of
# older cores crash in OpenBLAS 0.3.34.)
odd() {
	OPENBLAS_CORETYPE=NEHALEM in_group "$@"
}

@test "numerics: a group whose members differ is impure, and named" {
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
	soon "and who of it" shows '.differ | length == 1' -g two
	# It stays so: once is enough, and nothing goes back and forth.
	kill -KILL "$pid"
	soon "one has gone" shows '[.workers[] | select(.worker == "two" and .members == 1)] |
		length == 1'
	shows '.impure == ["two"]'
	same "times that it joined" "$(grep -c "joined as one worker" ps.two.err)" 2
}

@test "numerics = require: groups are judged as workers are" {
	job=(--set job.numerics=require "${job[@]}")
	at_unix
	group one
	group two
	in_group one a 1/8
	soon "it is there" shows '[.workers[].worker] == ["one"]'
	odd two c 1/8
	soon "both are there" shows '[.workers[].members] == [1, 1]'
	soon "clocks" shows '.clocks > 5'
	# Of two keys the first in the keyring counts.
	shows '.differ == ["two"] and ([.workers[] | select(.worker == "two").tasks] == [0])'
	# In the group the key is one: who came first counts, so the other stands by there.
	odd one b 1/8
	soon "it is there, too" shows '[.workers[].worker] | length == 2' -g one
	soon "more clocks" shows '.clocks > 10'
	shows '.workers[] | select(.worker == "one").members == 1'
	shows '.workers[] | select(.worker == "b").tasks == 0' -g one
}

@test "numerics = portable: groups of other machines are alike" {
	job=(--set job.numerics=portable "${job[@]}")
	at_unix
	group one
	group two
	in_group one a 1/8
	odd two c 1/8
	soon "both are there" shows '[.workers[].members] == [1, 1]'
	shows '.numerics == "identical"'
}

@test "numerics: a trainer that gives other bits each time makes its group impure" {
	export PYTHONPATH=$root/share PYTHONDONTWRITEBYTECODE=1
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
	soon "and who of it" shows '.impure == ["bad"]' -g two
}

@test "another build, a key of elsewhere, of another role: a line each" {
	[ -x "$bin/tests/major/falcon-ps" ] || skip "other versions are not built"
	at_unix
	falcon-key init "$BATS_TEST_TMPDIR/other"
	falcon-key add -K "$BATS_TEST_TMPDIR/other/keyring" one
	# says STATUS WHAT PROGRAM OPTION...: of a group server.
	says() {
		local code=$1 want=$2
		run timeout 30 "$3" -K "$BATS_FILE_TMPDIR/one/keyring" -l unix:odd -s state.odd \
			--upstream "$ready" "${@:4}"
		same "exit status: $output" "$status" "$code"
		same "lines of $output" "$(grep -c "^falcon-ps: .*$want" <<<"$output")" 1
	}
	says 1 "it is Falcon .*, we are Falcon 9.9.9 with protocol 9.1" \
		"$bin/tests/major/falcon-ps" -k "$keys/one.key"
	says 77 "key does not match, or ours is not in its keyring" falcon-ps \
		-k "$BATS_TEST_TMPDIR/other/one.key"
	for role in observe control shard; do
		says 77 "a key of role $role may not work" falcon-ps -k "$keys/$role.key"
	done
}

@test "a loop of three: it is found" {
	at_unix
	falcon-key add -K "$BATS_FILE_TMPDIR/three/keyring" two
	falcon-key add -K "$BATS_FILE_TMPDIR/two/keyring" one
	local from name up
	for name in one three two; do
		case $name in
		one) up=two from=two ;;
		three) up=one from=one ;;
		two) up=three from=three ;;
		esac
		start "ps.$name" falcon-ps -K "$BATS_FILE_TMPDIR/$name/keyring" -l "unix:$name" \
			-s "state.$name" --upstream "unix:$up" \
			-k "$BATS_FILE_TMPDIR/$from/$name.key" "${job[@]}"
		soon "$name" grep -q "listening on" "ps.$name.err"
	done
	in_group one a 1/8
	in_group two b 1/8
	in_group three c 1/8
	soon "it is found" grep -q "refused: a loop: this group server is below that one" ps.one.err \
		ps.two.err ps.three.err
}

# Begun before the first test.
@test "a look that takes more than a minute ends" {
	needs_cryptography
	cd "$BATS_FILE_TMPDIR"
	soon "its end" test -s look.code
	same status "$(<look.code)" 75
	grep -q ": group three: its trace has not come within a minute$" look.err
}
