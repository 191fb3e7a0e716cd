/* What a shard's process and its coordinator say to each other, whatever it says: a
 * REPORT is refused or within the shard's blocks, an order is carried out or refused, an
 * image is no longer than it may be, and a shard becomes it or refuses.
 *
 * The input: messages, each behind its length (u16). */
#include "base/buf.h"
#include "base/err.h"
#include "server/shard_codec.h"
#include "server/shard_set.h"
#include "wire/bfp.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum { N = 2 * FAL_BLOCK + 5, BLOCKS = 3, FIRST = 1, HAS = 2, TASKS = 4 };

struct world {
	struct fal_shard_set *shard_set; /* of the second shard of two */
	struct fal_shard_set *next;      /* the same, which waits for its blocks */
	struct fal_shard_codec post;
	struct fal_image image;
	struct fal_shard_codec_at at;
	bool took, over;
	uint64_t sum; /* every byte is read */
};

static void
must(bool fact)
{
	if (!fact)
		abort();
}

/* Every byte that it brings is there. */
static void
on_report(struct world *w, struct fal_msg *m)
{
	char odd[FAL_MSG_WHY];
	struct fal_shard_report s;
	uint64_t sum = 0;
	const size_t most = fal_shard_codec_report_most(HAS, TASKS);
	if (fal_shard_codec_add(&w->post, m, most) != 1)
		return;
	must(m->report.rest.n <= most);
	if (fal_shard_codec_report_get(m, FIRST, HAS, odd, &s) < 0)
		return;
	must(s.blocks <= HAS && s.kind <= FAL_REPORT_MIGRATED && s.err <= 0);
	for (uint32_t i = 0; i < s.broughts; i++)
		sum += s.brought[i].sum;
	for (uint32_t i = 0; i < s.blocks; i++) {
		sum += s.exps != NULL ? (uint64_t)s.exps[i] : 0;
		sum += s.squares != NULL ? s.squares[i] > 0 : 0;
		sum += s.leaves != NULL ? s.leaves[i * 32 + 31] : 0;
	}
	must(s.squares == NULL || s.kind == FAL_REPORT_SQUARES);
	must(s.kind != FAL_REPORT_SQUARES || s.squares != NULL);
	must(s.leaves == NULL || s.exps != NULL);
	w->sum += sum;
	fal_shard_report_free(&s);
}

static void
on_order(struct world *w, struct fal_msg *m)
{
	struct fal_shard_order o;
	struct fal_map map;
	if (fal_shard_codec_order_get(m, BLOCKS, &map, &o) < 0)
		return;
	must(o.kind <= FAL_ORDER_ABORT && o.end <= FAL_END_DROP &&
	     o.facts.kind <= FAL_KIND_CHECK);
	must((o.kind == FAL_ORDER_MIGRATE_BEGIN) == (o.map != NULL));
	must(o.map == NULL || fal_map_covers(o.map, BLOCKS));
	struct fal_shard_result r = { 0 };
	w->over = fal_shard_set_order(w->shard_set, &o, &r) < 0;
	for (size_t i = 0; i < r.n; i++)
		must(r.v[i].shard < fal_shard_set_count(w->shard_set));
	fal_shard_result_free(&r);
}

static void
on_image(struct world *w, const struct fal_msg *m)
{
	const uint64_t most = fal_shard_codec_image_most(HAS, 0);
	uint64_t all = 0;
	fal_image_free(&w->image);
	w->at = (struct fal_shard_codec_at){ 0 };
	if (fal_shard_codec_image_get(m, most, &w->image) < 0)
		return;
	for (uint32_t i = 0; i < w->image.arrays; i++)
		all += w->image.array[i].bytes;
	must(all <= most);
}

static void
on_bytes(struct world *w, const struct fal_msg *m)
{
	if (fal_shard_codec_bytes_get(&m->bytes.bytes, &w->image, &w->at) != 1 || w->took)
		return;
	/* What failed ends the process. */
	w->took = true;
	struct fal_shard_result r = { 0 };
	must(fal_shard_set_graft(w->next, 1,
				 &(struct fal_shard_set_piece){ 1, FIRST, HAS, w->image },
				 &r) <= 0);
	const bool whole = r.n > 0;
	must(!whole || (r.n == 1 && r.v->kind == FAL_REPORT_MIGRATED));
	fal_shard_result_free(&r);
	if (!whole)
		return;
	const struct fal_shard_order commit = { .kind = FAL_ORDER_COMMIT };
	must(fal_shard_set_order(w->next, &commit, NULL) == 0);
	fal_shard_set_free(w->shard_set);
	w->shard_set = w->next;
	w->next = NULL;
}

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static const struct fal_shard_set_conf conf = {
		.shards = 2,
		.first = 1,
		.here = 1,
		.each = { .n = N,
			  .tasks = TASKS,
			  .optim = { .kind = FAL_SGD, .momentum = 0.5f, .clip = 1 } },
	};
	struct fal_rd r = fal_rd_init(p, n);
	const struct fal_map none = { .shards = 2 };
	struct fal_map map;
	struct fal_shard_set_conf empty = conf;
	const struct fal_shard_order begin = { .kind = FAL_ORDER_MIGRATE_BEGIN,
					       .map = &map };
	empty.map = &none;
	fal_map_even(&map, BLOCKS, 2);
	struct world w = { .shard_set = fal_shard_set_new(&conf, NULL),
			   .next = fal_shard_set_new(&empty, NULL) };
	must(w.shard_set != NULL && w.next != NULL &&
	     fal_shard_set_order(w.next, &begin, NULL) == 0);
	while (r.n > 0 && r.err == 0 && !w.over) {
		const size_t size = fal_get_u16(&r);
		const uint8_t *at = fal_get_bytes(&r, size < r.n ? size : r.n);
		struct fal_msg m;
		if (at == NULL || fal_msg_get(at, (size_t)(r.p - at), &m) < 0)
			continue;
		if (m.type == FAL_MSG_REPORT)
			on_report(&w, &m);
		else if (m.type == FAL_MSG_ORDER)
			on_order(&w, &m);
		else if (m.type == FAL_MSG_IMAGE)
			on_image(&w, &m);
		else if (m.type == FAL_MSG_BYTES)
			on_bytes(&w, &m);
	}
	fal_shard_codec_free(&w.post);
	fal_image_free(&w.image);
	fal_shard_set_free(w.shard_set);
	fal_shard_set_free(w.next);
	return 0;
}
