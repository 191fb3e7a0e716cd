/* Judges the ledger of one round: every task must have been added exactly once.
 *
 * Unrolls the line into events (task, kind, worker), sorts them by task, and judges the
 * history of each task: the workers that held the task, and the contributions that added
 * it, in a chain of root, fill, fill of the fill, ….  Judges blocks by contribution: a
 * fill inherits the blocks that the chain before it added.  A skipped task counts with
 * all its blocks, however many of them a fenced contribution added.  These rules imply
 * that the blocks added over all tasks of an applied round sum to tasks · B, which is
 * only asserted. */
#include "trace/audit_priv.h"

#include "base/mem.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum event_kind { GRANT, REGRANT, CLONE, MOVE, LOST, SKIPPED, ADDED };

struct event {
	uint32_t task;
	uint32_t order; /* in the line; events of a task keep this order */
	uint32_t a;     /* the worker; MOVE: from; ADDED: index of the contribution */
	uint32_t b;     /* MOVE: to */
	enum event_kind kind;
};

#define NO_CONTRIB SIZE_MAX

struct contrib {
	uint32_t id, seq;
	size_t fills;       /* index of the contribution it fills, or NO_CONTRIB */
	uint64_t inherited; /* blocks that the chain before it added */
	uint64_t blocks;    /* blocks that it added */
	uint64_t first, count, tasks; /* its first range; tasks in all */
	bool fenced;
	/* Scratch while one task is judged: */
	uint32_t seen;       /* times it names the task */
	uint32_t fills_seen; /* fills of it that name the task */
};

/* A worker that got the task, and how often the worker holds it at present. */
struct holder {
	uint32_t id, held;
};

struct ledger {
	struct fal_audit *a;
	struct fal_trace_line *l;
	const struct fal_trace_round *r;
	struct event *ev;
	size_t n_ev, cap_ev;
	struct contrib *c;
	size_t n_c;
	json_t *by_key; /* the last contribution of each "worker.seq" */
	struct holder hold[FAL_JUDGE_TASK_EVENTS_MAX];
	size_t n_hold;
	uint64_t skipped;        /* tasks */
	uint64_t skipped_blocks; /* of skipped tasks, in fenced contributions */
};

/* Adds a finding about `count` tasks of the round from `first` on; count 0: about none.
 */
#define finding_tasks(g, first, count, ...) \
	fal_finding(&(g)->a->findings, (g)->r, first, count, __VA_ARGS__)

/* ---- the line ------------------------------------------------------------------------
 */

/* Adds an event for each task of [first, count]; `e` is the event without its task.
 * Returns the number of tasks. */
static uint64_t
ledger_unroll(struct ledger *g, const char *name, const uint64_t run[2], struct event e)
{
	const uint64_t first = run[0], count = run[1];
	if (g->l->err != 0)
		return 0;
	if (count == 0 || count > FAL_JUDGE_EVENTS_MAX - g->n_ev) {
		fal_trace_fail(g->l, count == 0 ? FAL_EFORMAT : FAL_ELIMIT,
			       "%s: %ju tasks", name, count);
		return 0;
	}
	if (first < g->r->first || first - g->r->first >= g->r->tasks ||
	    count > g->r->tasks - (first - g->r->first)) {
		finding_tasks(g, first, count, "%s: the round has tasks %ju-%ju", name,
			      g->r->first, (g->r->first + g->r->tasks - 1));
		return 0;
	}
	if (FAL_GROW(g->ev, g->cap_ev, g->n_ev + count) <
	    0) { /* a short row may be many events */
		fal_trace_fail(g->l, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
		return 0;
	}
	for (uint64_t i = 0; i < count; i++) {
		e.task = (uint32_t)(first + i);
		e.order = (uint32_t)g->n_ev;
		g->ev[g->n_ev++] = e;
	}
	return count;
}

static bool
ledger_has_joined(struct ledger *g, const char *name, uint64_t id, const uint64_t run[2])
{
	if (fal_audit_worker(g->a, id) != NULL)
		return true;
	finding_tasks(g, run[0], run[1], "%s: worker %ju never joined", name, id);
	return false;
}

/* Reads rows of [id, first, count] or, of moves, [from, to, first, count]; returns the
 * number of their tasks. */
static uint64_t
ledger_read_rows(struct ledger *g, const char *name, struct fal_numbers rows,
		 enum event_kind kind)
{
	static const enum fal_figure figure[] = { [GRANT] = FAL_FIGURE_SHARE,
						  [CLONE] = FAL_FIGURE_CLONED,
						  [MOVE] = FAL_FIGURE_OUT,
						  [LOST] = FAL_FIGURE_LOST };
	const size_t width = kind == MOVE ? 4 : 3;
	uint64_t sum = 0;
	for (size_t i = 0; i < rows.n && g->l->err == 0; i++) {
		const uint64_t *row = rows.v + width * i, *run = row + width - 2;
		const struct event e = { .a = (uint32_t)row[0],
					 .b = (uint32_t)row[1],
					 .kind = kind };
		if (kind == GRANT && g->r->owner != 0 && row[0] != g->r->owner)
			finding_tasks(
				g, run[0], run[1],
				"granted to worker %ju, but worker %u owns the round",
				row[0], g->r->owner);
		if (kind == MOVE)
			fal_audit_add_figure(g->a, g->r, row[1], FAL_FIGURE_IN, run[1],
					     false);
		if (kind != REGRANT)
			fal_audit_add_figure(g->a, g->r, row[0], figure[kind], run[1],
					     false);
		if (ledger_has_joined(g, name, row[0], run) &&
		    (kind != MOVE || ledger_has_joined(g, name, row[1], run)))
			sum += ledger_unroll(g, name, run, e);
	}
	return sum;
}

/* Writes "worker.seq" of a contribution; returns `out`. */
enum { CONTRIB_KEY = 48 };
static const char *
contrib_key(const uint64_t c[static 2], char out[static CONTRIB_KEY])
{
	snprintf(out, CONTRIB_KEY, "%ju.%ju", c[0], c[1]);
	return out;
}

/* Finds the contribution that contribution i fills, and judges the blocks of i. */
static void
contrib_judge_blocks(struct ledger *g, size_t i, struct fal_numbers fills)
{
	struct contrib *c = &g->c[i];
	const uint64_t B = g->a->job.blocks;
	char key[CONTRIB_KEY];
	if (fills.n > 0) {
		if (!fal_names_get(&g->by_key, contrib_key(fills.v, key), &c->fills)) {
			c->fills = NO_CONTRIB;
			finding_tasks(
				g, c->first, c->count,
				"contribution %u.%u fills %s, which is not before it",
				c->id, c->seq, key);
			return;
		}
		const struct contrib *d = &g->c[c->fills];
		c->inherited = d->inherited + d->blocks;
		if (!d->fenced)
			finding_tasks(
				g, c->first, c->count,
				"contribution %u.%u fills %u.%u, which was not fenced",
				c->id, c->seq, d->id, d->seq);
	}
	uint64_t sum = c->inherited + c->blocks;
	if (sum > B || (sum < B && !c->fenced && fal_trace_round_is_complete(g->r)))
		finding_tasks(g, c->first, c->count,
			      "contribution %u.%u: %ju of %ju blocks were added", c->id,
			      c->seq, sum, B);
	if (sum > B) /* later sums must not overflow */
		c->blocks = B > c->inherited ? B - c->inherited : 0;
}

static void
ledger_read_contrib(struct ledger *g, size_t i)
{
	const struct fal_ev_contrib *e = &g->l->is.ledger.contrib.v[i];
	struct contrib *c = &g->c[i];
	char key[CONTRIB_KEY];
	uint64_t twice;
	size_t before;
	*c = (struct contrib){ .id = (uint32_t)e->c.v[0],
			       .seq = (uint32_t)e->c.v[1],
			       .blocks = e->blocks,
			       .fenced = e->fenced,
			       .fills = NO_CONTRIB };
	if (e->tasks.n == 0) {
		fal_trace_fail(g->l, FAL_EFORMAT, "tasks: empty");
		return;
	}
	c->first = e->tasks.v[0];
	c->count = e->tasks.v[1];
	for (size_t k = 0; k < e->tasks.n; k++)
		c->tasks +=
			ledger_unroll(g, "contrib", e->tasks.v + 2 * k,
				      (struct event){ .a = (uint32_t)i, .kind = ADDED });
	if (g->l->err != 0)
		return;
	if (fal_names_get(&g->by_key, contrib_key(e->c.v, key), &before))
		finding_tasks(g, c->first, c->count, "contribution %u.%u comes twice",
			      c->id, c->seq);
	ledger_has_joined(g, "contrib", c->id, e->tasks.v);
	/* A worker may claim tasks when it gets them, and never run those that the round
	 * does not need. */
	fal_audit_add_figure(g->a, g->r, c->id, FAL_FIGURE_DONE,
			     fal_trace_rows_tasks(e->tasks, 2),
			     g->r->end == FAL_END_DROPPED || c->fenced);
	struct audit_worker *w = fal_audit_worker(g->a, c->id);
	if (w != NULL &&
	    fal_audit_add_range(g->l, &w->seqs, c->seq, c->seq + 1ULL, &twice))
		finding_tasks(g, 0, 0, "contribution %u.%u was one of an earlier line",
			      c->id, c->seq);
	if (e->hashes.v != NULL && e->hashes.n != c->tasks)
		finding_tasks(g, c->first, c->count,
			      "contribution %u.%u: %zu hashes of %ju tasks", c->id,
			      c->seq, e->hashes.n, c->tasks);
	contrib_judge_blocks(g, i, e->fills);
	fal_names_put(&g->by_key, key, i);
}

/* ---- tasks ---------------------------------------------------------------------------
 */

/* Returns the holder with this id, and adds it if `add`; else NULL. */
static struct holder *
ledger_holder(struct ledger *g, uint32_t id, bool add)
{
	for (size_t i = 0; i < g->n_hold; i++)
		if (g->hold[i].id == id)
			return &g->hold[i];
	if (!add)
		return NULL;
	g->hold[g->n_hold] = (struct holder){ .id = id };
	return &g->hold[g->n_hold++];
}

/* Judges one event of a task by the task's holders, and counts for the contributions. */
static void
task_judge_holder(struct ledger *g, const struct event *e)
{
	struct holder *h;
	struct contrib *c;
	switch (e->kind) {
	case GRANT:
	case REGRANT:
	case CLONE:
		ledger_holder(g, e->a, true)->held++;
		break;
	case MOVE:
		h = ledger_holder(g, e->a, false);
		if (h == NULL || h->held == 0)
			finding_tasks(g, e->task, 1,
				      "moved from worker %u, which did not hold it",
				      e->a);
		else
			h->held--;
		ledger_holder(g, e->b, true)->held++;
		break;
	case LOST:
		if (ledger_holder(g, e->a, false) == NULL)
			finding_tasks(
				g, e->task, 1,
				"a claim of worker %u was dropped, which never held it",
				e->a);
		break;
	case SKIPPED:
		break;
	case ADDED:
		c = &g->c[e->a];
		if (ledger_holder(g, c->id, false) == NULL)
			finding_tasks(g, e->task, 1,
				      "contribution %u.%u: worker %u never held it",
				      c->id, c->seq, c->id);
		c->seen++;
		if (c->fills != NO_CONTRIB)
			g->c[c->fills].fills_seen++;
	}
}

/* Judges the contribution of event e.  Needs the counts of all contributions. */
static void
task_judge_added(struct ledger *g, const struct event *e, bool skipped)
{
	const struct contrib *c = &g->c[e->a];
	g->skipped_blocks += skipped ? c->blocks : 0;
	if (skipped && !c->fenced)
		finding_tasks(g, e->task, 1, "skipped, but contribution %u.%u has it",
			      c->id, c->seq);
	if (c->seen > 1)
		finding_tasks(g, e->task, 1, "contribution %u.%u names the task %u times",
			      c->id, c->seq, c->seen);
	if (c->fills != NO_CONTRIB && g->c[c->fills].seen == 0)
		finding_tasks(g, e->task, 1,
			      "contribution %u.%u fills %u.%u, which lacks the task",
			      c->id, c->seq, g->c[c->fills].id, g->c[c->fills].seq);
	if (!c->fenced)
		return;
	if (c->fills_seen > 1)
		finding_tasks(g, e->task, 1, "contribution %u.%u was filled %u times",
			      c->id, c->seq, c->fills_seen);
	uint64_t sum = c->inherited + c->blocks;
	if (c->fills_seen == 0 && sum < g->a->job.blocks && !skipped &&
	    fal_trace_round_is_complete(g->r))
		finding_tasks(g, e->task, 1,
			      "contribution %u.%u was fenced after %ju of %ju blocks and "
			      "not filled",
			      c->id, c->seq, sum, g->a->job.blocks);
}

/* Judges the grants and the root contributions of a task; returns whether the task was
 * skipped. */
static bool
task_judge_grants(struct ledger *g, uint32_t task, const struct event *e, size_t n)
{
	uint32_t grants = 0, roots = 0, skips = 0, by[2] = { 0, 0 };
	for (size_t i = 0; i < n; i++) {
		grants += e[i].kind == GRANT;
		skips += e[i].kind == SKIPPED;
		if (e[i].kind == ADDED && g->c[e[i].a].fills == NO_CONTRIB) {
			by[roots > 0] = e[i].a;
			roots++;
		}
	}
	const bool all = fal_trace_round_is_complete(g->r);
	/* If an abandoned round skipped the task before, no worker is granted the task.
	 */
	if (grants > 1 || (grants == 0 && skips == 0 && all))
		finding_tasks(g, task, 1, "granted %u times", grants);
	if (roots == 0 && skips == 0 && all)
		finding_tasks(g, task, 1, "never added");
	if (skips > 1)
		finding_tasks(g, task, 1, "skipped %u times", skips);
	if (roots > 1)
		finding_tasks(g, task, 1,
			      "added %u times, by contributions %u.%u and %u.%u", roots,
			      g->c[by[0]].id, g->c[by[0]].seq, g->c[by[1]].id,
			      g->c[by[1]].seq);
	return skips > 0;
}

static int
event_order(const void *a, const void *b)
{
	const struct event *x = a, *y = b;
	if (x->task != y->task)
		return x->task < y->task ? -1 : 1;
	return x->order < y->order ? -1 : x->order > y->order;
}

/* Judges each task by its events. */
static void
ledger_judge_tasks(struct ledger *g)
{
	if (g->n_ev > 0)
		qsort(g->ev, g->n_ev, sizeof(*g->ev), event_order);
	size_t at = 0, n = 0;
	for (uint64_t t = 0; t < g->r->tasks; t++, at += n) {
		const uint32_t task = (uint32_t)(g->r->first + t);
		const struct event *e = g->n_ev > 0 ? &g->ev[at] : NULL;
		for (n = 0; at + n < g->n_ev && e[n].task == task;)
			n++;
		if (n > FAL_JUDGE_TASK_EVENTS_MAX) {
			fal_trace_fail(g->l, FAL_ELIMIT, "task %u: more than %zu events",
				       task, FAL_JUDGE_TASK_EVENTS_MAX);
			return;
		}
		g->n_hold = 0;
		for (size_t i = 0; i < n; i++)
			task_judge_holder(g, &e[i]);
		const bool skipped = task_judge_grants(g, task, e, n);
		for (size_t i = 0; i < n; i++)
			if (e[i].kind == ADDED)
				task_judge_added(g, &e[i], skipped);
		for (size_t i = 0; i < n; i++) {
			if (e[i].kind != ADDED)
				continue;
			struct contrib *c = &g->c[e[i].a];
			c->seen = c->fills_seen = 0;
			if (c->fills != NO_CONTRIB)
				g->c[c->fills].fills_seen = 0;
		}
	}
}

/* audit = sums: the sums of the contributions must be what the shards have added. */
static void
ledger_judge_sums(const struct ledger *g)
{
	const struct fal_ev_ledger *e = &g->l->is.ledger;
	uint64_t sum = 0;
	if (!g->a->job.sums && e->added.is)
		finding_tasks(g, g->r->first, g->r->tasks, "sums, but the job has none");
	if (!g->a->job.sums || (g->r->end != FAL_END_APPLIED && !e->added.is))
		return;
	for (size_t i = 0; i < e->contrib.n; i++) {
		if (!e->contrib.v[i].sum.is)
			fal_trace_fail(g->l, FAL_EFORMAT, "sum: missing");
		sum += e->contrib.v[i].sum.v;
	}
	if (!e->seed.is || !e->added.is)
		fal_trace_fail(g->l, FAL_EFORMAT, "%s: missing",
			       e->seed.is ? "added" : "seed");
	if (g->l->err == 0 && sum != e->added.v)
		finding_tasks(g, g->r->first, g->r->tasks,
			      "the contributions' sums make %016" PRIx64
			      ", but %016" PRIx64 " was added",
			      sum, e->added.v);
}

void
fal_judge_ledger(struct fal_audit *a, struct fal_trace_line *l,
		 const struct fal_trace_round *r)
{
	struct ledger g = { .a = a, .l = l, .r = r };
	struct fal_audit_sums s = a->verdict.sums;
	const uint64_t findings = a->findings.n;
	const struct fal_ev_ledger *e = &l->is.ledger;
	ledger_read_rows(&g, "grant", e->grant, GRANT);
	ledger_read_rows(&g, "regrant", e->regrant, REGRANT);
	s.cloned += ledger_read_rows(&g, "clone", e->clone, CLONE);
	s.moved += ledger_read_rows(&g, "move", e->move, MOVE);
	s.dropped += ledger_read_rows(&g, "lost", e->lost, LOST);
	for (size_t i = 0; i < e->skipped.n; i++)
		g.skipped += ledger_unroll(&g, "skipped", e->skipped.v + 2 * i,
					   (struct event){ .kind = SKIPPED });
	if (e->skipped.n > 0 && l->err == 0 && !a->job.skips) {
		const uint64_t *row = e->skipped.v + 2 * (e->skipped.n - 1);
		finding_tasks(&g, row[0], row[1], "skipped, but the job does not say so");
	}
	fal_trace_check_verified(l);
	if (e->contrib.n > FAL_JUDGE_CONTRIBS_MAX)
		fal_trace_fail(l, FAL_ELIMIT, "contrib: more than %zu",
			       FAL_JUDGE_CONTRIBS_MAX);
	else
		g.c = fal_xcalloc(e->contrib.n, sizeof(*g.c));
	for (; g.n_c < e->contrib.n && l->err == 0; g.n_c++)
		ledger_read_contrib(&g, g.n_c);
	ledger_judge_sums(&g);
	if (l->err == 0)
		ledger_judge_tasks(&g);
	/* The blocks added over all tasks; a skipped task counts with all its blocks. */
	uint64_t added = g.skipped * a->job.blocks - g.skipped_blocks;
	for (size_t i = 0; i < g.n_c; i++) {
		added += g.c[i].tasks * g.c[i].blocks;
		if (g.c[i].fills != NO_CONTRIB && !g.c[i].fenced)
			s.filled += g.c[i].tasks;
	}
	assert(l->err != 0 || a->findings.n > findings ||
	       !fal_trace_round_is_complete(r) || added == r->tasks * a->job.blocks);
	if (r->end != FAL_END_ABANDONED) {
		s.tasks += r->tasks;
		s.skipped += g.skipped;
	}
	if (l->err == 0)
		a->verdict.sums = s;
	free(g.ev);
	free(g.c);
	json_decref(g.by_key);
}
