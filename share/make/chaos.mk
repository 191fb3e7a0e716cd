# chaos: real processes, and faults that strike what is under way (tests/chaos/run).  N
# schedules from SEED on, which is drawn where it is not given; a table at the end.
.PHONY: chaos
N    ?= 20
SEED ?= $(shell od -An -N3 -tu4 /dev/urandom)
CHAOS_CLOCK := $(B)/tests/chaos-clock.so
$(CHAOS_CLOCK): tests/chaos/clock.c $(B)/flags
	@mkdir -p $(@D)
	$(call do,LD)$(CC) $(ALL_CFLAGS) -fPIC -shared -o $@ $< -ldl
chaos: deps-check all $(CHAOS_CLOCK)
	FALCON_BIN="$(abspath $(B))" tests/chaos/run $(SEED) $(N)
check-tests: $(CHAOS_CLOCK)
