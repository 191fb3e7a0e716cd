# plane.bash: for benches in bash, beside figures.bash: jobs in which next to nothing is
# computed, so that a clock is push, update and pull.  $twin is the program.
# shellcheck shell=bash disable=SC2154 # their variables
. tests/bats/tiny.bash

# plane_begin: once, before the others; a pipe breaks in it.
plane_begin() {
	tiny "$dir"
	# As a job has it that says nothing.
	sed -i '/^hashes/d' "$dir/tiny.job"
}

# model WIDTH: two layers of that; 0: none.
model() {
	[ "$1" = 0 ] || printf 'input 16\ndense %d\nrelu\ndense %d\nrelu\ndense 4\n' "$1" "$1"
	[ "$1" != 0 ] || printf 'input 16\ndense 4\n'
}

# floats WIDTH: of a model of two such layers.
floats() { echo $(($1 * $1 + 22 * $1 + 4)); }

# job WORKERS TASKS CLOCKS OPTION...: runs tiny.job with so many tasks in a clock.
job() {
	local workers=$1 tasks=$2 clocks=$3 epochs=1 samples=$(($2 * $3)) i at
	shift 3
	at_listen
	if [ $samples -gt 256 ]; then
		samples=256 epochs=$((tasks * clocks / 256))
	fi
	rm -rf "$dir/state" "$dir"/*.spent "$dir/w$workers".*.err
	serve ps "$twin" spent "$dir/ps.spent" "$bin/falcon-ps" -x -K "$dir/keys/keyring" \
		"${at[@]}" -s "$dir/state" -w "$workers" --set job.epochs=$epochs \
		--set job.eval=never --set sync.scheme=bsp --set data.samples=$samples \
		--set batch.size="$tasks" --set batch.task=1 --set optimizer.kind=momentum \
		--set optimizer.momentum=0.9 --set optimizer.lr=1e-6 --set state.clocks=0 \
		--set state.seconds=0 "$@" "$dir/tiny.job" >/dev/null 2>"$dir/ps.err"
	for ((i = 0; i < workers; i++)); do
		member "w$workers.$i" "$twin" spent "$dir/w$i.spent" "$bin/falcon-work" \
			-v -k "$dir/keys/work.key" -n "w$i" --lanes 1 --cache none \
			"$address"
	done
	done_by ps
	for ((i = 0; i < workers; i++)); do
		done_by "w$workers.$i"
	done
}
