/* Versions leave for whoever is to have them. */
#include "wants.h"

#include "base/line.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <uv.h>

/* How versions are to be encoded for a session. */
static enum ps_encoding
encoding(const struct ps_reader *reader)
{
	if (fal_chan_is_unsealed(reader->chan))
		return PS_UNSEALED;
	return fal_chan_compressing(reader->chan) ? PS_PACKED : PS_PLAIN;
}

/* So many are known of. */
static uint32_t
known(const struct ps_reader *reader)
{
	return reader->tolds < PS_TOLD ? (uint32_t)reader->tolds : PS_TOLD;
}

/* Notes that the reader is told of this.  FAL_ENOMEM. */
static int
note_told(struct ps_reader *reader, uint64_t publication)
{
	const size_t at = reader->tolds % PS_TOLD;
	if (FAL_GROW(reader->told, reader->told_cap, at + 1) < 0)
		return FAL_ENOMEM;
	if (reader->tolds >= PS_TOLD && reader->told[at] > reader->gone)
		reader->gone = reader->told[at];
	if (publication > reader->most)
		reader->most = publication;
	reader->told[at] = publication;
	reader->tolds++;
	return FAL_OK;
}

/* Was the reader told of it, or may it have been?  Most are larger than all; others are
 * looked for. */
static bool
is_over(const struct ps_reader *reader, const struct fal_shared *s)
{
	const uint64_t number = fal_shared_publication(s);
	if (number > reader->most)
		return false;
	if (number <= reader->gone)
		return true;
	for (uint32_t i = 0; i < known(reader); i++)
		if (reader->told[i] == number)
			return true;
	return false;
}

/* A shard's publication of the version for a session, or NULL: out of memory. */
static struct fal_shared *
publication(struct ps_wants *w, const struct ps_reader *reader,
	    const struct ps_want *want, bool early)
{
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
	const uint64_t version = fal_shared_version(s);
	/* Of another line, or from before. */
	const bool older = fal_line_of(version) != fal_line_of(told->version) ||
			   version < told->version;
	bool named = version >= told->from;
	if (fal_shared_lasting(s) && !told->keep)
		return false;
	for (uint32_t i = 0; i < told->names && !named; i++)
		named = told->named[i] == version;
	return (older && told->oldest == told->version) || !named;
}

/* Its link has all that it is to take from now on. */
static void
waits(struct ps_reader *reader)
{
	reader->since = reader->since > 0 ? reader->since : uv_hrtime();
}

/* A shard's part of it: PUBLISHED, then MODEL.  What the channel does not take closes it.
 * FAL_ENOMEM: there is nothing to publish. */
static int
send_part(struct ps_wants *w, struct ps_reader *reader, const struct ps_want *want,
	  bool early)
{
	const struct fal_coord_model *model = &want->model;
	const uint32_t shard = want->shard;
	struct fal_shared *shared = publication(w, reader, want, early);
	struct fal_msg m = { .type = FAL_MSG_PUBLISHED,
			     .incarnation = w->publisher.incarnation };
	struct fal_buf out = { 0 };
	if (shared == NULL || FAL_GROW(w->leaving, w->leaving_cap, w->leaving_n + 1) < 0)
		return FAL_ENOMEM;
	m.published.version = model->version;
	m.published.order = model->order;
	m.published.shard = shard + 1;
	fal_rack_range(w->publisher.rack, shard, &m.published.first, &m.published.blocks);
	m.published.publication = fal_shared_publication(shared);
	if (note_told(reader, m.published.publication) < 0)
		return FAL_ENOMEM;
	memcpy(m.published.key, fal_shared_key(shared), sizeof(m.published.key));
	int err = fal_msg_put(&out, &m);
	if (err == FAL_OK)
		err = fal_chan_send(reader->chan, &out, FAL_SEND_CONTROL);
	if (err == FAL_OK)
		err = fal_chan_send_shared(reader->chan, shared);
	if (err == FAL_OK) {
		w->leaving[w->leaving_n++] =
			(struct ps_leaving){ want->peer, shard, early,
					     fal_shared_ref(shared) };
		if (!early)
			waits(reader);
	}
	fal_buf_free(&out);
	if (err < 0)
		fal_chan_close(reader->chan);
	return FAL_OK;
}

/* Links take what there is. */
static void
offer(const struct ps_wants *w, ps_reader_of *of, void *arg)
{
	for (size_t i = 0; i < w->leaving_n; i++) {
		const struct ps_reader *reader = of(arg, w->leaving[i].peer);
		if (reader != NULL && reader->chan != NULL)
			fal_chan_offer(reader->chan);
	}
}

/* Makes what was begun, as far as shards have it, while what is there of it leaves for
 * all who are to have it. */
static int
make_all(struct ps_wants *w, ps_reader_of *of, void *arg, int err)
{
	size_t kept = 0;
	int more;
	while ((more = ps_publish_more(&w->publisher)) > 0)
		offer(w, of, arg);
	for (size_t i = 0; i < w->leaving_n; i++) {
		const struct ps_leaving l = w->leaving[i];
		struct ps_reader *reader = of(arg, l.peer);
		const bool gone = reader == NULL || reader->chan == NULL;
		if (!gone && !fal_shared_whole(l.shared) &&
		    !fal_shared_broken(l.shared)) {
			w->leaving[kept++] = l;
			continue;
		}
		w->served.tx[l.shard] += fal_shared_bytes(l.shared);
		if (l.early && reader != NULL)
			waits(reader);
		fal_shared_drop(l.shared);
	}
	w->leaving_n = kept;
	return err < 0 ? err : more;
}

/* Is what there is of a version that is not made yet to be on its way?  Not to this very
 * machine, where no link works beside the cores, and whoever takes it needs the one that
 * makes the rest. */
static bool
is_early(struct ps_wants *w, const struct ps_reader *reader, const struct ps_want *want)
{
	return !fal_chan_is_local(reader->chan) &&
	       ps_publisher_early(&w->publisher, want->shard, want->model.version);
}

int
ps_wants_leave(struct ps_wants *w, ps_reader_of *of, void *arg)
{
	const struct fal_rack *rack = w->publisher.rack;
	struct fal_shard_part part;
	size_t kept = 0;
	int err = FAL_OK;
	for (size_t i = 0; i < w->n; i++) {
		const struct ps_want one = w->v[i];
		struct ps_reader *reader = of(arg, one.peer);
		const bool there =
			fal_rack_part(rack, one.shard, one.model.version, &part);
		const bool made = one.model.version <=
				  fal_shard_version(fal_rack_at(rack, one.shard));
		if (reader == NULL || (made && !there) || err < 0)
			continue;
		if (reader->chan == NULL || (!there && !is_early(w, reader, &one)))
			w->v[kept++] = one;
		else
			err = send_part(w, reader, &one, !there);
	}
	w->n = kept;
	return make_all(w, of, arg, err);
}

int
ps_wants_add(struct ps_wants *w, uint32_t peer, struct ps_reader *reader,
	     const struct fal_coord_model *model)
{
	const struct fal_rack *rack = w->publisher.rack;
	/* Whoever has fallen behind skips to the version it needs. */
	if (reader->chan != NULL)
		fal_chan_skip_shared(reader->chan, is_old, model);
	for (uint32_t i = 0; i < fal_rack_shards(rack); i++) {
		if (fal_rack_at(rack, i) == NULL)
			continue;
		if (FAL_GROW(w->v, w->cap, w->n + 1) < 0)
			return FAL_ENOMEM;
		w->v[w->n] = (struct ps_want){ peer, i, *model };
		w->v[w->n++].model.named = NULL;
	}
	return FAL_OK;
}

void
ps_reader_free(struct ps_reader *reader)
{
	free(reader->told);
	*reader = (struct ps_reader){ 0 };
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
	ps_publisher_reset(&w->publisher);
	w->n = 0;
}

static void
forget_leaving(struct ps_wants *w)
{
	for (size_t i = 0; i < w->leaving_n; i++)
		fal_shared_drop(w->leaving[i].shared);
	w->leaving_n = 0;
}

void
ps_wants_forget(struct ps_wants *w)
{
	forget_leaving(w);
	ps_publisher_reset(&w->publisher);
	w->n = 0;
	w->served = (struct ps_served){ 0 };
}

void
ps_wants_free(struct ps_wants *w)
{
	forget_leaving(w);
	ps_publisher_free(&w->publisher);
	free(w->leaving);
	free(w->v);
	*w = (struct ps_wants){ 0 };
}
