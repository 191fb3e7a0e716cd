/* Cores and memory, by affinity and control groups: Linux,
 * Documentation/admin-guide/cgroup-v2.rst and scheduler/sched-bwc.rst. */
#include "cli/cores.h"

#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SETS 8 /* 1024 processors each: more than Linux supports */

/* Reads the first line of folder/file.  False: there is none. */
static bool
first_line(const char *folder, const char *file, char *line, int cap)
{
	char path[PATH_MAX];
	if (snprintf(path, sizeof(path), "%s/%s", folder, file) >= (int)sizeof(path))
		return false;
	FILE *f = fopen(path, "re");
	if (f == NULL)
		return false;
	bool got = fgets(line, cap, f) != NULL;
	fclose(f);
	return got;
}

/* The limit that one group sets; UINT64_MAX: none. */
typedef uint64_t group_fn(const char *folder, bool v2);

/* The group's quota, in whole cores rounded up. */
static uint64_t
group_quota(const char *folder, bool v2)
{
	char quota[64], period[64];
	uint64_t q, p;
	if (v2) {
		if (!first_line(folder, "cpu.max", quota, sizeof(quota)) ||
		    sscanf(quota, "%" SCNu64 " %" SCNu64, &q, &p) != 2) /* "max 100000" */
			return UINT64_MAX;
	} else if (!first_line(folder, "cpu.cfs_quota_us", quota, sizeof(quota)) ||
		   !first_line(folder, "cpu.cfs_period_us", period, sizeof(period)) ||
		   quota[0] == '-' || /* -1: none */
		   sscanf(quota, "%" SCNu64, &q) != 1 ||
		   sscanf(period, "%" SCNu64, &p) != 1) {
		return UINT64_MAX;
	}
	if (p == 0 || q / p >= UINT_MAX - 1)
		return UINT64_MAX;
	const uint64_t cores = q / p + (q % p != 0);
	return cores > 0 ? cores : 1;
}

/* The group's memory limit in bytes. */
static uint64_t
group_memory(const char *folder, bool v2)
{
	char line[64];
	uint64_t bytes;
	return first_line(folder, v2 ? "memory.max" : "memory.limit_in_bytes", line,
			  sizeof(line)) &&
			       sscanf(line, "%" SCNu64, &bytes) == 1 /* or "max" */
		       ? bytes
		       : UINT64_MAX;
}

/* The least limit of the group and its ancestors.  In a container the path may be the
 * host's, which does not exist here: only existing groups count, at least the root. */
static uint64_t
least_of_ancestors(const char *mount, const char *group, bool v2, group_fn *what)
{
	char folder[PATH_MAX];
	size_t top = strlen(mount);
	int n = snprintf(folder, sizeof(folder), "%s%s", mount, group);
	if (n < 0 || n >= (int)sizeof(folder))
		return UINT64_MAX;
	uint64_t least = UINT64_MAX;
	for (;;) {
		uint64_t q = what(folder, v2);
		if (q < least)
			least = q;
		char *slash = strrchr(folder + top, '/');
		if (slash == NULL)
			return least;
		*slash = '\0';
	}
}

/* Is the controller in the list, which has commas? */
static bool
has_controller(const char *list, const char *controller)
{
	const size_t n = strlen(controller);
	for (; *list != '\0'; list += strcspn(list, ","), list += *list == ',')
		if (strcspn(list, ",") == n && memcmp(list, controller, n) == 0)
			return true;
	return false;
}

/* The least limit of all control groups of this process; 0: none. */
static uint64_t
least_of_groups(const char *root, const char *controller, group_fn *what)
{
	char path[PATH_MAX], mount[PATH_MAX], line[PATH_MAX];
	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	FILE *f = fopen(path, "re");
	if (f == NULL)
		return 0;
	uint64_t least = UINT64_MAX;
	/* Lines are ID:CONTROLLERS:PATH; version 2 has no controllers. */
	while (fgets(line, sizeof(line), f) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		char *group = line;
		strsep(&group, ":");
		char *controllers = strsep(&group, ":");
		if (group == NULL ||
		    (*controllers != '\0' && !has_controller(controllers, controller)))
			continue;
		bool v2 = *controllers == '\0';
		snprintf(mount, sizeof(mount), "%.1024s/sys/fs/cgroup%s%.1024s", root,
			 v2 ? "" : "/", controllers);
		uint64_t q = least_of_ancestors(mount, group, v2, what);
		if (q < least)
			least = q;
	}
	fclose(f);
	return least == UINT64_MAX ? 0 : least;
}

unsigned
fal_cli_quota(const char *root)
{
	return (unsigned)least_of_groups(root, "cpu", group_quota);
}

uint64_t
fal_cli_group_memory(const char *root)
{
	return least_of_groups(root, "memory", group_memory);
}

/* Sets the cores that this process may use.  False: not known. */
static bool
get_affinity(cpu_set_t set[static SETS])
{
	return sched_getaffinity(0, SETS * sizeof(*set), set) == 0;
}

unsigned
fal_cli_cores(void)
{
	cpu_set_t set[SETS];
	unsigned quota = fal_cli_quota("");
	const int n = get_affinity(set) ? CPU_COUNT_S(sizeof(set), set) : 1;
	unsigned cores = n > 0 ? (unsigned)n : 1;
	return quota > 0 && quota < cores ? quota : cores;
}

uint64_t
fal_cli_idle_ns(const char *root)
{
	char path[PATH_MAX], line[256];
	cpu_set_t set[SETS];
	uint64_t ticks = 0;
	if (!get_affinity(set))
		return 0;
	const unsigned quota = fal_cli_quota(root);
	if (quota > 0 && quota < (unsigned)CPU_COUNT_S(sizeof(set), set))
		return 0; /* the quota keeps us from using idle cores */
	snprintf(path, sizeof(path), "%s/proc/stat", root);
	FILE *f = fopen(path, "re");
	if (f == NULL)
		return 0;
	/* The lines of cores come first, "cpuN USER NICE SYSTEM IDLE ...".  %u would skip
	 * the blank in the line of all cores. */
	while (fgets(line, sizeof(line), f) != NULL && strncmp(line, "cpu", 3) == 0) {
		unsigned core;
		uint64_t idle;
		if (line[3] >= '0' && line[3] <= '9' &&
		    sscanf(line + 3, "%u %*u %*u %*u %" SCNu64, &core, &idle) == 2 &&
		    CPU_ISSET_S(core, sizeof(set), set))
			ticks += idle;
	}
	fclose(f);
	return ticks * (UINT64_C(1000000000) / (uint64_t)sysconf(_SC_CLK_TCK));
}

uint64_t
fal_cli_cpu_ns(void)
{
	struct timespec t;
	if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) != 0)
		return 0;
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}
