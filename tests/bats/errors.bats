# Attacks on a job that runs, and what a bad input file comes to: one clear line each, the
# right exit status, and the job is what it would have been.

bats_require_minimum_version 1.5.0

load common
load job

setup_file() {
	for_file
	falcon-key init --shared "$BATS_FILE_TMPDIR/other"
}

setup() {
	for_test
	other=$BATS_FILE_TMPDIR/other
	job=(--set job.epochs=2 --set data.samples=2000 --set data.test-samples=500
		--set schedule.warmup=0 --set job.audit=sums "$root/share/jobs/fashion.job")
}

# says STATUS TEXT COMMAND...: it ends so, with one line on stderr that has the text.
says() {
	local want=$1 text=$2 got=0 line
	shift 2
	timeout 20 "$@" >said.out 2>said.err </dev/null 3>&- || got=$?
	# The need, which falcon-ps says in each case, is no complaint.
	line=$(grep -v ' needs [0-9]* MiB$' said.err || :)
	same "status of $* ($line)" "$got" "$want"
	same "lines of $*: $line" "$(grep -c . <<<"$line")" 1
	has "$line" "${1##*/}: "
	has "$line" "$text"
}

# secret FILE NAME FIELD: that field of the line of that key.
secret() {
	awk -v name="$2" -v field="$3" '$1 == name { print $field }' "$1"
}

# via N [SOCAT-OPTION...]: the address of the coordinator, seen from 127.0.0.N.
via() {
	local n=$1
	shift
	echo "exec:socat $* STDIO TCP:$ready,bind=127.0.0.$n"
}

# throw N: standard input to the coordinator from 127.0.0.N, until that closes.
throw() {
	socat -t 5 STDIO "TCP:$ready,bind=127.0.0.$1" >/dev/null 2>&1 3>&- || :
}

# undisturbed: the SHA-256 of the job when nothing happens to it.
undisturbed() {
	local state=$BATS_FILE_TMPDIR/calm workers=()
	if [ ! -e "$state/result.json" ]; then
		serve
		work calm --lanes 1
		wait "$ps"
		rm ps.ready
	fi
	sha=$(member sha256)
}

# judge: the job ends well, and has the model of the undisturbed one.
judge() {
	wait "$ps" || {
		cat ./*.err
		return 1
	}
	falcon-stat --audit "$state/trace.jsonl"
	same "the model" "$(member sha256)" "$sha"
}

# refusals: which keys were refused and why, as falcon-ps said it.
refusals() {
	sed -n 's/^falcon-ps: \(.*: \)refused: /\1/p' ps.err
}

# of_strangers: what falcon-ps said of those who came no further than the handshake.
of_strangers() {
	sed -n 's/^falcon-ps: refused \(.* handshakes\{0,1\} from\)/\1/p' ps.err
}

# stranger N KEY PROGRAM: refused at 127.0.0.N, in a folder of its own, in the background.
stranger() {
	local key
	key=$(realpath "$2")
	mkdir "from.$1"
	(cd "from.$1" && says 77 "key does not match" "$3" -k "$key" "$(via "$1")") 3>&- &
	refused+=($!)
}

# All at once: each is refused for three seconds before it gives up.
wrong_keys() {
	local self psk refused=() pid
	self=$(secret "$keys/work.key" work 4)
	psk=$(secret "$keys/work.key" work 3)
	echo "work work $(secret "$other/work.key" work 3) $self" >psk.key
	echo "work work $psk $(secret "$other/work.key" work 4)" >self.key
	echo "mallory work $psk $self" >name.key
	chmod 600 ./*.key
	stranger 10 psk.key falcon-work
	stranger 11 self.key falcon-work
	stranger 12 name.key falcon-work
	stranger 13 "$other/work.key" falcon-work
	stranger 14 "$other/observe.key" falcon-stat
	for pid in "${refused[@]}"; do
		wait "$pid"
	done
}

wrong_roles() {
	says 77 "of role observe may not work" falcon-work -k "$keys/observe.key" "$ready"
	says 77 "role work may not send" falcon-stat -k "$keys/work.key" "$ready"
	# Who lies about the role is judged by the keyring.
	sed 's/^control control/control work/' "$keys/control.key" >lie.key
	chmod 600 lie.key
	says 77 "role control may not send HELLO" falcon-work -k lie.key --cache none "$ready"
}

strangers() {
	head -c 100000 /dev/urandom | throw 20
	printf 'GET / HTTP/1.0\r\n\r\n' | throw 21
	# A name that is longer than any.
	{ printf 'FALC\4\0\0\0\144\0\377' && head -c 300 /dev/zero; } | throw 22
	printf 'FALC\1\0\0\0\1\4work' | throw 23
	# The peer leaves in the middle.
	printf 'FALC\4\0\0\0\144\0\4wo' | throw 24
}

# What a worker said, played again: nobody answers.
replays() {
	falcon-work -k "$keys/work.key" -n spied --cache none --lanes 1 \
		--emulate rate=200 "$(via 30 -r spied.raw)" 2>spied.err 3>&- &
	local spied=$!
	started+=("$spied")
	soon "the worker that is spied on" lines 2 '"ev":"join"'
	kill -TERM "$spied"
	wait "$spied"
	for _ in $(seq 20); do
		throw 31 <spied.raw
	done
	# 102 bytes: magic, version, length, name, pattern, shard, suites, key, tag, MAC.
	{ head -c 102 spied.raw && printf '\40\0\0\0\11\0\0\0' && cat spied.raw; } | throw 32
}

# Connections that say nothing, or begin well and stop; the last 100 stay open.
half_open() {
	local host=${ready%:*} port=${ready##*:} fd
	for n in $(seq 200); do
		exec {fd}<>"/dev/tcp/$host/$port"
		[ $((n % 2)) -eq 0 ] || printf 'FALC\4\0\0\0\144\0\4wo' >&"$fd"
	done
	# One more is as welcome as ever.
	falcon-stat -k "$keys/observe.key" "$ready" 3>&- >/dev/null
}

@test "a job under attack ends as if nothing had been" {
	local began=$SECONDS
	undisturbed
	serve
	# 200 s alone, far longer than the attack, which would else hit a free port.
	slow victim 1 20
	soon "the victim" lines 1 '"ev":"join"'
	wrong_keys
	wrong_roles
	strangers
	replays
	half_open
	! lines 1 '"ev":"done"' || same "the job" over "under way"
	# Others want its state, its port.
	says 1 "another falcon-ps serves it" falcon-ps -K "$keys/keyring" -l 127.0.0.1:0 \
		-s "$state" "${job[@]}"
	says 1 "$ready: address already in use" falcon-ps -K "$keys/keyring" -l "$ready" \
		-s rival "${job[@]}"
	work helper --lanes 1
	judge
	# Of those with a key each one has a line, here and in the trace, of strangers the
	# first and some counts, which are all there are.
	cat >expected <<-'END'
		work: a key of role work may not send FOLLOW
		control: a key of role control may not send HELLO
	END
	same "refusals" "$(refusals | sort)" "$(sort expected)"
	same "in the trace" "$(jq -r 'select(.ev == "refuse") | "\(.key): \(.why)"' \
		"$state/trace.jsonl")" "$(refusals)"
	of_strangers
	has "$(of_strangers | head -1)" "a handshake from 127.0.0.1"
	[ "$(of_strangers | awk '{ n += $1 == "a" ? 1 : $1 } END { print n }')" -ge 100 ]
	[ "$(of_strangers | wc -l)" -le "$((3 + (SECONDS - began) / 10))" ]
	same "the victim's end" "$(tail -1 victim.err)" "$(grep emulate victim.err)"
	same "workers" "$(jq -r 'select(.ev == "join") | .worker' "$state/trace.jsonl" | xargs)" \
		"victim spied helper"
}

@test "fewer than three keys for workers are said" {
	local n
	serve
	has "$(cat ps.err)" "one key for all workers: they cannot be told apart"
	cp -r "$keys" mine
	keys=mine
	for n in 2 3; do
		stop_all
		again
		falcon-key add -K mine/keyring "w$n"
		serve
		same "with $n keys" "$(grep -c "two keys for all workers: where their results differ" ps.err)" $((3 - n))
		run grep -F "one key" ps.err
		same "of one" "$output" ""
	done
}

@test "what follows ends well, without a word, when its reader has enough" {
	local how
	job=(--set job.epochs=1000 "${job[@]}")
	serve
	slow a 1 4000
	at_clock 1
	falcon-sync -k "$keys/control.key" "$ready" watch 2>watch.err 3>&- | head -n 1 >first &
	started+=("$!")
	timeout 60 falcon-stat -k "$keys/observe.key" --follow "$ready" 2>follow.err |
		head -n 1 >line && status=${PIPESTATUS[0]}
	same "status" "$status" 0
	same "its word" "$(<follow.err)" ""
	has "$(<line)" '{"t":'
	for how in pause resume pause resume; do
		falcon-sync -k "$keys/control.key" "$ready" "$how"
	done
	wait "${started[-1]}"
	same "its word" "$(<watch.err)" ""
	has "$(<first)" '"ev":"'
}

@test "SIGHUP: who is not in the keyring any more is out, the others go on" {
	undisturbed
	local psk
	psk=$(secret "$other/work.key" work 3)
	cp -r "$keys" ring
	cp -r "$keys" second
	echo "second work $psk" >>ring/keyring
	echo "second work $psk $(secret "$keys/work.key" work 4)" >second/work.key
	keys=ring serve --min-workers 2
	keys=ring slow out 1 400
	keys=second slow stays 1 400
	at_clock 1
	# A keyring that cannot be read changes nothing.
	cp ring/keyring good
	echo "second work" >>ring/keyring
	kill -HUP "$ps"
	soon "the bad keyring" grep -q "the old keyring holds" ps.err
	grep -v '^work ' good >ring/keyring
	kill -HUP "$ps"
	status=0
	wait "${workers[0]}" || status=$?
	same "status of the worker that is out" "$status" 77
	has "$(cat out.err)" "refused: key 'work' was revoked"
	keys=second work helper --lanes 1
	judge
	wait "${workers[1]}"
	has "$(jq -r 'select(.ev == "leave") | .reason' "$state/trace.jsonl")" revoked
}

@test "a state folder: finished, another job's, not one" {
	undisturbed
	calm=$BATS_FILE_TMPDIR/calm
	says 0 "the job is done" falcon-ps -jx -K "$keys/keyring" -l 127.0.0.1:0 -s "$calm" \
		"${job[@]}"
	same "the result" "$(cat said.out)" "$(cat "$calm/result.json")"
	says 0 "the job is done" falcon-ps -x -K "$keys/keyring" -l 127.0.0.1:0 -s "$calm" \
		"${job[@]}"
	same "the result as text" "$(awk '{ print $1 }' said.out | xargs)" \
		"model sha256 accuracy test training time"
	has "$(cat said.out)" "sha256         $sha"
	says 2 "another job: job.seed is 1, not 2" falcon-ps -K "$keys/keyring" -l 127.0.0.1:0 -s "$calm" \
		"${job[@]}" --set job.seed=2
	touch file
	says 1 "file/lock: Not a directory" falcon-ps -K "$keys/keyring" -l 127.0.0.1:0 \
		-s file "${job[@]}"
	says 1 "none/s: No such file" falcon-ps -K "$keys/keyring" -l 127.0.0.1:0 \
		-s none/s "${job[@]}"
}

@test "a standard descriptor that is closed is nobody else's" {
	local got=0
	serve --set job.epochs=1
	falcon-stat -k "$keys/observe.key" "$ready" 2>stat.err >&- || got=$?
	same "falcon-stat without stdout" "$got $(<stat.err)" \
		"1 falcon-stat: standard output: Bad file descriptor"
	timeout 60 falcon-work -k "$keys/work.key" -n bare --lanes 1 --cache none "$ready" \
		<&- >&- 2>&-
	wait "$ps"
	# The job is done: its result is to be printed again, and nothing else is changed.
	find state -type f -exec sha256sum {} + | sort >before
	got=0
	falcon-ps -jx -K "$keys/keyring" -s state "${job[@]}" --set job.epochs=1 2>ps.err >&- || got=$?
	same "falcon-ps without stdout" "$got" 1
	has "$(<ps.err)" "standard output: Bad file descriptor"
	falcon-ps -jx -K "$keys/keyring" -s state "${job[@]}" --set job.epochs=1 >again <&- 2>&-
	same "the result" "$(jq -r .model <again)" "$(member model)"
	same "the state" "$(find state -type f -exec sha256sum {} + | sort)" "$(<before)"
}

# Who reads stderr is stopped, as a pager is: the job goes on, and TERM ends it.
@test "a stderr that nobody reads holds nothing up" {
	local n=0
	mkfifo stuck
	exec 5<>stuck
	while timeout 0.2 dd if=/dev/zero bs=4096 count=1 status=none >&5; do n=$((n + 1)); done
	[ "$n" -gt 0 ]
	mkfifo here
	falcon-ps -jx -K "$keys/keyring" -l unix:sock -s state "${job[@]}" \
		--set job.epochs=1000 --ready-fd 4 \
		4>here 2>&5 >ps.out 3>&- &
	started+=("$!")
	ps=$!
	read -r -t 60 ready <here
	slow one 1
	at_clock 2
	kill -TERM "$ps"
	wait "$ps"
	exec 5<&-
	falcon-stat --audit --partial state
}

@test "TERM ends falcon-work in order before its trainer has said anything" {
	local one
	for one in TERM INT; do
		start early falcon-work -k "$keys/work.key" --exec 'exec sleep 1000' 127.0.0.1:1
		soon "its trainer" pgrep -P "$pid" -x sleep
		kill -"$one" "$pid"
		ended "$pid" early 0
	done
	# What is for other kinds of it.
	says 2 "--eval, --predict and --try: only one of them" falcon-work --eval a --predict b \
		job samples
	says 2 "--join: not with --check" falcon-ps --join 127.0.0.1:1 -k "$keys/shard.key" --check
	says 2 "--join: not with --keyring" falcon-ps --join 127.0.0.1:1 -k "$keys/shard.key" \
		-K "$keys/keyring"
	# One that takes nothing is found before anything is opened, one that is full later.
	says 2 "--ready-fd: '0': Bad file descriptor" falcon-ps -K "$keys/keyring" -l unix:s \
		-s new --ready-fd 0 "${job[@]}"
	run -2 falcon-ps -K "$keys/keyring" -l unix:s -s new --ready-fd 0 "${job[@]}" <&-
	has "$output" "falcon-ps: --ready-fd: '0': Bad file descriptor"
	[ ! -e new ]
	run -1 falcon-ps -K "$keys/keyring" -l unix:s -s new --ready-fd 4 "${job[@]}" 4>/dev/full
	has "$output" "falcon-ps: --ready-fd: '4': No space left on device"
}
