/* Memory that a program has, and may have. */
#include "cli/need.h"

#include "cli/cores.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
	LARGE = 1 << 20, /* bytes of a block that goes back to the system when freed */
	/* The memory of a program when it begins, where the system does not tell, and the
	 * further memory of every program that runs: code, libraries, stacks, buffers of
	 * streams. */
	BEGUN = 6 << 20,
	RUNS = 5 << 20,
	THREADS = 4, /* libuv's pool */
	STACK = 8 << 20
};

/* Number `field` of /proc/self/statm (proc(5)), in bytes: 1 is the address space, 2 the
 * resident set, 6 data and stack. */
static uint64_t
own_bytes(unsigned field, uint64_t otherwise)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");
	unsigned got = 0;
	while (f != NULL && got < field && fscanf(f, "%lu", &pages) == 1)
		got++;
	if (f != NULL)
		fclose(f);
	return got == field ? pages * (uint64_t)sysconf(_SC_PAGESIZE) : otherwise;
}

uint64_t
fal_memory_prepare(void)
{
#ifdef M_MMAP_THRESHOLD
	(void)mallopt(M_MMAP_THRESHOLD, LARGE);
	(void)mallopt(M_TRIM_THRESHOLD, LARGE);
	(void)mallopt(M_ARENA_MAX, 1);
#endif
	return own_bytes(2, BEGUN) + RUNS;
}

uint64_t
fal_memory_now(uint64_t yet)
{
	return own_bytes(2, BEGUN) + yet;
}

uint64_t
fal_memory_of_input(uint64_t program)
{
	const uint64_t now = own_bytes(2, BEGUN) + RUNS;
	return now > program ? now - program : 0;
}

int
fal_memory_check(uint64_t need, uint64_t reserved, uint64_t most, struct fal_diag *why)
{
	const uint64_t group = fal_cli_group_memory(""), has = own_bytes(2, 0);
	const uint64_t more = reserved + THREADS * STACK + (need > has ? need - has : 0);
	const bool grouped = group != 0 && (most == 0 || group < most);
	const uint64_t limit = grouped ? group : most;
	if (limit != 0 && need > limit)
		return fal_diag_set(why, FAL_ELIMIT,
				    "needs %" PRIu64 " bytes, %s allows %" PRIu64, need,
				    grouped ? "its control group" : "--max-memory",
				    limit);
	void *p = mmap(NULL, more, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) {
		struct rlimit space, data;
		getrlimit(RLIMIT_AS, &space);
		getrlimit(RLIMIT_DATA, &data);
		const bool fits = own_bytes(1, 0) + more <= space.rlim_cur;
		return fal_diag_set(why, FAL_ENOMEM,
				    "needs %" PRIu64 " bytes of address space beside the "
				    "%" PRIu64 " that it has, ulimit -%c allows %" PRIu64
				    " in all",
				    more, own_bytes(fits ? 6 : 1, 0), fits ? 'd' : 'v',
				    (uint64_t)(fits ? data : space).rlim_cur);
	}
	munmap(p, more);
	return FAL_OK;
}

int
fal_memory_apply_limit(const struct fal_cli *cli, uint64_t program, uint64_t most,
		       bool dials)
{
	const int code = fal_cli_range(cli, "max-memory", 1, UINT64_MAX);
	if (code >= 0 || most == 0)
		return code;
	struct fal_diag why;
	if (fal_memory_check(program, 0, most, &why) < 0) {
		fal_cli_err(cli->prog, "%s", why.text);
		return FAL_EXIT_NO;
	}
	fal_cli_err(cli->prog, "needs %" PRIu64 " MiB beside its input",
		    fal_memory_mib(program));
	struct rlimit stack, data;
	getrlimit(RLIMIT_STACK, &stack);
	getrlimit(RLIMIT_DATA, &data);
	const uint64_t each = stack.rlim_cur < STACK ? stack.rlim_cur : STACK;
	const uint64_t stacks = dials ? THREADS * each : 0;
	data.rlim_cur = own_bytes(6, BEGUN) + most - program + RUNS + stacks;
	(void)setrlimit(RLIMIT_DATA, &data);
	return -1;
}
