/* The log on stderr about workers: who joins, leaves or is late, results that differ, the
 * cost of task sizes, and what the job waits for. */
#include "server.h"

#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
	BURST = 20,                /* lines about joins and leaves at once, */
	LINE_S = 2,                /* … then one in so many seconds */
	QUIET_S = FAL_RATELIMIT_S, /* the job waits if no work came for so long, */
	QUIET_PAUSES = 4,          /* … and for so many times its longest pause */
	SUSPENDED_S = 3,           /* no tick of a half-second timer: suspended */
	KNOWN_MAX = 4096,          /* workers that are remembered */
	NAMES_MAX = 5              /* workers that a line names */
};

struct ps_known_worker {
	char name[64], key[64]; /* the name of its key */
};

/* ---- joins and leaves --- */

static uint32_t
count_workers(const struct ps_server *s)
{
	uint32_t n = 0;
	for (size_t i = 0; i < s->sessions.n; i++)
		n += s->sessions.v[i]->worker[0] != '\0';
	return n;
}

/* May one more line be logged?  If so, takes its token. */
static bool
may_log(struct ps_status_log *w)
{
	const double now = ps_now();
	const double more = w->tokens_at == 0 ? BURST : (now - w->tokens_at) / LINE_S;
	w->tokens = fmin(w->tokens + more, BURST);
	w->tokens_at = now;
	if (w->tokens < 1)
		return false;
	w->tokens--;
	return true;
}

/* Returns the last worker of this name; NULL: there was none. */
static struct ps_known_worker *
find_known_worker(const struct ps_server *s, const char *name)
{
	for (size_t i = 0; i < s->status.n_known && i < KNOWN_MAX; i++)
		if (strcmp(s->status.known[i].name, name) == 0)
			return &s->status.known[i];
	return NULL;
}

bool
ps_knows_worker(const struct ps_server *s, const char *name, const char **instead)
{
	size_t n;
	const struct fal_key *key = fal_keyring_keys(s->run->keys, &n);
	bool is_key = false;
	*instead = NULL;
	if (find_known_worker(s, name) != NULL)
		return true;
	for (size_t i = 0; i < n; i++)
		is_key |= strcmp(key[i].name, name) == 0 &&
			  fal_role_permits(key[i].role, FAL_ROLE_WORK);
	for (size_t i = 0; is_key && i < s->status.n_known && i < KNOWN_MAX; i++)
		if (strcmp(s->status.known[i].key, name) == 0)
			*instead = s->status.known[i].name;
	return is_key && *instead == NULL;
}

/* Seconds as text; below ten, with one decimal. */
static const char *
seconds_text(double v, char out[static 16])
{
	snprintf(out, 16, "%.*f s", v < 10, fmin(v, 1e9));
	return out;
}

/* If this process was suspended, logs the pause and moves all times by the pause: the job
 * did not wait for its workers in that time. */
static void
discount_own_pause(struct ps_server *s, double now)
{
	struct ps_status_log *w = &s->status;
	const double pause = w->checked_at > 0 ? now - w->checked_at : 0;
	char text[16];
	w->checked_at = now;
	if (pause < SUSPENDED_S)
		return;
	w->worked_at += w->worked_at > 0 ? pause : 0;
	w->active_at += w->active_at > 0 ? pause : 0;
	w->waiting.next += w->waiting.next > 0 ? pause : 0;
	if (may_log(w))
		ps_log(s->run,
		       "stood still itself for %s: it was stopped, or had to do more "
		       "at a time than its machine can",
		       seconds_text(pause, text));
}

void
ps_status_on_joined(void *arg, uint32_t peer, const char *name, const char *key)
{
	struct ps_server *s = arg;
	struct ps_session *session = ps_find_session(&s->sessions, peer);
	struct ps_status_log *w = &s->status;
	if (session != NULL) {
		snprintf(session->worker, sizeof(session->worker), "%s", name);
		session->ready_at = ps_now();
		discount_own_pause(s, session->ready_at);
		w->active_at = session->ready_at;
		struct ps_known_worker *is = find_known_worker(s, name);
		if (is == NULL && w->n_known < KNOWN_MAX)
			FAL_XGROW(w->known, w->known_cap, w->n_known + 1);
		if (is == NULL) /* it takes the oldest one's place */
			is = &w->known[w->n_known++ % KNOWN_MAX];
		snprintf(is->name, sizeof(is->name), "%s", name);
		snprintf(is->key, sizeof(is->key), "%s", key);
	}
	if (may_log(w))
		ps_log(s->run, "%s joined with key '%s': %u here", name, key,
		       count_workers(s));
	else
		w->joined++;
}

void
ps_status_on_left(void *arg, uint32_t peer, const char *name, const char *why)
{
	struct ps_server *s = arg;
	struct ps_session *session = ps_find_session(&s->sessions, peer);
	if (session != NULL)
		session->worker[0] = '\0';
	if (may_log(&s->status))
		ps_log(s->run, "%s left: %s: %u here", name, why, count_workers(s));
	else
		s->status.left++;
}

/* ---- missed deadlines --- */

/* Text that says how often a line was left out before. */
static const char *
repeats_text(uint64_t n, char out[static 48])
{
	out[0] = '\0';
	if (n > 0)
		snprintf(out, 48, ", after %llu time%s more", (unsigned long long)n,
			 fal_text_plural(n));
	return out;
}

/* Logs a late worker, at growing pauses.  Logs a worker's return only if the log has a
 * line about the lateness. */
void
ps_status_on_late(void *arg, uint32_t peer, const char *name,
		  const struct fal_coord_suspect *late)
{
	struct ps_server *s = arg;
	struct ps_session *session = ps_find_session(&s->sessions, peer);
	uint64_t before;
	char text[16], times[48];
	if (session == NULL)
		return;
	struct ps_lateness *l = &session->lateness;
	seconds_text(late->seconds, text);
	if (late->key != NULL) {
		if (may_log(&s->status))
			ps_log(s->run,
			       "workers of key '%s' kept the others waiting: they get no "
			       "work for %s",
			       late->key, text);
	} else if (late->owes == NULL) {
		if (l->was_logged && may_log(&s->status))
			ps_log(s->run, "%s is back after %s: %s", name, text, late->why);
		l->was_logged = false;
	} else if (fal_ratelimit(&l->limit, ps_now(), &before)) {
		const char *owes = strcmp(late->owes, "push") == 0   ? "part of a push"
				   : strcmp(late->owes, "eval") == 0 ? "an evaluation"
								     : "a task";
		l->was_logged = may_log(&s->status);
		if (l->was_logged)
			ps_log(s->run, "%s owes %s for %s, %s%s: its tasks go elsewhere",
			       name, owes, text, late->why, repeats_text(before, times));
	}
}

/* ---- unlike results and numerics --- */

void
ps_status_on_unlike_results(void *arg, const struct fal_coord_mismatch *is)
{
	struct ps_server *s = arg;
	uint64_t before;
	char times[48];
	if (fal_ratelimit(&s->status.unlike_results, ps_now(), &before))
		ps_log(s->run,
		       "%s with key '%s' and %s with key '%s' have unlike results "
		       "of task %u of clock %llu%s",
		       is->name[0], is->key[0], is->name[1], is->key[1], is->task,
		       (unsigned long long)is->clock, repeats_text(before, times));
}

void
ps_status_on_unstepped(void *arg, const struct fal_coord_skipped_blocks *is)
{
	struct ps_server *s = arg;
	uint64_t before;
	char times[48];
	if (fal_ratelimit(&s->status.unstepped_blocks, ps_now(), &before))
		ps_log(s->run,
		       "clock %llu: %u block%s %s, the largest value is from %s with key "
		       "'%s'%s",
		       (unsigned long long)is->clock, is->blocks,
		       fal_text_plural(is->blocks),
		       is->change ? "of a change of weights left out as too large"
				  : "not stepped: gradients beyond the numbers",
		       is->name, is->key, repeats_text(before, times));
}

void
ps_status_on_unlike_kernels(void *arg, const char *const name[2],
			    const char *const kernels[2])
{
	struct ps_server *s = arg;
	char own[FAL_MSG_NAME], other[FAL_MSG_NAME];
	if (!may_log(&s->status))
		return;
	if (strncmp(kernels[0], "trainer ", 8) == 0) {
		ps_log(s->run,
		       "%s (%s) rounds otherwise than %s (%s): the model depends on "
		       "who has which task; see falcon-gradient(7), NUMERICS",
		       name[0], fal_text_plain(own, sizeof(own), kernels[0]), name[1],
		       fal_text_plain(other, sizeof(other), kernels[1]));
		return;
	}
	ps_log(s->run,
	       "%s (%s) rounds otherwise than %s (%s): the model depends on who has "
	       "which "
	       "task; the layers of job.numerics = portable round alike everywhere",
	       name[0], fal_text_plain(own, sizeof(own), kernels[0]), name[1],
	       fal_text_plain(other, sizeof(other), kernels[1]));
}

/* ---- the cost of task sizes --- */

void
ps_log_task_sizes(struct ps_server *s, uint32_t workers)
{
	const struct fal_grid g = fal_job_grid(&s->job->job, s->job->train.n);
	const uint32_t tasks = fal_grid_tasks(&g, 0), full = fal_grid_full_samples(&g);
	const uint32_t large = fal_grid_large_tasks(&g, 0);
	struct fal_coord_task_sizes sizes;
	char small[64] = "", tail[40] = "";
	uint64_t polls;
	if (workers < s->status.sized_workers)
		s->status.sized_workers = workers;
	if (workers == s->status.sized_workers)
		return;
	fal_coord_task_sizes(s->coord, &sizes);
	if (sizes.lanes == 0 || !fal_ratelimit(&s->status.sizes, ps_now(), &polls))
		return;
	s->status.sized_workers = workers;
	if (!isnan(sizes.small))
		snprintf(small, sizeof(small), ", %.1f %% as they are small",
			 100 * sizes.small);
	if (large < tasks)
		snprintf(tail, sizeof(tail), " and %u of %u", tasks - large, g.tail_task);
	ps_log(s->run,
	       "%u lane%s of %u worker%s, %u task%s of %u sample%s%s a clock: %.1f "
	       "%% is lost as tasks are whole%s",
	       sizes.lanes, fal_text_plural(sizes.lanes), sizes.workers,
	       fal_text_plural(sizes.workers), large, fal_text_plural(large), full,
	       fal_text_plural(full), tail, 100 * sizes.whole, small);
}

/* ---- what the job waits for --- */

void
ps_status_note_work(struct ps_server *s, struct ps_session *session)
{
	struct ps_status_log *w = &s->status;
	const double now = ps_now();
	char text[16];
	discount_own_pause(s, now);
	if (w->waiting.next > 0)
		ps_log(s->run, "goes on after %s",
		       seconds_text(now - w->worked_at, text));
	else if (w->active_at > 0)
		w->longest_pause = fmax(w->longest_pause, now - w->active_at);
	w->waiting = (struct fal_ratelimit){ 0 };
	w->worked_at = w->active_at = now;
	session->has_worked = true;
}

/* "a, b and 3 more": the workers that are excluded (`excluded`), or all others. */
static const char *
list_workers(const struct ps_server *s, bool excluded, struct fal_diag *out)
{
	const struct fal_policy *p = fal_coord_policy_in_force(s->coord);
	char *at = out->text, *end = at + sizeof(out->text);
	uint32_t n = 0;
	*at = '\0';
	for (size_t i = 0; i < s->sessions.n; i++) {
		const char *name = s->sessions.v[i]->worker;
		const struct fal_policy_worker *w = fal_policy_find(p, name);
		if (*name == '\0' || (w != NULL && w->excluded) != excluded)
			continue;
		if (n++ < NAMES_MAX)
			at += snprintf(at, (size_t)(end - at), "%s%s", n > 1 ? ", " : "",
				       name);
	}
	if (n > NAMES_MAX)
		snprintf(at, (size_t)(end - at), " and %u more", n - NAMES_MAX);
	return out->text;
}

/* The address for falcon-work: a TCP address, if the server has one.  The machine's name
 * replaces an address that means all addresses of this machine. */
static const char *
address_text(const struct ps_server *s, struct fal_diag *out)
{
	const struct ps_addrs *all = &s->out->bound;
	char at[FAL_ADDR_MAX + 16];
	size_t i = 0;
	while (i + 1 < all->n && all->v[i].kind != FAL_ADDR_TCP)
		i++;
	fal_addr_format(&all->v[i], at);
	char host[64] = "";
	if (!fal_addr_is_any(at) || gethostname(host, sizeof(host) - 1) < 0 ||
	    host[0] == '\0')
		fal_diag_set(out, 0, "%s", at);
	else
		fal_diag_set(out, 0, "%s%s", host, strrchr(at, ':'));
	return out->text;
}

/* The event that the job waits for, and the command to type. */
static void
waiting_reason(const struct ps_server *s, struct fal_diag *out)
{
	const uint32_t here = count_workers(s), least = (uint32_t)s->run->opt.min_workers;
	struct fal_diag list = { .text = "" }, dialled;
	const char *at = address_text(s, &dialled);
	const uint32_t more = ps_pool_count_missing(s), wanted = s->pool.wanted;
	const uint32_t unplaced = ps_pool_count_unplaced(s);
	if (s->coord == NULL && more > 0)
		fal_diag_set(out, 0,
			     "waits for %u more of %u process%s of shards: falcon-ps "
			     "--join %s",
			     more, wanted, wanted > 1 ? "es" : "", at);
	else if (s->coord == NULL)
		fal_diag_set(out, 0, "waits for %u process%s of shards to have blocks",
			     unplaced, unplaced > 1 ? "es" : "");
	else if (fal_coord_status(s->coord).held)
		fal_diag_set(out, 0, "is paused: falcon-sync resume");
	else if (ps_pool_describe_move(s, &list))
		fal_diag_set(out, 0, "waits for blocks that move to %s", list.text);
	else if (here == 0 && (s->progress.began_at != 0 || least == 1))
		fal_diag_set(out, 0, "waits for a worker: falcon-work %s", at);
	else if (s->progress.began_at == 0 && here < least)
		fal_diag_set(out, 0, "waits for %u more of %u workers: falcon-work %s",
			     least - here, least, at);
	else if (*list_workers(s, false, &list) == '\0')
		fal_diag_set(out, 0,
			     "waits: all who are here are excluded (%s): falcon-sync set "
			     "exclude.NAME=no, or falcon-work %s",
			     list_workers(s, true, &list), at);
	else
		fal_diag_set(out, 0,
			     "waits for work of %s: falcon-stat tells more, falcon-sync "
			     "drain NAME sends one away, falcon-work %s brings one more",
			     list.text, at);
	if (s->coord == NULL)
		return;
	/* Adds the request that waits for the same event, or the reason why no worker is
	 * here. */
	const struct fal_diag what = *out;
	const char *by;
	if (fal_coord_status(s->coord).stopping)
		fal_diag_set(out, 0, "%s; its stop waits with it, which SIGTERM does not",
			     what.text);
	else if (fal_coord_pending_policy(s->coord, &by) != NULL)
		fal_diag_set(out, 0, "%s; a change of policy by '%s' waits with it",
			     what.text, by);
	else if (here == 0 && *fal_coord_trainer_failure(s->coord) != '\0')
		fal_diag_set(out, 0, "%s; %s", what.text,
			     fal_coord_trainer_failure(s->coord));
}

void
ps_log_waiting(struct ps_server *s)
{
	struct ps_status_log *w = &s->status;
	const double now = ps_now();
	struct fal_diag why, list = { .text = "" };
	if (s->end.is_saved || s->end.is_stopping || s->listen == NULL) {
		w->checked_at = now;
		return;
	}
	discount_own_pause(s, now);
	if (w->joined + w->left > 0 && may_log(w)) {
		ps_log(s->run, "%llu more joined, %llu left: %u here",
		       (unsigned long long)w->joined, (unsigned long long)w->left,
		       count_workers(s));
		w->joined = w->left = 0;
	}
	if (w->worked_at == 0)
		w->worked_at = now;
	if (w->active_at == 0)
		w->active_at = now;
	/* A line about blocks on their way comes before a silent process that has them
	 * is lost. */
	const double quiet = ps_pool_describe_move(s, &list)
				     ? QUIET_S / 2.0
				     : fmax(QUIET_S, QUIET_PAUSES * w->longest_pause);
	uint64_t polls;
	if ((w->waiting.next == 0 && now - w->active_at < quiet) ||
	    !fal_ratelimit(&w->waiting, now, &polls))
		return;
	waiting_reason(s, &why);
	ps_log(s->run, "for %.0f s, it %s", now - w->active_at, why.text);
}
