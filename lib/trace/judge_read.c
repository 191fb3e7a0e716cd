/* The arrays of a ledger line. */
#include "trace/judge_priv.h"

#include "base/mem.h"
#include "base/parse.h"
#include "sched/ledger.h"

#include <stdlib.h>
#include <string.h>

/* Unrolls [first, count]; `e` is the event without its task.  Returns the tasks. */
static uint64_t
unroll(struct ledger *g, enum fal_field key, uint64_t first, uint64_t count,
       struct event e)
{
	if (g->l->err != 0)
		return 0;
	if (count == 0 || count > FAL_JUDGE_EVENTS_MAX - g->n_ev) {
		fal_trace_fail(g->l, count == 0 ? FAL_EFORMAT : FAL_ELIMIT,
			       "%s: %llu tasks", fal_field_name(key),
			       (unsigned long long)count);
		return 0;
	}
	if (first < g->r->first || first - g->r->first >= g->r->tasks ||
	    count > g->r->tasks - (first - g->r->first)) {
		fal_finding(g->f, g->r, first, count, "%s: it has tasks %llu-%llu",
			    fal_field_name(key), (unsigned long long)g->r->first,
			    (unsigned long long)(g->r->first + g->r->tasks - 1));
		return 0;
	}
	if (FAL_GROW(g->ev, g->cap_ev, g->n_ev + count) < 0) {
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
known(struct ledger *g, enum fal_field key, uint64_t id, uint64_t first, uint64_t count)
{
	if (g->l->err != 0)
		return false;
	if (id <= UINT32_MAX && fal_ids_get(g->env->ids, (uint32_t)id) != NULL)
		return true;
	fal_finding(g->f, g->r, first, count, "%s: worker %llu never joined",
		    fal_field_name(key), (unsigned long long)id);
	return false;
}

/* Reads an array of [id, first, count]; returns the tasks in it. */
static uint64_t
read_ranges(struct ledger *g, enum fal_field key, enum what what)
{
	uint64_t sum = 0, v[3];
	size_t n = fal_trace_get_len(g->l, g->l->o, key);
	for (size_t i = 0; i < n && g->l->err == 0; i++) {
		fal_trace_get_row(g->l, g->l->o, key, i, 3, v);
		if (what == GRANT && g->r->has_owner && g->l->err == 0 &&
		    v[0] != g->r->owner)
			fal_finding(g->f, g->r, v[1], v[2],
				    "granted to worker %llu, but it is worker %u's",
				    (unsigned long long)v[0], g->r->owner);
		if (known(g, key, v[0], v[1], v[2]))
			sum += unroll(g, key, v[1], v[2],
				      (struct event){ .a = (uint32_t)v[0],
						      .what = what });
	}
	return sum;
}

/* Reads the array of [from, to, first, count]; returns the tasks in it. */
static uint64_t
read_moves(struct ledger *g)
{
	uint64_t sum = 0, v[4];
	size_t n = fal_trace_get_len(g->l, g->l->o, FAL_F_MOVE);
	for (size_t i = 0; i < n && g->l->err == 0; i++) {
		fal_trace_get_row(g->l, g->l->o, FAL_F_MOVE, i, 4, v);
		if (known(g, FAL_F_MOVE, v[0], v[2], v[3]) &&
		    known(g, FAL_F_MOVE, v[1], v[2], v[3]))
			sum += unroll(g, FAL_F_MOVE, v[2], v[3],
				      (struct event){ .a = (uint32_t)v[0],
						      .b = (uint32_t)v[1],
						      .what = MOVE });
	}
	return sum;
}

/* Reads the array of [first, count]. */
static void
read_skipped(struct ledger *g)
{
	uint64_t v[2] = { 0 };
	if (!fal_trace_has(g->l->o, FAL_F_SKIPPED))
		return;
	const size_t n = fal_trace_get_len(g->l, g->l->o, FAL_F_SKIPPED);
	for (size_t i = 0; i < n && g->l->err == 0; i++) {
		fal_trace_get_row(g->l, g->l->o, FAL_F_SKIPPED, i, 2, v);
		g->skipped += unroll(g, FAL_F_SKIPPED, v[0], v[1],
				     (struct event){ .what = SKIPPED });
	}
	if (n > 0 && g->l->err == 0 && !g->env->job->skips)
		fal_finding(g->f, g->r, v[0], v[1],
			    "skipped, but the job does not say so");
}

static int
key_order(const struct contrib *a, const struct contrib *b)
{
	if (a->id != b->id)
		return a->id < b->id ? -1 : 1;
	return a->seq < b->seq ? -1 : a->seq > b->seq;
}

/* The place in by_key of the first of the n sorted contributions that is not before c. */
static size_t
place(const struct ledger *g, const struct contrib *c, size_t n)
{
	size_t lo = 0, hi = n;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (key_order(&g->c[g->by_key[mid]], c) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* The contribution of this key among the first n, or NO_CONTRIB. */
static size_t
find(const struct ledger *g, const struct contrib *key, size_t n)
{
	size_t at = place(g, key, n);
	if (at < n && key_order(&g->c[g->by_key[at]], key) == 0)
		return g->by_key[at];
	return NO_CONTRIB;
}

/* Resolves what contribution i fills and judges its blocks. */
static void
judge_blocks(struct ledger *g, size_t i, const uint64_t *fills)
{
	struct contrib *c = &g->c[i];
	const uint64_t B = g->env->job->blocks;
	if (fills != NULL) {
		struct contrib key = { .id = (uint32_t)fills[0],
				       .seq = (uint32_t)fills[1] };
		c->fills = find(g, &key, i);
		if (c->fills == NO_CONTRIB) {
			fal_finding(
				g->f, g->r, c->first, c->count,
				"contribution %u.%u fills %u.%u, which is not before it",
				c->id, c->seq, key.id, key.seq);
			return;
		}
		const struct contrib *d = &g->c[c->fills];
		c->inherited = d->inherited + d->blocks;
		if (!d->fenced)
			fal_finding(
				g->f, g->r, c->first, c->count,
				"contribution %u.%u fills %u.%u, which was not fenced",
				c->id, c->seq, d->id, d->seq);
	}
	uint64_t sum = c->inherited + c->blocks;
	if (sum > B || (sum < B && !c->fenced && fal_trace_round_whole(g->r)))
		fal_finding(g->f, g->r, c->first, c->count,
			    "contribution %u.%u: %llu of %llu blocks were added", c->id,
			    c->seq, (unsigned long long)sum, (unsigned long long)B);
	if (sum > B) /* keeps later sums small */
		c->blocks = B > c->inherited ? B - c->inherited : 0;
}

/* Does each of its tasks have a hash?  Traces of before have none at all. */
static void
read_hashes(struct ledger *g, const struct contrib *c, const json_t *o)
{
	const size_t n = fal_trace_has(o, FAL_F_HASHES)
				 ? fal_trace_get_len(g->l, o, FAL_F_HASHES)
				 : c->tasks;
	const json_t *all = fal_trace_at(o, FAL_F_HASHES), *v;
	uint8_t hash[FAL_CLAIM_HASH];
	size_t i, odd = 0;
	json_array_foreach(all, i, v) odd +=
		!json_is_string(v) ||
		fal_unhex(json_string_value(v), sizeof(hash), hash) < 0;
	if (g->l->err == 0 && odd > 0)
		fal_trace_fail(g->l, FAL_EFORMAT, "hashes: %zu that are none", odd);
	if (g->l->err == 0 && n != c->tasks)
		fal_finding(g->f, g->r, c->first, c->count,
			    "contribution %u.%u: %zu hashes of %llu tasks", c->id, c->seq,
			    n, (unsigned long long)c->tasks);
}

/* Reads contribution i; returns its tasks. */
static void
read_contrib(struct ledger *g, size_t i)
{
	struct fal_trace_line *l = g->l;
	struct contrib *c = &g->c[i];
	const json_t *o = json_array_get(fal_trace_at(l->o, FAL_F_CONTRIB), i);
	uint64_t key[2], fills[2], v[2];
	fal_trace_get_tuple(l, o, FAL_F_C, 2, key);
	c->blocks = fal_trace_get_u64(l, o, FAL_F_BLOCKS, FAL_TRACE_BLOCKS_MAX);
	c->fenced = fal_trace_get_flag(l, o, FAL_F_FENCED);
	bool is_fill = fal_trace_has(o, FAL_F_FILLS);
	if (is_fill)
		fal_trace_get_tuple(l, o, FAL_F_FILLS, 2, fills);
	else
		fills[0] = fills[1] = 0;
	if (l->err == 0 && (key[0] > UINT32_MAX || key[1] > UINT32_MAX ||
			    fills[0] > UINT32_MAX || fills[1] > UINT32_MAX))
		fal_trace_fail(l, FAL_ELIMIT, "contrib: not a key");
	c->id = (uint32_t)key[0];
	c->seq = (uint32_t)key[1];
	c->fills = NO_CONTRIB;
	size_t n = fal_trace_get_len(l, o, FAL_F_TASK_LIST);
	if (n == 0)
		fal_trace_fail(l, FAL_EFORMAT, "tasks: empty");
	for (size_t k = 0; k < n && l->err == 0; k++) {
		fal_trace_get_row(l, o, FAL_F_TASK_LIST, k, 2, v);
		if (k == 0) {
			c->first = v[0];
			c->count = v[1];
		}
		c->tasks += unroll(g, FAL_F_CONTRIB, v[0], v[1],
				   (struct event){ .a = (uint32_t)i, .what = ADDED });
	}
	if (l->err != 0)
		return;
	if (find(g, c, i) != NO_CONTRIB)
		fal_finding(g->f, g->r, c->first, c->count,
			    "contribution %u.%u is there twice", c->id, c->seq);
	known(g, FAL_F_CONTRIB, c->id, c->first, c->count);
	read_hashes(g, c, o);
	if (g->sums)
		g->sum += strtoull(fal_trace_get_hex(l, o, FAL_F_SUM, 16), NULL, 16);
	judge_blocks(g, i, is_fill ? fills : NULL);
	size_t at = place(g, c, i);
	memmove(&g->by_key[at + 1], &g->by_key[at], (i - at) * sizeof(*g->by_key));
	g->by_key[at] = i;
}

static void
read_contribs(struct ledger *g)
{
	size_t n = fal_trace_get_len(g->l, g->l->o, FAL_F_CONTRIB);
	if (n > FAL_JUDGE_CONTRIBS_MAX) {
		fal_trace_fail(g->l, FAL_ELIMIT, "contrib: more than %zu",
			       FAL_JUDGE_CONTRIBS_MAX);
		return;
	}
	g->c = fal_calloc(n, sizeof(*g->c));
	g->by_key = fal_calloc(n + 1, sizeof(*g->by_key));
	if (g->c == NULL || g->by_key == NULL) {
		fal_trace_fail(g->l, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
		return;
	}
	for (; g->n_c < n && g->l->err == 0; g->n_c++)
		read_contrib(g, g->n_c);
}

void
judge_read(struct ledger *g, struct fal_judge_sums *sums)
{
	read_ranges(g, FAL_F_GRANT, GRANT);
	read_ranges(g, FAL_F_REGRANT, REGRANT);
	sums->cloned += read_ranges(g, FAL_F_CLONE, CLONE);
	sums->moved += read_moves(g);
	sums->dropped += read_ranges(g, FAL_F_LOST_LIST, LOST);
	read_skipped(g);
	uint64_t verified[3];
	(void)fal_trace_get_verified(g->l, verified);
	read_contribs(g);
}
