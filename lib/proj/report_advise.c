/* What follows from a report: findings, one sentence of advice each.
 *
 * A sentence stands there when its number passes the threshold below, and never advises
 * what already is.
 */
#include "base/err.h"
#include "base/mem.h"
#include "base/text.h"
#include "job/stale.h"
#include "proj/report_priv.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOSS 0.05        /* of the clock, that is worth mending */
#define NOBODY 0.001     /* of the clock, that is not there */
#define ALONE 0.01       /* of a worker's time, waiting for others: it does not */
#define LINK 0.20        /* of a worker's time, pushing or pulling */
#define COORDINATOR 0.10 /* of the clock */
#define SPARE 0.50       /* of a worker's clocks, granted nothing */
#define TASK_MIN 8       /* samples; smaller tasks compute slowly */
#define LEFT_IDLE 0.03   /* of the clock, by tasks of another size */
#define FASTER 0.05      /* that more lanes are to give */
#define COMPARED 8       /* clocks at a number of lanes that say how fast it is */
#define WELL 0.90        /* of the clock is ideal */

/* Behind what alters the model: seconds are not accuracy. */
#define OTHER " (model)"

enum { WHO_MAX = 2 * FAL_REPORT_SHOWN };

struct list {
	struct fal_report *r;
	size_t cap;
	int err;
};

/* Some workers and the worst of them. */
struct group {
	const struct fal_report_worker *worst;
	size_t n;
	double value;      /* of the worst */
	char who[WHO_MAX]; /* "w5", or "w5, w2 and w7", or as many as fit "and 3 more" */
};

const char *
fal_report_kind_name(enum fal_report_kind kind)
{
	static const char *const name[] = { "straggler",   "waiting",     "granularity",
					    "small_tasks", "link",        "bits",
					    "shard",       "coordinator", "unused",
					    "lanes",       "spare",       "stalls",
					    "well" };
	return name[kind];
}

static void add(struct list *l, enum fal_report_kind kind, const struct group *who,
		double share, const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* Adds a finding before those of smaller share, or whose advice alters the model.  Where
 * it advises more slack it says what that costs the learning rate. */
static void
add(struct list *l, enum fal_report_kind kind, const struct group *who, double share,
    const char *fmt, ...)
{
	struct fal_report *r = l->r;
	const struct fal_rule slacker = { .scheme = FAL_EPSP,
					  .slack = r->rule.slack + 1 };
	char bound[FAL_STALE_TEXT];
	va_list ap;
	if (FAL_GROW(r->finding, l->cap, r->findings + 1) < 0) {
		l->err = FAL_ENOMEM;
		return;
	}
	struct fal_report_finding new = {
		.kind = kind,
		.worker = who != NULL ? who->worst : NULL,
		.workers = who != NULL ? who->n : 0,
		.share = share,
	};
	va_start(ap, fmt);
	vsnprintf(new.text, sizeof(new.text), fmt, ap);
	va_end(ap);
	const size_t n = strlen(new.text);
	if (strstr(new.text, "epsp:") != NULL &&
	    fal_stale_warning(&slacker, &r->state->optim, 0, bound))
		snprintf(new.text + n, sizeof(new.text) - n, "; %s", bound);
	const bool other = strstr(new.text, OTHER) != NULL;
	size_t at = r->findings++;
	for (; at > 0; at--) {
		const struct fal_report_finding *f = &r->finding[at - 1];
		const bool is = strstr(f->text, OTHER) != NULL;
		if (is != other ? other : f->share >= share)
			break;
		r->finding[at] = *f;
	}
	r->finding[at] = new;
}

static bool
epsp(const struct fal_report *r)
{
	return fal_rule_traits(&r->rule).slacks;
}

static bool
more_slack(const struct fal_report *r)
{
	return r->above == NULL && epsp(r) && r->rule.slack < FAL_SLACK_MAX;
}

/* Behind advice of epsp with this slack. */
static const char *
mark(const struct fal_report *r, uint32_t slack)
{
	const struct fal_rule then = { .scheme = FAL_EPSP, .slack = slack };
	return fal_rule_same_model(&r->rule, &then) ? "" : OTHER;
}

static double
share_of(const struct fal_report *r, enum fal_report_part part)
{
	return r->part[part] / r->clock;
}

/* The workers for which `value` is above 0. */
static struct group
group_of(const struct fal_report *r, double (*value)(const struct fal_report_worker *w))
{
	struct group g = { 0 };
	for (size_t i = 0; i < r->workers; i++) {
		const double v = r->worker[i].clocks > 0 ? value(&r->worker[i]) : 0;
		if (v > g.value) {
			g.value = v;
			g.worst = &r->worker[i];
		}
		g.n += v > 0;
	}
	size_t at = 0, said = 1;
	if (g.n > 0)
		at = (size_t)snprintf(g.who, WHO_MAX, "%s", g.worst->shown);
	for (size_t i = 0; i < r->workers && said < g.n; i++) {
		const struct fal_report_worker *w = &r->worker[i];
		const size_t room = WHO_MAX - at - sizeof(" and 65536 more");
		if (w == g.worst || w->clocks == 0 || !(value(w) > 0))
			continue;
		if (strlen(w->shown) + 5 >= room)
			break;
		at += (size_t)snprintf(g.who + at, room, "%s%s",
				       ++said == g.n ? " and " : ", ", w->shown);
	}
	if (said < g.n)
		snprintf(g.who + at, WHO_MAX - at, " and %zu more", g.n - said);
	return g;
}

static bool
slow(const struct fal_report_worker *w, bool persistent)
{
	return w->class == FAL_CLASS_STRAGGLER && w->cause == FAL_CAUSE_COMPUTE &&
	       w->persistent == persistent;
}

static double
persistent(const struct fal_report_worker *w)
{
	return slow(w, true) ? w->slower : 0;
}

static double
transient(const struct fal_report_worker *w)
{
	return slow(w, false) ? w->slower * w->in_class : 0;
}

/* What to do about workers that compute slowly. */
static void
remedy(const struct fal_report *r, const struct group *g, double loss,
       char out[static 96])
{
	const struct fal_report_worker *w = g->worst;
	const char *it = g->n == 1 ? "it" : "them", *its = g->n == 1 ? "its" : "their";
	const bool has_share = !fal_rule_traits(&r->rule).own;
	if (more_slack(r) && loss >= LOSS)
		snprintf(out, 96, "epsp:%u would let the others go on" OTHER,
			 r->rule.slack + 1);
	else if (epsp(r) && w->persistent)
		snprintf(out, 96, "epsp gives %s fewer tasks already", it);
	else if (epsp(r))
		snprintf(out, 96, "epsp moves %s tasks already", its);
	else if (2 * w->dropped >= w->clocks)
		snprintf(out, 96, "%s rounds are dropped, epsp would use them%s", its,
			 mark(r, 0));
	else if (loss < LOSS && w->persistent && w->stale >= 2)
		snprintf(out, 96, "%.0f updates stale, 0 under epsp%s", w->stale,
			 mark(r, 0));
	else if (loss < NOBODY)
		snprintf(out, 96, "nobody waits for %s", it);
	else if (loss < LOSS)
		snprintf(out, 96, "waiting for %s is %.1f %% of the clock", it,
			 100 * loss);
	else if (w->persistent && has_share)
		snprintf(out, 96, "give %s less to do, as epsp does%s", it, mark(r, 0));
	else
		snprintf(out, 96, "epsp would move %s tasks%s%s", its,
			 fal_rule_traits(&r->rule).moves ? " sooner" : "", mark(r, 0));
}

/* Who of a group it is. */
static const char *
whose(const struct group *g)
{
	return g->worst->members > 1 ? "; its own trace names whom" : "";
}

static void
stragglers(struct list *l, const struct group *g)
{
	const double loss = share_of(l->r, FAL_REPORT_STRAGGLERS);
	const struct fal_report_worker *w = g->worst;
	const bool one = g->n == 1;
	char what[96];
	if (g->n == 0)
		return;
	remedy(l->r, g, loss, what);
	if (w->persistent)
		add(l, FAL_REPORT_STRAGGLER, g, loss, "%s %s (%.1fx slower): %s%s",
		    g->who,
		    one ? "is a persistent straggler" : "are persistent stragglers",
		    w->slower, what, whose(g));
	else
		add(l, FAL_REPORT_STRAGGLER, g, loss,
		    "%s %s slow at times (%.1fx in %.0f %% of clocks): %s%s", g->who,
		    one ? "is" : "are", w->slower, 100 * w->in_class, what, whose(g));
}

/* A worker that waits for nobody is waited for, in each clock. */
static double
awaited(const struct fal_report_worker *w)
{
	const double all = w->compute + w->push + w->pull + w->wait;
	return w->waits[FAL_REPORT_OTHERS] < ALONE * all ? w->compute : 0;
}

/* Waiting that no straggler explains. */
static void
waiting(struct list *l)
{
	const struct fal_report *r = l->r;
	const struct group last = group_of(r, awaited);
	const double loss = share_of(r, FAL_REPORT_STRAGGLERS);
	if (more_slack(r))
		add(l, FAL_REPORT_WAITING, NULL, loss,
		    "%.0f %% of the clock waits for the last tasks: epsp:%u would let "
		    "others go on" OTHER,
		    100 * loss, r->rule.slack + 1);
	else if (!epsp(r))
		add(l, FAL_REPORT_WAITING, NULL, loss,
		    "%.0f %% of the clock waits for %s: epsp moves tasks%s", 100 * loss,
		    last.n > 0 ? last.who : "the last, not always the same", mark(r, 0));
}

/* Lanes that the workers ran last. */
static uint64_t
lanes_of(const struct fal_report *r)
{
	uint64_t lanes = 0;
	for (size_t i = 0; i < r->workers; i++)
		lanes += r->worker[i].clocks > 0 ? r->worker[i].lanes : 0;
	return lanes;
}

/* Seconds of the best sharing of a clock in tasks of this size, and of these what lanes
 * idle.  With a slack s the tasks of s + 1 clocks are shared at once. */
struct sharing {
	double clock, idle;
};

static struct sharing
share_in(const struct fal_report *r, uint64_t task, struct fal_bound_lanes *v)
{
	const double clocks = (double)r->rule.slack + 1;
	const double tasks = (double)r->batch / (double)task;
	const size_t n = report_lanes(r, task, v);
	const double clock = fal_bound_whole(v, n, clocks * tasks) / clocks;
	return (struct sharing){ clock, clock - fal_bound_capacity(v, n, tasks) };
}

/* The largest halving of the task that would leave little idle and is faster, and what it
 * would leave.  Where the sharing of the median clock does not explain the loss, speeds
 * that change do: then it goes with the size.  Returns 0 if there is none. */
static uint64_t
smaller_task(const struct fal_report *r, double loss, struct fal_bound_lanes *v,
	     double *left)
{
	const struct sharing now = share_in(r, r->task, v);
	const bool steady = now.idle >= loss / 2 * now.clock;
	for (uint64_t task = r->task / 2; task >= TASK_MIN; task /= 2) {
		const struct sharing then = share_in(r, task, v);
		*left = steady ? then.idle / then.clock
			       : loss * (double)task / (double)r->task;
		if (*left <= LEFT_IDLE)
			return !steady || then.clock < now.clock ? task : 0;
	}
	return 0;
}

/* The doubling of the task whose best sharing is fastest, of those that leave each lane
 * enough tasks to share when speeds change, and the share of that which it saves.
 * Returns 0 if none is clearly faster. */
static uint64_t
larger_task(const struct fal_report *r, struct fal_bound_lanes *v, double *saved)
{
	enum { OF_A_LANE = 4 };
	const double now = share_in(r, r->task, v).clock;
	const uint64_t least = OF_A_LANE * lanes_of(r);
	uint64_t best = 0;
	*saved = LEFT_IDLE;
	for (uint64_t task = 2 * r->task; least * task <= r->batch; task *= 2) {
		const double gain = 1 - share_in(r, task, v).clock / now;
		if (gain <= *saved)
			continue;
		*saved = gain;
		best = task;
	}
	return best;
}

static void
whole_tasks(struct list *l)
{
	const struct fal_report *r = l->r;
	const double loss = share_of(r, FAL_REPORT_GRANULARITY);
	char what[96];
	const unsigned long lanes = (unsigned long)lanes_of(r);
	double left;
	const uint64_t task =
		r->shared ? smaller_task(r, loss, r->state->lanes, &left) : 0;
	if (task > 0)
		snprintf(what, sizeof(what),
			 "batch.task = %llu would leave %.1f %%" OTHER,
			 (unsigned long long)task, 100 * left);
	else
		snprintf(what, sizeof(what), "%s",
			 r->shared ? "under epsp:1 they need not fit a clock" OTHER
				   : "a larger batch would fill them" OTHER);
	add(l, FAL_REPORT_WHOLE_TASKS, NULL, loss,
	    "tasks of %llu sample%s leave %.0f %% idle at %lu lane%s: %s",
	    (unsigned long long)r->task, fal_text_s(r->task), 100 * loss, lanes,
	    fal_text_s(lanes), what);
}

static void
small_tasks(struct list *l)
{
	const struct fal_report *r = l->r;
	const double loss = share_of(r, FAL_REPORT_SMALL_TASKS);
	char what[96] = "larger ones would not share as well";
	double saved;
	const uint64_t task = larger_task(r, r->state->lanes, &saved);
	/* Of computing, as the sharing is. */
	saved *= share_of(r, FAL_REPORT_IDEAL) + share_of(r, FAL_REPORT_GRANULARITY) +
		 loss;
	saved = saved < loss ? saved : loss;
	if (task > 0)
		snprintf(what, sizeof(what), "batch.task = %llu saves %.0f %%" OTHER,
			 (unsigned long long)task, 100 * saved);
	add(l, FAL_REPORT_SMALL, NULL, loss,
	    "%.0f %% of the clock is that tasks have %llu sample%s only: %s", 100 * loss,
	    (unsigned long long)r->task, fal_text_s(r->task), what);
}

static double
linked(const struct fal_report_worker *w)
{
	const double wall = w->compute + w->push + w->pull + w->wait;
	double most = w->push > w->pull ? w->push : w->pull;
	most = most > w->waits[FAL_REPORT_LATENCY] ? most : w->waits[FAL_REPORT_LATENCY];
	return wall > 0 && most >= LINK * wall ? most / wall : 0;
}

/* What is overlapped, or else paid less often. */
static const char *
overlap(const struct fal_report *r)
{
	return r->shared && r->rule.slack == 0
		       ? "epsp:1 would overlap it" OTHER
		       : "a larger batch needs it less often" OTHER;
}

static void
links(struct list *l, const struct group *g)
{
	const struct fal_report_worker *w = g->worst;
	const double latency = w->waits[FAL_REPORT_LATENCY];
	const bool far = latency > w->push && latency > w->pull;
	const bool few = l->r->above != NULL || 2 * g->n <= l->r->workers;
	add(l, FAL_REPORT_LINK, g, share_of(l->r, FAL_REPORT_COMMUNICATION),
	    "%s spend%s %.0f %% of the time %s: %s", g->who, g->n == 1 ? "s" : "",
	    100 * g->value,
	    far                 ? "on latency of the link"
	    : w->push > w->pull ? "pushing"
				: "pulling",
	    few && !far ? "a faster link would mend it" : overlap(l->r));
}

/* Pushes for long, and on a link that is slow enough for fewer bits. */
static double
fewer_bits(const struct fal_report_worker *w)
{
	const double wall = w->compute + w->push + w->pull + w->wait;
	return wall > 0 && w->push >= LINK * wall && w->rate < w->fewer_bits
		       ? w->push / wall
		       : 0;
}

static void
bits(struct list *l, const struct group *g)
{
	add(l, FAL_REPORT_BITS, g, 0,
	    "%s push%s %.1f MB/s: push.bits = 16 pays below %.0f MB/s, by a third of the "
	    "bytes" OTHER,
	    g->who, g->n == 1 ? "es" : "", g->worst->rate * 1e-6,
	    g->worst->fewer_bits * 1e-6);
}

/* Each shard that workers wait for, as one is named. */
static void
shards(struct list *l)
{
	struct fal_shard_rows *r = &l->r->state->summary.shards;
	const double seconds = r->to - r->from;
	fal_shard_rows_end(r);
	for (uint32_t i = 0; i < r->n; i++) {
		const struct fal_shard_row *w = &r->v[i];
		char who[64]; /* a number, and so much of an address */
		if (w->class != FAL_CLASS_STRAGGLER)
			continue;
		if (w->address[0] != '\0')
			snprintf(who, sizeof(who), "shard %u at %.40s", i + 1,
				 w->address);
		else
			snprintf(who, sizeof(who), "shard %u, the coordinator's", i + 1);
		add(l, FAL_REPORT_SHARD, NULL, w->blame / seconds,
		    "%s is a straggler by %s (%.1fx slower): workers wait for it %.0f %% "
		    "of the time",
		    who, w->cause, w->slower, 100 * w->blame / seconds);
	}
}

static double
spare(const struct fal_report_worker *w)
{
	return w->idle >= SPARE ? w->idle : 0;
}

/* The fewer lanes at which the worker is as fast, or NULL. */
static const struct fal_report_speed *
enough(const struct fal_report_worker *w)
{
	const struct fal_report_speed *now = report_speed_at(w, w->lanes);
	for (size_t i = 0; now != NULL && i < w->speeds; i++) {
		const struct fal_report_speed *s = &w->speed[i];
		if (s->lanes < now->lanes && s->clocks >= COMPARED &&
		    now->clocks >= COMPARED && now->median < s->median * (1 + FASTER))
			return s;
	}
	return NULL;
}

static double
crowded(const struct fal_report_worker *w)
{
	const struct fal_report_speed *s = enough(w);
	return s != NULL ? s->median / report_speed_at(w, w->lanes)->median : 0;
}

static double
stalls(const struct fal_report_worker *w)
{
	return w->class == FAL_CLASS_STALLS ? (double)w->stalls : 0;
}

/* What is said of single workers that no part of the clock shows. */
static void
single(struct list *l, const struct group *still)
{
	const struct group idle = group_of(l->r, spare);
	const struct group many = group_of(l->r, crowded);
	if (still->n > 0)
		add(l, FAL_REPORT_STALLS, still, share_of(l->r, FAL_REPORT_STRAGGLERS),
		    "%s stood still again and again (%.0f times): not slow, but held up",
		    still->who, still->value);
	if (idle.n > 0)
		add(l, FAL_REPORT_SPARE, &idle, share_of(l->r, FAL_REPORT_STANDBY),
		    "%s had no task in %.0f %% of clocks: the job can spare %s", idle.who,
		    100 * idle.value, idle.n == 1 ? "it" : "them");
	if (many.n > 0)
		add(l, FAL_REPORT_LANES, &many, 0,
		    "%s: no faster at %u lanes than at %u (%.0f samples/s): bound the "
		    "lanes",
		    many.who, many.worst->lanes, enough(many.worst)->lanes,
		    report_speed_at(many.worst, many.worst->lanes)->median);
}

static uint64_t
dropped(const struct fal_report *r)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < r->workers; i++)
		sum += r->worker[i].dropped;
	return sum;
}

static void
well(struct list *l)
{
	const struct fal_report *r = l->r;
	const double ideal = share_of(r, FAL_REPORT_IDEAL);
	for (size_t i = 0; i < r->findings; i++)
		if (r->finding[i].kind != FAL_REPORT_STRAGGLER ||
		    r->finding[i].share >= LOSS)
			return;
	add(l, FAL_REPORT_WELL, NULL, 0, "nothing to %s: %.0f %% of the time is compute",
	    ideal >= WELL ? "mend" : "advise", 100 * ideal);
}

int
report_advise(struct fal_report *r)
{
	struct list l = { .r = r };
	const struct group always = group_of(r, persistent);
	const struct group at_times = group_of(r, transient);
	const struct group link = group_of(r, linked);
	const struct group slow = group_of(r, fewer_bits);
	const struct group still = group_of(r, stalls);
	if (!(r->clock > 0))
		return 0;
	stragglers(&l, &always);
	stragglers(&l, &at_times);
	if (link.n > 0)
		links(&l, &link);
	/* What else there is to be done is the coordinator's above. */
	if (r->above != NULL)
		return l.err;
	if (slow.n > 0)
		bits(&l, &slow);
	if (always.n + at_times.n + link.n + still.n == 0 &&
	    share_of(r, FAL_REPORT_STRAGGLERS) >= LOSS)
		waiting(&l);
	if (share_of(r, FAL_REPORT_GRANULARITY) >= LOSS)
		whole_tasks(&l);
	if (share_of(r, FAL_REPORT_SMALL_TASKS) >= LOSS)
		small_tasks(&l);
	if (share_of(r, FAL_REPORT_COORDINATION) >= COORDINATOR)
		add(&l, FAL_REPORT_SLOW_COORDINATOR, NULL,
		    share_of(r, FAL_REPORT_COORDINATION),
		    "the coordinator takes %.0f %% of a clock (%.1f ms): %s",
		    100 * share_of(r, FAL_REPORT_COORDINATION),
		    1e3 * r->part[FAL_REPORT_COORDINATION], overlap(r));
	if (share_of(r, FAL_REPORT_EXTRA) >= LOSS && dropped(r) > 0)
		add(&l, FAL_REPORT_UNUSED, NULL, share_of(r, FAL_REPORT_EXTRA),
		    "%.0f %% of the clock computes what %.20s drops: epsp drops "
		    "nothing%s",
		    100 * share_of(r, FAL_REPORT_EXTRA), r->scheme, mark(r, 0));
	shards(&l);
	single(&l, &still);
	well(&l);
	return l.err;
}
