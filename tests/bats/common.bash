# Helpers of the bats tests.  `load common` first; a teardown of a file's own has `stop_all`.
#
# FALCON_BIN is the folder of the programs, build/release unless set.

# What every test and each look of `soon` runs makes no process that it can do without: a
# fork costs milliseconds on a virtual machine.

# known_as PATH NAME: another name of it, with a space, as a user's folders have them: whoever
# forgets a quote fails everywhere.  The name is in $known.
known_as() {
	known=$BATS_RUN_TMPDIR/$2
	[ -e "$known" ] || ln -sn "$1" "$known"
}

known_as "${BATS_TEST_DIRNAME%/*/*}" "a tree"
root=$known
FALCON_BIN=${FALCON_BIN:-$root/build/release}
known_as "${FALCON_BIN%/*}" "a build"
bin=$known/${FALCON_BIN##*/}
export FALCON_BIN=$bin PATH="$bin:$PATH"
# Numbers have a point, whatever the user's language.
export LC_ALL=C
started=()

# start NAME COMMAND...: in the background, output to NAME.out and NAME.err in the test's
# folder; its process id is in $pid.
start() {
	local name=$1
	shift
	"$@" >"$BATS_TEST_TMPDIR/$name.out" 2>"$BATS_TEST_TMPDIR/$name.err" 3>&- &
	pid=$!
	started+=("$pid")
}

# start_ready NAME COMMAND...: as start, with --ready-fd 4 added; returns when the program
# has written its line there, which is then in $ready, or fails when it ends without one.
start_ready() {
	local name=$1 fifo=$BATS_TEST_TMPDIR/$1.ready
	shift
	mkfifo "$fifo"
	"$@" --ready-fd 4 >"$BATS_TEST_TMPDIR/$name.out" 2>"$BATS_TEST_TMPDIR/$name.err" \
		3>&- 4>"$fifo" &
	pid=$!
	started+=("$pid")
	if ! read -r -t 60 ready <"$fifo"; then
		echo "$name: not ready: $(cat "$BATS_TEST_TMPDIR/$name.err")"
		return 1
	fi
}

# Functions that poll switch off the tracing of bats, whose trap costs more than the commands
# that it traces: `local -; set +T` does so for all functions that they call.

# nap SECONDS: a sleep without a process.  bash can miss the end of a child until the next
# one ends: that is one each second.
nap() {
	[ -e "$BATS_RUN_TMPDIR/nap" ] || mkfifo "$BATS_RUN_TMPDIR/nap"
	read -r -t "$1" <>"$BATS_RUN_TMPDIR/nap" || :
	[ "$SECONDS" = "${napped:-}" ] || (:)
	napped=$SECONDS
}

# until_gone PID LAST: waits until the process has ended, or $SECONDS is LAST.
until_gone() {
	while [ "$SECONDS" -lt "$2" ] && kill -0 "$1" 2>/dev/null; do
		nap 0.05
	done
}

# wait PID...: the shell's, but for PATIENCE (300) seconds; whoever runs on is then ended,
# and what all have said is shown.
wait() {
	local -
	set +T
	local p last=$((SECONDS + ${PATIENCE:-300}))
	for p; do
		until_gone "$p" "$last"
		! kill -0 "$p" 2>/dev/null || {
			echo "process $p: does not end; what was said:"
			tail -n 5 "$BATS_TEST_TMPDIR"/*.err || :
			kill -KILL "$p"
		}
	done
	builtin wait "$@"
}

# ended PID NAME [STATUS]: waits for what start began as NAME; its status is 0, or this one.
ended() {
	local got=0
	wait "$1" || got=$?
	same "status of $2" "$got" "${3:-0}" || {
		tail -n 20 "$BATS_TEST_TMPDIR/$2.err"
		return 1
	}
}

# Ends and reaps whatever start left behind.
stop_all() {
	local p
	for p in "${started[@]}"; do
		kill -KILL "$p" 2>/dev/null || :
		builtin wait "$p" 2>/dev/null || :
	done
	started=()
}

teardown() {
	stop_all
}

# sanitized: whether these programs need memory for a sanitizer, too.
sanitized() {
	case $bin in
	*/asan | */tsan) ;;
	*) return 1 ;;
	esac
}

# watched: whether TSan looks at each float that these programs touch: a hundred times the
# work.
watched() {
	[[ $bin == */tsan ]]
}

# has_cryptography: whether there can be clients in Python, which leave nothing behind.
has_cryptography() {
	export PYTHONDONTWRITEBYTECODE=1
	/usr/bin/python3 -c 'import cryptography' 2>/dev/null
}

# needs_cryptography: a test that has some is skipped where there cannot be.
needs_cryptography() {
	has_cryptography || skip "python3-cryptography is not installed"
}

# same WHAT GOT WANT: prints both where they differ.
same() {
	[ "$2" = "$3" ] || {
		printf '%s\n got: %s\nwant: %s\n' "$1" "$2" "$3"
		return 1
	}
}

# has TEXT PART: prints the text where the part is not in it.
has() {
	case $1 in
	*"$2"*) ;;
	*)
		printf 'no "%s" in:\n%s\n' "$2" "$1"
		return 1
		;;
	esac
}

# chain: the lines of a trace on stdin, chained anew; a forger can do that, too.
chain() {
	/usr/bin/python3 "$root/tests/forge/chain.py"
}

# draw: RANDOM goes by SEED from now on, or by one that is said.
draw() {
	: "${SEED:=$RANDOM}"
	echo "SEED=$SEED"
	RANDOM=$SEED
}

# drawn WORD...: one of them, in $one.
drawn() {
	shift $((RANDOM % $#))
	one=$1
}
