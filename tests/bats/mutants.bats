#!/usr/bin/env bats
# The faults that make mutants puts in, one by one, can still be put in.

load common

@test "every mutant applies, says what it is and what finds it" {
	cd "$root"
	run ls tests/mutants
	[ "$(grep -c '\.patch$' <<<"$output")" -ge 24 ]
	for patch in tests/mutants/*.patch; do
		run patch --dry-run --force --silent -F 0 -p1 -i "$patch"
		same "$patch: output" "$output" ""
		same "$patch: exit status" "$status" 0
		tests=$(sed -n 's/^Dies: //p' "$patch")
		[ -n "$tests" ]
		for test in $tests; do
			[ "$test" = simulate ] || [ -f "tests/unit/$test.c" ]
		done
	done
}
