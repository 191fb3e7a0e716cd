/* Threads: each part is done once, and what they are given comes out as from one thread:
 * steps of a store, leaves, publications.  Parts are done by real threads, and in drawn
 * orders by one. */
#include "../drawn.h"
#include "base/err.h"
#include "net/broadcast.h"
#include "net/record.h"
#include "run/threads.h"
#include "server/shard.h"
#include "server/store.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST_THREADS = 12, MOST_PARTS = 3000 };

static struct fal_rng rng;

static uint32_t
below(uint32_t n)
{
	return fal_rng_below(&rng, n);
}

static int
draw(void **state)
{
	(void)state;
	rng = fal_rng_init(drawn_seed((uint64_t)time(NULL)), FAL_RNG_TEST, 0);
	return 0;
}

/* ---- one thread, a drawn order ----------------------------------------------------- */

static void
in_any_order(void *arg, uint32_t parts, fal_part_fn *part, void *of)
{
	const struct fal_parallel *p = arg;
	uint32_t *order = malloc(parts * sizeof(*order));
	for (uint32_t i = 0; i < parts; i++)
		order[i] = i;
	fal_rng_shuffle(&rng, order, parts);
	for (uint32_t i = 0; i < parts; i++)
		part(of, order[i], below(p->threads));
	free(order);
}

/* What waking a helper up must be worth: mostly nothing, so that they come to parts that
 * are short. */
static uint64_t
some_worth(void)
{
	return below(4) == 0 ? below(1000000) : 0;
}

/* Threads, or one that acts as so many. */
struct some {
	struct fal_threads *real;
	struct fal_parallel one;
};

static const struct fal_parallel *
some_threads(struct some *s)
{
	const uint32_t n = 2 + below(MOST_THREADS - 1);
	*s = (struct some){ .one = { n, in_any_order, &s->one } };
	if (below(2) == 0)
		return &s->one;
	s->real = fal_threads_new(n, some_worth());
	return fal_threads_parallel(s->real);
}

/* ---- each part once ---------------------------------------------------------------- */

struct work {
	atomic_uint done[MOST_PARTS];
	atomic_bool busy[MOST_THREADS + 1];
	uint32_t threads, pause;
	atomic_uint wrong;
	pthread_t caller;
};

static void
work_part(void *of, uint32_t part, uint32_t thread)
{
	struct work *w = of;
	sigset_t blocked;
	w->wrong += thread >= w->threads || atomic_exchange(&w->busy[thread], true);
	w->wrong += (thread == 0) != (pthread_equal(pthread_self(), w->caller) != 0);
	pthread_sigmask(SIG_SETMASK, NULL, &blocked);
	w->wrong += (thread != 0) != (sigismember(&blocked, SIGTERM) != 0);
	if (w->pause > 0 && part % w->pause == 0)
		usleep(part % 200);
	w->done[part]++;
	w->busy[thread] = false;
}

static void
each_part_once(void **state)
{
	static struct work w;
	(void)state;
	for (int turn = 0; turn < 20; turn++) {
		struct fal_threads *t;
		const uint32_t n = 1 + below(MOST_THREADS);
		t = fal_threads_new(n, some_worth());
		const struct fal_parallel *p = fal_threads_parallel(t);
		assert_int_equal(fal_parallel_threads(p), n);
		for (uint32_t job = below(30); job > 0; job--) {
			const uint32_t parts =
				below(5) == 0 ? below(MOST_PARTS + 1) : below(20);
			memset(&w, 0, sizeof(w));
			w.threads = n;
			w.caller = pthread_self();
			w.pause = below(4);
			fal_parallel_each(p, parts, work_part, &w);
			assert_int_equal(w.wrong, 0);
			for (uint32_t i = 0; i < MOST_PARTS; i++)
				assert_int_equal(w.done[i], i < parts);
			if (below(3) == 0) /* they may have gone to sleep */
				usleep(below(400));
		}
		fal_threads_free(t);
	}
}

/* Who does parts. */
struct doers {
	atomic_uint parts, of_helpers;
	uint32_t skipped; /* the first ones take no time, as there is nothing to be done,
			   */
	uint32_t slow;    /* and the next ones so many µs */
};

static void
doer_part(void *of, uint32_t part, uint32_t thread)
{
	struct doers *d = of;
	if (part >= d->skipped && d->slow > 0)
		usleep(d->slow);
	d->parts++;
	d->of_helpers += thread != 0;
}

/* What is short is done before anybody has woken up; what is not is shared, whatever it
 * begins with. */
static void
only_long_work_is_shared(void **state)
{
	struct fal_threads *t;
	struct doers brief = { .skipped = 10 }, one = { .slow = 1000 },
		     lengthy = { .skipped = below(100), .slow = 1000 };
	(void)state;
	t = fal_threads_new(2 + below(3), UINT64_C(3600000000000));
	for (uint32_t i = 1; i <= 50; i++) {
		fal_parallel_each(fal_threads_parallel(t), MOST_PARTS, doer_part, &brief);
		assert_int_equal(brief.parts, i * MOST_PARTS);
	}
	assert_int_equal(brief.of_helpers, 0);
	fal_threads_free(t);
	t = fal_threads_new(2 + below(3), 1000000);
	fal_parallel_each(fal_threads_parallel(t), 1, doer_part, &one);
	fal_parallel_each(fal_threads_parallel(t), 200, doer_part, &lengthy);
	assert_int_equal(one.parts, 1);
	assert_int_equal(one.of_helpers, 0);
	assert_int_equal(lengthy.parts, 200);
	assert_true(lengthy.of_helpers > 0);
	fal_threads_free(t);
}

struct cores {
	int caller;               /* its core */
	atomic_uint there, parts; /* of helpers: where they might be on it; all */
};

static void
core_part(void *of, uint32_t part, uint32_t thread)
{
	struct cores *c = of;
	(void)part;
	cpu_set_t may;
	if (thread != 0 && sched_getaffinity(0, sizeof(may), &may) == 0) {
		c->parts++;
		c->there += CPU_ISSET((size_t)c->caller, &may) != 0;
	}
	usleep(100); /* so that others get parts, too */
}

/* Who helps may not be where the caller is, as Linux may leave other cores idle. */
static void
keep_off_the_callers_core(void **state)
{
	cpu_set_t all;
	struct fal_threads *t;
	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	if (CPU_COUNT(&all) < 2)
		skip();
	t = fal_threads_new(2 + below(3), 0);
	uint32_t parts = 0;
	for (int turn = 0; turn < 8; turn++) {
		struct cores c = { .caller = (int)below(CPU_SETSIZE) };
		cpu_set_t one;
		while (!CPU_ISSET((size_t)c.caller, &all))
			c.caller = (c.caller + 1) % CPU_SETSIZE;
		CPU_ZERO(&one);
		CPU_SET((size_t)c.caller, &one);
		assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
		for (int job = 0; job < 3; job++)
			fal_parallel_each(fal_threads_parallel(t), 40, core_part, &c);
		assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
		assert_int_equal(c.there, 0);
		parts += c.parts;
	}
	assert_true(parts > 0);
	fal_threads_free(t);
}

static void
no_threads(void **state)
{
	static struct work w;
	(void)state;
	memset(&w, 0, sizeof(w));
	w.threads = 1;
	w.caller = pthread_self();
	assert_null(fal_threads_parallel(NULL));
	assert_int_equal(fal_parallel_threads(NULL), 1);
	fal_parallel_each(NULL, 7, work_part, &w);
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(w.done[i], i < 7);
	assert_int_equal(w.wrong, 0);
	fal_threads_free(NULL);
}

/* ---- a store ----------------------------------------------------------------------- */

static struct fal_optim
some_optimiser(void)
{
	return (struct fal_optim){ .kind = (enum fal_optim_kind)below(FAL_OPTIMS),
				   .momentum = 0.9f,
				   .weight_decay = below(2) == 0 ? 0.01f : 0,
				   .beta1 = 0.9,
				   .beta2 = 0.999,
				   .eps = 1e-8f,
				   .ema = below(2) == 0 ? 0.9 : 0,
				   .clip = below(2) == 0 ? 0.5 : 0 };
}

/* So large in some blocks that a step leads out of the numbers there. */
static float *
some_params(size_t n, bool edges)
{
	float *p = malloc(n * sizeof(*p));
	for (size_t i = 0; i < n; i++) {
		const bool edge = edges && i / FAL_BLOCK % 3 == 1;
		p[i] = edge ? 3.3e38f : fal_rng_unit(&rng) - 0.5f;
	}
	return p;
}

static void
some_gradient(float *g, size_t n)
{
	for (size_t i = 0; i < n; i++)
		g[i] = fal_rng_unit(&rng) - 0.75f;
}

static void
open_round(struct fal_store *s, uint64_t round)
{
	const struct fal_store_round r = { .round = round,
					   .tasks = 1,
					   .kind = FAL_KIND_GRAD,
					   .version = fal_store_version(s) };
	fal_store_open(s, &r);
}

/* Blocks of the round's one task, of those that there are; the version's exponents. */
static void
add_blocks(struct fal_store *s, const float *g, uint64_t round, uint32_t first,
	   uint32_t end)
{
	const size_t n = fal_store_len(s);
	const struct fal_store_from from = { .round = round,
					     .id = { 1, (uint32_t)round },
					     .tasks = 1 };
	struct fal_sum *sum = fal_sum_new(n);
	struct fal_buf record = { 0 };
	const int8_t *exps;
	assert_true(fal_store_find_version(s, fal_store_version(s), NULL, &exps));
	assert_int_equal(fal_sum_quantise(sum, g, exps, FAL_BFP_ROOM, NULL), 0);
	for (uint32_t b = first; b < end; b++) {
		struct fal_bfp_rec rec;
		fal_buf_clear(&record);
		assert_int_equal(fal_sum_pack(sum, b, exps[b], &record), 0);
		struct fal_rd in = fal_rd_init(record.p, record.n);
		assert_int_equal(fal_bfp_parse(&in, n, &rec), 0);
		assert_int_equal(fal_store_add(s, &from, &rec), 1);
	}
	fal_buf_free(&record);
	fal_sum_free(sum);
}

/* The squares by which a step is clipped, where the step is clipped. */
static double
squares_of(struct fal_store *s)
{
	const uint32_t blocks = fal_blocks(fal_store_len(s));
	double *by = calloc(blocks, sizeof(*by)), all = 0;
	fal_store_squares(s, UINT64_MAX, 1, by);
	for (uint32_t b = 0; b < blocks; b++)
		all += by[b];
	free(by);
	return all;
}

/* One round of one task, and a step. */
static uint32_t
step(struct fal_store *s, const float *g, uint64_t round, float lr)
{
	open_round(s, round);
	add_blocks(s, g, round, 0, fal_blocks(fal_store_len(s)));
	assert_int_equal(fal_store_merge(s, round), 0);
	return fal_store_step(s, &(struct fal_store_update){ .lr = lr,
							     .divisor = 1,
							     .squares = squares_of(s) })
		.nonfinite;
}

static void
same_image(struct fal_store *s, struct fal_store *t)
{
	struct fal_image a = { 0 }, b = { 0 };
	assert_int_equal(fal_store_image(s, 0, &a), 0);
	assert_int_equal(fal_store_image(t, 0, &b), 0);
	assert_int_equal(a.arrays, b.arrays);
	for (uint32_t i = 0; i < a.arrays; i++) {
		assert_int_equal(a.array[i].bytes, b.array[i].bytes);
		assert_memory_equal(a.array[i].p, b.array[i].p, a.array[i].bytes);
	}
	fal_image_free(&a);
	fal_image_free(&b);
}

static void
a_store_steps_as_by_one(void **state)
{
	(void)state;
	uint32_t refused = 0;
	for (int turn = 0; turn < 30; turn++) {
		struct some threads;
		const size_t n = 1 + below(12 * FAL_BLOCK);
		const bool edges = below(3) == 0;
		const float lr = edges ? 1e38f : 0.1f;
		float *init = some_params(n, edges), *g = malloc(n * sizeof(*g));
		struct fal_store_conf conf = { .n = n,
					       .tasks = 1,
					       .optim = some_optimiser() };
		if (edges)
			conf.optim.clip = 0;
		struct fal_store *alone = fal_store_new(&conf, init);
		conf.parallel = some_threads(&threads);
		struct fal_store *shared = fal_store_new(&conf, init);
		const uint32_t kept = 1 + below(3);
		fal_store_set_retained(alone, kept);
		fal_store_set_retained(shared, kept);
		for (uint64_t round = 1; round <= 4; round++) {
			some_gradient(g, n);
			const uint32_t was = step(alone, g, round, lr);
			assert_int_equal(step(shared, g, round, lr), was);
			refused += was;
			same_image(alone, shared);
		}
		fal_store_free(alone);
		fal_store_free(shared);
		fal_threads_free(threads.real);
		free(init);
		free(g);
	}
	assert_int_not_equal(refused, 0);
}

/* Some blocks are there when the version begins to be made, and others come behind that;
 * somebody reads the version before it meanwhile. */
static uint32_t
make(struct fal_store *s, const float *g, uint64_t round, uint32_t there)
{
	const uint32_t blocks = fal_blocks(fal_store_len(s));
	const struct fal_store_step_early how = { .round = round,
						  .lr = 0.1f,
						  .divisor = 1 };
	const size_t bytes = fal_store_len(s) * sizeof(float);
	const uint64_t version = fal_store_version(s);
	float *before = malloc(bytes);
	const float *params;
	memcpy(before, fal_store_params(s), bytes);
	open_round(s, round);
	add_blocks(s, g, round, 0, there);
	assert_int_equal(fal_store_step_early(s, &how), 1);
	for (uint32_t b = 0; b < blocks; b++)
		assert_int_equal(fal_store_early_blocks(s, NULL)[b], b < there);
	assert_true(fal_store_find_version(s, version, &params, NULL));
	assert_memory_equal(params, before, bytes);
	add_blocks(s, g, round, there, blocks);
	fal_store_step_ready(s);
	uint32_t n;
	assert_non_null(fal_store_early_blocks(s, &n));
	assert_int_equal(n, blocks);
	assert_true(fal_store_find_version(s, version, &params, NULL));
	assert_memory_equal(params, before, bytes);
	free(before);
	assert_int_equal(fal_store_merge(s, round), 0);
	return fal_store_step(s, &(struct fal_store_update){ .lr = how.lr,
							     .divisor = how.divisor })
		.nonfinite;
}

static void
a_version_is_made_as_by_one(void **state)
{
	(void)state;
	for (int turn = 0; turn < 20; turn++) {
		struct some threads;
		const size_t n = 1 + below(12 * FAL_BLOCK);
		float *init = some_params(n, false), *g = malloc(n * sizeof(*g));
		struct fal_store_conf conf = { .n = n,
					       .tasks = 1,
					       .optim = some_optimiser(),
					       .checksums = below(2) == 0 };
		conf.optim.clip = conf.optim.ema = 0;
		struct fal_store *alone = fal_store_new(&conf, init);
		conf.parallel = some_threads(&threads);
		struct fal_store *shared = fal_store_new(&conf, init);
		for (uint64_t round = 1; round <= 4; round++) {
			some_gradient(g, n);
			const uint32_t was = step(alone, g, round, 0.1f);
			assert_int_equal(make(shared, g, round, below(fal_blocks(n) + 1)),
					 was);
			same_image(alone, shared);
		}
		fal_store_free(alone);
		fal_store_free(shared);
		fal_threads_free(threads.real);
		free(init);
		free(g);
	}
}

/* ---- a shard ----------------------------------------------------------------------- */

/* The hash of the version that an order to step makes, of a shard that was given nothing.
 */
static void
hash_of(const struct fal_shard_conf *conf, const float *init, uint8_t *leaves)
{
	const struct fal_shard_order order = {
		.kind = FAL_ORDER_STEP, .lr = 0.1f, .versions = 1, .hash = true
	};
	struct fal_shard *s = fal_shard_new(conf, init);
	struct fal_shard_result r = { 0 };
	assert_int_equal(fal_shard_order(s, &order, &r), 0);
	assert_int_equal(r.n, 1);
	assert_int_equal(r.v->kind, FAL_REPORT_STEPPED);
	assert_int_equal(r.v->blocks, conf->count);
	memcpy(leaves, r.v->leaves, (size_t)conf->count * FAL_HASH_BYTES);
	fal_shard_result_free(&r);
	fal_shard_free(s);
}

static void
a_shard_hashes_as_by_one(void **state)
{
	enum { MOST = 70 };
	static uint8_t alone[MOST * FAL_HASH_BYTES], shared[MOST * FAL_HASH_BYTES];
	(void)state;
	for (int turn = 0; turn < 10; turn++) {
		struct some threads;
		const size_t n = 1 + below(MOST * FAL_BLOCK);
		struct fal_shard_conf conf = { .n = n,
					       .count = fal_blocks(n),
					       .tasks = 1 };
		float *init = some_params(n, false);
		hash_of(&conf, init, alone);
		conf.parallel = some_threads(&threads);
		memset(shared, 0, sizeof(shared));
		hash_of(&conf, init, shared);
		assert_memory_equal(alone, shared, conf.count * (size_t)FAL_HASH_BYTES);
		fal_threads_free(threads.real);
		free(init);
	}
}

/* ---- publications ------------------------------------------------------------------ */

static struct fal_shared_pool *pool;

/* A message in two places, of which half can be compressed. */
static struct fal_shared_text
some_message(uint8_t *p, size_t most)
{
	const size_t n = 1 + below((uint32_t)most), head = below((uint32_t)n + 1);
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(i % 2 == 0 ? 0 : fal_rng_u32(&rng));
	return (struct fal_shared_text){ .msg = { p, head, head < n ? p + head : NULL,
						  n - head } };
}

static void
is_read(struct fal_reader *r, const struct fal_shared *s, uint32_t i, const uint8_t *p,
	size_t n)
{
	size_t wire_n, used, got_n;
	const uint8_t *wire = fal_shared_record(s, i, &wire_n), *got;
	uint8_t *copy = malloc(wire_n);
	memcpy(copy, wire, wire_n);
	assert_int_equal(fal_reader_next(r, copy, wire_n, &used, &got, &got_n),
			 FAL_READ_MESSAGE);
	assert_int_equal(got_n, n);
	assert_memory_equal(got, p, n);
	free(copy);
}

/* Some messages at a time, as many as there are. */
static void
publish(uint64_t id)
{
	enum { MOST = 40, BYTES = 20000 };
	static uint8_t bytes[MOST][BYTES];
	struct fal_shared_text text[MOST];
	const uint32_t count = 1 + below(MOST);
	const struct fal_shared_opt opt = {
		.pool = pool, .publication = id, .count = count, .zstd = below(2) == 0
	};
	const bool mixed = below(2) == 0;
	struct fal_shared *s;
	assert_int_equal(fal_shared_new(&opt, &s), 0);
	for (uint32_t i = 0; i < count; i++)
		text[i] = some_message(bytes[i], BYTES);
	for (uint32_t i = 0; i < count; i++)
		text[i].index = i;
	for (uint32_t i = count; mixed && i-- > 1;) {
		const uint32_t k = below(i + 1), was = text[i].index;
		text[i].index = text[k].index;
		text[k].index = was;
	}
	for (uint32_t n; s->made < count;) {
		const uint32_t made = s->made;
		n = 1 + below(count - made);
		if (below(3) == 0) /* one too many */
			assert_int_equal(fal_shared_add_texts(s, text, count - made + 1),
					 FAL_ESTATE);
		assert_int_equal(s->made, made);
		assert_int_equal(fal_shared_add_texts(s, text + made, n), 0);
		assert_int_equal(s->made, made + n);
	}
	assert_true(fal_shared_is_complete(s));
	struct fal_reader *r = fal_reader_new();
	const struct fal_publication pub = { .id = id,
					     .count = count,
					     .key = s->pub.key };
	assert_int_equal(fal_reader_expect(r, &pub), 0);
	for (uint32_t i = 0; i < count; i++)
		is_read(r, s, i, bytes[i], text[i].msg.n + text[i].msg.rest_n);
	const struct fal_zip_stat zip = s->stat;
	assert_int_equal(zip.bytes_in > 0, opt.zstd);
	assert_true(zip.bytes_out <= zip.bytes_in);
	fal_reader_free(r);
	fal_shared_drop(s);
}

static void
publications_are_read_as_by_one(void **state)
{
	(void)state;
	uint64_t id = 0;
	for (int turn = 0; turn < 12; turn++) {
		struct some threads;
		pool = fal_shared_pool_new(some_threads(&threads));
		assert_non_null(pool);
		for (int i = 0; i < 5; i++)
			publish(++id);
		fal_shared_pool_free(pool);
		fal_threads_free(threads.real);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_part_once),
		cmocka_unit_test(only_long_work_is_shared),
		cmocka_unit_test(keep_off_the_callers_core),
		cmocka_unit_test(no_threads),
		cmocka_unit_test(a_store_steps_as_by_one),
		cmocka_unit_test(a_version_is_made_as_by_one),
		cmocka_unit_test(a_shard_hashes_as_by_one),
		cmocka_unit_test(publications_are_read_as_by_one),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, draw, NULL);
}
