/* Snapshots: when they are taken, and their content. */
#include "base/mem.h"
#include "sched/policy.h"
#include "server.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Answers the session that asked for a snapshot. */
static void
snapshots_answer(struct ps_server *s, uint64_t clock, const char *why)
{
	struct ps_session *session =
		ps_find_session(&s->sessions, s->snapshots.requester);
	s->snapshots.requester = 0;
	char text[40];
	snprintf(text, sizeof(text), "{\"clock\":%" PRIu64 "}", clock);
	if (session != NULL)
		ps_reply_result(session, why, text);
}

/* Takes a snapshot of the newest version; or of the next version, if a part of the newest
 * version is still on its way.  While another snapshot is under way, this one follows
 * it. */
static void
snapshots_take(struct ps_server *s)
{
	struct ps_snapshots *k = &s->snapshots;
	k->is_repeated = k->is_busy;
	if (k->is_busy)
		return;
	k->is_due = true;
	ps_fail(s, fal_coord_snapshot_now(s->coord, ps_now()), "snapshot");
	if (!k->is_due)
		return;
	k->is_due = fal_rule_traits(&fal_coord_policy_in_force(s->coord)->rule).shared;
	if (k->is_due)
		fal_coord_request_snapshot(s->coord);
	else if (k->requester != 0)
		snapshots_answer(
			s, 0,
			"no snapshot is possible: rounds of this scheme are not shared");
}

/* Ends the snapshot under way, which is on disk, or has failed with the reason `why`. */
static void
snapshots_end(struct ps_server *s, const char *why)
{
	struct ps_snapshots *k = &s->snapshots;
	const uint64_t clock = k->current.is.past.clock;
	char times[48] = "";
	uint64_t n = 0;
	k->is_busy = false;
	k->missing = 0;
	k->last_is_good = why == NULL;
	k->has_taken |= k->last_is_good;
	if (k->last_is_good)
		k->good_clock = k->clock = clock;
	else if (fal_ratelimit(&k->failures, ps_now(), &n)) {
		if (n > 0)
			snprintf(times, sizeof(times), ", nor %" PRIu64 " before", n);
		ps_log(s->run, "no snapshot of clock %" PRIu64 "%s: %s; the job goes on",
		       clock, times, why);
	}
	if (!k->is_repeated)
		snapshots_answer(s, k->clock, why);
	for (uint32_t i = 0; i < k->current.shards; i++)
		fal_shard_set_recycle_image(s->shard_set, k->slot[i].shard,
					    &k->current.image[i]);
	fal_snapshot_free(&k->current);
	if (k->is_repeated) /* another one was requested meanwhile */
		snapshots_take(s);
}

/* Hashes and writes with low priority: both keep a core busy for a while, and
 * computations need that core. */
static void
snapshots_on_work(uv_work_t *w)
{
	enum { NICE = 10 };
	struct ps_server *s = w->data;
	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE); /* of this thread */
	fal_snapshot_write(&s->snapshots.current);
}

static void
snapshots_on_written(uv_work_t *w, int status)
{
	struct ps_server *s = w->data;
	const struct fal_snapshot *n = &s->snapshots.current;
	(void)status;
	snapshots_end(s, n->err == FAL_OK ? NULL : n->diag.text);
	s->events.after_event(s); /* the end may have waited for it */
}

/* A copy of a descriptor that may be closed while the copy is in use. */
static int
duplicate_fd(int fd)
{
	return fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
}

/* Takes the images of the shards of this process, and asks the others for theirs. */
static int
snapshots_take_images(struct ps_server *s, struct fal_snapshot *n)
{
	const struct fal_coord_checkpoint *p = &n->is.past;
	struct fal_image own[FAL_SHARDS_MAX] = { 0 };
	uint32_t order[FAL_SHARDS_MAX];
	const uint32_t shards = fal_shard_set_list(s->shard_set, order);
	if (!fal_shard_set_take_marked(s->shard_set, p->version, own))
		return FAL_ENOMEM;
	n->image = fal_xcalloc(shards, sizeof(*n->image));
	n->shards = shards;
	for (uint32_t i = 0; i < shards; i++) {
		struct fal_shard_part part;
		(void)fal_shard_set_part(s->shard_set, order[i], 0, &part);
		s->snapshots.slot[i] =
			(struct ps_image_slot){ order[i], part.count, part.values };
		n->image[i] = own[order[i]];
		s->snapshots.missing +=
			fal_shard_set_shard(s->shard_set, order[i]) == NULL;
	}
	if (s->snapshots.missing > 0)
		ps_pool_fetch_marked(s, p->version);
	return FAL_OK;
}

/* Writes the snapshot, as all images are here. */
static void
snapshots_write(struct ps_server *s)
{
	struct ps_snapshots *k = &s->snapshots;
	struct fal_snapshot *n = &k->current;
	const struct fal_coord_checkpoint *p = &n->is.past;
	bool fits = true;
	assert(k->is_busy && k->missing == 0);
	for (uint32_t i = 0; i < n->shards && p->pin.clocks > 0; i++)
		fits &= fal_image_hold(&n->image[i], p->pin.version);
	if (!fits) {
		snapshots_end(s, fal_strerror(FAL_ESTATE));
		return;
	}
	if (n->shards > 0)
		n->is.image = n->image[0].is;
	k->work.data = s;
	/* The first snapshot is small, and training starts once it is written. */
	if (p->version > 0 && uv_queue_work(s->loop, &k->work, snapshots_on_work,
					    snapshots_on_written) == 0)
		return;
	fal_snapshot_write(n);
	snapshots_end(s, n->err == FAL_OK ? NULL : n->diag.text);
}

void
ps_snapshots_on_marked(void *arg, const struct fal_coord_checkpoint *past)
{
	struct ps_server *s = arg;
	struct ps_snapshots *k = &s->snapshots;
	if (k->is_busy || s->run->snapshots < 0)
		return;
	k->is_due = false;
	k->at = ps_now();
	k->clock = past->clock;
	k->missing = 0;
	struct fal_snapshot *n = &k->current;
	*n = fal_snapshot_none;
	n->folder = s->run->snapshots;
	n->keep = s->job->job.state_keep;
	int err = FAL_OK;
	fal_coord_checkpoint_copy(past, &n->is.past);
	n->is.policy = fal_policy_copy(past->policy);
	/* Version 0 follows from the job, so the snapshot needs no image of version 0.
	 * Its image stays in the shards, as memory for later images. */
	if (past->version > 0)
		err = snapshots_take_images(s, n);
	ps_trace_file_flush(&s->run->trace);
	const struct fal_files *job = s->job;
	memcpy(n->is.job, job->lasting_hex, sizeof(n->is.job));
	memcpy(n->is.net, job->model_hex, sizeof(n->is.net));
	memcpy(n->is.data, job->data_hex, sizeof(n->is.data));
	memcpy(n->is.init, fal_files_weights_hash(job), sizeof(n->is.init));
	memcpy(n->is.sizes, job->sizes, sizeof(n->is.sizes));
	n->is.incarnation = s->run->state.incarnation;
	n->is.lines = s->run->trace.lines;
	ps_policy_log_describe(&s->policy, past->agains, &n->is);
	memcpy(n->is.chain, s->run->trace.chain.link, sizeof(n->is.chain));
	n->synced[0] = duplicate_fd(s->run->trace.sink[0].fd);
	n->synced[1] = duplicate_fd(s->policy.journal.fd);
	if (err < 0) {
		snapshots_end(s, fal_strerror(err));
		return;
	}
	k->is_busy = true;
	if (k->missing == 0)
		snapshots_write(s);
}

/* Does this image fit the images that are here already?  They must have the same arrays,
 * each in proportion to the blocks of its shard.  Without such an image, the new image
 * needs only arrays and the right version. */
static bool
image_fits(const struct ps_server *s, uint32_t slot, const struct fal_image *image)
{
	const struct ps_snapshots *k = &s->snapshots;
	uint32_t at = 0;
	while (at < k->current.shards && k->current.image[at].arrays == 0)
		at++;
	if (at == k->current.shards)
		return image->arrays > 0 &&
		       image->is.version == k->current.is.past.version;
	const struct fal_image *own = &k->current.image[at];
	const struct ps_image_slot mine = k->slot[at], is = k->slot[slot];
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
ps_snapshots_add_image(struct ps_server *s, uint32_t shard, struct fal_image *image)
{
	struct ps_snapshots *k = &s->snapshots;
	uint32_t slot = 0;
	while (slot < k->current.shards && k->slot[slot].shard != shard)
		slot++;
	if (k->missing == 0 || slot == k->current.shards ||
	    k->current.image[slot].arrays > 0)
		return;
	if (!image_fits(s, slot, image)) {
		snapshots_end(s, image->arrays == 0 ? "a shard has no image of it"
						    : "a shard's image does not fit");
		return;
	}
	k->current.image[slot] = *image;
	*image = (struct fal_image){ 0 };
	if (--k->missing == 0)
		snapshots_write(s);
}

void
ps_snapshots_schedule(struct ps_server *s, uint64_t clock)
{
	const struct fal_job *job = &s->job->job;
	const struct ps_snapshots *k = &s->snapshots;
	if (s->run->snapshots < 0 || k->is_busy)
		return;
	if (k->is_due)
		snapshots_take(s);
	/* fal_coord_request_snapshot marks the next version, which ends one clock more.
	 */
	if ((job->state_clocks > 0 && clock + 1 >= k->clock + job->state_clocks) ||
	    (job->state_seconds > 0 && ps_now() - k->at >= job->state_seconds))
		fal_coord_request_snapshot(s->coord);
}

void
ps_snapshots_request(struct ps_server *s, struct ps_session *session)
{
	struct ps_snapshots *k = &s->snapshots;
	struct fal_diag last = { "" }, what;
	if (s->run->snapshots < 0) {
		ps_reply_result(session,
				"the job takes no snapshots: state.clocks, state.seconds",
				NULL);
		return;
	}
	if (ps_find_session(&s->sessions, k->requester) != NULL) {
		ps_reply_result(session, "another request waits for a snapshot", NULL);
		return;
	}
	k->requester = session->id;
	snapshots_take(s);
	if (k->requester == 0)
		return;
	/* The wait may be long: the session gets its reason. */
	if (ps_snapshots_has_any(s))
		fal_diag_set(&last, 0, "; the last snapshot is of clock %" PRIu64,
			     k->good_clock);
	fal_diag_set(&what, 0, "%s %" PRIu64 "%s%s",
		     k->is_busy ? "that of clock" : "version",
		     k->is_busy ? k->clock : fal_coord_status(s->coord).version + 1,
		     k->is_busy ? " is being written" : " is not made yet", last.text);
	ps_reply_wait(session, what.text);
}

bool
ps_snapshots_finish(struct ps_server *s, uint64_t clock)
{
	const struct ps_snapshots *k = &s->snapshots;
	if (s->run->snapshots < 0)
		return true;
	if (k->is_busy)
		return false;
	if (!k->last_is_good || k->clock < clock)
		snapshots_take(s);
	return true;
}

bool
ps_snapshots_take_last(struct ps_server *s)
{
	if (s->run->snapshots < 0 || s->coord == NULL)
		return false;
	snapshots_take(s);
	return ps_snapshots_is_pending(s);
}

bool
ps_snapshots_has_any(const struct ps_server *s)
{
	return s->snapshots.has_taken || s->resumed != NULL;
}

bool
ps_snapshots_is_pending(const struct ps_server *s)
{
	return s->snapshots.is_due || s->snapshots.is_repeated ||
	       s->snapshots.missing > 0;
}
