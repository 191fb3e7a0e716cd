# lint: every part is a target of its own; silence is success.
# lines: counts lines of code by room.

C_FILES := $(wildcard lib/*/*.[ch] cmd/*/*.[ch] tests/*/*.[ch] examples/*.[ch] \
	examples/*/*.[ch])
# A template of the instruction sets compiles only where one is set.
HEADERS := $(filter-out %_tile.h,$(filter %.h,$(C_FILES)))
MAN     := $(wildcard man/*.[157])
# Scripts are known by their first line, whatever their name.
SCRIPTS  = $(shell grep -rlE -m1 '^\#!.*[ /](sh|bash)$$' .ci share tests \
	$(wildcard examples))
BATS_ALL = $(wildcard tests/bats/*.bats tests/bats/*.bash tests/arm/*.bats)

LINTS := lint-format lint-floors lint-cites lint-warnings lint-headers lint-man lint-shell lint-cppcheck

.PHONY: lint lint-deps $(LINTS)
lint: $(LINTS)
lint-deps:
	@$(DEPS) lint
$(LINTS): lint-deps

# Versions differ in what they make of the same style.
lint-format:
	@clang-format-19 --dry-run -Werror $(C_FILES)

lint-floors:
	.ci/floors
	.ci/circles

lint-cites:
	.ci/cites

# Everything once more in a folder of its own, with warnings as errors.
lint-warnings:
	$(MAKE) MODE=$(MODE) B=$(MODES)/lint WERROR=1 lint-objects

.PHONY: lint-objects
lint-objects: $(PROG_BIN) $(UNIT_BIN) $(SIM) $(BENCH:%=$(B)/bench/%) $(B)/bench/twin \
	$(FUZZ:%=$(B)/tests/fuzz/%.o)

lint-headers:
	@set -e; for h in $(HEADERS); do \
		$(CC) $(ALL_CFLAGS) -Werror -MF /dev/null -fsyntax-only -Wno-unused-function \
			-include $$h -x c /dev/null || { echo "$$h: does not compile alone" >&2; \
			exit 1; }; \
	done

# mandoc does not know pages that are not installed: those are looked up here.
lint-man:
	.ci/man $(MAN)

# bats stops at any failure (SC2164), runs each test in a subshell (SC2030, SC2031) and
# loads what shellcheck does not follow (SC2154, SC2034); stand-ins for programs are
# single-quoted (SC2016).
lint-shell:
	shellcheck -x $(SCRIPTS)
	shellcheck -s bats -e SC2016,SC2030,SC2031,SC2034,SC2154,SC2164 $(BATS_ALL)

# Arenas are cut from bytes (invalidPointerCast); an index is not bounded by each
# comparison that it stands in (arrayIndexThenCheck).  It does not read the system's
# headers: it has to be told which macro of theirs is a loop, and whether %ju fits a
# uint64_t is for the compilers' -Wformat (invalidPrintfArgType).
lint-cppcheck:
	@mkdir -p $(MODES)/cppcheck
	cppcheck --quiet --error-exitcode=1 --std=c11 -j 2 -Ilib -D_GNU_SOURCE \
		'-DTAILQ_FOREACH(v,h,f)=while ((v = (h)->tqh_first) != 0)' \
		--enable=warning,performance,portability --inline-suppr \
		--suppress=missingIncludeSystem --suppress=invalidPointerCast \
		--suppress=arrayIndexThenCheck --suppress=normalCheckLevelMaxBranches \
		--suppress=invalidPrintfArgType_uint --suppress=invalidPrintfArgType_sint \
		--cppcheck-build-dir=$(MODES)/cppcheck \
		lib cmd

.PHONY: lines
lines:
	@share/make/lines
