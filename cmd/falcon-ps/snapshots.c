/* Taking snapshots. */
#include "base/mem.h"
#include "sched/policy.h"
#include "server.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Whoever asked for it gets an answer. */
static void
answer(struct ps_server *s, uint64_t clock, const char *why)
{
	struct ps_session *session = ps_session_find(&s->sessions, s->keep.asks);
	s->keep.asks = 0;
	char text[40];
	snprintf(text, sizeof(text), "{\"clock\":%" PRIu64 "}", clock);
	if (session != NULL)
		ps_control_answer(session, why, text);
}

/* Takes a snapshot of the newest version; of the next one, where a part of it is on its
 * way. */
static void
take(struct ps_server *s)
{
	struct ps_keep *k = &s->keep;
	k->soon = true;
	ps_fail(s, fal_coord_mark_now(s->coord, ps_now()), "snapshot");
	if (!k->soon)
		return;
	k->soon = fal_rule_traits(&fal_coord_policy_now(s->coord)->rule).shared;
	if (k->soon)
		fal_coord_mark(s->coord);
	else if (k->asks != 0)
		answer(s, 0, "there can be none: rounds of this scheme are not shared");
}

/* The one under way is over: it is there; or it is not, and why. */
static void
over(struct ps_server *s, const char *why)
{
	struct ps_keep *k = &s->keep;
	const uint64_t clock = k->now.is.past.clock;
	char times[48] = "";
	uint64_t n = 0;
	k->busy = false;
	k->missing = 0;
	k->good = why == NULL;
	k->any |= k->good;
	if (k->good)
		k->last = k->clock = clock;
	else if (fal_ratelimit(&k->none, ps_now(), &n)) {
		if (n > 0)
			snprintf(times, sizeof(times), ", nor %" PRIu64 " before", n);
		fal_cli_err(PROG,
			    "%s: no snapshot of clock %" PRIu64 "%s: %s; the job goes on",
			    s->job->job.name, clock, times, why);
	}
	if (!k->again)
		answer(s, k->clock, why);
	for (uint32_t i = 0; i < k->now.shards; i++)
		fal_shard_set_spare(s->shard_set, k->slot[i].shard, &k->now.image[i]);
	fal_snapshot_free(&k->now);
	if (k->again) { /* another one was asked for meanwhile */
		k->again = false;
		take(s);
	}
}

static void
written(struct ps_server *s)
{
	const struct fal_snapshot *n = &s->keep.now;
	over(s, n->err == FAL_OK ? NULL : n->diag.text);
}

/* Hashing and writing take a core for a while: behind whoever computes. */
static void
on_work(uv_work_t *w)
{
	enum { NICE = 10 };
	struct ps_server *s = w->data;
	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE); /* of this thread */
	fal_snapshot_write(&s->keep.now);
}

static void
on_written(uv_work_t *w, int status)
{
	struct ps_server *s = w->data;
	(void)status;
	written(s);
	ps_after_event(s); /* its end may have waited for that */
}

/* A copy of the descriptor, which may be closed while the copy is in use. */
static int
copy_of(int fd)
{
	return fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
}

/* Takes the images of the shards that are here, and asks the others for theirs. */
static int
take_images(struct ps_server *s, struct fal_snapshot *n)
{
	const struct fal_coord_past *p = &n->is.past;
	struct fal_image own[FAL_SHARDS_MAX] = { 0 };
	uint32_t order[FAL_SHARDS_MAX];
	const uint32_t shards = fal_shard_set_in_order(s->shard_set, order);
	if (!fal_shard_set_marked(s->shard_set, p->version, own))
		return FAL_ENOMEM;
	n->image = fal_xcalloc(shards, sizeof(*n->image));
	n->shards = shards;
	for (uint32_t i = 0; i < shards; i++) {
		struct fal_shard_part part;
		(void)fal_shard_set_part(s->shard_set, order[i], 0, &part);
		s->keep.slot[i] = (struct ps_slot){ order[i], part.count, part.values };
		n->image[i] = own[order[i]];
		s->keep.missing += fal_shard_set_at(s->shard_set, order[i]) == NULL;
	}
	if (s->keep.missing > 0)
		ps_fleet_fetch_marked(s, p->version);
	return FAL_OK;
}

static int
fill_in(struct ps_server *s, const struct fal_coord_past *past, struct fal_snapshot *n)
{
	struct ps_control *c = &s->control;
	*n = fal_snapshot_none;
	n->folder = s->run->snapshots;
	n->keep = s->job->job.state_keep;
	int err = FAL_OK;
	fal_coord_past_copy(past, &n->is.past);
	n->is.policy = fal_policy_copy(past->policy);
	/* Version 0 is known by the job; its image stays, as memory for the others. */
	if (past->version > 0)
		err = take_images(s, n);
	ps_record_flush(&s->run->record);
	const struct fal_files *job = s->job;
	memcpy(n->is.job, job->lasting_hex, sizeof(n->is.job));
	memcpy(n->is.net, job->model_hex, sizeof(n->is.net));
	memcpy(n->is.data, job->data_hex, sizeof(n->is.data));
	memcpy(n->is.init, fal_files_init(job), sizeof(n->is.init));
	memcpy(n->is.sizes, job->sizes, sizeof(n->is.sizes));
	n->is.incarnation = s->run->state.incarnation;
	n->is.lines = s->run->record.lines;
	ps_control_reach(c, past->agains, &n->is);
	memcpy(n->is.chain, s->run->record.chain.link, sizeof(n->is.chain));
	n->synced[0] = copy_of(s->run->record.file[0].fd);
	n->synced[1] = copy_of(c->journal.fd);
	return err;
}

/* All images are here: writes the snapshot. */
static void
write_it(struct ps_server *s)
{
	struct ps_keep *k = &s->keep;
	struct fal_snapshot *n = &k->now;
	const struct fal_coord_past *p = &n->is.past;
	bool fits = true;
	for (uint32_t i = 0; i < n->shards && p->kept_clock > 0; i++)
		fits &= fal_image_hold(&n->image[i], p->kept_version);
	if (!fits) {
		over(s, fal_strerror(FAL_ESTATE));
		return;
	}
	if (n->shards > 0)
		n->is.image = n->image[0].is;
	k->work.data = s;
	/* Nothing has begun before the first one, which is small, is there. */
	if (p->version > 0 && uv_queue_work(s->loop, &k->work, on_work, on_written) == 0)
		return;
	fal_snapshot_write(n);
	written(s);
}

void
ps_keep_marked(void *arg, const struct fal_coord_past *past)
{
	struct ps_server *s = arg;
	struct ps_keep *k = &s->keep;
	if (k->busy || s->run->snapshots < 0)
		return;
	k->soon = false;
	k->at = ps_now();
	k->clock = past->clock;
	k->missing = 0;
	int err = fill_in(s, past, &k->now);
	if (err < 0) {
		over(s, fal_strerror(err));
		return;
	}
	k->busy = true;
	if (k->missing == 0)
		write_it(s);
}

/* Is it of the same arrays as one that is here, that of this process if it has any, with
 * as much of each?  The first one has nothing to be held against but its version. */
static bool
fits(const struct ps_server *s, uint32_t slot, const struct fal_image *image)
{
	const struct ps_keep *k = &s->keep;
	uint32_t at = 0;
	while (at < k->now.shards && k->now.image[at].arrays == 0)
		at++;
	if (at == k->now.shards)
		return image->arrays > 0 && image->is.version == k->now.is.past.version;
	const struct fal_image *own = &k->now.image[at];
	const struct ps_slot mine = k->slot[at], is = k->slot[slot];
	bool same = image->arrays == own->arrays &&
		    image->is.version == own->is.version &&
		    image->is.olds == own->is.olds && image->is.steps == own->is.steps &&
		    image->is.holds == own->is.holds && image->is.held == own->is.held;
	for (uint32_t i = 0; same && i < own->arrays; i++) {
		const struct fal_image_array *a = &own->array[i], *b = &image->array[i];
		const size_t per = a->floats ? mine.values : mine.count,
			     of = a->floats ? is.values : is.count;
		same = strcmp(a->name, b->name) == 0 && a->floats == b->floats &&
		       b->bytes == a->bytes / per * of;
	}
	return same;
}

void
ps_keep_image(struct ps_server *s, uint32_t shard, struct fal_image *image)
{
	struct ps_keep *k = &s->keep;
	uint32_t slot = 0;
	while (slot < k->now.shards && k->slot[slot].shard != shard)
		slot++;
	if (k->missing == 0 || slot == k->now.shards || k->now.image[slot].arrays > 0)
		return;
	if (!fits(s, slot, image)) {
		over(s,
		     image->arrays == 0 ? "a shard has none" : "a shard has another one");
		return;
	}
	k->now.image[slot] = *image;
	*image = (struct fal_image){ 0 };
	if (--k->missing == 0)
		write_it(s);
}

void
ps_keep_event(struct ps_server *s, uint64_t clock)
{
	const struct fal_job *job = &s->job->job;
	const struct ps_keep *k = &s->keep;
	if (s->run->snapshots < 0 || k->busy)
		return;
	if (k->soon)
		take(s);
	/* The next version is marked, which ends one clock more. */
	if ((job->state_clocks > 0 && clock + 1 >= k->clock + job->state_clocks) ||
	    (job->state_seconds > 0 && ps_now() - k->at >= job->state_seconds))
		fal_coord_mark(s->coord);
}

void
ps_keep_ask(struct ps_server *s, struct ps_session *session)
{
	struct ps_keep *k = &s->keep;
	struct fal_diag last = { "" }, what;
	if (s->run->snapshots < 0) {
		ps_control_answer(session,
				  "the job has none: state.clocks, state.seconds", NULL);
		return;
	}
	if (ps_session_find(&s->sessions, k->asks) != NULL) {
		ps_control_answer(session, "another one was asked for", NULL);
		return;
	}
	k->asks = session->id;
	k->again = k->busy;
	if (!k->busy)
		take(s);
	if (k->asks == 0)
		return;
	/* The session hears which event comes before its answer: the event may take as
	 * long as the process that owes it. */
	if (ps_keep_any(s))
		fal_diag_set(&last, 0, "; the last snapshot is of clock %" PRIu64,
			     k->last);
	fal_diag_set(&what, 0, "%s %" PRIu64 "%s%s",
		     k->busy ? "that of clock" : "version",
		     k->busy ? k->clock : fal_coord_status(s->coord).version + 1,
		     k->busy ? " is being written" : " is not made yet", last.text);
	ps_control_waits(session, what.text);
}

bool
ps_keep_end(struct ps_server *s, uint64_t clock)
{
	const struct ps_keep *k = &s->keep;
	if (s->run->snapshots < 0)
		return true;
	if (k->busy)
		return false;
	if (!k->good || k->clock < clock)
		take(s);
	return true;
}

bool
ps_keep_last(struct ps_server *s)
{
	if (s->run->snapshots < 0 || s->coord == NULL)
		return false;
	s->keep.again = s->keep.busy;
	if (!s->keep.busy)
		take(s);
	return ps_keep_soon(s);
}

bool
ps_keep_any(const struct ps_server *s)
{
	return s->keep.any || s->found != NULL;
}

bool
ps_keep_soon(const struct ps_server *s)
{
	return s->keep.soon || s->keep.again || s->keep.missing > 0;
}
