/* Memory that is shared with a trainer: falcon-gradient(7), "MEMORY".
 *
 * One set for each start of a trainer, so that what a former one left running writes
 * where nobody reads.
 */
#ifndef WORK_BULK_H
#define WORK_BULK_H

#include "base/buf.h"
#include "base/err.h"
#include "grad/line.h"

#include <stdint.h>

/* A memfd that is a safetensors file. */
struct bulk_area {
	int fd;
	struct fal_grad_area shape;
	uint8_t *map; /* NULL: not mapped yet */
};

/* The content: a safetensors header without its length (borrowed), and so many bytes of
 * data. */
struct bulk_conf {
	struct fal_buf header;
	uint64_t data;
	bool read_only; /* to the trainer */
};

/* An empty memfd, of this name in /proc, which a program that is started may inherit.
 * FAL_EIO. */
int bulk_open(const char *name, struct bulk_area *out);

/* Gives the memfd its size, which nobody can change from then on, and the header, and
 * maps the memfd.  FAL_EIO: or it was tampered with; FAL_ENOMEM. */
int bulk_map(struct bulk_area *a, const struct bulk_conf *conf);

void bulk_close(struct bulk_area *a); /* {-1} is closed already */

/* The first byte of the data. */
static inline void *
bulk_data(const struct bulk_area *a)
{
	return a->map + a->shape.data;
}

#endif
