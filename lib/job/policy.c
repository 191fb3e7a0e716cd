/* Parses, writes and compares policies as JSON. */
#include "job/policy.h"

#include "base/json.h"
#include "base/json_load.h"
#include "base/mem.h"
#include "base/text.h"
#include "crypto/keyring.h"
#include "math/optim.h"
#include "sched/policy.h"
#include "sched/sched.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double SHARE_MAX = 1000;

/* ---- reading ------------------------------------------------------------------- */

struct policy_reader {
	const struct fal_policy_text *in;
	struct fal_policy *p;
	struct fal_policy_worker *worker; /* the worker being parsed */
	struct fal_diag *diag;
};

/* Sets the diagnosis "NAME:LINE: PLACE: 'VALUE' WHAT". */
static int
refuse_json(const struct policy_reader *r, int err, const char *place,
	    const json_t *value, const char *what)
{
	char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
	const char *shown = text != NULL ? text : "?";
	fal_diag_set(r->diag, err, "%s:%u: %s: '%s' %s", r->in->name, r->in->line,
		     fal_text_unless_key(place), FAL_QUOTE(shown), what);
	free(text);
	return err;
}

/* Passes each member of the object `o`, which stands at `place`, to `parse`. */
static int
parse_members(struct policy_reader *r, const char *place, json_t *o,
	      int (*parse)(struct policy_reader *r, const char *key, json_t *v))
{
	int err = FAL_OK;
	const char *key;
	json_t *v;
	if (!json_is_object(o))
		return refuse_json(r, FAL_EFORMAT, place, o, "is not an object");
	json_object_foreach(o, key, v)
	{
		if (err == FAL_OK)
			err = parse(r, key, v);
	}
	return err;
}

/* Refuses a key of a policy, or a worker, that is none of the words, which end in NULL.
 */
static int
refuse_policy_key(const struct policy_reader *r, const char *place, const char *key,
		  const json_t *v, const char *of, const char *const *words)
{
	struct fal_similar is = { .word = key };
	char what[48 + FAL_SIMILAR_TEXT], hint[FAL_SIMILAR_TEXT];
	for (; *words != NULL; words++)
		fal_similar_try(&is, *words);
	snprintf(what, sizeof(what), "stands under no key of a %s%s", of,
		 fal_similar_hint(&is, hint));
	return refuse_json(r, FAL_EFORMAT, place, v, what);
}

static int
parse_worker_member(struct policy_reader *r, const char *key, json_t *v)
{
	struct fal_policy_worker *w = r->worker;
	static const char *const words[] = { "lanes", "share", "site", "exclude", NULL };
	char place[FAL_NAME_MAX + 80];
	snprintf(place, sizeof(place), "workers.%.63s.%.60s", w->name, key);
	const bool is_null = json_is_null(v);
	if (strcmp(key, "lanes") == 0) {
		json_int_t min = json_integer_value(json_array_get(v, 0));
		json_int_t max = json_integer_value(json_array_get(v, 1));
		if (!is_null && (json_array_size(v) != 2 || min < 1 || min > max ||
				 max > FAL_LANES_MAX))
			return refuse_json(
				r, FAL_EINVAL, place, v,
				"is not [MIN,MAX], 1 <= MIN <= MAX <= 1024, or null");
		w->lanes_min = is_null ? 0 : (uint32_t)min;
		w->lanes_max = is_null ? 0 : (uint32_t)max;
	} else if (strcmp(key, "share") == 0) {
		const double x = is_null ? -1 : json_number_value(v);
		if (!is_null && (!json_is_number(v) || !(x >= 0 && x <= SHARE_MAX)))
			return refuse_json(r, FAL_EINVAL, place, v,
					   "is not a number from 0 to 1000 or null");
		w->share = x;
	} else if (strcmp(key, "site") == 0) {
		const char *name = is_null ? "" : json_string_value(v);
		if (name == NULL || (*name != '\0' && !fal_name_valid(name)))
			return refuse_json(r, FAL_EINVAL, place, v,
					   "is not 1 to 63 of A-Z a-z 0-9 . _ - or null");
		snprintf(w->site, sizeof(w->site), "%s", name);
	} else if (strcmp(key, "exclude") == 0) {
		if (!json_is_boolean(v))
			return refuse_json(r, FAL_EFORMAT, place, v,
					   "is not true or false");
		w->excluded = json_is_true(v);
	} else {
		return refuse_policy_key(r, place, key, v, "worker", words);
	}
	return FAL_OK;
}

static int
parse_worker_policy(struct policy_reader *r, const char *name, json_t *o)
{
	char place[FAL_NAME_MAX + 80];
	snprintf(place, sizeof(place), "workers.%.63s", name);
	if (!fal_name_valid(name))
		return refuse_json(r, FAL_EINVAL, place, o,
				   "does not stand under a name");
	r->worker = fal_policy_entry(r->p, name);
	return parse_members(r, place, o, parse_worker_member);
}

static int
parse_policy_member(struct policy_reader *r, const char *key, json_t *v)
{
	static const char *const words[] = { "scheme", "workers", "clones", NULL };
	if (strcmp(key, "scheme") == 0 && !json_is_string(v))
		return refuse_json(r, FAL_EFORMAT, "scheme", v, "is not a string");
	if (strcmp(key, "scheme") == 0) {
		struct fal_diag why;
		int err = fal_rule_parse(json_string_value(v), &r->p->rule, &why);
		return err == FAL_OK ? FAL_OK
				     : fal_diag_set(r->diag, err, "%s:%u: scheme: %s",
						    r->in->name, r->in->line, why.text);
	}
	if (strcmp(key, "workers") == 0)
		return parse_members(r, "workers", v, parse_worker_policy);
	if (strcmp(key, "clones") != 0)
		return refuse_policy_key(r, key, key, v, "policy", words);
	if (!json_is_boolean(v))
		return refuse_json(r, FAL_EFORMAT, key, v, "is not true or false");
	r->p->no_clones = json_is_false(v);
	return FAL_OK;
}

void
fal_policy_blank_comments(char *p, size_t n)
{
	bool is_quoted = false, is_comment = false;
	for (size_t i = 0; i < n; i++) {
		if (p[i] == '\n') {
			is_quoted = is_comment = false; /* no string has a raw newline */
		} else if (is_comment || (!is_quoted && (p[i] == '#' || p[i] == ';'))) {
			is_comment = true;
			p[i] = ' ';
		} else if (p[i] == '"') {
			is_quoted = !is_quoted;
		} else if (is_quoted && p[i] == '\\') {
			i++;
		}
	}
}

/* Moves `in` past n bytes and the blanks after them. */
static void
skip_text(struct fal_policy_text *in, size_t n)
{
	while (in->n > 0 && (n > 0 || strchr(" \t\r\n", *in->p) != NULL)) {
		if (*in->p == '\0' && n == 0)
			break;
		in->line += *in->p == '\n';
		in->p++;
		in->n--;
		n -= n > 0;
	}
}

int
fal_policy_json_take(json_t *o, const struct fal_policy_text *place,
		     const struct fal_policy *base, struct fal_policy *out,
		     struct fal_diag *diag)
{
	struct fal_policy p = fal_policy_copy(base);
	struct policy_reader r = { .in = place, .p = &p, .diag = diag };
	const int err = parse_members(&r, "policy", o, parse_policy_member);
	if (err < 0) {
		fal_policy_free(&p);
		return err;
	}
	fal_policy_tidy(&p);
	*out = p;
	return FAL_OK;
}

int
fal_policy_json_get(struct fal_policy_text *in, const struct fal_policy *base,
		    struct fal_policy *out, struct fal_diag *diag)
{
	json_error_t at;
	skip_text(in, 0);
	json_t *o = fal_json_load(in->p, in->n,
				  JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES, &at);
	if (o == NULL && at.text[0] == '\0')
		return fal_diag_set(diag, FAL_ENOMEM, "out of memory");
	if (o == NULL)
		return fal_diag_set(diag, FAL_EFORMAT, "%s:%u:%d: %s", in->name,
				    in->line + (unsigned)(at.line > 0 ? at.line - 1 : 0),
				    at.column, fal_text_unless_key(at.text));
	size_t used = (size_t)at.position;
	const int err =
		used <= FAL_POLICY_TEXT_MAX
			? fal_policy_json_take(o, in, base, out, diag)
			: fal_diag_set(diag, FAL_ELIMIT,
				       "%s:%u: a policy of %zu bytes, at most %zu",
				       in->name, in->line, used, FAL_POLICY_TEXT_MAX);
	json_decref(o);
	if (err == FAL_OK)
		skip_text(in, used);
	return err;
}

/* ---- writing ------------------------------------------------------------------- */

void
fal_policy_json_put(const struct fal_policy *p, struct fal_buf *out)
{
	char rule[FAL_RULE_TEXT];
	fal_json_open(out, '{');
	fal_json_member_str(out, "scheme", fal_rule_text(&p->rule, rule));
	fal_json_member_bool(out, "clones", !p->no_clones);
	if (p->workers > 0) {
		fal_json_member_open(out, "workers", '{');
		for (size_t i = 0; i < p->workers; i++) {
			const struct fal_policy_worker *w = &p->worker[i];
			fal_json_member_open(out, w->name, '{');
			if (w->lanes_max > 0) {
				fal_json_member_open(out, "lanes", '[');
				fal_json_u64(out, w->lanes_min);
				fal_json_u64(out, w->lanes_max);
				fal_json_close(out, ']');
			}
			if (w->share >= 0)
				fal_json_member_num(out, "share", w->share);
			if (w->site[0] != '\0')
				fal_json_member_str(out, "site", w->site);
			if (w->excluded || w->admitted)
				fal_json_member_bool(out, "exclude", w->excluded);
			fal_json_close(out, '}');
		}
		fal_json_close(out, '}');
	}
	fal_json_close(out, '}');
}

/* ---- comparing ----------------------------------------------------------------- */

struct changes {
	struct fal_policy_change *v;
	size_t n, cap;
};

/* Adds a change of this key unless the values are equal. */
static void
add_policy_change(struct changes *c, const char *key, const char *name, const char *from,
		  const char *to)
{
	if (strcmp(from, to) == 0)
		return;
	FAL_XGROW(c->v, c->cap, c->n + 1);
	struct fal_policy_change *ch = &c->v[c->n++];
	*ch = (struct fal_policy_change){ .model = false };
	snprintf(ch->key, sizeof(ch->key), "%.10s%.63s", key, name);
	snprintf(ch->from, sizeof(ch->from), "%.127s", from);
	snprintf(ch->to, sizeof(ch->to), "%.127s", to);
}

/* A worker's settings in the words of `falcon-sync set`. */
struct worker_texts {
	char lanes[32], share[64];
	const char *exclude, *site;
};

static struct worker_texts
worker_texts(const struct fal_policy_worker *w)
{
	struct worker_texts t = { "auto", "auto", "no", "auto" };
	if (w == NULL)
		return t;
	if (w->lanes_max > 0)
		snprintf(t.lanes, sizeof(t.lanes), "%u:%u", w->lanes_min, w->lanes_max);
	if (w->share >= 0)
		snprintf(t.share, sizeof(t.share), "%.15g", w->share);
	if (w->excluded)
		t.exclude = "yes";
	if (w->site[0] != '\0')
		t.site = w->site;
	return t;
}

size_t
fal_policy_changes(const struct fal_policy *a, const struct fal_policy *b,
		   struct fal_policy_change **out)
{
	struct changes c = { 0 };
	char from[FAL_RULE_TEXT], to[FAL_RULE_TEXT];
	add_policy_change(&c, "scheme", "", fal_rule_text(&a->rule, from),
			  fal_rule_text(&b->rule, to));
	if (c.n > 0)
		c.v[0].model = !fal_rule_same_model(&a->rule, &b->rule);
	add_policy_change(&c, "clones", "", a->no_clones ? "no" : "yes",
			  b->no_clones ? "no" : "yes");
	for (size_t i = 0, j = 0; i < a->workers || j < b->workers;) {
		const struct fal_policy_worker *x = i < a->workers ? &a->worker[i] : NULL;
		const struct fal_policy_worker *y = j < b->workers ? &b->worker[j] : NULL;
		int order = x == NULL ? 1 : y == NULL ? -1 : strcmp(x->name, y->name);
		const char *name = order <= 0 ? x->name : y->name;
		const struct worker_texts f = worker_texts(order <= 0 ? x : NULL);
		const struct worker_texts t = worker_texts(order >= 0 ? y : NULL);
		add_policy_change(&c, "lanes.", name, f.lanes, t.lanes);
		add_policy_change(&c, "share.", name, f.share, t.share);
		add_policy_change(&c, "exclude.", name, f.exclude, t.exclude);
		add_policy_change(&c, "site.", name, f.site, t.site);
		i += order <= 0;
		j += order >= 0;
	}
	*out = c.v;
	return c.n;
}

int
fal_policy_entry_get(const struct fal_policy_text *in, struct fal_policy_entry *out,
		     struct fal_diag *diag)
{
	const struct fal_policy none = { 0 };
	json_int_t clock = 0, version = 0, seconds;
	const char *by, *link;
	json_t *policy;
	json_error_t at;
	json_t *o = fal_json_load(in->p, in->n, JSON_REJECT_DUPLICATES, &at);
	int err = o == NULL ? (at.text[0] == '\0' ? FAL_ENOMEM : FAL_EFORMAT)
			    : fal_json_unpack(o, &at, JSON_STRICT,
					      "{s:I, s:I, s:s, s:I, s:o, s:s}", "clock",
					      &clock, "version", &version, "by", &by,
					      "time", &seconds, "policy", &policy, "h",
					      &link);
	*out = (struct fal_policy_entry){ 0 };
	if (err == FAL_ENOMEM) {
		err = fal_diag_set(diag, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
	} else if (err < 0) {
		fal_diag_set(diag, err, "%s:%u: %s", in->name, in->line,
			     fal_text_unless_key(at.text));
	} else if (clock < 0 || version < 0) {
		err = fal_diag_set(diag, FAL_EINVAL, "%s:%u: a number below 0", in->name,
				   in->line);
	} else {
		out->clock = (uint64_t)clock;
		out->version = (uint64_t)version;
		out->by = fal_xstrdup(by);
		err = fal_policy_json_take(policy, in, &none, &out->policy, diag);
		if (err < 0)
			fal_policy_entry_free(out);
	}
	json_decref(o);
	return err;
}

void
fal_policy_entry_free(struct fal_policy_entry *e)
{
	free(e->by);
	fal_policy_free(&e->policy);
	*e = (struct fal_policy_entry){ 0 };
}

/* ---- the cost of a rule ---------------------------------------------------------- */

enum { ASSUMED_WORKERS = 4 }; /* if their number is unknown */

bool
fal_stale_warning(const struct fal_rule *rule, const struct fal_optim *optim,
		  uint32_t workers, char out[static FAL_STALE_TEXT])
{
	const uint32_t n = workers > 0 ? workers : ASSUMED_WORKERS;
	/* If each worker, or group, makes updates of its own, the updates of the other
	 * pushers come in between. */
	const struct fal_traits traits = fal_rule_traits(rule);
	const uint32_t max = !traits.groups     ? n
			     : rule->groups > 0 ? rule->groups
						: rule->max_groups;
	const uint32_t pushers = max < n ? max : n;
	const uint32_t together = rule->quorum > 0 ? rule->quorum : 1;
	const uint32_t late = traits.alone ? (pushers - 1) / together : traits.delay;
	const bool is_bounded = rule->threshold > 0 && rule->threshold <= late;
	const uint32_t updates = is_bounded ? rule->threshold - 1 : late;
	const double delay =
		rule->slack_q > 0 ? (double)rule->slack_p / rule->slack_q : updates;
	out[0] = '\0';
	const double momentum = fal_stable_momentum(optim);
	/* Local steps run the optimiser in the worker, on its own weights: late changes
	 * of weights pass no momentum. */
	if (traits.delta || updates == 0 || momentum <= 0)
		return false;
	char what[80], name[FAL_RULE_TEXT];
	if (traits.alone)
		snprintf(what, sizeof(what), "%s of %u workers%s",
			 fal_rule_text(rule, name), n,
			 workers > 0 ? "" : ", if so many come,");
	else
		snprintf(what, sizeof(what), "slack %s",
			 strchr(fal_rule_text(rule, name), ':') + 1);
	struct fal_optim o = *optim;
	o.one_momentum |= rule->quorum > 0;
	const double pushes =
		traits.alone && pushers > together ? (double)pushers / together : 1;
	const double factor = fal_stable_factor(&o, pushes, delay);
	if (rule->slack_q > 0 && factor <= 1)
		return false;
	snprintf(out, FAL_STALE_TEXT,
		 "%s with %s %g: stable learning rates are up to %.*f times lower", what,
		 optim->kind == FAL_ADAMW ? "beta1" : "momentum", momentum,
		 factor < 9.95 ? 1 : 0, factor);
	return true;
}
