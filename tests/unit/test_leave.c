/* A version that a shard makes leaves for whoever wants it, over real channels, while the
 * shard's blocks come in any order; readers come, and go away, meanwhile. */
#include "../../cmd/falcon-ps/broadcast.h"
#include "../drawn.h"
#include "net/conn_priv.h"
#include "server/shard_set.h"
#include "test_net.h"
#include "wire/bfp.h"

#include <math.h>
#include <signal.h>

enum { MOST = 120, READERS = 3, GOES = 0, COMES = 1, STAYS = 2, INCARNATION = 7 };

static uint64_t seed;
static const uint8_t hash[FAL_HASH_BYTES] = { 1 };

/* What a reader has got. */
struct got {
	bool block[MOST];
	uint32_t blocks, published;
	uint64_t publication;
};

static struct {
	struct world w;
	struct fal_rng rng;
	struct fal_shard_set *shard_set;
	struct ps_broadcast broadcast;
	struct ps_reader reader[READERS];
	struct got got[READERS];
	uint32_t blocks, pushed; /* that the shard has; that were pushed to it */
	uint32_t early;          /* blocks that came before all were */
	size_t n;
	struct fal_sum *sum;
} t;

/* ---- readers ----------------------------------------------------------------------- */

static void
is_published(struct got *g, struct fal_chan *c, const struct fal_msg *m)
{
	struct fal_publication pub = {
		.id = m->published.publication,
		.count = fal_msg_models(m->published.blocks),
		.key = m->published.key,
		.ad_n = FAL_MODEL_AD,
		.version = m->published.version,
		.first = m->published.first,
		.blocks = m->published.blocks,
	};
	fal_msg_model_ad(hash, INCARNATION, m->published.version, pub.ad);
	assert_int_equal(m->published.blocks, t.blocks);
	assert_int_equal(fal_chan_expect_publication(c, &pub), 0);
	g->published++;
}

/* It is what the version has, and its first block comes when all were made. */
static void
is_model(struct got *g, const struct fal_msg *m)
{
	const uint32_t first = m->model.first, blocks = m->model.blocks;
	const struct fal_shard *shard = fal_shard_set_shard(t.shard_set, 0);
	const float *params;
	const int8_t *exps;
	assert_int_equal(m->model.version, 1);
	assert_int_equal(first % FAL_MODEL_BLOCKS, 0);
	assert_true(first > 0 || t.pushed == t.blocks);
	t.early += t.pushed < t.blocks ? blocks : 0;
	for (uint32_t b = first; b < first + blocks; b++) {
		assert_false(g->block[b]);
		g->blocks++;
		g->block[b] = true;
	}
	if (!fal_shard_find_version(shard, 1, &params, &exps)) {
		struct fal_shard_making is;
		assert_true(fal_shard_making(shard, &is));
		params = is.params;
		exps = is.exps;
	}
	assert_memory_equal(m->model.data.p, exps + first, blocks);
	assert_memory_equal(m->model.data.p + blocks, params + (size_t)first * FAL_BLOCK,
			    m->model.data.n - blocks);
}

static void
on_heard(void *arg, struct fal_chan *c, const uint8_t *p, size_t n)
{
	struct fal_msg m;
	struct got *g = &t.got[(struct end *)arg - t.w.client];
	assert_int_equal(fal_msg_get(p, n, &m), 0);
	if (m.type == FAL_MSG_PUBLISHED)
		is_published(g, c, &m);
	else
		is_model(g, &m);
	on_msg(arg, c, p, n);
}

static bool local; /* who comes is on this machine */

static void
comes(int i)
{
	const struct fal_addr at = addr("%s", fal_listen_addr_text(t.w.l));
	const struct fal_client_key key = client_key("lab", 2, 1);
	struct fal_chan_ops ops = ops_of(&t.w.client[i]);
	struct fal_chan_opt opt = { 0 };
	ops.on_msg = on_heard;
	assert_int_equal(fal_dial(&t.w.loop, &at, &key, &opt, &ops, &t.w.client[i].c), 0);
	SEND(&t.w.client[i], 'h');
	UNTIL(&t.w, t.w.server[i].msgs == 1);
	t.w.server[i].c->is_local = local;
}

static void
wants(uint32_t i)
{
	const struct fal_coord_publication model = { .version = 1, .order = 1 };
	ps_reader_attach(&t.reader[i], t.w.server[i].c);
	ps_broadcast_add(&t.broadcast, &t.reader[i], &model);
}

/* What there is leaves, and again when links have taken that. */
static void
leave(void)
{
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(ps_broadcast_send(&t.broadcast), 0);
		for (uint32_t k = 0; k < 20; k++)
			uv_run(&t.w.loop, UV_RUN_NOWAIT);
	}
}

static bool
has_all(uint32_t i)
{
	leave();
	return t.got[i].blocks == t.blocks;
}

/* ---- the shard --------------------------------------------------------------------- */

static const struct fal_facts facts = { .tasks = 1, .kind = FAL_KIND_GRAD };

static void
order(struct fal_shard_order o)
{
	o.round = 1;
	o.facts = facts;
	struct fal_shard_result result = { 0 };
	assert_int_equal(fal_shard_set_order(t.shard_set, &o, &result), 0);
	fal_shard_result_free(&result);
}

static void
push(uint32_t b)
{
	const struct fal_ticket ticket = {
		.round = 1, .id = { 1, 1 }, .tasks = 1, .facts = facts
	};
	const struct fal_shard *shard = fal_shard_set_shard(t.shard_set, 0);
	struct fal_shard_result result = { 0 };
	struct fal_buf out = { 0 };
	struct fal_diag diag = { "" };
	const float *params;
	const int8_t *exps;
	assert_true(fal_shard_find_version(shard, 0, &params, &exps));
	assert_int_equal(fal_sum_pack(t.sum, b, exps[b], &out), 0);
	const struct fal_tail tail = { out.p, out.n };
	t.pushed++;
	if (fal_shard_set_push(t.shard_set, &ticket, &tail, &result, &diag) < 0)
		fail_msg("%s", diag.text);
	fal_shard_result_free(&result);
	fal_buf_free(&out);
}

/* It will step as soon as it has all. */
static void
begin_shard(void)
{
	static float grad[MOST * FAL_BLOCK];
	struct fal_shard_set_conf conf = { .each = { .tasks = 1 } };
	const float *params;
	const int8_t *exps;
	t.blocks = 70 + fal_rng_below(&t.rng, MOST - 70);
	t.n = (size_t)t.blocks * FAL_BLOCK - fal_rng_below(&t.rng, FAL_BLOCK);
	conf.each.n = t.n;
	t.shard_set = fal_shard_set_new(&conf, NULL);
	assert_non_null(t.shard_set);
	t.broadcast.publisher.shard_set = t.shard_set;
	t.broadcast.publisher.incarnation = INCARNATION;
	t.broadcast.publisher.rule.scheme = FAL_BSP;
	memcpy(t.broadcast.publisher.job_hash, hash, sizeof(hash));
	order((struct fal_shard_order){ .kind = FAL_ORDER_RETAIN, .versions = 2 });
	order((struct fal_shard_order){ .kind = FAL_ORDER_OPEN });
	order((struct fal_shard_order){
		.kind = FAL_ORDER_END, .end = FAL_END_MERGE, .ahead = true });
	order((struct fal_shard_order){ .kind = FAL_ORDER_STEP,
					.version = 1,
					.versions = 2,
					.lr = 0.1f,
					.divisor = 1 });
	t.sum = fal_sum_new(t.n);
	assert_true(fal_shard_find_version(fal_shard_set_shard(t.shard_set, 0), 0,
					   &params, &exps));
	for (size_t i = 0; i < t.n; i++)
		grad[i] = ldexpf(fal_rng_unit(&t.rng) - 0.5f, FAL_EXP_FIRST);
	assert_int_equal(fal_sum_quantise(t.sum, grad, exps, fal_bfp_room(1), NULL), 0);
}

/* In which its blocks come: mostly the last ones first, and the first one last. */
static void
draw_order(uint32_t out[static MOST])
{
	for (uint32_t i = 0; i < t.blocks; i++)
		out[i] = t.blocks - 1 - i;
	for (uint32_t i = 0; i + 1 < t.blocks; i++) {
		const uint32_t k = fal_rng_below(&t.rng, t.blocks - 1);
		if (fal_rng_below(&t.rng, 3) == 0) {
			const uint32_t was = out[i];
			out[i] = out[k];
			out[k] = was;
		}
	}
}

/* ---- together ---------------------------------------------------------------------- */

static void
begin_all(uint32_t turn)
{
	memset(&t, 0, sizeof(t));
	t.rng = fal_rng_init(seed, FAL_RNG_TEST, turn);
	begin_shard();
	begin(&t.w, (struct fal_listen_opt){ 0 });
}

static void
end_all(void)
{
	end(&t.w);
	for (uint32_t i = 0; i < READERS; i++)
		ps_reader_detach(&t.broadcast, &t.reader[i]);
	ps_broadcast_free(&t.broadcast);
	fal_shard_set_free(t.shard_set);
	fal_sum_free(t.sum);
}

/* One that is there from the beginning gets it piece by piece, the last one, too; what
 * was begun is done with then. */
static void
leaves_while_it_is_made(void **state)
{
	uint32_t at[MOST], early = 0;
	(void)state;
	for (uint32_t turn = 0; turn < 4; turn++) {
		begin_all(turn);
		comes(0);
		wants(0);
		draw_order(at);
		for (uint32_t i = 0; i < t.blocks; i++) {
			push(at[i]);
			leave();
		}
		UNTIL(&t.w, t.got[0].blocks == t.blocks);
		assert_int_equal(t.got[0].published, 1);
		assert_int_equal(t.broadcast.n, 0);
		assert_int_equal(t.broadcast.publisher.encoders_n, 0);
		early += t.early;
		end_all();
	}
	assert_true(early > 100);
}

/* Whoever is on this machine gets it when it is made. */
static void
nobody_near_is_first(void **state)
{
	uint32_t at[MOST];
	(void)state;
	local = true;
	begin_all(7);
	comes(0);
	wants(0);
	draw_order(at);
	for (uint32_t i = 0; i < t.blocks; i++) {
		push(at[i]);
		leave();
	}
	UNTIL(&t.w, t.got[0].blocks == t.blocks);
	assert_int_equal(t.early, 0);
	end_all();
	local = false;
}

/* One goes away in the midst, another one comes, a third one stays. */
static void
readers_come_and_go(void **state)
{
	uint32_t at[MOST], early = 0;
	(void)state;
	for (uint32_t turn = 10; turn < 20; turn++) {
		begin_all(turn);
		const uint32_t goes = fal_rng_below(&t.rng, t.blocks),
			       enters = fal_rng_below(&t.rng, t.blocks);
		for (int i = 0; i < READERS; i++)
			comes(i);
		wants(GOES);
		wants(STAYS);
		draw_order(at);
		for (uint32_t i = 0; i < t.blocks; i++) {
			if (i == enters)
				wants(COMES);
			push(at[i]);
			if (fal_rng_below(&t.rng, 3) == 0)
				leave();
			if (i == goes) {
				ps_reader_detach(&t.broadcast, &t.reader[GOES]);
				fal_chan_kill(t.w.server[GOES].c);
				t.w.server[GOES].c = NULL;
			}
		}
		leave();
		UNTIL(&t.w, has_all(COMES) && has_all(STAYS));
		assert_int_equal(t.got[COMES].published, 1);
		assert_int_equal(t.got[STAYS].published, 1);
		assert_int_equal(t.broadcast.n, 0);
		assert_int_equal(t.broadcast.publisher.encoders_n, 0);
		assert_true(t.broadcast.publisher.publications <= 1);
		early += t.early;
		end_all();
	}
	assert_true(early > 100);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_near_is_first),
		cmocka_unit_test(leaves_while_it_is_made),
		cmocka_unit_test(readers_come_and_go),
	};
	seed = drawn_seed(93);
	signal(SIGPIPE, SIG_IGN);
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
