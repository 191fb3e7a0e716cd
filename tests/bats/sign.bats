#!/usr/bin/env bats
# A run's statement: signed by falcon-key, verified by openssl alone, and by falcon-key; of
# neither the statement nor the run may any byte differ.

bats_require_minimum_version 1.5.0

load common
load job
load tiny

setup_file() {
	for_file
	tiny "$BATS_TEST_TMPDIR"
	job=(--set optimizer.ema=0.5 tiny.job)
	state=$BATS_TEST_TMPDIR/run
	serve
	work one --lanes 1
	ended "$ps" ps
	umask 077
	falcon-key pair lab.key
	falcon-key pair other.key
	falcon-key sign -k lab.key run >statement
}

setup() {
	for_test
	dir=$BATS_FILE_TMPDIR
	umask 077
}

teardown_file() {
	stop_all
}

@test "openssl alone verifies the statement, and any altered byte of it fails" {
	draw
	local at
	head -n 1 "$dir/statement" >line
	tail -n 1 "$dir/statement" | openssl base64 -d -A >signature
	openssl pkeyutl -verify -pubin -inkey "$dir/lab.key.pub" -rawin -in line -sigfile signature
	run openssl pkeyutl -verify -pubin -inkey "$dir/other.key.pub" -rawin -in line -sigfile signature
	[ "$status" -ne 0 ]
	for _ in 1 2 3 4 5 6 7 8; do
		at=$((RANDOM * 32768 + RANDOM))
		at=$((at % $(wc -c <line)))
		byte "$at" line >bad
		run openssl pkeyutl -verify -pubin -inkey "$dir/lab.key.pub" -rawin -in bad \
			-sigfile signature
		[ "$status" -ne 0 ]
	done
}

@test "the example of the man page" {
	cp -r "$dir/run" fashion.state
	mkdir lab
	awk '/^\.Bd -literal$/ { code = 1; next } /^\.Ed/ { code = 0 } code' \
		"$root/man/falcon-key.1" | sed 's/\\e/\\/g' >example
	[ "$(wc -l <example)" -eq 9 ]
	run bash -e example
	echo "$output"
	same status "$status" 0
	has "$output" "Signature Verified Successfully"
}

# byte N FILE: the file with another byte at N.
byte() {
	local was
	was=$(tail -c +"$(($1 + 1))" "$2" | head -c 1 | od -An -tu1)
	head -c "$1" "$2"
	# shellcheck disable=SC2059 # a byte by its number
	printf "\\$(printf %o $((was ^ (1 << RANDOM % 7))))"
	tail -c +"$(($1 + 2))" "$2"
}

@test "falcon-key's key is openssl's, and openssl's is falcon-key's" {
	openssl pkey -in "$dir/lab.key" -pubout >pub
	cmp pub "$dir/lab.key.pub"
	openssl genpkey -algorithm ed25519 >mine
	openssl pkey -in mine -pubout >mine.pub
	falcon-key sign -k mine "$dir/run" >signed
	falcon-key verify -k mine.pub signed "$dir/run" >/dev/null
	same modes "$(cd "$dir" && stat -c %a lab.key)" 600
}

@test "verify takes the statement and its run, and no other byte of either" {
	draw
	local n file at
	falcon-key verify -k "$dir/lab.key.pub" "$dir/statement" >said
	falcon-key verify -k "$dir/lab.key.pub" - "$dir/run" <"$dir/statement" >again
	cmp said again
	# The same run makes the same statement.
	falcon-key sign -k "$dir/lab.key" "$dir/run" | cmp - "$dir/statement"
	n=$(wc -c <"$dir/statement")
	for _ in $(seq 40); do
		at=$((RANDOM % n))
		byte "$at" "$dir/statement" >bad
		run falcon-key verify -k "$dir/lab.key.pub" bad
		same "byte $at: status" "$status" 1
		has "$output" "falcon-key: bad: is not "
	done
	run falcon-key verify -k "$dir/other.key.pub" "$dir/statement"
	same status "$status" 1
	has "$output" "is not the content that this key signed"
	for file in model.safetensors average.safetensors job result.json trace.jsonl policy.jsonl; do
		for _ in 1 2 3; do
			cp -r "$dir/run" changed
			n=$(wc -c <"changed/$file")
			byte "$((n > 0 ? (RANDOM * 32768 + RANDOM) % n : 0))" "$dir/run/$file" \
				>"changed/$file"
			run falcon-key verify -k "$dir/lab.key.pub" "$dir/statement" changed
			echo "$file: $output"
			same "$file: status" "$status" 1
			rm -r changed
		done
	done
}

@test "the statement says what the run's files and trace say" {
	falcon-key verify -k "$dir/lab.key.pub" "$dir/statement" >said
	cat said
	jq -r '.sha256 | to_entries[] | .value + "  " + .key' said >sums
	(cd "$dir/run" && sha256sum --strict -c) <sums
	same "files" "$(wc -l <sums)" 6
	trace=$dir/run/trace.jsonl
	same "trace" "$(jq -c '[.lines, .chain]' said)" \
		"$(printf '[%d,%s]' "$(wc -l <"$trace")" "$(tail -n 1 "$trace" | jq .h)")"
	same "job" "$(jq -r .job said)" "$(b2sum -l 256 <"$dir/run/job" | cut -c -64)"
	same "what it came from" "$(jq -c '[.name, .model, .data, .version]' said)" \
		"$(head -n 1 "$trace" | jq -c '[.name, .model, .data, .version]')"
	[[ $(jq -r .data said) =~ ^[0-9a-f]{64}$ ]]
}

@test "what is not whole is not signed" {
	run falcon-key sign -k "$dir/lab.key" none
	same status "$status" 1
	has "$output" "none/trace.jsonl: No such file or directory"
	cp -r "$dir/run" part
	sed -i '$d' part/trace.jsonl
	run falcon-key sign -k "$dir/lab.key" part
	same status "$status" 75
	has "$output" "part: the job is not done"
	cp "$dir/run/trace.jsonl" part/
	sed -i '5d' part/trace.jsonl
	run falcon-key sign -k "$dir/lab.key" part
	same status "$status" 1
	has "$output" "it does not chain the line before"
	run falcon-key sign -k "$dir/lab.key.pub" "$dir/run"
	[ "$status" -ne 0 ]
	run falcon-key sign -k "$dir/keys/work.key" "$dir/run"
	same status "$status" 2
	has "$output" "not a secret key to sign with"
	run falcon-key verify -k "$dir/lab.key" "$dir/statement"
	same status "$status" 2
	has "$output" "not a public key to verify with"
	chmod 644 part/job
	cp "$dir/lab.key" open
	chmod 644 open
	run falcon-key sign -k open "$dir/run"
	same status "$status" 77
	run falcon-key pair "$dir/lab.key"
	same "$output" "$output" "falcon-key: $dir/lab.key: already exists"
	: >half.pub
	run falcon-key pair half
	same status "$status" 2
	[ ! -e half ]
	run bash -c "falcon-key sign -k '$dir/lab.key' '$dir/run' >/dev/full"
	same status "$status" 1
	has "$output" "standard output: No space left on device"
	sanitized && return # it would end the program itself
	cp -r "$dir/run" large
	truncate -s 300M large/job
	run falcon-key sign -k "$dir/lab.key" --max-memory 64M large
	same "status ($output)" "$status" 1
	has "$output" "falcon-key: out of memory"
}

@test "the statement of a run that was killed tells of what counts, and chains all of it" {
	tiny .
	job=(--set job.epochs=4 --set state.clocks=3 tiny.job)
	keys=$dir/keys
	at_unix
	slow a 1 500
	at_clock 5
	killed
	at_unix
	ended "$ps" ps
	falcon-key sign -k "$dir/lab.key" "$state" >signed
	falcon-key verify -k "$dir/lab.key.pub" signed "$state" >said
	cat said
	same "job" "$(jq -r .job said)" "$(b2sum -l 256 <"$state/job" | cut -c -64)"
	same "its model" "$(jq -r '.sha256."model.safetensors"' said)" "$(member sha256)"
	same "all lines" "$(jq .lines said)" "$(wc -l <"$state/trace.jsonl")"
	has "$(<"$state/trace.jsonl")" '"ev":"restart"'
	# With more epochs it is another job, and another run: not done, until it is.
	job=(--set job.epochs=6 --set state.clocks=3 tiny.job)
	at_unix
	soon "its line" lines 2 '"ev":"restart"'
	run falcon-key sign -k "$dir/lab.key" "$state"
	same "status ($output)" "$status" 75
	has "$output" "the job is not done"
	slow b 1 500
	ended "$ps" ps
	run falcon-key verify -k "$dir/lab.key.pub" signed "$state"
	same status "$status" 1
	falcon-key sign -k "$dir/lab.key" "$state" >signed
	falcon-key verify -k "$dir/lab.key.pub" signed "$state" >said
	same "job" "$(jq -r .job said)" "$(b2sum -l 256 <"$state/job" | cut -c -64)"
}
