/* The log on stderr: workers that come and go, refusals, the cost of sizes, and whom the
 * job waits for. */
#include "server.h"

#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

enum {
	BURST = 20,                /* lines of comings and goings at once */
	EVERY_S = 2,               /* seconds till one more */
	QUIET_S = FAL_RATELIMIT_S, /* no work for so long is told of, */
	TIMES = 4,                 /* … or for so many times the longest pause before */
	STILL_S = 3, /* who looks twice a second and did not for so long, stood still */
	SEEN = 4096, /* names that are remembered */
	NAMED = 5    /* workers that a line names */
};

void
ps_log(const struct ps_run *r, const char *fmt, ...)
{
	char text[1024];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fal_cli_err(PROG, "%s: %s", r->job.job.name, text);
}

/* ---- who comes and goes --- */

static uint32_t
workers(const struct ps_server *s)
{
	uint32_t n = 0;
	for (size_t i = 0; i < s->sessions.n; i++)
		n += s->sessions.v[i]->worker[0] != '\0';
	return n;
}

/* Whether one more line may be said; those that may not are counted. */
static bool
may_say(struct ps_who *w)
{
	const double now = ps_now();
	const double more = w->at == 0 ? BURST : (now - w->at) / EVERY_S;
	w->lines = fmin(w->lines + more, BURST);
	w->at = now;
	if (w->lines < 1)
		return false;
	w->lines--;
	return true;
}

/* Whoever had this name last; NULL: nobody. */
static struct ps_seen *
seen(const struct ps_server *s, const char *name)
{
	for (size_t i = 0; i < s->who.n_seen && i < SEEN; i++)
		if (strcmp(s->who.seen[i].name, name) == 0)
			return &s->who.seen[i];
	return NULL;
}

bool
ps_knows(const struct ps_server *s, const char *name, const char **instead)
{
	size_t n;
	const struct fal_key *key = fal_keyring_keys(s->run->keys, &n);
	bool is_key = false;
	*instead = NULL;
	if (seen(s, name) != NULL)
		return true;
	for (size_t i = 0; i < n; i++)
		is_key |= strcmp(key[i].name, name) == 0 &&
			  fal_role_may(key[i].role, FAL_ROLE_WORK);
	for (size_t i = 0; is_key && i < s->who.n_seen && i < SEEN; i++)
		if (strcmp(s->who.seen[i].key, name) == 0)
			*instead = s->who.seen[i].name;
	return is_key && *instead == NULL;
}

/* Seconds as text, with what matters of them. */
static const char *
seconds(double v, char out[static 16])
{
	snprintf(out, 16, "%.*f s", v < 10, fmin(v, 1e9));
	return out;
}

/* Time in which this process stood still is nobody's who is waited for. */
static void
look(struct ps_server *s, double now)
{
	struct ps_who *w = &s->who;
	const double gone = w->looked > 0 ? now - w->looked : 0;
	char text[16];
	w->looked = now;
	if (gone < STILL_S)
		return;
	w->worked += w->worked > 0 ? gone : 0;
	w->moved += w->moved > 0 ? gone : 0;
	w->said += w->said > 0 ? gone : 0;
	if (may_say(w))
		ps_log(s->run,
		       "stood still itself for %s: it was stopped, or had to do more "
		       "at a time than its machine can",
		       seconds(gone, text));
}

void
ps_came(void *arg, uint32_t peer, const char *name, const char *key)
{
	struct ps_server *s = arg;
	struct ps_session *session = ps_session_find(&s->sessions, peer);
	struct ps_who *w = &s->who;
	if (session != NULL) {
		snprintf(session->worker, sizeof(session->worker), "%s", name);
		session->came = ps_now();
		look(s, session->came);
		w->moved = session->came;
		struct ps_seen *is = seen(s, name);
		if (is == NULL && w->n_seen < SEEN)
			FAL_XGROW(w->seen, w->cap_seen, w->n_seen + 1);
		if (is == NULL) /* the oldest name is forgotten */
			is = &w->seen[w->n_seen++ % SEEN];
		snprintf(is->name, sizeof(is->name), "%s", name);
		snprintf(is->key, sizeof(is->key), "%s", key);
	}
	if (may_say(w))
		ps_log(s->run, "%s joined with key '%s': %u here", name, key, workers(s));
	else
		w->came++;
}

void
ps_went(void *arg, uint32_t peer, const char *name, const char *why)
{
	struct ps_server *s = arg;
	struct ps_session *session = ps_session_find(&s->sessions, peer);
	if (session != NULL)
		session->worker[0] = '\0';
	if (may_say(&s->who))
		ps_log(s->run, "%s left: %s: %u here", name, why, workers(s));
	else
		s->who.went++;
}

/* ---- who has not kept its deadline --- */

/* How often it was not said before. */
static const char *
times_more(uint64_t n, char out[static 48])
{
	snprintf(out, 48, n > 0 ? ", after %llu time%s more" : "", (unsigned long long)n,
		 fal_text_s(n));
	return out;
}

/* Logs a late worker; repeated lateness is logged ever more seldom.  The worker's return
 * is logged if its lateness was. */
void
ps_late(void *arg, uint32_t peer, const char *name, const struct fal_coord_late *late)
{
	struct ps_server *s = arg;
	struct ps_session *session = ps_session_find(&s->sessions, peer);
	uint64_t before;
	char text[16], times[48];
	if (session == NULL)
		return;
	struct ps_late *l = &session->late;
	seconds(late->seconds, text);
	if (late->key != NULL) {
		if (may_say(&s->who))
			ps_log(s->run,
			       "workers of key '%s' kept the others waiting: they get no "
			       "work for %s",
			       late->key, text);
	} else if (late->owes == NULL) {
		if (l->said && may_say(&s->who))
			ps_log(s->run, "%s is back after %s: %s", name, text, late->why);
		l->said = false;
	} else if (fal_ratelimit(&l->seldom, ps_now(), &before)) {
		const char *owes = strcmp(late->owes, "push") == 0
					   ? "a part of what it pushes"
				   : strcmp(late->owes, "eval") == 0 ? "an evaluation"
								     : "a task";
		l->said = may_say(&s->who);
		if (l->said)
			ps_log(s->run, "%s owes %s for %s, %s%s: its tasks go elsewhere",
			       name, owes, text, late->why, times_more(before, times));
	}
}

/* ---- unlike results and numerics --- */

void
ps_unlike(void *arg, const struct fal_coord_unlike *is)
{
	struct ps_server *s = arg;
	uint64_t before;
	char times[48];
	if (fal_ratelimit(&s->who.unlike, ps_now(), &before))
		ps_log(s->run,
		       "%s with key '%s' and %s with key '%s' have unlike results "
		       "of task %u of clock %llu%s",
		       is->name[0], is->key[0], is->name[1], is->key[1], is->task,
		       (unsigned long long)is->clock, times_more(before, times));
}

void
ps_unstepped(void *arg, const struct fal_coord_unstepped *is)
{
	struct ps_server *s = arg;
	uint64_t before;
	char times[48];
	if (fal_ratelimit(&s->who.unstepped, ps_now(), &before))
		ps_log(s->run,
		       "clock %llu: %u block%s %s, the largest value is from %s with key "
		       "'%s'%s",
		       (unsigned long long)is->clock, is->blocks, fal_text_s(is->blocks),
		       is->change ? "of a change of weights left out as too large"
				  : "not stepped: gradients beyond the numbers",
		       is->name, is->key, times_more(before, times));
}

void
ps_odd(void *arg, const char *const name[2], const char *const kernels[2])
{
	struct ps_server *s = arg;
	const bool strict = s->job->job.numerics == FAL_JOB_NUMERICS_REQUIRE;
	char own[FAL_MSG_NAME], other[FAL_MSG_NAME];
	if (!may_say(&s->who))
		return;
	ps_log(s->run,
	       "%s (%s) rounds otherwise than %s (%s): %s; job.numerics = portable, with "
	       "the same OpenBLAS, lets all with AVX2 round alike",
	       name[0], fal_text_plain(own, sizeof(own), kernels[0]), name[1],
	       fal_text_plain(other, sizeof(other), kernels[1]),
	       strict ? "it stands by, without work"
		      : "the model depends on who has which task");
}

/* ---- who was refused --- */

static void
tell_offender(struct ps_server *s, struct ps_offender *o, bool over)
{
	const double now = ps_now();
	if (o->n == 0 || (o->told != 0 && now - o->told < FAL_REFUSALS_S && !over))
		return;
	if (o->n == 1)
		fal_cli_err(PROG, "%s: refused: %s", o->key, o->why);
	else
		fal_cli_err(PROG, "%s: refused %llu times, the last time: %s", o->key,
			    (unsigned long long)o->n, o->why);
	if (s->coord != NULL && !s->saved) /* else the trace is over */
		fal_coord_refused(s->coord, now, o->key, o->why, o->n);
	o->n = 0;
	o->told = now;
}

void
ps_log_refused(struct ps_server *s, const char *key, const char *why)
{
	/* The place of this key, or of that which was told of longest ago. */
	struct ps_offender *o = s->offender, *const end = o + PS_OFFENDERS, *oldest = o;
	for (; o < end && strcmp(o->key, key) != 0; o++)
		if (o->told < oldest->told)
			oldest = o;
	if (o == end) {
		o = oldest;
		tell_offender(s, o, true);
		*o = (struct ps_offender){ 0 };
		snprintf(o->key, sizeof(o->key), "%s", key);
	}
	snprintf(o->why, sizeof(o->why), "%s", why);
	o->n++;
	tell_offender(s, o, false);
}

void
ps_log_stranger(void *arg, const char *source, const char *why)
{
	struct ps_server *s = arg;
	fal_refusals_add(&s->strangers, source, why);
	ps_tell_refusals(s, false);
}

void
ps_tell_refusals(struct ps_server *s, bool over)
{
	struct fal_diag line;
	if (fal_refusals_due(&s->strangers, ps_now(), over, &line))
		fal_cli_err(PROG, "%s", line.text);
	for (size_t i = 0; i < PS_OFFENDERS; i++)
		tell_offender(s, &s->offender[i], over);
}

void
ps_tell_sizes(struct ps_server *s, uint32_t workers)
{
	const struct fal_grid g = fal_job_grid(&s->job->job, s->job->train.n);
	const uint32_t tasks = fal_grid_tasks(&g, 0), full = fal_grid_full(&g);
	const uint32_t large = fal_grid_large(&g, 0);
	struct fal_coord_sizes sizes;
	char small[64] = "", tail[40] = "";
	if (workers == 0 || workers < 2 * s->sized)
		return;
	fal_coord_sizes(s->coord, &sizes);
	if (sizes.lanes == 0)
		return;
	s->sized = workers;
	if (!isnan(sizes.small))
		snprintf(small, sizeof(small), ", %.1f %% as they are small",
			 100 * sizes.small);
	if (large < tasks)
		snprintf(tail, sizeof(tail), " and %u of %u", tasks - large, g.tail_task);
	ps_log(s->run,
	       "%u lane%s of %u worker%s, %u task%s of %u sample%s%s a clock: %.1f "
	       "%% is lost as tasks are whole%s",
	       sizes.lanes, fal_text_s(sizes.lanes), sizes.workers,
	       fal_text_s(sizes.workers), large, fal_text_s(large), full,
	       fal_text_s(full), tail, 100 * sizes.whole, small);
}

/* ---- whom the job waits for --- */

void
ps_moved(struct ps_server *s, struct ps_session *session)
{
	struct ps_who *w = &s->who;
	const double now = ps_now();
	char text[16];
	look(s, now);
	if (w->said > 0)
		ps_log(s->run, "goes on after %s", seconds(now - w->worked, text));
	else if (w->moved > 0)
		w->longest = fmax(w->longest, now - w->moved);
	w->said = w->pause = 0;
	w->worked = w->moved = now;
	session->brought = true;
}

/* "a, b and 3 more": the workers that are excluded, or those that are not. */
static const char *
names(const struct ps_server *s, bool excluded, struct fal_diag *out)
{
	const struct fal_policy *p = fal_coord_policy_now(s->coord);
	char *at = out->text, *end = at + sizeof(out->text);
	uint32_t n = 0;
	*at = '\0';
	for (size_t i = 0; i < s->sessions.n; i++) {
		const char *name = s->sessions.v[i]->worker;
		const struct fal_policy_worker *w = fal_policy_find(p, name);
		if (*name == '\0' || (w != NULL && w->excluded) != excluded)
			continue;
		if (n++ < NAMED)
			at += snprintf(at, (size_t)(end - at), "%s%s", n > 1 ? ", " : "",
				       name);
	}
	if (n > NAMED)
		snprintf(at, (size_t)(end - at), " and %u more", n - NAMED);
	return out->text;
}

/* The address to dial: one that is not of this host alone, if there is one; that of a
 * machine, where the server listens on all it has. */
static const char *
dial(const struct ps_server *s, struct fal_diag *out)
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

/* Adds the request that waits as well, or the reason why nobody is here. */
static void
add_order(const struct ps_server *s, struct fal_diag *out)
{
	const char *by;
	const struct fal_diag what = *out;
	if (s->coord == NULL)
		return;
	if (fal_coord_status(s->coord).stopping)
		fal_diag_set(out, 0, "%s; its stop waits with it, which SIGTERM does not",
			     what.text);
	else if (fal_coord_policy_next(s->coord, &by) != NULL)
		fal_diag_set(out, 0, "%s; a change of policy by '%s' waits with it",
			     what.text, by);
	else if (workers(s) == 0 && *fal_coord_trainer(s->coord) != '\0')
		fal_diag_set(out, 0, "%s; %s", what.text, fal_coord_trainer(s->coord));
}

/* The event that the job waits for, and the command to type; the caller says since
 * when. */
static void
reason(const struct ps_server *s, struct fal_diag *out)
{
	const uint32_t here = workers(s), least = (uint32_t)s->run->opt.min_workers;
	struct fal_diag list = { .text = "" }, dialled;
	const char *at = dial(s, &dialled);
	const uint32_t more = ps_fleet_waits(s), wanted = s->fleet.wanted;
	const uint32_t unplaced = ps_fleet_unplaced(s);
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
	else if (ps_fleet_moving(s, &list))
		fal_diag_set(out, 0, "waits for blocks that move to %s", list.text);
	else if (here == 0 && (s->began != 0 || least == 1))
		fal_diag_set(out, 0, "waits for a worker: falcon-work %s", at);
	else if (s->began == 0 && here < least)
		fal_diag_set(out, 0, "waits for %u more of %u workers: falcon-work %s",
			     least - here, least, at);
	else if (*names(s, false, &list) == '\0')
		fal_diag_set(out, 0,
			     "waits: all who are here are excluded (%s): falcon-sync set "
			     "exclude.NAME=no, or falcon-work %s",
			     names(s, true, &list), at);
	else
		fal_diag_set(out, 0,
			     "waits for work of %s: falcon-stat tells more, falcon-sync "
			     "drain NAME sends one away, falcon-work %s brings one more",
			     list.text, at);
	add_order(s, out);
}

void
ps_tell_waiting(struct ps_server *s)
{
	struct ps_who *w = &s->who;
	const double now = ps_now();
	struct fal_diag why, list = { .text = "" };
	if (s->saved || s->stopping || s->listen == NULL) {
		w->looked = now;
		return;
	}
	look(s, now);
	if (w->came + w->went > 0 && may_say(w)) {
		ps_log(s->run, "%llu more joined, %llu left: %u here",
		       (unsigned long long)w->came, (unsigned long long)w->went,
		       workers(s));
		w->came = w->went = 0;
	}
	if (w->worked == 0)
		w->worked = now;
	if (w->moved == 0)
		w->moved = now;
	/* Blocks on their way are told of before a process that has them, and does not
	 * answer, is lost. */
	const double quiet = ps_fleet_moving(s, &list)
				     ? QUIET_S / 2.0
				     : fmax(QUIET_S, TIMES * w->longest);
	if (w->said > 0 ? now - w->said < w->pause : now - w->moved < quiet)
		return;
	reason(s, &why);
	ps_log(s->run, "for %.0f s, it %s", now - w->moved, why.text);
	w->said = now;
	w->pause = fmin(w->pause > 0 ? 2 * w->pause : QUIET_S, FAL_RATELIMIT_MAX_S);
}
