/* The coordinator among workers with good keys and bad values: which pushes are refused,
 * which count, and which blocks stay as they were; and the effect of honest pushes. */
#include "test_coord.h"
#include "wire/bfp.h"

#include <math.h>
#include <stdlib.h>

enum { N = FAL_BLOCK + 5, CLOCKS = 40, TASKS = 12, TASK = 2, VERSIONS = 64 };

/* Every gradient has this value in every place, and needs this exponent. */
static const double gradient = 0x1p-10;
enum { NEEDED = -10 };
static const float lr = 0.125f;

/* The values and exponents of a lying worker's tasks. */
struct lie {
	bool lies;
	int64_t value; /* in each place of a contribution */
	int needed;
	bool each;   /* a contribution for each task */
	int above;   /* not 0: value and exponent are so much above the block's exponent,
			instead */
	bool boasts; /* its results of the test set are false */
};

/* Workers push changes of weights, as large as gradients are. */
static bool changes;

static uint32_t seq;
static int8_t exps[VERSIONS][2]; /* by version, */
static uint64_t come[VERSIONS];  /* … which the sessions have: version + 1 */
static struct session {
	struct standin is;
	bool closed;
	uint32_t evaluated;
	struct lie lie;
} session[SESSIONS + 1];

static struct racked_tickets tickets;

static void
on_send(void *arg, uint32_t peer, const struct fal_buf *msg)
{
	struct session *s = &session[peer];
	struct fal_msg m;
	(void)arg;
	check(fal_msg_get(msg->p, msg->n, &m), 0, "parse what was sent");
	assert_true(standin_told(&s->is, &m));
	if (m.type == FAL_MSG_TICKET)
		racked_note(&tickets, peer, &m);
}

/* Have all shards made the version, and was it announced?  Then its exponents are known.
 */
static bool
has_come(uint64_t version)
{
	const uint64_t at = version % VERSIONS;
	if (come[at] != version + 1 && racked_exps(&job, version, exps[at]))
		come[at] = version + 1;
	return come[at] == version + 1;
}

enum { PATH = 512 };
static float path[PATH]; /* the first weight, by version */

static void
follow(void)
{
	const uint64_t newest = fal_shard_version(fal_shard_set_shard(job.shard_set, 0));
	if (newest < PATH)
		path[newest] = fal_shard_set_params(job.shard_set, newest)[0];
}

static void
on_model(void *arg, uint32_t peer, const struct fal_coord_publication *m)
{
	(void)arg;
	(void)peer;
	has_come(m->version);
	follow();
}

static void
on_close(void *arg, uint32_t peer, const char *why)
{
	(void)arg;
	(void)why;
	session[peer].closed = true;
}

/* Whoever is refused is gone. */
static int
tell_or_go(uint32_t peer, const struct fal_msg *m)
{
	int err = tell_coord(peer, m);
	if (err < 0) {
		session[peer].closed = true;
		check(fal_coord_session_end(coord, now, peer, diag.text), 0, "gone");
	}
	return err;
}

static uint32_t test_tasks, shards; /* of the next job */
static struct fal_optim optim;      /* the same */
static struct { /* the last report of blocks that are left as they were */
	char name[FAL_MSG_NAME], key[FAL_NAME_MAX + 1];
	bool change;
} unstepped;

static void
on_unstepped(void *arg, const struct fal_coord_skipped_blocks *is)
{
	(void)arg;
	assert_in_range(is->blocks, 1, fal_blocks(N));
	snprintf(unstepped.name, sizeof(unstepped.name), "%s", is->name);
	snprintf(unstepped.key, sizeof(unstepped.key), "%s", is->key);
	unstepped.change = is->change;
}

static void
begin_job(const char *scheme, uint32_t workers)
{
	const struct fal_coord_ops ops = { .send = on_send,
					   .model = on_model,
					   .close = on_close,
					   .unstepped = on_unstepped };
	struct fal_coord_conf conf = { .grid = { .samples = CLOCKS * TASKS * TASK,
						 .batch = TASKS * TASK,
						 .task = TASK,
						 .epochs = 1 },
				       .params = N,
				       .optim = optim,
				       .shards = shards,
				       .test_samples = test_tasks * TASK,
				       .eval_every = test_tasks > 0 ? 4 : 0,
				       .min_workers = workers };
	conf.schedule.lr = (double)lr;
	seq = 0;
	tickets.n = 0;
	begin_scheme(scheme, conf, ops);
	for (uint32_t i = 1; i <= workers; i++)
		join(i);
}

static int
begin(void **state)
{
	(void)state;
	memset(session, 0, sizeof(session));
	memset(come, 0, sizeof(come));
	memset(fingerprint, 0, sizeof(fingerprint));
	memset(&unstepped, 0, sizeof(unstepped));
	test_tasks = shards = 0;
	optim = (struct fal_optim){ 0 };
	return 0;
}

static void
audit(void)
{
	racked_finish(&job, now, NULL);
	audited();
}

/* --- workers ---------------------------------------------------------------------- */

static void
claim(uint32_t peer, const struct standin_task *h, uint32_t n)
{
	struct fal_msg m = standin_claim(h, n, false);
	check(tell(peer, &m), 0, "CLAIM");
}

static void
evaluate(uint32_t peer)
{
	struct session *s = &session[peer];
	struct fal_msg m =
		standin_evaluated(s->is.eval_version, s->is.eval[--s->is.evals], TASK);
	m.evaluated.right = s->lie.boasts;
	s->evaluated++;
	check(tell(peer, &m), 0, "EVALUATED");
}

/* The sum of so many tasks, honestly or not. */
static void
push(uint32_t peer, const struct standin_task *h, uint32_t n, uint32_t tasks)
{
	const struct lie *lie = &session[peer].lie;
	struct fal_msg_ticket is;
	struct fal_buf records = { 0 };
	struct fal_sum *sum = fal_sum_new(N);
	assert_non_null(sum);
	for (uint32_t b = 0; b < fal_blocks(N); b++) {
		const int e = !changes    ? exps[h->version % VERSIONS][b]
			      : lie->lies ? lie->needed
					  : NEEDED;
		int64_t value = llrint(ldexp(gradient, FAL_BFP_P - 1 - e)) *
				(changes ? 1 : tasks);
		int needed = NEEDED;
		if (lie->lies) {
			value = lie->above != 0 ? (int64_t)1 << (lie->above + 22)
						: lie->value;
			needed = lie->above != 0 ? e + lie->above : lie->needed;
			needed = needed < FAL_EXP_MAX ? needed : FAL_EXP_MAX;
		}
		static int64_t all[FAL_BLOCK];
		for (uint32_t i = 0; i < FAL_BLOCK; i++)
			all[i] = value;
		check(fal_sum_store(sum, b, all, (uint64_t)value, (int8_t)needed), 0,
		      "store");
		check(fal_sum_pack(sum, b, (int8_t)e, &records), 0, "pack");
	}
	const struct fal_msg close = standin_seal(h->round, n);
	check(tell(peer, &close), 0, "SEAL");
	check(racked_ticket(&tickets, peer, h->round, n, &is), 1, "a ticket");
	check(is.tasks, tasks, "tasks of the ticket");
	const struct fal_msg m = standin_push(&is, &records);
	int err = tell(peer, &m);
	if (!lie->lies)
		check(err, 0, "an honest PUSH");
	fal_sum_free(sum);
	fal_buf_free(&records);
}

/* The first task whose version is here. */
static const struct standin_task *
first_of(const struct session *s)
{
	for (uint32_t i = 0; i < s->is.helds; i++)
		if (has_come(s->is.held[i].version))
			return &s->is.held[i];
	return NULL;
}

/* Does the first tasks that the worker can do: all tasks of a round that fill the same
 * contribution. */
static bool
work(uint32_t peer)
{
	struct session *s = &session[peer];
	const struct standin_task *can = first_of(s);
	struct standin_task mine[STANDIN_HELD];
	uint32_t n = 0, kept = 0;
	if (!s->closed && s->is.helds == 0 && s->is.evals > 0) {
		evaluate(peer);
		return true;
	}
	if (s->closed || can == NULL)
		return false;
	const struct standin_task first = *can;
	for (uint32_t i = 0; i < s->is.helds; i++) {
		const struct standin_task *h = &s->is.held[i];
		const bool one = s->lie.lies && s->lie.each;
		if (h->round == first.round &&
		    fal_contrib_id_equal(h->fills, first.fills) &&
		    h->version == first.version && (n == 0 || !one))
			mine[n++] = *h;
		else
			s->is.held[kept++] = *h;
	}
	s->is.helds = kept;
	const uint32_t mark = ++seq;
	for (uint32_t i = 0; i < n && !s->closed; i++)
		claim(peer, &mine[i], mark);
	if (!s->closed)
		push(peer, &first, mark, n);
	return true;
}

/* All workers do what they can, and time passes when no worker can do anything. */
static void
step_once(void)
{
	bool any = false;
	now += 1e-3;
	for (uint32_t p = 1; p <= SESSIONS; p++)
		any |= work(p);
	if (!any) {
		now = fmax(now, fal_coord_next_deadline(coord));
		check(fal_coord_tick(coord, now), 0, "tick");
	}
}

/* To the end. */
static void
run(void)
{
	for (uint32_t turn = 0; turn < 4000; turn++) {
		const struct fal_coord_status st = fal_coord_status(coord);
		const float *params = racked_params(&job);
		for (uint32_t i = 0; i < N; i += FAL_BLOCK)
			if (!isfinite(params[i]))
				fail_msg("parameter %u is %g", i, (double)params[i]);
		if (st.done || st.failed)
			return;
		step_once();
	}
	fail_msg("no progress: clock %llu",
		 (unsigned long long)fal_coord_status(coord).clock);
}

/* The model is that of honest gradients alone. */
static void
honest_model(void)
{
	const float *params = racked_params(&job);
	float want = 0;
	check(fal_coord_status(coord).done, 1, "done");
	for (uint32_t k = 0; k < CLOCKS; k++)
		want -= lr * (float)(gradient * TASKS / (TASKS * TASK));
	for (size_t i = 0; i < N; i++)
		if (memcmp(&params[i], &want, sizeof(want)) != 0)
			fail_msg("parameter %zu: got %a, want %a", i, (double)params[i],
				 (double)want);
}

static void
nobody_honest_is_gone(uint32_t workers)
{
	for (uint32_t i = 1; i <= workers; i++)
		if (!session[i].lie.lies)
			check(session[i].closed, 0, "an honest worker is gone");
}

/* --- tests ------------------------------------------------------------------------ */

/* The hostile table: under one key among two honest ones. */
static void
one_liar(void **state)
{
	(void)state;
	const int64_t limit = (INT64_C(1) << 62) - 1;
	const struct lie lies[] = {
		{ .value = INT64_C(1) << 61, .needed = 100 },
		{ .value = INT64_C(1) << 61, .needed = 100, .each = true },
		{ .value = 0, .needed = 100 },
		{ .value = 0, .needed = 100, .each = true },
		{ .value = limit, .needed = 100 },
		{ .value = limit, .needed = 20 },
		{ .value = limit, .needed = 20, .each = true },
	};
	static const char *const schemes[] = { "bsp", "epsp", "epsp:0" };
	for (size_t k = 0; k < sizeof(lies) / sizeof(lies[0]); k++)
		for (uint32_t liar = 1; liar <= 3; liar++) {
			begin(NULL);
			session[liar].lie = lies[k];
			session[liar].lie.lies = true;
			begin_job(schemes[k % 3], 3);
			run();
			honest_model();
			nobody_honest_is_gone(3);
			check(session[liar].closed, 1, "the liar is gone");
			audit();
			if (liar < 3 || k + 1 < sizeof(lies) / sizeof(lies[0]))
				end(NULL);
		}
}

/* Nobody can know the exponent that a sum of several tasks needs: a lie about it counts,
 * and raises the exponents by no more than 8 a clock; afterwards they fall by 2 a clock.
 */
static void
lies_that_count(void **state)
{
	(void)state;
	static const struct lie lies[] = {
		{ .lies = true, .value = 0, .needed = 20 },
		{ .lies = true, .value = 12345, .needed = 3 },
		{ .lies = true, .value = 1 << 20, .needed = -7 },
	};
	static const char *const schemes[] = { "bsp",    "epsp",     "epsp:0",
					       "epsp:2", "ssp:0",    "ssp:2",
					       "asp",    "flexrr:1", "groups:2" };
	for (size_t k = 0; k < sizeof(schemes) / sizeof(schemes[0]); k++) {
		int8_t last[2];
		begin(NULL);
		session[1 + k % 3].lie = lies[k % 3];
		begin_job(schemes[k], 3);
		while (fal_coord_status(coord).clock < 5)
			step_once();
		session[1 + k % 3].lie.lies = false;
		run();
		check(fal_coord_status(coord).done, 1, schemes[k]);
		session[1 + k % 3].lie.lies = true;
		nobody_honest_is_gone(3);
		for (uint64_t v = 0; v + 1 < VERSIONS; v++)
			if (come[v] == v + 1 && come[v + 1] == v + 2 &&
			    exps[v + 1][0] > exps[v][0] + FAL_EXP_RISE)
				fail_msg("%s: version %llu has the exponent %d, after %d",
					 schemes[k], (unsigned long long)v + 1,
					 exps[v + 1][0], exps[v][0]);
		assert_true(racked_exps(&job, fal_coord_status(coord).version, last));
		for (uint32_t b = 0; b < fal_blocks(N); b++)
			check(last[b], NEEDED, "what honest ones need");
		check(lines("\"unstepped\""), 0, "blocks left as they were");
		audit();
		end(NULL);
	}
	begin_job("asp", 1);
}

/* A key that was charged twice, in any sessions, is refused while the job has other keys.
 */
static void
the_key_is_charged(void **state)
{
	(void)state;
	session[1].lie = (struct lie){ .lies = true, .value = 0, .needed = 100 };
	session[4].lie = session[5].lie = session[1].lie;
	begin_job("epsp", 3);
	while (!session[1].closed)
		step_once();
	check(join_as(4, 1), 0, "HELLO after one charge");
	while (!session[4].closed)
		step_once();
	check(join_as(5, 1), FAL_EPERM, "HELLO after two");
	run();
	honest_model();
	nobody_honest_is_gone(3);
	audit();
}

/* A liar leaves before its lie is found: its key is charged, and after the second charge
 * has no session any more. */
static void
the_gone_are_charged(void **state)
{
	(void)state;
	test_tasks = 24;
	session[1].lie.boasts = session[5].lie.boasts = true;
	begin_job("bsp", 4);
	for (uint32_t peer = 1; peer <= 5; peer += 4) {
		if (peer > 1 && join_as(peer, 1) == FAL_EPERM)
			break; /* several lies were found */
		const uint32_t was = lines("\"ev\":\"charge\"");
		for (uint32_t i = 0; i < 200 && session[peer].evaluated == 0; i++)
			if (!work(peer))
				step_once();
		check(session[peer].evaluated > 0, 1, "it lied");
		session[peer].closed = true;
		check(fal_coord_session_end(coord, now, peer, "leaves"), 0, "gone");
		while (!fal_coord_status(coord).done && lines("\"ev\":\"charge\"") == was)
			step_once();
		check(lines("\"ev\":\"charge\"") > was, 1, "charged");
	}
	check(join_as(1, 1), FAL_EPERM, "HELLO after two");
	run();
	check(fal_coord_status(coord).done, 1, "done");
	honest_model();
	audit();
}

/* Results of the test set that differ little between two equal fingerprints are both near
 * those of a third worker with another fingerprint: the third refutes neither. */
static void
who_agrees_with_both_refutes_neither(void **state)
{
	(void)state;
	test_tasks = 24;
	session[1].lie.boasts = true;
	fingerprint[3] = 1;
	begin_job("bsp", 3);
	run();
	check(fal_coord_status(coord).done, 1, "done");
	check(lines("\"ev\":\"charge\""), 0, "charges");
	nobody_honest_is_gone(3);
	audit();
}

static void
one_key_for_all_is_needed(void **state)
{
	(void)state;
	begin_job("bsp", 0);
	session[1].lie = (struct lie){ .lies = true, .value = 0, .needed = 100 };
	session[2].lie = session[1].lie;
	check(join_as(1, 7), 0, "HELLO");
	while (!session[1].closed)
		step_once();
	check(join_as(2, 7), 0, "HELLO after one charge");
	while (!session[2].closed)
		step_once();
	check(join_as(3, 7), 0, "HELLO after two");
	run();
	honest_model();
}

/* A change of weights that is far larger than the weights is left out, and the trace and
 * the log say so. */
static void
changes_that_ruin(void **state)
{
	static const char *const schemes[] = { "consgd:1", "consgd:3", "dynsgd:1",
					       "dynsgd:2,staleness=updates", "wbsp" };
	(void)state;
	changes = true;
	for (size_t k = 0; k < 4 * sizeof(schemes) / sizeof(schemes[0]); k++) {
		const bool alone = k % 4 == 3;
		const uint32_t liar = alone ? 1 : 1 + (uint32_t)k % 3;
		char key[8];
		begin(NULL);
		shards = 1 + k % 2;
		session[liar].lie = (struct lie){ .lies = true,
						  .value = 1 << 23,
						  .needed = k % 4 < 2 ? 100 : 20 };
		begin_job(schemes[k / 4], alone ? 1 : 3);
		run();
		check(fal_coord_status(coord).done, 1, schemes[k / 4]);
		check(lines("\"unstepped\":2") > 0, 1, "left out");
		snprintf(key, sizeof(key), "k%u", liar);
		assert_string_equal(unstepped.key, key);
		check(unstepped.change, 1, "a change of weights");
		nobody_honest_is_gone(3);
		const float *params = racked_params(&job);
		for (uint32_t i = 0; i < N; i += FAL_BLOCK)
			if (fabsf(params[i]) > 1)
				fail_msg("%s: parameter %u is %g", schemes[k / 4], i,
					 (double)params[i]);
		audit();
		end(NULL);
	}
	changes = false;
	begin_job("asp", 1);
}

/* Gradients, one task at a time and with true exponents, grow beyond the range of
 * numbers: blocks are not stepped, and their exponents stay.  The squares that some
 * optimisers keep leave the range sooner. */
static void
beyond_the_numbers(void **state)
{
	static const enum fal_optim_kind kinds[] = { FAL_SGD, FAL_ADAGRAD, FAL_ADAMW };
	static const char *const schemes[] = { "epsp", "bsp", "epsp:2", "ssp:0" };
	for (uint32_t i = 0; i < 12; i++) {
		begin(NULL);
		optim = (struct fal_optim){
			.kind = kinds[i % 3], .eps = 1e-8f, .beta1 = 0.9, .beta2 = 0.999
		};
		session[2].lie = (struct lie){ .lies = true, .each = true, .above = 32 };
		shards = 1 + i % 2;
		begin_job(schemes[i % 4], 3);
		run();
		check(fal_coord_status(coord).done, 1, schemes[i % 4]);
		check(lines("\"unstepped\":") > 0, 1, "blocks left as they were");
		assert_string_equal(unstepped.key, "k2");
		check(unstepped.change, 0, "gradients");
		nobody_honest_is_gone(3);
		audit();
		if (i < 11)
			end(state);
	}
}

static void
answers_that_were_not_asked(void **state)
{
	(void)state;
	begin_job("epsp", 2);
	struct fal_msg m = { .type = FAL_MSG_CHECKED };
	check(tell(1, &m), 0, "nobody asked");
	m.checked.round = UINT64_MAX;
	check(tell(1, &m), 0, "no such round");
}

/* From zeros on, and with equal gradients, a clock of pushes steps as far as a clock of
 * bsp, within 1 %, for all optimisers and counts of workers. */
static void
pushes_come_to_clocks(void **state)
{
	static const uint32_t workers[] = { 1, 4, 6 }; /* and pushes of a clock */
	float want[CLOCKS + 1] = { 0 };
	for (uint32_t i = 0; i < 2 * FAL_OPTIMS * 4; i++) {
		const bool clips = i / 4 % 2 != 0, pushed = i % 4 > 0;
		const uint32_t k = pushed ? workers[i % 4 - 1] : 1;
		optim = (struct fal_optim){ .kind = (enum fal_optim_kind)(i / 8),
					    .momentum = 0.9f,
					    .beta1 = 0.9,
					    .beta2 = 0.999,
					    .eps = 1e-8f,
					    .clip = clips ? 0.01 : 0 };
		memset(path, 0, sizeof(path));
		begin_job(pushed ? "asp" : "bsp", k);
		run();
		follow();
		for (uint32_t c = 1; c <= CLOCKS; c++) {
			want[c] = pushed ? want[c] : path[c];
			const float by = path[k * c] - path[k * (c - 1)];
			const float bsp = want[c] - want[c - 1];
			if (!(bsp < 0) || fabsf(by - bsp) > -bsp / 100)
				fail_msg("%s, %u pushes, clock %u: %g, but %g",
					 fal_optim_name(optim.kind), k, c, (double)by,
					 (double)bsp);
		}
		audit();
		if (i + 1 < 2 * FAL_OPTIMS * 4)
			end(state);
	}
}

/* The count of pushers' momenta at the shard. */
static int64_t
momenta(void)
{
	struct fal_image is = { 0 };
	check(fal_shard_image(fal_shard_set_shard(job.shard_set, 0), &is), 0, "image");
	const int64_t n = is.is.slots;
	fal_image_free(&is);
	return n;
}

/* The momentum of a worker that leaves is dropped; another scheme starts without momenta.
 */
static void
the_gone_take_their_momentum(void **state)
{
	(void)state;
	optim = (struct fal_optim){ .kind = FAL_NESTEROV, .momentum = 0.9f };
	begin_job("asp", 3);
	while (momenta() < 3)
		step_once();
	session[2].closed = true;
	check(fal_coord_session_end(coord, now, 2, "leaves"), 0, "gone");
	check(momenta(), 2, "momenta of those that are here");
	check(lines("\"momentum\":true"), 1, "told");
	while (fal_coord_status(coord).clock < 5)
		step_once();
	check(momenta(), 2, "momenta when they have gone on");
	const struct fal_policy bsp = { .rule = { .scheme = FAL_BSP } };
	check(fal_coord_set_policy(coord, now, &bsp, "test", 1, NULL), 0, "policy");
	while (lines("\"scheme\":\"bsp\"") == 0)
		step_once();
	check(momenta(), 0, "momenta under bsp");
	session[3].closed = true;
	check(fal_coord_session_end(coord, now, 3, "leaves"), 0, "gone");
	check(lines("\"momentum\":true"), 1, "told");
	run();
	audit();
}

static void
leaves(uint32_t peer)
{
	session[peer].closed = true;
	check(fal_coord_session_end(coord, now, peer, "leaves"), 0, "gone");
}

/* Clocks 1 to 3 are over before clock 0, of which two workers have left a part.  Then the
 * version that ends clock 0 has all four. */
static void
clocks_over_out_of_order(void **state)
{
	const struct fal_policy bsp = { .rule = { .scheme = FAL_BSP } };
	struct fal_coord_outcome is;
	(void)state;
	begin_job("asp", 2);
	for (uint32_t clock = 0; clock < 3; clock++)
		check(work(1), 1, "the first worker's part of a clock");
	leaves(2);
	check(work(1), 1, "then it is granted what is left of clock 0");
	join(3);
	for (uint32_t clock = 1; clock < 3; clock++)
		check(work(3), 1, "the third worker's part of a clock");
	check(fal_coord_set_policy(coord, now, &bsp, "test", 1, NULL), 0, "policy");
	leaves(1);
	while (lines("\"scheme\":\"bsp\"") == 0)
		step_once();
	check((int64_t)fal_coord_status(coord).clock, 0, "clocks over before bsp");
	while (fal_coord_status(coord).clock == 0)
		step_once();
	check(fal_coord_newest_version(coord, &is), 1, "a version");
	check((int64_t)is.clock, 4, "clocks over in the version");
	run();
	audit();
}

int
main(void)
{
	tell = tell_or_go;
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(one_liar),
		TEST(lies_that_count),
		TEST(the_key_is_charged),
		TEST(the_gone_are_charged),
		TEST(who_agrees_with_both_refutes_neither),
		TEST(one_key_for_all_is_needed),
		TEST(changes_that_ruin),
		TEST(beyond_the_numbers),
		TEST(answers_that_were_not_asked),
		TEST(pushes_come_to_clocks),
		TEST(the_gone_take_their_momentum),
		TEST(clocks_over_out_of_order),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
