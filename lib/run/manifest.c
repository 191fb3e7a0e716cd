/* Manifests as JSON: one object, whose members are all there and no others, on a line
 * that is a chain of its own. */
#include "run/manifest.h"

#include "base/json.h"
#include "base/json_load.h"
#include "base/line.h"
#include "base/mem.h"
#include "base/text.h"
#include "job/policy.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT = 3, PEOPLE_MAX = 1 << 20 };

/* What a member holds, and where. */
struct member {
	const char *name;
	enum {
		WHOLE,
		SMALL,
		REAL,
		MEAN, /* null: of nothing, or not known */
		FLAG,
		TEXT /* that fits with its NUL */
	} kind;
	size_t at, size;
};

#define M(name, kind, field)                                     \
	{ name, kind, offsetof(struct fal_snap_manifest, field), \
	  sizeof(((const struct fal_snap_manifest *)NULL)->field) }
/* clang-format off: a table reads as one. */
static const struct member members[] = {
	M("job", TEXT, job),
	M("net", TEXT, net),
	M("data", TEXT, data),
	M("init", TEXT, init),
	M("sizes", TEXT, sizes),
	M("trainers_data", TEXT, past.data),
	M("blake2b", TEXT, blake2b),
	M("chain", TEXT, chain),
	M("journal_chain", TEXT, journal_chain),
	M("by", TEXT, past.by),
	M("incarnation", SMALL, incarnation),
	M("lines", WHOLE, lines),
	M("journal", WHOLE, journal),
	M("bytes", WHOLE, bytes),
	M("version", WHOLE, image.version),
	M("steps", WHOLE, image.steps),
	M("olds", SMALL, image.olds),
	M("holds", FLAG, image.holds),
	M("held", WHOLE, image.held),
	M("clock", WHOLE, past.clock),
	M("first", WHOLE, past.first),
	M("round", WHOLE, past.round),
	M("t", REAL, past.t),
	M("workers", SMALL, past.workers),
	M("evaluating", FLAG, past.evaluating),
	M("judged", FLAG, past.judged),
	M("kept_version", WHOLE, past.kept_version),
	M("kept_clock", WHOLE, past.kept_clock),
	M("next_eval", WHOLE, past.next_eval),
	M("accuracy", REAL, past.accuracy),
	M("accuracy_loss", MEAN, past.accuracy_loss),
	M("judged_clock", WHOLE, past.judged_clock),
	M("epoch", WHOLE, past.epoch),
	M("loss", MEAN, past.loss),
	M("epoch_loss", MEAN, past.epoch_loss),
	M("start_loss", REAL, past.start_loss),
	M("sum_loss", MEAN, past.sum_loss),
	M("samples", WHOLE, past.samples),
	M("moved", WHOLE, past.moved),
	M("cloned", WHOLE, past.cloned),
	M("filled", WHOLE, past.filled),
	M("lost", WHOLE, past.lost),
	M("dropped", WHOLE, past.dropped),
	M("skipped", WHOLE, past.skipped),
	M("epoch_skipped", WHOLE, past.epoch_skipped),
};
/* clang-format on */
enum { MEMBERS = sizeof(members) / sizeof(members[0]), OTHERS = 6 };

/* ---- out --- */

static void
put_member(const struct member *m, const void *at, struct fal_buf *out)
{
	fal_json_key(out, m->name);
	if (m->kind == WHOLE)
		fal_json_u64(out, *(const uint64_t *)at);
	else if (m->kind == SMALL)
		fal_json_u64(out, *(const uint32_t *)at);
	else if (m->kind == REAL || m->kind == MEAN)
		fal_json_num(out, *(const double *)at);
	else if (m->kind == TEXT)
		fal_json_str(out, at);
	else
		fal_json_bool(out, *(const bool *)at);
}

static void
put_people(const struct fal_coord_past *p, struct fal_buf *out)
{
	fal_json_member_open(out, "keys", '[');
	for (uint32_t i = 0; i < p->keys; i++) {
		fal_json_open(out, '[');
		fal_json_str(out, p->key[i].name);
		fal_json_str(out, p->key[i].fingerprint);
		fal_json_u64(out, p->key[i].charges);
		fal_json_close(out, ']');
	}
	fal_json_close(out, ']');
	fal_json_member_open(out, "speeds", '[');
	for (uint32_t i = 0; i < p->speeds; i++) {
		const struct fal_history *h = &p->speed[i].is;
		fal_json_open(out, '[');
		fal_json_str(out, p->speed[i].name);
		fal_json_u64(out, p->speed[i].key);
		fal_json_u64(out, h->lanes);
		fal_json_num(out, h->task_s);
		fal_json_num(out, h->fixed);
		fal_json_num(out, h->eval_s);
		fal_json_num(out, h->push_s);
		fal_json_close(out, ']');
	}
	fal_json_close(out, ']');
	fal_json_member_open(out, "here", '[');
	for (uint32_t i = 0; i < p->here; i++) {
		fal_json_open(out, '[');
		fal_json_str(out, p->worker[i].name);
		fal_json_u64(out, p->worker[i].id);
		fal_json_close(out, ']');
	}
	fal_json_close(out, ']');
}

void
fal_snap_manifest_put(const struct fal_snap_manifest *m, struct fal_buf *out)
{
	struct fal_chain none = { "" };
	struct fal_buf line = { 0 };
	fal_json_open(&line, '{');
	fal_json_member_u64(&line, "format", FORMAT);
	for (size_t i = 0; i < MEMBERS; i++)
		put_member(&members[i], (const char *)m + members[i].at, &line);
	fal_json_key(&line, "policy");
	fal_policy_json_put(&m->policy, &line);
	put_people(&m->past, &line);
	fal_json_close(&line, '}');
	if (line.err == FAL_OK)
		fal_chain_put(&none, (char *)line.p, line.n, out);
	else
		out->err = line.err;
	fal_buf_free(&line);
}

/* ---- in --- */

struct reading {
	const char *name;
	struct fal_diag *diag;
	int err;
};

static int
fail(struct reading *r, const char *member, const char *what)
{
	if (r->err == FAL_OK)
		r->err = fal_diag_set(r->diag, FAL_EFORMAT, "%s: %s: %s", r->name, member,
				      what);
	return r->err;
}

/* The string, which fits with its NUL. */
static void
get_text(struct reading *r, const json_t *v, const char *member, char *out, size_t cap)
{
	const char *text = json_string_value(v);
	if (text == NULL || strlen(text) >= cap)
		fail(r, member, "not what it should hold");
	else
		memcpy(out, text, strlen(text) + 1);
}

static void
get_member(struct reading *r, const json_t *o, const struct member *m, void *at)
{
	const json_t *v = json_object_get(o, m->name);
	const json_int_t n = json_integer_value(v);
	if (v == NULL)
		fail(r, m->name, "missing");
	else if (m->kind == TEXT)
		get_text(r, v, m->name, at, m->size);
	else if ((m->kind == REAL || m->kind == MEAN) && json_is_number(v))
		*(double *)at = json_number_value(v);
	else if (m->kind == MEAN && json_is_null(v))
		*(double *)at = (double)NAN;
	else if (m->kind == FLAG && json_is_boolean(v))
		*(bool *)at = json_is_true(v);
	else if (m->kind == WHOLE && json_is_integer(v) && n >= 0)
		*(uint64_t *)at = (uint64_t)n;
	else if (m->kind == SMALL && json_is_integer(v) && n >= 0 && n <= UINT32_MAX)
		*(uint32_t *)at = (uint32_t)n;
	else
		fail(r, m->name, "not what it should hold");
}

static uint32_t
get_small(struct reading *r, const json_t *v, const char *member)
{
	const json_int_t n = json_integer_value(v);
	if (!json_is_integer(v) || n < 0 || n > UINT32_MAX)
		fail(r, member, "not what it should hold");
	return (uint32_t)n;
}

/* A list of lists, each of `width` values: how many. */
static uint32_t
get_list(struct reading *r, const json_t *o, const char *member, size_t width)
{
	const json_t *v = json_object_get(o, member);
	const size_t n = json_array_size(v);
	if (!json_is_array(v) || n > PEOPLE_MAX)
		fail(r, member, "not a list");
	for (size_t i = 0; i < n && r->err == FAL_OK; i++)
		if (json_array_size(json_array_get(v, i)) != width)
			fail(r, member, "not what it should hold");
	return r->err == FAL_OK ? (uint32_t)n : 0;
}

static double
get_real(struct reading *r, const json_t *v, const char *member, double least)
{
	const double x = json_number_value(v);
	if (!json_is_number(v) || !(x >= least))
		fail(r, member, "not what it should hold");
	return x;
}

static void
get_speeds(struct reading *r, const json_t *o, struct fal_coord_past *p)
{
	static const char name[] = "speeds";
	const uint32_t n = get_list(r, o, name, 7);
	if (r->err == FAL_OK && FAL_GROW(p->speed, p->speed_cap, (size_t)n) < 0)
		r->err = fal_diag_set(r->diag, FAL_ENOMEM, "out of memory");
	for (uint32_t i = 0; i < n && r->err == FAL_OK; i++) {
		const json_t *v = json_array_get(json_object_get(o, name), i);
		struct fal_past_speed *s = &p->speed[p->speeds++];
		get_text(r, json_array_get(v, 0), name, s->name, sizeof(s->name));
		s->key = get_small(r, json_array_get(v, 1), name);
		s->is = (struct fal_history){
			.lanes = get_small(r, json_array_get(v, 2), name),
			.task_s = get_real(r, json_array_get(v, 3), name, 0),
			.fixed = get_real(r, json_array_get(v, 4), name, -1),
			.eval_s = get_real(r, json_array_get(v, 5), name, 0),
			.push_s = get_real(r, json_array_get(v, 6), name, 0),
		};
		if (s->key == 0 || s->key > p->keys || s->is.lanes == 0)
			fail(r, name, "of no key, or at no lane");
	}
}

static void
get_people(struct reading *r, const json_t *o, struct fal_coord_past *p)
{
	const uint32_t keys = get_list(r, o, "keys", 3), here = get_list(r, o, "here", 2);
	if (r->err == FAL_OK && (FAL_GROW(p->key, p->key_cap, (size_t)keys) < 0 ||
				 FAL_GROW(p->worker, p->worker_cap, (size_t)here) < 0))
		r->err = fal_diag_set(r->diag, FAL_ENOMEM, "out of memory");
	for (uint32_t i = 0; i < keys && r->err == FAL_OK; i++) {
		const json_t *v = json_array_get(json_object_get(o, "keys"), i);
		struct fal_past_key *k = &p->key[p->keys++];
		get_text(r, json_array_get(v, 0), "keys", k->name, sizeof(k->name));
		get_text(r, json_array_get(v, 1), "keys", k->fingerprint,
			 sizeof(k->fingerprint));
		k->charges = get_small(r, json_array_get(v, 2), "keys");
	}
	for (uint32_t i = 0; i < here && r->err == FAL_OK; i++) {
		const json_t *v = json_array_get(json_object_get(o, "here"), i);
		struct fal_past_worker *w = &p->worker[p->here++];
		get_text(r, json_array_get(v, 0), "here", w->name, sizeof(w->name));
		w->id = get_small(r, json_array_get(v, 1), "here");
		if (w->id == 0 || w->id > p->workers)
			fail(r, "here", "a worker whose number was never given");
	}
}

static void
get_policy(struct reading *r, const json_t *o, struct fal_policy *out)
{
	const struct fal_policy none = { 0 };
	const json_t *v = json_object_get(o, "policy");
	char *text = v != NULL ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
	if (text == NULL) {
		if (v == NULL)
			fail(r, "policy", "missing");
		else
			r->err = fal_diag_set(r->diag, FAL_ENOMEM, "out of memory");
		return;
	}
	struct fal_policy_text in = { r->name, 1, text, strlen(text) };
	r->err = fal_policy_json_get(&in, &none, out, r->diag);
	free(text);
}

/* Numbers that cannot stand beside one another. */
static void
judge(struct reading *r, const struct fal_snap_manifest *m)
{
	const struct fal_coord_past *p = &m->past;
	if (fal_line_of(m->image.version) != 0)
		fail(r, "version", "none of the job's model");
	if (m->image.olds > m->image.version || p->first > m->image.version)
		fail(r, "version", "too small for the others");
	if ((m->bytes == 0) != (m->image.version == 0))
		fail(r, "bytes", "none, or of version 0");
	/* Memory is taken for them before the file is read. */
	if (m->image.olds > m->bytes / sizeof(float))
		fail(r, "olds", "more than the file can hold");
	if (m->lines == 0)
		fail(r, "lines", "none");
	if (p->kept_clock > p->clock || p->kept_version > m->image.version ||
	    (p->kept_clock > 0) != m->image.holds ||
	    (m->image.holds && m->image.held != p->kept_version) ||
	    (p->evaluating && p->kept_clock == 0))
		fail(r, "held", "not the version that is kept");
}

int
fal_snap_manifest_get(const char *name, const void *p, size_t n,
		      struct fal_snap_manifest *out, struct fal_diag *diag)
{
	struct reading r = { name, diag, FAL_OK };
	struct fal_chain none = { "" };
	json_error_t why;
	*out = (struct fal_snap_manifest){ 0 };
	if (n == 0 || ((const char *)p)[n - 1] != '\n' ||
	    !fal_chain_take(&none, p, n - 1))
		return fal_diag_set(diag, FAL_EFORMAT, "%s: is not what was written",
				    name);
	json_t *o = fal_json_load(p, n, JSON_REJECT_DUPLICATES, &why);
	if (o == NULL && why.text[0] == '\0')
		return fal_diag_set(diag, FAL_ENOMEM, "out of memory");
	if (o == NULL)
		return fal_diag_set(diag, FAL_EFORMAT, "%s:%d: %s", name, why.line,
				    fal_text_unless_key(why.text));
	if (json_integer_value(json_object_get(o, "format")) != FORMAT)
		fail(&r, "format", "not 3: it is of an earlier Falcon");
	else if (json_object_size(o) != MEMBERS + OTHERS)
		fail(&r, "members", "too many or too few");
	for (size_t i = 0; i < MEMBERS && r.err == FAL_OK; i++)
		get_member(&r, o, &members[i], (char *)out + members[i].at);
	out->past.version = out->image.version;
	out->past.oldest = out->image.version - out->image.olds;
	if (r.err == FAL_OK)
		get_people(&r, o, &out->past);
	if (r.err == FAL_OK)
		get_speeds(&r, o, &out->past);
	if (r.err == FAL_OK)
		judge(&r, out);
	if (r.err == FAL_OK)
		get_policy(&r, o, &out->policy);
	json_decref(o);
	if (r.err < 0)
		fal_snap_manifest_free(out);
	return r.err;
}

void
fal_snap_manifest_free(struct fal_snap_manifest *m)
{
	fal_policy_free(&m->policy);
	fal_coord_past_free(&m->past);
	*m = (struct fal_snap_manifest){ 0 };
}
