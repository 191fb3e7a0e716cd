/* Between cluster.c and halves.c. */
#ifndef FAL_TESTS_WORKER_HALVES_H
#define FAL_TESTS_WORKER_HALVES_H

#include <stddef.h>

struct fal_agent;
/* Returns the halves of sums and versions, each of which takes as much memory. */
size_t worker_halves(const struct fal_agent *a);

#endif
