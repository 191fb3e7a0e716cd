/* Reading the course of a run. */
#include "course.h"

#include "base/err.h"
#include "base/json_load.h"
#include "base/mem.h"
#include "base/parse.h"
#include "sched/traits.h"
#include "trace/round.h"
#include "trace/scheme.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct course_worker *
course_worker(const struct course *c, uint64_t id)
{
	const size_t *at = id <= UINT32_MAX ? fal_ids_get(&c->ids, (uint32_t)id) : NULL;
	return at != NULL ? &c->worker[*at] : NULL;
}

/* The clock, made if it is new; NULL: out of memory, or the job has none such. */
static struct course_clock *
clock_at(struct course *c, struct fal_trace_line *l, uint64_t clock)
{
	if (clock >= c->job.clocks) {
		fal_trace_fail(l, FAL_EINVAL, "clock: %llu", (unsigned long long)clock);
		return NULL;
	}
	if (FAL_GROW(c->clock, c->clock_cap, (size_t)clock + 1) < 0) {
		fal_trace_fail(l, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
		return NULL;
	}
	for (; c->clocks <= clock; c->clocks++)
		c->clock[c->clocks] = (struct course_clock){ .why = COURSE_UNTOLD };
	return &c->clock[clock];
}

/* The text of the line, if it has one. */
static void
tell(struct fal_trace_line *l, enum fal_field key, char out[static 65])
{
	if (fal_trace_has(l->o, key))
		snprintf(out, 65, "%s", fal_trace_get_str(l, l->o, key));
}

static int
take_scheme(struct course *c, struct fal_trace_line *l)
{
	struct fal_rule rule;
	if (fal_trace_scheme_read(l, fal_trace_get_str(l, l->o, FAL_F_SCHEME), &rule) < 0)
		return l->err;
	c->lawful = fal_rule_traits(&rule).law;
	c->scheme = fal_scheme_name(rule.scheme);
	return FAL_OK;
}

static int
take_job(struct course *c, struct fal_trace_line *l)
{
	tell(l, FAL_F_HASH, c->hash);
	return take_scheme(c, l) < 0 ? l->err : fal_trace_job_read(l, &c->job);
}

/* The job may have more epochs by now. */
static int
take_restart(struct course *c, struct fal_trace_line *l)
{
	tell(l, FAL_F_HASH, c->hash);
	c->parts |= fal_trace_has(l->o, FAL_F_ACCEPTED);
	return fal_trace_job_restart(l, &c->job);
}

/* A copy of the text, if the line has it; else NULL. */
static char *
copy(struct fal_trace_line *l, enum fal_field key)
{
	if (!fal_trace_has(l->o, key))
		return NULL;
	char *own = fal_strdup(fal_trace_get_str(l, l->o, key));
	if (own == NULL)
		fal_trace_fail(l, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
	return own;
}

/* The place, and 1, of a fingerprint of numerics. */
static size_t
print_of(struct course *c, struct fal_trace_line *l)
{
	const char *text = fal_trace_get_str(l, l->o, FAL_F_FINGERPRINT);
	size_t i = 0;
	while (i < c->prints && strcmp(c->print[i], text) != 0)
		i++;
	if (i < c->prints)
		return i + 1;
	char *own = fal_strdup(text);
	if (own == NULL || FAL_GROW(c->print, c->print_cap, c->prints + 1) < 0) {
		free(own);
		fal_trace_fail(l, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
		return 0;
	}
	c->print[c->prints++] = own;
	return c->prints;
}

static int
take_join(struct course *c, struct fal_trace_line *l)
{
	const uint64_t id = fal_trace_get_u64(l, l->o, FAL_F_ID, UINT32_MAX);
	if (l->err != 0 || course_worker(c, id) != NULL)
		return l->err;
	if (FAL_GROW(c->worker, c->worker_cap, c->workers + 1) < 0 ||
	    fal_ids_put(&c->ids, (uint32_t)id, c->workers) < 0)
		return FAL_ENOMEM;
	c->worker[c->workers++] =
		(struct course_worker){ .name = copy(l, FAL_F_WORKER),
					.key = copy(l, FAL_F_KEY),
					.key_fingerprint = copy(l, FAL_F_KEY_FINGERPRINT),
					.print = print_of(c, l) };
	return l->err;
}

/* Who made the clock has which numerics? */
static void
take_makers(struct course *c, struct fal_trace_line *l, struct course_clock *at)
{
	const json_t *all = fal_trace_at(l->o, FAL_F_CONTRIB);
	const size_t n = fal_trace_get_len(l, l->o, FAL_F_CONTRIB);
	for (size_t i = 0; i < n && l->err == 0; i++) {
		uint64_t id[2];
		fal_trace_get_tuple(l, json_array_get(all, i), FAL_F_C, 2, id);
		const struct course_worker *w = course_worker(c, id[0]);
		const size_t print = w != NULL ? w->print : 0;
		if (at->print == 0)
			at->print = print;
		else if (at->print != print && at->why == COURSE_MAY)
			at->why = COURSE_MIXED;
	}
}

static int
keep_line(struct course_clock *at, const struct fal_trace_line *l)
{
	json_t *own = fal_json_copy(l->o);
	if (own == NULL || FAL_GROW(at->line, at->line_cap, at->lines + 1) < 0) {
		json_decref(own);
		return FAL_ENOMEM;
	}
	at->line[at->lines++] = own;
	return FAL_OK;
}

static int
take_ledger(struct course *c, struct fal_trace_line *l)
{
	struct fal_trace_round r;
	if (fal_trace_round_read(l, &r) < 0)
		return l->err;
	struct course_clock *at = clock_at(c, l, r.clock);
	if (at == NULL || r.end == FAL_TRACE_ABANDONED)
		return l->err;
	if (c->again)
		return at->want ? keep_line(at, l) : FAL_OK;
	if (at->why == COURSE_UNTOLD)
		at->why = c->lawful ? COURSE_MAY : COURSE_UNLAWFUL;
	for (size_t i = 0; i < c->boundeds; i++)
		if (c->bounded[i] == r.round && at->why == COURSE_MAY)
			at->why = COURSE_BOUNDED;
	at->scheme = c->scheme;
	at->on = r.version;
	take_makers(c, l, at);
	return l->err;
}

static bool
get_hash(struct fal_trace_line *l, enum fal_field key, uint8_t out[static FAL_HASH_BYTES])
{
	return fal_trace_has(l->o, key) &&
	       fal_unhex(fal_trace_get_str(l, l->o, key), FAL_HASH_BYTES, out) == FAL_OK;
}

static int
take_update(struct course *c, struct fal_trace_line *l)
{
	const uint64_t version =
		fal_trace_get_u64(l, l->o, FAL_F_VERSION, FAL_TRACE_NUM_MAX);
	const uint64_t clock = fal_trace_get_u64(l, l->o, FAL_F_CLOCK, FAL_TRACE_NUM_MAX);
	struct course_clock *at = c->again ? NULL : clock_at(c, l, clock);
	if (at == NULL)
		return l->err;
	at->lr = fal_trace_get_f64(l, l->o, FAL_F_LR);
	at->total = c->job.clocks;
	at->hashed = get_hash(l, FAL_F_HASH, at->hash);
	at->exact = get_hash(l, FAL_F_EXPONENTS, at->exponents);
	c->made = at->version = version;
	if (at->why == COURSE_MAY && version - at->on > c->delay)
		c->delay = version - at->on;
	return l->err;
}

/* What a contribution is said to have needed is no function of its tasks. */
static int
take_check(struct course *c, struct fal_trace_line *l)
{
	const uint64_t round = fal_trace_get_u64(l, l->o, FAL_F_ROUND, FAL_TRACE_NUM_MAX);
	if (c->again || strcmp(fal_trace_get_str(l, l->o, FAL_F_VERDICT), "bounded") != 0)
		return l->err;
	if (FAL_GROW(c->bounded, c->bounded_cap, c->boundeds + 1) < 0)
		return FAL_ENOMEM;
	c->bounded[c->boundeds++] = round;
	return l->err;
}

static int
take_done(struct course *c, struct fal_trace_line *l)
{
	tell(l, FAL_F_SHA256, c->sha256);
	c->version = fal_trace_get_u64(l, l->o, FAL_F_VERSION, FAL_TRACE_NUM_MAX);
	return l->err;
}

/* The lines so far, and the link of this one. */
static void
pass(struct course *c, const struct fal_trace_line *l)
{
	const char *link = json_string_value(fal_trace_at(l->o, FAL_F_LINK));
	const json_int_t gap =
		strcmp(l->ev, "gap") == 0
			? json_integer_value(fal_trace_at(l->o, FAL_F_LINES))
			: 1;
	c->counted += gap > 0 ? (uint64_t)gap : 0;
	for (size_t i = 0; i < c->marks && link != NULL; i++)
		c->mark[i].met |= c->mark[i].line == c->counted &&
				  strcmp(c->mark[i].link, link) == 0;
}

int
course_cut(void *course, struct fal_trace_line *l)
{
	pass(course, l);
	return FAL_OK;
}

int
course_line(void *course, struct fal_trace_line *l)
{
	static const struct {
		const char *ev;
		int (*take)(struct course *c, struct fal_trace_line *l);
	} events[] = {
		{ "job", take_job },       { "policy", take_scheme },
		{ "join", take_join },     { "ledger", take_ledger },
		{ "update", take_update }, { "check", take_check },
		{ "done", take_done },     { "restart", take_restart },
	};
	struct course *c = course;
	pass(c, l);
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
		if (strcmp(l->ev, events[i].ev) == 0 &&
		    (!c->again || events[i].take == take_ledger))
			return events[i].take(c, l);
	return FAL_OK;
}

void
course_free(struct course *c)
{
	for (size_t i = 0; i < c->clocks; i++) {
		for (size_t k = 0; k < c->clock[i].lines; k++)
			json_decref(c->clock[i].line[k]);
		free(c->clock[i].line);
	}
	for (size_t i = 0; i < c->workers; i++) {
		free(c->worker[i].name);
		free(c->worker[i].key);
		free(c->worker[i].key_fingerprint);
	}
	for (size_t i = 0; i < c->prints; i++)
		free(c->print[i]);
	fal_ids_free(&c->ids);
	free(c->bounded);
	free(c->clock);
	free(c->worker);
	free(c->print);
	*c = (struct course){ 0 };
}
