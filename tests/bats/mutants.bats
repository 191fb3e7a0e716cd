#!/usr/bin/env bats
# The faults that make mutants puts in, one by one, can still be put in; and what it takes
# for a find.

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

# mutant NAME TEST...: a patch of the tree in $tree, after which a program does NAME.
mutant() {
	local name=$1
	shift
	printf '%s\n' "it $name" "Dies: $*" '' '--- a/lib/what' '+++ b/lib/what' \
		'@@ -1 +1 @@' -nothing "+$name" >"$tree/tests/mutants/$name.patch"
}

@test "mutants: what fails, aborts or never ends is found, and nothing else is" {
	tree=$BATS_TEST_TMPDIR/tree
	mkdir -p "$tree"/{lib,cmd,share} "$tree"/tests/{mutants,sim,unit}
	cp "$root/tests/mutants/run" "$tree/tests/mutants"
	echo nothing >"$tree/lib/what"
	: >"$tree/tests/some.h"
	printf 'build/release/tests/%%: lib/what\n\t%s\n\t%s\n' \
		'! grep -q breaks lib/what && mkdir -p build/release/tests' \
		'cp tests/unit/program $@' >"$tree/Makefile"
	cat >"$tree/tests/unit/program" <<-'EOF'
		#!/bin/sh
		case $(cat lib/what) in
		fails) echo '# seed 7: no progress: (bsp, 3 machines)'; exit 1 ;;
		errs) echo 'not ok 2 - test_two'; exit 1 ;;
		aborts) echo "sim: lib/a.c:5: f: Assertion \`x' failed." >&2
			echo '# seed 9: an assertion fails (it ends)'; kill -ABRT $$ ;;
		loops) while :; do :; done ;;
		stands) exec sleep 1000 ;;
		esac
	EOF
	chmod +x "$tree/tests/unit/program"
	mutant fails simulate
	mutant errs test_one
	mutant aborts simulate
	mutant loops test_one
	mutant nothing simulate
	mutant breaks simulate
	run env MUTANTS_CPU=1 "$tree/tests/mutants/run" "$BATS_TEST_TMPDIR/spoilt" \
		"$tree"/tests/mutants/{aborts,errs,fails,loops}.patch 3>&-
	same "exit status" "$status" 0
	has "$output" "aborts                   seed 9: lib/a.c:5: f: Assertion \`x' failed."
	has "$output" "errs                     test_one: not ok 2 - test_two"
	has "$output" "fails                    seed 7: no progress:"
	has "$output" "loops                    test_one: its time is spent"
	run env MUTANTS_CPU=1 "$tree/tests/mutants/run" "$BATS_TEST_TMPDIR/spoilt" \
		"$tree"/tests/mutants/{breaks,nothing}.patch 3>&-
	same "exit status" "$status" 1
	has "$output" "breaks                   NOT FOUND, simulate does not compile: it breaks"
	has "$output" "nothing                  NOT FOUND: it nothing"
	mutant stands simulate
	run env MUTANTS_WALL=1 "$tree/tests/mutants/run" "$BATS_TEST_TMPDIR/spoilt" \
		"$tree/tests/mutants/stands.patch" 3>&-
	same "exit status" "$status" 1
	has "$output" "stands                   NOT FOUND, seeds 0...: timed out: it stands"
}
