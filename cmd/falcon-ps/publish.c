/* Encoding versions. */
#include "publish.h"

#include "base/err.h"
#include "base/line.h"
#include "base/mem.h"
#include "wire/bfp.h"
#include "wire/msg.h"

#include <stdlib.h>
#include <string.h>

/* Messages that are made at a time while others are on their way: half a mebibyte. */
#define PIECE 10

static void
forget(struct ps_version *v)
{
	for (int i = 0; i < PS_ENCODINGS; i++) {
		for (uint32_t k = 0; v->as[i] != NULL && k < FAL_SHARDS_MAX; k++)
			fal_shared_drop(v->as[i][k]);
		free(v->as[i]);
	}
	*v = (struct ps_version){ 0 };
}

/* Forgets what nobody is to get any more of one encoding; false: there is nothing else.
 */
static bool
forget_arrived_as(struct fal_shared **of)
{
	bool any = false;
	for (uint32_t i = 0; i < FAL_SHARDS_MAX; i++) {
		if (of[i] == NULL || !fal_shared_alone(of[i])) {
			any |= of[i] != NULL;
			continue;
		}
		fal_shared_drop(of[i]);
		of[i] = NULL;
	}
	return any;
}

/* The same of a version.  What somebody is still to get takes its memory, forgotten or
 * not. */
static bool
forget_arrived(struct ps_version *v)
{
	bool any = false;
	for (int i = 0; i < PS_ENCODINGS; i++) {
		if (v->as[i] == NULL)
			continue;
		if (forget_arrived_as(v->as[i])) {
			any = true;
			continue;
		}
		free(v->as[i]);
		v->as[i] = NULL;
	}
	if (!any)
		*v = (struct ps_version){ 0 };
	return any;
}

/* Only those of `older` stay that are on their way. */
static void
tidy(struct ps_publisher *p)
{
	size_t kept = 0;
	for (size_t i = 0; i < p->older_n; i++)
		if (forget_arrived(&p->older[i]))
			p->older[kept++] = p->older[i];
	p->older_n = kept;
}

/* Another one comes in its place: what is on its way can be had as long as it is, as who
 * is told of it then would cost as much once more. */
static void
displace(struct ps_publisher *p, struct ps_version *v)
{
	tidy(p);
	if (!forget_arrived(v) || FAL_GROW(p->older, p->older_cap, p->older_n + 1) < 0) {
		forget(v);
		return;
	}
	p->older[p->older_n++] = *v;
	*v = (struct ps_version){ 0 };
}

/* Message `at` of one shard's blocks: its head is made, its values stay where they are.
 */
static int
message(const struct ps_publisher *p, uint64_t version, const struct fal_shard_part *part,
	uint32_t at, struct fal_buf *head, struct fal_shared_text *out)
{
	const uint32_t b = at * FAL_MODEL_BLOCKS;
	const struct fal_model_part of = { .version = version,
					   .first = part->first + b,
					   .blocks =
						   fal_msg_model_blocks(part->count, at),
					   .params = part->params + (size_t)b * FAL_BLOCK,
					   .values = part->values - (size_t)b * FAL_BLOCK,
					   .exps = part->exps + b };
	struct fal_tail values;
	int err = fal_msg_put_model_head(head, p->incarnation, &of, &values);
	out->msg = (struct fal_aead_text){ head->p, head->n, values.p, values.n };
	out->index = at;
	return err;
}

/* These messages of one shard's blocks, a piece at most. */
static int
encode_piece(const struct ps_publisher *p, uint64_t version,
	     const struct fal_shard_part *part, const uint32_t *at, uint32_t n,
	     struct fal_shared *s)
{
	struct fal_buf head[PIECE] = { 0 };
	struct fal_shared_text text[PIECE] = { 0 };
	int err = FAL_OK;
	for (uint32_t i = 0; i < n && err == FAL_OK; i++)
		err = message(p, version, part, at[i], &head[i], &text[i]);
	if (err == FAL_OK)
		err = fal_shared_add_texts(s, text, n);
	for (uint32_t i = 0; i < n; i++)
		fal_buf_free(&head[i]);
	return err;
}

/* All of them, in their order. */
static int
encode_all(const struct ps_publisher *p, uint64_t version,
	   const struct fal_shard_part *part, struct fal_shared *s)
{
	uint32_t at[PIECE];
	int err = FAL_OK;
	while (err == FAL_OK && !fal_shared_whole(s)) {
		const uint32_t made = fal_shared_made(s);
		const uint32_t left = fal_shared_count(s) - made;
		const uint32_t n = left < PIECE ? left : PIECE;
		for (uint32_t i = 0; i < n; i++)
			at[i] = made + i;
		err = encode_piece(p, version, part, at, n, s);
	}
	return err;
}

/* ---- long ones --------------------------------------------------------------------- */

/* Is it long enough to be on its way while it is made? */
static bool
is_long(uint32_t blocks)
{
	return fal_msg_models(blocks) > 2 * PIECE;
}

/* The publication is begun, and held until it is whole. */
static int
begin(struct ps_publisher *p, const struct ps_params *from, struct fal_shared *s)
{
	if (FAL_GROW(p->making, p->making_cap, p->making_n + 1) < 0)
		return FAL_ENOMEM;
	struct ps_making m = { .version = from->version,
			       .shard = from->shard,
			       .in = fal_calloc(fal_shared_count(s), 1) };
	if (m.in == NULL)
		return FAL_ENOMEM;
	m.shared = fal_shared_ref(s);
	p->making[p->making_n++] = m;
	return FAL_OK;
}

static void
end(struct ps_making *m)
{
	fal_shared_drop(m->shared);
	free(m->in);
}

/* Can message `at` be made?  Not the first one before all blocks are, by which who reads
 * it knows that nothing more has to happen for the others to come. */
static bool
can_make(const struct fal_shard_part *part, const uint8_t *made, uint32_t at)
{
	const uint32_t b = at * FAL_MODEL_BLOCKS,
		       n = fal_msg_model_blocks(part->count, at);
	if (made == NULL)
		return true;
	for (uint32_t i = 0; i < n; i++)
		if (!made[b + i])
			return false;
	return at > 0;
}

/* The next messages, a piece at most, those for the first layers first: how many. */
static uint32_t
next_piece(const struct fal_shard_part *part, const uint8_t *made, const uint8_t *in,
	   uint32_t at[static PIECE])
{
	const uint32_t all = fal_msg_models(part->count);
	uint32_t n = 0;
	for (uint32_t i = 0; i < all && n < PIECE; i++)
		if ((in == NULL || !in[i]) && can_make(part, made, i))
			at[n++] = i;
	return n;
}

/* The same of a version that is being made: there are none but whole pieces, as many
 * small ones cost more than they gain.  Nobody looks again before as many blocks more are
 * made as are missing to one: then `*due` of them. */
static uint32_t
next_early(const struct fal_shard_part *part, const struct fal_shard_making *is,
	   const uint8_t *in, uint32_t *due, uint32_t at[static PIECE])
{
	if (is->n < *due)
		return 0;
	const uint32_t n = next_piece(part, is->made, in, at);
	if (n == PIECE)
		return n;
	*due = is->n + (PIECE - n) * FAL_MODEL_BLOCKS;
	return 0;
}

bool
ps_publisher_early(struct ps_publisher *p, uint32_t shard, uint64_t version)
{
	uint32_t at[PIECE];
	struct fal_shard_part part;
	struct fal_shard_making is;
	struct ps_due *due = &p->due[shard];
	if (p->placed || !fal_rack_making(p->rack, shard, version, &part, &is) ||
	    !is_long(part.count))
		return false;
	if (due->version != version)
		*due = (struct ps_due){ .version = version };
	return next_early(&part, &is, NULL, &due->due, at) > 0;
}

/* What the shard has of a version, be it made or not: then is->made says of which blocks.
 */
static bool
part_of(const struct ps_publisher *p, uint32_t shard, uint64_t version,
	struct fal_shard_part *part, struct fal_shard_making *is)
{
	is->made = NULL;
	return fal_rack_part(p->rack, shard, version, part) ||
	       fal_rack_making(p->rack, shard, version, part, is);
}

/* A piece of it, if there is one: how many messages.  What was forgotten meanwhile nobody
 * will get. */
static int
go_on(const struct ps_publisher *p, struct ps_making *m)
{
	struct fal_shard_part part;
	struct fal_shard_making is;
	uint32_t at[PIECE];
	if (!part_of(p, m->shard, m->version, &part, &is)) {
		fal_shared_break(m->shared);
		return 0;
	}
	/* Else what comes then, which the first layers are in, would be behind all of
	 * that. */
	if (is.made != NULL &&
	    fal_shared_made(m->shared) > fal_shared_taken(m->shared) + PIECE)
		return 0;
	const uint32_t n = is.made != NULL ? next_early(&part, &is, m->in, &m->due, at)
					   : next_piece(&part, NULL, m->in, at);
	const int err =
		n > 0 ? encode_piece(p, m->version, &part, at, n, m->shared) : FAL_OK;
	for (uint32_t i = 0; i < n; i++)
		m->in[at[i]] = 1;
	return err < 0 ? err : (int)n;
}

/* None of them will be whole. */
static void
give_up(struct ps_publisher *p)
{
	for (size_t i = 0; i < p->making_n; i++) {
		fal_shared_break(p->making[i].shared);
		end(&p->making[i]);
	}
	p->making_n = 0;
}

static struct fal_shared *
encode(struct ps_publisher *p, const struct ps_params *from, uint8_t suite)
{
	uint8_t ad[FAL_MODEL_AD];
	struct fal_shard_part part;
	struct fal_shard_making is;
	struct fal_shared *s = NULL;
	if (p->pool == NULL && (p->pool = fal_shared_pool_new(p->parallel)) == NULL)
		return NULL;
	if (!part_of(p, from->shard, from->version, &part, &is))
		return NULL;
	fal_msg_model_ad(p->job_hash, p->incarnation, from->version, ad);
	struct fal_shared_opt opt = { .pool = p->pool,
				      .publication = ++p->publications,
				      .count = fal_msg_models(part.count),
				      .ad = ad,
				      .ad_n = sizeof(ad),
				      .version = from->version,
				      .parts = fal_rack_shards(p->rack),
				      .suite = suite,
				      .zstd = from->as == PS_PACKED,
				      .lasting = from->keep,
				      .unsealed = from->as == PS_UNSEALED };
	int err = fal_shared_new(&opt, &s);
	if (err == FAL_OK)
		err = is_long(part.count) ? begin(p, from, s)
					  : encode_all(p, from->version, &part, s);
	if (err < 0) {
		fal_shared_drop(s);
		return NULL;
	}
	return s;
}

static uint32_t
encodings(const struct ps_version *v)
{
	uint32_t n = 0;
	for (int i = 0; i < PS_ENCODINGS; i++)
		n += v->as[i] != NULL;
	return n;
}

/* The newest is not that any more. */
static void
forget_newest(struct ps_publisher *p)
{
	if (p->newest.there)
		p->odd = p->newest.odd;
	displace(p, &p->newest);
}

/* What was being made is the newest, if it is this. */
static void
is_made(struct ps_publisher *p, uint64_t version)
{
	if (!p->next.there || p->next.version != version)
		return;
	forget_newest(p);
	p->newest = p->next;
	p->next = (struct ps_version){ 0 };
}

/* NULL: it is none of the older ones. */
static struct ps_version *
find_older(struct ps_publisher *p, uint64_t version)
{
	for (size_t i = 0; i < p->older_n; i++)
		if (p->older[i].there && p->older[i].version == version)
			return &p->older[i];
	return NULL;
}

/* A place for one of them; NULL: out of memory. */
static struct ps_version *
new_older(struct ps_publisher *p)
{
	tidy(p);
	if (FAL_GROW(p->older, p->older_cap, p->older_n + 1) < 0)
		return NULL;
	p->older[p->older_n] = (struct ps_version){ 0 };
	return &p->older[p->older_n++];
}

/* Where the version is kept; NULL: out of memory.  What is being made has a place of its
 * own until it is made, as who joins then wants the one before, too. */
static struct ps_version *
place_of(struct ps_publisher *p, const struct ps_params *from)
{
	const struct ps_version *newest = &p->newest;
	if (!from->making)
		is_made(p, from->version);
	const bool line = newest->there &&
			  fal_line_of(newest->version) == fal_line_of(from->version);
	if (line && newest->version == from->version)
		return &p->newest;
	if (from->making)
		return &p->next;
	struct ps_version *older = find_older(p, from->version);
	if (older != NULL && !from->keep)
		return older;
	if (from->newest && !(line && from->version < newest->version))
		return &p->newest;
	return from->keep ? &p->kept : new_older(p);
}

/* Of all places, from those on that are most readily done without; NULL: no more. */
static struct ps_version *
place(struct ps_publisher *p, size_t i)
{
	struct ps_version *const others[] = { &p->kept, &p->newest, &p->next, NULL };
	return i < p->older_n ? &p->older[i] : others[i - p->older_n];
}

/* Makes room for one encoding more of `v`, if others can go: to forget what is on its way
 * makes none. */
static void
make_room(struct ps_publisher *p, const struct ps_version *v)
{
	const uint32_t most = ps_encoded_most(&p->rule, p->mixed);
	struct ps_version *other;
	uint32_t n = 0;
	for (size_t i = 0; (other = place(p, i)) != NULL; i++)
		n += encodings(other);
	for (size_t i = 0; (other = place(p, i)) != NULL && n >= most; i++) {
		if (other == v)
			continue;
		n -= encodings(other);
		(void)forget_arrived(other);
		n += encodings(other);
	}
}

int
ps_publish_more(struct ps_publisher *p)
{
	size_t kept = 0;
	int more = 0;
	for (size_t i = 0; i < p->making_n; i++) {
		struct ps_making m = p->making[i];
		const int got = go_on(p, &m);
		if (got < 0) {
			memmove(p->making + kept, p->making + i,
				(p->making_n - i) * sizeof(m));
			p->making_n -= i - kept;
			give_up(p);
			return FAL_ENOMEM;
		}
		more += got > 0;
		if (fal_shared_whole(m.shared))
			is_made(p, m.version);
		if (fal_shared_whole(m.shared) || fal_shared_broken(m.shared))
			end(&m);
		else
			p->making[kept++] = m;
	}
	p->making_n = kept;
	return more;
}

struct fal_shared *
ps_publish(struct ps_publisher *p, const struct ps_params *from)
{
	const uint8_t every = FAL_SUITE_CHACHA20_POLY1305;
	struct ps_version *v = place_of(p, from);
	if (v == NULL)
		return NULL;
	const bool other = !v->there || v->version != from->version;
	if (other && v == &p->next)
		forget_newest(p); /* most have it */
	if (other && v->there) {
		p->odd = v->odd;
		displace(p, v);
	}
	v->there = true;
	const bool seals = from->as != PS_UNSEALED;
	v->odd |= seals && from->suite == every;
	v->version = from->version;
	struct fal_shared ***all = &v->as[from->as];
	if (*all == NULL)
		make_room(p, v);
	if (*all == NULL)
		*all = fal_calloc(FAL_SHARDS_MAX, sizeof(**all));
	if (*all == NULL)
		return NULL;
	struct fal_shared **s = &(*all)[from->shard];
	const bool opens = *s == NULL || !seals || from->suite != every ||
			   fal_shared_suite(*s) == every;
	if (*s != NULL && (from->anew || !opens)) {
		fal_shared_drop(*s);
		*s = NULL;
	}
	if (*s == NULL)
		*s = encode(p, from, v->odd || p->odd ? every : from->suite);
	return *s;
}

void
ps_publisher_forget(struct ps_publisher *p)
{
	forget(&p->next);
	forget(&p->newest);
	forget(&p->kept);
	while (p->older_n > 0)
		forget(&p->older[--p->older_n]);
	if (p->pool != NULL)
		fal_shared_pool_trim(p->pool);
}

void
ps_publisher_reset(struct ps_publisher *p)
{
	give_up(p);
	ps_publisher_forget(p);
}

uint32_t
ps_encoded_most(const struct fal_rule *rule, bool mixed)
{
	const struct fal_traits is = fal_rule_traits(rule);
	return (mixed ? 2 : 1) + (is.shared ? is.delay : 1);
}

void
ps_publisher_free(struct ps_publisher *p)
{
	ps_publisher_reset(p);
	free(p->making);
	free(p->older);
	fal_shared_pool_free(p->pool);
}
