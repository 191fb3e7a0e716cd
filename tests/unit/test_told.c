/* Of which publications readers are told: in any order of their numbers, as long as each
 * is told once in a session, so that what waits for a slow one is there once for all. */
#include "../../cmd/falcon-ps/broadcast.h"
#include "../drawn.h"
#include "base/err.h"
#include "wire/bfp.h"
#include "wire/msg.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { READERS = 4, VERSIONS = 6, SHARDS = 6, MOST = 4096 };

/* A session: its channel is made up, and takes what there is when the test has it. */
struct line {
	bool packed;
	struct fal_shared *queue[MOST];
	size_t n;
	uint64_t told[MOST]; /* numbers */
	uint32_t orders;
	size_t tolds;
	struct ps_reader reader;
};

static struct {
	struct ps_broadcast broadcast;
	struct fal_shard_set *shard_set;
	uint32_t shards;
	uint64_t versions; /* that there are */
	struct line line[READERS];
	struct { /* what was sealed last, by version and shard */
		uint64_t number;
		uint32_t times;
	} last[VERSIONS][SHARDS];
} t;

/* ---- racks and channels ------------------------------------------------------------ */

bool __wrap_fal_shard_set_part(const struct fal_shard_set *r, uint32_t i,
			       uint64_t version, struct fal_shard_part *out);
bool __wrap_fal_shard_set_making(const struct fal_shard_set *r, uint32_t i,
				 uint64_t version, struct fal_shard_part *out,
				 struct fal_shard_making *is);
uint64_t __wrap_fal_shard_version(const struct fal_shard *s);
uint8_t __wrap_fal_chan_suite(const struct fal_chan *c);
bool __wrap_fal_chan_is_unsealed(const struct fal_chan *c);
bool __wrap_fal_chan_compressing(const struct fal_chan *c);
bool __wrap_fal_chan_is_local(const struct fal_chan *c);
void __wrap_fal_chan_write_now(struct fal_chan *c);
int __wrap_fal_chan_send(struct fal_chan *c, const struct fal_buf *msg,
			 enum fal_send how);
int __wrap_fal_chan_send_shared(struct fal_chan *c, struct fal_shared *s);
void __wrap_fal_chan_drop_outdated(struct fal_chan *c, fal_is_outdated_fn *is_old,
				   const void *arg);

bool
__wrap_fal_shard_set_part(const struct fal_shard_set *r, uint32_t i, uint64_t version,
			  struct fal_shard_part *out)
{
	static const float params[4 * FAL_BLOCK];
	static const int8_t exps[4];
	fal_shard_set_range(r, i, &out->first, &out->count);
	out->params = params;
	out->values = (size_t)out->count * FAL_BLOCK;
	out->exps = exps;
	return version < t.versions;
}

bool
__wrap_fal_shard_set_making(const struct fal_shard_set *r, uint32_t i, uint64_t version,
			    struct fal_shard_part *out, struct fal_shard_making *is)
{
	(void)r, (void)i, (void)version, (void)out, (void)is;
	return false;
}

uint64_t
__wrap_fal_shard_version(const struct fal_shard *s)
{
	(void)s;
	return t.versions - 1;
}

static struct line *
line_of(const struct fal_chan *c)
{
	return (struct line *)(uintptr_t)c;
}

uint8_t
__wrap_fal_chan_suite(const struct fal_chan *c)
{
	(void)c;
	return FAL_SUITE_CHACHA20_POLY1305;
}

bool
__wrap_fal_chan_is_unsealed(const struct fal_chan *c)
{
	(void)c;
	return false;
}

bool
__wrap_fal_chan_compressing(const struct fal_chan *c)
{
	return line_of(c)->packed;
}

bool
__wrap_fal_chan_is_local(const struct fal_chan *c)
{
	(void)c;
	return true;
}

void
__wrap_fal_chan_write_now(struct fal_chan *c)
{
	(void)c;
}

void
__wrap_fal_chan_drop_outdated(struct fal_chan *c, fal_is_outdated_fn *is_old,
			      const void *arg)
{
	(void)c, (void)is_old, (void)arg;
}

static bool
was_told(const struct line *l, uint64_t number)
{
	for (size_t i = 0; i < l->tolds; i++)
		if (l->told[i] == number)
			return true;
	return false;
}

/* Is it still to arrive anywhere? */
static bool
waits(uint64_t number)
{
	for (uint32_t i = 0; i < READERS; i++)
		for (size_t k = 0; k < t.line[i].n; k++)
			if (t.line[i].queue[k]->pub.id == number)
				return true;
	return false;
}

/* A reader is told of the publication that was sealed last, unless it was told before. */
static void
judge(const struct line *l, const struct fal_msg *m)
{
	const uint64_t number = m->published.publication;
	const uint64_t last = t.last[m->published.version][m->published.shard - 1].number;
	assert_false(was_told(l, number));
	if (waits(last) && !was_told(l, last))
		assert_int_equal(number, last);
}

int
__wrap_fal_chan_send(struct fal_chan *c, const struct fal_buf *msg, enum fal_send how)
{
	struct line *l = line_of(c);
	struct fal_msg m;
	(void)how;
	assert_int_equal(fal_msg_get(msg->p, msg->n, &m), 0);
	assert_int_equal(m.type, FAL_MSG_PUBLISHED);
	judge(l, &m);
	const uint64_t number = m.published.publication;
	const uint32_t shard = m.published.shard - 1;
	t.last[m.published.version][shard].times +=
		number != t.last[m.published.version][shard].number;
	t.last[m.published.version][shard].number = number;
	l->told[l->tolds++] = number;
	return FAL_OK;
}

int
__wrap_fal_chan_send_shared(struct fal_chan *c, struct fal_shared *s)
{
	struct line *l = line_of(c);
	assert_int_equal(s->pub.id, l->told[l->tolds - 1]);
	assert_true(l->n < MOST);
	l->queue[l->n++] = fal_shared_ref(s);
	return FAL_OK;
}

/* ---- together ---------------------------------------------------------------------- */

static void
begin(uint32_t shards, uint32_t blocks)
{
	const struct fal_shard_set_conf conf = {
		.shards = shards,
		.here = shards,
		.each = { .n = (size_t)blocks * FAL_BLOCK, .tasks = 1 }
	};
	memset(&t, 0, sizeof(t));
	t.shards = shards;
	t.shard_set = fal_shard_set_new(&conf, NULL);
	assert_non_null(t.shard_set);
	for (uint32_t i = 0; i < READERS; i++)
		ps_reader_attach(&t.line[i].reader, (struct fal_chan *)&t.line[i]);
	t.broadcast.publisher.shard_set = t.shard_set;
	t.broadcast.publisher.rule =
		(struct fal_rule){ .scheme = FAL_EPSP, .slack = VERSIONS };
}

/* The reader's channel has taken so many, those that came first. */
static void
takes(uint32_t i, size_t n)
{
	struct line *l = &t.line[i];
	for (size_t k = 0; k < n; k++)
		fal_shared_drop(l->queue[k]);
	memmove(l->queue, l->queue + n, (l->n - n) * sizeof(*l->queue));
	l->n -= n;
}

static void
end(void)
{
	for (uint32_t i = 0; i < READERS; i++) {
		takes(i, t.line[i].n);
		ps_reader_detach(&t.broadcast, &t.line[i].reader);
	}
	ps_broadcast_free(&t.broadcast);
	fal_shard_set_free(t.shard_set);
}

/* The reader is told of a version, which there is by then. */
static void
tell(uint32_t i, uint64_t version)
{
	if (t.versions <= version)
		t.versions = version + 1;
	const struct fal_coord_publication model = { .version = version,
						     .order = ++t.line[i].orders,
						     .newest = t.versions - 1 };
	ps_broadcast_add(&t.broadcast, &t.line[i].reader, &model);
	assert_int_equal(ps_broadcast_send(&t.broadcast), 0);
}

/* How often each shard's part was sealed. */
static void
sealed(uint64_t version, uint32_t times)
{
	for (uint32_t i = 0; i < t.shards; i++)
		assert_int_equal(t.last[version][i].times, times);
}

/* One is told of older versions after a newer one, the other one of the same in their
 * order: there is one of each. */
static void
one_of_each(void **state)
{
	(void)state;
	begin(2, 3);
	tell(0, 0);
	tell(0, 2);
	tell(0, 1);
	for (uint64_t version = 0; version < 3; version++)
		tell(1, version);
	for (uint64_t version = 0; version < 3; version++)
		sealed(version, 1);
	/* Who was told is not told of that again; nobody else has to have it twice. */
	tell(0, 0);
	sealed(0, 2);
	tell(2, 0);
	sealed(0, 2);
	tell(1, 0);
	sealed(0, 2);
	end();
}

/* What nobody is to get any more is not kept. */
static void
arrived_ones_go(void **state)
{
	const struct ps_publisher *p = &t.broadcast.publisher;
	(void)state;
	begin(2, 4);
	for (uint64_t version = 0; version + 1 < VERSIONS; version++)
		tell(0, version);
	assert_int_equal(p->older_n, VERSIONS - 2);
	takes(0, t.line[0].n);
	tell(0, VERSIONS - 1);
	assert_int_equal(p->older_n, 0);
	tell(1, 0);
	tell(1, 1);
	assert_int_equal(p->older_n, 2);
	takes(1, t.line[1].n);
	tell(1, 2);
	assert_int_equal(p->older_n, 1);
	sealed(2, 2);
	end();
}

/* Nor is what has arrived, of a version that somebody is to get otherwise, or of another
 * shard. */
static void
arrived_ones_go_alone(void **state)
{
	struct fal_rng rng = fal_rng_init(drawn_seed(44), FAL_RNG_TEST, 0);
	const struct ps_publisher *p = &t.broadcast.publisher;
	(void)state;
	for (int round = 0; round < 20; round++) {
		const uint32_t shards = 1 + fal_rng_below(&rng, SHARDS);
		begin(shards, 2 * shards);
		t.broadcast.publisher.rule.slack = 1;
		t.line[1].packed = true;
		for (uint64_t version = 0; version < VERSIONS; version++) {
			tell(0, version);
			takes(0, t.line[0].n);
			tell(1, version);
			takes(1, fal_rng_below(&rng, (uint32_t)t.line[1].n + 1));
		}
		tell(0, 0);
		takes(0, t.line[0].n);
		tell(0, 1);
		for (size_t i = 0; i < p->older_n; i++)
			for (int as = 0; as < PS_ENCODINGS; as++)
				for (uint32_t k = 0; k < shards; k++)
					if (p->older[i].shared[as][k] != NULL)
						assert_false(
							p->older[i].shared[as][k]->refs ==
							1);
		end();
	}
}

/* So many were told since that nobody knows of this one. */
static void
told_long_ago(void **state)
{
	(void)state;
	begin(1, 2);
	tell(0, 0);
	tell(1, 0);
	for (uint32_t i = 0; i < PS_ANNOUNCED_MAX; i++)
		tell(0, 1);
	tell(0, 0);
	sealed(0, 2);
	end();
}

/* Readers are told of versions in any order, as they take them. */
static void
any_order(void **state)
{
	struct fal_rng rng = fal_rng_init(drawn_seed(43), FAL_RNG_TEST, 0);
	uint32_t told = 0;
	(void)state;
	for (int round = 0; round < 60; round++) {
		const uint32_t shards = 1 + fal_rng_below(&rng, SHARDS);
		begin(shards, shards * (1 + fal_rng_below(&rng, 4)));
		for (int turn = 0; turn < 60; turn++) {
			const uint32_t i = fal_rng_below(&rng, READERS);
			const size_t n = t.line[i].n;
			if (one_in(&rng, 3))
				takes(i, fal_rng_below(&rng, (uint32_t)n + 1));
			else
				tell(i, fal_rng_below(&rng, VERSIONS));
		}
		for (uint32_t i = 0; i < READERS; i++)
			told += (uint32_t)t.line[i].tolds;
		end();
	}
	assert_true(told > 1000);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_of_each),
		cmocka_unit_test(arrived_ones_go),
		cmocka_unit_test(arrived_ones_go_alone),
		cmocka_unit_test(told_long_ago),
		cmocka_unit_test(any_order),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
