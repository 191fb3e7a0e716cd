# A job that diverges fails, and leaves what it was before.

load common
load job
load tiny

setup_file() {
	for_file
}

setup() {
	for_test
	tiny .
	# Weights that decay by more than twice themselves grow: from the 20th update on.
	job=(--set optimizer.lr=4 --set optimizer.weight-decay=1 --set schedule.warmup=40
		--set job.epochs=20 tiny.job)
}

# diverged: the job ends with status 1 and says so.
diverged() {
	local status=0
	wait "$ps" || status=$?
	same "status: $(cat ps.err)" "$status" 1
	has "$(cat ps.err)" "diverged: "
}

@test "a job that diverges fails, with the model that was last well" {
	serve
	work a --lanes 1
	diverged
	local clock
	clock=$(member clock)
	has "$(cat ps.err)" "tiny: the model of clock $clock is in $state/model.safetensors"
	has "$(member failed)" "diverged: "
	same "a whole epoch" $((clock % 4)) 0
	[ "$clock" -ge 16 ]
	same sha256 "$(sha256sum <"$state/model.safetensors")" "$(member sha256)  -"
	falcon-work -j --eval "$state/model.safetensors" tiny.job >judged
	jq -e '.test_loss < 5' judged
	falcon-stat "$state/trace.jsonl" >table
	has "$(cat table)" "failed"
	# It stays failed.
	run falcon-ps -jx -K "$keys/keyring" -l 127.0.0.1:0 -s "$state" "${job[@]}"
	same "status of another start" "$status" 1
	has "$output" "the job has failed"
}

@test "without evaluations, too" {
	serve --set job.eval=never
	work a --lanes 1
	diverged
	[ "$(member clock)" -ge 16 ]
}

@test "a job that diverges in its first epoch leaves no model" {
	serve --set schedule.warmup=0 --set optimizer.lr=100
	work a --lanes 1
	diverged
	[ ! -e "$state/model.safetensors" ] || [ ! -s "$state/model.safetensors" ]
	[ ! -e "$state/result.json" ] || [ ! -s "$state/result.json" ]
}

# lost [OPTION...]: a coordinator that has no memory at its sixth clock; its worker.
lost() {
	start_ready ps "$bin/tests/falcon-ps-lost" -jx -K "$keys/keyring" -l unix:sock \
		-s "$state" "$@" tiny.job
	ps=$pid
	work a --lanes 1
	local status=0
	wait "$ps" || status=$?
	same "status: $(cat ps.err)" "$status" 1
	has "$(cat ps.err)" "out of memory"
}

@test "an error of falcon-ps itself: the job goes on from its last snapshot" {
	lost
	has "$(cat ps.err)" "out of memory; goes on from its last snapshot when it is started again"
	job=(tiny.job)
	at_unix
	ended "$ps" ps
	has "$(cat "$state/trace.jsonl")" '"ev":"restart"'
	falcon-stat --audit "$state"
}

@test "where there is none it has failed, with its newest version" {
	lost --set sync.scheme=asp
	has "$(cat ps.err)" "tiny: the model of clock 6 is in $state/model.safetensors"
	same clock "$(member clock)" 6
	has "$(member failed)" "out of memory"
	same sha256 "$(sha256sum <"$state/model.safetensors")" "$(member sha256)  -"
	has "$(tail -n 1 "$state/trace.jsonl")" '"ev":"failed"'
	falcon-stat --audit "$state"
	jq -c 'del(.failed)' "$state/result.json" >well
	mv "$state/result.json" result && cp well "$state/result.json"
	run falcon-stat --audit "$state"
	has "$output" "result.json: failed is not scheduler: out of memory"
	mv result "$state/result.json"
	status=0
	wait "$pid" || status=$?
	same "status of the worker: $(cat a.err)" "$status" 1
	has "$(cat a.err)" "out of memory"
	falcon-work -j --eval "$state/model.safetensors" tiny.job >judged
	jq -e '.test_loss < 5' judged
	run falcon-ps -jx -K "$keys/keyring" -l 127.0.0.1:0 -s "$state" \
		--set sync.scheme=asp tiny.job
	same "status of another start" "$status" 1
	has "$output" "the job has failed"
}
