#!/usr/bin/env bats
# Jobs among unlike CPUs, all but this machine's under qemu: one model.  FALCON_ARM is the command
# that runs programs for 64-bit ARM, FALCON_ARM_BIN their folder: see `make check-arm`.

load ../bats/common
load ../bats/job
load ../bats/tiny

setup_file() {
	for_file
}

# A convolution, and layers whose sizes no tile divides; roots, quotients and a cosine in steps.
setup() {
	for_test
	tiny .
	cat >tiny.model <<-END
		input 1 4 4
		conv 11 kernel=3 pad=1
		relu
		maxpool 2
		flatten
		dense 301
		tanh
		dense 4
	END
	job=(--set job.epochs=6 --set state.clocks=3 --set model.block=tensor
		--set optimizer.kind=adamw --set optimizer.lr=0.01 --set schedule.kind=cosine tiny.job)
}

# arm PROGRAM OPTION...: becomes it.
arm() {
	# shellcheck disable=SC2086 # a command is several words
	exec $FALCON_ARM "$FALCON_ARM_BIN/$1" "${@:2}"
}

# cpu CPU PROGRAM OPTION...: becomes this machine's program on another x86-64.
cpu() {
	exec qemu-x86_64-static -cpu "$1" "$bin/$2" "${@:3}"
}

# work_as NAME COMMAND...: a worker whose program is the command's.
work_as() {
	start "$1" "${@:2}" falcon-work -k "$keys/work.key" -n "$1" --lanes 1 --cache none \
		--emulate rate=2000,cores=1 "$ready"
}

@test "one worker on this CPU" {
	serve
	work_as native env
	judge
}

@test "a worker on x86-64, a worker and shards on ARM: the model of one worker" {
	serve --min-workers 2 --min-shards 1 --shards 1
	start shards arm falcon-ps --join "$ready" -k "$keys/shard.key" "${apart[@]}"
	work_as arm arm
	work_as x86 env
	judge
	same "workers with tasks" "$(falcon-stat --json "$state/trace.jsonl" |
		jq -c '[.workers[] | select(.tasks > 0).worker] | sort')" '["arm","x86"]'
	has "$(falcon-stat "$state/trace.jsonl")" "numerics: identical"
	same "shards with blocks" "$(jq -c 'select(.ev == "place").runs | map(.[0]) | unique' \
		"$state/trace.jsonl")" '[1,2]'
}

@test "a job of x86-64 is resumed on ARM, and back" {
	at_unix
	work_as x86 env
	at_clock 5
	kill -TERM "$ps"
	wait "$ps" || :
	rm -f ps.ready sock
	start_ready ps arm falcon-ps -jx -K "$keys/keyring" -l unix:sock -s "$state" "${job[@]}"
	ps=$pid
	work_as arm arm
	at_clock 12
	kill -TERM "$ps"
	wait "$ps" || :
	at_unix
	judge
}

@test "an x86-64 with AVX2 and without AVX-512: the model of one worker" {
	serve
	work_as haswell cpu Haswell
	judge
}
