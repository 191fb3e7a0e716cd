/* The memory of an agent, from inside. */
#ifndef FAL_TESTS_AGENT_MEMORY_H
#define FAL_TESTS_AGENT_MEMORY_H

#include "worker/agent_priv.h"

/* Returns the halves of sums and versions, each of which takes as much memory. */
static inline size_t
agent_memory_halves(const struct fal_agent *a)
{
	return a->memory.halves + a->memory.snapshots;
}

#endif
