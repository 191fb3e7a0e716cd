/* Messages: every type is written and read back, and nothing else is accepted. */
#include "base/err.h"
#include "base/rng.h"
#include "wire/bfp.h"
#include "wire/msg.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "../model_msg.h"

/* The fields of a ticket, and its MAC. */
enum { TICKET = 8 + 5 * 4 + 8 + 4 + 2 + 32 };

/* Every type: the bytes of its fields with empty strings and tails, the number of
 * strings, and whether a tail follows; from falcon-protocol(7), not from the table in
 * lib/wire. */
static const struct {
	uint16_t type;
	enum fal_sender sender;
	uint8_t fixed, strings;
	bool tail;
	const char *name;
} types[] = {
	{ FAL_MSG_HELLO, FAL_FROM_WORKER, 8 + 4 + 12 + 16 + 1, 2, false, "HELLO" },
	{ FAL_MSG_READY, FAL_FROM_WORKER, 16 + 8 + 4 + 8 + 32 + 2, 1, false, "READY" },
	{ FAL_MSG_CLAIM, FAL_FROM_WORKER, 8 + 16 + 8 + 8 + 8 + 2 + 16, 0, true, "CLAIM" },
	{ FAL_MSG_PUSH, FAL_FROM_WORKER, TICKET + 4, 0, true, "PUSH" },
	{ FAL_MSG_SEAL, FAL_FROM_WORKER, 8 + 4, 0, false, "SEAL" },
	{ FAL_MSG_CAPACITY, FAL_FROM_WORKER, 4 + 4 + 8, 0, false, "CAPACITY" },
	{ FAL_MSG_WORKED, FAL_FROM_WORKER, 64, 0, true, "WORKED" },
	{ FAL_MSG_CHUNK_GET, FAL_FROM_WORKER, 1 + 4, 0, false, "CHUNK_GET" },
	{ FAL_MSG_EVALUATED, FAL_FROM_WORKER, 8 + 12 + 8 + 8, 0, true, "EVALUATED" },
	{ FAL_MSG_LEAVE, FAL_FROM_WORKER, 1 + 2, 1, false, "LEAVE" },
	{ FAL_MSG_PONG, FAL_FROM_WORKER, 8 + 8, 0, false, "PONG" },
	{ FAL_MSG_CHECKED, FAL_FROM_WORKER, 8 + 4 + 1 + 16, 0, false, "CHECKED" },
	{ FAL_MSG_FOLLOW, FAL_FROM_OBSERVER, 1, 0, false, "FOLLOW" },
	{ FAL_MSG_CONTROL, FAL_FROM_CONTROLLER, 1, 0, true, "CONTROL" },
	{ FAL_MSG_WELCOME, FAL_FROM_COORDINATOR, 8 + 12 + 4, 0, false, "WELCOME" },
	{ FAL_MSG_TEXT, FAL_FROM_COORDINATOR, 1 + 4, 0, true, "TEXT" },
	{ FAL_MSG_VERSION, FAL_FROM_COORDINATOR, 8 + 8 + 1, 0, false, "VERSION" },
	{ FAL_MSG_PUBLISHED, FAL_FROM_COORDINATOR, 8 + 16 + 8 + 32, 0, false,
	  "PUBLISHED" },
	{ FAL_MSG_MODEL, FAL_FROM_COORDINATOR, 8 + 4 + 4, 0, true, "MODEL" },
	{ FAL_MSG_GRANT, FAL_FROM_COORDINATOR, 32 + 20 + 2 + 8 + 12 + 4, 0, false,
	  "GRANT" },
	{ FAL_MSG_REVOKE, FAL_FROM_COORDINATOR, 8 + 8 + 1, 0, false, "REVOKE" },
	{ FAL_MSG_VERDICT, FAL_FROM_COORDINATOR, 8 + 8 + 1, 0, false, "VERDICT" },
	{ FAL_MSG_TICKET, FAL_FROM_COORDINATOR, TICKET, 0, false, "TICKET" },
	{ FAL_MSG_LANES, FAL_FROM_COORDINATOR, 4, 0, false, "LANES" },
	{ FAL_MSG_FENCE, FAL_FROM_COORDINATOR, 8 + 4, 0, false, "FENCE" },
	{ FAL_MSG_CHUNK, FAL_FROM_COORDINATOR, 1 + 12, 0, true, "CHUNK" },
	{ FAL_MSG_EVAL, FAL_FROM_COORDINATOR, 8 + 8, 0, false, "EVAL" },
	{ FAL_MSG_PING, FAL_FROM_COORDINATOR, 8, 0, false, "PING" },
	{ FAL_MSG_DONE, FAL_FROM_COORDINATOR, 2, 1, false, "DONE" },
	{ FAL_MSG_REFUSE, FAL_FROM_COORDINATOR, 1 + 2, 1, false, "REFUSE" },
	{ FAL_MSG_ACCOUNT, FAL_FROM_COORDINATOR, 8, 0, false, "ACCOUNT" },
	{ FAL_MSG_DRAIN, FAL_FROM_COORDINATOR, 2, 1, false, "DRAIN" },
	{ FAL_MSG_LATER, FAL_FROM_COORDINATOR, 2, 1, false, "LATER" },
	{ FAL_MSG_TRACE, FAL_FROM_COORDINATOR, 0, 0, true, "TRACE" },
	{ FAL_MSG_TRACE_END, FAL_FROM_COORDINATOR, 0, 0, false, "TRACE_END" },
	{ FAL_MSG_REPLY, FAL_FROM_COORDINATOR, 1 + 1, 0, true, "REPLY" },
	{ FAL_MSG_ATTACH, FAL_FROM_WORKER, 0, 0, false, "ATTACH" },
	{ FAL_MSG_MAP, FAL_FROM_COORDINATOR, 8 + 4 + 64, 2, false, "MAP" },
	{ FAL_MSG_BLOCKS, FAL_FROM_COORDINATOR, 4, 0, true, "BLOCKS" },
	{ FAL_MSG_JOIN, FAL_FROM_SHARD, 8 + 4 + 32 + 4 + 1 + 16, 2, false, "JOIN" },
	{ FAL_MSG_REPORT, FAL_FROM_SHARD, 62 + 2 + 2, 1, true, "REPORT" },
	{ FAL_MSG_PLACED, FAL_FROM_SHARD, 4, 0, false, "PLACED" },
	{ FAL_MSG_ADMITTED, FAL_FROM_SHARD, 4, 0, false, "ADMITTED" },
	{ FAL_MSG_IMAGE, FAL_FROM_SHARD, 1 + 16 + 16 + 12 + 1 + 8, 0, true, "IMAGE" },
	{ FAL_MSG_BYTES, FAL_FROM_SHARD, 4, 0, true, "BYTES" },
	{ FAL_MSG_SERVED, FAL_FROM_SHARD, 16, 0, true, "SERVED" },
	{ FAL_MSG_PLACE, FAL_FROM_COORDINATOR, 7 * 4 + 64, 0, true, "PLACE" },
	{ FAL_MSG_ORDER, FAL_FROM_COORDINATOR,
	  1 + 16 + 8 + 4 + 1 + 16 + 1 + 48 + 4 + 16 + 8 + 1, 0, true, "ORDER" },
	{ FAL_MSG_ADMIT, FAL_FROM_COORDINATOR, 4 + 32, 0, false, "ADMIT" },
	{ FAL_MSG_DISMISS, FAL_FROM_COORDINATOR, 4, 0, false, "DISMISS" },
	{ FAL_MSG_PUBLISH, FAL_FROM_COORDINATOR, 8 + 32 + 1, 0, true, "PUBLISH" },
	{ FAL_MSG_FETCH, FAL_FROM_COORDINATOR, 1 + 8, 0, false, "FETCH" },
};
enum { TYPES = sizeof(types) / sizeof(types[0]), HEAD = 8 };

/* The offsets of times in ns. */
static const struct {
	uint16_t type;
	uint8_t at;
} times[] = { { FAL_MSG_READY, 16 },     { FAL_MSG_READY, 28 },  { FAL_MSG_CLAIM, 32 },
	      { FAL_MSG_EVALUATED, 28 }, { FAL_MSG_WORKED, 8 },  { FAL_MSG_WORKED, 16 },
	      { FAL_MSG_WORKED, 24 },    { FAL_MSG_WORKED, 32 }, { FAL_MSG_WORKED, 40 },
	      { FAL_MSG_WORKED, 48 },    { FAL_MSG_WORKED, 56 }, { FAL_MSG_SERVED, 0 },
	      { FAL_MSG_SERVED, 8 },     { FAL_MSG_CAPACITY, 8 } };
enum { TIMES = sizeof(times) / sizeof(times[0]) };

static void
check(int64_t got, int64_t want, const char *type, const char *what)
{
	if (got != want)
		fail_msg("%s, %s: got %lld, want %lld", type, what, (long long)got,
			 (long long)want);
}

/* The bytes of the fields before the strings, which stand side by side. */
static size_t
strings_at(uint16_t type)
{
	switch (type) {
	case FAL_MSG_HELLO:
	case FAL_MSG_JOIN:
	case FAL_MSG_MAP:
		return 8;
	case FAL_MSG_READY:
		return 68;
	case FAL_MSG_REPORT:
		return 62;
	default:
		return 0;
	}
}

/* Composes a message of type i with random fixed bytes.  Strings stay empty, so zeros are
 * put in place of their lengths. */
static void
compose(size_t i, struct fal_rng *r, struct fal_buf *out)
{
	fal_buf_clear(out);
	fal_put_u16(out, types[i].type);
	fal_put_u16(out, 0);
	fal_put_u32(out, fal_rng_u32(r));
	for (uint8_t k = 0; k < types[i].fixed; k++)
		fal_put_u8(out, (uint8_t)fal_rng_u32(r));
	if (types[i].strings > 0)
		memset(out->p + HEAD + strings_at(types[i].type), 0,
		       2u * types[i].strings);
	for (size_t k = 0; k < TIMES; k++)
		if (times[k].type == types[i].type)
			out->p[HEAD + times[k].at + 7] &= 3;
	for (uint32_t k = 0; types[i].tail && k < 9; k++)
		fal_put_u8(out, (uint8_t)fal_rng_u32(r));
	assert_int_equal(out->err, 0);
}

static void
bytes_round_trip(void **state)
{
	(void)state;
	struct fal_rng r = fal_rng_init(1, FAL_RNG_TEST, 0);
	struct fal_buf in = { 0 }, out = { 0 };
	for (size_t i = 0; i < TYPES; i++)
		for (uint32_t round = 0; round < 20; round++) {
			struct fal_msg m;
			compose(i, &r, &in);
			check(fal_msg_get(in.p, in.n, &m), 0, types[i].name, "get");
			check(m.type, types[i].type, types[i].name, "type");
			fal_buf_clear(&out);
			fal_msg_put(&out, &m);
			check((int64_t)out.n, (int64_t)in.n, types[i].name, "length");
			assert_memory_equal(out.p, in.p, in.n);
			assert_string_equal(fal_msg_name(types[i].type), types[i].name);
		}
	fal_buf_free(&in);
	fal_buf_free(&out);
}

static void
truncation_and_trailing_bytes(void **state)
{
	(void)state;
	struct fal_rng r = fal_rng_init(2, FAL_RNG_TEST, 0);
	struct fal_buf in = { 0 };
	struct fal_msg m;
	for (size_t i = 0; i < TYPES; i++) {
		compose(i, &r, &in);
		size_t least = HEAD + types[i].fixed;
		for (size_t n = 0; n < least; n++)
			check(fal_msg_get(in.p, n, &m), FAL_ETRUNC, types[i].name,
			      "cut short");
		check(fal_msg_get(in.p, least, &m), 0, types[i].name, "as it is");
		fal_put_u8(&in, 0);
		check(fal_msg_get(in.p, in.n, &m), types[i].tail ? 0 : FAL_EFORMAT,
		      types[i].name, "a byte more");
	}
	fal_buf_free(&in);
}

/* A time of more than 2^58 ns is refused. */
static void
absurd_times(void **state)
{
	(void)state;
	struct fal_rng r = fal_rng_init(3, FAL_RNG_TEST, 0);
	struct fal_buf in = { 0 };
	struct fal_msg m;
	for (size_t k = 0; k < TIMES; k++) {
		size_t i = 0;
		while (types[i].type != times[k].type)
			i++;
		compose(i, &r, &in);
		memset(in.p + HEAD + times[k].at, 0, 8);
		in.p[HEAD + times[k].at + 7] = 4;
		check(fal_msg_get(in.p, in.n, &m), 0, types[i].name, "2^58 ns");
		in.p[HEAD + times[k].at] = 1;
		check(fal_msg_get(in.p, in.n, &m), FAL_ELIMIT, types[i].name,
		      "one ns more");
	}
	fal_buf_free(&in);
}

static void
unknown_types_and_flags(void **state)
{
	(void)state;
	uint8_t p[HEAD] = { 0 };
	struct fal_msg m;
	struct fal_buf out = { 0 };
	uint32_t known = 0;
	for (uint32_t t = 0; t <= UINT16_MAX; t++) {
		p[0] = (uint8_t)t;
		p[1] = (uint8_t)(t >> 8);
		bool is = strcmp(fal_msg_name((uint16_t)t), "?") != 0;
		known += is;
		if (!is && fal_msg_get(p, sizeof(p), &m) != FAL_EFORMAT)
			fail_msg("type %u: got %d, want %d", t,
				 fal_msg_get(p, sizeof(p), &m), FAL_EFORMAT);
	}
	check(known, TYPES, "all", "known types");
	p[0] = FAL_MSG_TRACE_END;
	p[1] = 0;
	check(fal_msg_get(p, sizeof(p), &m), 0, "TRACE_END", "without flags");
	for (uint32_t bit = 0; bit < 16; bit++) {
		p[2] = (uint8_t)(1u << bit);
		p[3] = (uint8_t)(1u << bit >> 8);
		check(fal_msg_get(p, sizeof(p), &m), FAL_EFORMAT, "TRACE_END", "a flag");
	}
	fal_buf_free(&out);
}

static void
fields_by_name(void **state)
{
	(void)state;
	struct fal_msg m = { .type = FAL_MSG_CLAIM, .incarnation = 3 }, got;
	struct fal_buf out = { 0 };
	static const uint8_t want[] = {
		3,   0,   0,   0,   3,   0,   0,   0,   /* type, flags, incarnation */
		9,   0,   0,   0,   0,   0,   0,   1,   /* round */
		8,   0,   0,   0,   7,   0,   0,   0,   /* task, seq */
		6,   0,   0,   0,   5,   0,   0,   0,   /* fills */
		12,  0,   0,   0,   0,   0,   0,   0,   /* version */
		4,   0,   0,   0,   0,   0,   0,   0,   /* task_ns */
		254, 255, 255, 255, 255, 255, 255, 255, /* loss */
		1,   1,                                 /* nonfinite, last */
		1,   2,   3,   4,   0,   0,   0,   0,   /* hash */
		0,   0,   0,   0,   0,   0,   0,   5,
	};
	m.claim.round = (uint64_t)1 << 56 | 9;
	m.claim.task = 8;
	m.claim.seq = 7;
	m.claim.fills_worker = 6;
	m.claim.fills_seq = 5;
	m.claim.version = 12;
	m.claim.task_ns = 4;
	m.claim.loss = -2;
	m.claim.nonfinite = 1;
	m.claim.last = 1;
	memcpy(m.claim.hash, want + sizeof(want) - FAL_TASK_HASH, FAL_TASK_HASH);
	fal_msg_put(&out, &m);
	check((int64_t)out.n, sizeof(want), "CLAIM", "length");
	assert_memory_equal(out.p, want, sizeof(want));
	check(fal_msg_get(out.p, out.n, &got), 0, "CLAIM", "get");
	check(got.claim.loss, -2, "CLAIM", "loss");
	check((int64_t)got.claim.round, (int64_t)m.claim.round, "CLAIM", "round");
	fal_buf_free(&out);
}

/* Every byte of a GRANT is at its place in falcon-protocol(7), the rate as its bits. */
static void
grant(void **state)
{
	(void)state;
	struct fal_msg m = { .type = FAL_MSG_GRANT, .incarnation = 1 }, got;
	struct fal_buf out = { 0 };
	static const uint8_t want[] = {
		36, 0, 0,    0,    1,  0, 0, 0,           /* type, flags, incarnation */
		1,  0, 0,    0,    0,  0, 0, 0x80,        /* round */
		2,  0, 0,    0,    0,  0, 0, 0,           /* clock */
		3,  0, 0,    0,    0,  0, 0, 0,           /* version */
		13, 0, 0,    0,    0,  0, 0, 0,           /* exponents */
		4,  0, 0,    0,    5,  0, 0, 0,           /* first, count */
		6,  0, 0,    0,    7,  0, 0, 0,           /* fills */
		12, 0, 0,    0x80,                        /* seq */
		2,  1, 8,    0,    0,  0, 0, 0,    0,  0, /* kind, base, since */
		9,  0, 0,    0,    10, 0, 0, 0,    11, 0, 0, 0, /* from, of, steps */
		0,  0, 0xc0, 0xbf,                              /* -1.5 */
	};
	m.grant.round = (uint64_t)1 << 63 | 1;
	m.grant.clock = 2;
	m.grant.version = 3;
	m.grant.exponents = 13;
	m.grant.first = 4;
	m.grant.count = 5;
	m.grant.fills_worker = 6;
	m.grant.fills_seq = 7;
	m.grant.seq = UINT32_C(1) << 31 | 12;
	m.grant.kind = FAL_KIND_DELTA;
	m.grant.base = FAL_BASE_LOCAL;
	m.grant.since = 8;
	m.grant.from = 9;
	m.grant.of = 10;
	m.grant.steps = 11;
	m.grant.lr = -1.5f;
	fal_msg_put(&out, &m);
	check((int64_t)out.n, sizeof(want), "GRANT", "length");
	assert_memory_equal(out.p, want, sizeof(want));
	check(fal_msg_get(out.p, out.n, &got), 0, "GRANT", "get");
	if (got.grant.lr != -1.5f)
		fail_msg("lr: got %g, want -1.5", (double)got.grant.lr);
	fal_buf_free(&out);
}

static void
strings(void **state)
{
	(void)state;
	struct fal_msg m = { .type = FAL_MSG_HELLO }, got;
	struct fal_buf out = { 0 };
	memset(m.hello.name, 'n', sizeof(m.hello.name) - 1);
	strcpy(m.hello.version, "0.1.0");
	m.hello.cores = 12;
	fal_msg_put(&out, &m);
	check(fal_msg_get(out.p, out.n, &got), 0, "HELLO", "get");
	assert_string_equal(got.hello.name, m.hello.name);
	assert_string_equal(got.hello.version, "0.1.0");
	check(got.hello.cores, 12, "HELLO", "cores");
	for (size_t n = HEAD; n < out.n; n++)
		check(fal_msg_get(out.p, n, &got), FAL_ETRUNC, "HELLO", "cut short");
	out.p[HEAD + 8 + 2] = '\n';
	check(fal_msg_get(out.p, out.n, &got), FAL_EFORMAT, "HELLO", "control character");
	fal_buf_clear(&out);
	/* A name as long as its field has no room for the NUL. */
	fal_put_u16(&out, FAL_MSG_LEAVE);
	fal_put_u16(&out, 0);
	fal_put_u32(&out, 0);
	fal_put_u16(&out, sizeof(got.leave.why));
	for (size_t i = 0; i < sizeof(got.leave.why); i++)
		fal_put_u8(&out, 'x');
	check(fal_msg_get(out.p, out.n, &got), FAL_EFORMAT, "LEAVE", "too long");
	fal_buf_free(&out);
}

static void
limits(void **state)
{
	(void)state;
	static uint8_t p[FAL_MSG_MAX + 1] = { FAL_MSG_TRACE };
	struct fal_msg m = { .type = 0 };
	check(fal_msg_get(p, FAL_MSG_MAX, &m), 0, "TRACE", "the largest");
	check((int64_t)m.trace.lines.n, FAL_MSG_MAX - HEAD, "TRACE", "tail");
	m.type = 0;
	check(fal_msg_get(p, FAL_MSG_MAX + 1, &m), FAL_ELIMIT, "TRACE", "too large");
	check(m.type, 0, "TRACE", "set by a refusal");
}

static void
who_may_send_what(void **state)
{
	(void)state;
	static const enum fal_sender senders[] = { FAL_FROM_WORKER, FAL_FROM_OBSERVER,
						   FAL_FROM_CONTROLLER,
						   FAL_FROM_COORDINATOR };
	for (size_t i = 0; i < TYPES; i++)
		for (size_t s = 0; s < 4; s++)
			check(fal_msg_may_send(types[i].type, senders[s]),
			      types[i].sender == senders[s], types[i].name, "may send");
	for (size_t s = 0; s < 4; s++)
		check(fal_msg_may_send(0, senders[s]), 0, "0", "may send");
}

static void
model(void **state)
{
	(void)state;
	enum { N = 4 * FAL_BLOCK + 10 };
	static float params[N];
	int8_t exps[5] = { -1, 2, -3, 4, -5 };
	struct fal_buf out = { 0 };
	struct fal_msg m;
	for (uint32_t i = 0; i < N; i++)
		params[i] = (float)i;
	struct fal_model_part part = {
		9, 3, 2, params + 3 * FAL_BLOCK, N - 3 * FAL_BLOCK, exps + 3
	};
	put_model_msg(&out, 2, &part);
	check(fal_msg_get(out.p, out.n, &m), 0, "MODEL", "get");
	check(m.incarnation, 2, "MODEL", "incarnation");
	check((int64_t)m.model.version, 9, "MODEL", "version");
	check(m.model.first, 3, "MODEL", "first");
	check(m.model.blocks, 2, "MODEL", "blocks");
	check((int64_t)m.model.data.n, 2 + 4 * (FAL_BLOCK + 10), "MODEL", "data");
	assert_memory_equal(m.model.data.p, exps + 3, 2);
	assert_memory_equal(m.model.data.p + 2, params + 3 * FAL_BLOCK,
			    4 * (FAL_BLOCK + 10));
	fal_buf_clear(&out);
	part = (struct fal_model_part){ 0, 0, FAL_MODEL_BLOCKS, params, N, exps };
	put_model_msg(&out, 0, &part);
	if (out.n > FAL_MSG_MAX)
		fail_msg("FAL_MODEL_BLOCKS blocks: %zu bytes, limit %d", out.n,
			 FAL_MSG_MAX);
	fal_buf_free(&out);
}

/* The MODEL messages of `blocks` blocks have all of them, and none is too large. */
static void
models(void **state)
{
	(void)state;
	struct fal_rng r = fal_rng_init(4, FAL_RNG_TEST, 0);
	for (int round = 0; round < 200; round++) {
		const uint32_t blocks = 1 + fal_rng_below(&r, 3 * FAL_MODEL_BLOCKS + 2);
		const uint32_t n = fal_msg_models(blocks);
		uint32_t all = 0;
		for (uint32_t i = 0; i < n; i++) {
			const uint32_t some = fal_msg_model_blocks(blocks, i);
			check(all, i * FAL_MODEL_BLOCKS, "MODEL", "first");
			assert_true(some > 0 && some <= FAL_MODEL_BLOCKS);
			all += some;
		}
		check(all, blocks, "MODEL", "blocks");
	}
}

static void
model_ad(void **state)
{
	(void)state;
	uint8_t hash[32], got[FAL_MODEL_AD], want[FAL_MODEL_AD] = { 0 };
	for (uint8_t i = 0; i < 32; i++)
		hash[i] = want[i] = (uint8_t)(i + 1);
	want[32] = 4;
	want[35] = 1;
	want[36] = 5;
	want[43] = 2;
	fal_msg_model_ad(hash, 1u << 24 | 4, (uint64_t)2 << 56 | 5, got);
	assert_memory_equal(got, want, sizeof(want));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_round_trip),
		cmocka_unit_test(truncation_and_trailing_bytes),
		cmocka_unit_test(absurd_times),
		cmocka_unit_test(unknown_types_and_flags),
		cmocka_unit_test(fields_by_name),
		cmocka_unit_test(grant),
		cmocka_unit_test(strings),
		cmocka_unit_test(limits),
		cmocka_unit_test(who_may_send_what),
		cmocka_unit_test(model),
		cmocka_unit_test(models),
		cmocka_unit_test(model_ad),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
