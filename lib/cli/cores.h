/* The cores and the memory that this process may use. */
#ifndef FAL_CLI_CORES_H
#define FAL_CLI_CORES_H

#include <stdint.h>

/* The minimum of the CPU affinity and the quotas of this process's control group and its
 * ancestors (cgroup v2 cpu.max, v1 cpu.cfs_quota_us / cpu.cfs_period_us), rounded up; at
 * least 1. */
unsigned fal_cli_cores(void);

/* The quota alone, in whole cores rounded up, or 0 for none, by the files below `root`
 * ("" is the system): root/proc/self/cgroup and root/sys/fs/cgroup. */
unsigned fal_cli_quota(const char *root);

/* The least memory limit in bytes of this process's control group and its ancestors
 * (cgroup v2 memory.max, v1 memory.limit_in_bytes), or 0 for none; `root` as above. */
uint64_t fal_cli_group_memory(const char *root);

/* The idle time since boot, in ns, of all cores that this process may use, together, in
 * steps of 10 ms, by root/proc/stat (proc(5)).  0: not known, or a quota forbids the use
 * of all these cores. */
uint64_t fal_cli_idle_ns(const char *root);

/* CPU time of this process, in ns; 0: not known. */
uint64_t fal_cli_cpu_ns(void);

#endif
