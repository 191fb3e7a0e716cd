# falcon-ps --upstream: coordinators that are workers of a coordinator.

bats_require_minimum_version 1.5.0

load common
load job
load tiny

setup_file() {
	for_file
	draw
	export SEED
	# Two groups: a key each above, and a keyring of its own each.
	for group in one two; do
		falcon-key add -K "$keys/keyring" "$group"
		falcon-key init "$BATS_FILE_TMPDIR/$group"
	done
	falcon-key add -K "$BATS_FILE_TMPDIR/one/keyring" two
	tiny "$BATS_FILE_TMPDIR/tiny"
	job=(--set job.epochs=$((RANDOM % 6 + 8)) --set batch.task=$((RANDOM % 6 + 5))
		--set state.clocks=3 --set optimizer.kind=momentum --set optimizer.momentum=0.9
		"$BATS_FILE_TMPDIR/tiny/tiny.job")
	echo "${job[@]}" >"$BATS_FILE_TMPDIR/job"
	serve
	work alone --lanes 2
	wait "$ps" "${workers[@]}"
	member sha256 >"$BATS_FILE_TMPDIR/sha256"
	stop_all
}

setup() {
	for_test
	draw
	read -ra job <"$BATS_FILE_TMPDIR/job"
}

# group NAME [OPTION...]: a group server at unix:NAME, under the coordinator at $ready; its
# workers have keys of $KEYS, its own without.  Its process id is in $pid.
group() {
	local name=$1
	shift
	start "ps.$name" falcon-ps -K "$BATS_FILE_TMPDIR/${KEYS:-$name}/keyring" -l "unix:$name" \
		-s "state.$name" --upstream "$ready" -k "$keys/$name.key" "$@" "${job[@]}"
	soon "$name" grep -q "listening on" "ps.$name.err"
}

# in_group GROUP NAME [OPTION...]: a worker of it, at an eighth of 8000 samples a second.
in_group() {
	local keys=$BATS_FILE_TMPDIR/$1 ready=unix:$1${AND:+,$AND}
	slow "$2" 1/8
}

# counts WORKER: whether something that it contributed counts, by the trace above.
counts() {
	jq -se --arg name "$1" '(map(select(.ev == "join" and .worker == $name))[0].id) as $id |
		any(.[] | select(.ev == "ledger").contrib[]; .c[0] == $id and (.fenced | not))' \
		"$state/trace.jsonl" >/dev/null
}

# audited GROUP...: the traces of the coordinator and of these, each by itself.
audited() {
	local name
	falcon-stat --audit "$state"
	for name; do
		soon "$name ends" grep -q "done: the job is done" "ps.$name.err"
		falcon-stat --audit "state.$name"
		counts "$name"
	done
}

# judge [GROUP...]: the job's end: one model, and audits.
judge() {
	wait "$ps"
	same "SHA-256" "$(member sha256)" "$(<"$BATS_FILE_TMPDIR/sha256")"
	audited "$@"
}

@test "two groups, and a worker beside them: one model, whoever of them dies" {
	job=(--set sync.scheme="$([ $((RANDOM % 2)) = 0 ] && echo bsp || echo epsp)" "${job[@]}")
	at_unix
	group one --scheme bsp
	group two
	in_group one a
	in_group one b
	local b=$pid
	in_group two c
	slow beside 1/8
	at_clock $((RANDOM % 5 + 2))
	kill -KILL "$b"
	in_group two d
	judge one two
}

# with_another: groups one and two; the worker of one may go to two, which has a slow one.
with_another() {
	at_unix
	group one
	one=$pid
	KEYS=one group two
	AND=unix:two in_group one a
	start b falcon-work -k "$BATS_FILE_TMPDIR/one/work.key" -n b --cache none --lanes 1 \
		--emulate rate=8000,speed=1/8,cores=1 unix:two
}

@test "a group server is killed: its workers go elsewhere, and back" {
	local one
	with_another
	at_clock $((RANDOM % 5 + 2))
	kill -KILL "$one"
	soon "another group has its worker" grep -q "a joined" ps.two.err
	judge two
}

@test "a group server that could not begin has given nothing: its trace goes" {
	at_unix
	mkdir one # where its socket would be
	for _ in 1 2; do
		run -1 falcon-ps -K "$BATS_FILE_TMPDIR/one/keyring" -l unix:one -s state.one \
			--upstream "$ready" -k "$keys/one.key" "${job[@]}"
		has "$(tail -n 1 state.one/trace.jsonl)" '"ev":"failed"'
	done
	rmdir one
	group one
	in_group one a
	slow beside 1/8
	judge one
	same "its traces" "$(cd state.one && echo trace*)" "trace.jsonl"
}

@test "a group server is drained: it ends, and its workers go elsewhere" {
	local one
	with_another
	at_clock $((RANDOM % 4 + 2))
	falcon-sync -k "$keys/control.key" "$ready" drain one
	ended "$one" ps.one
	has "$(<ps.one.err)" "drained: leaving"
	soon "it has left" lines 1 '"ev":"leave","worker":"one"'
	same "fenced, of it" "$(jq -s '(map(select(.ev == "join" and .worker == "one"))[0].id) as $id |
		[.[] | select(.ev == "ledger").contrib[] | select(.c[0] == $id and .fenced)] |
		length' "$state/trace.jsonl")" 0
	soon "another group has its worker" grep -q "a joined" ps.two.err
	judge two
	falcon-stat --audit state.one
}

@test "the coordinator above is killed: the groups wait, and go on" {
	at_unix
	group one
	group two
	in_group one a
	in_group two b
	at_clock $((RANDOM % 5 + 4))
	killed
	at_unix
	judge one two
	for name in one two; do
		has "$(<"ps.$name.err")" "connected again"
	done
}

@test "whoever was refused stands in a group server's trace before its end" {
	local i trace=state.one/trace
	at_unix
	group one
	in_group one a
	at_clock 2
	for i in 1 2; do # of one key in 10 s: the second one is told of later
		"$bin/tests/asks" "$BATS_FILE_TMPDIR/one/work.key" unix:one early
	done
	killed
	soon "its end" test -e "$trace.1.jsonl"
	same "refusals that are told" "$(grep -c '"ev":"refuse"' "$trace.1.jsonl")" 2
	falcon-stat --audit "$trace.1.jsonl"
}

@test "groups above, each with servers of its own: gradients, and lines" {
	local rules=("groups:2" "groups:2,mode=delta,rounds=2" "groups:2,mode=delta,quorum=2"
		"groups:progressive,window=3,mode=delta")
	local rule=${rules[RANDOM % 4]}
	# The momentum of each line and that of the outer step of 0.7 and 0.9 are stable together
	# for a rate times curvature of 0.0042, and the curvature here is 0.9: 0.1 diverges.
	job=(--set "sync.scheme=$rule" --set optimizer.lr=0.002 "${job[@]}")
	at_unix
	group one
	group two --scheme bsp
	in_group one a
	in_group one b
	in_group two c
	slow beside 1/8
	wait "$ps"
	audited one two
}

@test "a group server below a group server is refused" {
	at_unix
	group one
	in_group one a
	run -77 timeout 20 falcon-ps -K "$BATS_FILE_TMPDIR/two/keyring" -l unix:two -s state.two \
		--upstream unix:one -k "$BATS_FILE_TMPDIR/one/two.key" "${job[@]}"
	has "$output" "refused: this is a group server itself: groups have one level"
}

@test "an upstream that cannot be one: a line each" {
	at_unix
	local up=(-l unix:odd -s state.odd --upstream "$ready")
	says() {
		local code=$1 want=$2
		shift 2
		run timeout 20 falcon-ps -K "$BATS_FILE_TMPDIR/one/keyring" "$@" "${job[@]}"
		same "exit status of $*: $output" "$status" "$code"
		same "lines" "$(grep -c "^falcon-ps:.*$want" <<<"$output")" 1
	}
	says 2 "is the key to this very server" "${up[@]}" -k "$BATS_FILE_TMPDIR/one/work.key"
	says 2 "its job differs from that of" "${up[@]}" -k "$keys/one.key" --set job.seed=77
	says 77 "role observe" "${up[@]}" -k "$keys/observe.key"
	says 2 "needs a --key" "${up[@]}"
	says 2 "not with --restart" "${up[@]}" -k "$keys/one.key" --restart
	says 2 "not with --from" "${up[@]}" -k "$keys/one.key" --from model.safetensors
	says 2 "local steps, as by wbsp, are not" "${up[@]}" -k "$keys/one.key" \
		--set sync.scheme=wbsp
	says 2 "'ssp' is not bsp or epsp" "${up[@]}" -k "$keys/one.key" --scheme ssp
	says 2 "only with --upstream" -l unix:odd -s state.odd --scheme bsp
	says 2 "nowhere" -l unix:odd -s state.odd --upstream nowhere -k "$keys/one.key"
	job=()
	says 2 "needs the JOB of the coordinator there" "${up[@]}" -k "$keys/one.key"
}
