# Optimisers of real jobs: the same model whoever computes, and what is frozen stays.

load common
load job

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
