# Whatever is killed, stopped, cut off or filled up while something is under way: the job
# ends with the same model.  `make chaos` has longer schedules, and more of them.

load common

# Three at once, as most of the time they wait; the last has group servers.
@test "three short schedules of faults: the same model, and an audit that passes" {
	local i pids=() levels=(-s -s -gs)
	draw
	for i in 1 2 3; do
		FALCON_BIN=$bin start "chaos$i" "$root/tests/chaos/run" "${levels[i - 1]}" "$((RANDOM * 10 + i))" 1
		pids+=("$pid")
	done
	for i in 1 2 3; do
		ended "${pids[i - 1]}" "chaos$i" || {
			cat "$BATS_TEST_TMPDIR/chaos$i.out"
			return 1
		}
	done
}
