/* Versions are encoded once for all who are to have them, and leave for them; and what
 * the shards of this process have served is counted. */
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

/* Messages that are made at a time while others are on their way: half a mebibyte. */
#define PIECE 10

int
ps_chan_send(struct fal_chan *c, const struct fal_msg *m, enum fal_send how)
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
ps_say(struct fal_chan *c, const struct fal_msg *m, enum fal_send how)
{
	if (ps_chan_send(c, m, how) < 0)
		fal_chan_close(c);
}

/* ---- versions, encoded ---------------------------------------------------------------
 */

static void
forget(struct ps_version *v)
{
	for (int i = 0; i < PS_ENCODINGS; i++)
		for (uint32_t k = 0; k < FAL_SHARDS_MAX; k++)
			fal_shared_drop(v->as[i][k]);
	*v = (struct ps_version){ 0 };
}

/* Forgets publications that no reader is to get any more; false: there is no other.  A
 * publication that some reader is still to get takes its memory, forgotten or not. */
static bool
forget_arrived(struct ps_version *v)
{
	bool any = false;
	for (int i = 0; i < PS_ENCODINGS; i++)
		for (uint32_t k = 0; k < FAL_SHARDS_MAX; k++) {
			struct fal_shared **s = &v->as[i][k];
			if (*s != NULL && (*s)->refs == 1) {
				fal_shared_drop(*s);
				*s = NULL;
			}
			any |= *s != NULL;
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
	if (!v->there)
		return;
	p->odd = v->odd;
	tidy(p);
	if (!forget_arrived(v))
		return;
	FAL_XGROW(p->older, p->older_cap, p->older_n + 1);
	p->older[p->older_n++] = *v;
	*v = (struct ps_version){ 0 };
}

/* Messages of one shard's blocks, a piece at most: their heads are made, their values
 * stay where they are. */
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

/* Is it long enough to be on its way while it is made? */
static bool
is_long(uint32_t blocks)
{
	return fal_msg_models(blocks) > 2 * PIECE;
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
	if (p->placed ||
	    !fal_shard_set_making(p->shard_set, shard, version, &part, &is) ||
	    !is_long(part.count))
		return false;
	if (due->version != version)
		*due = (struct ps_due){ .version = version };
	return next_early(&part, &is, NULL, &due->due, at) > 0;
}

/* Gets the shard's part of a version, made or still being made: in the second case
 * is->made says which blocks are made. */
static bool
part_of(const struct ps_publisher *p, uint32_t shard, uint64_t version,
	struct fal_shard_part *part, struct fal_shard_making *is)
{
	is->made = NULL;
	return fal_shard_set_part(p->shard_set, shard, version, part) ||
	       fal_shard_set_making(p->shard_set, shard, version, part, is);
}

/* Encodes a piece of the publication, if there is one; returns how many messages.  No
 * reader will get a publication that was forgotten meanwhile. */
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
	if (is.made != NULL && m->shared->made > m->shared->taken + PIECE)
		return 0;
	const uint32_t n = is.made != NULL ? next_early(&part, &is, m->in, &m->due, at)
					   : next_piece(&part, NULL, m->in, at);
	const int err =
		n > 0 ? encode_piece(p, m->version, &part, at, n, m->shared) : FAL_OK;
	for (uint32_t i = 0; i < n; i++)
		m->in[at[i]] = 1;
	return err < 0 ? err : (int)n;
}

static void
end_making(struct ps_making *m)
{
	fal_shared_drop(m->shared);
	free(m->in);
}

/* None of them will be whole. */
static void
give_up(struct ps_publisher *p)
{
	for (size_t i = 0; i < p->making_n; i++) {
		fal_shared_break(p->making[i].shared);
		end_making(&p->making[i]);
	}
	p->making_n = 0;
}

/* A long one is begun, and held until it is whole; any other one is made at once. */
static struct fal_shared *
encode(struct ps_publisher *p, const struct ps_params *from, uint8_t suite)
{
	uint8_t ad[FAL_MODEL_AD];
	struct fal_shard_part part;
	struct fal_shard_making is;
	struct fal_shared *s = NULL;
	if (p->pool == NULL)
		p->pool = fal_shared_pool_new(p->parallel);
	if (!part_of(p, from->shard, from->version, &part, &is))
		return NULL;
	fal_msg_model_ad(p->job_hash, p->incarnation, from->version, ad);
	struct fal_shared_opt opt = { .pool = p->pool,
				      .publication = ++p->publications,
				      .count = fal_msg_models(part.count),
				      .ad = ad,
				      .ad_n = sizeof(ad),
				      .version = from->version,
				      .parts = fal_shard_set_shards(p->shard_set),
				      .suite = suite,
				      .zstd = from->as == PS_PACKED,
				      .lasting = from->keep,
				      .unsealed = from->as == PS_UNSEALED };
	if (fal_shared_new(&opt, &s) < 0)
		return NULL;
	struct ps_making m = { .shared = fal_shared_ref(s),
			       .version = from->version,
			       .shard = from->shard,
			       .in = fal_xcalloc(opt.count, 1) };
	if (is_long(part.count)) {
		FAL_XGROW(p->making, p->making_cap, p->making_n + 1);
		p->making[p->making_n++] = m;
		return s;
	}
	while (!fal_shared_whole(s) && go_on(p, &m) > 0)
		;
	const bool whole = fal_shared_whole(s);
	end_making(&m);
	if (!whole)
		fal_shared_drop(s);
	return whole ? s : NULL;
}

/* Has anybody asked for this encoding? */
static bool
is_encoded(const struct ps_version *v, int as)
{
	for (uint32_t k = 0; k < FAL_SHARDS_MAX; k++)
		if (v->as[as][k] != NULL)
			return true;
	return false;
}

static uint32_t
encodings(const struct ps_version *v)
{
	uint32_t n = 0;
	for (int i = 0; i < PS_ENCODINGS; i++)
		n += is_encoded(v, i);
	return n;
}

/* The version that was being made becomes the newest, if its number is `version`. */
static void
is_made(struct ps_publisher *p, uint64_t version)
{
	if (!p->next.there || p->next.version != version)
		return;
	displace(p, &p->newest);
	p->newest = p->next;
	p->next = (struct ps_version){ 0 };
}

/* The place that keeps the version.  A version that is being made has a place of its own
 * until it is made: a worker that joins then wants the version before, too. */
static struct ps_version *
place_of(struct ps_publisher *p, const struct ps_params *from)
{
	const struct ps_version *newest = &p->newest;
	if (!from->making)
		is_made(p, from->version);
	const bool line = newest->there &&
			  fal_branch_of(newest->version) == fal_branch_of(from->version);
	if (line && newest->version == from->version)
		return &p->newest;
	if (from->making)
		return &p->next;
	for (size_t i = 0; i < p->older_n && !from->keep; i++)
		if (p->older[i].version == from->version)
			return &p->older[i];
	if (from->newest && !(line && from->version < newest->version))
		return &p->newest;
	if (from->keep)
		return &p->kept;
	tidy(p);
	FAL_XGROW(p->older, p->older_cap, p->older_n + 1);
	p->older[p->older_n] = (struct ps_version){ 0 };
	return &p->older[p->older_n++];
}

/* The places in order, the most dispensable ones first; NULL: no more places. */
static struct ps_version *
nth_place(struct ps_publisher *p, size_t i)
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
	for (size_t i = 0; (other = nth_place(p, i)) != NULL; i++)
		n += encodings(other);
	for (size_t i = 0; (other = nth_place(p, i)) != NULL && n >= most; i++) {
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
		const int got = go_on(p, &p->making[i]);
		if (got < 0) {
			give_up(p);
			return got;
		}
		more += got > 0;
	}
	for (size_t i = 0; i < p->making_n; i++) {
		struct ps_making m = p->making[i];
		const bool whole = fal_shared_whole(m.shared);
		if (whole)
			is_made(p, m.version);
		if (whole || m.shared->broken)
			end_making(&m);
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
	const bool seals = from->as != PS_UNSEALED;
	struct ps_version *v = place_of(p, from);
	if (!v->there || v->version != from->version) {
		if (v == &p->next)
			displace(p, &p->newest); /* most have it */
		displace(p, v);
	}
	v->there = true;
	v->odd |= seals && from->suite == every;
	v->version = from->version;
	if (!is_encoded(v, from->as))
		make_room(p, v);
	struct fal_shared **s = &v->as[from->as][from->shard];
	const bool opens =
		*s == NULL || !seals || from->suite != every || (*s)->suite == every;
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

/* ---- who is to have which -------------------------------------------------------- */

/* How versions are to be encoded for a session. */
static enum ps_encoding
encoding(const struct ps_reader *reader)
{
	if (fal_chan_is_unsealed(reader->chan))
		return PS_UNSEALED;
	return fal_chan_compressing(reader->chan) ? PS_PACKED : PS_PLAIN;
}

/* Notes that the reader is told of this. */
static void
note_told(struct ps_reader *reader, uint64_t publication)
{
	const size_t at = reader->tolds % PS_TOLD;
	FAL_XGROW(reader->told, reader->told_cap, at + 1);
	if (reader->tolds >= PS_TOLD && reader->told[at] > reader->gone)
		reader->gone = reader->told[at];
	if (publication > reader->most)
		reader->most = publication;
	reader->told[at] = publication;
	reader->tolds++;
}

/* Was the reader told of it, or may it have been?  Most are larger than all; others are
 * looked for. */
static bool
is_over(const struct ps_reader *reader, const struct fal_shared *s)
{
	const uint64_t number = s->pub.id;
	if (number > reader->most)
		return false;
	if (number <= reader->gone)
		return true;
	for (uint64_t i = 0; i < reader->tolds && i < PS_TOLD; i++)
		if (reader->told[i] == number)
			return true;
	return false;
}

/* A shard's publication of the version for a session, or NULL: out of memory. */
static struct fal_shared *
publication(struct ps_wants *w, const struct ps_want *want, bool early)
{
	const struct ps_reader *reader = want->reader;
	const struct fal_coord_model *m = &want->model;
	struct ps_params from = { .version = m->version,
				  .shard = want->shard,
				  .making = early,
				  .newest = m->version >= m->newest,
				  .keep = m->keep,
				  .suite = fal_chan_suite(reader->chan),
				  .as = encoding(reader) };
	struct fal_shared *s = ps_publish(&w->publisher, &from);
	from.anew = s != NULL && is_over(reader, s);
	return from.anew ? ps_publish(&w->publisher, &from) : s;
}

/* Will the worker, told of this version, not compute on that one any more?  One that it
 * is to keep for evaluation ends with the next such. */
static bool
is_old(const void *arg, const struct fal_shared *s)
{
	const struct fal_coord_model *told = arg;
	const uint64_t version = s->version;
	/* A version of another line, or an earlier version. */
	const bool older = fal_branch_of(version) != fal_branch_of(told->version) ||
			   version < told->version;
	bool named = version >= told->from;
	if (s->lasting && !told->keep)
		return false;
	for (uint32_t i = 0; i < told->names && !named; i++)
		named = told->named[i] == version;
	return (older && told->oldest == told->version) || !named;
}

/* The reader's link has everything that the link is to take, from now on. */
static void
waits(struct ps_reader *reader)
{
	reader->since = reader->since > 0 ? reader->since : uv_hrtime();
}

/* Sends a shard's part of the version: PUBLISHED, then MODEL.  A channel that does not
 * take the messages is closed.  FAL_ENOMEM: there is nothing to publish. */
static int
send_part(struct ps_wants *w, struct ps_want *want, bool early)
{
	struct ps_reader *reader = want->reader;
	const struct fal_coord_model *model = &want->model;
	const uint32_t shard = want->shard;
	struct fal_shared *shared = publication(w, want, early);
	struct fal_msg m = { .type = FAL_MSG_PUBLISHED,
			     .incarnation = w->publisher.incarnation };
	if (shared == NULL)
		return FAL_ENOMEM;
	m.published.version = model->version;
	m.published.order = model->order;
	m.published.shard = shard + 1;
	fal_shard_set_range(w->publisher.shard_set, shard, &m.published.first,
			    &m.published.blocks);
	m.published.publication = shared->pub.id;
	note_told(reader, m.published.publication);
	memcpy(m.published.key, shared->pub.key, sizeof(m.published.key));
	if (ps_chan_send(reader->chan, &m, FAL_SEND_CONTROL) < 0 ||
	    fal_chan_send_shared(reader->chan, shared) < 0)
		fal_chan_close(reader->chan);
	want->shared = fal_shared_ref(shared);
	want->early = early;
	if (!early)
		waits(reader);
	return FAL_OK;
}

/* Forgets a want: its version has left, or its reader is gone. */
static void
end_want(struct ps_wants *w, const struct ps_want *want)
{
	if (want->shared != NULL)
		w->served.tx[want->shard] += want->shared->bytes;
	fal_shared_drop(want->shared);
}

/* Makes what was begun, as far as shards have it, while what is there of it leaves for
 * all who are to have it. */
static int
make_all(struct ps_wants *w)
{
	size_t kept = 0;
	int more;
	while ((more = ps_publish_more(&w->publisher)) > 0)
		for (size_t i = 0; i < w->n; i++)
			if (w->v[i].shared != NULL && w->v[i].reader->chan != NULL)
				fal_chan_offer(w->v[i].reader->chan);
	for (size_t i = 0; i < w->n; i++) {
		const struct ps_want one = w->v[i];
		if (one.shared == NULL ||
		    (one.reader->chan != NULL && !fal_shared_whole(one.shared) &&
		     !one.shared->broken)) {
			w->v[kept++] = one;
			continue;
		}
		if (one.early)
			waits(one.reader);
		end_want(w, &one);
	}
	w->n = kept;
	return more;
}

/* Is what there is of a version that is not made yet to be on its way?  Not to this very
 * machine, where no link works beside the cores, and whoever takes it needs the one that
 * makes the rest. */
static bool
is_early(struct ps_wants *w, const struct ps_want *want)
{
	return !fal_chan_is_local(want->reader->chan) &&
	       ps_publisher_early(&w->publisher, want->shard, want->model.version);
}

int
ps_wants_leave(struct ps_wants *w)
{
	const struct fal_shard_set *shard_set = w->publisher.shard_set;
	struct fal_shard_part part;
	size_t kept = 0;
	int err = FAL_OK;
	for (size_t i = 0; i < w->n; i++) {
		struct ps_want one = w->v[i];
		const uint64_t version = one.model.version;
		if (one.shared == NULL) {
			const bool there =
				fal_shard_set_part(shard_set, one.shard, version, &part);
			const bool made =
				version <=
				fal_shard_version(fal_shard_set_at(shard_set, one.shard));
			if ((made && !there) || err < 0)
				continue;
			if (one.reader->chan != NULL && (there || is_early(w, &one)))
				err = send_part(w, &one, !there);
			if (err < 0)
				continue;
		}
		w->v[kept++] = one;
	}
	w->n = kept;
	const int made = make_all(w);
	return err < 0 ? err : made;
}

void
ps_wants_add(struct ps_wants *w, struct ps_reader *reader,
	     const struct fal_coord_model *model)
{
	const struct fal_shard_set *shard_set = w->publisher.shard_set;
	/* Whoever has fallen behind skips to the version it needs. */
	if (reader->chan != NULL)
		fal_chan_skip_shared(reader->chan, is_old, model);
	for (uint32_t i = 0; i < fal_shard_set_shards(shard_set); i++) {
		if (fal_shard_set_at(shard_set, i) == NULL)
			continue;
		FAL_XGROW(w->v, w->cap, w->n + 1);
		w->v[w->n] = (struct ps_want){ reader, i, *model, NULL, false };
		w->v[w->n++].model.named = NULL;
	}
}

void
ps_reader_begin(struct ps_reader *reader, struct fal_chan *c)
{
	free(reader->told);
	*reader = (struct ps_reader){ .chan = c };
}

void
ps_reader_end(struct ps_wants *w, struct ps_reader *reader)
{
	size_t kept = 0;
	for (size_t i = 0; i < w->n; i++)
		if (w->v[i].reader != reader)
			w->v[kept++] = w->v[i];
		else
			end_want(w, &w->v[i]);
	w->n = kept;
	ps_reader_begin(reader, NULL);
}

void
ps_wants_taken(struct ps_wants *w, struct ps_reader *reader)
{
	if (reader->since > 0)
		w->served.queue += uv_hrtime() - reader->since;
	reader->since = 0;
}

void
ps_wants_moved(struct ps_wants *w)
{
	size_t kept = 0;
	ps_publisher_reset(&w->publisher);
	for (size_t i = 0; i < w->n; i++)
		if (w->v[i].shared != NULL)
			w->v[kept++] = w->v[i];
	w->n = kept;
}

void
ps_wants_forget(struct ps_wants *w)
{
	while (w->n > 0)
		fal_shared_drop(w->v[--w->n].shared);
	ps_publisher_reset(&w->publisher);
	w->served = (struct ps_served){ 0 };
}

void
ps_wants_free(struct ps_wants *w)
{
	ps_wants_forget(w);
	ps_publisher_free(&w->publisher);
	free(w->v);
	*w = (struct ps_wants){ 0 };
}

/* ---- what was served -------------------------------------------------------------- */

/* No count of bytes is above what a trace may have. */
#define MOST (UINT64_C(1) << 53)

void
ps_served_push(struct ps_served *s, const struct fal_shard_set *shard_set,
	       const struct fal_tail *records)
{
	struct fal_rd r = fal_rd_init(records->p, records->n);
	const uint32_t block = fal_get_u32(&r);
	for (uint32_t i = 0; i < fal_shard_set_shards(shard_set); i++) {
		uint32_t first, blocks;
		fal_shard_set_range(shard_set, i, &first, &blocks);
		if (block >= first && block - first < blocks)
			s->rx[i] += records->n;
	}
}

void
ps_served_put(const struct ps_served *s, uint32_t first, uint32_t count,
	      struct fal_msg *m, struct fal_buf *rows)
{
	*m = (struct fal_msg){ .type = FAL_MSG_SERVED,
			       .served = { .service = s->service, .queue = s->queue } };
	for (uint32_t i = first; i < first + count; i++) {
		fal_put_u64(rows, s->rx[i] < MOST ? s->rx[i] : MOST);
		fal_put_u64(rows, s->tx[i] < MOST ? s->tx[i] : MOST);
	}
	if (rows->err < 0)
		fal_out_of_memory();
	m->served.bytes = (struct fal_tail){ rows->p, rows->n };
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
