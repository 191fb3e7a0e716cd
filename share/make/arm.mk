# check-arm: 64-bit ARM under qemu: unit tests, 50 seeds of the simulator, and jobs among unlike
# CPUs, which all compute one model.  ARM_CC="clang --target=aarch64-linux-gnu" is another compiler.

ARM_SYSROOT := $(abspath $(MODES))/arm-sysroot
ARM_LIB  := /usr/lib/aarch64-linux-gnu
ARM_BLAS := openblas-pthread
ARM_HAS  := libc6-dev libgcc-12-dev libsodium-dev libzstd-dev libopenblas-dev libpopt-dev \
	libuv1-dev libjansson-dev zlib1g-dev libcmocka-dev libssl-dev
ARM_CC   ?= aarch64-linux-gnu-gcc
ARM      := $(MODES)/arm
# Debian's alternatives are links that nobody has made there.
ARM_MAKE = $(MAKE) B=$(ARM) CC="$(ARM_CC) --sysroot=$(ARM_SYSROOT)" \
	OPENBLAS_CFLAGS="-I$(ARM_SYSROOT)/usr/include/aarch64-linux-gnu/$(ARM_BLAS)" \
	OPENBLAS_LIBS="-L$(ARM_SYSROOT)$(ARM_LIB)/$(ARM_BLAS) -lopenblas \
	-Wl,-rpath,$(ARM_LIB)/$(ARM_BLAS)"
# Without tests that ask the kernel what qemu answers otherwise: marks of the heap, RLIMIT_AS, how
# a program cannot be started.
ARM_TESTS := $(patsubst %,$(ARM)/tests/%,simulate \
	$(filter-out test_aead test_cli test_plot test_post,$(UNIT)))

.PHONY: check-arm deps-arm
deps-arm: deps
	@$(DEPS) check arm

# Files alone: no program of the packages runs.
$(ARM_SYSROOT): | deps-arm
	rm -rf $@.new
	mmdebstrap --quiet --variant=extract --architectures=arm64 \
		--include="$(ARM_HAS)" bookworm $@.new
	mv $@.new $@

check-arm: export FALCON_ARM = qemu-aarch64-static -L $(ARM_SYSROOT)
check-arm: export FALCON_ARM_BIN = $(abspath $(ARM))
check-arm: export FALCON_BIN = $(abspath $(B))
check-arm: all | $(ARM_SYSROOT)
	+$(ARM_MAKE) all $(ARM_TESTS)
	SEEDS=50 FROM=0 FALCON_RUNNER="$(FALCON_ARM)" $(PROVE) --jobs $(JOBS) \
		$(wildcard tests/arm/*.bats) $(ARM_TESTS)
