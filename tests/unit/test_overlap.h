/* A worker's state machine whose messages, tasks and block map a test draws: for what it
 * does side by side. */
#ifndef FAL_TESTS_TEST_OVERLAP_H
#define FAL_TESTS_TEST_OVERLAP_H

#include "agent/agent.h"
#include "base/err.h"
#include "shard/map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "../drawn.h"

enum { LANES = 3, BLOCKS = 12, N = BLOCKS * FAL_BLOCK, SHARDS = 5 };

static struct fal_rng rng;
static struct fal_agent *agent;
static size_t n;    /* floats */
static size_t sums; /* in halves, that there may be; 0: any number */
static uint32_t blocks, push_blocks;
static struct fal_map map;
static uint64_t now; /* ns */
static bool may_stream, may_begin;

static struct fal_run run[LANES];
static bool busy[LANES], cancelled[LANES];

/* What the test has for each message, and for a lane that begins. */
static void (*heard)(const struct fal_msg *m, uint32_t shard);
static void (*begun)(uint32_t lane);
static void (*came)(uint32_t lane, uint32_t blocks);

static inline void
check(int64_t got, int64_t want, const char *what)
{
	if (got != want)
		fail_msg("%s: got %lld, want %lld", what, (long long)got,
			 (long long)want);
}

/* ---- the driver -------------------------------------------------------------------- */

static inline void
on_push(void *arg, uint32_t shard, const struct fal_buf *msg)
{
	struct fal_msg m;
	(void)arg;
	check(fal_msg_get(msg->p, msg->n, &m), 0, "parse what was sent");
	if (heard != NULL)
		heard(&m, shard);
}

static inline void
on_send(void *arg, const struct fal_buf *msg, bool bulk)
{
	(void)bulk;
	on_push(arg, 0, msg);
}

static inline void
on_run(void *arg, uint32_t lane, const struct fal_run *r)
{
	(void)arg;
	assert_true(lane < LANES && !busy[lane]);
	busy[lane] = true;
	cancelled[lane] = false;
	run[lane] = *r;
	if (begun != NULL)
		begun(lane);
}

static inline void
on_cancel(void *arg, uint32_t lane)
{
	(void)arg;
	assert_true(busy[lane] && !cancelled[lane]);
	cancelled[lane] = true;
}

static inline uint64_t
on_steps(void *arg)
{
	(void)arg;
	return 0;
}

static inline bool
on_streams(void *arg)
{
	(void)arg;
	return may_stream;
}

static inline bool
on_begins(void *arg)
{
	(void)arg;
	return may_begin;
}

static inline void
on_came(void *arg, uint32_t lane, uint32_t so_many)
{
	(void)arg;
	assert_true(lane < LANES && busy[lane]);
	if (came != NULL)
		came(lane, so_many);
}

static inline void
tell(const struct fal_msg *m)
{
	check(fal_agent_msg(agent, now, m), 0, fal_msg_name(m->type));
}

/* This map holds. */
static inline void
tell_map(void)
{
	struct fal_msg m = { .type = FAL_MSG_BLOCKS, .blocks.epoch = map.epoch };
	struct fal_buf of = { 0 };
	fal_map_put(&of, &map);
	m.blocks.of = (struct fal_tail){ of.p, of.n };
	tell(&m);
	fal_buf_free(&of);
}

/* Another one does: runs of drawn lengths, of shards in a drawn order. */
static inline void
draw_map(uint32_t epoch)
{
	uint32_t left = blocks;
	map = (struct fal_map){ .epoch = epoch,
				.shards = 1 + fal_rng_below(&rng, SHARDS) };
	while (left > 0) {
		const uint32_t i = fal_rng_below(&rng, map.shards);
		bool last = map.of[i].count == 0;
		for (uint32_t k = 0; k < map.shards; k++)
			last &= k == i || map.of[k].count > 0;
		if (map.of[i].count > 0)
			continue;
		map.of[i].first = blocks - left;
		map.of[i].count = last ? left : 1 + fal_rng_below(&rng, left);
		left -= map.of[i].count;
	}
	tell_map();
}

/* The shard that has it, from 1. */
static inline uint32_t
shard_of(uint32_t block)
{
	uint32_t i = 0;
	while (block - map.of[i].first >= map.of[i].count)
		i++;
	return i + 1;
}

/* So many blocks, or more. */
static inline void
begin(uint32_t least)
{
	const struct fal_agent_ops ops = { .send = on_send,
					   .run = on_run,
					   .cancel = on_cancel,
					   .steps = on_steps,
					   .push = on_push,
					   .streams = on_streams,
					   .begins = on_begins,
					   .came = on_came };
	push_blocks = one_in(&rng, 2) ? 0 : 1 + fal_rng_below(&rng, 3);
	blocks = least + fal_rng_below(&rng, BLOCKS - least + 1);
	n = (size_t)(blocks - 1) * FAL_BLOCK + 1 + fal_rng_below(&rng, FAL_BLOCK);
	const struct fal_agent_conf conf = { .n = n,
					     .lanes_max = LANES,
					     .incarnation = 6,
					     .map_epoch = 1,
					     .push_blocks = push_blocks,
					     .sums = sums,
					     .most.versions = sums > 0 };
	memset(busy, 0, sizeof(busy));
	heard = NULL;
	begun = NULL;
	came = NULL;
	may_stream = may_begin = true;
	now = 1000;
	agent = fal_agent_new(&conf, &ops);
	assert_non_null(agent);
	draw_map(1);
}

static inline void
published(uint64_t v, uint32_t shard)
{
	const struct fal_extent *of = &map.of[shard - 1];
	struct fal_msg m = { .type = FAL_MSG_PUBLISHED };
	m.published.version = v;
	m.published.order = (uint32_t)v;
	m.published.shard = shard;
	m.published.first = of->first;
	m.published.blocks = of->count;
	tell(&m);
}

/* What block b of version v is full of. */
static inline float
value_of(uint64_t v, uint32_t b)
{
	return (float)(v * 1000 + b + 1);
}

/* A few blocks of it, as a message holds no more. */
static inline void
model(uint64_t v, uint32_t first, uint32_t count)
{
	static float params[N];
	static int8_t exps[BLOCKS];
	struct fal_msg m;
	struct fal_buf out = { 0 };
	size_t at = 0;
	for (uint32_t b = first; b < first + count; b++) {
		exps[b - first] = FAL_EXP_FIRST;
		for (uint32_t i = fal_block_len(n, b); i > 0; i--)
			params[at++] = value_of(v, b);
	}
	const struct fal_model_part part = { v, first, count, params, at, exps };
	check(fal_msg_put_model(&out, 6, &part), 0, "put");
	check(fal_msg_get(out.p, out.n, &m), 0, "get");
	tell(&m);
	fal_buf_free(&out);
}

static inline void
models(uint64_t v, uint32_t first)
{
	for (uint32_t b = first; b < blocks; b++)
		model(v, b, 1);
}

static inline void
announce(uint64_t v, uint64_t oldest)
{
	struct fal_msg m = { .type = FAL_MSG_VERSION };
	m.version.version = v;
	m.version.oldest = oldest;
	tell(&m);
}

static inline void
whole_version(uint64_t v)
{
	announce(v, v);
	for (uint32_t s = 1; s <= map.shards; s++)
		if (map.of[s - 1].count > 0)
			published(v, s);
	models(v, 0);
}

static inline void
grant(uint64_t v, uint32_t first, uint32_t count, uint32_t seq)
{
	struct fal_msg m = { .type = FAL_MSG_GRANT };
	m.grant.round = v;
	m.grant.version = v;
	m.grant.kind = FAL_KIND_GRAD;
	m.grant.first = first;
	m.grant.count = count;
	m.grant.seq = seq;
	tell(&m);
}

static inline void
revoke(uint64_t round, uint32_t task)
{
	struct fal_msg m = { .type = FAL_MSG_REVOKE };
	m.revoke.round = round;
	m.revoke.first = task;
	m.revoke.count = 1;
	tell(&m);
}

static inline void
finished_after(uint32_t lane, bool nonfinite, uint64_t waited)
{
	const struct fal_ran ran = { .cancelled = cancelled[lane],
				     .nonfinite = nonfinite,
				     .samples = 1,
				     .task_ns = 1,
				     .waited_ns = waited };
	busy[lane] = false;
	check(fal_agent_finished(agent, now, lane, &ran), 0, "finished");
}

static inline void
finished(uint32_t lane, bool nonfinite)
{
	finished_after(lane, nonfinite, 0);
}

static struct fal_msg worked;

static inline void
worked_heard(const struct fal_msg *m, uint32_t shard)
{
	(void)shard;
	if (m->type == FAL_MSG_WORKED)
		worked = *m;
}

/* Where the time went since the last one. */
static inline void
account(void)
{
	const struct fal_msg m = { .type = FAL_MSG_ACCOUNT };
	heard = worked_heard;
	tell(&m);
}

static inline int
draw(void **state)
{
	(void)state;
	rng = fal_rng_init(drawn_seed((uint64_t)time(NULL)), FAL_RNG_TEST, 0);
	return 0;
}

#endif
