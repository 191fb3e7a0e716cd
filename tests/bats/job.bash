# Real jobs in bats tests: a coordinator and its workers.  `load common` comes before.
#
# setup_file begins with for_file and setup with for_test; job=(...) is then what every
# falcon-ps is given.

# for_file: keys for all tests of a file; what setup_file then starts is in its folder.
for_file() {
	BATS_TEST_TMPDIR=$BATS_FILE_TMPDIR
	for_test
	falcon-key init "$keys"
}

# for_test: a test is in its own folder, with the keys of its file and a state of its own.
for_test() {
	cd "$BATS_TEST_TMPDIR" || return 1
	keys=$BATS_FILE_TMPDIR/keys state=$BATS_TEST_TMPDIR/state workers=() apart=()
}

# thin: where TSan watches, the job's images get a model of few floats.
thin() {
	watched || return 0
	printf 'input 784\ndense 32\nrelu\ndense 10 init=glorot\n' >thin.model
	job=(--set "model.file=$PWD/thin.model" "${job[@]}")
}

# serve_at ADDRESS [OPTION...]: a coordinator; its address is in $ready, its process id in
# $ps.
serve_at() {
	start_ready ps falcon-ps -jx -K "$keys/keyring" -l "$1" -s "$state" \
		"${job[@]}" "${@:2}"
	ps=$pid
}

# far: whether who is on this machine is to come by TCP all the same, as FAR says, 1 or 0: by
# SEED, where there is one, else drawn; ${apart[@]} is then what falcon-ps is told.
far() {
	: "${FAR:=$((${SEED:-RANDOM} % 2))}"
	echo "FAR=$FAR"
	apart=()
	[ "$FAR" = 0 ] || apart=(--seal-all)
}

# serve [OPTION...]: the same, at a port that is free, with a door beside it or without.
serve() {
	far
	serve_at 127.0.0.1:0 "${apart[@]}" "$@"
}

# at_unix [OPTION...]: the same, at an address that stays when it comes back.
at_unix() {
	rm -f ps.ready
	serve_at unix:sock "$@"
}

# killed: the coordinator, before it can say a word.
killed() {
	kill -KILL "$ps"
	wait "$ps" || :
}

# work NAME [OPTION...]: a worker of key $KEY, "work" without, which runs $WORKER,
# falcon-work without; its process id is in $pid and added to $workers.
work() {
	local name=$1
	shift
	start "$name" "${WORKER:-falcon-work}" -k "$keys/${KEY:-work}.key" -n "$name" \
		--cache "$BATS_FILE_TMPDIR/cache" "$@" "$ready"
	workers+=("$pid")
}

# slow NAME SPEED [RATE]: a worker of one lane at this part of a nominal core.
slow() {
	work "$1" --lanes 1 --emulate "rate=${3:-8000},speed=$2,cores=1"
}

# member NAME: a number of the result.
member() {
	jq -r ".$1" "$state/result.json"
}

# soon WHAT COMMAND...: waits until the command succeeds, a minute at most; five, of
# programs that a sanitizer slows down.
soon() {
	local -
	set +T
	until_true "${@:2}" || {
		echo "$1: not in time: $(cat "$BATS_TEST_TMPDIR"/*.err)"
		return 1
	}
}

# until_true COMMAND...: the loop of soon; fails when the time is over.
until_true() {
	local last=$((SECONDS + 60)) often=$((SECONDS + 2)) pause=0.05
	! sanitized || last=$((last + 240))
	while [ "$SECONDS" -lt "$last" ]; do
		! "$@" || return 0
		[ "$SECONDS" -lt "$often" ] || pause=0.1
		nap $pause
	done
	return 1
}

# lines AT_LEAST TEXT: whether the trace has so many lines with this text, which a line has
# once.
lines() {
	local trace rest
	read -r -d '' trace <"$state/trace.jsonl" || :
	rest=${trace//"$2"/}
	[ $(((${#trace} - ${#rest}) / ${#2})) -ge "$1" ]
}

# at_clock N: waits until the trace has come to clock N.
at_clock() {
	soon "clock $1" lines "$1" '"ev":"ledger"'
}

# versions: the numbers and hashes of those that the trace tells of, but for what was done
# twice and came out the same.
versions() {
	jq -c 'select(.ev == "update") | [.version, .hash]' "$state/trace.jsonl" | sort -u
}

# judge [LAW]: the job ends well, the audit passes, the model is that of the file's first
# test of this LAW, and so is each of its versions.
judge() {
	local law=$BATS_FILE_TMPDIR/law.${1:-} now=$BATS_TEST_TMPDIR/now sha audit
	wait "$ps" || {
		cat "$BATS_TEST_TMPDIR"/*.err
		return 1
	}
	audit=$(falcon-stat --json --audit "$state/trace.jsonl" 2>&1) ||
		same "status of the audit ($audit)" "$?" 0
	has "$audit" '"ok":true'
	sha=$(member sha256)
	same "the model's file" "$(sha256sum <"$state/model.safetensors")" "$sha  -"
	{ echo "$sha" && versions; } >"$now"
	[ -e "$law" ] || cp "$now" "$law"
	diff "$law" "$now"
}

# again: room for another coordinator.
again() {
	rm -rf "$state" ps.ready
}

# two_hosts: network namespaces $here and $there, 192.0.2.1 and 192.0.2.2, with a cable
# between them; a test is skipped where there are none.  Its file's teardown has `no_hosts`.
two_hosts() {
	local host
	[ "$(id -u)" -eq 0 ] || skip "network namespaces need root"
	here=falcon-here-$$ there=falcon-there-$$
	ip netns add "$here" 2>/dev/null || skip "no network namespaces here"
	ip netns exec "$here" true 2>/dev/null || skip "mounts are refused here"
	ip netns add "$there"
	ip -n "$here" link add cable type veth peer name cable netns "$there"
	ip -n "$here" addr add 192.0.2.1/24 dev cable
	ip -n "$there" addr add 192.0.2.2/24 dev cable
	for host in "$here" "$there"; do
		ip -n "$host" link set lo up
		ip -n "$host" link set cable up
	done
}

no_hosts() {
	local host
	for host in ${here:-} ${there:-}; do
		ip netns del "$host" 2>/dev/null || :
	done
}
