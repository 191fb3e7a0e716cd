/* Writes lines of a trace by the table of schema.h, and makes the lines of a map of
 * blocks, a worker's clock, a round and a version from the structs of their owners. */
#include "trace/writer.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/parse.h"
#include "crypto/hash.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- members -------------------------------------------------------------------------
 */

/* Puts an array of n numbers, or of n arrays of `width` > 0 numbers. */
static void
put_rows(struct fal_buf *b, size_t n, size_t width, const uint64_t *whole,
	 const double *real)
{
	const size_t each = width > 0 ? width : 1;
	fal_json_open(b, '[');
	for (size_t i = 0; i < n * each; i++) {
		if (width > 0 && i % each == 0)
			fal_json_open(b, '[');
		if (whole != NULL)
			fal_json_u64(b, whole[i]);
		else
			fal_json_num(b, real[i]);
		if (width > 0 && i % each == each - 1)
			fal_json_close(b, ']');
	}
	fal_json_close(b, ']');
}

static void put_record(struct fal_buf *b, const struct fal_schema *r, const void *from);

static void
put_list(struct fal_buf *b, const struct fal_member *m, const void *at)
{
	struct fal_trace_list list;
	memcpy(&list, at, sizeof(list)); /* all pointers have one representation */
	const uint8_t *v = list.v;
	fal_json_open(b, '[');
	for (size_t i = 0; i < list.n; i++) {
		if (m->kind == FAL_M_HEXES) {
			fal_json_str(b, ((const char *const *)list.v)[i]);
			continue;
		}
		fal_json_open(b, '{');
		put_record(b, m->of(), v + i * m->of()->size);
		fal_json_close(b, '}');
	}
	fal_json_close(b, ']');
}

/* Returns whether a MAY or OPT member is absent. */
static bool
member_is_absent(const struct fal_member *m, const void *at)
{
	const bool may = m->when == FAL_MAY;
	struct fal_trace_list list;
	const void *p;
	switch (m->kind) {
	case FAL_M_WHOLE:
		return *(const uint64_t *)at == (may ? 0 : FAL_TRACE_ABSENT);
	case FAL_M_ID:
	case FAL_M_WORD:
		return *(const uint32_t *)at == 0;
	case FAL_M_REAL:
	case FAL_M_LOSS:
	case FAL_M_SECONDS:
		return may ? !(*(const double *)at > 0) : isnan(*(const double *)at);
	case FAL_M_FLAG:
		return !*(const bool *)at;
	case FAL_M_WORD64:
		return !((const struct fal_hex64 *)at)->is;
	case FAL_M_TEXT:
	case FAL_M_HEX:
	case FAL_M_OBJECT:
	case FAL_M_JSON:
		memcpy(&p, at, sizeof(p)); /* as above */
		return p == NULL;
	default:
		memcpy(&list, at, sizeof(list));
		return list.n == 0;
	}
}

static void
put_member(struct fal_buf *b, const struct fal_member *m, const void *at)
{
	const struct fal_numbers *rows = at;
	const struct fal_reals *reals = at;
	const struct fal_json_text *json = at;
	const char *word = m->words;
	const void *object;
	char text[17];
	fal_json_key(b, m->name);
	switch (m->kind) {
	case FAL_M_WHOLE:
		fal_json_u64(b, *(const uint64_t *)at);
		break;
	case FAL_M_ID:
		fal_json_u64(b, *(const uint32_t *)at);
		break;
	case FAL_M_REAL:
	case FAL_M_LOSS:
		fal_json_num(b, *(const double *)at);
		break;
	case FAL_M_SECONDS:
		fal_json_fixed(b, *(const double *)at, 6);
		break;
	case FAL_M_FLAG:
		fal_json_bool(b, true);
		break;
	case FAL_M_TEXT:
	case FAL_M_HEX:
		fal_json_str(b, *(const char *const *)at);
		break;
	case FAL_M_WORD:
		for (uint32_t i = *(const uint32_t *)at; i > 0; i--)
			word = strchr(word, ' ') + 1;
		snprintf(text, sizeof(text), "%.*s", (int)strcspn(word, " "), word);
		fal_json_str(b, text);
		break;
	case FAL_M_WORD64:
		snprintf(text, sizeof(text), "%016" PRIx64,
			 ((const struct fal_hex64 *)at)->v);
		fal_json_str(b, text);
		break;
	case FAL_M_TUPLE:
		put_rows(b, rows->n, 0, rows->v, NULL);
		break;
	case FAL_M_ROWS:
		put_rows(b, rows->n, (size_t)m->arg, rows->v, NULL);
		break;
	case FAL_M_REALS:
		put_rows(b, reals->n, (size_t)m->arg, NULL, reals->v);
		break;
	case FAL_M_HEXES:
	case FAL_M_LIST:
		put_list(b, m, at);
		break;
	case FAL_M_OBJECT:
		memcpy(&object, at, sizeof(object));
		fal_json_open(b, '{');
		put_record(b, m->of(), object);
		fal_json_close(b, '}');
		break;
	case FAL_M_JSON:
		fal_put_bytes(b, json->p, json->n);
		break;
	}
}

static void
put_record(struct fal_buf *b, const struct fal_schema *r, const void *from)
{
	for (size_t i = 0; i < r->members; i++) {
		const struct fal_member *m = &r->member[i];
		const void *at = (const uint8_t *)from + m->at;
		if (m->when == FAL_MUST || !member_is_absent(m, at))
			put_member(b, m, at);
	}
}

void
fal_trace_put(struct fal_buf *b, double t, enum fal_event ev, const void *line)
{
	const struct fal_schema *r = fal_event_schema(ev);
	fal_buf_clear(b);
	fal_put_fmt(b, "{\"t\":%.6f,\"ev\":\"%s\"", t < 0 ? 0 : t, r->name);
	put_record(b, r, line);
	fal_json_close(b, '}');
}

/* ---- place, clock --------------------------------------------------------------------
 */

void
fal_line_place(struct fal_buf *b, double t, const struct fal_line_place *d)
{
	uint64_t *v = fal_xcalloc(3 * (size_t)d->blocks, sizeof(*v));
	size_t runs = 0;
	for (uint32_t i = 0, end = 0; i < d->blocks; i = end, runs++) {
		while (end < d->blocks && d->shard[end] == d->shard[i])
			end++;
		v[3 * runs] = (uint64_t)d->shard[i] + 1;
		v[3 * runs + 1] = i;
		v[3 * runs + 2] = end - i;
	}
	const struct fal_ev_place e = {
		.map = d->map,
		.rule = d->rule,
		.by = d->by,
		.took = d->by != NULL ? d->took : (double)NAN,
		.shards = d->shards,
		.places = d->places > d->shards ? d->places : 0,
		.runs = { v, runs },
	};
	fal_trace_put(b, t, FAL_EV_PLACE, &e);
	free(v);
}

void
fal_line_clock(struct fal_buf *b, double t, const struct fal_work *w,
	       struct fal_ev_clock *e)
{
	uint64_t paces[3 * FAL_WORK_PACES];
	double sum = 0;
	uint32_t tasks = 0;
	for (uint32_t i = 0; i < w->paces; i++) {
		const double us = 1e6 * w->pace[i].seconds / w->pace[i].tasks;
		sum += w->pace[i].seconds;
		tasks += w->pace[i].tasks;
		e->samples += w->pace[i].samples;
		paces[3 * i] = w->pace[i].tasks;
		paces[3 * i + 1] = us > 0 ? (uint64_t)nearbyint(us) : 0;
		paces[3 * i + 2] = w->pace[i].samples;
	}
	e->share = w->share;
	e->done = w->done;
	e->in = w->in;
	e->out = w->out;
	e->cloned = w->cloned;
	e->lost = w->lost;
	e->task_s = tasks > 0 ? sum / tasks : 0;
	e->paces = (struct fal_numbers){ paces, w->paces > 1 ? w->paces : 0 };
	e->cut = w->cut.tasks;
	e->cut_s = w->cut.tasks > 0 ? w->cut.seconds : (double)NAN;
	e->staleness = w->stale_updates;
	fal_trace_put(b, t, FAL_EV_CLOCK, e);
}

/* ---- rounds --------------------------------------------------------------------------
 */

/* Memory of a ledger line: numbers in the order of the line, contributions, hashes. */
struct line_memory {
	uint64_t *v;
	struct fal_ev_contrib *contrib;
	char (*hex)[2 * FAL_CLAIM_HASH + 1];
	const char **hash;
	struct fal_claim *claim; /* scratch */
	size_t used, hashes;
};

/* Appends n numbers to the rows, and returns their place. */
static uint64_t *
line_take(struct line_memory *s, size_t n)
{
	s->used += n;
	return s->v + s->used - n;
}

/* Returns the entries of the log as rows [worker, first, count] or, of moves, [from, to,
 * first, count]. */
static struct fal_numbers
line_rows_of(struct line_memory *s, const struct fal_ledger *l, int kind)
{
	const struct fal_numbers rows = { s->v + s->used, l->log[kind].n };
	for (size_t i = 0; i < rows.n; i++) {
		const struct fal_entry *e = &l->log[kind].v[i];
		*line_take(s, 1) = e->a;
		if (kind == FAL_ENTRY_MOVE)
			*line_take(s, 1) = e->b;
		*line_take(s, 1) = e->first;
		*line_take(s, 1) = e->count;
	}
	return rows;
}

/* Adds a task to rows [first, count]; the rows have no later task. */
static void
line_add_task(struct line_memory *s, struct fal_numbers *rows, uint64_t task)
{
	uint64_t *last = s->v + s->used - 2;
	if (rows->n > 0 && last[0] + last[1] == task) {
		last[1]++;
		return;
	}
	uint64_t *v = line_take(s, 2);
	v[0] = task;
	v[1] = 1;
	rows->n++;
}

static int
claim_order(const void *a, const void *b)
{
	uint32_t x = ((const struct fal_claim *)a)->task;
	uint32_t y = ((const struct fal_claim *)b)->task;
	return x < y ? -1 : x > y;
}

static void
line_add_contrib(struct line_memory *s, const struct fal_line_ledger *d,
		 const struct fal_ledger *l, uint32_t i)
{
	const struct fal_contrib *c = &l->contrib[i];
	struct fal_ev_contrib *e = &s->contrib[i];
	uint64_t *key = line_take(s, 4);
	uint32_t n = 0;
	*e = (struct fal_ev_contrib){ .c = { key, 2 },
				      .blocks = c->blocks,
				      .fenced = c->state == FAL_CONTRIB_FENCED };
	key[0] = c->id.worker;
	key[1] = c->id.seq;
	if (c->fills != FAL_NONE) {
		key[2] = l->contrib[c->fills].id.worker;
		key[3] = l->contrib[c->fills].id.seq;
		e->fills = (struct fal_numbers){ key + 2, 2 };
	}
	if (d->sums)
		e->sum = (struct fal_hex64){ true, i < d->n_sums ? d->sum[i] : 0 };
	/* The list of a fenced contribution still has its claims. */
	for (uint32_t j = c->head; j != FAL_NONE; j = l->claim[j].next)
		s->claim[n++] = l->claim[j];
	qsort(s->claim, n, sizeof(*s->claim), claim_order);
	e->tasks.v = s->v + s->used;
	for (uint32_t j = 0; j < n; j++)
		line_add_task(s, &e->tasks, s->claim[j].task);
	if (!d->hashed)
		return;
	e->hashes = (struct fal_strings){ s->hash + s->hashes, n };
	for (uint32_t j = 0; j < n; j++, s->hashes++) {
		fal_hex(s->claim[j].hash, FAL_CLAIM_HASH, s->hex[s->hashes]);
		s->hash[s->hashes] = s->hex[s->hashes];
	}
}

void
fal_line_ledger(struct fal_buf *b, double t, const struct fal_line_ledger *d,
		const struct fal_ledger *l, struct fal_ev_ledger *e)
{
	const uint64_t verified[] = { l->asked, l->equal, l->unlike };
	size_t n = 4 * d->ons + 2 * (size_t)l->tasks, claims = 0;
	for (int k = 0; k < FAL_ENTRY_KINDS; k++)
		n += 4 * l->log[k].n;
	for (uint32_t i = 0; i < l->contribs; i++)
		claims += l->contrib[i].tasks;
	n += 4 * (size_t)l->contribs + 2 * claims;
	struct line_memory s = {
		.v = fal_xcalloc(n + 1, sizeof(*s.v)),
		.contrib = fal_xcalloc(l->contribs + (size_t)1, sizeof(*s.contrib)),
		.hex = fal_xcalloc(claims + 1, sizeof(*s.hex)),
		.hash = fal_xcalloc(claims + 1, sizeof(*s.hash)),
		.claim = fal_xcalloc(claims + 1, sizeof(*s.claim)),
	};
	e->tasks = l->tasks;
	e->verified = (struct fal_numbers){ verified, l->asked > 0 ? 3 : 0 };
	e->seed = (struct fal_hex64){ d->sums, d->seed };
	e->added = (struct fal_hex64){ d->sums, d->added };
	e->grant = line_rows_of(&s, l, FAL_ENTRY_GRANT);
	e->move = line_rows_of(&s, l, FAL_ENTRY_MOVE);
	e->clone = line_rows_of(&s, l, FAL_ENTRY_CLONE);
	e->regrant = line_rows_of(&s, l, FAL_ENTRY_REGRANT);
	e->lost = line_rows_of(&s, l, FAL_ENTRY_LOST);
	e->skipped = (struct fal_numbers){ s.v + s.used, 0 };
	for (uint32_t i = 0; i < l->tasks && l->skipped > 0; i++)
		if (l->task[i].skipped)
			line_add_task(&s, &e->skipped, (uint64_t)l->first + i);
	for (uint32_t i = 0; i < l->contribs; i++)
		line_add_contrib(&s, d, l, i);
	e->contrib.v = s.contrib;
	e->contrib.n = l->contribs;
	/* All grants of each worker with a grant on another version than the round's. */
	e->on = (struct fal_numbers){ s.v + s.used, 0 };
	for (size_t i = 0; i < d->ons; i++) {
		const struct fal_granted_on *on = &d->on[i];
		size_t other = 0; /* a grant of the worker on another version */
		while (other < d->ons && (d->on[other].round != e->round ||
					  d->on[other].worker != on->worker ||
					  d->on[other].version == e->version))
			other++;
		if (on->round != e->round || other == d->ons)
			continue;
		*line_take(&s, 1) = on->worker;
		*line_take(&s, 1) = on->first;
		*line_take(&s, 1) = on->count;
		*line_take(&s, 1) = on->version;
		e->on.n++;
	}
	assert(s.used <= n && s.hashes <= claims);
	fal_trace_put(b, t, FAL_EV_LEDGER, e);
	free(s.v);
	free(s.contrib);
	free(s.hex);
	free(s.hash);
	free(s.claim);
}

void
fal_line_update(struct fal_buf *b, double t, const struct fal_line_update *d,
		struct fal_ev_update *e)
{
	char hash[2 * FAL_HASH_BYTES + 1], exponents[sizeof(hash)];
	double *pushes = fal_xcalloc(2 * d->pushes + 1, sizeof(*pushes));
	const double outer[] = { d->outer, d->momentum };
	e->among = FAL_TRACE_ABSENT;
	/* Pushed branches: one, weighted by its share of the workers; or, with a quorum,
	 * several, each weighted by its samples. */
	if (d->pushes > 0 && e->groups == 0) {
		e->weight = d->push->weight;
		e->among = d->push->among;
	} else if (d->pushes > 0) {
		for (size_t i = 0; i < d->pushes; i++) {
			pushes[2 * i] = d->push[i].group;
			pushes[2 * i + 1] = d->push[i].weight;
		}
		e->pushes = (struct fal_reals){ pushes, d->pushes };
		e->outer = (struct fal_reals){ outer, 2 };
	}
	if (d->hash != NULL) {
		fal_hex(d->hash, FAL_HASH_BYTES, hash);
		fal_hex(d->exponents, FAL_HASH_BYTES, exponents);
		e->hash = hash;
		e->exponents = exponents;
	}
	fal_trace_put(b, t, FAL_EV_UPDATE, e);
	free(pushes);
}
