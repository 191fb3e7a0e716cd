/* One round's ledger.
 *
 * The line is unrolled into events (task, what happened, who), sorted by task, and each
 * task's own history is judged: who held it, which contributions added it, in a chain
 * root, fill, fill of the fill, ….  Blocks are judged per contribution: a fill inherits
 * the blocks that the chain before it added; a task that was skipped counts in all
 * blocks, whatever a fenced contribution brought of it.  Together these say that the
 * blocks added over all tasks of an applied round sum to tasks · B, which is only
 * asserted.
 */
#include "trace/judge_priv.h"

#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct holder *
holder(struct ledger *g, uint32_t id, bool add)
{
	for (size_t i = 0; i < g->n_hold; i++)
		if (g->hold[i].id == id)
			return &g->hold[i];
	if (!add)
		return NULL;
	g->hold[g->n_hold] = (struct holder){ .id = id };
	return &g->hold[g->n_hold++];
}

/* Judges one event of a task for who held it, and counts for the contributions. */
static void
judge_holder(struct ledger *g, const struct event *e)
{
	struct holder *h;
	struct contrib *c;
	switch (e->what) {
	case GRANT:
	case REGRANT:
	case CLONE:
		holder(g, e->a, true)->now++;
		break;
	case MOVE:
		h = holder(g, e->a, false);
		if (h == NULL || h->now == 0)
			fal_finding(g->f, g->r, e->task, 1,
				    "moved from worker %u, which did not hold it", e->a);
		else
			h->now--;
		holder(g, e->b, true)->now++;
		break;
	case LOST:
		if (holder(g, e->a, false) == NULL)
			fal_finding(
				g->f, g->r, e->task, 1,
				"a claim of worker %u was dropped, which never held it",
				e->a);
		break;
	case SKIPPED:
		break;
	case ADDED:
		c = &g->c[e->a];
		if (holder(g, c->id, false) == NULL)
			fal_finding(g->f, g->r, e->task, 1,
				    "contribution %u.%u: worker %u never held it", c->id,
				    c->seq, c->id);
		c->seen++;
		if (c->fills != NO_CONTRIB)
			g->c[c->fills].fills_seen++;
	}
}

/* Judges one contribution of the task at e, which was skipped or not; every one is
 * counted by now. */
static void
judge_added(struct ledger *g, const struct event *e, bool skipped)
{
	const struct contrib *c = &g->c[e->a];
	g->brought += skipped ? c->blocks : 0;
	if (skipped && !c->fenced)
		fal_finding(g->f, g->r, e->task, 1,
			    "skipped, but contribution %u.%u has it", c->id, c->seq);
	if (c->seen > 1)
		fal_finding(g->f, g->r, e->task, 1,
			    "contribution %u.%u names it %u times", c->id, c->seq,
			    c->seen);
	if (c->fills != NO_CONTRIB && g->c[c->fills].seen == 0)
		fal_finding(g->f, g->r, e->task, 1,
			    "contribution %u.%u fills %u.%u, which has it not", c->id,
			    c->seq, g->c[c->fills].id, g->c[c->fills].seq);
	if (!c->fenced)
		return;
	if (c->fills_seen > 1)
		fal_finding(g->f, g->r, e->task, 1,
			    "contribution %u.%u was filled %u times", c->id, c->seq,
			    c->fills_seen);
	uint64_t sum = c->inherited + c->blocks;
	if (c->fills_seen == 0 && sum < g->env->job->blocks && !skipped &&
	    fal_trace_round_whole(g->r))
		fal_finding(g->f, g->r, e->task, 1,
			    "contribution %u.%u was fenced after %llu of %llu blocks and "
			    "not filled",
			    c->id, c->seq, (unsigned long long)sum,
			    (unsigned long long)g->env->job->blocks);
}

/* The verdict over the grants and the root contributions of a task; was it skipped? */
static bool
judge_once(struct ledger *g, uint32_t task, const struct event *e, size_t n)
{
	uint32_t grants = 0, roots = 0, skips = 0, by[2] = { 0, 0 };
	for (size_t i = 0; i < n; i++) {
		grants += e[i].what == GRANT;
		skips += e[i].what == SKIPPED;
		if (e[i].what == ADDED && g->c[e[i].a].fills == NO_CONTRIB) {
			by[roots > 0] = e[i].a;
			roots++;
		}
	}
	const bool all = fal_trace_round_whole(g->r);
	/* What was skipped may have been so in a round that was abandoned. */
	if (grants > 1 || (grants == 0 && skips == 0 && all))
		fal_finding(g->f, g->r, task, 1, "granted %u times", grants);
	if (roots == 0 && skips == 0 && all)
		fal_finding(g->f, g->r, task, 1, "never added");
	if (skips > 1)
		fal_finding(g->f, g->r, task, 1, "skipped %u times", skips);
	if (roots > 1)
		fal_finding(g->f, g->r, task, 1,
			    "added %u times, by contributions %u.%u and %u.%u", roots,
			    g->c[by[0]].id, g->c[by[0]].seq, g->c[by[1]].id,
			    g->c[by[1]].seq);
	return skips > 0;
}

/* Judges a task by its n events. */
static void
judge_task(struct ledger *g, uint32_t task, const struct event *e, size_t n)
{
	if (n > FAL_JUDGE_TASK_EVENTS_MAX) {
		fal_trace_fail(g->l, FAL_ELIMIT, "task %u: more than %zu events", task,
			       FAL_JUDGE_TASK_EVENTS_MAX);
		return;
	}
	g->n_hold = 0;
	for (size_t i = 0; i < n; i++)
		judge_holder(g, &e[i]);
	const bool skipped = judge_once(g, task, e, n);
	for (size_t i = 0; i < n; i++)
		if (e[i].what == ADDED)
			judge_added(g, &e[i], skipped);
	for (size_t i = 0; i < n; i++) {
		if (e[i].what != ADDED)
			continue;
		struct contrib *c = &g->c[e[i].a];
		c->seen = c->fills_seen = 0;
		if (c->fills != NO_CONTRIB)
			g->c[c->fills].fills_seen = 0;
	}
}

static int
by_task(const void *a, const void *b)
{
	const struct event *x = a, *y = b;
	if (x->task != y->task)
		return x->task < y->task ? -1 : 1;
	return x->order < y->order ? -1 : x->order > y->order;
}

static void
judge_tasks(struct ledger *g)
{
	if (g->n_ev > 0)
		qsort(g->ev, g->n_ev, sizeof(*g->ev), by_task);
	size_t at = 0;
	for (uint64_t i = 0; i < g->r->tasks && g->l->err == 0; i++) {
		uint32_t task = (uint32_t)(g->r->first + i);
		size_t n = 0;
		while (at + n < g->n_ev && g->ev[at + n].task == task)
			n++;
		judge_task(g, task, n > 0 ? &g->ev[at] : NULL, n);
		at += n;
	}
}

/* audit = sums: does the line have them, and should it? */
static bool
has_sums(const struct ledger *g)
{
	const bool there = fal_trace_has(g->l->o, FAL_F_ADDED);
	if (!g->env->job->sums && there)
		fal_finding(g->f, g->r, g->r->first, g->r->tasks,
			    "it has sums, which the job has not");
	return g->env->job->sums && (g->r->end == FAL_TRACE_APPLIED || there);
}

/* What the contributions have added is what the shards have then. */
static void
judge_sums(const struct ledger *g)
{
	char sum[17];
	if (!g->sums)
		return;
	(void)fal_trace_get_hex(g->l, g->l->o, FAL_F_SEED, 16);
	const char *added = fal_trace_get_hex(g->l, g->l->o, FAL_F_ADDED, 16);
	snprintf(sum, sizeof(sum), "%016llx", (unsigned long long)g->sum);
	if (g->l->err == 0 && strcmp(sum, added) != 0)
		fal_finding(g->f, g->r, g->r->first, g->r->tasks,
			    "the contributions' sums make %s, but %s was added", sum,
			    added);
}

/* That the blocks added over all tasks are tasks · B, those counted in that were skipped,
 * follows from what was judged. */
static bool
adds_up(const struct ledger *g)
{
	uint64_t sum = g->skipped * g->env->job->blocks - g->brought;
	for (size_t i = 0; i < g->n_c; i++)
		sum += g->c[i].tasks * g->c[i].blocks;
	return !fal_trace_round_whole(g->r) || sum == g->r->tasks * g->env->job->blocks;
}

int
fal_judge_ledger(const struct fal_judge_env *env, struct fal_trace_line *l,
		 struct fal_judge_sums *sums)
{
	struct ledger g = { .env = env, .f = env->findings, .r = env->round, .l = l };
	struct fal_judge_sums s = *sums;
	const uint64_t findings = g.f->n;
	g.hold = fal_calloc(FAL_JUDGE_TASK_EVENTS_MAX, sizeof(*g.hold));
	if (g.hold == NULL)
		return fal_trace_fail(l, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
	g.sums = has_sums(&g);
	judge_read(&g, &s);
	judge_sums(&g);
	if (l->err == 0)
		judge_tasks(&g);
	for (size_t i = 0; i < g.n_c; i++)
		if (g.c[i].fills != NO_CONTRIB && !g.c[i].fenced)
			s.filled += g.c[i].tasks;
	assert(l->err != 0 || g.f->n > findings || adds_up(&g));
	if (g.r->end != FAL_TRACE_ABANDONED) {
		s.tasks += g.r->tasks;
		s.skipped += g.skipped;
	}
	if (l->err == 0)
		*sums = s;
	free(g.ev);
	free(g.c);
	free(g.by_key);
	free(g.hold);
	return l->err;
}
