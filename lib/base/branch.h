/* The numbers of versions.  The versions 0, 1, 2, … of the job's model are of line 0.  A
 * group that steps a model of its own between its pushes (groups, mode=delta) has a line
 * of its own, 1, 2, …; the upper bits of its version numbers are the line, so that no two
 * versions have one number.  Numbers are ordered within a line only.
 */
#ifndef FAL_BASE_BRANCH_H
#define FAL_BASE_BRANCH_H

#include <stdint.h>

enum { FAL_BRANCH_BITS = 40 }; /* bits of a version's number within its line */

/* The line of version `version`. */
static inline uint32_t
fal_branch_of(uint64_t version)
{
	return (uint32_t)(version >> FAL_BRANCH_BITS);
}

/* Version number `count` of a line; `count` is below 2^40. */
static inline uint64_t
fal_branch_version(uint32_t line, uint64_t count)
{
	return (uint64_t)line << FAL_BRANCH_BITS | count;
}

#endif
