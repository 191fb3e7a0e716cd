/* Shards among strangers: any pushes in any order, before, between and after the
 * coordinator's orders, which come as the coordinator gives them: late, or ahead of what
 * they speak of.  Tickets are the coordinator's, or changed.
 *
 * Two racks, of one shard and of several, hear the same: they answer the same.  Whatever
 * was pushed, an honest worker that fills what is missing completes each round, and the
 * parameters are finite.
 *
 * The input is a program of steps: a byte that says what happens, then what it needs. */
#include "base/err.h"
#include "server/shard_set.h"
#include "wire/bfp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum {
	N = 2 * FAL_BLOCK + 5,
	BLOCKS = 3,
	TASKS = 4,
	ROUNDS = 4,
	GENERATIONS = 6,
	KEPT = ROUNDS + 2,
	EPOCH = 1
};

struct world {
	struct fal_shard_set *shard_set[2];
	struct fal_ticket_scope in;
	uint64_t version, first, next; /* rounds first … next-1 are under way, */
	struct round {
		struct fal_facts facts; /* `tasks` 0: nobody has spoken of it */
		bool open;
		uint32_t generation[TASKS], complete[2];
	} round[ROUNDS]; /* by number modulo ROUNDS */
};

static void
must(bool fact)
{
	if (!fact)
		abort();
}

static struct round *
round_of(struct world *w, uint64_t round)
{
	return &w->round[round % ROUNDS];
}

static void
hear(struct world *w, struct fal_shard_result result[2])
{
	for (uint32_t k = 0; k < 2; k++) {
		for (size_t i = 0; i < result[k].n; i++) {
			const struct fal_shard_report *s = &result[k].v[i];
			must(s->shard < fal_shard_set_count(w->shard_set[k]));
			if (s->kind == FAL_REPORT_COMPLETE)
				round_of(w, s->round)->complete[k]++;
		}
		fal_shard_result_free(&result[k]);
	}
}

static void
order(struct world *w, const struct fal_shard_order *o)
{
	struct fal_shard_result r[2] = { 0 };
	must(fal_shard_set_order(w->shard_set[0], o, &r[0]) == FAL_OK);
	must(fal_shard_set_order(w->shard_set[1], o, &r[1]) == FAL_OK);
	hear(w, r);
}

/* The coordinator's ticket for one task of the round, of this generation: each fills the
 * one before. */
static struct fal_ticket
ticket(struct world *w, uint64_t round, uint32_t task, uint32_t generation)
{
	struct round *r = round_of(w, round);
	if (r->facts.tasks == 0)
		r->facts = (struct fal_facts){ .version = w->version,
					       .tasks = TASKS,
					       .kind = FAL_KIND_GRAD };
	struct fal_ticket t = { .round = round,
				.id = { 1 + task + TASKS * generation,
					(uint32_t)round + 1 },
				.tasks = 1,
				.facts = r->facts };
	if (generation > 0)
		t.fills = (struct fal_contrib_id){ t.id.worker - TASKS, t.id.seq };
	return t;
}

/* Both racks hear it, and say the same. */
static int
push(struct world *w, const struct fal_msg_ticket *t, const struct fal_buf *records)
{
	struct fal_msg m = { .type = FAL_MSG_PUSH };
	struct fal_diag diag;
	m.push.ticket = *t;
	m.push.epoch = EPOCH;
	m.push.records = (struct fal_tail){ records->p, records->n };
	struct fal_shard_result r[2] = { 0 };
	int err = fal_shard_set_push_msg(w->shard_set[0], 1, &m, &r[0], &diag);
	int other = fal_shard_set_push_msg(w->shard_set[1], 1, &m, &r[1], &diag);
	must(err != FAL_ENOMEM && (err < 0) == (other < 0));
	hear(w, r);
	return err;
}

/* A record whose values are all `value`, or, with `step`, count up from it. */
static void
put(struct world *w, uint64_t version, uint32_t block, int shift, int needed,
    int64_t value, int64_t step, struct fal_buf *out)
{
	static int64_t v[FAL_BLOCK];
	const uint32_t len = fal_block_len(N, block);
	const float *params;
	struct fal_shard_part part;
	struct fal_sum *s = fal_sum_new(N);
	int8_t e = FAL_EXP_FIRST;
	must(s != NULL);
	params = fal_shard_set_params(w->shard_set[0], version);
	if (params != NULL && fal_shard_set_part(w->shard_set[0], 0, version, &part))
		e = part.exps[block];
	uint64_t bound = 0;
	for (uint32_t i = 0; i < len; i++) {
		v[i] = value + step * (int64_t)i;
		bound = (uint64_t)llabs(v[i]) > bound ? (uint64_t)llabs(v[i]) : bound;
	}
	if (fal_sum_store(s, block, v, bound, (int8_t)needed) == FAL_OK)
		must(fal_sum_pack(s, block, (int8_t)(e + shift), out) == FAL_OK);
	fal_sum_free(s);
}

/* What a worker makes of it: some blocks, well or badly. */
static void
put_records(struct world *w, uint64_t version, struct fal_rd *r, struct fal_buf *out)
{
	const uint8_t which = fal_get_u8(r), how = fal_get_u8(r);
	const int64_t value = how & 1 ? (int64_t)1 << fal_get_u8(r) % 62 : fal_get_u8(r);
	const int needed = how & 2 ? (int8_t)fal_get_u8(r) : FAL_EXP_NONE;
	for (uint32_t b = 0; b < BLOCKS; b++)
		if (which >> b & 1)
			put(w, version, b, how & 4 ? fal_get_u8(r) % 5 - 2 : 0,
			    how & 32 ? FAL_EXP_NONE : needed, how & 32 ? 0 : value,
			    how >> 6, out);
	if (how & 8)
		for (uint32_t i = fal_get_u8(r) % 32; i > 0; i--)
			fal_put_u8(out, fal_get_u8(r));
}

static void
hostile_push(struct world *w, struct fal_rd *r)
{
	const uint8_t what = fal_get_u8(r);
	const uint64_t round = w->first + what % ROUNDS;
	const uint32_t task = what >> 2 & 3;
	const uint32_t newest = round_of(w, round)->generation[task];
	const struct fal_ticket t =
		ticket(w, round, task, newest > 0 ? newest - (what >> 4 & 1) : 0);
	struct fal_msg_ticket m;
	struct fal_buf records = { 0 };
	fal_ticket_put(&w->in, 1, &t, &m);
	if (what >> 5 == 7) /* not the coordinator's any more */
		((uint8_t *)&m)[fal_get_u8(r) % sizeof(m.round)] ^= 1;
	put_records(w, t.facts.version, r, &records);
	int err = push(w, &m, &records);
	must(what >> 5 != 7 || err == FAL_EAUTH);
	fal_buf_free(&records);
}

static void
open_round(struct world *w, uint64_t round)
{
	struct round *r = round_of(w, round);
	if (r->open)
		return;
	ticket(w, round, 0, 0); /* makes the facts */
	r->open = true;
	const struct fal_shard_order o = { .kind = FAL_ORDER_OPEN,
					   .round = round,
					   .facts = r->facts };
	order(w, &o);
}

static void
fence(struct world *w, uint64_t round, uint32_t task)
{
	struct round *r = round_of(w, round);
	const struct fal_ticket t = ticket(w, round, task, r->generation[task]);
	const struct fal_shard_order o = {
		.kind = FAL_ORDER_FENCE, .round = round, .id = t.id, .fills = t.fills
	};
	r->generation[task]++;
	order(w, &o);
}

/* Of rounds that are not open. */
static uint32_t
fences_ahead(const struct world *w)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < ROUNDS; i++)
		for (uint32_t task = 0; task < TASKS && !w->round[i].open; task++)
			n += w->round[i].generation[task];
	return n;
}

static bool
is_complete(const struct world *w, const struct round *r)
{
	return r->complete[0] == fal_shard_set_count(w->shard_set[0]) &&
	       r->complete[1] == fal_shard_set_count(w->shard_set[1]);
}

/* The oldest round is over; an honest worker has filled what was missing. */
static void
end_round(struct world *w, uint8_t how)
{
	const uint64_t round = w->first;
	struct round *r = round_of(w, round);
	struct fal_buf records = { 0 };
	open_round(w, round);
	for (uint32_t task = 0; task < TASKS && !is_complete(w, r); task++) {
		struct fal_msg_ticket m;
		fence(w, round, task);
		const struct fal_ticket t = ticket(w, round, task, r->generation[task]);
		fal_ticket_put(&w->in, 1, &t, &m);
		fal_buf_clear(&records);
		for (uint32_t b = 0; b < BLOCKS; b++)
			put(w, t.facts.version, b, 0, FAL_EXP_NONE, 0, 0, &records);
		must(push(w, &m, &records) == FAL_OK);
	}
	must(is_complete(w, r));
	fal_buf_free(&records);
	const bool merges = how & 1;
	const struct fal_shard_order end = { .kind = FAL_ORDER_END,
					     .round = round,
					     .end = merges ? FAL_END_MERGE
							   : FAL_END_DROP };
	const struct fal_shard_order step = { .kind = FAL_ORDER_STEP,
					      .lr = 0.01f,
					      .divisor = 2 * TASKS,
					      .versions = KEPT };
	order(w, &end);
	*r = (struct round){ 0 };
	w->first++;
	if (merges && how & 2) {
		order(w, &step);
		w->version++;
	}
}

static void
step(struct world *w, struct fal_rd *r)
{
	/* Only the newest version is held. */
	struct fal_shard_order o = { .kind = FAL_ORDER_PIN, .version = w->version };
	const uint8_t what = fal_get_u8(r);
	const uint64_t round = w->first + (what >> 3) % ROUNDS;
	switch (what & 7) {
	case 0:
	case 1:
	case 2:
		hostile_push(w, r);
		break;
	case 3:
		for (uint64_t i = w->first; i <= round; i++)
			open_round(w, i);
		break;
	case 4:
		if (round_of(w, round)->generation[what >> 6] < GENERATIONS &&
		    (round_of(w, round)->open || fences_ahead(w) < TASKS))
			fence(w, round, what >> 6);
		break;
	case 5:
	case 6:
		end_round(w, what >> 3);
		break;
	default:
		o.kind = what & 8    ? FAL_ORDER_RETAIN
			 : what & 16 ? FAL_ORDER_FORGET
				     : o.kind;
		o.versions = KEPT + (what >> 5);
		order(w, &o);
	}
}

static void
same(struct world *w)
{
	static float one[N];
	const float *a = fal_shard_set_params(w->shard_set[0], w->version);
	must(a != NULL);
	memcpy(one, a, sizeof(one));
	const float *b = fal_shard_set_params(w->shard_set[1], w->version);
	must(b != NULL && memcmp(one, b, sizeof(one)) == 0);
	for (size_t i = 0; i < N; i++)
		must(isfinite(one[i]));
}

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static const float init[N];
	struct world w = { .in = { .key = { 7 }, .epoch = EPOCH } };
	struct fal_rd r = fal_rd_init(p, n);
	struct fal_shard_set_conf conf = { .shards = 1,
					   .tickets = w.in,
					   .each = { .n = N, .tasks = TASKS } };
	w.shard_set[0] = fal_shard_set_new(&conf, init);
	conf.shards = 2 + fal_get_u8(&r) % 2;
	w.shard_set[1] = fal_shard_set_new(&conf, init);
	must(w.shard_set[0] != NULL && w.shard_set[1] != NULL);
	/* What rounds under way are computed on. */
	const struct fal_shard_order keep = { .kind = FAL_ORDER_RETAIN,
					      .versions = KEPT };
	order(&w, &keep);
	while (r.n > 0 && r.err == 0)
		step(&w, &r);
	for (uint32_t i = 0; i < ROUNDS; i++)
		end_round(&w, 3);
	same(&w);
	fal_shard_set_free(w.shard_set[0]);
	fal_shard_set_free(w.shard_set[1]);
	return 0;
}
