/* The words of rules: one table of parameters. */
#include "sched/rule.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"
#include "sched/traits.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_MAX = 256 };

enum kind { NUMBER, REAL, SWITCH };
enum when { ALWAYS, PROGRESSIVE, DELTA, QUORUM, OUTER }; /* what a key of groups needs */
static const char *const needs[] = { "", "groups:progressive", "mode=delta", "a quorum",
				     "mode=delta and a quorum" };

/* Of a REAL. */
struct range {
	double min, max, def;
	bool above;       /* min itself is too little */
	const char *want; /* in words */
};

struct param {
	uint32_t schemes; /* who has it: bits of enum fal_scheme_id */
	const char *key;  /* NULL: the N behind the colon */
	enum kind kind;
	enum when when;
	size_t at;              /* in struct fal_rule */
	uint32_t min, max, def; /* NUMBER */
	/* SWITCH: the words for false and true.  NUMBER: word[0] may stand for def. */
	const char *word[2];
	const struct range *real; /* REAL */
};

static const struct range part = { 0, 1, 0, true, "above 0, at most 1" },
			  grace = { 0, 3600, 0, false, "from 0 to 3600, of seconds" },
			  outer = { 0, 1, 0.7, true, "above 0, at most 1" },
			  momentum = { 0, 0.999, 0.9, false, "from 0 to 0.999" };

#define BIT(s) (1u << FAL_##s)
#define AT(field) offsetof(struct fal_rule, field)

static const struct param params[] = {
	{ BIT(SSP) | BIT(CONSGD) | BIT(DYNSGD),
	  NULL,
	  NUMBER,
	  ALWAYS,
	  AT(slack),
	  0,
	  FAL_SLACK_MAX,
	  3,
	  { NULL },
	  NULL },
	{ BIT(FLEXRR),
	  NULL,
	  NUMBER,
	  ALWAYS,
	  AT(slack),
	  0,
	  FAL_SLACK_MAX,
	  1,
	  { NULL },
	  NULL },
	{ BIT(EPSP),
	  NULL,
	  NUMBER,
	  ALWAYS,
	  AT(slack),
	  0,
	  FAL_SLACK_MAX,
	  0,
	  { NULL },
	  NULL },
	{ BIT(SYNCOPT),
	  NULL,
	  NUMBER,
	  ALWAYS,
	  AT(backups),
	  0,
	  1024,
	  FAL_BACKUPS_AUTO,
	  { "auto" },
	  NULL },
	{ BIT(GROUPS),
	  NULL,
	  NUMBER,
	  ALWAYS,
	  AT(groups),
	  1,
	  1024,
	  0,
	  { "progressive" },
	  NULL },
	{ BIT(FLEXRR), "helpers", NUMBER, ALWAYS, AT(helpers), 1, 64, 3, { NULL }, NULL },
	{ BIT(FLEXRR),
	  "steal",
	  SWITCH,
	  ALWAYS,
	  AT(half),
	  0,
	  1,
	  0,
	  { "rapid", "half" },
	  NULL },
	{ BIT(CONSGD), "lambda", REAL, ALWAYS, AT(lambda), 0, 0, 0, { NULL }, &part },
	{ BIT(DYNSGD),
	  "staleness",
	  SWITCH,
	  ALWAYS,
	  AT(by_updates),
	  0,
	  1,
	  0,
	  { "version", "updates" },
	  NULL },
	{ BIT(WBSP),
	  "overlap",
	  SWITCH,
	  ALWAYS,
	  AT(overlap),
	  0,
	  1,
	  1,
	  { "no", "yes" },
	  NULL },
	{ BIT(WBSP),
	  "publish",
	  SWITCH,
	  ALWAYS,
	  AT(slowest),
	  0,
	  1,
	  0,
	  { "all", "slowest" },
	  NULL },
	{ BIT(WBSP),
	  "cap",
	  NUMBER,
	  ALWAYS,
	  AT(cap),
	  1,
	  FAL_LOCAL_STEPS_MAX,
	  16,
	  { NULL },
	  NULL },
	{ BIT(GROUPS), "max", NUMBER, PROGRESSIVE, AT(most), 1, 1024, 4, { NULL }, NULL },
	{ BIT(GROUPS),
	  "window",
	  NUMBER,
	  PROGRESSIVE,
	  AT(window),
	  1,
	  100000,
	  20,
	  { NULL },
	  NULL },
	{ BIT(GROUPS),
	  "mode",
	  SWITCH,
	  ALWAYS,
	  AT(delta),
	  0,
	  1,
	  0,
	  { "grad", "delta" },
	  NULL },
	{ BIT(GROUPS),
	  "rounds",
	  NUMBER,
	  DELTA,
	  AT(rounds),
	  1,
	  FAL_LOCAL_STEPS_MAX,
	  1,
	  { NULL },
	  NULL },
	{ BIT(GROUPS), "quorum", NUMBER, ALWAYS, AT(quorum), 1, 1024, 0, { NULL }, NULL },
	{ BIT(GROUPS), "grace", REAL, QUORUM, AT(grace), 0, 0, 0, { NULL }, &grace },
	{ BIT(GROUPS), "outer", REAL, OUTER, AT(outer), 0, 0, 0, { NULL }, &outer },
	{ BIT(GROUPS),
	  "momentum",
	  REAL,
	  OUTER,
	  AT(momentum),
	  0,
	  0,
	  0,
	  { NULL },
	  &momentum },
	{ BIT(CONSGD) | BIT(DYNSGD) | BIT(WBSP),
	  "steps",
	  NUMBER,
	  ALWAYS,
	  AT(steps),
	  1,
	  FAL_LOCAL_STEPS_MAX,
	  1,
	  { NULL },
	  NULL },
};

enum { PARAMS = sizeof(params) / sizeof(params[0]) };
_Static_assert(PARAMS <= 32, "one bit each");

static bool
has(const struct param *p, enum fal_scheme_id scheme)
{
	return (p->schemes >> scheme & 1) != 0;
}

static bool
applies(const struct param *p, const struct fal_rule *r)
{
	switch (p->when) {
	case PROGRESSIVE:
		return r->groups == 0;
	case DELTA:
		return r->delta;
	case QUORUM:
		return r->quorum > 0;
	case OUTER:
		return r->quorum > 0 && r->delta;
	case ALWAYS:
		break;
	}
	return true;
}

/* The value of an integer or a switch. */
static uint32_t
get(const struct fal_rule *r, const struct param *p)
{
	const char *at = (const char *)r + p->at;
	if (p->kind == SWITCH)
		return *(const bool *)at;
	return *(const uint32_t *)at;
}

static void
set(struct fal_rule *r, const struct param *p, uint32_t v)
{
	char *at = (char *)r + p->at;
	if (p->kind == SWITCH)
		*(bool *)at = v != 0;
	else
		*(uint32_t *)at = v;
}

static double
get_real(const struct fal_rule *r, const struct param *p)
{
	return *(const double *)((const char *)r + p->at);
}

static bool
same_real(double a, double b)
{
	return memcmp(&a, &b, sizeof(a)) == 0;
}

static void
set_real(struct fal_rule *r, const struct param *p, double x)
{
	*(double *)((char *)r + p->at) = x;
}

static void
set_default(struct fal_rule *r, const struct param *p)
{
	if (p->kind == REAL)
		set_real(r, p, p->real->def);
	else
		set(r, p, p->def);
}

/* As it is written. */
static void
put_value(const struct fal_rule *r, const struct param *p, struct fal_buf *out)
{
	if (p->kind == REAL) {
		struct fal_buf num = { 0 };
		fal_json_num(&num, get_real(r, p));
		if (num.err < 0)
			out->err = num.err;
		else
			fal_put_bytes(out, num.p, num.n);
		fal_buf_free(&num);
		return;
	}
	uint32_t v = get(r, p);
	if (p->kind == SWITCH)
		fal_put_fmt(out, "%s", p->word[v]);
	else if (p->word[0] != NULL && v == p->def)
		fal_put_fmt(out, "%s", p->word[0]);
	else
		fal_put_fmt(out, "%u", v);
}

/* ---- reading ------------------------------------------------------------------- */

static int
no_scheme(const char *name, struct fal_diag *diag)
{
	char list[TEXT_MAX];
	size_t n = 0;
	for (int i = 0; i < FAL_SCHEMES; i++) {
		const char *is = fal_scheme_name((enum fal_scheme_id)i);
		size_t len = strlen(is);
		memcpy(list + n, is, len);
		memcpy(list + n + len, ", ", 2);
		n += len + 2;
	}
	list[n - 2] = '\0';
	return fal_diag_set(diag, FAL_EINVAL, "'%s' is not a scheme (%s)",
			    FAL_QUOTE(name), list);
}

/* "ssp: '99' …" or "flexrr: helpers: '99' …": what stands before the value. */
static int
bad_value(const struct fal_rule *r, const struct param *p, const char *value,
	  struct fal_diag *diag)
{
	const char *name = fal_scheme_name(r->scheme);
	const char *key = p->key != NULL ? p->key : "";
	const char *sep = p->key != NULL ? ": " : "";
	switch (p->kind) {
	case SWITCH:
		return fal_diag_set(diag, FAL_EINVAL, "%s: %s: '%s' is neither %s nor %s",
				    name, key, FAL_QUOTE(value), p->word[0], p->word[1]);
	case REAL:
		return fal_diag_set(diag, FAL_EINVAL, "%s: %s: '%s' is not a number %s",
				    name, key, FAL_QUOTE(value), p->real->want);
	case NUMBER:
		break;
	}
	return fal_diag_set(diag, FAL_EINVAL,
			    "%s: %s%s'%s' is not a whole number from %u to %u%s%s", name,
			    key, sep, FAL_QUOTE(value), p->min, p->max,
			    p->word[0] != NULL ? " or " : "",
			    p->word[0] != NULL ? p->word[0] : "");
}

static int
read_value(struct fal_rule *r, const struct param *p, const char *value,
	   struct fal_diag *diag)
{
	uint64_t v = p->def;
	if (p->kind == REAL) {
		double x;
		if (fal_parse_double(value, p->real->min, p->real->max, &x) < 0 ||
		    (p->real->above && !(x > p->real->min)))
			return bad_value(r, p, value, diag);
		set_real(r, p, x);
		return FAL_OK;
	}
	if (p->kind == SWITCH) {
		v = strcmp(value, p->word[1]) == 0;
		if (v == 0 && strcmp(value, p->word[0]) != 0)
			return bad_value(r, p, value, diag);
	} else if (p->word[0] == NULL || strcmp(value, p->word[0]) != 0) {
		if (fal_parse_u64(value, p->min, p->max, &v) < 0)
			return bad_value(r, p, value, diag);
	}
	set(r, p, (uint32_t)v);
	return FAL_OK;
}

/* The parameter of this scheme and key (NULL: the number), or NULL. */
static const struct param *
find(enum fal_scheme_id scheme, const char *key)
{
	for (const struct param *p = params; p < params + PARAMS; p++) {
		if (!has(p, scheme) || (key == NULL) != (p->key == NULL))
			continue;
		if (key == NULL || strcmp(key, p->key) == 0)
			return p;
	}
	return NULL;
}

/* Reads one KEY=VALUE; `seen` has a bit for each parameter that was set. */
static int
read_key(struct fal_rule *r, char *item, uint32_t *seen, struct fal_diag *diag)
{
	const char *name = fal_scheme_name(r->scheme);
	char *eq = strchr(item, '=');
	if (eq == NULL)
		return fal_diag_set(diag, FAL_EINVAL, "%s: '%s' is not KEY=VALUE", name,
				    FAL_QUOTE(item));
	*eq = '\0';
	const struct param *p = find(r->scheme, item);
	if (p == NULL)
		return fal_diag_set(diag, FAL_EINVAL, "%s has no '%s' (given as '%s')",
				    name, FAL_QUOTE(item), FAL_QUOTE(eq + 1));
	uint32_t bit = 1u << (p - params);
	if ((*seen & bit) != 0)
		return fal_diag_set(diag, FAL_EINVAL, "%s: %s is set twice, now '%s'",
				    name, FAL_QUOTE(item), FAL_QUOTE(eq + 1));
	*seen |= bit;
	return read_value(r, p, eq + 1, diag);
}

/* A key that hangs on another one is given without that. */
static int
no_meaning(const struct fal_rule *r, const struct param *p, struct fal_diag *diag)
{
	struct fal_buf value = { 0 };
	put_value(r, p, &value);
	fal_put_u8(&value, '\0');
	int err =
		fal_diag_set(diag, FAL_EINVAL, "%s: %s '%s' has no meaning without %s",
			     fal_scheme_name(r->scheme), p->key,
			     value.err < 0 ? "" : (const char *)value.p, needs[p->when]);
	fal_buf_free(&value);
	return err;
}

/* Keys that hang on another one: given where they mean nothing, or left at 0. */
static int
read_end(struct fal_rule *r, uint32_t seen, struct fal_diag *diag)
{
	for (const struct param *p = params; p < params + PARAMS; p++) {
		bool given = (seen >> (p - params) & 1) != 0;
		if (!has(p, r->scheme) || applies(p, r))
			continue;
		if (given)
			return no_meaning(r, p, diag);
		if (p->kind == REAL)
			set_real(r, p, 0);
		else
			set(r, p, 0);
	}
	return FAL_OK;
}

/* `text` is taken apart in place. */
static int
read_rule(char *text, struct fal_rule *r, struct fal_diag *diag)
{
	char *rest = strchr(text, ',');
	if (rest != NULL)
		*rest++ = '\0';
	char *number = strchr(text, ':');
	if (number != NULL)
		*number++ = '\0';
	int scheme = 0;
	while (scheme < FAL_SCHEMES &&
	       strcmp(text, fal_scheme_name((enum fal_scheme_id)scheme)) != 0)
		scheme++;
	if (scheme == FAL_SCHEMES)
		return no_scheme(text, diag);
	r->scheme = (enum fal_scheme_id)scheme;
	for (const struct param *p = params; p < params + PARAMS; p++)
		if (has(p, r->scheme))
			set_default(r, p);
	if (number != NULL) {
		const struct param *p = find(r->scheme, NULL);
		if (p == NULL)
			return fal_diag_set(diag, FAL_EINVAL,
					    "%s takes no number (given as '%s')", text,
					    FAL_QUOTE(number));
		int err = read_value(r, p, number, diag);
		if (err < 0)
			return err;
	}
	uint32_t seen = 0;
	while (rest != NULL) {
		char *item = rest;
		rest = strchr(item, ',');
		if (rest != NULL)
			*rest++ = '\0';
		int err = read_key(r, item, &seen, diag);
		if (err < 0)
			return err;
	}
	return read_end(r, seen, diag);
}

int
fal_rule_parse(const char *text, struct fal_rule *out, struct fal_diag *diag)
{
	char copy[TEXT_MAX];
	size_t n = strlen(text);
	if (n >= sizeof(copy))
		return fal_diag_set(diag, FAL_EINVAL,
				    "'%s' is no scheme: longer than %d bytes",
				    FAL_QUOTE(text), TEXT_MAX - 1);
	memcpy(copy, text, n + 1);
	struct fal_rule r = { 0 };
	int err = read_rule(copy, &r, diag);
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
		if (!has(p, r->scheme) || !applies(p, r))
			continue;
		bool is_default = p->kind == REAL
					  ? same_real(get_real(r, p), p->real->def)
					  : get(r, p) == p->def;
		if (is_default && (p->key != NULL || fal_rule_traits(r).slacks))
			continue;
		if (p->key == NULL)
			fal_put_u8(out, ':');
		else
			fal_put_fmt(out, ",%s=", p->key);
		put_value(r, p, out);
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
fal_rule_eq(const struct fal_rule *a, const struct fal_rule *b)
{
	if (a->scheme != b->scheme)
		return false;
	for (const struct param *p = params; p < params + PARAMS; p++) {
		if (!has(p, a->scheme))
			continue;
		if (p->kind == REAL ? !same_real(get_real(a, p), get_real(b, p))
				    : get(a, p) != get(b, p))
			return false;
	}
	return true;
}

static bool
is_bsp(const struct fal_rule *r)
{
	const struct fal_traits t = fal_rule_traits(r);
	return t.law && t.delay == 0;
}

bool
fal_rule_local(const struct fal_rule *r)
{
	return fal_rule_traits(r).local;
}

bool
fal_rule_same_model(const struct fal_rule *a, const struct fal_rule *b)
{
	return (is_bsp(a) && is_bsp(b)) || fal_rule_eq(a, b);
}
