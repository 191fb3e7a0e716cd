# A worker whose key is good and whose values are not, among two honest ones: it loses its
# own work, and nobody else does.  The model is the honest one, bit for bit.

load common
load job

setup_file() {
	for_file
	falcon-key add -K "$BATS_FILE_TMPDIR/keys/keyring" liar
}

setup() {
	for_test
	job=(--set data.samples=4000 --set data.test-samples=500 --set job.epochs=1
		--set schedule.warmup=5 --set job.audit=sums --set sync.scheme=bsp
		# 32 tasks a clock: what they may need is the most of the format.
		--set batch.tail=0 "$root/share/jobs/fashion.job")
	thin
}

# among LIE: a job with a liar among two honest workers, who stay to the end.
among() {
	local w
	serve --min-workers 3
	work a --lanes 2
	work b --lanes 2
	FALCON_LIE=$1 start liar "$bin/tests/falcon-work-values" -k "$keys/liar.key" -n liar \
		--lanes 2 --cache "$BATS_FILE_TMPDIR/cache" "$ready"
	wait "$ps"
	for w in "${workers[@]}"; do
		wait "$w"
	done
	falcon-stat --audit "$state/trace.jsonl" >"$BATS_TEST_TMPDIR/audit"
	same "an honest worker left" \
		"$(grep '"ev":"leave"' "$state/trace.jsonl" | grep -cv '"worker":"liar"')" 0
}

# lies LIE: it ends like the job without one, which the liar has to leave.
lies() {
	among "$1"
	same "the model" "$(member sha256)" "$(cat "$BATS_FILE_TMPDIR/honest")"
	lines 1 '"ev":"leave","worker":"liar"' || {
		cat "$state/trace.jsonl"
		return 1
	}
}

@test "the honest job" {
	serve
	work a --lanes 2
	wait "$ps"
	member sha256 >"$BATS_FILE_TMPDIR/honest"
}

@test "needed 100 and values of 2^61" {
	lies large
}

@test "needed 100 and zeros" {
	lies zeros
}

@test "values of 2^62 - 1" {
	lies room
}

# counts LIE: what sums say to have needed is believed: the job ends, whoever lies, and
# computing it anew finds that.
counts() {
	among "$1"
	falcon-stat --audit "$state"
	lines 0 '"unstepped"'
	run falcon-stat --audit --recompute 100% --directory "$root/share/jobs" "$state"
	same status "$status" 1
	has "$output" " of 16 clocks: not equal, from clock "
}

@test "zeros, and the most that may be needed" {
	counts freeze
}

@test "the right values, and the most that may be needed" {
	counts needed
}

# says LIE: the model is the honest one; the liar may stay.
says() {
	among "$1"
	same "the model" "$(member sha256)" "$(cat "$BATS_FILE_TMPDIR/honest")"
}

@test "not finite, of everything" {
	says accuse
	same "charges" "$(grep -c '"ev":"charge"' "$state/trace.jsonl" || :)" 0
}

@test "not finite, of steps that were never granted" {
	lies leave
}

@test "a claim of another one's task" {
	lies steal
}

@test "absurd losses" {
	says loss
}

@test "an evaluation that is too good" {
	says boast
	[ "$(jq '.accuracy < 0.95' "$state/result.json")" = true ] ||
		same accuracy "$(member accuracy)" "below 0.95"
}

@test "half of each contribution, and PING is answered" {
	says half
	lines 1 '"ev":"suspect","worker":"liar"' || {
		grep -v '"ev":"clock"' "$state/trace.jsonl" | cut -c1-200
		return 1
	}
}

@test "a fingerprint that is made up" {
	says print
}

# liars N: so many sessions of the liar's key, that say of everything that it is not finite.
liars() {
	local i
	for ((i = 0; i < $1; i++)); do
		FALCON_LIE=accuse start "liar$i" "$bin/tests/falcon-work-values" \
			-k "$keys/liar.key" -n "liar$i" --lanes 1 \
			--cache "$BATS_FILE_TMPDIR/cache" "$ready"
	done
}

@test "not finite, says the one key there is, of which another session knows better" {
	falcon-key init one
	cp one/work.key one/liar.key
	keys=$PWD/one
	serve --min-workers 2
	liars 1
	work a --lanes 2
	work b --lanes 2
	wait "$ps"
	same "the model" "$(member sha256)" "$(cat "$BATS_FILE_TMPDIR/honest")"
}

# updates: how many there are.
updates() {
	grep -c '"ev":"update"' "$state/trace.jsonl"
}

@test "a key that claims and does not push, be it every second time, or drips, costs little" {
	local i=0 lie rate
	printf 'input 784\ndense 112\nrelu\ndense 10\n' >wide.model # 22 blocks
	job=("${job[@]}" --set "model.file=$PWD/wide.model" --set job.epochs=1000
		--set batch.size=120 --set batch.task=8 --set job.audit=claims)
	serve
	slow a 1 1000
	slow b 1 1000
	soon "some clocks" lines 10 '"ev":"update"'
	rate=$(updates)
	sleep 3
	rate=$(($(updates) - rate))
	FALCON_LIE=second start second "$bin/tests/falcon-work-values" -k "$keys/liar.key" -n second \
		--lanes 4 --cache "$BATS_FILE_TMPDIR/cache" "$ready"
	soon "that it is told" grep -Eq \
		"workers of key 'liar' kept the others waiting: they get no work for [0-9]" ps.err
	# Other sessions of the key change nothing.
	for lie in hoard hoard drip; do
		i=$((i + 1))
		FALCON_LIE=$lie start "liar$i" "$bin/tests/falcon-work-values" -k "$keys/liar.key" \
			-n "liar$i" --lanes 4 --cache "$BATS_FILE_TMPDIR/cache" "$ready"
	done
	soon "those" grep -q "liar$i joined" ps.err
	i=$(updates)
	sleep 3
	i=$(($(updates) - i))
	echo "clocks in 3 s: $rate before, $i"
	[ "$i" -ge $((rate / 2)) ]
	same "times told" "$(grep -c "kept the others waiting" ps.err)" 1
	kill -TERM "$ps"
	wait "$ps" || same "status" "$?" 75
	falcon-stat --audit --partial "$state/trace.jsonl"
}
