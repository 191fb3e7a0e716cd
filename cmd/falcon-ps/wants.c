/* Versions leave for whoever is to have them. */
#include "wants.h"

#include "base/line.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <uv.h>

static struct ps_params
params_of(const struct ps_want *one, const struct ps_reader *reader)
{
	return (struct ps_params){ .version = one->model.version,
				   .shard = one->shard,
				   .keep = one->model.keep,
				   .suite = fal_chan_suite(reader->chan) };
}

/* A shard's publication of the version for a session, or NULL: out of memory. */
static struct fal_shared *
publication(struct ps_wants *w, const struct ps_reader *reader, const struct ps_want *one)
{
	const struct fal_coord_model *m = &one->model;
	struct ps_version *slot = &w->publisher.older;
	if (m->version >= m->newest)
		slot = &w->publisher.newest;
	else if (m->keep)
		slot = &w->publisher.kept;
	const struct ps_params from = params_of(one, reader);
	return ps_publish(&w->publisher, slot, &from, fal_chan_compressing(reader->chan),
			  reader->publication);
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

/* A shard's part of it: PUBLISHED, then MODEL.  What the channel does not take closes it.
 * FAL_ENOMEM: there is nothing to publish. */
static int
send_part(struct ps_wants *w, struct ps_reader *reader, const struct ps_want *one)
{
	const struct fal_coord_model *model = &one->model;
	const uint32_t shard = one->shard;
	struct fal_shared *shared = publication(w, reader, one);
	struct fal_msg m = { .type = FAL_MSG_PUBLISHED,
			     .incarnation = w->publisher.incarnation };
	struct fal_buf out = { 0 };
	if (shared == NULL || FAL_GROW(w->leaving, w->leaving_cap, w->leaving_n + 1) < 0)
		return FAL_ENOMEM;
	reader->publication = fal_shared_publication(shared);
	m.published.version = model->version;
	m.published.order = model->order;
	m.published.shard = shard + 1;
	fal_rack_range(w->publisher.rack, shard, &m.published.first, &m.published.blocks);
	m.published.publication = reader->publication;
	memcpy(m.published.key, fal_shared_key(shared), sizeof(m.published.key));
	int err = fal_msg_put(&out, &m);
	if (err == FAL_OK)
		err = fal_chan_send(reader->chan, &out, FAL_SEND_CONTROL);
	if (err == FAL_OK)
		err = fal_chan_send_shared(reader->chan, shared);
	if (err == FAL_OK) {
		w->leaving[w->leaving_n++] =
			(struct ps_leaving){ one->peer, shard, fal_shared_ref(shared) };
		reader->since = reader->since > 0 ? reader->since : uv_hrtime();
	}
	fal_buf_free(&out);
	if (err < 0)
		fal_chan_close(reader->chan);
	return FAL_OK;
}

/* Each of them is offered what there is by now. */
static void
offer_all(const struct ps_wants *w, ps_reader_of *of, void *arg)
{
	for (size_t i = 0; i < w->leaving_n; i++) {
		const struct ps_reader *reader = of(arg, w->leaving[i].peer);
		if (reader != NULL && reader->chan != NULL)
			fal_chan_offer(reader->chan);
	}
}

/* Makes what can be made of what was begun, while what is there of it leaves for all who
 * are to have it. */
static int
make_all(struct ps_wants *w, ps_reader_of *of, void *arg)
{
	size_t kept = 0;
	int left = 0;
	const bool any = w->publisher.making_n > 0;
	while (any && (left = ps_publish_more(&w->publisher)) > 0)
		offer_all(w, of, arg);
	if (any)
		offer_all(w, of, arg);
	for (size_t i = 0; i < w->leaving_n; i++) {
		const struct ps_leaving l = w->leaving[i];
		if (!fal_shared_whole(l.shared) && !fal_shared_broken(l.shared)) {
			w->leaving[kept++] = l;
			continue;
		}
		w->served.tx[l.shard] += fal_shared_bytes(l.shared);
		fal_shared_drop(l.shared);
	}
	w->leaving_n = kept;
	return left;
}

/* Will nobody have the version any more? */
static bool
is_over(const struct ps_wants *w, const struct ps_want *one)
{
	struct fal_shard_part part;
	const struct fal_rack *rack = w->publisher.rack;
	return one->model.version <= fal_shard_version(fal_rack_at(rack, one->shard)) &&
	       !fal_rack_part(rack, one->shard, one->model.version, &part);
}

int
ps_wants_leave(struct ps_wants *w, ps_reader_of *of, void *arg)
{
	size_t kept = 0;
	int err = FAL_OK;
	for (size_t i = 0; i < w->n; i++) {
		const struct ps_want one = w->v[i];
		struct ps_reader *reader = of(arg, one.peer);
		if (reader == NULL || is_over(w, &one) || err < 0)
			continue;
		const bool open = reader->chan != NULL;
		const struct ps_params from =
			open ? params_of(&one, reader) : (struct ps_params){ 0 };
		if (open && ps_publish_may(&w->publisher, &from,
					   fal_chan_compressing(reader->chan)))
			err = send_part(w, reader, &one);
		else
			w->v[kept++] = one;
	}
	w->n = kept;
	const int left = make_all(w, of, arg);
	return err < 0 ? err : left;
}

int
ps_wants_add(struct ps_wants *w, uint32_t peer, const struct ps_reader *reader,
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
ps_wants_taken(struct ps_wants *w, struct ps_reader *reader)
{
	if (reader->since > 0)
		w->served.queue += uv_hrtime() - reader->since;
	reader->since = 0;
}

void
ps_wants_moved(struct ps_wants *w)
{
	ps_publisher_forget(&w->publisher);
	for (size_t i = 0; i < w->leaving_n; i++)
		fal_shared_drop(w->leaving[i].shared);
	w->leaving_n = w->n = 0;
}

void
ps_wants_forget(struct ps_wants *w)
{
	ps_wants_moved(w);
	w->served = (struct ps_served){ 0 };
}

void
ps_wants_free(struct ps_wants *w)
{
	for (size_t i = 0; i < w->leaving_n; i++)
		fal_shared_drop(w->leaving[i].shared);
	ps_publisher_free(&w->publisher);
	free(w->leaving);
	free(w->v);
	*w = (struct ps_wants){ 0 };
}
