# Optimisers of real jobs: the same model whoever computes, and what is frozen stays.

bats_require_minimum_version 1.5.0

load common
load job
load tiny

setup_file() {
	for_file
}

setup() {
	for_test
	job=(--set data.samples=3000 --set data.test-samples=200 --set job.epochs=1
		--set schedule.warmup=3 --set optimizer.momentum=0 --set optimizer.lr=0.002
		--set optimizer.kind=adamw --set optimizer.weight-decay=0.05
		--set optimizer.clip=0.5 --set 'model.freeze=0.* 11.bias'
		"$root/share/jobs/fashion.job")
}

# weights FROM COUNT: bytes of the model's data.
weights() {
	local data
	data=$(($(stat -c %s "$state/model.safetensors") - 61706 * 4))
	tail -c +$((data + $1 + 1)) "$state/model.safetensors" | head -c "$2" | sha256sum
}

@test "adamw of few bits, clipped and in part frozen: one model from one worker and from three" {
	local one frozen bias rest
	draw
	job=(--set push.bits=$((RANDOM % 16 + 8)) "${job[@]}")
	serve
	work one --lanes 1
	wait "$ps"
	one=$(member sha256)
	frozen=$(weights 0 624)
	bias=$(weights $((61696 * 4)) 40)
	rest=$(weights 624 $((61696 * 4 - 624)))
	grep '"ev":"update"' "$state/trace.jsonl" | jq -es 'all(.[]; .norm > 0) and
		any(.[]; .norm > 0.5)'
	falcon-stat --audit "$state/trace.jsonl"

	state=$BATS_TEST_TMPDIR/three
	rm -f ps.ready
	serve
	work a --lanes 1
	slow b 0.5
	work c --lanes 2
	wait "$ps"
	same "the model of three" "$(member sha256)" "$one"

	state=$BATS_TEST_TMPDIR/longer
	rm -f ps.ready
	serve --set job.epochs=2
	work longer
	wait "$ps"
	same "frozen weights of two epochs" "$(weights 0 624)" "$frozen"
	same "frozen biases of two epochs" "$(weights $((61696 * 4)) 40)" "$bias"
	[ "$(weights 624 $((61696 * 4 - 624)))" != "$rest" ]
}

@test "an average of the weights: the same from one worker and from two" {
	local one last
	job=(--set optimizer.ema=0.9 "${job[@]}")
	serve
	work one --lanes 1
	wait "$ps"
	one=$(member average_sha256)
	same "the file" "$(sha256sum <"$state/average.safetensors")" "$one  -"
	[ "$one" != "$(member sha256)" ]
	same "data" "$(stat -c %s "$state/average.safetensors")" \
		"$(stat -c %s "$state/model.safetensors")"
	last=$state
	falcon-work --eval "$last/average.safetensors" --json "$root/share/jobs/fashion.job" |
		jq -e '.accuracy > 0.2'

	state=$BATS_TEST_TMPDIR/two
	rm -f ps.ready
	serve
	work a --lanes 1
	slow b 0.5
	wait "$ps"
	same "the average of two" "$(member average_sha256)" "$one"
}

@test "what cannot be frozen or clipped is refused" {
	run falcon-ps --check "${job[@]}" --set 'model.freeze=0.* 12.*'
	same "status" "$status" 2
	same "of no tensor" "$output" \
		"falcon-ps: --set: model.freeze: '12.*' names no tensor"
	run falcon-ps --check "${job[@]}" --set 'model.freeze=*'
	same "of all" "$output" \
		"falcon-ps: --set: model.freeze: '*' leaves nothing to train"
	run falcon-ps --check "${job[@]}" --set optimizer.clip=-1
	has "$output" "optimizer.clip: '-1' is not in 0..1e+30"
}

@test "scales of tensors: half of the rate is half a rate, none is none; the law" {
	job=(--set data.samples=3000 --set data.test-samples=200 --set job.epochs=1
		--set schedule.warmup=3 --set schedule.min-lr=0 --set optimizer.momentum=0
		--set optimizer.lr=0.002 --set optimizer.kind=adamw
		--set optimizer.weight-decay=0.05 --set optimizer.clip=0.5
		"$root/share/jobs/fashion.job")
	# A factor of all tensors is one of the rate and, as it is decoupled, of the decay.
	serve --set optimizer.lr=0.001
	work one --lanes 1
	judge half
	again
	serve --set optimizer.lr=0.002 --set 'optimizer.lr-scale=*=0.5'
	work one --lanes 1
	judge half
	again
	# Weights without a rate stay, in a block with others, with several workers.
	serve --set 'optimizer.lr-scale=11.bias=0 3.*=0.25' --set 'optimizer.decay-scale=*.bias=0 0.*=3'
	work a --lanes 1
	slow b 0.5
	judge scaled
	same "biases" "$(weights $((61696 * 4)) 40)" "$(head -c 40 /dev/zero | sha256sum)"
	falcon-stat --audit --recompute 100% --directory "$root/share/jobs" "$state"
	again
	serve --set 'optimizer.lr-scale=11.bias=0 3.*=0.25' --set 'optimizer.decay-scale=*.bias=0 0.*=3'
	work a --lanes 1
	judge scaled
	run -2 falcon-ps --check "${job[@]}" --set 'optimizer.lr-scale=12.*=1'
	has "$output" "optimizer.lr-scale: '12.*' names no tensor"
	run -2 falcon-ps --check "${job[@]}" --set 'optimizer.lr-scale=0.*'
	has "$output" "optimizer.lr-scale: '0.*' is not PATTERN=FACTOR"
}

@test "a schedule by a table: as the same schedule by a rule, and with the table alone" {
	job=(--set schedule.min-lr=0 "${job[@]}")
	local steps=(--set schedule.warmup=0 --set schedule.kind=step --set schedule.every=4
		--set schedule.gamma=0.5)
	local table=(--set schedule.warmup=0 --set schedule.kind=table --set "schedule.file=$PWD/rates")
	printf '%s\n' 1 1 1 1 .5 .5 .5 .5 0.25 .25 .25 25e-2 >rates
	serve "${steps[@]}"
	work one
	judge table
	again
	serve "${table[@]}"
	work one
	judge table
	has "$(cat "$state"/*.job "$state/job" 2>/dev/null)" "file-sha256 = $(sha256sum <rates | cut -d" " -f1)"
	again
	head -n 11 rates >few
	run -2 falcon-ps --check "${job[@]}" "${table[@]}" --set "schedule.file=$PWD/few"
	has "$output" "/few: 11 factors, the job has 12 updates"
	# Not the job's number of updates, but the file decides on the memory for its factors.
	(ulimit -v 100000 && run -2 falcon-ps --check "${job[@]}" "${table[@]}" --set batch.size=8 \
		--set job.epochs=1000000 --set "schedule.file=$PWD/few" &&
		has "$output" "/few: 11 factors, the job has 375000000 updates")
	sed 3s/1/one/ rates >odd
	run -2 falcon-ps --check "${job[@]}" "${table[@]}" --set "schedule.file=$PWD/odd"
	has "$output" "/odd:3: 'one' is not a factor in 0..1000000"
	run -2 falcon-ps --check "${job[@]}" "${table[@]}" --set "schedule.file-sha256=$(printf '%064d' 1)"
	has "$output" "its SHA-256 is "
}

@test "patience ends a job by its evaluations: the same clock and model, a resume as well" {
	tiny tiny
	job=(--set job.epochs=1000 --set job.patience=3 --set state.best=yes
		--set optimizer.lr=1e-12 tiny/tiny.job)
	serve
	work one --lanes 1
	judge patience
	same "clocks, the best one's" "$(member clocks) $(member best_clock)" "19 4"
	has "$(<ps.err)" "no better model in 3 epochs: done"
	run -0 falcon-ps -jx -K "$keys/keyring" -l unix:none -s "$state" "${job[@]}"
	has "$output" '"clocks":19'
	again
	serve --min-workers 2 --set state.clocks=2
	work a --lanes 1 --emulate rate=2000,cores=1
	slow b 0.3 2000
	soon "clock 12" grep -q '"ev":"eval","version":12' "$state/trace.jsonl"
	killed
	rm ps.ready
	serve --set state.clocks=2
	work c --lanes 1
	judge patience
	again
	# Whoever gets better goes on to the end.
	job=(--set job.epochs=8 --set job.patience=1 --set state.best=yes --set optimizer.lr=0.001
		tiny/tiny.job)
	serve
	work one
	wait "$ps"
	same "clocks" "$(member clocks)" 32
	run -2 falcon-ps --check --set state.best=no "${job[@]}" --set state.best=no
	has "$output" "job.patience: needs state.best = yes and job.eval = epoch"
}
