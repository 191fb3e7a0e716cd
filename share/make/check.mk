# deps, check, check-quick, check-again, golden, sim, faults, mutants, check-san, check-accuracy, check-torch, fuzz,
# corpus, bench, experiments, experiments-tune, bench-proj, bench-exec, bench-pairs, bench-peers,
# bench-shards, bench-sites, bench-latency, demo.
# share/make/tap runs one test of any kind, share/make/FalconTap.pm adds the closing line
# to prove's report.

# Cheap enough to be asked each time.
DEPS := DEPS=$(B) share/deps
.PHONY: deps deps-check
deps:
	@$(DEPS) build
deps-check: deps
	@$(DEPS) check
$(UNIT:%=$(B)/tests/unit/%.o): | deps-check

# PROGRAM-ISA: a test or bench with lib/math, the exact sums, or what hashes in
# vectors, held to one instruction set (base/vector.h).
ISAS := $(if $(filter x86_64,$(shell uname -m)),avx512f avx2 sse2)
OPTIM_SRC := lib/math/optim.c lib/math/rate.c
NN_SRC := $(filter-out $(OPTIM_SRC),$(wildcard lib/math/*.c))
BFP_SRC := $(wildcard lib/wire/bfp*.c)
define held
$(B)/$(1)/%.o: %.c
	@mkdir -p $$(@D)
	$$(call do,CC)$$(CC) $$(ALL_CFLAGS) -DFAL_VECTOR_HELD='"$(1)"' -c -o $$@ $$<
$(call program,$(B)/tests/test_nn_law-$(1),$(addprefix $(1)/,tests/unit/test_nn_law.c \
	$(NN_SRC)),-lcmocka -Wl$(comma)--wrap=gemm_isa $(BLAS_LIBS))
$(call program,$(B)/tests/test_optim-$(1),$(addprefix $(1)/,tests/unit/test_optim.c \
	$(OPTIM_SRC)),-lcmocka)
$(call program,$(B)/tests/test_bfp-$(1),$(addprefix $(1)/,tests/unit/test_bfp.c \
	$(BFP_SRC)),-lcmocka)
$(call program,$(B)/tests/test_sec-$(1),$(addprefix $(1)/,tests/unit/test_sec.c \
	lib/crypto/hash_each.c),-lcmocka)
$(call program,$(B)/bench/bench_nn-$(1),$(addprefix $(1)/,tests/bench/bench_nn.c \
	$(NN_SRC)),-Wl$(comma)--wrap=gemm_isa $(BLAS_LIBS))
endef
$(foreach i,$(ISAS),$(eval $(call held,$(i))))
UNIT_BIN += $(foreach t,nn_law optim bfp sec,$(ISAS:%=$(B)/tests/test_$(t)-%))
$(B)/bench/bench_nn: | $(patsubst %,$(B)/bench/bench_nn-%,$(filter avx2,$(ISAS)))

# Programs of another Falcon, 9.9.9: the objects that know of that, and all others as they
# are.  `protocol` has another protocol, `messages` the same one with other messages, as it
# looks, `build` is like ours.
# $(call other,FOLDER,MAJOR,MINOR)
define other
$(B)/tests/$(1)/%.o: %.c $(B)/flags $(B)/packages
	@mkdir -p $$(@D)
	$$(call do,CC)$$(CC) $$(ALL_CFLAGS) -DFAL_VERSION='"9.9.9"' \
		-DFAL_PROTO_MAJOR=$(2) -DFAL_PROTO_MINOR=$(3) -c -o $$@ $$<
endef
# $(call other_program,FOLDER,PROGRAM,SOURCES)
other_program = $(call program,$(B)/tests/$(1)/$(2),$(3:%=tests/$(1)/%) \
	$(wildcard cmd/$(2)/*.c),$(if $(filter falcon-work falcon-stat,$(2)),$(BLAS_LIBS)))
OTHER_ALL := falcon-ps falcon-work falcon-stat falcon-sync
OTHER_TWO := falcon-ps falcon-work
$(eval $(call other,protocol,10,1))
$(eval $(call other,messages,9,1))
$(eval $(call other,build,9,0))
$(foreach p,$(OTHER_ALL),$(eval $(call other_program,protocol,$(p),\
	lib/base/build.c lib/net/handshake.c)))
$(foreach p,$(OTHER_TWO),$(eval $(call other_program,messages,$(p),\
	lib/base/build.c lib/wire/msg.c)))
$(foreach p,$(OTHER_TWO),$(eval $(call other_program,build,$(p),lib/base/build.c)))
# And programs as where there is no libcrypto.
$(B)/tests/sodium/%.o: %.c $(B)/flags $(B)/packages
	@mkdir -p $(@D)
	$(call do,CC)$(CC) $(ALL_CFLAGS) -c -o $@ $<
sodium_program = $(call program,$(B)/tests/sodium/$(1),tests/sodium/lib/crypto/aead.c \
	$(wildcard cmd/$(1)/*.c),$(if $(filter falcon-work,$(1)),$(BLAS_LIBS)))
$(foreach p,$(OTHER_TWO),$(eval $(call sodium_program,$(p))))
OTHER_BIN := $(OTHER_ALL:%=$(B)/tests/protocol/%) \
	$(foreach o,messages build sodium,$(OTHER_TWO:%=$(B)/tests/$(o)/%))

# Programs with fault points (base/fault.h): the objects that have any, and all others as
# they are.  make faults has all of them with a sanitizer.
POINTS := $(shell grep -lsw 'FAL_TRY\|FAL_FAULTS' lib/*/*.c cmd/*/*.c)
$(B)/tests/points/%.o: %.c $(B)/flags $(B)/packages
	@mkdir -p $(@D)
	$(call do,CC)$(CC) $(ALL_CFLAGS) -DFAL_FAULTS -c -o $@ $<
# $(call points_program,PROGRAM)
points_program = $(call program,$(B)/tests/points/$(1),$(filter-out $(MODE_SRC_$(MODE)),tests/fault.c) \
	$(patsubst %,tests/points/%,$(filter lib/%,$(POINTS))) \
	$(foreach f,$(wildcard cmd/$(1)/*.c),$(if $(filter $(f),$(POINTS)),tests/points/)$(f)),\
	$(if $(filter falcon-work falcon-stat,$(1)),$(BLAS_LIBS)))
$(foreach p,$(PROGS),$(eval $(call points_program,$(p))))
POINTS_BIN := $(PROGS:%=$(B)/tests/points/%)

SIM  := $(if $(SIM_SRC),$(B)/tests/simulate)
REPLAY := $(B)/tests/replay
# The longest come first: nothing long begins at the end.
LONGEST := $(patsubst %,tests/bats/%.bats,endure exec large moves resume law formats build sync \
	reconnect memory)
BATS := $(LONGEST) $(filter-out $(LONGEST),$(wildcard tests/bats/*.bats))
# The simulator's seeds FROM … FROM+SEEDS-1.
SEEDS ?= 2000
FROM  ?= 0

# So many tests at once: most of them wait most of the time.
JOBS ?= $(shell echo $$(($$(nproc) * 2)))

export SEEDS FROM
TESTING := check check-quick check-tests check-again golden sim
$(TESTING): export FALCON_BIN = $(abspath $(B))
$(TESTING): export ASAN_OPTIONS = detect_leaks=1:abort_on_error=1
$(TESTING): export UBSAN_OPTIONS = print_stacktrace=1
$(TESTING): export TSAN_OPTIONS ?= halt_on_error=1

PROVE := PERL5LIB=share/make prove --harness FalconTap --timer --exec share/make/tap
FAILED := $(B)/tests/failed

.PHONY: $(TESTING) check-san
check:
	@rm -f $(FAILED)
	@$(MAKE) --no-print-directory deps-check
	@$(MAKE) --no-print-directory check-tests

check-tests: $(PROG_BIN) $(UNIT_BIN) $(SIM) $(REPLAY) $(FAULT_BIN) $(OTHER_BIN) $(POINTS_BIN) \
		$(B)/tests/make-vectors
	FALCON_FAILED=$(FAILED) $(PROVE) --jobs $(JOBS) $(SIM) $(BATS) $(REPLAY) $(UNIT_BIN)

# What is run between commits: two minutes.
QUICK := cli law exec resume formats sync golden key man shards
check-quick: deps-check $(PROG_BIN) $(UNIT_BIN) $(SIM) $(FAULT_BIN)
	SEEDS=500 $(PROVE) --jobs $(JOBS) $(SIM) $(QUICK:%=tests/bats/%.bats) $(UNIT_BIN)

# Models and audits of short jobs, against those of the commit BASE.
golden: deps-check all
	tests/golden/against "$(BASE)"

# What failed in the last check, once more and one after the other: a job of real
# processes may have missed its time where others used the machine.  Of programs that
# depend on nothing but their seeds there is nothing to try again.
check-again:
	@test -s $(FAILED) || { echo "make check-again: no check has failed"; exit 1; }
	@! grep -v '[.]bats$$' $(FAILED) || { echo "these fail whenever they run"; exit 1; }
	@echo "unsteady, and run again alone: $$(tr '\n' ' ' <$(FAILED))"
	$(PROVE) $$(cat $(FAILED))

sim: $(SIM)
	$(SIM) $(SEEDS) $(FROM)

# Calls that fail, one after the other (base/fault.h), through what the programs do: minutes.
# SCENARIO names some of what tests/points/run has; SAMPLE: so many calls only, drawn.
.PHONY: faults faulty
faulty: deps-check
	@$(MAKE) --no-print-directory MODE=fault B=$(MODES)/fault all

faults: faulty
	tests/points/run $(if $(SAMPLE),-n $(SAMPLE)) $(MODES)/fault $(SCENARIO)

# Faults put in on purpose, one after the other: each must be found.  Minutes; MUTANTS
# names some of tests/mutants/*.patch.
.PHONY: mutants
MUTANTS ?= $(wildcard tests/mutants/*.patch)
mutants: deps-check
	tests/mutants/run $(MODES)/mutants $(MUTANTS)

check-san:
	$(MAKE) MODE=asan B=$(MODES)/asan check
	@# The simulator has one thread: a few seeds show TSan all there is.
	$(MAKE) MODE=tsan B=$(MODES)/tsan SEEDS=200 check

# The accuracy that the shipped jobs reach; a minute on two cores.
.PHONY: check-accuracy
check-accuracy: deps-check all
	share/data/fetch mnist
	FALCON_BIN="$(abspath $(B))" tests/accuracy.sh

# Gradients, steps and exports against PyTorch's.
.PHONY: check-torch
check-torch: $(B)/tests/dump_grad $(B)/tests/dump_steps $(PROG_BIN)
	@$(DEPS) check torch
	tests/torch/grad.py $< $(wildcard share/models/*)
	tests/torch/optim.py $(B)/tests/dump_steps
	FALCON_BIN="$(abspath $(B))" tests/torch/run.sh
	FALCON_BIN="$(abspath $(B))" tests/torch/exec.sh
	FALCON_BIN="$(abspath $(B))" tests/torch/norm.sh
	FALCON_BIN="$(abspath $(B))" tests/torch/frozen.sh
	FALCON_BIN="$(abspath $(B))" tests/torch/models.sh
	FALCON_BIN="$(abspath $(B))" tests/torch/user.sh
	FALCON_BIN="$(abspath $(B))" tests/torch/lora.sh
	FALCON_BIN="$(abspath $(B))" tests/torch/tutorial

$(eval $(call program,$(B)/tests/dump_grad,tests/torch/dump_grad.c,$(BLAS_LIBS)))
$(eval $(call program,$(B)/tests/dump_steps,tests/torch/dump_steps.c,))

# Seconds for each target.  What a target found stays in build/fuzz, a crash too.
T ?= 20
# What a target has of a program, beside the library.
fuzz_journal_OF := cmd/falcon-ps/state_dir.c
fuzz_set_OF := cmd/falcon-sync/set.c
# Folders of examples to begin with, by target, beside those that are kept.
FUZZ_KEPT := tests/fuzz/corpus
FUZZ_SEEDS_fuzz_job := share/jobs
FUZZ_SEEDS_fuzz_coord := $(B)/fuzz/coord_seeds
run-fuzz_coord keep-fuzz_coord: | $(FUZZ_SEEDS_fuzz_coord)
$(FUZZ_SEEDS_fuzz_coord): tests/fuzz/coord_seeds
	$< $@
FUZZ_SEEDS_fuzz_agent := $(B)/fuzz/seeds/agent
FUZZ_SEEDS_fuzz_shard := $(B)/fuzz/seeds/shard
run-fuzz_agent run-fuzz_shard keep-fuzz_agent keep-fuzz_shard: | $(B)/fuzz/seeds
$(B)/fuzz/seeds: tests/fuzz/seeds
	$< $@

# Loops over numbers: what is compared in them is half of fuzz_coord's time, and tells
# nothing.
ifeq ($(MODE),fuzz)
$(B)/lib/wire/bfp_kern.o $(B)/lib/base/rng.o $(B)/lib/math/optim.o: \
	private MODE_FLAGS += -fno-sanitize-coverage=trace-cmp
endif

.PHONY: fuzz fuzz-run corpus corpus-keep $(FUZZ:%=run-%) $(FUZZ:%=keep-%)
fuzz:
	@$(DEPS) fuzz
	$(MAKE) MODE=fuzz B=$(MODES)/fuzz CC=clang fuzz-run

fuzz-run: $(FUZZ:%=run-%)

$(FUZZ:%=run-%): run-%: $(B)/fuzz/%
	@mkdir -p $<.corpus
	$< -max_total_time=$(T) -max_len=65536 -print_final_stats=1 -verbosity=0 \
		-print_funcs=0 -artifact_prefix=$<- $<.corpus $(FUZZ_SEEDS_$*) \
		$(wildcard $(FUZZ_KEPT)/$*)

# Keeps in tests/fuzz/corpus, of what the tests write and the targets found, the least
# that reaches all that it reaches.
corpus: all
	@$(DEPS) fuzz
	rm -rf $(MODES)/fuzz/collected
	FALCON_BIN="$(abspath $(B))" tests/fuzz/collect $(MODES)/fuzz/collected
	$(MAKE) MODE=fuzz B=$(MODES)/fuzz CC=clang corpus-keep

corpus-keep: $(FUZZ:%=keep-%)

$(FUZZ:%=keep-%): keep-%: $(B)/fuzz/%
	tests/fuzz/keep $< $(FUZZ_KEPT)/$* $(B)/collected/$* $<.corpus \
		$(FUZZ_SEEDS_$*)

$(foreach t,$(FUZZ),$(eval $(call program,$(B)/fuzz/$(t),tests/fuzz/$(t).c $($(t)_OF),\
	-fsanitize=fuzzer $(BLAS_LIBS))))

# What share/vectors holds, made anew.
.PHONY: vectors
vectors: $(B)/tests/make-vectors
	$< share/vectors
$(eval $(call program,$(B)/tests/make-vectors,tests/vectors/make.c,\
	-Wl$(comma)--wrap=fal_random_bytes -Wl$(comma)--wrap=fal_build))

# All targets in one program without a fuzzer, over what is kept of them.
$(B)/replay/tests/fuzz/fuzz_%.o: tests/fuzz/fuzz_%.c $(B)/flags $(B)/packages
	@mkdir -p $(@D)
	$(call do,CC)$(CC) $(ALL_CFLAGS) -DLLVMFuzzerTestOneInput=fuzz_$* -c -o $@ $<
$(B)/tests/fuzz/replay.o: private CPPFLAGS += -DTARGETS='$(patsubst fuzz_%,TARGET(%),$(FUZZ))'
$(B)/tests/fuzz/replay.o: $(FUZZ:%=tests/fuzz/%.c)
$(eval $(call program,$(REPLAY),tests/fuzz/replay.c \
	$(FUZZ:%=replay/tests/fuzz/%.c) $(foreach t,$(FUZZ),$($(t)_OF)),$(BLAS_LIBS)))

# The figures are in bench.json, beside the mode folders.
.PHONY: bench experiments experiments-tune bench-proj bench-exec bench-pairs bench-peers bench-shards demo
bench: deps-check all $(BENCH:%=$(B)/bench/%) $(B)/bench/twin
	FALCON_BIN="$(abspath $(B))" tests/bench/run $(MODES)/bench.json \
		$(BENCH:%=$(B)/bench/%) $(wildcard tests/bench/*.sh)

# Cables between hosts that are network namespaces: tests/bench/cable.bash.
.PHONY: deps-cable
deps-cable: deps
	@$(DEPS) cable
$(B)/tests/bench/delay.o: | deps-cable

# Servers of servers at two sites against one level, 15 minutes; QUICK=1: 4.
.PHONY: bench-sites
bench-sites: all $(B)/bench/delay
	@$(DEPS) bench
	FALCON_BIN="$(abspath $(B))" tests/bench/run $(MODES)/bench.json tests/bench/sites/sites.sh

# What latency costs EPSP, beside bsp and asp, over namespaces; 8 minutes.
.PHONY: bench-latency
bench-latency: all $(B)/bench/delay
	@$(DEPS) bench
	FALCON_BIN="$(abspath $(B))" tests/bench/run $(MODES)/bench.json \
		tests/bench/latency/latency.sh

# Shards of processes by each static rule, alone.
bench-shards: all $(B)/bench/delay
	FALCON_BIN="$(abspath $(B))" tests/bench/run $(MODES)/bench.json tests/bench/bench_shards.sh

# What the papers measured, an hour; QUICK=1: ten minutes (tests/experiments/README.md).
# Without root, or what delay wants, there is no latency.  experiments-tune finds the rate and
# momentum of each scheme, half an hour.
experiments experiments-tune: all
	@$(DEPS) bench
	-@$(MAKE) --no-print-directory $(B)/bench/delay
	FALCON_BIN="$(abspath $(B))" tests/experiments/run $(if $(filter %-tune,$@),--tune) \
		$(MODES)/$@

# Trainers in PyTorch: what the pipe costs, 10 minutes, and three hosts against DDP, 2.
bench-exec: all
	@$(DEPS) bench torch
	FALCON_BIN="$(abspath $(B))" tests/bench/run $(MODES)/bench.json $(wildcard tests/bench/exec/[ho]*)

# Whole jobs against PyTorch and DDP over Gloo, 3 minutes; with PSLITE=FOLDER, clocks against
# those of ps-lite that was built there.
bench-peers: all $(B)/bench/twin
	@$(DEPS) bench torch
	FALCON_BIN="$(abspath $(B))" tests/bench/run $(MODES)/bench.json tests/bench/peers/peers.sh

# What falcon-ps costs, against BASE; a quarter of an hour.
BASE ?= HEAD^
bench-pairs: all
	@$(DEPS) bench
	FALCON_BIN="$(abspath $(B))" tests/bench/pairs/run "$(BASE)"

# What falcon-proj predicts against what is measured, an hour; QUICK=1: 15 minutes.
bench-proj: all
	@$(DEPS) bench
	FALCON_BIN="$(abspath $(B))" tests/bench/proj/run $(MODES)/bench.json $(MODES)/bench-proj

demo: all
	@$(DEPS) demo
	FALCON_BIN="$(abspath $(B))" share/demo
