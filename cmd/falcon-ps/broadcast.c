/* Encodes versions once for all workers, delivers them, and counts the traffic of this
 * process's shards. */
#include "broadcast.h"

#include "base/branch.h"
#include "base/err.h"
#include "base/mem.h"
#include "crypto/secret.h"
#include "wire/bfp.h"
#include "wire/msg.h"

#include <stdlib.h>
#include <string.h>
#include <uv.h>

/* Messages of a piece, half a mebibyte: a piece is encoded while earlier pieces are on
 * their way. */
#define PIECE 10

int
ps_send_msg(struct fal_chan *c, const struct fal_msg *m, enum fal_send how)
{
	struct fal_buf out = { 0 };
	fal_msg_put(&out, m);
	const int err = fal_chan_send(c, &out, how);
	if (out.n > 0)
		fal_secret_wipe(out.p, out.n);
	fal_buf_free(&out);
	return err;
}

void
ps_send_or_close(struct fal_chan *c, const struct fal_msg *m, enum fal_send how)
{
	if (ps_send_msg(c, m, how) < 0)
		fal_chan_close(c);
}

/* ---- encoded versions --- */

static void
version_drop(struct ps_encoded_version *v)
{
	for (int i = 0; i < PS_ENCODINGS; i++)
		for (uint32_t k = 0; k < FAL_SHARDS_MAX; k++)
			fal_shared_drop(v->shared[i][k]);
	*v = (struct ps_encoded_version){ 0 };
}

/* Drops the publications that all their readers have got.  Returns false if none is left.
 * A publication that some reader still waits for keeps its memory, whether dropped or
 * not. */
static bool
version_drop_arrived(struct ps_encoded_version *v)
{
	bool any = false;
	for (int i = 0; i < PS_ENCODINGS; i++)
		for (uint32_t k = 0; k < FAL_SHARDS_MAX; k++) {
			struct fal_shared **s = &v->shared[i][k];
			if (*s != NULL && (*s)->refs == 1) {
				fal_shared_drop(*s);
				*s = NULL;
			}
			any |= *s != NULL;
		}
	if (!any)
		*v = (struct ps_encoded_version){ 0 };
	return any;
}

/* Drops the older versions that are not on their way. */
static void
publisher_drop_arrived(struct ps_publisher *p)
{
	size_t kept = 0;
	for (size_t i = 0; i < p->older_n; i++)
		if (version_drop_arrived(&p->older[i]))
			p->older[kept++] = p->older[i];
	p->older_n = kept;
}

/* Empties the place of a version.  Publications on their way stay in `older`; without
 * them a further reader of such a publication would cost another encoding. */
static void
publisher_displace(struct ps_publisher *p, struct ps_encoded_version *v)
{
	if (!v->exists)
		return;
	p->needs_chacha = v->needs_chacha;
	publisher_drop_arrived(p);
	if (!version_drop_arrived(v))
		return;
	FAL_XGROW(p->older, p->older_cap, p->older_n + 1);
	p->older[p->older_n++] = *v;
	*v = (struct ps_encoded_version){ 0 };
}

/* Adds messages of one shard's blocks, a piece at most.  Only the heads are copied: the
 * values stay in the shard. */
static int
encode_piece(const struct ps_publisher *p, uint64_t version,
	     const struct fal_shard_part *part, const uint32_t *at, uint32_t n,
	     struct fal_shared *s)
{
	struct fal_buf head[PIECE] = { 0 };
	struct fal_shared_text text[PIECE] = { 0 };
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t b = at[i] * FAL_MODEL_BLOCKS;
		const size_t before = (size_t)b * FAL_BLOCK;
		const struct fal_model_part of = {
			.version = version,
			.first = part->first + b,
			.blocks = fal_msg_model_blocks(part->count, at[i]),
			.params = part->params + before,
			.values = part->values - before,
			.exps = part->exps + b
		};
		struct fal_tail values;
		fal_msg_put_model_head(&head[i], p->incarnation, &of, &values);
		text[i].msg = (struct fal_aead_text){ head[i].p, head[i].n, values.p,
						      values.n };
		text[i].index = at[i];
	}
	const int err = fal_shared_add_texts(s, text, n);
	for (uint32_t i = 0; i < n; i++)
		fal_buf_free(&head[i]);
	return err;
}

/* Is a part of so many blocks long enough to be sent while it is encoded? */
static bool
is_sent_in_pieces(uint32_t blocks)
{
	return fal_msg_models(blocks) > 2 * PIECE;
}

/* Are the blocks of message `at` made?  The first message waits until all blocks are
 * made: so a reader of the first message knows that the other messages follow without
 * further conditions. */
static bool
can_encode_message(const struct fal_shard_part *part, const uint8_t *made, uint32_t at)
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

/* Finds the next messages to encode, a piece at most, messages of the first layers first.
 * Returns the number of messages. */
static uint32_t
find_messages(const struct fal_shard_part *part, const uint8_t *made,
	      const uint8_t *is_encoded, uint32_t at[static PIECE])
{
	const uint32_t all = fal_msg_models(part->count);
	uint32_t n = 0;
	for (uint32_t i = 0; i < all && n < PIECE; i++)
		if ((is_encoded == NULL || !is_encoded[i]) &&
		    can_encode_message(part, made, i))
			at[n++] = i;
	return n;
}

/* As find_messages, for a version that is being made.  Finds only whole pieces, since
 * many small messages cost more than they gain.  Without a whole piece, sets *recheck_at
 * to the number of made blocks from which on a whole piece is possible; the next search
 * waits for that number. */
static uint32_t
find_early_messages(const struct fal_shard_part *part, const struct fal_shard_making *is,
		    const uint8_t *is_encoded, uint32_t *recheck_at,
		    uint32_t at[static PIECE])
{
	if (is->n < *recheck_at)
		return 0;
	const uint32_t n = find_messages(part, is->made, is_encoded, at);
	if (n == PIECE)
		return n;
	*recheck_at = is->n + (PIECE - n) * FAL_MODEL_BLOCKS;
	return 0;
}

bool
ps_publisher_can_begin_early(struct ps_publisher *p, uint32_t shard, uint64_t version)
{
	uint32_t at[PIECE];
	struct fal_shard_part part;
	struct fal_shard_making is;
	struct ps_recheck *recheck = &p->recheck[shard];
	if (p->sends_whole ||
	    !fal_shard_set_making(p->shard_set, shard, version, &part, &is) ||
	    !is_sent_in_pieces(part.count))
		return false;
	if (recheck->version != version)
		*recheck = (struct ps_recheck){ .version = version };
	return find_early_messages(&part, &is, NULL, &recheck->blocks, at) > 0;
}

/* Gets the shard's part of a version that is made or being made; while the version is
 * being made, is->made says which blocks are made. */
static bool
publisher_get_part(const struct ps_publisher *p, uint32_t shard, uint64_t version,
		   struct fal_shard_part *part, struct fal_shard_making *is)
{
	is->made = NULL;
	return fal_shard_set_part(p->shard_set, shard, version, part) ||
	       fal_shard_set_making(p->shard_set, shard, version, part, is);
}

/* Encodes the next piece of the publication.  Returns its number of messages, or an
 * error.  Breaks the publication if the shard has dropped its version. */
static int
encoder_continue(const struct ps_publisher *p, struct ps_encoder *e)
{
	struct fal_shard_part part;
	struct fal_shard_making is;
	uint32_t at[PIECE];
	if (!publisher_get_part(p, e->shard, e->version, &part, &is)) {
		fal_shared_abandon(e->shared);
		return 0;
	}
	/* An early piece waits while earlier pieces are still to be sent: the first
	 * layers may be made later, and would queue behind all these pieces. */
	if (is.made != NULL && e->shared->made > e->shared->taken + PIECE)
		return 0;
	const uint32_t n = is.made != NULL
				   ? find_early_messages(&part, &is, e->is_encoded,
							 &e->recheck_at, at)
				   : find_messages(&part, NULL, e->is_encoded, at);
	const int err =
		n > 0 ? encode_piece(p, e->version, &part, at, n, e->shared) : FAL_OK;
	for (uint32_t i = 0; i < n; i++)
		e->is_encoded[at[i]] = 1;
	return err < 0 ? err : (int)n;
}

static void
encoder_free(struct ps_encoder *e)
{
	fal_shared_drop(e->shared);
	free(e->is_encoded);
}

/* Breaks the publications that are not whole. */
static void
publisher_break_encoders(struct ps_publisher *p)
{
	for (size_t i = 0; i < p->encoders_n; i++) {
		fal_shared_abandon(p->encoders[i].shared);
		encoder_free(&p->encoders[i]);
	}
	p->encoders_n = 0;
}

/* Makes a publication.  A long publication is only begun; its encoder holds the
 * publication until all of it is made. */
static struct fal_shared *
publisher_encode(struct ps_publisher *p, const struct ps_publish_opt *from, uint8_t suite)
{
	uint8_t ad[FAL_MODEL_AD];
	struct fal_shard_part part;
	struct fal_shard_making is;
	struct fal_shared *s = NULL;
	if (p->pool == NULL)
		p->pool = fal_shared_pool_new(p->parallel);
	if (!publisher_get_part(p, from->shard, from->version, &part, &is))
		return NULL;
	fal_msg_model_ad(p->job_hash, p->incarnation, from->version, ad);
	struct fal_shared_opt opt = { .pool = p->pool,
				      .publication = ++p->publications,
				      .count = fal_msg_models(part.count),
				      .ad = ad,
				      .ad_n = sizeof(ad),
				      .version = from->version,
				      .parts = fal_shard_set_count(p->shard_set),
				      .suite = suite,
				      .zstd = from->encoding == PS_PACKED,
				      .lasting = from->is_kept,
				      .unsealed = from->encoding == PS_UNSEALED };
	if (fal_shared_new(&opt, &s) < 0)
		return NULL;
	struct ps_encoder e = { .shared = fal_shared_ref(s),
				.version = from->version,
				.shard = from->shard,
				.is_encoded = fal_xcalloc(opt.count, 1) };
	if (is_sent_in_pieces(part.count)) {
		FAL_XGROW(p->encoders, p->encoders_cap, p->encoders_n + 1);
		p->encoders[p->encoders_n++] = e;
		return s;
	}
	while (!fal_shared_is_complete(s) && encoder_continue(p, &e) > 0)
		;
	const bool whole = fal_shared_is_complete(s);
	encoder_free(&e);
	if (!whole)
		fal_shared_drop(s);
	return whole ? s : NULL;
}

/* Has some shard this encoding of the version? */
static bool
has_encoding(const struct ps_encoded_version *v, unsigned as)
{
	for (uint32_t k = 0; k < FAL_SHARDS_MAX; k++)
		if (v->shared[as][k] != NULL)
			return true;
	return false;
}

static uint32_t
count_encodings(const struct ps_encoded_version *v)
{
	uint32_t n = 0;
	for (unsigned i = 0; i < PS_ENCODINGS; i++)
		n += has_encoding(v, i);
	return n;
}

/* `version` is made: if its publications began early, they become the newest. */
static void
publisher_finish_next(struct ps_publisher *p, uint64_t version)
{
	if (!p->next.exists || p->next.version != version)
		return;
	publisher_displace(p, &p->newest);
	p->newest = p->next;
	p->next = (struct ps_encoded_version){ 0 };
}

/* Returns the place for the version.  A version has the place `next` until all of it is
 * made: a worker that joins meanwhile wants the version before. */
static struct ps_encoded_version *
publisher_place(struct ps_publisher *p, const struct ps_publish_opt *from)
{
	const struct ps_encoded_version *newest = &p->newest;
	if (!from->is_unfinished)
		publisher_finish_next(p, from->version);
	const bool same_branch = newest->exists && fal_branch_of(newest->version) ==
							   fal_branch_of(from->version);
	if (same_branch && newest->version == from->version)
		return &p->newest;
	if (from->is_unfinished)
		return &p->next;
	for (size_t i = 0; i < p->older_n && !from->is_kept; i++)
		if (p->older[i].version == from->version)
			return &p->older[i];
	if (from->is_newest && !(same_branch && from->version < newest->version))
		return &p->newest;
	if (from->is_kept)
		return &p->kept;
	publisher_drop_arrived(p);
	FAL_XGROW(p->older, p->older_cap, p->older_n + 1);
	p->older[p->older_n] = (struct ps_encoded_version){ 0 };
	return &p->older[p->older_n++];
}

/* Returns the i-th place in the order in which places may be emptied; NULL after the
 * last place. */
static struct ps_encoded_version *
publisher_nth_place(struct ps_publisher *p, size_t i)
{
	struct ps_encoded_version *const others[] = { &p->kept, &p->newest, &p->next,
						      NULL };
	return i < p->older_n ? &p->older[i] : others[i - p->older_n];
}

int
ps_publish_continue(struct ps_publisher *p)
{
	size_t kept = 0;
	int more = 0;
	for (size_t i = 0; i < p->encoders_n; i++) {
		const int got = encoder_continue(p, &p->encoders[i]);
		if (got < 0) {
			publisher_break_encoders(p);
			return got;
		}
		more += got > 0;
	}
	for (size_t i = 0; i < p->encoders_n; i++) {
		struct ps_encoder e = p->encoders[i];
		const bool whole = fal_shared_is_complete(e.shared);
		if (whole)
			publisher_finish_next(p, e.version);
		if (whole || e.shared->broken)
			encoder_free(&e);
		else
			p->encoders[kept++] = e;
	}
	p->encoders_n = kept;
	return more;
}

struct fal_shared *
ps_publish(struct ps_publisher *p, const struct ps_publish_opt *from)
{
	const uint8_t common_suite = FAL_SUITE_CHACHA20_POLY1305;
	const bool seals = from->encoding != PS_UNSEALED;
	struct ps_encoded_version *v = publisher_place(p, from);
	if (!v->exists || v->version != from->version) {
		if (v == &p->next)
			publisher_displace(p, &p->newest); /* most readers have it */
		publisher_displace(p, v);
	}
	v->exists = true;
	v->needs_chacha |= seals && from->suite == common_suite;
	v->version = from->version;
	if (!has_encoding(v, from->encoding)) {
		/* Makes room for one encoding more by dropping those of other versions.
		 * Publications on their way are not dropped, as that frees no memory. */
		const uint32_t max = ps_max_encodings(&p->rule, p->is_mixed);
		struct ps_encoded_version *other;
		uint32_t n = 0;
		for (size_t i = 0; (other = publisher_nth_place(p, i)) != NULL; i++)
			n += count_encodings(other);
		for (size_t i = 0;
		     (other = publisher_nth_place(p, i)) != NULL && n >= max; i++) {
			if (other == v)
				continue;
			n -= count_encodings(other);
			(void)version_drop_arrived(other);
			n += count_encodings(other);
		}
	}
	struct fal_shared **s = &v->shared[from->encoding][from->shard];
	const bool opens = *s == NULL || !seals || from->suite != common_suite ||
			   (*s)->suite == common_suite;
	if (*s != NULL && (from->encodes_again || !opens)) {
		fal_shared_drop(*s);
		*s = NULL;
	}
	if (*s == NULL)
		*s = publisher_encode(p, from,
				      v->needs_chacha || p->needs_chacha ? common_suite
									 : from->suite);
	return *s;
}

void
ps_publisher_drop(struct ps_publisher *p)
{
	version_drop(&p->next);
	version_drop(&p->newest);
	version_drop(&p->kept);
	while (p->older_n > 0)
		version_drop(&p->older[--p->older_n]);
	if (p->pool != NULL)
		fal_shared_pool_trim(p->pool);
}

void
ps_publisher_reset(struct ps_publisher *p)
{
	publisher_break_encoders(p);
	ps_publisher_drop(p);
}

uint32_t
ps_max_encodings(const struct fal_rule *rule, bool is_mixed)
{
	const struct fal_traits is = fal_rule_traits(rule);
	return (is_mixed ? 2 : 1) + (is.shared ? is.delay : 1);
}

void
ps_publisher_free(struct ps_publisher *p)
{
	ps_publisher_reset(p);
	free(p->encoders);
	free(p->older);
	fal_shared_pool_free(p->pool);
}

/* ---- deliveries --- */

static void
reader_note_announced(struct ps_reader *reader, uint64_t publication)
{
	const size_t at = reader->n_announced % PS_ANNOUNCED_MAX;
	FAL_XGROW(reader->announced, reader->announced_cap, at + 1);
	if (reader->n_announced >= PS_ANNOUNCED_MAX &&
	    reader->announced[at] > reader->oldest_publication)
		reader->oldest_publication = reader->announced[at];
	if (publication > reader->newest_publication)
		reader->newest_publication = publication;
	reader->announced[at] = publication;
	reader->n_announced++;
}

/* Was the publication announced to the reader, or may it have been? */
static bool
reader_was_announced(const struct ps_reader *reader, const struct fal_shared *s)
{
	const uint64_t number = s->pub.id;
	if (number > reader->newest_publication)
		return false;
	if (number <= reader->oldest_publication)
		return true;
	for (uint64_t i = 0; i < reader->n_announced && i < PS_ANNOUNCED_MAX; i++)
		if (reader->announced[i] == number)
			return true;
	return false;
}

/* A fal_is_outdated_fn: does the announcement of a version (`arg`) mean that the worker
 * no longer needs publication `s`?  A version kept for an evaluation is needed until the
 * next such version. */
static bool
is_superseded(const void *arg, const struct fal_shared *s)
{
	const struct fal_coord_publication *announced = arg;
	const uint64_t version = s->version;
	const bool is_older =
		fal_branch_of(version) != fal_branch_of(announced->version) ||
		version < announced->version;
	bool is_named = version >= announced->from;
	if (s->lasting && !announced->keep)
		return false;
	for (uint32_t i = 0; i < announced->names && !is_named; i++)
		is_named = announced->named[i] == version;
	return (is_older && announced->oldest == announced->version) || !is_named;
}

/* Notes that from now on a delivery waits for the reader's link. */
static void
reader_mark_busy(struct ps_reader *reader)
{
	reader->busy_since = reader->busy_since > 0 ? reader->busy_since : uv_hrtime();
}

/* Sends a shard's part of the version: PUBLISHED, then MODEL.  Closes a channel that does
 * not take them.  FAL_ENOMEM. */
static int
delivery_send(struct ps_broadcast *b, struct ps_delivery *d, bool is_early)
{
	struct ps_reader *reader = d->reader;
	const struct fal_coord_publication *model = &d->model;
	const uint32_t shard = d->shard;
	struct ps_publish_opt from = { .version = model->version,
				       .shard = shard,
				       .is_unfinished = is_early,
				       .is_newest = model->version >= model->newest,
				       .is_kept = model->keep,
				       .suite = fal_chan_suite(reader->chan),
				       .encoding = fal_chan_is_unsealed(reader->chan)
							   ? PS_UNSEALED
						   : fal_chan_compressing(reader->chan)
							   ? PS_PACKED
							   : PS_PLAIN };
	struct fal_shared *shared = ps_publish(&b->publisher, &from);
	from.encodes_again = shared != NULL && reader_was_announced(reader, shared);
	if (from.encodes_again)
		shared = ps_publish(&b->publisher, &from);
	struct fal_msg m = { .type = FAL_MSG_PUBLISHED,
			     .incarnation = b->publisher.incarnation };
	if (shared == NULL)
		return FAL_ENOMEM;
	m.published.version = model->version;
	m.published.order = model->order;
	m.published.shard = shard + 1;
	fal_shard_set_range(b->publisher.shard_set, shard, &m.published.first,
			    &m.published.blocks);
	m.published.publication = shared->pub.id;
	reader_note_announced(reader, m.published.publication);
	memcpy(m.published.key, shared->pub.key, sizeof(m.published.key));
	if (ps_send_msg(reader->chan, &m, FAL_SEND_CONTROL) < 0 ||
	    fal_chan_send_shared(reader->chan, shared) < 0)
		fal_chan_close(reader->chan);
	d->shared = fal_shared_ref(shared);
	d->is_early = is_early;
	if (!is_early)
		reader_mark_busy(reader);
	return FAL_OK;
}

static void
delivery_free(struct ps_broadcast *b, const struct ps_delivery *d)
{
	if (d->shared != NULL)
		b->stats.tx[d->shard] += d->shared->bytes;
	fal_shared_drop(d->shared);
}

/* May a version be sent before it is made?  No, if the reader is on this machine: no link
 * works beside the cores there, and the reader would take the core that makes the rest.
 */
static bool
delivery_may_be_early(struct ps_broadcast *b, const struct ps_delivery *d)
{
	return !fal_chan_is_local(d->reader->chan) &&
	       ps_publisher_can_begin_early(&b->publisher, d->shard, d->model.version);
}

int
ps_broadcast_send(struct ps_broadcast *b)
{
	const struct fal_shard_set *shard_set = b->publisher.shard_set;
	struct fal_shard_part part;
	size_t kept = 0;
	int err = FAL_OK;
	for (size_t i = 0; i < b->n; i++) {
		struct ps_delivery d = b->v[i];
		const uint64_t version = d.model.version;
		if (d.shared == NULL) {
			const bool has_part =
				fal_shard_set_part(shard_set, d.shard, version, &part);
			const bool is_made =
				version <=
				fal_shard_version(
					fal_shard_set_shard(shard_set, d.shard));
			if ((is_made && !has_part) || err < 0)
				continue;
			if (d.reader->chan != NULL &&
			    (has_part || delivery_may_be_early(b, &d)))
				err = delivery_send(b, &d, !has_part);
			if (err < 0)
				continue;
		}
		b->v[kept++] = d;
	}
	b->n = kept;
	/* Encodes the publications that were begun, as far as shards have made them, and
	 * offers each piece to all links before the next one is encoded. */
	int more;
	while ((more = ps_publish_continue(&b->publisher)) > 0)
		for (size_t i = 0; i < b->n; i++)
			if (b->v[i].shared != NULL && b->v[i].reader->chan != NULL)
				fal_chan_write_now(b->v[i].reader->chan);
	/* Frees deliveries that are complete. */
	kept = 0;
	for (size_t i = 0; i < b->n; i++) {
		const struct ps_delivery d = b->v[i];
		if (d.shared == NULL ||
		    (d.reader->chan != NULL && !fal_shared_is_complete(d.shared) &&
		     !d.shared->broken)) {
			b->v[kept++] = d;
			continue;
		}
		if (d.is_early)
			reader_mark_busy(d.reader);
		delivery_free(b, &d);
	}
	b->n = kept;
	return err < 0 ? err : more;
}

void
ps_broadcast_add(struct ps_broadcast *b, struct ps_reader *reader,
		 const struct fal_coord_publication *model)
{
	const struct fal_shard_set *shard_set = b->publisher.shard_set;
	/* A reader that has fallen behind skips to the version that it needs. */
	if (reader->chan != NULL)
		fal_chan_drop_outdated(reader->chan, is_superseded, model);
	for (uint32_t i = 0; i < fal_shard_set_count(shard_set); i++) {
		if (fal_shard_set_shard(shard_set, i) == NULL)
			continue;
		FAL_XGROW(b->v, b->cap, b->n + 1);
		b->v[b->n] = (struct ps_delivery){ reader, i, *model, NULL, false };
		b->v[b->n++].model.named = NULL;
	}
}

void
ps_reader_attach(struct ps_reader *reader, struct fal_chan *c)
{
	free(reader->announced);
	*reader = (struct ps_reader){ .chan = c };
}

void
ps_reader_detach(struct ps_broadcast *b, struct ps_reader *reader)
{
	size_t kept = 0;
	for (size_t i = 0; i < b->n; i++)
		if (b->v[i].reader != reader)
			b->v[kept++] = b->v[i];
		else
			delivery_free(b, &b->v[i]);
	b->n = kept;
	ps_reader_attach(reader, NULL);
}

void
ps_broadcast_note_drained(struct ps_broadcast *b, struct ps_reader *reader)
{
	if (reader->busy_since > 0)
		b->stats.queue += uv_hrtime() - reader->busy_since;
	reader->busy_since = 0;
}

void
ps_broadcast_reset(struct ps_broadcast *b)
{
	size_t kept = 0;
	ps_publisher_reset(&b->publisher);
	for (size_t i = 0; i < b->n; i++)
		if (b->v[i].shared != NULL)
			b->v[kept++] = b->v[i];
	b->n = kept;
}

void
ps_broadcast_clear(struct ps_broadcast *b)
{
	while (b->n > 0)
		fal_shared_drop(b->v[--b->n].shared);
	ps_publisher_reset(&b->publisher);
	b->stats = (struct ps_shard_stats){ 0 };
}

void
ps_broadcast_free(struct ps_broadcast *b)
{
	ps_broadcast_clear(b);
	ps_publisher_free(&b->publisher);
	free(b->v);
	*b = (struct ps_broadcast){ 0 };
}

/* ---- statistics of shards --- */

/* The largest number that a trace may have. */
#define MAX_COUNT (UINT64_C(1) << 53)

void
ps_shard_stats_add_push(struct ps_shard_stats *s, const struct fal_shard_set *shard_set,
			const struct fal_tail *records)
{
	struct fal_rd r = fal_rd_init(records->p, records->n);
	const uint32_t block = fal_get_u32(&r);
	for (uint32_t i = 0; i < fal_shard_set_count(shard_set); i++) {
		uint32_t first, blocks;
		fal_shard_set_range(shard_set, i, &first, &blocks);
		if (block >= first && block - first < blocks)
			s->rx[i] += records->n;
	}
}

void
ps_shard_stats_put(const struct ps_shard_stats *s, uint32_t first, uint32_t count,
		   struct fal_msg *m, struct fal_buf *rows)
{
	*m = (struct fal_msg){ .type = FAL_MSG_SERVED,
			       .served = { .service = s->service, .queue = s->queue } };
	for (uint32_t i = first; i < first + count; i++) {
		fal_put_u64(rows, s->rx[i] < MAX_COUNT ? s->rx[i] : MAX_COUNT);
		fal_put_u64(rows, s->tx[i] < MAX_COUNT ? s->tx[i] : MAX_COUNT);
	}
	if (rows->err < 0)
		fal_out_of_memory();
	m->served.bytes = (struct fal_tail){ rows->p, rows->n };
}

int
ps_shard_stats_get(struct ps_shard_stats *s, uint32_t first, uint32_t count,
		   const struct fal_msg *m)
{
	struct fal_rd r = fal_rd_init(m->served.bytes.p, m->served.bytes.n);
	struct ps_shard_stats is = { .service = m->served.service,
				     .queue = m->served.queue };
	for (uint32_t i = first; i < first + count; i++) {
		is.rx[i] = fal_get_u64(&r);
		is.tx[i] = fal_get_u64(&r);
		if (is.rx[i] > MAX_COUNT || is.tx[i] > MAX_COUNT)
			return FAL_EFORMAT;
	}
	int err = fal_rd_end(&r);
	if (err == FAL_OK)
		*s = is;
	return err;
}
