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

/* A memfd of places or slots, each a safetensors file of one header. */
struct bulk_area {
	int fd;
	struct fal_grad_area shape;
	uint8_t *map; /* NULL: not mapped yet */
	size_t size;
};

/* What an area is to hold: `header`, as of safetensors without its length (borrowed),
 * and so many bytes of data, `count` times. */
struct bulk_conf {
	const char *name; /* in /proc */
	struct fal_buf header;
	uint64_t data;
	uint32_t count;
	bool read_only; /* to the trainer */
};

/* An empty memfd, which a program that is started may inherit.  FAL_EIO. */
int bulk_open(const char *name, struct bulk_area *out);

/* Gives it its size, which nobody can change from then on, and headers, and maps it.
 * FAL_EIO: or it was tampered with; FAL_ENOMEM. */
int bulk_map(struct bulk_area *a, const struct bulk_conf *conf);

void bulk_close(struct bulk_area *a); /* {-1} is closed already */

/* Where number i's data begin. */
static inline uint64_t
bulk_at(const struct bulk_area *a, uint32_t i)
{
	return i * a->shape.stride + a->shape.data;
}

/* Number i's data, and the whole of it. */
static inline void *
bulk_data(const struct bulk_area *a, uint32_t i)
{
	return a->map + bulk_at(a, i);
}
static inline const void *
bulk_file(const struct bulk_area *a, uint32_t i)
{
	return a->map + i * a->shape.stride;
}

#endif
