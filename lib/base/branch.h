/* The numbers of versions.  The versions 0, 1, 2, … of the job's model belong to branch
 * 0.  A group that steps a model of its own between its pushes (groups, mode=delta) has a
 * branch 1, 2, …  The upper bits of a version's number are the branch, so two versions
 * never have the same number.  Numbers are ordered only within a branch.
 */
#ifndef FAL_BASE_BRANCH_H
#define FAL_BASE_BRANCH_H

#include <stdint.h>

enum { FAL_BRANCH_BITS = 40 }; /* bits of a version's number within its branch */

/* The branch of version `version`. */
static inline uint32_t
fal_branch_of(uint64_t version)
{
	return (uint32_t)(version >> FAL_BRANCH_BITS);
}

/* Version number `count` of a branch; `count` is below 2^40. */
static inline uint64_t
fal_branch_version(uint32_t branch, uint64_t count)
{
	return (uint64_t)branch << FAL_BRANCH_BITS | count;
}

#endif
