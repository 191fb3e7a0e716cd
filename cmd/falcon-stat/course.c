/* Reading the course of a run. */
#include "recompute_priv.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/parse.h"
#include "sched/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct course_worker *
course_worker(const struct course *c, uint64_t id)
{
	const size_t *at = fal_ids_get(&c->ids, id);
	return at != NULL ? &c->worker[*at] : NULL;
}

/* The clock, made if it is new; NULL: out of memory, or the job has none such. */
static struct course_clock *
clock_at(struct course *c, struct fal_trace_line *l, uint64_t clock)
{
	if (clock >= c->job.clocks) {
		fal_trace_fail(l, FAL_EINVAL, "clock: %ju", clock);
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

static int
take_scheme(struct course *c, struct fal_trace_line *l, const char *scheme)
{
	struct fal_rule rule;
	if (fal_trace_scheme_read(l, scheme, &rule) < 0)
		return l->err;
	c->lawful = fal_rule_traits(&rule).law;
	c->scheme = fal_scheme_name(rule.scheme);
	return FAL_OK;
}

static char *
copy(const char *text)
{
	return text != NULL ? fal_xstrdup(text) : NULL;
}

/* The place, and 1, of a fingerprint of numerics. */
static size_t
print_of(struct course *c, const char *text)
{
	size_t i = 0;
	while (i < c->prints && strcmp(c->print[i], text) != 0)
		i++;
	if (i == c->prints) {
		FAL_XGROW(c->print, c->print_cap, c->prints + 1);
		c->print[c->prints++] = fal_xstrdup(text);
	}
	return i + 1;
}

static void
take_join(struct course *c, const struct fal_ev_join *e)
{
	if (course_worker(c, e->id) != NULL)
		return;
	FAL_XGROW(c->worker, c->worker_cap, c->workers + 1);
	fal_ids_put(&c->ids, e->id, c->workers);
	c->worker[c->workers++] =
		(struct course_worker){ .name = copy(e->worker),
					.key = copy(e->key),
					.key_fingerprint = copy(e->key_fingerprint),
					.print = print_of(c, e->fingerprint) };
}

/* Who made the clock has which numerics? */
static void
take_makers(const struct course *c, const struct fal_ev_ledger *e,
	    struct course_clock *at)
{
	for (size_t i = 0; i < e->contrib.n; i++) {
		const struct course_worker *w = course_worker(c, e->contrib.v[i].c.v[0]);
		const size_t print = w != NULL ? w->print : 0;
		if (at->print == 0)
			at->print = print;
		else if (at->print != print && at->why == COURSE_MAY)
			at->why = COURSE_MIXED;
	}
}

static int
take_ledger(struct course *c, struct fal_trace_line *l)
{
	const struct fal_ev_ledger *e = &l->is.ledger;
	struct course_clock *at = clock_at(c, l, e->clock);
	if (at == NULL || e->end == FAL_END_ABANDONED)
		return l->err;
	if (c->again && at->want) {
		FAL_XGROW(at->line, at->line_cap, at->lines + 1);
		at->line[at->lines++] = fal_trace_line_keep(l);
	}
	if (c->again)
		return FAL_OK;
	if (at->why == COURSE_UNTOLD)
		at->why = c->lawful ? COURSE_MAY : COURSE_UNLAWFUL;
	at->scheme = c->scheme;
	at->on = e->version;
	at->late = e->late;
	take_makers(c, e, at);
	return FAL_OK;
}

static bool
get_hash(const char *hex, uint8_t out[static FAL_HASH_BYTES])
{
	return hex != NULL && fal_unhex(hex, FAL_HASH_BYTES, out) == FAL_OK;
}

static int
take_update(struct course *c, struct fal_trace_line *l)
{
	const struct fal_ev_update *e = &l->is.update;
	struct course_clock *at = clock_at(c, l, e->clock);
	if (at == NULL)
		return l->err;
	at->lr = e->lr;
	at->total = c->job.clocks;
	at->hashed = get_hash(e->hash, at->hash);
	at->exact = get_hash(e->exponents, at->exponents);
	c->made = at->version = e->version;
	if (at->why == COURSE_MAY && e->version - at->on > c->delay)
		c->delay = e->version - at->on;
	return FAL_OK;
}

/* The lines so far, and the link of this one. */
static void
pass(struct course *c, const struct fal_trace_line *l)
{
	const char *link = json_string_value(json_object_get(l->o, "h"));
	c->counted += l->event == FAL_EV_GAP ? l->is.gap.lines : 1;
	for (size_t i = 0; i < c->marks && link != NULL; i++)
		c->mark[i].met |= c->mark[i].line == c->counted &&
				  strcmp(c->mark[i].link, link) == 0;
}

int
course_line(void *course, struct fal_trace_line *l)
{
	struct course *c = course;
	pass(c, l);
	if (l->cut || (c->again && l->event != FAL_EV_LEDGER))
		return FAL_OK;
	switch (l->event) {
	case FAL_EV_JOB:
		snprintf(c->hash, sizeof(c->hash), "%s", l->is.job.hash);
		return take_scheme(c, l, l->is.job.scheme) < 0
			       ? l->err
			       : fal_trace_job_read(l, &c->job);
	case FAL_EV_POLICY:
		return take_scheme(c, l, l->is.policy.scheme);
	case FAL_EV_JOIN:
		take_join(c, &l->is.join);
		return FAL_OK;
	case FAL_EV_LEDGER:
		return take_ledger(c, l);
	case FAL_EV_UPDATE:
		return take_update(c, l);
	case FAL_EV_DONE:
		snprintf(c->sha256, sizeof(c->sha256), "%s",
			 l->is.done.sha256 != NULL ? l->is.done.sha256 : "");
		c->version = l->is.done.version;
		return FAL_OK;
	case FAL_EV_RESTART: /* the job may have more epochs by now */
		snprintf(c->hash, sizeof(c->hash), "%s", l->is.restart.hash);
		c->parts |= l->is.restart.accepted != NULL;
		return fal_trace_job_restart(l, &c->job);
	default:
		return FAL_OK;
	}
}

void
course_free(struct course *c)
{
	for (size_t i = 0; i < c->clocks; i++) {
		for (size_t k = 0; k < c->clock[i].lines; k++)
			fal_trace_line_free(c->clock[i].line[k]);
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
	free(c->clock);
	free(c->worker);
	free(c->print);
	*c = (struct course){ 0 };
}
