/* Cores, by affinity and control groups: Linux, Documentation/admin-guide/cgroup-v2.rst
 * and scheduler/sched-bwc.rst. */
#include "cli/cores.h"

#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads the first line of folder/file; false when there is none. */
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

/* The quota that one group sets, in whole cores rounded up; UINT_MAX for none. */
static unsigned
group_quota(const char *folder, bool v2)
{
	char quota[64], period[64];
	uint64_t q, p;
	if (v2) {
		if (!first_line(folder, "cpu.max", quota, sizeof(quota)) ||
		    sscanf(quota, "%" SCNu64 " %" SCNu64, &q, &p) != 2) /* "max 100000" */
			return UINT_MAX;
	} else if (!first_line(folder, "cpu.cfs_quota_us", quota, sizeof(quota)) ||
		   !first_line(folder, "cpu.cfs_period_us", period, sizeof(period)) ||
		   quota[0] == '-' || /* -1: none */
		   sscanf(quota, "%" SCNu64, &q) != 1 ||
		   sscanf(period, "%" SCNu64, &p) != 1) {
		return UINT_MAX;
	}
	if (p == 0 || q / p >= UINT_MAX - 1)
		return UINT_MAX;
	unsigned cores = (unsigned)(q / p + (q % p != 0));
	return cores > 0 ? cores : 1;
}

/* The least quota of the group and those above it.  In a container the path may be that
 * of the host and not be there: then only what does exist counts, the root at last. */
static unsigned
least_quota(const char *mount, const char *group, bool v2)
{
	char folder[PATH_MAX];
	size_t top = strlen(mount);
	int n = snprintf(folder, sizeof(folder), "%s%s", mount, group);
	if (n < 0 || n >= (int)sizeof(folder))
		return UINT_MAX;
	unsigned least = UINT_MAX;
	for (;;) {
		unsigned q = group_quota(folder, v2);
		if (q < least)
			least = q;
		char *slash = strrchr(folder + top, '/');
		if (slash == NULL)
			return least;
		*slash = '\0';
	}
}

/* Whether "cpu" is in the comma list of controllers. */
static bool
has_cpu(const char *list)
{
	for (; *list != '\0'; list += strcspn(list, ","), list += *list == ',')
		if (strcspn(list, ",") == 3 && memcmp(list, "cpu", 3) == 0)
			return true;
	return false;
}

unsigned
fal_cli_quota(const char *root)
{
	char path[PATH_MAX], mount[PATH_MAX], line[PATH_MAX];
	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	FILE *f = fopen(path, "re");
	if (f == NULL)
		return 0;
	unsigned least = UINT_MAX;
	/* Lines are ID:CONTROLLERS:PATH; version 2 has no controllers. */
	while (fgets(line, sizeof(line), f) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		char *group = line;
		strsep(&group, ":");
		char *controllers = strsep(&group, ":");
		if (group == NULL || (*controllers != '\0' && !has_cpu(controllers)))
			continue;
		bool v2 = *controllers == '\0';
		snprintf(mount, sizeof(mount), "%.1024s/sys/fs/cgroup%s%.1024s", root,
			 v2 ? "" : "/", controllers);
		unsigned q = least_quota(mount, group, v2);
		if (q < least)
			least = q;
	}
	fclose(f);
	return least == UINT_MAX ? 0 : least;
}

unsigned
fal_cli_cores(void)
{
	cpu_set_t set[8]; /* 8192 processors, more than Linux is built for */
	unsigned quota = fal_cli_quota("");
	int n = 1;
	if (sched_getaffinity(0, sizeof(set), set) == 0)
		n = CPU_COUNT_S(sizeof(set), set);
	unsigned cores = n > 0 ? (unsigned)n : 1;
	return quota > 0 && quota < cores ? quota : cores;
}
