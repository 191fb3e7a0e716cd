/* Writes JSON lines with base/json.h and parses lines with jansson. */
#include "run/trainer_line.h"

#include "base/json.h"
#include "base/json_load.h"
#include "base/parse.h"
#include "base/text.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- out ---------------------------------------------------------------------------- */

static void
begin_line(struct fal_buf *b, const char *op)
{
	fal_json_open(b, '{');
	fal_json_member_str(b, "op", op);
}

static void
end_line(struct fal_buf *b)
{
	fal_json_close(b, '}');
	fal_put_u8(b, '\n');
}

/* Writes the seed as text: not every language has integers of 64 bits. */
static void
put_seed(struct fal_buf *b, uint64_t seed)
{
	char hex[17];
	snprintf(hex, sizeof(hex), "%016" PRIx64, seed);
	fal_json_member_str(b, "seed", hex);
}

void
fal_grad_put_hello(struct fal_buf *b, const char *worker, uint32_t lane)
{
	begin_line(b, "hello");
	fal_json_member_u64(b, "protocol", FAL_GRAD_PROTOCOL);
	fal_json_member_str(b, "worker", worker);
	fal_json_member_u64(b, "lane", lane);
	end_line(b);
}

static void
put_area(struct fal_buf *b, const char *key, const struct fal_grad_area *a)
{
	if (a->bytes == 0)
		return;
	fal_json_key(b, key);
	fal_json_open(b, '{');
	fal_json_member_u64(b, "bytes", a->bytes);
	fal_json_member_u64(b, "data", a->data);
	fal_json_close(b, '}');
}

void
fal_grad_put_job(struct fal_buf *b, const struct fal_grad_job *j)
{
	begin_line(b, "job");
	fal_json_member_str(b, "name", j->name);
	put_seed(b, j->seed);
	fal_json_member_u64(b, "task", j->task);
	fal_json_member_u64(b, "batch", j->batch);
	fal_json_member_u64(b, "train", j->train);
	fal_json_member_u64(b, "test", j->test);
	fal_json_key(b, "buffers");
	fal_json_open(b, '[');
	for (uint32_t i = 0; i < j->buffers; i++)
		fal_json_str(b, j->buffer[i]);
	fal_json_close(b, ']');
	fal_json_member_open(b, "metrics", '[');
	for (uint32_t i = 0; i < j->metrics.n; i++)
		fal_json_str(b, j->metrics.v[i]);
	fal_json_close(b, ']');
	fal_json_member_bool(b, "decay", j->decay);
	put_area(b, "params", &j->params);
	put_area(b, "grads", &j->grads);
	put_area(b, "samples", &j->samples);
	end_line(b);
}

void
fal_grad_put_params(struct fal_buf *b, uint64_t version)
{
	begin_line(b, "params");
	fal_json_member_u64(b, "version", version);
	end_line(b);
}

void
fal_grad_put_task(struct fal_buf *b, const struct fal_grad_task *t)
{
	begin_line(b, "task");
	fal_json_member_u64(b, "id", t->id);
	fal_json_member_str(b, "kind", t->eval ? "eval" : "train");
	fal_json_member_u64(b, "clock", t->clock);
	fal_json_member_u64(b, "task", t->task);
	fal_json_member_u64(b, "version", t->version);
	fal_json_member_u64(b, "edition", t->edition);
	fal_json_member_u64(b, "params", t->params);
	fal_json_member_u64(b, "grads", t->grads);
	if (t->samples != 0)
		fal_json_member_u64(b, "samples", t->samples);
	put_seed(b, t->seed);
	fal_json_member_u64(b, "count", t->count);
	fal_json_key(b, "indices");
	fal_json_u32s(b, t->index, t->count);
	end_line(b);
}

void
fal_grad_put_cancel(struct fal_buf *b, uint64_t id)
{
	begin_line(b, "cancel");
	fal_json_member_u64(b, "id", id);
	end_line(b);
}

/* --- in ----------------------------------------------------------------------------- */

/* Reads a whole number in `range`; a missing optional member leaves `*out`. */
static int
get_number(const json_t *o, const char *key, const uint64_t range[static 2],
	   bool is_optional, uint64_t *out, struct fal_diag *diag)
{
	const json_t *v = json_object_get(o, key);
	if (v == NULL && is_optional)
		return FAL_OK;
	const json_int_t x = json_is_integer(v) ? json_integer_value(v) : -1;
	if (x < 0)
		return fal_diag_set(diag, FAL_EFORMAT, "\"%s\" is not a whole number",
				    key);
	if ((uint64_t)x < range[0] || (uint64_t)x > range[1])
		return fal_diag_set(diag, FAL_ELIMIT,
				    "\"%s\" is not %" PRIu64 " to %" PRIu64, key,
				    range[0], range[1]);
	*out = (uint64_t)x;
	return FAL_OK;
}

static int
get_flag(const json_t *o, const char *key, bool *out, struct fal_diag *diag)
{
	const json_t *v = json_object_get(o, key);
	if (v != NULL && !json_is_boolean(v))
		return fal_diag_set(diag, FAL_EFORMAT, "\"%s\" is not true or false",
				    key);
	*out = v != NULL ? json_is_true(v) : *out;
	return FAL_OK;
}

static void
get_text(const json_t *o, const char *key, char *out, size_t cap)
{
	const char *s = json_string_value(json_object_get(o, key));
	fal_text_plain(out, cap, s != NULL ? s : "");
}

static int
get_hello(const json_t *o, struct fal_grad_hello *h, struct fal_diag *diag)
{
	static const uint64_t any[] = { 0, INT64_MAX }, some[] = { 1, UINT32_C(1) << 31 };
	const json_t *hash = json_object_get(o, "data");
	uint64_t protocol = 0, train = 0, test = 0;
	bool pure = true;
	int err = get_number(o, "protocol", any, false, &protocol, diag);
	if (err == FAL_OK && protocol != FAL_GRAD_PROTOCOL)
		return fal_diag_set(diag, FAL_EVERSION,
				    "it speaks protocol %" PRIu64 ", not %d", protocol,
				    FAL_GRAD_PROTOCOL);
	if (err == FAL_OK &&
	    (err = get_flag(o, "samples", &h->samples, diag)) == FAL_OK &&
	    (err = get_flag(o, "pipes", &h->pipes, diag)) == FAL_OK &&
	    (err = get_flag(o, "pure", &pure, diag)) == FAL_OK &&
	    (err = get_number(o, "train", some, true, &train, diag)) == FAL_OK)
		err = get_number(o, "test", some, true, &test, diag);
	if (err == FAL_OK && hash != NULL &&
	    (!json_is_string(hash) ||
	     fal_unhex(json_string_value(hash), FAL_GRAD_DATA, h->data) < 0))
		err = fal_diag_set(diag, FAL_EFORMAT,
				   "\"data\" is not %d digits of 0-9a-f",
				   2 * FAL_GRAD_DATA);
	h->train = (uint32_t)train;
	h->test = (uint32_t)test;
	h->impure = !pure;
	get_text(o, "about", h->about, sizeof(h->about));
	return err;
}

static int
get_word(const json_t *o, struct fal_grad_message *w, struct fal_diag *diag)
{
	static const struct {
		const char *name;
		enum fal_grad_op op;
	} ops[] = { { "hello", FAL_GRAD_HELLO },
		    { "refuse", FAL_GRAD_REFUSE },
		    { "done", FAL_GRAD_DONE },
		    { "fail", FAL_GRAD_FAIL },
		    { "cancelled", FAL_GRAD_CANCELLED } };
	static const uint64_t any[] = { 0, INT64_MAX }, few[] = { 0, UINT32_MAX };
	const char *op = json_string_value(json_object_get(o, "op"));
	const json_t *loss = json_object_get(o, "loss");
	uint64_t right = 0;
	unsigned i = 0;
	while (op != NULL && i < sizeof(ops) / sizeof(ops[0]) &&
	       strcmp(op, ops[i].name) != 0)
		i++;
	if (op == NULL || i == sizeof(ops) / sizeof(ops[0]))
		return fal_diag_set(diag, FAL_EFORMAT,
				    "\"op\" is not hello, refuse, done, fail or "
				    "cancelled");
	w->op = ops[i].op;
	if (w->op == FAL_GRAD_HELLO)
		return get_hello(o, &w->hello, diag) < 0 ? FAL_EVERSION : FAL_OK;
	get_text(o, "why", w->why, sizeof(w->why));
	if (w->op == FAL_GRAD_REFUSE)
		return FAL_OK;
	int err = get_number(o, "id", any, false, &w->id, diag);
	if (err < 0 || w->op != FAL_GRAD_DONE)
		return err;
	if (loss != NULL && !json_is_null(loss) && !json_is_number(loss))
		return fal_diag_set(diag, FAL_EFORMAT, "\"loss\" is not a number");
	w->loss = json_is_number(loss) ? json_number_value(loss) : NAN;
	err = get_number(o, "right", few, true, &right, diag);
	w->right = (uint32_t)right;
	if (err < 0)
		return err;
	const json_t *list = json_object_get(o, "metrics");
	w->metrics = fal_metrics_of(0, NULL, 0);
	w->n_metrics = (uint32_t)json_array_size(list);
	if (list != NULL && (!json_is_array(list) || w->n_metrics > FAL_METRICS_MAX))
		return fal_diag_set(diag, FAL_EFORMAT,
				    "\"metrics\" is not an array of at most %d numbers",
				    FAL_METRICS_MAX);
	for (uint32_t k = 0; k < w->n_metrics; k++) {
		const json_t *v = json_array_get(list, k);
		if (json_is_number(v) && fabs(json_number_value(v)) <= FAL_METRIC_MOST)
			w->metrics.sum[k] = json_number_value(v);
	}
	return FAL_OK;
}

int
fal_grad_parse(const char *line, size_t n, struct fal_grad_message *out,
	       struct fal_diag *diag)
{
	struct fal_grad_message w = { 0 };
	json_error_t why;
	if (n > FAL_GRAD_LINE_MAX)
		return fal_diag_set(diag, FAL_ELIMIT, "a line of more than %d bytes",
				    FAL_GRAD_LINE_MAX);
	/* Strings with a NUL are refused: C strings end there. */
	json_t *o = fal_json_load(line, n, JSON_REJECT_DUPLICATES, &why);
	if (o == NULL && why.text[0] == '\0')
		return fal_diag_set(diag, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
	if (o == NULL && (json_error_code(&why) == json_error_null_character ||
			  json_error_code(&why) == json_error_null_byte_in_key))
		return fal_diag_set(diag, FAL_EFORMAT, "a NUL (\\u0000) in a string");
	if (!json_is_object(o)) {
		json_decref(o);
		return fal_diag_set(diag, FAL_EFORMAT, "not a JSON object");
	}
	int err = get_word(o, &w, diag);
	json_decref(o);
	if (err == FAL_OK)
		*out = w;
	return err;
}

bool
fal_grad_hello_equal(const struct fal_grad_hello *a, const struct fal_grad_hello *b)
{
	return a->samples == b->samples && a->pipes == b->pipes &&
	       a->impure == b->impure && a->train == b->train && a->test == b->test &&
	       memcmp(a->data, b->data, FAL_GRAD_DATA) == 0;
}
