# Falcon: one non-recursive GNU Makefile.
#
#   make            the programs, in build/release
#   make demo       train LeNet-5 on Fashion-MNIST with four unequal workers
#   make check      the tests           make lint       the linters
#   make MODE=asan  one of release, debug, asan, tsan, cov, fault; objects in build/MODE
#   make check-arm check-san faults mutants fuzz corpus vectors bench bench-proj experiments
#        bench-exec bench-pairs bench-peers bench-shards bench-sites sim lines install uninstall
#        dist clean: see share/make
#   make V=1        whole commands instead of "CC file.o"
#
# Sources are found by name: lib/*/*.c become one archive, every cmd/falcon-X/*.c one
# program, every tests/unit/test_X.c one cmocka test.

RELEASE := 0.1.0
# With git's number of the commit, where there is one.
COMMIT  := $(shell git describe --always --exclude='*' --abbrev=8 --dirty=+ 2>/dev/null)
VERSION := $(RELEASE)$(COMMIT:%=-g%)
MODE    ?= release
PREFIX  ?= /usr/local
CC      ?= gcc
CFLAGS  ?= -O2 -g
# Warnings are errors for CI=true.
WERROR  ?= $(filter true,$(CI))

B := build/$(MODE)
# The folder that holds the mode folders, whatever B is.
MODES := $(patsubst %/$(MODE),%,$(B))

MODE_FLAGS_release := -D_FORTIFY_SOURCE=2
MODE_FLAGS_debug   := -O0 -g3
MODE_FLAGS_asan    := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all \
	-fno-omit-frame-pointer
MODE_FLAGS_tsan    := -O1 -g -fsanitize=thread -fno-omit-frame-pointer
MODE_FLAGS_cov     := -O0 -g --coverage
# With fault points (base/fault.h), for make faults.
MODE_FLAGS_fault   := $(MODE_FLAGS_asan) -DFAL_FAULTS
# For make fuzz alone, which also sets CC=clang.
MODE_FLAGS_fuzz    := -O1 -g -fsanitize=fuzzer-no-link,address,undefined \
	-fno-sanitize-recover=all
ifeq ($(origin MODE_FLAGS_$(MODE)),undefined)
$(error MODE=$(MODE): not one of release, debug, asan, tsan, cov, fault)
endif
MODE_FLAGS := $(MODE_FLAGS_$(MODE))
# What each program of a mode has beside its own.
MODE_SRC_tsan := tests/closed.c
MODE_SRC_fault := tests/fault.c
MODE_OBJ := $(MODE_SRC_$(MODE):%.c=$(B)/%.o)

# What an older C would let pass, a pointer cut to an int, is an error always.
WARN := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes \
	-Wformat=2 -Wvla -Werror=implicit-function-declaration -Werror=implicit-int \
	-Werror=int-conversion -Werror=incompatible-pointer-types $(if $(WERROR),-Werror)
# Enumerators are the names of whole numbers, also in products of doubles.
WARN += -Wno-enum-float-conversion
# cmocka 2 would have other names than cmocka 1 knows.
WARN += -DCMOCKA_DISABLE_DEPRECATION_WARNINGS
# After the user's CFLAGS: what the law of equal numerics and the design need.
FIXED := -std=c17 -D_GNU_SOURCE -Ilib -fvisibility=hidden \
	-ffp-contract=off -fno-fast-math -fno-math-errno -fno-trapping-math \
	-fstack-protector-strong -fPIE -pthread -MD -MP
ALL_CFLAGS  = $(CPPFLAGS) $(CFLAGS) $(MODE_FLAGS) $(WARN) $(FIXED)
ALL_LDFLAGS = $(LDFLAGS) $(MODE_FLAGS) -pie -pthread -Wl,-z,relro,-z,now -Wl,--as-needed
LIBS      := -luv -ljansson -lpopt -lzstd -lsodium -lz -lm @$(B)/libcrypto.libs
# share/make/openblas fills these in.
BLAS_CFLAGS := @$(B)/openblas.cflags
BLAS_LIBS   := @$(B)/openblas.libs
# And share/make/libcrypto these; LIBCRYPTO=no: nothing.
export LIBCRYPTO
CRYPTO_CFLAGS := @$(B)/libcrypto.cflags

LIB_SRC  := $(wildcard lib/*/*.c)
LIB_OBJ  := $(LIB_SRC:%.c=$(B)/%.o)
PROGS    := $(notdir $(wildcard cmd/falcon-*))
PROG_BIN := $(PROGS:%=$(B)/%)
UNIT     := $(patsubst tests/unit/%.c,%,$(wildcard tests/unit/test_*.c))
UNIT_BIN := $(UNIT:%=$(B)/tests/%)
SIM_SRC  := $(wildcard tests/sim/*.c)
FUZZ     := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
BENCH    := $(patsubst tests/bench/%.c,%,$(wildcard tests/bench/bench_*.c))

# $(call do,WHAT)COMMAND: says what is made instead of how, and nothing under make -s.
QUIET := $(findstring s,$(firstword -$(MAKEFLAGS)))
do = $(if $(V),,@$(if $(QUIET),,echo '$(1) $@'; ))

.PHONY: all
all: deps $(PROG_BIN)
.DEFAULT_GOAL := all

# What everything is made with and from, in files that change only with what they say.
$(B)/flags: export FLAGS = $(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(LIBS)
$(B)/flags: deps
	@{ printf '%s\n' "$$FLAGS"; $(CC) --version; } | share/make/keep $@
$(B)/packages $(B)/openblas $(B)/libcrypto: deps
	@:

$(B)/%.o: %.c $(B)/flags $(B)/packages
	@mkdir -p $(@D)
	$(call do,CC)$(CC) $(if $(filter %/kern_blas.c,$<),$(BLAS_CFLAGS) )$(if $(filter \
		%/crypto/aead.c,$<),$(CRYPTO_CFLAGS) )$(ALL_CFLAGS) -c -o $@ $<
# These objects alone know the version.
VERSIONED := $(B)/lib/base/build.o $(patsubst %,$(B)/tests/unit/test_%.o,cli handshake net_strangers)
$(VERSIONED): FIXED += -DFAL_VERSION='"$(VERSION)"'
$(VERSIONED): $(B)/version
$(B)/version: deps
	@echo '$(VERSION)' | share/make/keep $@
$(B)/lib/math/kern_blas.o: $(B)/openblas
$(B)/lib/crypto/aead.o: $(B)/libcrypto

$(B)/libfalcon.a: $(LIB_OBJ)
	@rm -f $@
	$(call do,AR)$(AR) rcs $@ $^

# $(call program,NAME,SOURCES,LIBRARIES): links one program.
define program
$(1): $(2:%.c=$(B)/%.o) $(MODE_OBJ) $(B)/libfalcon.a $(B)/openblas $(B)/libcrypto
	@mkdir -p $$(@D)
	$$(call do,LD)$$(CC) $$(ALL_LDFLAGS) -o $$@ $(2:%.c=$(B)/%.o) $(MODE_OBJ) \
		$(B)/libfalcon.a $(3) $$(LIBS)
endef
$(foreach p,$(PROGS),$(eval $(call program,$(B)/$(p),$(wildcard cmd/$(p)/*.c),\
	$(if $(filter falcon-work falcon-stat,$(p)),$(BLAS_LIBS)))))
# What a test has of a program, beside the library.
test_cache_OF   := cmd/falcon-ps/cache.c
test_course_OF  := cmd/falcon-stat/course.c
test_disks_OF   := $(filter-out %/main.c %/shard_server.c,$(wildcard cmd/falcon-ps/*.c))
test_account_OF := $(test_disks_OF)
test_image_queue_OF := cmd/falcon-ps/image_queue.c
test_journal_OF := cmd/falcon-ps/state_dir.c
test_lane_OF    := cmd/falcon-work/lanes.c
test_plot_OF    := cmd/falcon-proj/plot.c
test_plan_OF    := cmd/falcon-stat/plan.c
test_publish_OF := cmd/falcon-ps/broadcast.c
test_record_OF  := cmd/falcon-ps/state_dir.c cmd/falcon-ps/trace_file.c
test_served_OF  := cmd/falcon-ps/broadcast.c
test_spare_OF   := cmd/falcon-work/lanes.c
test_trainer_OF := cmd/falcon-work/trainer.c
test_leave_OF   := cmd/falcon-ps/broadcast.c
test_told_OF    := $(test_leave_OF)
# An allocation may fail.
test_json_load_WITH := -Wl,--wrap=malloc
# Libcrypto may fail.
test_aead_WITH    := -Wl,--wrap=EVP_CipherFinal_ex
# Time passes as the test has it, and cores are as idle.
test_gemm_WITH  := -Wl,--wrap=gemm_isa
test_lane_WITH  := -Wl,--wrap=uv_hrtime
test_cli_WITH   := -Wl,--wrap=sched_getaffinity
test_desk_WITH  := -Wl,--wrap=fal_kern_begin
test_spare_WITH := -Wl,--wrap=fal_cli_idle_ns,--wrap=fal_cli_cpu_ns
# Decompressing takes as long as the test has it.
test_net_record_WITH := -Wl,--wrap=fal_unzip_ns
# A shard_set is made up.
test_publish_WITH := -Wl,--wrap=fal_shard_set_count -Wl,--wrap=fal_shard_set_part \
	-Wl,--wrap=fal_shard_set_making
# And so are channels.
comma := ,
test_told_WITH := $(addprefix -Wl$(comma)--wrap=,fal_shard_set_part fal_shard_set_making \
	fal_shard_version $(addprefix fal_chan_,suite is_unsealed compressing is_local \
	write_now send send_shared drop_outdated))
# Keys that are drawn, and the build, are those of the vectors.
test_vectors_WITH := -Wl,--wrap=fal_random_bytes -Wl,--wrap=fal_build
$(foreach t,$(UNIT),$(eval $(call program,$(B)/tests/$(t),tests/unit/$(t).c $($(t)_OF),\
	-lcmocka $($(t)_WITH) $(BLAS_LIBS))))
$(foreach t,$(BENCH),$(eval $(call program,$(B)/bench/$(t),tests/bench/$(t).c,\
	$(BLAS_LIBS))))
$(eval $(call program,$(B)/bench/twin,tests/bench/twin.c))
$(eval $(call program,$(B)/bench/delay,tests/bench/delay.c,-lnetfilter_queue -lnfnetlink))
# falcon-ps with a fault in it, which the audit, or who is there, must find.
FAULTS    := $(patsubst tests/faults/%.c,%,$(wildcard tests/faults/*.c))
FAULT_BIN := $(FAULTS:%=$(B)/tests/falcon-ps-%)
keyless_WRAP := fal_msg_put
lost_WRAP    := fal_store_merge
never_WRAP   := fal_sum_add_rec
twice_WRAP   := fal_sum_add_rec
$(foreach f,$(FAULTS),$(eval $(call program,$(B)/tests/falcon-ps-$(f),\
	$(wildcard cmd/falcon-ps/*.c) tests/faults/$(f).c,\
	-Wl$(comma)--wrap=$($(f)_WRAP))))
# falcon-work that lies, which falcon-ps must find.
LIAR_WRAPS := fal_sum_pack fal_sum_quantise_block fal_msg_put fal_agent_finished \
	fal_chan_send fal_dial fal_dial_door
LIARS     := $(patsubst tests/liars/%.c,%,$(wildcard tests/liars/*.c))
FAULT_BIN += $(LIARS:%=$(B)/tests/falcon-work-%)
$(foreach l,$(LIARS),$(eval $(call program,$(B)/tests/falcon-work-$(l),\
	$(wildcard cmd/falcon-work/*.c) tests/liars/$(l).c,\
	$(LIAR_WRAPS:%=-Wl$(comma)--wrap=%) $(BLAS_LIBS))))
# falcon-work on another CPU.
FAULT_BIN += $(B)/tests/falcon-work-avx2
$(eval $(call program,$(B)/tests/falcon-work-avx2,$(wildcard cmd/falcon-work/*.c) \
	tests/held.c,-Wl$(comma)--wrap=gemm_isa $(BLAS_LIBS)))
# A client that asks for too much.
FAULT_BIN += $(B)/tests/asks
$(eval $(call program,$(B)/tests/asks,tests/hostile/asks.c,))
# What a program had of memory at its peak.
FAULT_BIN += $(B)/tests/peak
$(eval $(call program,$(B)/tests/peak,tests/memory/peak.c,))
ifneq ($(SIM_SRC),)
$(eval $(call program,$(B)/tests/simulate,$(SIM_SRC),))
endif

include $(wildcard share/make/*.mk)

.PHONY: clean
clean:
	rm -rf build

-include $(shell find $(B) -name '*.d' 2>/dev/null)
