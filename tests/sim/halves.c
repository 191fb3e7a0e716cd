/* The memory of a worker's agent; apart, since the agent's private names are the
 * simulator's, too. */
#include "../agent_memory.h"
#include "worker_halves.h"

size_t
worker_halves(const struct fal_agent *a)
{
	return agent_memory_halves(a);
}
