# A run computed anew by one machine, and held against what its workers made of it.

bats_require_minimum_version 1.5.0

load common
load job
load tiny

setup_file() {
	for_file
	falcon-key add -K "$BATS_FILE_TMPDIR/keys/keyring" liar
}

setup() {
	for_test
	tiny .
	draw
	job=(--set job.epochs=10 --set state.clocks=$((RANDOM % 6 + 2)) --set state.keep=100
		--set job.task-hashes=yes tiny.job)
}

# anew STATUS PART [OPTION...]: so much of the run is computed anew.
anew() {
	run "-$1" falcon-stat --audit --recompute "$2" "${@:3}" "$state"
}

# told PATH: a member of what JSON says of it.
told() {
	falcon-stat --audit --json --recompute 100% "$state" | jq -c ".recompute$1"
}

# forge FILTER: the trace as jq makes it; what has its links is gone, or has the new ones.
forge() {
	rm -rf "$state"/snapshot.*
	jq -c "$1" "$state/trace.jsonl" | chain >forged
	mv forged "$state/trace.jsonl"
	jq -c ".chain = \"$(tail -n 1 "$state/trace.jsonl" | jq -r .h)\"" \
		"$state/result.json" >forged
	mv forged "$state/result.json"
}

# scheme: one that the law covers; `shared`: of which there are snapshots.
scheme() {
	local all=(bsp epsp epsp:1/4 epsp:1/2 epsp:1 epsp:2 ssp:0 flexrr:0)
	[ "${1:-}" != shared ] || all=("${all[@]:0:6}")
	echo "${all[RANDOM % ${#all[@]}]}"
}

@test "five unequal workers and two kills: all of it is equal, and any part" {
	local i n optim=(sgd momentum nesterov adagrad adamw) kind
	kind=${optim[RANDOM % 5]}
	job=(--set "sync.scheme=$(scheme shared)" --set "optimizer.kind=$kind"
		--set push.bits=$((RANDOM % 17 + 8))
		--set optimizer.lr=0.01 --set optimizer.clip=0.$((RANDOM % 9 + 1))
		--set optimizer.ema=0.9 --set schedule.kind=cosine --set "job.hashes=$((RANDOM % 4 + 1))" "${job[@]}")
	[[ $kind != [mn]* ]] || job=(--set optimizer.momentum=0.5 "${job[@]}")
	at_unix
	for i in 1 2 3 4 5; do
		slow "w$i" "0.$((RANDOM % 9 + 1))" 4000
	done
	at_clock $((RANDOM % 5 + 2))
	kill -KILL "${workers[RANDOM % 4]}"
	at_clock $((RANDOM % 5 + 10))
	killed
	at_unix
	ended "$ps" ps
	anew 0 100%
	has "$output" $'\nrecomputed 40 of 40 clocks: equal\n40 of 40 clocks (100.0 %) can be'
	n=$((RANDOM % 99 + 1))
	anew 0 "$n%"
	has "$output" " of 40 clocks: equal"
	[ "$(sed -n 's/^recomputed \([0-9]*\) of.*/\1/p' <<<"$output")" -ge $((40 * n / 100)) ]
	same json "$(told '|[.clocks,.equal,.findings]')" '[40,true,0]'
	# More epochs, whose rates follow from another end.
	at_unix --set job.epochs=12
	work more --lanes 1
	ended "$ps" ps
	anew 0 100%
	has "$output" $'\nrecomputed 48 of 48 clocks: equal\n'
}

# forged LIE [OPTION...]: a run of which one of three workers forged one value by one unit,
# or, with flip, had bits turned over in its memory.
forged() {
	local flip=
	[ "$1" != flip ] || flip=,flip=0.2
	serve --min-workers 3 "${@:2}"
	# Of each clock most is the liar's, which has tasks enough for its lie, then.
	slow a 0.05 4000
	slow b 0.08 4000
	FALCON_LIE=$1 start liar "$bin/tests/falcon-work-values" -k "$keys/liar.key" -n liar \
		--lanes 1 --cache "$BATS_FILE_TMPDIR/cache" \
		--emulate "rate=4000,speed=0.8,cores=1$flip" "$ready"
	ended "$ps" ps
	falcon-stat --audit "$state"
}

# one LIE: who forged one value by one unit is found in all of the run, and in a part of it
# or not.
one() {
	forged "$1" --set "sync.scheme=$(scheme)"
	anew 1 100%
	has "$output" "of liar, key liar ("
	has "$output" "): task "
	same "who" "$(told '.wrong|map(.key)|unique')" '["liar"]'
	same "where it begins" "$(told '|.from == .to')" true
	run falcon-stat --audit --recompute 1% "$state"
	[ "$status" -le 1 ]
}

# tasks SAMPLES: of a clock of so many, by $task, $each and the $quarters of it in the tail.
tasks() {
	local head=$(((4 - quarters) * $1 / (4 * task)))
	echo $((head + ($1 - head * task + each - 1) / each))
}

@test "the last clock of an epoch is shorter, and has more tasks than the others" {
	local batch task each quarters full=0 last=0
	until ((last > full)); do
		batch=$((RANDOM % 120 + 16)) task=$((RANDOM % 9 + 2)) quarters=$((RANDOM % 3 + 1))
		each=$((RANDOM % (task - 1) + 1))
		full=$(tasks "$batch") last=$(tasks $((256 % batch)))
	done
	job=(--set "batch.size=$batch" --set "batch.task=$task" --set "batch.tail-task=$each"
		--set "batch.tail=0.$((quarters * 25))" --set "sync.scheme=$(scheme shared)"
		"${job[@]}")
	at_unix
	work "w1" --lanes "1:$((RANDOM % 3 + 1))"
	work "w2" --lanes 1
	ended "$ps" ps
	same tasks "$(jq -cs 'map(select(.ev == "ledger") | .tasks) | unique' \
		"$state/trace.jsonl")" "[$full,$last]"
	anew 0 100%
	full=$((10 * (256 / batch + 1)))
	has "$output" $'\n'"recomputed $full of $full clocks: equal"$'\n'
}

@test "a value of one task forged by one unit: clock, contribution and key are found" {
	one unit
}

@test "a bit of a value that was flipped: the same" {
	one flip
}

@test "without the hashes of tasks the clock is found, without those of versions the span" {
	forged many --set "sync.scheme=$(scheme shared)" --set job.hashes=1000
	# Who is to blame is known if there are more keys whose tasks are right.
	anew 1 100%
	has "$output" " of 40 clocks: not equal, from "
	same "nobody else" "$(told '.wrong|map(.key)|unique - ["liar", null]')" '[]'
	forge 'if .ev == "ledger" then .contrib |= map(del(.hashes)) else . end'
	anew 1 100%
	has "$output" "differs from the computed one"
	run ! grep -q liar <<<"$output"
	# What was kept is all there is.
	forge 'if .ev == "update" and .version < 40 then del(.hash, .exponents) else . end'
	anew 1 100%
	has "$output" "recomputed 40 of 40 clocks: not equal, from one of clocks 0 to 39 on"
	run ! grep -q liar <<<"$output"
}

@test "what is pushed is not what was claimed: with audit = sums it is found, too" {
	forged push --set job.audit=sums
	anew 1 100%
	has "$output" "of liar, key liar ("
	has "$output" "): its sum is not what job and data make"
}

@test "an exponent that nobody needed is found before the honest are blamed for it" {
	forged little --set sync.scheme=bsp
	anew 1 100%
	has "$output" "recompute: clock "
	has "$output" ": the exponents of version "
	has "$output" " differ from the computed ones"
	same "nobody" "$(told '.wrong|map(.key)|unique')" '[null]'
}

@test "a snapshot that was altered is found, and nobody is charged with it" {
	local last one
	serve --set optimizer.kind=momentum --set optimizer.momentum=0.5
	work a --lanes 1
	ended "$ps" ps
	anew 0 100%
	one=$(printf '%s\n' "$state"/snapshot.0*[1-9] | head -n 1)
	printf x | dd of="$one/state.safetensors" bs=1 seek=500 conv=notrunc status=none
	anew 1 1%
	has "$output" "$(basename "$one")/state.safetensors: is not what its manifest says"
	# So that its manifest agrees: the parameters, then what the optimiser had.
	/usr/bin/python3 - "$one" <<-'END'
		import hashlib, json, sys
		state, manifest = sys.argv[1] + "/state.safetensors", sys.argv[1] + "/manifest.json"
		text = open(manifest).read()
		was = json.loads(text)["blake2b"]
		is_ = hashlib.blake2b(open(state, "rb").read(), digest_size=32).hexdigest()
		open(manifest, "w").write(text.replace(was, is_))
	END
	anew 1 100%
	has "$output" "snapshot"
	same "nobody" "$(told '.wrong|map(.key)')" '[null]'
}

@test "other numerics, other data, another scheme, other programs: it cannot judge" {
	serve
	work a --lanes 1
	ended "$ps" ps
	cp -r "$state" kept
	forge 'if .ev == "join" then .fingerprint = "00112233445566778899aabbccddeeff" else . end'
	anew 75 1%
	has "$output" "cannot judge: its workers' numerics are not this machine's"
	same json "$(told '|[.clocks,.equal,.findings]')" '[0,false,0]'
	rm -r "$state"
	cp -r kept "$state"
	mkdir other
	cp tiny.job tiny.model labels other
	head -c 4112 images | tr a b >other/images
	run -2 falcon-stat --audit --recompute 1% -C other "$state"
	[[ $output =~ other/images": its hash is "[0-9a-f]{64}", not data.train-hash" ]]
	rm other/images
	run -2 falcon-stat --audit --recompute 1% -C other "$state"
	has "$output" "other/images: "
	again
	serve --set sync.scheme=asp
	work a --lanes 1
	ended "$ps" ps
	anew 75 1%
	has "$output" "cannot judge: asp: the model depends on who computed what"
}

@test "weights that the run did not begin with are wrong usage, and no verdict" {
	serve --set job.seed=2
	work a --lanes 1
	ended "$ps" ps
	mv "$state" other
	again
	serve
	work b --lanes 1
	ended "$ps" ps
	run -2 --separate-stderr falcon-stat --audit --recompute 1% \
		--from other/model.safetensors "$state"
	same "said" "$stderr" "falcon-stat: --from: $state began with no weights"
	same "printed" "$output" ""
	# Nor those of another one.
	mv "$state" first
	again
	serve --from first/model.safetensors
	work c --lanes 1
	ended "$ps" ps
	anew 0 1% --from first/model.safetensors
	run -2 --separate-stderr falcon-stat --audit --recompute 1% \
		--from other/model.safetensors "$state"
	has "$stderr" "other/model.safetensors: its SHA-256 is "
	same "printed" "$output" ""
}

@test "what is not kept cannot be judged, and is counted; a version's hash counts" {
	job=(--set state.clocks=4 --set state.keep=1 "${job[@]:4}")
	serve --set job.epochs=10
	work a --lanes 1
	ended "$ps" ps
	anew 0 1%
	has "$output" "recomputed 1 of 40 clocks: equal"
	has "$output" " of 40 clocks ("
	[ "$(told .reach)" = 40 ]
	# The hash of a version that nobody made.
	forge 'if .ev == "update" and .clock == 0 then .hash = "'"$(printf %064d 0)"'" else . end'
	anew 1 100%
	has "$output" "recompute: clock 0: version 1 differs from the computed one"
}

@test "wrong usage is exit 2" {
	local part
	mkdir -p run
	for part in 1 0% 101% x% %; do
		run -2 falcon-stat --audit --recompute "$part" run
		has "$output" "--recompute: '$part' is not a part like 1%"
	done
	run -2 falcon-stat --recompute 1% run
	run -2 falcon-stat --audit --recompute 1% /dev/null
	run -2 falcon-stat --audit -C . run
}
