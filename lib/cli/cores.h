/* How many cores this process may really use. */
#ifndef FAL_CLI_CORES_H
#define FAL_CLI_CORES_H

/* The least of the CPU affinity and the quota of this process's control group and those
 * above it (cgroup v2 cpu.max, v1 cpu.cfs_quota_us / cpu.cfs_period_us), rounded up; at
 * least 1. */
unsigned fal_cli_cores(void);

/* The quota alone, in whole cores rounded up, or 0 for none, as the files below `root`
 * have it ("" is the system): root/proc/self/cgroup and root/sys/fs/cgroup. */
unsigned fal_cli_quota(const char *root);

#endif
