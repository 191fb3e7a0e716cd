/* The ledger: claims, fences, entries for the trace; and the history of grants. */
#include "sched/ledger.h"

#include "base/err.h"
#include "base/loss.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void
fal_ledger_free(struct fal_ledger *l)
{
	free(l->task);
	free(l->metrics);
	free(l->contrib);
	free(l->claim);
	free(l->newest);
	for (int k = 0; k < FAL_ENTRY_KINDS; k++)
		free(l->log[k].v);
	*l = (struct fal_ledger){ 0 };
}

void
fal_ledger_open(struct fal_ledger *l, const struct fal_grid *g, uint64_t clock,
		uint32_t first, uint32_t tasks)
{
	FAL_XGROW(l->task, l->task_cap, tasks);
	for (uint32_t i = 0; i < tasks; i++)
		l->task[i] = (struct fal_ltask){
			.contrib = FAL_NONE,
			.fills = FAL_NONE,
			.samples = fal_grid_range_samples(g, clock, first + i, 1),
		};
	l->has_metrics = false;
	l->first = first;
	l->tasks = tasks;
	l->claimed = l->skipped = 0;
	l->claimed_samples = l->skipped_samples = 0;
	l->asked = l->equal = l->unlike = 0;
	l->due = 0;
	l->contribs = 0;
	l->contributors = 0;
	for (size_t i = 0; i < l->newest_cap; i++)
		l->newest[i].worker = 0;
	l->claims = 0;
	for (int k = 0; k < FAL_ENTRY_KINDS; k++)
		l->log[k].n = 0;
}

/* The index of the worker in `newest`, or the empty place for the worker. */
static size_t
newest_place(const struct fal_ledger *l, uint32_t worker)
{
	size_t at = (worker * 0x9E3779B9u >> 7) & (l->newest_cap - 1);
	while (l->newest[at].worker != 0 && l->newest[at].worker != worker)
		at = (at + 1) & (l->newest_cap - 1);
	return at;
}

/* Makes room for one worker more. */
static void
newest_grow(struct fal_ledger *l)
{
	if (((size_t)l->contributors + 1) * 2 <= l->newest_cap)
		return;
	struct fal_newest *old = l->newest;
	size_t n = l->newest_cap, cap = n > 0 ? n * 2 : 4;
	l->newest = fal_xcalloc(cap, sizeof(*l->newest));
	l->newest_cap = cap;
	for (size_t i = 0; i < n; i++)
		if (old[i].worker != 0)
			l->newest[newest_place(l, old[i].worker)] = old[i];
	free(old);
}

uint32_t
fal_ledger_newest(const struct fal_ledger *l, uint32_t worker)
{
	if (l->contributors == 0)
		return FAL_NONE;
	const size_t at = newest_place(l, worker);
	return l->newest[at].worker == worker ? l->newest[at].contrib : FAL_NONE;
}

uint32_t
fal_ledger_find(const struct fal_ledger *l, struct fal_contrib_id id)
{
	uint32_t ci = fal_ledger_newest(l, id.worker);
	while (ci != FAL_NONE && !fal_contrib_id_equal(l->contrib[ci].id, id))
		ci = l->contrib[ci].older;
	return ci;
}

static struct fal_contrib_id
contrib_cid(const struct fal_ledger *l, uint32_t ci)
{
	return ci == FAL_NONE ? (struct fal_contrib_id){ 0, 0 } : l->contrib[ci].id;
}

/* Opens contribution `id` for the first claim of its task; returns its index. */
static uint32_t
contrib_open(struct fal_ledger *l, struct fal_contrib_id id, uint32_t fills)
{
	FAL_XGROW(l->contrib, l->contrib_cap, (size_t)l->contribs + 1);
	newest_grow(l);
	struct fal_newest *n = &l->newest[newest_place(l, id.worker)];
	const uint32_t older = n->worker != 0 ? n->contrib : FAL_NONE;
	l->contributors += n->worker == 0;
	*n = (struct fal_newest){ id.worker, l->contribs };
	l->contrib[l->contribs] = (struct fal_contrib){
		.id = id, .fills = fills, .head = FAL_NONE, .older = older
	};
	return l->contribs++;
}

int
fal_ledger_claim(struct fal_ledger *l, struct fal_contrib_id id,
		 struct fal_contrib_id fills, uint32_t task, int64_t loss, uint32_t *out)
{
	if (!fal_ledger_has(l, task) || id.worker == 0 || id.seq == 0)
		return FAL_EINVAL;
	struct fal_ltask *t = fal_ledger_task(l, task);
	uint32_t ci = fal_ledger_find(l, id);
	if (ci != FAL_NONE) {
		const struct fal_contrib *c = &l->contrib[ci];
		if (c->state == FAL_CONTRIB_FENCED)
			return 0;
		if (c->state == FAL_CONTRIB_DONE || c->sealed ||
		    !fal_contrib_id_equal(contrib_cid(l, c->fills), fills))
			return FAL_ESTATE;
	}
	if (t->contrib != FAL_NONE || t->skipped ||
	    !fal_contrib_id_equal(contrib_cid(l, t->fills), fills))
		return 0;
	FAL_XGROW(l->claim, l->claim_cap, (size_t)l->claims + 1);
	if (ci == FAL_NONE)
		ci = contrib_open(l, id, t->fills);
	t->contrib = ci;
	t->loss = loss;
	l->claim[l->claims] =
		(struct fal_claim){ .task = task, .next = l->contrib[ci].head };
	t->claim = l->claims;
	l->contrib[ci].head = l->claims++;
	l->contrib[ci].tasks++;
	l->claimed++;
	l->claimed_samples += t->samples;
	*out = ci;
	return 1;
}

void
fal_ledger_skip(struct fal_ledger *l, uint32_t task)
{
	struct fal_ltask *t = fal_ledger_task(l, task);
	assert(t->contrib == FAL_NONE && !t->skipped);
	t->skipped = true;
	t->loss = 0;
	l->claimed++;
	l->claimed_samples += t->samples;
	l->skipped++;
	l->skipped_samples += t->samples;
}

void
fal_ledger_preclaim(struct fal_ledger *l, struct fal_contrib_id id, uint32_t task)
{
	struct fal_ltask *t = fal_ledger_task(l, task);
	uint32_t ci;
	const int won =
		fal_ledger_claim(l, id, contrib_cid(l, t->fills), task, t->loss, &ci);
	assert(won == 1);
	t->due = true;
	l->contrib[ci].due++;
	l->due++;
}

bool
fal_ledger_report(struct fal_ledger *l, uint32_t ci, uint32_t task, int64_t loss)
{
	struct fal_ltask *t = fal_ledger_task(l, task);
	if (t->contrib != ci || !t->due)
		return false;
	t->loss = loss;
	t->due = false;
	l->contrib[ci].due--;
	l->due--;
	return true;
}

int
fal_ledger_seal(struct fal_ledger *l, uint32_t ci)
{
	if (l->contrib[ci].sealed)
		return FAL_ESTATE;
	l->contrib[ci].sealed = true;
	return FAL_OK;
}

void
fal_ledger_fence(struct fal_ledger *l, uint32_t ci)
{
	struct fal_contrib *c = &l->contrib[ci];
	assert(c->state == FAL_CONTRIB_OPEN);
	c->state = FAL_CONTRIB_FENCED;
	l->due -= c->due;
	c->due = 0;
	for (uint32_t i = c->head; i != FAL_NONE; i = l->claim[i].next) {
		struct fal_ltask *t = fal_ledger_task(l, l->claim[i].task);
		t->contrib = FAL_NONE;
		t->fills = ci;
		t->due = false;
		l->claimed--;
		l->claimed_samples -= t->samples;
	}
}

void
fal_ledger_log(struct fal_ledger *l, enum fal_entry_kind kind, uint32_t a, uint32_t b,
	       uint32_t task)
{
	struct fal_entry *last =
		l->log[kind].n > 0 ? &l->log[kind].v[l->log[kind].n - 1] : NULL;
	if (last != NULL && last->a == a && last->b == b &&
	    fal_range_join(&last->first, &last->count, task))
		return;
	FAL_XGROW(l->log[kind].v, l->log[kind].cap, l->log[kind].n + 1);
	l->log[kind].v[l->log[kind].n++] = (struct fal_entry){ a, b, task, 1 };
}

int64_t
fal_ledger_loss(const struct fal_ledger *l)
{
	uint64_t sum = 0; /* unsigned: the sum may overflow, because a worker may lie */
	for (uint32_t t = 0; t < l->tasks; t++)
		sum += (uint64_t)l->task[t].loss;
	return (int64_t)sum;
}

bool
fal_ledger_loss_known(const struct fal_ledger *l)
{
	for (uint32_t i = 0; i < l->tasks; i++)
		if (!fal_loss_is_known(l->task[i].loss, l->task[i].samples))
			return false;
	return true;
}

void
fal_ledger_set_metrics(struct fal_ledger *l, uint32_t task, const struct fal_metrics *m)
{
	const uint32_t i = task - l->first;
	FAL_XGROW(l->metrics, l->metrics_cap, l->tasks);
	if (!l->has_metrics)
		memset(l->metrics, 0, l->tasks * sizeof(*l->metrics));
	l->has_metrics = true;
	l->metrics[i] = *m;
	l->metrics[i].samples = l->task[i].samples;
}

struct fal_metrics
fal_ledger_metrics(const struct fal_ledger *l)
{
	struct fal_metrics sum = { 0 };
	for (uint32_t i = 0; i < l->tasks && l->has_metrics; i++)
		if (!l->task[i].skipped)
			fal_metrics_add(&sum, &l->metrics[i]);
	return sum;
}

/* ---- grants --------------------------------------------------------------- */

void
fal_grant_history_open(struct fal_grant_history *h, uint32_t n)
{
	FAL_XGROW(h->newest, h->newest_cap, n);
	if (n > 0)
		memset(h->newest, 0, n * sizeof(*h->newest));
	h->n = 0;
}

void
fal_grant_history_free(struct fal_grant_history *h)
{
	free(h->newest);
	free(h->v);
}

bool
fal_grant_history_has(const struct fal_grant_history *h, uint32_t item, uint32_t worker)
{
	uint32_t at = h->newest[item];
	while (at != 0 && h->v[at - 1].worker != worker)
		at = h->v[at - 1].older;
	return at != 0;
}

void
fal_grant_history_add(struct fal_grant_history *h, uint32_t item, uint32_t worker)
{
	if (fal_grant_history_has(h, item, worker))
		return;
	FAL_XGROW(h->v, h->cap, (size_t)h->n + 1);
	h->v[h->n] =
		(struct fal_grant_entry){ .worker = worker, .older = h->newest[item] };
	h->newest[item] = ++h->n;
}
