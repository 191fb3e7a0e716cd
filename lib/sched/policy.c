/* The table of schemes; rules and their text; policies: a rule with a sorted list of
 * workers. */
#include "sched/policy.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLACK_Q_MAX = 4096 }; /* of epsp:p/q */

/* ---- traits ---------------------------------------------------------------------- */

static const struct scheme_row {
	const char *name;
	struct fal_traits traits; /* the traits that do not depend on parameters */
} scheme_rows[FAL_SCHEMES] = {
	[FAL_BSP] = { "bsp",
		      { .shared = true, .waits = true, .law = true, .counted = true } },
	[FAL_EPSP] = { "epsp",
		       { .shared = true,
			 .moves = true,
			 .waits = true,
			 .law = true,
			 .counted = true,
			 .slacks = true } },
	[FAL_ASP] = { "asp", { .own = true, .alone = true } },
	[FAL_SSP] = { "ssp",
		      { .own = true, .waits = true, .bounded = true, .alone = true } },
	[FAL_FLEXRR] = { "flexrr",
			 { .own = true,
			   .mixed = true,
			   .moves = true,
			   .waits = true,
			   .bounded = true,
			   .alone = true } },
	[FAL_SYNCOPT] = { "syncopt",
			  { .own = true,
			    .waits = true,
			    .collects = true,
			    .fresh = true } },
	[FAL_CONSGD] = { "consgd",
			 { .own = true,
			   .delta = true,
			   .waits = true,
			   .bounded = true,
			   .alone = true } },
	[FAL_DYNSGD] = { "dynsgd",
			 { .own = true,
			   .delta = true,
			   .waits = true,
			   .bounded = true,
			   .alone = true,
			   .ranked = true } },
	[FAL_WBSP] = { "wbsp",
		       { .own = true, .delta = true, .waits = true, .collects = true } },
	[FAL_GROUPS] = { "groups",
			 { .groups = true,
			   .waits = true,
			   .alone = true,
			   .collects = true } },
	[FAL_RENNALA] = { "rennala",
			  { .own = true,
			    .overlaps = true,
			    .collects = true,
			    .fresh = true,
			    .counted = true } },
	[FAL_RINGMASTER] = { "ringmaster", { .own = true, .alone = true } },
};

struct fal_traits
fal_rule_traits(const struct fal_rule *r)
{
	struct fal_traits t = scheme_rows[r->scheme].traits;
	t.delay = t.slacks ? r->slack : 0;
	/* With slack 0 no worker is ahead of the slowest.  Then, with gradients, all
	 * rounds of a clock are one update. */
	if (t.bounded && !t.delta && r->slack == 0) {
		t.bounded = t.alone = false;
		t.waves = t.law = t.collects = t.fresh = t.counted = true;
	}
	/* Only rules that never abandon a round may order an update ahead. */
	t.ahead = t.law && t.shared;
	t.ranked = t.ranked && !r->by_updates;
	t.local = t.delta || r->delta;
	t.by_speed = r->by_speed;
	t.overlaps = t.overlaps || r->overlap;
	/* With mode=delta branches are pushed.  With a single group there are no updates
	 * of other groups in between. */
	if (t.groups)
		t.alone = !r->delta && r->groups != 1;
	return t;
}

const char *
fal_scheme_name(enum fal_scheme_id id)
{
	return scheme_rows[id].name;
}

uint32_t
fal_rule_first_late_task(const struct fal_rule *r, const struct fal_grid *g,
			 uint64_t clock)
{
	const uint64_t samples = fal_grid_samples(g, clock);
	return r->slack_q == 0 ? UINT32_MAX
			       : fal_grid_tasks_within(g, clock,
						       samples * r->slack_p / r->slack_q);
}

int
fal_rule_check_grid(const struct fal_rule *r, const struct fal_grid *g,
		    struct fal_diag *diag)
{
	const uint32_t samples = fal_grid_samples(g, 0);
	const uint32_t task = fal_grid_range_samples(g, 0, 0, 1);
	char name[FAL_RULE_TEXT];
	if (fal_rule_first_late_task(r, g, 0) > 0)
		return FAL_OK;
	if (task == samples)
		return fal_diag_set(diag, FAL_EINVAL,
				    "%s: a clock is one task, no part of which is early",
				    fal_rule_text(r, name));
	return fal_diag_set(diag, FAL_EINVAL,
			    "%s: no task of %u samples lies within this part of a "
			    "clock's %u samples; 1/%u has one",
			    fal_rule_text(r, name), task, samples,
			    samples / task < SLACK_Q_MAX ? samples / task : SLACK_Q_MAX);
}

/* ---- parameters ------------------------------------------------------------------ */

/* ABOVE: a REAL larger than its minimum; SLACK: a NUMBER, or a fraction below
 * 1. */
enum kind { NUMBER, REAL, ABOVE, SWITCH, SLACK };
enum when {
	ALWAYS,
	PROGRESSIVE,
	DELTA,
	QUORUM,
	OUTER
}; /* what a key of `groups` needs */
static const char *const needs[] = { "", "groups:progressive", "mode=delta", "a quorum",
				     "mode=delta and a quorum" };

struct param {
	/* the schemes that have the parameter: bits by enum fal_scheme_id */
	uint32_t schemes;
	const char *key; /* NULL: the number after the colon */
	enum kind kind;
	enum when when;
	size_t at; /* in struct fal_rule */
	double min, max, def;
	/* SWITCH: the words for false and true.  NUMBER: the word for the default, or
	 * NULL.  REAL, ABOVE: text that a message has after the range. */
	const char *word, *yes;
};

#define BIT(s) (1u << FAL_##s)
#define AT(field) offsetof(struct fal_rule, field)

enum {
	SSP_LIKE = BIT(SSP) | BIT(CONSGD) | BIT(DYNSGD),
	LOCAL_STEPS = BIT(CONSGD) | BIT(DYNSGD) | BIT(WBSP),
	STEPS_MAX = FAL_LOCAL_STEPS_MAX
};

static const struct param params[] = {
	{ BIT(BSP), "shares", SWITCH, ALWAYS, AT(by_speed), 0, 1, 0, "equal", "speed" },
	{ SSP_LIKE, NULL, NUMBER, ALWAYS, AT(slack), 0, FAL_SLACK_MAX, 3, NULL, NULL },
	{ BIT(FLEXRR), NULL, NUMBER, ALWAYS, AT(slack), 0, FAL_SLACK_MAX, 1, NULL, NULL },
	{ BIT(EPSP), NULL, SLACK, ALWAYS, AT(slack), 0, FAL_SLACK_MAX, 0, NULL, NULL },
	{ BIT(SYNCOPT), NULL, NUMBER, ALWAYS, AT(backups), 0, 1024, FAL_BACKUPS_AUTO,
	  "auto", NULL },
	{ BIT(GROUPS), NULL, NUMBER, ALWAYS, AT(groups), 1, 1024, 0, "progressive",
	  NULL },
	{ BIT(RENNALA), NULL, NUMBER, ALWAYS, AT(batch), 1, 65536, 0, "clock", NULL },
	{ BIT(RINGMASTER), NULL, NUMBER, ALWAYS, AT(threshold), 1, 4096, 0, "auto",
	  NULL },
	{ BIT(FLEXRR), "helpers", NUMBER, ALWAYS, AT(helpers), 1, 64, 3, NULL, NULL },
	{ BIT(FLEXRR), "steal", SWITCH, ALWAYS, AT(steals_half), 0, 1, 0, "rapid",
	  "half" },
	{ BIT(CONSGD), "lambda", ABOVE, ALWAYS, AT(lambda), 0, 1, 0, "", NULL },
	{ BIT(DYNSGD), "staleness", SWITCH, ALWAYS, AT(by_updates), 0, 1, 0, "version",
	  "updates" },
	{ BIT(WBSP), "overlap", SWITCH, ALWAYS, AT(overlap), 0, 1, 1, "no", "yes" },
	{ BIT(WBSP), "publish", SWITCH, ALWAYS, AT(slowest), 0, 1, 0, "all", "slowest" },
	{ BIT(WBSP), "cap", NUMBER, ALWAYS, AT(cap), 1, STEPS_MAX, 16, NULL, NULL },
	{ BIT(GROUPS), "max", NUMBER, PROGRESSIVE, AT(max_groups), 1, 1024, 4, NULL,
	  NULL },
	{ BIT(GROUPS), "window", NUMBER, PROGRESSIVE, AT(window), 1, 100000, 20, NULL,
	  NULL },
	{ BIT(GROUPS), "mode", SWITCH, ALWAYS, AT(delta), 0, 1, 0, "grad", "delta" },
	{ BIT(GROUPS), "rounds", NUMBER, DELTA, AT(rounds), 1, STEPS_MAX, 1, NULL, NULL },
	{ BIT(GROUPS), "quorum", NUMBER, ALWAYS, AT(quorum), 1, 1024, 0, NULL, NULL },
	{ BIT(GROUPS), "grace", REAL, QUORUM, AT(grace), 0, 3600, 0, ", of seconds",
	  NULL },
	{ BIT(GROUPS), "outer", ABOVE, OUTER, AT(outer_rate), 0, 1, 0.7, "", NULL },
	{ BIT(GROUPS), "momentum", REAL, OUTER, AT(momentum), 0, 0.999, 0.9, "", NULL },
	{ LOCAL_STEPS, "steps", NUMBER, ALWAYS, AT(steps), 1, STEPS_MAX, 1, NULL, NULL },
};

enum { PARAMS = sizeof(params) / sizeof(params[0]) };
_Static_assert(PARAMS <= 32, "one bit each");

static bool
param_is_of(const struct param *p, enum fal_scheme_id scheme)
{
	return (p->schemes >> scheme & 1) != 0;
}

static bool
param_applies(const struct param *p, const struct fal_rule *r)
{
	const bool is_met[] = { [ALWAYS] = true,
				[PROGRESSIVE] = r->groups == 0,
				[DELTA] = r->delta,
				[QUORUM] = r->quorum > 0,
				[OUTER] = r->quorum > 0 && r->delta };
	return is_met[p->when];
}

static double
param_get(const struct fal_rule *r, const struct param *p)
{
	const char *at = (const char *)r + p->at;
	if (p->kind == SWITCH)
		return *(const bool *)at;
	if (p->kind == SLACK && r->slack_q > 0)
		return (double)r->slack_p / r->slack_q;
	return p->kind == NUMBER || p->kind == SLACK ? *(const uint32_t *)at
						     : *(const double *)at;
}

static void
param_set(struct fal_rule *r, const struct param *p, double v)
{
	char *at = (char *)r + p->at;
	if (p->kind == SWITCH)
		*(bool *)at = v != 0;
	else if (p->kind == NUMBER || p->kind == SLACK)
		*(uint32_t *)at = (uint32_t)v;
	else
		*(double *)at = v;
}

/* Appends the value as text. */
static void
param_put(const struct fal_rule *r, const struct param *p, struct fal_buf *out)
{
	const double v = param_get(r, p);
	if (p->kind == SWITCH) {
		fal_put_fmt(out, "%s", v != 0 ? p->yes : p->word);
	} else if (p->kind == SLACK && r->slack_q > 0) {
		fal_put_fmt(out, "%u/%u", r->slack_p, r->slack_q);
	} else if (p->kind == NUMBER && p->word != NULL && v == p->def) {
		fal_put_fmt(out, "%s", p->word);
	} else {
		struct fal_buf num = { 0 }; /* empty, so that no comma comes first */
		fal_json_num(&num, v);
		fal_put_bytes(out, num.p, num.n);
		out->err = num.err < 0 ? num.err : out->err;
		fal_buf_free(&num);
	}
}

/* ---- reading ------------------------------------------------------------------- */

static int
diag_no_scheme(const char *name, struct fal_diag *diag)
{
	char list[FAL_RULE_TEXT];
	struct fal_similar is = { .word = name };
	char hint[FAL_SIMILAR_TEXT];
	size_t n = 0;
	for (int i = 0; i < FAL_SCHEMES; i++) {
		n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s",
				      i > 0 ? ", " : "", scheme_rows[i].name);
		fal_similar_try(&is, scheme_rows[i].name);
	}
	return fal_diag_set(diag, FAL_EINVAL, "'%s' is not a scheme (%s)%s",
			    FAL_QUOTE(name), list, fal_similar_hint(&is, hint));
}

/* "ssp: '99' …" or "flexrr: helpers: '99' …". */
static int
diag_bad_value(const struct fal_rule *r, const struct param *p, const char *value,
	       struct fal_diag *diag)
{
	const char *name = fal_scheme_name(r->scheme);
	if (p->kind == SWITCH)
		return fal_diag_set(diag, FAL_EINVAL, "%s: %s: '%s' is neither %s nor %s",
				    name, p->key, FAL_QUOTE(value), p->word, p->yes);
	if (p->kind == SLACK)
		return fal_diag_set(diag, FAL_EINVAL,
				    "%s: '%s' is neither a whole number from %.0f to "
				    "%.0f nor a fraction from 1/%d to %d/%d",
				    name, FAL_QUOTE(value), p->min, p->max, SLACK_Q_MAX,
				    SLACK_Q_MAX - 1, SLACK_Q_MAX);
	if (p->kind == NUMBER)
		return fal_diag_set(
			diag, FAL_EINVAL,
			"%s: %s%s'%s' is not a whole number from %.0f to %.0f%s%s", name,
			p->key != NULL ? p->key : "", p->key != NULL ? ": " : "",
			FAL_QUOTE(value), p->min, p->max, p->word != NULL ? " or " : "",
			p->word != NULL ? p->word : "");
	return fal_diag_set(diag, FAL_EINVAL, "%s: %s: '%s' is not a number %s %g%s %g%s",
			    name, p->key, FAL_QUOTE(value),
			    p->kind == ABOVE ? "above" : "from", p->min,
			    p->kind == ABOVE ? ", at most" : " to", p->max, p->word);
}

/* Reads "1/4" into the rule, in lowest terms.  False: the text is no fraction below 1. */
static bool
rule_read_fraction(struct fal_rule *r, const char *text)
{
	char early[FAL_RULE_TEXT];
	const char *slash = strchr(text, '/');
	uint64_t p = 0, q = 0;
	if (slash == NULL)
		return false;
	snprintf(early, sizeof(early), "%.*s", (int)(slash - text), text);
	if (fal_parse_u64(slash + 1, 2, SLACK_Q_MAX, &q) < 0 ||
	    fal_parse_u64(early, 1, q - 1, &p) < 0)
		return false;
	uint64_t by = q; /* becomes the greatest common divisor */
	for (uint64_t rest = p, next; rest != 0; rest = next) {
		next = by % rest;
		by = rest;
	}
	r->slack_p = (uint32_t)(p / by);
	r->slack_q = (uint32_t)(q / by);
	return true;
}

static int
rule_read_value(struct fal_rule *r, const struct param *p, const char *value,
		struct fal_diag *diag)
{
	double v = p->def;
	bool good;
	if (p->kind == SWITCH) {
		v = strcmp(value, p->yes) == 0;
		good = v != 0 || strcmp(value, p->word) == 0;
	} else if (p->kind == SLACK && rule_read_fraction(r, value)) {
		v = 1;
		good = true;
	} else if (p->kind == NUMBER || p->kind == SLACK) {
		uint64_t n = 0;
		const bool is_word = p->word != NULL && strcmp(value, p->word) == 0;
		good = is_word || fal_parse_u64(value, (uint64_t)p->min, (uint64_t)p->max,
						&n) == FAL_OK;
		v = is_word ? v : (double)n;
	} else {
		good = fal_parse_double(value, p->min, p->max, &v) == FAL_OK &&
		       (p->kind == REAL || v > p->min);
	}
	if (!good)
		return diag_bad_value(r, p, value, diag);
	param_set(r, p, v);
	return FAL_OK;
}

/* The scheme's parameter of this key (NULL: the number), or NULL. */
static const struct param *
param_find(enum fal_scheme_id scheme, const char *key)
{
	for (const struct param *p = params; p < params + PARAMS; p++) {
		if (!param_is_of(p, scheme) || (key == NULL) != (p->key == NULL))
			continue;
		if (key == NULL || strcmp(key, p->key) == 0)
			return p;
	}
	return NULL;
}

/* Reads one KEY=VALUE; *seen has a bit for each parameter that was set. */
static int
rule_read_key(struct fal_rule *r, char *item, uint32_t *seen, struct fal_diag *diag)
{
	const char *name = fal_scheme_name(r->scheme);
	char *eq = strchr(item, '=');
	if (eq == NULL)
		return fal_diag_set(diag, FAL_EINVAL, "%s: '%s' is not KEY=VALUE", name,
				    FAL_QUOTE(item));
	*eq = '\0';
	const struct param *p = param_find(r->scheme, item);
	struct fal_similar is = { .word = item };
	char hint[FAL_SIMILAR_TEXT];
	for (size_t i = 0; p == NULL && i < PARAMS; i++)
		if (param_is_of(&params[i], r->scheme) && params[i].key != NULL)
			fal_similar_try(&is, params[i].key);
	if (p == NULL)
		return fal_diag_set(diag, FAL_EINVAL, "%s has no '%s' (given as '%s')%s",
				    name, FAL_QUOTE(item), FAL_QUOTE(eq + 1),
				    fal_similar_hint(&is, hint));
	uint32_t bit = 1u << (p - params);
	if ((*seen & bit) != 0)
		return fal_diag_set(diag, FAL_EINVAL, "%s: %s is set twice, now '%s'",
				    name, FAL_QUOTE(item), FAL_QUOTE(eq + 1));
	*seen |= bit;
	return rule_read_value(r, p, eq + 1, diag);
}

/* Refuses keys without the other key that they need; sets the values of absent keys to
 * 0. */
static int
rule_check_needs(struct fal_rule *r, uint32_t seen, struct fal_diag *diag)
{
	for (const struct param *p = params; p < params + PARAMS; p++) {
		if (!param_is_of(p, r->scheme) || param_applies(p, r))
			continue;
		if ((seen >> (p - params) & 1) == 0) {
			param_set(r, p, 0);
			continue;
		}
		struct fal_buf value = { 0 };
		param_put(r, p, &value);
		const int err =
			fal_diag_set(diag, FAL_EINVAL,
				     "%s: %s '%.*s' has no meaning without %s",
				     fal_scheme_name(r->scheme), p->key, (int)value.n,
				     (const char *)value.p, needs[p->when]);
		fal_buf_free(&value);
		return err;
	}
	return FAL_OK;
}

int
fal_rule_parse(const char *text, struct fal_rule *out, struct fal_diag *diag)
{
	char copy[FAL_RULE_TEXT];
	const size_t n = strlen(text);
	if (n >= sizeof(copy))
		return fal_diag_set(diag, FAL_EINVAL,
				    "'%s' is no scheme: longer than %d bytes",
				    FAL_QUOTE(text), FAL_RULE_TEXT - 1);
	memcpy(copy, text, n + 1);
	/* Cuts the copy into the scheme's name, the number, and the keys. */
	char *rest = strchr(copy, ',');
	if (rest != NULL)
		*rest++ = '\0';
	char *number = strchr(copy, ':');
	if (number != NULL)
		*number++ = '\0';
	int scheme = 0;
	while (scheme < FAL_SCHEMES &&
	       strcmp(copy, fal_scheme_name((enum fal_scheme_id)scheme)) != 0)
		scheme++;
	if (scheme == FAL_SCHEMES)
		return diag_no_scheme(copy, diag);
	struct fal_rule r = { .scheme = (enum fal_scheme_id)scheme };
	for (const struct param *p = params; p < params + PARAMS; p++)
		if (param_is_of(p, r.scheme))
			param_set(&r, p, p->def);
	int err = FAL_OK;
	if (number != NULL) {
		const struct param *p = param_find(r.scheme, NULL);
		if (p == NULL)
			return fal_diag_set(diag, FAL_EINVAL,
					    "%s takes no number (given as '%s')", copy,
					    FAL_QUOTE(number));
		err = rule_read_value(&r, p, number, diag);
	}
	uint32_t seen = 0;
	while (rest != NULL && err == FAL_OK) {
		char *item = rest;
		rest = strchr(item, ',');
		if (rest != NULL)
			*rest++ = '\0';
		err = rule_read_key(&r, item, &seen, diag);
	}
	if (err == FAL_OK)
		err = rule_check_needs(&r, seen, diag);
	if (err == FAL_OK)
		*out = r;
	return err;
}

/* ---- writing ------------------------------------------------------------------- */

void
fal_rule_put(const struct fal_rule *r, struct fal_buf *out)
{
	fal_put_fmt(out, "%s", fal_scheme_name(r->scheme));
	for (const struct param *p = params; p < params + PARAMS; p++) {
		if (!param_is_of(p, r->scheme) || !param_applies(p, r))
			continue;
		if (param_get(r, p) == p->def &&
		    (p->key != NULL || fal_rule_traits(r).slacks))
			continue;
		if (p->key == NULL)
			fal_put_u8(out, ':');
		else
			fal_put_fmt(out, ",%s=", p->key);
		param_put(r, p, out);
	}
}

const char *
fal_rule_text(const struct fal_rule *r, char out[static FAL_RULE_TEXT])
{
	struct fal_buf b = { 0 };
	fal_rule_put(r, &b);
	if (b.err < 0)
		fal_out_of_memory();
	snprintf(out, FAL_RULE_TEXT, "%.*s", (int)b.n, (const char *)b.p);
	fal_buf_free(&b);
	return out;
}

/* ---- comparing ----------------------------------------------------------------- */

bool
fal_rule_equal(const struct fal_rule *a, const struct fal_rule *b)
{
	if (a->scheme != b->scheme)
		return false;
	for (const struct param *p = params; p < params + PARAMS; p++) {
		if (param_is_of(p, a->scheme) && param_get(a, p) != param_get(b, p))
			return false;
	}
	return true;
}

static bool
rule_is_bsp(const struct fal_rule *r)
{
	const struct fal_traits t = fal_rule_traits(r);
	return t.law && t.delay == 0;
}

bool
fal_rule_has_local_steps(const struct fal_rule *r)
{
	return fal_rule_traits(r).local;
}

bool
fal_rule_same_model(const struct fal_rule *a, const struct fal_rule *b)
{
	return (rule_is_bsp(a) && rule_is_bsp(b)) || fal_rule_equal(a, b);
}

/* ---- policies -------------------------------------------------------------------- */

void
fal_policy_free(struct fal_policy *p)
{
	for (size_t i = 0; i < p->workers; i++)
		free(p->worker[i].name);
	free(p->worker);
	*p = (struct fal_policy){ 0 };
}

struct fal_policy
fal_policy_copy(const struct fal_policy *p)
{
	struct fal_policy copy = *p;
	copy.worker_cap = p->workers;
	copy.worker = fal_xcalloc(p->workers, sizeof(*copy.worker));
	for (size_t i = 0; i < p->workers; i++) {
		copy.worker[i] = p->worker[i];
		copy.worker[i].name = fal_xstrdup(p->worker[i].name);
	}
	return copy;
}

/* The index of the entry of this name, or the index at which to insert such an entry. */
static size_t
policy_place(const struct fal_policy *p, const char *name)
{
	size_t low = 0, high = p->workers;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		if (strcmp(p->worker[mid].name, name) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

const struct fal_policy_worker *
fal_policy_find(const struct fal_policy *p, const char *name)
{
	size_t at = policy_place(p, name);
	bool there = at < p->workers && strcmp(p->worker[at].name, name) == 0;
	return there ? &p->worker[at] : NULL;
}

struct fal_policy_worker *
fal_policy_entry(struct fal_policy *p, const char *name)
{
	const size_t at = policy_place(p, name);
	if (fal_policy_find(p, name) == NULL) {
		FAL_XGROW(p->worker, p->worker_cap, p->workers + 1);
		memmove(p->worker + at + 1, p->worker + at,
			(p->workers++ - at) * sizeof(*p->worker));
		p->worker[at] = (struct fal_policy_worker){ .name = fal_xstrdup(name),
							    .share = -1 };
	}
	return &p->worker[at];
}

void
fal_policy_tidy(struct fal_policy *p)
{
	size_t kept = 0;
	for (size_t i = 0; i < p->workers; i++) {
		struct fal_policy_worker *w = &p->worker[i];
		if (w->lanes_max == 0 && w->share < 0 && !w->excluded &&
		    w->site[0] == '\0')
			free(w->name);
		else
			p->worker[kept++] = *w;
	}
	p->workers = kept;
}
