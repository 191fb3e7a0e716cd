/* Writes and reads orders, reports and images as messages. */
#include "server/shard_codec.h"

#include "base/mem.h"
#include "crypto/hash.h"
#include "wire/bfp.h"

#include <string.h>

enum {
	/* bytes of a tail in one message; the other fields need less than 1,024 bytes */
	PIECE = FAL_MSG_MAX - 1024,
	ARRAYS_MAX = 4096,            /* of an image */
	REPORT_MAX = 1 << 30,         /* bytes of the arrays of a REPORT */
	BROUGHT_BYTES = 4 + 4 + 4 + 8 /* of a struct fal_contribution_blocks */
};

_Static_assert((int)FAL_TICKET_KEY == (int)FAL_MAC_KEY, "PLACE has the key as it is");

/* ---- pieces ------------------------------------------------------------------------ */

static int
report_send_pieces(struct fal_msg *m, fal_shard_codec_each *each, void *arg)
{
	struct fal_tail *tail = &m->report.rest, left = *tail;
	struct fal_buf out = { 0 };
	int err = FAL_OK;
	do {
		*tail = (struct fal_tail){ left.p, left.n < PIECE ? left.n : PIECE };
		left.p += left.p != NULL ? tail->n : 0;
		left.n -= tail->n;
		m->report.more = left.n > 0;
		fal_buf_clear(&out);
		fal_msg_put(&out, m);
		err = each(arg, &out);
	} while (err >= 0 && left.n > 0);
	fal_buf_free(&out);
	return err < 0 ? err : FAL_OK;
}

int
fal_shard_codec_add(struct fal_shard_codec *p, struct fal_msg *m, size_t most)
{
	struct fal_tail *tail = &m->report.rest;
	const bool more = m->report.more != 0;
	if (p->tail.n == 0 && !more)
		return 1;
	if (tail->n > most || p->tail.n > most - tail->n)
		return FAL_ELIMIT;
	if (tail->n == 0 && more)
		return FAL_EFORMAT; /* else a REPORT could have no end */
	fal_put_bytes(&p->tail, tail->p, tail->n);
	if (p->tail.err < 0 || more)
		return p->tail.err;
	*tail = (struct fal_tail){ p->tail.p, p->tail.n };
	p->tail.n = 0; /* the memory of the tail stays until the next call */
	return 1;
}

void
fal_shard_codec_free(struct fal_shard_codec *p)
{
	fal_buf_free(&p->tail);
}

/* ---- orders ------------------------------------------------------------------------ */

int
fal_shard_codec_order(uint32_t incarnation, const struct fal_shard_order *o,
		      struct fal_buf *out)
{
	const int flags = (o->clipped ? FAL_WIRE_CLIPPED : 0) |
			  (o->ahead ? FAL_WIRE_AHEAD : 0) |
			  (o->mark ? FAL_WIRE_MARK : 0) | (o->hash ? FAL_WIRE_HASH : 0) |
			  (o->facts.mixed ? FAL_WIRE_MIXED : 0);
	struct fal_msg m = { .type = FAL_MSG_ORDER,
			     .incarnation = incarnation,
			     .order = { .kind = (uint8_t)o->kind,
					.round = o->round,
					.version = o->version,
					.facts = { o->facts.version, o->facts.tasks,
						   (uint8_t)o->facts.kind },
					.worker = o->id.worker,
					.seq = o->id.seq,
					.fills_worker = o->fills.worker,
					.fills_seq = o->fills.seq,
					.end = (uint8_t)o->end,
					.weight = o->weight,
					.divisor = o->divisor,
					.squares = o->squares,
					.share = o->part.share,
					.in = o->part.in,
					.momentum = o->momentum,
					.lr = o->lr,
					.slot = o->slot,
					.below = o->below,
					.line = o->branch,
					.versions = o->versions,
					.flags = (uint8_t)flags } };
	struct fal_buf map = { 0 };
	if (o->map != NULL) {
		fal_map_put(&map, o->map);
		m.order.version = o->map->epoch;
		m.order.map = (struct fal_tail){ map.p, map.n };
	}
	const int err = map.err;
	if (err == FAL_OK)
		fal_msg_put(out, &m);
	fal_buf_free(&map);
	return err;
}

int
fal_shard_codec_order_get(const struct fal_msg *m, uint32_t blocks, struct fal_map *map,
			  struct fal_shard_order *out)
{
	const bool maps = m->order.kind == FAL_ORDER_MIGRATE_BEGIN;
	if (m->order.kind > FAL_ORDER_ABORT || m->order.end > FAL_END_DROP ||
	    m->order.facts.kind > FAL_KIND_CHECK || (!maps && m->order.map.n != 0))
		return FAL_EFORMAT;
	if (maps &&
	    (m->order.version > UINT32_MAX ||
	     fal_map_get(&m->order.map, (uint32_t)m->order.version, blocks, map) < 0))
		return FAL_EFORMAT;
	*out = (struct fal_shard_order){
		.kind = (enum fal_order_kind)m->order.kind,
		.round = m->order.round,
		.version = m->order.version,
		.facts = { .version = m->order.facts.version,
			   .tasks = m->order.facts.tasks,
			   .kind = (enum fal_kind)m->order.facts.kind,
			   .mixed = (m->order.flags & FAL_WIRE_MIXED) != 0 },
		.id = { m->order.worker, m->order.seq },
		.fills = { m->order.fills_worker, m->order.fills_seq },
		.end = (enum fal_end)m->order.end,
		.weight = m->order.weight,
		.divisor = m->order.divisor,
		.squares = m->order.squares,
		.part = { m->order.share, m->order.in },
		.momentum = m->order.momentum,
		.clipped = (m->order.flags & FAL_WIRE_CLIPPED) != 0,
		.ahead = (m->order.flags & FAL_WIRE_AHEAD) != 0,
		.lr = m->order.lr,
		.slot = m->order.slot,
		.below = m->order.below,
		.branch = m->order.line,
		.versions = m->order.versions,
		.mark = (m->order.flags & FAL_WIRE_MARK) != 0,
		.hash = (m->order.flags & FAL_WIRE_HASH) != 0,
		.map = maps ? map : NULL
	};
	return FAL_OK;
}

/* ---- reports ----------------------------------------------------------------------- */

int
fal_shard_codec_report(uint32_t incarnation, const struct fal_shard_report *s,
		       fal_shard_codec_each *each, void *arg)
{
	const int flags = (s->whole ? FAL_WIRE_WHOLE : 0) |
			  (s->leaves != NULL ? FAL_WIRE_LEAVES : 0) |
			  (s->odd != NULL ? FAL_WIRE_ODD : 0);
	struct fal_msg m = { .type = FAL_MSG_REPORT,
			     .incarnation = incarnation,
			     .report = { .shard = s->shard,
					 .kind = (uint8_t)s->kind,
					 .round = s->round,
					 .version = s->version,
					 .worker = s->id.worker,
					 .seq = s->id.seq,
					 .blocks = s->blocks,
					 .beyond = s->beyond,
					 .first = s->first,
					 .most = (uint8_t)s->most,
					 .broughts = s->broughts,
					 .rank = s->rank,
					 .added = s->added,
					 .err = (uint32_t)-s->err,
					 .flags = (uint8_t)flags } };
	struct fal_buf arrays = { 0 };
	if (s->odd != NULL)
		strncpy(m.report.odd, s->odd, sizeof(m.report.odd) - 1);
	if (s->leaves != NULL)
		fal_put_bytes(&arrays, s->leaves, (size_t)s->blocks * FAL_HASH_BYTES);
	if (s->exps != NULL)
		fal_put_bytes(&arrays, s->exps, s->blocks);
	for (uint32_t i = 0; s->squares != NULL && i < s->blocks; i++) {
		uint64_t bits;
		memcpy(&bits, &s->squares[i], sizeof(bits));
		fal_put_u64(&arrays, bits);
	}
	for (uint32_t i = 0; i < s->broughts; i++) {
		fal_put_u32(&arrays, s->brought[i].id.worker);
		fal_put_u32(&arrays, s->brought[i].id.seq);
		fal_put_u32(&arrays, s->brought[i].blocks);
		fal_put_u64(&arrays, s->brought[i].sum);
	}
	m.report.rest = (struct fal_tail){ arrays.p, arrays.n };
	int err = arrays.err < 0 ? arrays.err : report_send_pieces(&m, each, arg);
	fal_buf_free(&arrays);
	return err;
}

/* Copies n elements from r.  NULL, with the error of r set: r has too few bytes. */
static void *
get_array(struct fal_rd *r, uint32_t n, size_t size)
{
	const uint8_t *p = fal_get_bytes(r, n * size);
	return p != NULL ? memcpy(fal_xcalloc(n, size), p, n * size) : NULL;
}

static void
get_brought(struct fal_rd *r, struct fal_shard_report *out)
{
	if (out->broughts > r->n / BROUGHT_BYTES)
		r->err = FAL_EFORMAT;
	if (out->broughts == 0 || r->err != 0)
		return;
	out->brought = fal_calloc(out->broughts, sizeof(*out->brought));
	if (out->brought == NULL)
		r->err = FAL_ENOMEM;
	for (uint32_t i = 0; i < out->broughts && r->err == 0; i++) {
		struct fal_contribution_blocks *b = &out->brought[i];
		b->id.worker = fal_get_u32(r);
		b->id.seq = fal_get_u32(r);
		b->blocks = fal_get_u32(r);
		b->sum = fal_get_u64(r);
	}
}

int
fal_shard_codec_report_get(const struct fal_msg *m, uint32_t first, uint32_t blocks,
			   char odd[static FAL_MSG_WHY], struct fal_shard_report *out)
{
	const bool leaves = (m->report.flags & FAL_WIRE_LEAVES) != 0;
	struct fal_rd r = fal_rd_init(m->report.rest.p, m->report.rest.n);
	struct fal_shard_report s = { .kind = (enum fal_report_kind)m->report.kind,
				      .shard = m->report.shard,
				      .round = m->report.round,
				      .version = m->report.version,
				      .id = { m->report.worker, m->report.seq },
				      .blocks = m->report.blocks,
				      .beyond = m->report.beyond,
				      .first = m->report.first,
				      .most = (int8_t)m->report.most,
				      .whole = (m->report.flags & FAL_WIRE_WHOLE) != 0,
				      .broughts = m->report.broughts,
				      .rank = m->report.rank,
				      .added = m->report.added,
				      .err = m->report.err <= 64 ? -(int)m->report.err
								 : FAL_EINVAL };
	const bool squares = s.kind == FAL_REPORT_SQUARES;
	if (m->report.kind > FAL_REPORT_MIGRATED || s.blocks > blocks ||
	    s.beyond > blocks ||
	    ((leaves || squares) && (s.first != first || s.blocks != blocks)) ||
	    (leaves && s.kind != FAL_REPORT_STEPPED))
		return FAL_EFORMAT;
	if ((m->report.flags & FAL_WIRE_ODD) != 0 || s.kind == FAL_REPORT_REFUSED) {
		memcpy(odd, m->report.odd, FAL_MSG_WHY);
		s.odd = odd;
	}
	if (leaves) {
		s.leaves = get_array(&r, blocks, FAL_HASH_BYTES);
		s.exps = get_array(&r, blocks, 1);
	}
	if (squares)
		s.squares = fal_xcalloc(blocks, sizeof(*s.squares));
	for (uint32_t i = 0; squares && i < blocks; i++) {
		const uint64_t bits = fal_get_u64(&r);
		memcpy(&s.squares[i], &bits, sizeof(bits));
	}
	get_brought(&r, &s);
	if (fal_rd_end(&r) < 0) {
		fal_shard_report_free(&s);
		return r.err == FAL_ENOMEM ? FAL_ENOMEM : FAL_EFORMAT;
	}
	*out = s;
	return FAL_OK;
}

/* ---- images ------------------------------------------------------------------------ */

int
fal_shard_codec_image(uint32_t incarnation, const struct fal_shard_codec_of *of,
		      const struct fal_image *image, struct fal_buf *out)
{
	struct fal_buf list = { 0 };
	struct fal_msg m = { .type = FAL_MSG_IMAGE,
			     .incarnation = incarnation,
			     .image = { .what = (uint8_t)of->what,
					.shard = of->shard,
					.epoch = of->epoch,
					.first = of->first,
					.blocks = of->count,
					.version = image->is.version,
					.steps = image->is.steps,
					.olds = image->is.olds,
					.lines = image->is.lines,
					.slots = image->is.slots,
					.holds = image->is.holds,
					.held = image->is.held } };
	for (uint32_t i = 0; i < image->arrays; i++) {
		fal_put_str(&list, image->array[i].name);
		fal_put_u8(&list, image->array[i].floats);
		fal_put_u64(&list, image->array[i].bytes);
	}
	m.image.arrays = (struct fal_tail){ list.p, list.n };
	const int err = list.err;
	if (err == FAL_OK)
		fal_msg_put(out, &m);
	fal_buf_free(&list);
	return err;
}

uint64_t
fal_shard_codec_image_most(uint32_t blocks, uint32_t slack)
{
	return (uint64_t)blocks * FAL_BLOCK * sizeof(float) * (16 + 2 * (uint64_t)slack);
}

size_t
fal_shard_codec_report_most(uint32_t blocks, uint32_t tasks)
{
	enum { SMALL = 1 << 20 };
	const uint64_t bytes = (uint64_t)blocks * (FAL_HASH_BYTES + sizeof(double) + 1) +
			       (uint64_t)blocks * tasks * BROUGHT_BYTES + SMALL;
	return bytes < REPORT_MAX ? (size_t)bytes : REPORT_MAX;
}

int
fal_shard_codec_image_get(const struct fal_msg *m, uint64_t most, struct fal_image *out)
{
	struct fal_rd r = fal_rd_init(m->image.arrays.p, m->image.arrays.n);
	struct fal_image image = { .is = { .version = m->image.version,
					   .steps = m->image.steps,
					   .olds = m->image.olds,
					   .lines = m->image.lines,
					   .slots = m->image.slots,
					   .holds = m->image.holds != 0,
					   .held = m->image.held },
				   .owned = true };
	int err = FAL_OK;
	while (r.n > 0 && r.err == 0 && err == FAL_OK) {
		char name[FAL_IMAGE_NAME];
		fal_get_str(&r, name, sizeof(name));
		const bool floats = fal_get_u8(&r) != 0;
		const uint64_t bytes = fal_get_u64(&r);
		if (r.err != 0 || bytes > most || image.arrays == ARRAYS_MAX) {
			err = r.err != 0 ? FAL_EFORMAT : FAL_ELIMIT;
			break;
		}
		most -= bytes;
		void *p = fal_calloc(1, bytes > 0 ? (size_t)bytes : 1);
		if (p != NULL)
			fal_image_add(&image, name, floats, p, (size_t)bytes);
		else
			err = FAL_ENOMEM;
	}
	/* Each kept version, each branch and each slot has arrays of its own. */
	const struct fal_image_head *is = &image.is;
	if (err == FAL_OK &&
	    (r.err != 0 || (uint64_t)is->olds + is->lines + is->slots > image.arrays))
		err = FAL_EFORMAT;
	if (err < 0)
		fal_image_free(&image);
	else
		*out = image;
	return err;
}

/* The first array from *at on that has bytes left; NULL: there is none. */
static const struct fal_image_array *
next_array(const struct fal_image *image, struct fal_shard_codec_at *at)
{
	while (at->array < image->arrays && at->offset == image->array[at->array].bytes)
		*at = (struct fal_shard_codec_at){ at->array + 1, 0 };
	return at->array < image->arrays ? &image->array[at->array] : NULL;
}

bool
fal_shard_codec_bytes(uint32_t incarnation, uint32_t shard, const struct fal_image *image,
		      struct fal_shard_codec_at *at, struct fal_buf *out)
{
	struct fal_msg m = { .type = FAL_MSG_BYTES,
			     .incarnation = incarnation,
			     .bytes = { .shard = shard } };
	const struct fal_image_array *a = next_array(image, at);
	if (a == NULL)
		return false;
	const size_t left = a->bytes - at->offset;
	m.bytes.bytes = (struct fal_tail){ (const uint8_t *)a->p + at->offset,
					   left < PIECE ? left : PIECE };
	at->offset += m.bytes.bytes.n;
	fal_msg_put(out, &m);
	return true;
}

int
fal_shard_codec_bytes_get(const struct fal_tail *bytes, struct fal_image *image,
			  struct fal_shard_codec_at *at)
{
	struct fal_tail left = *bytes;
	const struct fal_image_array *a;
	while ((a = next_array(image, at)) != NULL && left.n > 0) {
		const size_t room = a->bytes - at->offset,
			     n = left.n < room ? left.n : room;
		memcpy((uint8_t *)a->p + at->offset, left.p, n);
		at->offset += n;
		left.p += n;
		left.n -= n;
	}
	return left.n > 0 ? FAL_EFORMAT : a == NULL;
}
