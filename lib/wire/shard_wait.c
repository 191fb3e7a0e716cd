/* The rows of WORKED. */
#include "wire/shard_wait.h"

#include "base/err.h"

enum { ROW_BYTES = 4 + 4 + 8 + 8 };

void
fal_shard_wait_put(struct fal_buf *out, uint32_t shard, const struct fal_shard_wait *w)
{
	if (w->parts == 0 && w->waited == 0)
		return;
	fal_put_u32(out, shard + 1);
	fal_put_u32(out, w->parts);
	fal_put_u64(out, w->took);
	fal_put_u64(out, w->waited);
}

/* Checks all rows; adds them to `w`, unless that is NULL. */
static int
read_wait_rows(const struct fal_tail *rows, uint32_t shards, uint64_t most,
	       struct fal_shard_wait *w)
{
	struct fal_rd r = fal_rd_init(rows->p, rows->n);
	uint32_t previous = 0;
	for (size_t i = 0; i < rows->n / ROW_BYTES; i++) {
		const uint32_t shard = fal_get_u32(&r), parts = fal_get_u32(&r);
		const uint64_t took = fal_get_u64(&r), waited = fal_get_u64(&r);
		if (shard <= previous || shard > shards)
			return FAL_EFORMAT;
		if (took > FAL_MSG_NS_MAX || waited > most)
			return FAL_ELIMIT;
		most -= waited;
		previous = shard;
		if (w == NULL)
			continue;
		w[shard - 1].parts += parts;
		w[shard - 1].took += took;
		w[shard - 1].waited += waited;
	}
	return fal_rd_end(&r);
}

int
fal_shard_wait_get(const struct fal_tail *rows, uint32_t shards, uint64_t most,
		   struct fal_shard_wait *w)
{
	int err = read_wait_rows(rows, shards, most, NULL);
	return err < 0 ? err : read_wait_rows(rows, shards, most, w);
}
