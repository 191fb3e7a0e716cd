/* The line of a round that has ended. */
#include "trace/writer.h"

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/parse.h"
#include "trace/member.h"

#include <stdlib.h>

/* What became of the round, and how stale it was. */
static void
put_end(struct fal_buf *b, const struct fal_line_ledger *d)
{
	static const char *const ends[] = { "applied", "dropped", "abandoned", "given" };
	static const char *const bases[] = { "version", "local", "rebase" };
	fal_member_str(b, FAL_F_END, ends[d->end]);
	if (d->end == FAL_ROUND_GIVEN)
		return;
	if (d->end != FAL_ROUND_APPLIED) {
		fal_member_str(b, FAL_F_WHY, d->why);
		return;
	}
	if (d->came > 0)
		fal_member_seconds(b, FAL_F_CAME, d->came);
	if (d->delta)
		fal_member_real(b, FAL_F_WEIGHT, d->weight);
	if (d->among > 0)
		fal_member_num(b, FAL_F_AMONG, d->among);
	if (d->divisor > 0)
		fal_member_real(b, FAL_F_DIVISOR, d->divisor);
	if (d->steps > 0) {
		fal_member_num(b, FAL_F_STEPS, d->steps);
		fal_member_str(b, FAL_F_BASE, bases[d->base]);
	}
	if (d->steps > 0 && d->base == FAL_START_REBASE)
		fal_member_num(b, FAL_F_SINCE, d->since);
	if (d->lr > 0)
		fal_member_real(b, FAL_F_LR, d->lr);
	fal_member_key(b, FAL_F_STALE, FAL_FIELD_OBJECT);
	fal_json_open(b, '{');
	fal_member_num(b, FAL_F_CLOCKS, d->clocks);
	fal_member_num(b, FAL_F_UPDATES, d->updates);
	if (d->rank > 0)
		fal_member_num(b, FAL_F_RANK, d->rank);
	fal_member_end(b);
	if (d->rank > 0)
		fal_member_num(b, FAL_F_SLOT, d->slot);
}

/* Was the worker granted anything of the round on another version than the round's? */
static bool
elsewhere(const struct fal_line_ledger *d, uint32_t worker)
{
	for (size_t i = 0; i < d->ons; i++)
		if (d->on[i].round == d->round && d->on[i].worker == worker &&
		    d->on[i].version != d->version)
			return true;
	return false;
}

/* What was granted to those who got any of it on another version than the round's. */
static void
put_on(struct fal_buf *b, const struct fal_line_ledger *d)
{
	bool any = false;
	for (size_t i = 0; i < d->ons; i++) {
		const struct fal_granted_on *on = &d->on[i];
		if (on->round != d->round || !elsewhere(d, on->worker))
			continue;
		if (!any)
			fal_member_list(b, FAL_F_ON);
		const uint64_t v[] = { on->worker, on->first, on->count, on->version };
		fal_member_row(b, 4, v);
		any = true;
	}
	if (any)
		fal_json_close(b, ']');
}

static int
by_task(const void *a, const void *b)
{
	uint32_t x = ((const struct fal_claim *)a)->task;
	uint32_t y = ((const struct fal_claim *)b)->task;
	return x < y ? -1 : x > y;
}

/* Claims, sorted, as ranges of tasks; and what each task gave. */
static void
put_claims(struct fal_buf *b, const struct fal_claim *v, uint32_t n, bool hashed)
{
	fal_member_list(b, FAL_F_TASK_LIST);
	for (uint32_t i = 0, count = 1; i < n; i += count, count = 1) {
		while (i + count < n && v[i + count].task == v[i].task + count)
			count++;
		const uint64_t row[] = { v[i].task, count };
		fal_member_row(b, 2, row);
	}
	fal_json_close(b, ']');
	if (!hashed)
		return;
	fal_member_list(b, FAL_F_HASHES);
	for (uint32_t i = 0; i < n; i++) {
		char hex[2 * FAL_CLAIM_HASH + 1];
		fal_hex(v[i].hash, FAL_CLAIM_HASH, hex);
		fal_json_str(b, hex);
	}
	fal_json_close(b, ']');
}

/* The tasks of a contribution.  A fenced one's list is what it had. */
static void
put_tasks(struct fal_buf *b, const struct fal_line_ledger *d, const struct fal_ledger *l,
	  const struct fal_contrib *c)
{
	struct fal_claim *v = fal_calloc(c->tasks, sizeof(*v));
	if (v == NULL) {
		b->err = FAL_ENOMEM;
		return;
	}
	uint32_t n = 0;
	for (uint32_t j = c->head; j != FAL_NONE; j = l->claim[j].next)
		v[n++] = l->claim[j];
	qsort(v, n, sizeof(*v), by_task);
	put_claims(b, v, n, d->hashed);
	free(v);
}

/* The tasks that count without a result, as sorted ranges. */
static void
put_skipped(struct fal_buf *b, const struct fal_ledger *l)
{
	if (l->skipped == 0)
		return;
	fal_member_list(b, FAL_F_SKIPPED);
	for (uint32_t i = 0, count = 1; i < l->tasks; i += count, count = 1) {
		if (!l->task[i].skipped)
			continue;
		while (i + count < l->tasks && l->task[i + count].skipped)
			count++;
		const uint64_t v[] = { l->first + i, count };
		fal_member_row(b, 2, v);
	}
	fal_json_close(b, ']');
}

/* Claims that were drawn for another key, and how they came out there. */
static void
put_verified(struct fal_buf *b, const struct fal_ledger *l)
{
	const uint64_t v[] = { l->asked, l->equal, l->unlike };
	if (l->asked == 0)
		return;
	fal_member_key(b, FAL_F_VERIFIED, FAL_FIELD_TUPLE);
	fal_member_row(b, 3, v);
}

static void
put_contrib(struct fal_buf *b, const struct fal_line_ledger *d,
	    const struct fal_ledger *l, uint32_t i)
{
	const struct fal_contrib *c = &l->contrib[i];
	fal_json_open(b, '{');
	fal_member_pair(b, FAL_F_C, c->id.worker, c->id.seq);
	put_tasks(b, d, l, c);
	fal_member_num(b, FAL_F_BLOCKS, c->blocks);
	if (c->fills != FAL_NONE)
		fal_member_pair(b, FAL_F_FILLS, l->contrib[c->fills].id.worker,
				l->contrib[c->fills].id.seq);
	if (c->state == FAL_CONTRIB_FENCED) {
		fal_member_key(b, FAL_F_FENCED, FAL_FIELD_FLAG);
		fal_json_bool(b, true);
	}
	if (d->sums)
		fal_member_hex64(b, FAL_F_SUM, i < d->n_sums ? d->sum[i] : 0);
	fal_member_end(b);
}

/* What was granted, moved, cloned, granted again, lost and skipped, and the
 * contributions. */
static void
put_ledger(struct fal_buf *b, const struct fal_line_ledger *d, const struct fal_ledger *l)
{
	static const enum fal_field names[FAL_ENTRY_KINDS] = {
		[FAL_ENTRY_GRANT] = FAL_F_GRANT,
		[FAL_ENTRY_MOVE] = FAL_F_MOVE,
		[FAL_ENTRY_CLONE] = FAL_F_CLONE,
		[FAL_ENTRY_REGRANT] = FAL_F_REGRANT,
		[FAL_ENTRY_LOST] = FAL_F_LOST_LIST
	};
	for (int k = 0; k < FAL_ENTRY_KINDS; k++) {
		fal_member_list(b, names[k]);
		for (size_t i = 0; i < l->log[k].n; i++) {
			const struct fal_entry *e = &l->log[k].v[i];
			const uint64_t move[] = { e->a, e->b, e->first, e->count };
			const uint64_t v[] = { e->a, e->first, e->count };
			if (k == FAL_ENTRY_MOVE)
				fal_member_row(b, 4, move);
			else
				fal_member_row(b, 3, v);
		}
		fal_json_close(b, ']');
	}
	put_skipped(b, l);
	put_verified(b, l);
	fal_member_list(b, FAL_F_CONTRIB);
	for (uint32_t i = 0; i < l->contribs; i++)
		put_contrib(b, d, l, i);
	fal_json_close(b, ']');
}

void
fal_line_ledger(struct fal_buf *b, const struct fal_line_ledger *d,
		const struct fal_ledger *l)
{
	fal_member_begin(b, d->t, "ledger");
	fal_member_num(b, FAL_F_ROUND, d->round);
	fal_member_num(b, FAL_F_CLOCK, d->clock);
	fal_member_num(b, FAL_F_FIRST, d->first);
	fal_member_num(b, FAL_F_TASKS, l->tasks);
	fal_member_num(b, FAL_F_SAMPLES, d->samples);
	fal_member_num(b, FAL_F_VERSION, d->version);
	fal_member_num(b, FAL_F_BLOCKS, d->blocks);
	fal_member_str(b, FAL_F_KIND, d->delta ? "delta" : "grad");
	if (d->owner != 0)
		fal_member_num(b, FAL_F_OWNER, d->owner);
	if (d->group != 0)
		fal_member_num(b, FAL_F_GROUP, d->group);
	if (d->local != 0)
		fal_member_num(b, FAL_F_LOCAL, d->local);
	put_end(b, d);
	put_ledger(b, d, l);
	put_on(b, d);
	if (d->sums) {
		fal_member_hex64(b, FAL_F_SEED, d->seed);
		fal_member_hex64(b, FAL_F_ADDED, d->added);
	}
	fal_member_end(b);
}
