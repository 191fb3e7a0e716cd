#!/usr/bin/env bats
# Jobs among unlike CPUs, all but this machine's under qemu: one model.  FALCON_ARM is the command
# that runs programs for 64-bit ARM, FALCON_ARM_BIN their folder: see `make check-arm`.

load ../bats/common
load ../bats/job
load ../bats/tiny

# A convolution, and layers whose sizes no tile divides; roots, quotients and a cosine in steps.
setup_file() {
	for_file
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
	job=(--set job.numerics=portable --set job.epochs=6 --set state.clocks=3
		--set optimizer.kind=adamw --set optimizer.lr=0.01 --set schedule.kind=cosine
		--set model.block=tensor tiny.job)
	serve
	work native --lanes 1
	judge
	again
}

setup() {
	for_test
	ln -s "$BATS_FILE_TMPDIR"/{tiny.*,images,labels} .
}

# arm PROGRAM OPTION...
arm() {
	$FALCON_ARM "$FALCON_ARM_BIN/$1" "${@:2}"
}

# cpu CPU PROGRAM OPTION...: this machine's program on another x86-64.
cpu() {
	qemu-x86_64-static -cpu "$1" "$bin/$2" "${@:3}"
}

# work_as NAME COMMAND...: a worker whose program is the command's.
work_as() {
	start "$1" "${@:2}" falcon-work -k "$keys/work.key" -n "$1" --lanes 1 --cache none \
		--emulate rate=2000,cores=1 "$ready"
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
	jq -e 'select(.ev == "place").runs | map(.[0]) | unique | length == 2' "$state/trace.jsonl"
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

@test "a CPU without AVX2 is refused, and both sides say what the CPU lacks" {
	serve
	work_as old cpu Nehalem
	ended "$pid" old 1
	has "$(<old.err)" "the CPU lacks AVX2"
	soon "the coordinator's line" grep -q "old left: it cannot work: the CPU lacks AVX2" ps.err
	work_as able env
	judge
}
