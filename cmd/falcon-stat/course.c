/* Reads the course of a run from its trace. */
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

/* Returns the clock, and adds all missing clocks up to this clock.  NULL, with the line's
 * error: out of memory, or the job has no such clock. */
static struct course_clock *
course_clock_at(struct course *c, struct fal_trace_line *l, uint64_t clock)
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
		c->clock[c->clocks] = (struct course_clock){ .why = COURSE_UNKNOWN };
	return &c->clock[clock];
}

static int
course_set_scheme(struct course *c, struct fal_trace_line *l, const char *scheme)
{
	struct fal_rule rule;
	if (fal_trace_scheme_read(l, scheme, &rule) < 0)
		return l->err;
	c->is_lawful = fal_rule_traits(&rule).law;
	c->scheme = fal_scheme_name(rule.scheme);
	return FAL_OK;
}

/* Copies a text; NULL gives NULL. */
static char *
copy_text(const char *text)
{
	return text != NULL ? fal_xstrdup(text) : NULL;
}

static void
course_take_join(struct course *c, const struct fal_ev_join *e)
{
	if (course_worker(c, e->id) != NULL)
		return;
	size_t print = 0; /* the place of its fingerprint */
	while (print < c->fingerprints &&
	       strcmp(c->fingerprint[print], e->fingerprint) != 0)
		print++;
	if (print == c->fingerprints) {
		FAL_XGROW(c->fingerprint, c->fingerprint_cap, print + 1);
		c->fingerprint[c->fingerprints++] = fal_xstrdup(e->fingerprint);
	}
	FAL_XGROW(c->worker, c->worker_cap, c->workers + 1);
	fal_ids_put(&c->ids, e->id, c->workers);
	c->worker[c->workers++] =
		(struct course_worker){ .name = copy_text(e->worker),
					.key = copy_text(e->key),
					.key_fingerprint = copy_text(e->key_fingerprint),
					.fingerprint = print + 1 };
}

static int
course_take_ledger(struct course *c, struct fal_trace_line *l)
{
	const struct fal_ev_ledger *e = &l->is.ledger;
	struct course_clock *at = course_clock_at(c, l, e->clock);
	if (at == NULL || e->end == FAL_END_ABANDONED)
		return l->err;
	if (c->second_pass && at->is_wanted) {
		FAL_XGROW(at->line, at->line_cap, at->lines + 1);
		at->line[at->lines++] = fal_trace_line_keep(l);
	}
	if (c->second_pass)
		return FAL_OK;
	if (at->why == COURSE_UNKNOWN)
		at->why = c->is_lawful ? COURSE_COMPUTABLE : COURSE_UNLAWFUL;
	at->scheme = c->scheme;
	at->base = e->version;
	at->late = e->late;
	/* All contributors of a computable clock have the same numerics. */
	for (size_t i = 0; i < e->contrib.n; i++) {
		const struct course_worker *w = course_worker(c, e->contrib.v[i].c.v[0]);
		const size_t print = w != NULL ? w->fingerprint : 0;
		if (at->fingerprint == 0)
			at->fingerprint = print;
		else if (at->fingerprint != print && at->why == COURSE_COMPUTABLE)
			at->why = COURSE_MIXED;
	}
	return FAL_OK;
}

static bool
parse_hash(const char *hex, uint8_t out[static FAL_HASH_BYTES])
{
	return hex != NULL && fal_unhex(hex, FAL_HASH_BYTES, out) == FAL_OK;
}

int
course_line(void *course, struct fal_trace_line *l)
{
	struct course *c = course;
	struct course_clock *at;
	const char *link = json_string_value(json_object_get(l->o, "h"));
	c->counted += l->event == FAL_EV_GAP ? l->is.gap.lines : 1;
	for (size_t i = 0; i < c->marks && link != NULL; i++)
		c->mark[i].is_met |= c->mark[i].line == c->counted &&
				     strcmp(c->mark[i].link, link) == 0;
	if (l->cut || (c->second_pass && l->event != FAL_EV_LEDGER))
		return FAL_OK;
	switch (l->event) {
	case FAL_EV_JOB:
		snprintf(c->hash, sizeof(c->hash), "%s", l->is.job.hash);
		return course_set_scheme(c, l, l->is.job.scheme) < 0
			       ? l->err
			       : fal_trace_job_read(l, &c->job);
	case FAL_EV_POLICY:
		return course_set_scheme(c, l, l->is.policy.scheme);
	case FAL_EV_JOIN:
		course_take_join(c, &l->is.join);
		return FAL_OK;
	case FAL_EV_LEDGER:
		return course_take_ledger(c, l);
	case FAL_EV_UPDATE:
		at = course_clock_at(c, l, l->is.update.clock);
		if (at == NULL)
			return l->err;
		at->lr = l->is.update.lr;
		at->total = c->job.clocks;
		at->has_hash = parse_hash(l->is.update.hash, at->hash);
		at->has_exponents = parse_hash(l->is.update.exponents, at->exponents);
		c->newest = at->version = l->is.update.version;
		if (at->why == COURSE_COMPUTABLE && at->version - at->base > c->delay)
			c->delay = at->version - at->base;
		return FAL_OK;
	case FAL_EV_DONE:
		snprintf(c->sha256, sizeof(c->sha256), "%s",
			 l->is.done.sha256 != NULL ? l->is.done.sha256 : "");
		c->version = l->is.done.version;
		return FAL_OK;
	case FAL_EV_RESTART: /* the job may have more epochs by now */
		snprintf(c->hash, sizeof(c->hash), "%s", l->is.restart.hash);
		c->has_parts |= l->is.restart.accepted != NULL;
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
	for (size_t i = 0; i < c->fingerprints; i++)
		free(c->fingerprint[i]);
	fal_ids_free(&c->ids);
	free(c->clock);
	free(c->worker);
	free(c->fingerprint);
	*c = (struct course){ 0 };
}
