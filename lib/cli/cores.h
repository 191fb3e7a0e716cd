/* How many cores, and how much memory, this process may really use. */
#ifndef FAL_CLI_CORES_H
#define FAL_CLI_CORES_H

#include <stdint.h>

/* The least of the CPU affinity and the quota of this process's control group and those
 * above it (cgroup v2 cpu.max, v1 cpu.cfs_quota_us / cpu.cfs_period_us), rounded up; at
 * least 1. */
unsigned fal_cli_cores(void);

/* The quota alone, in whole cores rounded up, or 0 for none, as the files below `root`
 * have it ("" is the system): root/proc/self/cgroup and root/sys/fs/cgroup. */
unsigned fal_cli_quota(const char *root);

/* The least bytes of memory that the control group of this process and those above it
 * allow (cgroup v2 memory.max, v1 memory.limit_in_bytes), or 0 for any; `root` as above.
 */
uint64_t fal_cli_group_memory(const char *root);

/* Nanoseconds for which cores that this process may be on had nothing to do, all of them
 * together, since the system began, by the hundredth of a second: root/proc/stat has
 * them, see proc(5).  0: it does not tell, or a quota keeps us from using them all.
 */
uint64_t fal_cli_idle_ns(const char *root);

/* Time of cores that this process has had, in ns; 0: nobody knows. */
uint64_t fal_cli_own_ns(void);

#endif
