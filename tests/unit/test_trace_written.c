/* What the writer puts into lines of a trace, the readers find there: over drawn values,
 * and whatever is not there stays out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/parse.h"
#include "base/rng.h"
#include "sec/hash.h"
#include "trace/clocks.h"
#include "trace/reader.h"
#include "trace/round.h"
#include "trace/serving.h"
#include "trace/writer.h"
#include "wire/msg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 300

static uint64_t seed = 20261122;
static struct fal_rng rng;

static uint32_t
draw(uint32_t bound)
{
	return fal_rng_below(&rng, bound);
}

/* A whole number of any size that a trace may have. */
static uint64_t
whole(void)
{
	const uint64_t any = (uint64_t)draw(UINT32_MAX) << 32 | draw(UINT32_MAX);
	return any >> (11 + draw(53));
}

static bool
yes(void)
{
	return draw(2) == 1;
}

/* A name with what JSON must quote. */
static const char *
name(char out[static 24])
{
	static const char *const parts[] = { "a",        "\"", "\\", "\n",
					     "\xc3\xa9", " ",  "{",  "z" };
	out[0] = '\0';
	for (uint32_t i = 1 + draw(8); i > 0; i--)
		strcat(out, parts[draw(8)]);
	return out;
}

/* ---- a line is read by what is given -------------------------------------------------
 */

typedef void look_fn(struct fal_trace_line *l, const void *d);

struct reading {
	look_fn *look;
	const void *d;
	bool gap; /* comes first */
	uint32_t lines;
};

/* Is it of this kind, as JSON? */
static bool
fits(const json_t *v, enum fal_field_kind kind)
{
	switch (kind) {
	case FAL_FIELD_WHOLE:
		return json_is_integer(v) && json_integer_value(v) >= 0;
	case FAL_FIELD_EXPONENT:
		return json_is_integer(v);
	case FAL_FIELD_REAL:
	case FAL_FIELD_SECONDS:
		return json_is_number(v) || json_is_null(v);
	case FAL_FIELD_FLAG:
		return json_is_true(v);
	case FAL_FIELD_TEXT:
		return json_is_string(v);
	case FAL_FIELD_TUPLE:
	case FAL_FIELD_LIST:
		return json_is_array(v);
	case FAL_FIELD_OBJECT:
		return json_is_object(v);
	}
	return false;
}

/* Every member, and those of members, stands in the table. */
static void
check_known(const json_t *o)
{
	const char *key;
	json_t *v, *part;
	size_t i;
	json_object_foreach((json_t *)(uintptr_t)o, key, v)
	{
		bool known = false;
		for (enum fal_field f = 0; f < FAL_FIELD_COUNT && !known; f++)
			known = strcmp(key, fal_field_name(f)) == 0 &&
				fits(v, fal_field_kind(f));
		if (!known)
			fail_msg("'%s' is not in the table, or not so", key);
		if (json_is_object(v) && strcmp(key, "policy") != 0)
			check_known(v);
		json_array_foreach(v, i, part)
		{
			if (json_is_object(part))
				check_known(part);
		}
	}
}

static int
on_line(void *arg, struct fal_trace_line *l)
{
	struct reading *r = arg;
	check_known(l->o);
	if (l->number == 1 && r->gap)
		return l->err;
	if (r->look != NULL)
		r->look(l, r->d);
	r->lines++;
	return l->err;
}

/* Reads the line; where it cannot be the first, as if lines were missing before it. */
static void
reads(const struct fal_buf *line, look_fn *look, const void *d)
{
	static const char gap[] = "{\"t\":0,\"ev\":\"gap\"}\n", job[] = "\"ev\":\"job\"";
	struct reading r = { .look = look, .d = d };
	r.gap = memmem(line->p, line->n, job, sizeof(job) - 1) == NULL;
	struct fal_diag diag = { "" };
	struct fal_trace_reader *reader = fal_trace_reader_new(on_line, &r);
	assert_int_equal(line->err, 0);
	assert_non_null(reader);
	int err = FAL_OK;
	if (r.gap)
		err = fal_trace_feed(reader, gap, sizeof(gap) - 1, &diag);
	if (err == 0)
		err = fal_trace_feed(reader, line->p, line->n, &diag);
	if (err == 0)
		err = fal_trace_feed(reader, "\n", 1, &diag);
	if (err != 0 || r.lines != 1)
		fail_msg("%s: %.*s", diag.text, (int)line->n, (const char *)line->p);
	fal_trace_reader_free(reader);
}

static void
same(uint64_t is, uint64_t want, const char *what)
{
	if (is != want)
		fail_msg("%s is %llu, not %llu", what, (unsigned long long)is,
			 (unsigned long long)want);
}

/* To so much. */
static void
near(double is, double want, double by, const char *what)
{
	if (!(fabs(is - want) <= by))
		fail_msg("%s is %.17g, not %.17g", what, is, want);
}

static void
same_text(struct fal_trace_line *l, enum fal_field f, const char *want)
{
	const char *is = fal_trace_get_str(l, l->o, f);
	if (l->err != 0 || strcmp(is, want) != 0)
		fail_msg("%s is '%s', not '%s'", fal_field_name(f), is, want);
}

static void
same_number(struct fal_trace_line *l, enum fal_field f, uint64_t want)
{
	same(fal_trace_get_u64(l, l->o, f, FAL_TRACE_NUM_MAX), want, fal_field_name(f));
}

/* It is there only if it is something. */
static void
same_if(struct fal_trace_line *l, enum fal_field f, uint64_t want)
{
	same(fal_trace_has(l->o, f), want > 0, fal_field_name(f));
	if (want > 0)
		same_number(l, f, want);
}

static void
same_real(struct fal_trace_line *l, enum fal_field f, double want)
{
	near(fal_trace_get_f64(l, l->o, f), want, 0, fal_field_name(f));
}

static void
same_ns(struct fal_trace_line *l, enum fal_field f, uint64_t want)
{
	near(fal_trace_get_seconds(l, l->o, f), 1e-9 * (double)want, 6e-7,
	     fal_field_name(f));
}

static void
same_who(struct fal_trace_line *l, const struct fal_line_who *w)
{
	same_text(l, FAL_F_WORKER, w->name);
	same_number(l, FAL_F_ID, w->id);
}

/* ---- the lines -----------------------------------------------------------------------
 */

static void
look_job(struct fal_trace_line *l, const void *arg)
{
	const struct fal_line_job *d = arg;
	struct fal_trace_job is;
	assert_int_equal(fal_trace_job_read(l, &is), 0);
	same(is.epochs, d->grid.epochs, "epochs");
	same(is.batch, d->grid.batch, "batch");
	same(is.task, d->grid.task, "task");
	same(is.samples, d->grid.samples, "samples");
	same(is.parts, d->grid.parts, "parts");
	same(is.blocks, d->blocks, "blocks");
	same(is.clocks, fal_grid_clocks(&d->grid), "clocks");
	same(is.test, d->test, "test");
	same(is.sums, d->sums, "audit");
	same(is.hashes, d->hashes, "hashes");
	same_text(l, FAL_F_NAME, d->name);
	same_text(l, FAL_F_MODEL, d->model);
	same_text(l, FAL_F_DATA, d->data);
	same_text(l, FAL_F_SCHEME, "epsp");
	same_text(l, FAL_F_OPTIMIZER, fal_optim_name(d->optim->kind));
	same(fal_trace_has(l->o, FAL_F_BETA1), d->optim->kind == FAL_ADAMW, "beta1");
	same_number(l, FAL_F_INCARNATION, d->incarnation);
	same_number(l, FAL_F_PARAMS, d->params);
	same_number(l, FAL_F_SHARDS, d->shards);
	same(fal_trace_has(l->o, FAL_F_ABOVE), d->above != NULL, "above");
	if (d->above != NULL) {
		same_text(l, FAL_F_ABOVE, d->above->address);
		same_text(l, FAL_F_KEY, d->above->key);
		same_text(l, FAL_F_KEY_FINGERPRINT, d->above->key_fingerprint);
	}
}

static void
test_job(void **state)
{
	(void)state;
	const struct fal_rule rule = { .scheme = FAL_EPSP };
	const struct fal_line_above above = { "unix:a \"b\"", "lab2", "ab01" };
	struct fal_buf b = { 0 };
	for (int i = 0; i < ROUNDS; i++) {
		char called[24];
		const struct fal_optim optim = { .kind = (enum fal_optim_kind)draw(
							 FAL_OPTIMS) };
		const uint32_t task = 1 + draw(40);
		struct fal_line_job d = { .name = name(called),
					  .hash = "ab",
					  .model = "cd",
					  .data = "ef",
					  .seed = whole(),
					  .grid = { .samples = 1000 + draw(100000),
						    .batch = task * (1 + draw(20)),
						    .task = task,
						    .epochs = 1 + draw(30),
						    .parts = 1 },
					  .test = draw(1000),
					  .blocks = 1 + draw(1000),
					  .shards = 1 + draw(4),
					  .params = whole(),
					  .rule = &rule,
					  .sums = yes(),
					  .hashes = 1 + draw(9),
					  .numerics = "fast",
					  .optim = &optim,
					  .incarnation = draw(UINT32_MAX),
					  .above = yes() ? &above : NULL };
		fal_line_job(&b, &d);
		reads(&b, look_job, &d);
	}
	fal_buf_free(&b);
}

static void
look_group(struct fal_trace_line *l, const void *arg)
{
	const uint32_t *has = arg;
	same_number(l, FAL_F_MEMBERS, has[0]);
	same_number(l, FAL_F_LANES, has[1]);
}

static void
look_join(struct fal_trace_line *l, const void *arg)
{
	const struct fal_line_join *d = arg;
	uint64_t lanes[2];
	same_who(l, &d->who);
	same_text(l, FAL_F_KEY, d->key);
	fal_trace_get_tuple(l, l->o, FAL_F_LANES_RANGE, 2, lanes);
	same(lanes[0], d->lanes_min, "lanes");
	same(lanes[1], d->lanes_max, "lanes");
	same_number(l, FAL_F_CORES, d->cores);
	same_if(l, FAL_F_LARGE, d->large);
	if (d->task_ns > 0)
		same_ns(l, FAL_F_TASK_S, d->task_ns);
	if (d->build[0] != '\0')
		assert_string_equal(fal_trace_get_str(l, l->o, FAL_F_PROGRAM), d->build);
	if (d->kernels[0] != '\0')
		assert_string_equal(fal_trace_get_str(l, l->o, FAL_F_KERNELS),
				    d->kernels);
	if (d->large > 0)
		same_ns(l, FAL_F_LARGE_S, d->large_ns);
}

static void
test_join(void **state)
{
	(void)state;
	static const uint8_t fingerprint[FAL_FINGERPRINT] = { 1, 2 };
	struct fal_buf b = { 0 };
	for (int i = 0; i < ROUNDS; i++) {
		char called[24], key[24];
		const bool probed = yes();
		const struct fal_line_join d = {
			.who = { name(called), draw(UINT32_MAX) },
			.key = name(key),
			.key_fingerprint = "00",
			.lanes_min = draw(100),
			.lanes_max = draw(1000),
			.cores = draw(1000),
			.fingerprint = fingerprint,
			.build = yes() ? "0.9.1" : "",
			.kernels = yes() ? "x86_64 Zen" : "",
			.task_ns = yes() ? whole() % 10000000000 : 0,
			.large = probed ? 1 + draw(1000) : 0,
			.large_ns = probed ? draw(UINT32_MAX) : 0
		};
		fal_line_join(&b, 1, &d);
		reads(&b, look_join, &d);
		fal_line_leave(&b, 1, d.who, "done", yes());
		reads(&b, NULL, NULL);
		const uint32_t has[] = { 1 + draw(1000), 1 + draw(1000) };
		fal_line_group(&b, 1, d.who, has[0], has[1]);
		reads(&b, look_group, has);
		fal_line_charge(&b, 1, d.who, "lies");
		reads(&b, NULL, NULL);
	}
	fal_buf_free(&b);
}

static void
look_clock(struct fal_trace_line *l, const void *arg)
{
	const struct fal_line_clock *d = arg;
	const struct fal_work *w = d->work;
	uint64_t samples = 0, row[3];
	same_who(l, &d->who);
	same_number(l, FAL_F_CLOCK, d->clock);
	same(fal_trace_has(l->o, FAL_F_ROUND), d->own, "round");
	if (d->own)
		same_number(l, FAL_F_ROUND, d->round);
	same_number(l, FAL_F_LANES, d->lanes);
	same_number(l, FAL_F_SHARE, w->share);
	same_number(l, FAL_F_DONE, w->done);
	same_number(l, FAL_F_IN, w->in);
	same_number(l, FAL_F_OUT, w->out);
	same_number(l, FAL_F_CLONED, w->cloned);
	same_number(l, FAL_F_LOST, w->lost);
	same_number(l, FAL_F_STALENESS, w->stale_updates);
	same_number(l, FAL_F_TX, d->tx);
	same_number(l, FAL_F_RX, d->rx);
	same_ns(l, FAL_F_COMPUTE, d->spent.compute);
	same_ns(l, FAL_F_PUSH, d->spent.push);
	same_ns(l, FAL_F_PULL, d->spent.pull);
	same_ns(l, FAL_F_WAIT, d->spent.wait);
	same_ns(l, FAL_F_PUSH_ALL, d->spent.push_all);
	same_ns(l, FAL_F_PULL_ALL, d->spent.pull_all);
	same_ns(l, FAL_F_LATE, d->spent.late);
	same(fal_trace_has(l->o, FAL_F_RTT), d->rtt > 0, "rtt");
	same_if(l, FAL_F_CUT, w->cut.tasks);
	same(fal_trace_has(l->o, FAL_F_PACES), w->paces > 1, "paces");
	for (uint32_t i = 0; i < w->paces; i++) {
		samples += w->pace[i].samples;
		if (w->paces < 2)
			continue;
		fal_trace_get_row(l, l->o, FAL_F_PACES, i, 3, row);
		same(row[0], w->pace[i].tasks, "paces: tasks");
		same(row[2], w->pace[i].samples, "paces: samples");
	}
	same_number(l, FAL_F_SAMPLES, samples);
}

static void
test_clock(void **state)
{
	(void)state;
	struct fal_buf b = { 0 };
	for (int i = 0; i < ROUNDS; i++) {
		char called[24];
		struct fal_work w = { .share = draw(1000),
				      .done = draw(1000),
				      .in = draw(1000),
				      .out = draw(1000),
				      .cloned = draw(1000),
				      .lost = draw(1000),
				      .stale_updates = whole(),
				      .paces = draw(FAL_WORK_PACES + 1) };
		for (uint32_t k = 0; k < w.paces; k++)
			w.pace[k] =
				(struct fal_work_pace){ .tasks = 1 + draw(99),
							.samples = 1 + draw(9999),
							.seconds = draw(1000) * 1e-3 };
		if (yes())
			w.cut = w.pace[0];
		const struct fal_line_clock d = {
			.who = { name(called), draw(UINT32_MAX) },
			.clock = whole(),
			.round = whole(),
			.own = yes(),
			.lanes = draw(99),
			.work = &w,
			.spent = { draw(UINT32_MAX), draw(UINT32_MAX), draw(UINT32_MAX),
				   draw(UINT32_MAX), draw(UINT32_MAX), draw(UINT32_MAX),
				   draw(UINT32_MAX) },
			.rtt = draw(2000) * 1e-3,
			.tx = whole(),
			.rx = whole(),
		};
		fal_line_clock(&b, draw(1000), &d);
		reads(&b, look_clock, &d);
	}
	fal_buf_free(&b);
}

static void
look_ledger(struct fal_trace_line *l, const void *arg)
{
	const struct fal_line_ledger *d = arg;
	struct fal_trace_round is;
	assert_int_equal(fal_trace_round_read(l, &is), 0);
	same(is.round, d->round, "round");
	same(is.clock, d->clock, "clock");
	same(is.first, d->first, "first");
	same(is.tasks, 3, "tasks");
	same(is.samples, d->samples, "samples");
	same(is.version, d->version, "version");
	same(is.blocks, d->blocks, "blocks");
	same(is.end, (uint64_t)d->end, "end");
	same(is.delta, d->delta, "kind");
	same(is.owner, d->owner, "owner");
	same(is.group, d->group, "group");
	same(is.local, d->local, "local");
	same(fal_trace_has(l->o, FAL_F_ADDED), d->sums, "added");
	same(is.has_stale, d->end == FAL_ROUND_APPLIED, "stale");
	if (d->end != FAL_ROUND_APPLIED) {
		same_text(l, FAL_F_WHY, d->why);
		return;
	}
	near(is.weight, d->delta ? d->weight : 1, 0, "weight");
	near(is.divisor, d->divisor, 0, "divisor");
	same(is.among, d->among, "among");
	same(is.steps, d->steps, "steps");
	same(is.clocks, d->clocks, "stale.clocks");
	same(is.updates, d->updates, "stale.updates");
	same(is.rank, d->rank, "stale.rank");
	same(is.slot, d->rank > 0 ? d->slot : 0, "slot");
}

static void
test_ledger(void **state)
{
	(void)state;
	struct fal_ledger ledger = { 0 };
	struct fal_buf b = { 0 };
	assert_int_equal(fal_ledger_open(&ledger, 0, 3), 0);
	for (int i = 0; i < ROUNDS; i++) {
		const struct fal_line_ledger d = {
			.round = whole(),
			.clock = whole(),
			.version = whole(),
			.first = draw(UINT32_MAX),
			.samples = draw(UINT32_MAX),
			.blocks = draw(UINT32_MAX),
			.end = (enum fal_round_end)draw(3),
			.why = "a few words",
			.delta = yes(),
			.weight = draw(1000) / 7.0,
			.among = draw(3),
			.divisor = yes() ? draw(1000) / 3.0 : 0,
			.lr = yes() ? draw(1000) / 11.0 : 0,
			.steps = draw(3),
			.base = (enum fal_start)draw(3),
			.since = whole(),
			.owner = draw(3),
			.group = draw(3),
			.local = draw(3),
			.clocks = whole(),
			.updates = whole(),
			.rank = draw(3),
			.slot = whole(),
			.sums = yes(),
			.seed = whole(),
			.added = whole(),
		};
		fal_line_ledger(&b, &d, &ledger);
		reads(&b, look_ledger, &d);
	}
	fal_ledger_free(&ledger);
	fal_buf_free(&b);
}

static void
look_update(struct fal_trace_line *l, const void *arg)
{
	const struct fal_line_update *d = arg;
	same_number(l, FAL_F_VERSION, d->version);
	same_number(l, FAL_F_CLOCK, d->clock);
	same_number(l, FAL_F_EPOCH, d->epoch);
	same_number(l, FAL_F_SAMPLES, d->samples);
	const bool one = d->pushes > 0 && d->groups == 0;
	const bool some = d->pushes > 0 && d->groups > 0;
	same_if(l, FAL_F_GROUPS, d->groups);
	same(fal_trace_has(l->o, FAL_F_AMONG), one, "among");
	same(fal_trace_has(l->o, FAL_F_WEIGHT), one, "weight");
	if (one) {
		same_number(l, FAL_F_AMONG, d->push->among);
		same_real(l, FAL_F_WEIGHT, d->push->weight);
	}
	same(fal_trace_has(l->o, FAL_F_OUTER), some, "outer");
	same(fal_trace_has(l->o, FAL_F_PUSHES), some, "pushes");
	if (some)
		same(fal_trace_get_len(l, l->o, FAL_F_PUSHES), d->pushes, "pushes");
	same(fal_trace_get_len(l, l->o, FAL_F_ROUNDS), d->rounds, "rounds");
	same_real(l, FAL_F_LR, d->lr);
	same(fal_trace_has(l->o, FAL_F_NORM), d->norm > 0, "norm");
	same(fal_trace_has(l->o, FAL_F_HASH), d->hash != NULL, "hash");
	if (d->hash != NULL) {
		char hex[2 * FAL_HASH_BYTES + 1];
		fal_hex(d->hash, FAL_HASH_BYTES, hex);
		assert_string_equal(fal_trace_get_hex(l, l->o, FAL_F_HASH, 64), hex);
		fal_hex(d->exponents, FAL_HASH_BYTES, hex);
		assert_string_equal(fal_trace_get_hex(l, l->o, FAL_F_EXPONENTS, 64), hex);
	}
	if (isfinite(d->loss))
		same_real(l, FAL_F_LOSS, d->loss);
	else
		assert_true(json_is_null(fal_trace_at(l->o, FAL_F_LOSS)));
}

static void
test_update(void **state)
{
	(void)state;
	struct fal_buf b = { 0 };
	for (int i = 0; i < ROUNDS; i++) {
		struct fal_collected round[5];
		for (size_t k = 0; k < 5; k++)
			round[k] = (struct fal_collected){ .round = whole() };
		uint8_t hash[FAL_HASH_BYTES] = { 0 };
		hash[draw(FAL_HASH_BYTES)] = (uint8_t)draw(256);
		const uint8_t exponents[FAL_HASH_BYTES] = { (uint8_t)draw(256) };
		const struct fal_line_push push[] = { { 1, draw(9) / 3.0, 1 + draw(9) },
						      { 2, draw(9) / 3.0, 0 } };
		const struct fal_line_update d = { .t = draw(1000),
						   .hash = yes() ? hash : NULL,
						   .exponents = exponents,
						   .version = whole(),
						   .clock = whole(),
						   .epoch = whole(),
						   .round = round,
						   .rounds = draw(6),
						   .push = push,
						   .pushes = draw(3),
						   .groups = yes() ? 1 + draw(9) : 0,
						   .outer = draw(3) / 3.0,
						   .momentum = draw(3) / 3.0,
						   .divisor = draw(9) / 3.0,
						   .samples = draw(UINT32_MAX),
						   .loss = yes() ? (double)NAN
								 : draw(1000) / 3.0,
						   .lr = draw(1000) / 3.0,
						   .norm = draw(3) / 3.0 };
		fal_line_update(&b, &d);
		reads(&b, look_update, &d);
	}
	fal_buf_free(&b);
}

static void
look_shard(struct fal_trace_line *l, const void *arg)
{
	const struct fal_line_shard *d = arg;
	const struct fal_trace_job job = { .clocks = d->clock + 1, .blocks = UINT32_MAX };
	struct fal_trace_shard is;
	assert_int_equal(fal_trace_shard_read(l, &job, &is), 0);
	same(is.shard, d->shard, "shard");
	same(is.clock, d->clock, "clock");
	same(is.version, d->version, "version");
	same(is.blocks, d->blocks, "blocks");
	same(is.rx, d->rx, "rx");
	same(is.tx, d->tx, "tx");
	assert_true(isnan(is.took) == isnan(d->took));
	same(is.name != NULL, d->name != NULL, "by");
	if (is.name != NULL)
		same_text(l, FAL_F_BY_NAME, d->name);
	if (is.address != NULL)
		same_text(l, FAL_F_ADDRESS, d->address);
	assert_true(fabs(is.blame - d->blame) < 1e-6 &&
		    fabs(is.service - d->service) < 1e-6 &&
		    fabs(is.queue - d->queue) < 1e-6);
}

static void
test_shard(void **state)
{
	(void)state;
	struct fal_buf b = { 0 };
	for (int i = 0; i < ROUNDS; i++) {
		char called[24];
		const bool here = yes();
		const struct fal_line_shard d = { .shard = draw(FAL_TRACE_SHARDS_MAX),
						  .clock = whole() / 2,
						  .version = whole(),
						  .name = here ? NULL : name(called),
						  .address = here ? NULL : "[::1]:7000",
						  .blocks = draw(UINT32_MAX),
						  .rx = whole(),
						  .tx = whole(),
						  .service = draw(1000) / 3.0,
						  .queue = draw(1000) / 3.0,
						  .took = yes() ? (double)NAN
								: draw(1000) / 3.0,
						  .blame = draw(1000) / 3.0 };
		fal_line_shard(&b, 1, &d);
		reads(&b, look_shard, &d);
	}
	fal_buf_free(&b);
}

static void
look_check(struct fal_trace_line *l, const void *arg)
{
	const struct fal_line_check *d = arg;
	uint64_t id[2];
	fal_trace_get_tuple(l, l->o, FAL_F_C, 2, id);
	same(id[0], d->id.worker, "c");
	same(id[1], d->id.seq, "c");
	same_number(l, FAL_F_BLOCK, d->block);
	same_if(l, FAL_F_BY, d->by);
	same_text(l, FAL_F_VERDICT, d->verdict);
	assert_true(json_integer_value(fal_trace_at(l->o, FAL_F_NEEDED)) == d->needed);
	assert_true(json_integer_value(fal_trace_at(l->o, FAL_F_SHOWN)) == d->shown);
	same(fal_trace_has(l->o, FAL_F_BOUND), d->counts != NULL, "bound");
}

/* The lines of which not much is read. */
static void
test_others(void **state)
{
	(void)state;
	struct fal_buf b = { 0 };
	for (int i = 0; i < ROUNDS; i++) {
		char called[24];
		const int8_t counts[3] = { (int8_t)draw(3), 2, (int8_t)draw(3) };
		const struct fal_line_who who = { name(called), draw(UINT32_MAX) };
		const struct fal_round_info info = { .round = whole(), .clock = whole() };
		const struct fal_line_check check = { .round = whole(),
						      .id = { draw(99), draw(99) },
						      .block = draw(999),
						      .needed = (int)draw(60) - 30,
						      .shown = (int)draw(60) - 30,
						      .exponent = (int)draw(60) - 30,
						      .by = draw(3),
						      .counts = yes() ? counts : NULL,
						      .blocks = 3,
						      .verdict = "bounded",
						      .why = yes() ? "so" : NULL };
		struct fal_line_eval_key key[2] = {
			{ "a", 1 + draw(9), draw(9), draw(9) }, { "b", draw(2), 0, 0 }
		};
		fal_line_check(&b, 1, &check);
		reads(&b, look_check, &check);
		fal_line_again(&b, 1, &info,
			       &(struct fal_line_again){ { 1, 2 }, draw(9), "so" });
		reads(&b, NULL, NULL);
		fal_line_eval(&b, &(struct fal_line_eval){ .version = whole(),
							   .loss = draw(9) / 3.0,
							   .key = key,
							   .keys = draw(3) });
		reads(&b, NULL, NULL);
		fal_line_late(&b, 1,
			      &(struct fal_line_late){ who, "so", yes() ? "task" : NULL,
						       draw(9) / 3.0 });
		reads(&b, NULL, NULL);
		const struct fal_line_doubt doubt = { .who = who, .round = whole() };
		fal_line_nonfinite(&b, 1, &doubt);
		reads(&b, NULL, NULL);
		fal_line_alone(&b, 1, &doubt, draw(9) / 3.0);
		reads(&b, NULL, NULL);
		fal_line_diverged(&b, 1,
				  &(struct fal_line_diverged){ who, whole(), "so",
							       draw(9) / 3.0 });
		reads(&b, NULL, NULL);
		fal_line_policy(&b, 1,
				&(struct fal_line_policy){ 1, 2, "epsp", "x", "{}",
							   2 * draw(2) });
		if (b.p[b.n - 2] == '}') /* it has one */
			reads(&b, NULL, NULL);
		fal_line_hold(&b, 1, "paused", who.name);
		reads(&b, NULL, NULL);
		fal_line_trainer(&b, 1, who.name, "so");
		reads(&b, NULL, NULL);
		fal_line_refuse(&b, 1, who.name, "so", whole());
		reads(&b, NULL, NULL);
		fal_line_gap(&b, &(struct fal_line_gap){ "1.5", whole(), whole(), "00",
							 "ab" });
		reads(&b, NULL, NULL);
		fal_line_now(&b, 1, "ab");
		reads(&b, NULL, NULL);
		fal_line_done(&b, &(struct fal_line_done){ .t = 1,
							   .version = whole(),
							   .sha256 = "00",
							   .hash = "00",
							   .journal = draw(2) ? "ab" : "",
							   .accuracy = draw(3) - 1.0,
							   .trained = draw(9) / 3.0 });
		reads(&b, NULL, NULL);
		fal_line_failed(&b, 1, whole(), draw(9) / 3.0, who.name);
		reads(&b, NULL, NULL);
	}
	fal_buf_free(&b);
}

/* No two rows of the table are the same. */
static void
test_table(void **state)
{
	(void)state;
	for (enum fal_field f = 0; f < FAL_FIELD_COUNT; f++)
		for (enum fal_field g = 0; g < f; g++)
			if (strcmp(fal_field_name(f), fal_field_name(g)) == 0 &&
			    fal_field_kind(f) == fal_field_kind(g))
				fail_msg("%s stands twice", fal_field_name(f));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_job),    cmocka_unit_test(test_join),
		cmocka_unit_test(test_clock),  cmocka_unit_test(test_ledger),
		cmocka_unit_test(test_update), cmocka_unit_test(test_others),
		cmocka_unit_test(test_table),  cmocka_unit_test(test_shard),
	};
	if (getenv("FAL_TEST_SEED") != NULL)
		seed = strtoull(getenv("FAL_TEST_SEED"), NULL, 10);
	rng = fal_rng_init(seed, FAL_RNG_DRAW, 1);
	printf("# SEED=%llu\n", (unsigned long long)seed);
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
