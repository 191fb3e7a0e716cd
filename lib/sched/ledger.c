/* Claims, fences and what the trace says of them. */
#include "sched/ledger.h"

#include "base/err.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>

void
fal_ledger_free(struct fal_ledger *l)
{
	free(l->task);
	free(l->contrib);
	free(l->claim);
	for (int k = 0; k < FAL_ENTRY_KINDS; k++)
		free(l->log[k].v);
	*l = (struct fal_ledger){ 0 };
}

int
fal_ledger_open(struct fal_ledger *l, uint64_t clock, uint32_t tasks)
{
	if (FAL_GROW(l->task, l->task_cap, tasks) < 0)
		return FAL_ENOMEM;
	for (uint32_t i = 0; i < tasks; i++)
		l->task[i] = (struct fal_ltask){ FAL_NONE, FAL_NONE, 0 };
	l->clock = clock;
	l->tasks = tasks;
	l->claimed = 0;
	l->contribs = 0;
	l->claims = 0;
	for (int k = 0; k < FAL_ENTRY_KINDS; k++)
		l->log[k].n = 0;
	return FAL_OK;
}

uint32_t
fal_ledger_find(const struct fal_ledger *l, struct fal_cid id, uint32_t last)
{
	while (last != FAL_NONE && !fal_cid_eq(l->contrib[last].id, id))
		last = l->contrib[last].older;
	return last;
}

static struct fal_cid
cid_of(const struct fal_ledger *l, uint32_t ci)
{
	return ci == FAL_NONE ? (struct fal_cid){ 0, 0 } : l->contrib[ci].id;
}

/* Opens contribution `id` for the first claim of its task. */
static int
open_contrib(struct fal_ledger *l, struct fal_cid id, uint32_t fills, uint32_t *last)
{
	if (FAL_GROW(l->contrib, l->contrib_cap, (size_t)l->contribs + 1) < 0)
		return FAL_ENOMEM;
	l->contrib[l->contribs] = (struct fal_contrib){
		.id = id, .fills = fills, .head = FAL_NONE, .older = *last
	};
	*last = l->contribs++;
	return FAL_OK;
}

int
fal_ledger_claim(struct fal_ledger *l, struct fal_cid id, struct fal_cid fills,
		 uint32_t task, int64_t loss, uint32_t *last)
{
	if (task >= l->tasks || id.seq == 0)
		return FAL_EINVAL;
	struct fal_ltask *t = &l->task[task];
	uint32_t ci = fal_ledger_find(l, id, *last);
	if (ci != FAL_NONE) {
		const struct fal_contrib *c = &l->contrib[ci];
		if (c->state == FAL_CONTRIB_FENCED)
			return 0;
		if (c->state == FAL_CONTRIB_DONE || c->blocks > 0 ||
		    !fal_cid_eq(cid_of(l, c->fills), fills))
			return FAL_ESTATE;
	}
	if (t->contrib != FAL_NONE || !fal_cid_eq(cid_of(l, t->fills), fills))
		return 0;
	if (FAL_GROW(l->claim, l->claim_cap, (size_t)l->claims + 1) < 0)
		return FAL_ENOMEM;
	if (ci == FAL_NONE) {
		int err = open_contrib(l, id, t->fills, last);
		if (err < 0)
			return err;
		ci = *last;
	}
	t->contrib = ci;
	t->loss = loss;
	l->claim[l->claims] = (struct fal_claim){ task, l->contrib[ci].head };
	l->contrib[ci].head = l->claims++;
	l->contrib[ci].tasks++;
	l->claimed++;
	return 1;
}

void
fal_ledger_fence(struct fal_ledger *l, uint32_t ci)
{
	struct fal_contrib *c = &l->contrib[ci];
	assert(c->state == FAL_CONTRIB_OPEN);
	c->state = FAL_CONTRIB_FENCED;
	for (uint32_t i = c->head; i != FAL_NONE; i = l->claim[i].next) {
		l->task[l->claim[i].task].contrib = FAL_NONE;
		l->task[l->claim[i].task].fills = ci;
		l->claimed--;
	}
}

void
fal_ledger_arrived(struct fal_ledger *l, uint32_t ci, uint32_t blocks)
{
	l->contrib[ci].blocks += blocks;
}

void
fal_ledger_done(struct fal_ledger *l, uint32_t ci)
{
	l->contrib[ci].state = FAL_CONTRIB_DONE;
}

int
fal_ledger_log(struct fal_ledger *l, enum fal_entry_kind kind, uint32_t a, uint32_t b,
	       uint32_t task)
{
	struct fal_entry *last =
		l->log[kind].n > 0 ? &l->log[kind].v[l->log[kind].n - 1] : NULL;
	if (last != NULL && last->a == a && last->b == b &&
	    fal_range_join(&last->first, &last->count, task))
		return FAL_OK;
	if (FAL_GROW(l->log[kind].v, l->log[kind].cap, l->log[kind].n + 1) < 0)
		return FAL_ENOMEM;
	l->log[kind].v[l->log[kind].n++] = (struct fal_entry){ a, b, task, 1 };
	return FAL_OK;
}

int64_t
fal_ledger_loss(const struct fal_ledger *l)
{
	uint64_t sum = 0; /* a worker that lies must not overflow it */
	for (uint32_t t = 0; t < l->tasks; t++)
		sum += (uint64_t)l->task[t].loss;
	return (int64_t)sum;
}

static int
by_task(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}

/* The tasks of a contribution as sorted ranges.  A fenced one's list is what it had. */
static void
json_tasks(const struct fal_ledger *l, const struct fal_contrib *c, struct fal_buf *out)
{
	uint32_t *ids = fal_calloc(c->tasks, sizeof(*ids));
	if (ids == NULL) {
		out->err = FAL_ENOMEM;
		return;
	}
	uint32_t n = c->tasks, i = 0;
	for (uint32_t j = c->head; j != FAL_NONE; j = l->claim[j].next)
		ids[i++] = l->claim[j].task;
	qsort(ids, n, sizeof(*ids), by_task);
	for (i = 0; i < n;) {
		uint32_t first = ids[i], count = 1;
		while (i + count < n && ids[i + count] == first + count)
			count++;
		fal_put_fmt(out, "%s[%u,%u]", i > 0 ? "," : "", first, count);
		i += count;
	}
	free(ids);
}

static void
json_contrib(const struct fal_ledger *l, const struct fal_contrib *c, struct fal_buf *out)
{
	fal_put_fmt(out, "{\"c\":[%u,%u],\"tasks\":[", c->id.worker, c->id.seq);
	json_tasks(l, c, out);
	fal_put_fmt(out, "],\"blocks\":%u", c->blocks);
	if (c->fills != FAL_NONE)
		fal_put_fmt(out, ",\"fills\":[%u,%u]", l->contrib[c->fills].id.worker,
			    l->contrib[c->fills].id.seq);
	fal_put_fmt(out, "%s}", c->state == FAL_CONTRIB_FENCED ? ",\"fenced\":true" : "");
}

void
fal_ledger_json(const struct fal_ledger *l, struct fal_buf *out)
{
	static const char *const names[FAL_ENTRY_KINDS] = { "grant", "move", "clone",
							    "regrant", "lost" };
	for (int k = 0; k < FAL_ENTRY_KINDS; k++) {
		fal_put_fmt(out, "\"%s\":[", names[k]);
		for (size_t i = 0; i < l->log[k].n; i++) {
			const struct fal_entry *e = &l->log[k].v[i];
			fal_put_fmt(out, "%s[%u,", i > 0 ? "," : "", e->a);
			if (k == FAL_ENTRY_MOVE)
				fal_put_fmt(out, "%u,", e->b);
			fal_put_fmt(out, "%u,%u]", e->first, e->count);
		}
		fal_put_fmt(out, "],");
	}
	fal_put_fmt(out, "\"contrib\":[");
	for (uint32_t i = 0; i < l->contribs; i++) {
		fal_put_fmt(out, "%s", i > 0 ? "," : "");
		json_contrib(l, &l->contrib[i], out);
	}
	fal_put_fmt(out, "]");
}
