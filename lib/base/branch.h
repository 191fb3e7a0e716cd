/* The numbers of versions.  The model of the job has versions 0, 1, 2, …: they are of
 * line 0.  A group that steps a model of its own between its pushes (groups, mode=delta)
 * has its own line, 1, 2, …; the number of its versions begins with that of the line, so
 * that no number stands for two.  Numbers are ordered within a line only.
 */
#ifndef FAL_BASE_BRANCH_H
#define FAL_BASE_BRANCH_H

#include <stdint.h>

enum { FAL_BRANCH_BITS = 40 }; /* of a version's number within its line */

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
