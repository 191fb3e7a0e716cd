# Calls that fail: some of what make faults goes through with a sanitizer, with programs of
# which only the objects with fault points (lib/base/fault.h) are built for it.

load common

setup() {
	[ -x "$bin/tests/points/falcon-ps" ] || skip "programs with fault points are not built"
	draw
}

# survives OPTION... SCENARIO...: the programs do what they are to, whatever fails.
survives() {
	run "$root/tests/points/run" --seed "$SEED" -j "$(nproc)" "$bin/tests/points" "$@"
	echo "$output"
	same "status" "$status" 0
	[[ ${lines[-1]} =~ ^[1-9][0-9]*" runs, " ]]
}

@test "each write, fsync and rename of a job that goes on, and of a keyring" {
	survives -k write -k fsync -k rename resume key-add
}

@test "disks that fail a job that is changed and snapshotted on the way, drawn" {
	survives -k write -k fsync -k rename -n 16 ordered
}

@test "memory that is not there, drawn" {
	survives -k malloc -n 12 resume ordered audit key-add
}
