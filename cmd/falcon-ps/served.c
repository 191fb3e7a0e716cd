/* What shards have done. */
#include "served.h"

#include "base/err.h"

/* No count of bytes is above what a trace may have. */
#define MOST (UINT64_C(1) << 53)

void
ps_served_push(struct ps_served *s, const struct fal_rack *rack,
	       const struct fal_tail *records)
{
	struct fal_rd r = fal_rd_init(records->p, records->n);
	const uint32_t block = fal_get_u32(&r);
	for (uint32_t i = 0; i < fal_rack_shards(rack); i++) {
		uint32_t first, blocks;
		fal_rack_range(rack, i, &first, &blocks);
		if (block >= first && block - first < blocks)
			s->rx[i] += records->n;
	}
}

int
ps_served_put(const struct ps_served *s, uint32_t first, uint32_t count,
	      struct fal_msg *m, struct fal_buf *rows)
{
	*m = (struct fal_msg){ .type = FAL_MSG_SERVED,
			       .served = { .service = s->service, .queue = s->queue } };
	for (uint32_t i = first; i < first + count; i++) {
		fal_put_u64(rows, s->rx[i] < MOST ? s->rx[i] : MOST);
		fal_put_u64(rows, s->tx[i] < MOST ? s->tx[i] : MOST);
	}
	m->served.bytes = (struct fal_tail){ rows->p, rows->n };
	return rows->err;
}

int
ps_served_get(struct ps_served *s, uint32_t first, uint32_t count,
	      const struct fal_msg *m)
{
	struct fal_rd r = fal_rd_init(m->served.bytes.p, m->served.bytes.n);
	struct ps_served is = { .service = m->served.service, .queue = m->served.queue };
	for (uint32_t i = first; i < first + count; i++) {
		is.rx[i] = fal_get_u64(&r);
		is.tx[i] = fal_get_u64(&r);
		if (is.rx[i] > MOST || is.tx[i] > MOST)
			return FAL_EFORMAT;
	}
	int err = fal_rd_end(&r);
	if (err == FAL_OK)
		*s = is;
	return err;
}
