/* The reader gets from the lines of a trace the members that the writer has put there,
 * drawn ones of each kind, as JSON of that kind, and no others.  The man page has the
 * table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/rng.h"
#include "trace/reader.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 200, MANY = 4, WIDE = 4 };

static uint64_t seed = 20261122;
static struct fal_rng rng;

static uint32_t
draw(uint32_t bound)
{
	return fal_rng_below(&rng, bound);
}

static bool
yes(void)
{
	return draw(2) == 1;
}

/* A whole number of any size up to `max`. */
static uint64_t
whole(uint64_t max)
{
	const uint64_t any = (uint64_t)draw(UINT32_MAX) << 32 | draw(UINT32_MAX);
	const uint64_t n = any >> (11 + draw(53));
	return n <= max ? n : n % (max + 1);
}

static double
real(void)
{
	return ((double)whole(1 << 20) - 1000) / (1 + draw(1000));
}

/* ---- values --------------------------------------------------------------------------
 */

/* Memory of a line. */
static struct {
	union {
		char text[72];
		uint64_t whole[MANY * WIDE];
		double real[MANY * WIDE];
		const char *hex[MANY];
		uint8_t record[MANY][512];
	} v[256];
	size_t used;
} space;

static void *
take(void)
{
	assert_true(space.used < sizeof(space.v) / sizeof(space.v[0]));
	return &space.v[space.used++];
}

/* A name with what JSON must quote. */
static const char *
text(void)
{
	static const char *const parts[] = { "a",        "\"", "\\", "\n",
					     "\xc3\xa9", " ",  "{",  "z" };
	char *out = take();
	out[0] = '\0';
	for (uint32_t i = 1 + draw(8); i > 0; i--)
		strcat(out, parts[draw(8)]);
	return out;
}

static const char *
hex(size_t digits)
{
	char *out = take();
	for (size_t i = 0; i < digits; i++)
		out[i] = "0123456789abcdef"[draw(16)];
	out[digits] = '\0';
	return out;
}

static void fill(const struct fal_schema *s, void *out);

/* Records, or hexadecimal digits, behind one another. */
static struct fal_trace_list
list(const struct fal_member *m, size_t n)
{
	const struct fal_trace_list all = { take(), n };
	for (size_t i = 0; i < n; i++) {
		if (m->kind == FAL_M_HEXES)
			((const char **)(uintptr_t)all.v)[i] = hex((size_t)m->arg);
		else
			fill(m->of(), (uint8_t *)(uintptr_t)all.v + i * m->of()->size);
	}
	return all;
}

/* A value that is there. */
static void
set(const struct fal_member *m, void *at)
{
	const size_t width = m->arg > 0 ? (size_t)m->arg : 1;
	struct fal_trace_list all = { NULL, 0 };
	uint64_t *w;
	double *d;
	switch (m->kind) {
	case FAL_M_WHOLE:
		*(uint64_t *)at =
			m->when == FAL_MAY ? 1 + whole(m->arg - 1) : whole(m->arg);
		return;
	case FAL_M_ID:
		*(uint32_t *)at = 1 + (uint32_t)whole(UINT32_MAX - 1);
		return;
	case FAL_M_REAL:
		*(double *)at = m->when == FAL_MAY ? fabs(real()) + 0.25 : real();
		return;
	case FAL_M_LOSS:
		*(double *)at = yes() ? real() : (double)NAN;
		return;
	case FAL_M_SECONDS:
		*(double *)at = (double)(1 + whole(1000000000)) * 1e-6;
		return;
	case FAL_M_FLAG:
		*(bool *)at = true;
		return;
	case FAL_M_TEXT:
		*(const char **)at = text();
		return;
	case FAL_M_WORD:
		for (const char *p = m->words; (p = strchr(p, ' ')) != NULL; p++)
			*(uint32_t *)at += m->when == FAL_MAY || yes();
		return;
	case FAL_M_HEX:
		*(const char **)at = hex((size_t)m->arg);
		return;
	case FAL_M_WORD64:
		*(struct fal_hex64 *)at = (struct fal_hex64){ true, whole(UINT64_MAX) };
		return;
	case FAL_M_TUPLE:
	case FAL_M_ROWS:
		w = take();
		all = (struct fal_trace_list){ w, m->kind == FAL_M_TUPLE
							  ? width
							  : 1 + draw(MANY) };
		for (size_t i = 0; i < MANY * WIDE; i++)
			w[i] = whole(m->kind == FAL_M_TUPLE ? UINT32_MAX
							    : FAL_TRACE_NUM_MAX);
		break;
	case FAL_M_REALS:
		d = take();
		all = (struct fal_trace_list){ d, 1 + draw(MANY) };
		for (size_t i = 0; i < MANY * WIDE; i++)
			d[i] = real();
		break;
	case FAL_M_HEXES:
	case FAL_M_LIST:
		all = list(m, 1 + draw(MANY));
		break;
	case FAL_M_OBJECT:
		all = list(m, 1);
		memcpy(at, &all.v, sizeof(all.v));
		return;
	case FAL_M_JSON:
		*(struct fal_json_text *)at = (struct fal_json_text){ "{\"a\":[1]}", 9 };
		return;
	}
	memcpy(at, &all, sizeof(all));
}

static void
fill(const struct fal_schema *s, void *out)
{
	memset(out, 0, s->size);
	for (size_t i = 0; i < s->members; i++) {
		const struct fal_member *m = &s->member[i];
		void *at = (uint8_t *)out + m->at;
		if (m->when == FAL_MUST || yes())
			set(m, at);
		else if (m->when == FAL_OPT && m->kind == FAL_M_WHOLE)
			*(uint64_t *)at = FAL_TRACE_ABSENT;
		else if (m->when == FAL_OPT)
			*(double *)at = (double)NAN;
	}
}

/* ---- what was read -------------------------------------------------------------------
 */

static bool
same_real(double a, double b, double by)
{
	return (isnan(a) && isnan(b)) || fabs(a - b) <= by;
}

static bool same(const struct fal_schema *s, const void *a, const void *b);

static bool
same_list(const struct fal_member *m, const void *a, const void *b)
{
	const size_t width = m->arg > 0 && m->kind != FAL_M_TUPLE ? (size_t)m->arg : 1;
	struct fal_trace_list x, y;
	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	bool ok = x.n == y.n;
	if (m->kind == FAL_M_TUPLE || m->kind == FAL_M_ROWS || m->kind == FAL_M_REALS)
		return ok && (x.n == 0 || memcmp(x.v, y.v, 8 * width * x.n) == 0);
	for (size_t i = 0; i < x.n && ok; i++)
		ok = m->kind == FAL_M_HEXES
			     ? strcmp(((const char *const *)x.v)[i],
				      ((const char *const *)y.v)[i]) == 0
			     : same(m->of(), (const uint8_t *)x.v + i * m->of()->size,
				    (const uint8_t *)y.v + i * m->of()->size);
	return ok;
}

static bool
same_member(const struct fal_member *m, const void *a, const void *b)
{
	const void *x, *y;
	switch (m->kind) {
	case FAL_M_WHOLE:
		return *(const uint64_t *)a == *(const uint64_t *)b;
	case FAL_M_ID:
	case FAL_M_WORD:
		return *(const uint32_t *)a == *(const uint32_t *)b;
	case FAL_M_REAL:
	case FAL_M_LOSS:
		return same_real(*(const double *)a, *(const double *)b, 0);
	case FAL_M_SECONDS:
		return same_real(*(const double *)a, *(const double *)b, 1e-9);
	case FAL_M_FLAG:
		return *(const bool *)a == *(const bool *)b;
	case FAL_M_WORD64:
		return ((const struct fal_hex64 *)a)->is ==
			       ((const struct fal_hex64 *)b)->is &&
		       ((const struct fal_hex64 *)a)->v ==
			       ((const struct fal_hex64 *)b)->v;
	case FAL_M_TEXT:
	case FAL_M_HEX:
	case FAL_M_JSON:
	case FAL_M_OBJECT:
		memcpy(&x, a, sizeof(x));
		memcpy(&y, b, sizeof(y));
		if (x == NULL || y == NULL)
			return x == y;
		return m->kind == FAL_M_OBJECT ? same(m->of(), x, y)
		       : m->kind == FAL_M_JSON ? memcmp(x, y, 9) == 0
					       : strcmp(x, y) == 0;
	default:
		return same_list(m, a, b);
	}
}

static bool
same(const struct fal_schema *s, const void *a, const void *b)
{
	for (size_t i = 0; i < s->members; i++)
		if (!same_member(&s->member[i], (const uint8_t *)a + s->member[i].at,
				 (const uint8_t *)b + s->member[i].at)) {
			print_error("# %s.%s differs\n", s->name, s->member[i].name);
			return false;
		}
	return true;
}

/* Is the value JSON of this kind? */
static bool
fits(const json_t *v, enum fal_member_kind kind)
{
	switch (kind) {
	case FAL_M_WHOLE:
	case FAL_M_ID:
		return json_is_integer(v);
	case FAL_M_REAL:
	case FAL_M_SECONDS:
		return json_is_number(v);
	case FAL_M_LOSS:
		return json_is_number(v) || json_is_null(v);
	case FAL_M_FLAG:
		return json_is_true(v);
	case FAL_M_TEXT:
	case FAL_M_WORD:
	case FAL_M_HEX:
	case FAL_M_WORD64:
		return json_is_string(v);
	case FAL_M_OBJECT:
	case FAL_M_JSON:
		return json_is_object(v);
	default:
		return json_is_array(v);
	}
}

struct reading {
	const struct fal_schema *s;
	const void *want;
	bool gap; /* before it */
	uint32_t lines;
};

static int
on_line(void *arg, struct fal_trace_line *l)
{
	struct reading *r = arg;
	size_t there = 2; /* t, ev */
	if (l->number == 1 && r->gap)
		return 0;
	r->lines++;
	for (size_t i = 0; i < r->s->members; i++) {
		const json_t *v = json_object_get(l->o, r->s->member[i].name);
		there += v != NULL;
		if (v != NULL && !fits(v, r->s->member[i].kind))
			fail_msg("%s.%s: no such JSON", l->ev, r->s->member[i].name);
	}
	assert_int_equal(json_object_size(l->o), there);
	if (!same(r->s, r->want, &l->is))
		fail_msg("%.*s", (int)l->n, l->text);
	return 0;
}

static void
test_all(void **state)
{
	static const char gap[] = "{\"t\":0,\"ev\":\"gap\",\"lines\":1,\"bytes\":1,"
				  "\"blake2b\":\"\"}\n";
	static union {
		uint8_t p[1024];
		uint64_t align;
	} line;
	struct fal_buf b = { 0 };
	(void)state;
	for (enum fal_event ev = 1; ev < FAL_EVENTS; ev++) {
		for (int i = 0; i < ROUNDS; i++) {
			struct reading r = { .s = fal_event_schema(ev),
					     .want = &line,
					     .gap = ev != FAL_EV_JOB };
			struct fal_diag diag = { "" };
			struct fal_trace_reader *reader =
				fal_trace_reader_new(on_line, &r);
			assert_true(r.s->size <= sizeof(line));
			space.used = 0;
			fill(r.s, &line);
			fal_trace_put(&b, 1, ev, &line);
			fal_put_u8(&b, '\n');
			assert_int_equal(b.err, 0);
			if (r.gap)
				fal_trace_feed(reader, gap, sizeof(gap) - 1, &diag);
			/* Nothing is taken back here that was read. */
			int err =
				ev != FAL_EV_RESTART ||
						*(uint64_t *)&line.p[offsetof(
							struct fal_ev_restart, lines)] > 0
					? fal_trace_feed(reader, b.p, b.n, &diag)
					: 0;
			if (err != 0)
				fail_msg("%s: %.*s", diag.text, (int)b.n,
					 (const char *)b.p);
			assert_true(r.lines == 1 || ev == FAL_EV_RESTART);
			fal_trace_reader_free(reader);
		}
	}
	fal_buf_free(&b);
}

/* ---- the man page -------------------------------------------------------------------
 */

static bool
is_member(const struct fal_schema *s, const char *name, uint64_t *seen)
{
	bool any = false;
	for (size_t i = 0; i < s->members; i++) {
		const struct fal_member *m = &s->member[i];
		const bool is = strcmp(m->name, name) == 0;
		*seen |= is ? 1ULL << i : 0;
		any |= is;
		if (m->kind == FAL_M_LIST || m->kind == FAL_M_OBJECT) {
			uint64_t of = 0;
			any |= is_member(m->of(), name, &of);
		}
	}
	return any;
}

/* The events of falcon-trace(5) are those of the table, and have its members; those of a
 * worker stand before all events. */
static void
test_man(void **state)
{
	FILE *f = fopen("man/falcon-trace.5", "r");
	char line[256];
	const struct fal_schema *s = NULL;
	uint64_t seen = 0;
	uint32_t events = 0;
	(void)state;
	assert_non_null(f);
	for (bool more = true; more;) {
		more = fgets(line, sizeof(line), f) != NULL &&
		       strncmp(line, ".Sh CHAIN", 9) != 0;
		line[strcspn(line, "\n")] = '\0';
		const bool begins = more && strncmp(line, ".Ss ", 4) == 0;
		if ((begins || !more) && s != NULL && seen != (1ULL << s->members) - 1)
			fail_msg("%s has members that the man page has not", s->name);
		if (begins) {
			const enum fal_event ev = fal_event_find(line + 4);
			if (ev == FAL_EV_OTHER)
				fail_msg("no event %s", line + 4);
			s = fal_event_schema(ev);
			seen = 0;
			(void)is_member(s, "worker", &seen);
			(void)is_member(s, "id", &seen);
			events++;
		}
		if (s == NULL || strncmp(line, ".It Va ", 7) != 0)
			continue;
		for (char *name = strtok(line + 7, " ,"); name != NULL;
		     name = strtok(NULL, " ,"))
			if (!is_member(s, name, &seen))
				fail_msg("%s has no member %s", s->name, name);
	}
	assert_int_equal(events, FAL_EVENTS - 1);
	fclose(f);
}

int
main(void)
{
	const char *from = getenv("SEED");
	seed = from != NULL ? strtoull(from, NULL, 10) : seed;
	print_message("# SEED=%llu\n", (unsigned long long)seed);
	rng = fal_rng_init(seed, FAL_RNG_TEST, 0);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all),
		cmocka_unit_test(test_man),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
