/* The coordinator among workers whose keys are good and whose values are not: what is
 * refused, what wants a witness, what is done again; and the model stays that of the
 * honest ones. */
#include "test_coord.h"
#include "wire/bfp.h"

#include <math.h>
#include <stdlib.h>

enum { N = FAL_BLOCK + 5, CLOCKS = 40, TASKS = 12, TASK = 2, VERSIONS = 64 };

/* Every gradient is this, in every place, and needs that. */
static const double gradient = 0x1p-10;
enum { NEEDED = -10 };
static const float lr = 0.125f;

/* What a worker says of each of its tasks, instead of what is so. */
struct lie {
	bool lies;
	int64_t value; /* in each place of a contribution */
	int needed;
	bool each;  /* a contribution for each task */
	bool last;  /* … of the last block alone */
	int above;  /* not 0: both are those of so much above the exponent, instead */
	int shift;  /* not 0: nothing but the truth, of gradients so much larger */
	int answer; /* what it answers to checks; 0: the truth */
	bool silent;
	bool odd;     /* … that one is not finite */
	bool accuses; /* it has no finite result */
	bool boasts;  /* of the test set it says what nobody else does */
};

/* What they push are changes of weights, as large as gradients are. */
static bool changes;

static uint32_t seq;
static int8_t exps[VERSIONS][2]; /* by version, */
static uint64_t come[VERSIONS];  /* … which has come: one more than it */
static struct session {
	struct standin is;
	bool closed;
	uint32_t evaluated;
	struct lie lie;
	uint32_t checks; /* tasks that it was asked to check */
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
	if (m.type == FAL_MSG_GRANT && m.grant.kind == FAL_KIND_CHECK)
		s->checks += m.grant.count;
	if (m.type == FAL_MSG_TICKET)
		racked_note(&tickets, peer, &m);
}

/* Have all shards made the version, of which somebody was told?  Then its exponents are
 * known. */
static bool
has_come(uint64_t version)
{
	const uint64_t at = version % VERSIONS;
	if (come[at] != version + 1 && racked_exps(&job, version, exps[at]))
		come[at] = version + 1;
	return come[at] == version + 1;
}

static void
on_model(void *arg, uint32_t peer, const struct fal_coord_model *m)
{
	(void)arg;
	(void)peer;
	has_come(m->version);
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
		check(fal_coord_gone(coord, now, peer, diag.text), 0, "gone");
	}
	return err;
}

static uint32_t test_tasks, shards; /* of the next job */
static struct fal_optim optim;      /* the same */
static bool deaf;                   /* what the shards say is under way */
/* So is what the second one says from its next TAKEN on, which is here then. */
static bool slow, waits;
static struct fal_shard_say taken;

static int
order(void *arg, const struct fal_shard_order *o)
{
	return fal_rack_order(((struct racked *)arg)->rack, o);
}

static int
push_to(void *arg, uint32_t from, const struct fal_msg *m, struct fal_diag *why)
{
	return fal_rack_msg(((struct racked *)arg)->rack, from, m, why);
}

static bool
next(void *arg, uint32_t *shard, struct fal_shard_say *out)
{
	struct fal_rack *rack = ((struct racked *)arg)->rack;
	if (waits) {
		*shard = slow ? 0 : 1;
		*out = taken;
		waits = slow;
		return !slow || fal_shard_next(fal_rack_at(rack, 0), out);
	}
	if (deaf || !fal_rack_next(rack, shard, out))
		return false;
	if (!slow || *shard != 1 || out->kind != FAL_SAY_TAKEN)
		return true;
	taken = *out;
	waits = true;
	return next(arg, shard, out);
}

static void
begin_job(const char *scheme, uint32_t workers)
{
	static const float init[N];
	struct fal_policy policy = { .no_clones = true };
	struct fal_coord_ops ops = { .shards = { &job, order, push_to, next },
				     .send = on_send,
				     .model = on_model,
				     .close = on_close,
				     .trace = on_trace };
	struct fal_coord_conf conf = { .name = "test",
				       .hash = "00",
				       .policy = &policy,
				       .policy_by = "job",
				       .grid = { .samples = CLOCKS * TASKS * TASK,
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
	check(fal_rule_parse(scheme, &policy.rule, &diag), 0, "scheme");
	now = 0.5;
	seq = 0;
	tickets.n = 0;
	fal_buf_clear(&trace);
	check(racked_new(conf, ops, init, 0, &job), 0, "coordinator");
	coord = job.coord;
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
	test_tasks = shards = 0;
	optim = (struct fal_optim){ 0 };
	return 0;
}

static void
audit(void)
{
	racked_finish(&job, now, NULL);
	check((int64_t)audited().verdicts[FAL_REFUTED], lines("\"verdict\":\"refuted\""),
	      "refuted");
}

static bool
is_check(const struct standin_task *t)
{
	return t->kind == FAL_KIND_CHECK;
}

/* --- workers ---------------------------------------------------------------------- */

static void
answer(uint32_t peer, const struct standin_task *h)
{
	const struct session *s = &session[peer];
	int8_t needed[2] = { NEEDED, NEEDED };
	if (s->lie.answer != 0)
		memset(needed, s->lie.answer, sizeof(needed));
	struct fal_msg m = standin_checked(h, needed, sizeof(needed));
	m.checked.nonfinite = s->lie.odd;
	check(tell(peer, &m), 0, "CHECKED");
}

static void
claim(uint32_t peer, const struct standin_task *h, uint32_t n)
{
	struct fal_msg m = standin_claim(h, n, false);
	m.claim.nonfinite = session[peer].lie.accuses;
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
		const double g = ldexp(gradient, lie->shift);
		int64_t value =
			llrint(ldexp(g, FAL_BFP_P - 1 - e)) * (changes ? 1 : tasks);
		int needed = NEEDED + lie->shift;
		if (lie->lies && (!lie->last || b + 1 == fal_blocks(N))) {
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

/* The first task whose version has come. */
static const struct standin_task *
first_of(const struct session *s)
{
	for (uint32_t i = 0; i < s->is.helds; i++)
		if (has_come(s->is.held[i].version))
			return &s->is.held[i];
	return NULL;
}

/* Does what it can first: a check, or all tasks of a round that fill the same. */
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
	if (is_check(&first) && s->lie.silent)
		return false;
	for (uint32_t i = 0; i < s->is.helds; i++) {
		const struct standin_task *h = &s->is.held[i];
		const bool one = is_check(&first) || (s->lie.lies && s->lie.each);
		if (h->round == first.round && fal_cid_eq(h->fills, first.fills) &&
		    h->version == first.version && is_check(h) == is_check(&first) &&
		    (n == 0 || !one))
			mine[n++] = *h;
		else
			s->is.held[kept++] = *h;
	}
	s->is.helds = kept;
	if (is_check(&first)) {
		answer(peer, &first);
		return true;
	}
	const uint32_t mark = ++seq;
	for (uint32_t i = 0; i < n && !s->closed; i++)
		claim(peer, &mine[i], mark);
	if (!s->closed && !s->lie.accuses)
		push(peer, &first, mark, n);
	return true;
}

/* All do what they can, and time passes where nobody can do anything. */
static void
step_once(void)
{
	bool any = false;
	now += 1e-3;
	for (uint32_t p = 1; p <= SESSIONS; p++)
		any |= work(p);
	if (!any) {
		now = fmax(now, fal_coord_wake(coord));
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

/* It is that of gradients that are all honest. */
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
		if (!session[i].lie.lies && session[i].lie.answer == 0)
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
		/* what only a witness can tell */
		{ .value = 0, .needed = 20 },
		{ .value = 12345, .needed = 3 },
		{ .value = 1 << 20, .needed = -7 },
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

static uint32_t
holds_a_check(void)
{
	for (uint32_t p = 1; p <= SESSIONS; p++)
		for (uint32_t i = 0; i < session[p].is.helds && !session[p].closed; i++)
			if (is_check(&session[p].is.held[i]))
				return p;
	return 0;
}

/* A witness leaves before the shards have said what they make of its word: it counts. */
static void
a_witness_that_left_is_heard(void **state)
{
	(void)state;
	uint32_t witness;
	session[1].lie = (struct lie){ .lies = true, .value = 0, .needed = 20 };
	begin_job("bsp", 3);
	while ((witness = holds_a_check()) == 0)
		step_once();
	deaf = true;
	while (holds_a_check() == witness)
		work(witness);
	session[witness].closed = true;
	check(fal_coord_gone(coord, now, witness, "reset"), 0, "gone");
	deaf = false;
	check(fal_coord_heard(coord, now), 0, "heard");
	run();
	honest_model();
	check(session[1].closed, 1, "the liar is gone");
	audit();
}

static void
honest_jobs_have_no_checks(void **state)
{
	(void)state;
	begin_job("epsp", 3);
	run();
	honest_model();
	check(lines("\"ev\":\"check\""), 0, "checks");
	check(lines("\"ev\":\"again\""), 0, "done again");
	audit();
}

/* A key that was charged twice, in whatever sessions, is not welcome any more, while the
 * job has others. */
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

/* Has the session said what is wrong? */
static bool
said(uint32_t peer, uint32_t before)
{
	const struct lie *lie = &session[peer].lie;
	return lie->accuses  ? session[peer].is.helds == 0 && seq > before
	       : lie->boasts ? session[peer].evaluated > 0
			     : lines("\"ev\":\"again\"") > before;
}

/* Whoever leaves before it is found out: its key is charged, and after the second time
 * has no session any more, nor keeps another one that it has. */
static void
the_gone_are_charged(void **state)
{
	(void)state;
	static const struct lie lies[] = {
		{ .lies = true, .each = true, .above = 32 }, /* beyond the numbers */
		{ .accuses = true },
		{ .boasts = true },
	};
	for (size_t k = 0; k < sizeof(lies) / sizeof(lies[0]); k++) {
		begin(NULL);
		test_tasks = lies[k].boasts ? 24 : 0;
		session[1].lie = session[5].lie = lies[k];
		begin_job("bsp", 4);
		/* Another session of its key, whose words on the test set are right. */
		if (!lies[k].boasts)
			check(join_as(6, 1), 0, "HELLO of another session");
		for (uint32_t peer = 1; peer <= 5; peer += 4) {
			const uint32_t before =
				lies[k].accuses ? seq : lines("\"ev\":\"again\"");
			if (peer > 1 && join_as(peer, 1) == FAL_EPERM)
				break; /* it was found out in more than one point */
			const uint32_t was = lines("\"ev\":\"charge\"");
			for (uint32_t i = 0; i < 200 && !said(peer, before); i++)
				if (!work(peer))
					step_once();
			check(said(peer, before), 1, "it lied");
			session[peer].closed = true;
			check(fal_coord_gone(coord, now, peer, "leaves"), 0, "gone");
			while (!fal_coord_status(coord).done &&
			       lines("\"ev\":\"charge\"") == was)
				step_once();
			check(lines("\"ev\":\"charge\"") > was, 1, "charged");
		}
		check(session[6].closed, !lies[k].boasts, "the other session of its key");
		check(join_as(1, 1), FAL_EPERM, "HELLO after two");
		run();
		check(fal_coord_status(coord).done, 1, "done");
		if (k > 0)
			honest_model();
		audit();
		if (k + 1 < sizeof(lies) / sizeof(lies[0]))
			end(NULL);
	}
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

/* Alone, everything is believed; what rises is traced. */
static void
alone_it_is_believed(void **state)
{
	(void)state;
	session[1].lie = (struct lie){ .lies = true, .value = 0, .needed = 9 };
	begin_job("epsp", 1);
	run();
	check(fal_coord_status(coord).done, 1, "done");
	check(lines("\"verdict\":\"believed\",\"why\":\"nobody could be asked\""), 1,
	      "believed");
	audit();
}

/* A witness that does not answer is waited for once, and not asked again. */
static void
silent_witnesses(void **state)
{
	(void)state;
	session[1].lie = (struct lie){ .lies = true, .value = 0, .needed = 9 };
	session[2].lie.silent = session[3].lie.silent = true;
	begin_job("epsp", 3);
	run();
	check(fal_coord_status(coord).done, 1, "done");
	check(lines("\"verdict\":\"believed\",\"why\":\"no answer in time\"") > 0, 1,
	      "believed");
	audit();
}

/* Between keys that contradict each other a third one decides. */
static void
false_witness(void **state)
{
	(void)state;
	session[1].lie.shift = 3;
	begin_job("epsp", 2);
	session[2].lie.answer = -30;
	join(3);
	session[3].lie.answer = -7;
	join(4);
	session[4].lie.answer = -7;
	run();
	check(fal_coord_status(coord).done, 1, "done");
	check(session[1].closed, 0, "who told the truth is gone");
	check(lines("\"verdict\":\"refuted\""), 0, "refuted");
	check(lines("\"verdict\":\"witnessed\"") > 0, 1, "witnessed");
	audit();
}

/* Who finds no finite gradient does not cost another key its work alone; two of them are
 * believed, and nobody is charged. */
static void
odd_witnesses(void **state)
{
	(void)state;
	for (uint32_t odd = 1; odd <= 2; odd++) {
		begin(NULL);
		session[1].lie.shift = 3;
		session[2].lie.odd = session[3].lie.odd = true;
		begin_job("epsp", 2);
		for (uint32_t i = 2; i <= odd; i++)
			join(1 + i);
		run();
		check(fal_coord_status(coord).done, 1, "done");
		nobody_honest_is_gone(1 + odd);
		check(lines("\"verdict\":\"refuted\"") > 0, odd == 2, "refuted");
		check(lines("\"verdict\":\"bounded\",\"why\":\"not finite there\"") > 0,
		      odd == 1, "bounded");
		audit();
		end(NULL);
	}
	/* A round of its own would be begun again by it, for ever. */
	begin(NULL);
	session[1].lie.shift = 3;
	session[2].lie.odd = session[3].lie.odd = true;
	begin_job("syncopt:0", 3);
	run();
	check(fal_coord_status(coord).done, 1, "done");
	nobody_honest_is_gone(3);
	check(lines("\"verdict\":\"refuted\"") > 0, 1, "refuted");
	check(lines("not finite there, again") > 0, 1, "bounded");
	audit();
}

static void
other_bits_refute_nothing(void **state)
{
	(void)state;
	session[1].lie = (struct lie){ .lies = true, .value = 0, .needed = 9 };
	fingerprint[2] = 1;
	begin_job("bsp", 2);
	run();
	check(fal_coord_status(coord).done, 1, "done");
	check(lines("it rounds differently") > 0, 1, "believed");
	check(session[1].closed, 0, "gone");
	int8_t now_exps[2];
	assert_true(racked_exps(&job, fal_coord_status(coord).version, now_exps));
	for (uint32_t b = 0; b < fal_blocks(N); b++)
		check(now_exps[b] <= NEEDED + 2, 1, "what it counts as");
	audit();
}

/* Where rounds are of one worker or group, another key may not have the version: what it
 * cannot bear out counts as little more than what it has shown. */
static void
outside_the_law(void **state)
{
	(void)state;
	static const char *const schemes[] = { "groups:2",
					       "groups:3",
					       "flexrr:1",
					       "flexrr:2,steal=half",
					       "asp",
					       "ssp:2",
					       "groups:2,mode=delta",
					       "syncopt:1" };
	uint32_t bounded = 0, refuted = 0;
	for (size_t k = 0; k < 2 * sizeof(schemes) / sizeof(schemes[0]); k++)
		for (uint32_t liar = 1; liar <= 3; liar++) {
			begin(NULL);
			session[liar].lie = (struct lie){
				.lies = true, .value = 0, .needed = k % 2 != 0 ? 20 : -6
			};
			begin_job(schemes[k / 2], 3);
			run();
			check(fal_coord_status(coord).done, 1, schemes[k / 2]);
			int8_t now_exps[2];
			assert_true(racked_exps(&job, fal_coord_status(coord).version,
						now_exps));
			for (uint32_t b = 0; b < fal_blocks(N); b++)
				if (now_exps[b] > NEEDED + 2)
					fail_msg("%s: an exponent of %d", schemes[k / 2],
						 now_exps[b]);
			nobody_honest_is_gone(3);
			bounded += lines("\"verdict\":\"bounded\"");
			refuted += lines("\"verdict\":\"refuted\"");
			check(lines("\"verdict\":\"believed\""), 0, "believed");
			audit();
			end(NULL);
		}
	check(bounded > 0, 1, "bounded");
	check(refuted > 0, 1, "refuted");
	begin_job("asp", 1);
}

/* Nobody can compute again by how much a worker of local steps changes weights: where it
 * is far more than any other key has, it changes none.  Of a key that is alone it does.
 */
static void
changes_that_ruin(void **state)
{
	static const char *const schemes[] = { "consgd:1", "consgd:3", "dynsgd:1",
					       "dynsgd:2,staleness=updates", "wbsp" };
	(void)state;
	changes = true;
	for (size_t k = 0; k < 4 * sizeof(schemes) / sizeof(schemes[0]); k++) {
		const uint32_t liar = 1 + (uint32_t)k % 3;
		begin(NULL);
		shards = 1 + k % 2;
		session[liar].lie = (struct lie){ .lies = true,
						  .value = 1 << 23,
						  .needed = k % 4 < 2 ? 100 : 20 };
		begin_job(schemes[k / 4], 3);
		run();
		check(fal_coord_status(coord).done, 1, schemes[k / 4]);
		check(lines("\"verdict\":\"bounded\"") > 0, 1, "bounded");
		check(lines("\"verdict\":\"believed\""), 0, "believed");
		nobody_honest_is_gone(3);
		const float *params = racked_params(&job);
		for (uint32_t i = 0; i < N; i += FAL_BLOCK)
			if (fabsf(params[i]) > 1)
				fail_msg("%s: parameter %u is %g", schemes[k / 4], i,
					 (double)params[i]);
		audit();
		end(NULL);
	}
	begin(NULL);
	session[1].lie = (struct lie){ .lies = true, .value = 1 << 23, .needed = 20 };
	begin_job("consgd:1", 1);
	run();
	check(fal_coord_status(coord).done, 1, "alone");
	check(lines("\"verdict\":\"believed\"") > 0, 1, "believed");
	check(lines("\"verdict\":\"bounded\""), 0, "bounded");
	audit();
	changes = false;
}

/* One task at a time, true to their values, they lead out of the numbers: what goes
 * beyond is done again by others. */
static void
beyond_the_numbers(void **state)
{
	(void)state;
	session[2].lie = (struct lie){ .lies = true, .each = true, .above = 32 };
	begin_job("epsp", 3);
	run();
	check(fal_coord_status(coord).done, 1, "done");
	check(lines("\"why\":\"beyond the numbers\"") > 0, 1, "done again");
	check(session[2].closed, 1, "the liar is gone");
	nobody_honest_is_gone(3);
	audit();
}

/* The squares of what one optimiser or another keeps are beyond long before. */
static void
beyond_when_squared(void **state)
{
	static const enum fal_optim_kind kinds[] = { FAL_ADAGRAD, FAL_ADAMW };
	for (uint32_t i = 0; i < 4; i++) {
		begin(NULL);
		optim = (struct fal_optim){
			.kind = kinds[i % 2], .eps = 1e-8f, .beta1 = 0.9, .beta2 = 0.999
		};
		session[2].lie = (struct lie){ .lies = true, .each = true, .above = 32 };
		shards = 1 + i / 2;
		begin_job("epsp", 3);
		run();
		check(fal_coord_status(coord).done, 1, "done");
		check(lines("\"why\":\"beyond the numbers\"") > 0, 1, "done again");
		check(session[2].closed, 1, "the liar is gone");
		nobody_honest_is_gone(3);
		audit();
		end(state);
	}
}

/* What one shard counts when it has taken back its blocks, and the other has not said so
 * yet, counts: the second worker leaves before the coordinator has heard of its push, and
 * what fills that comes in between. */
static void
a_shard_takes_back_late(void **state)
{
	(void)state;
	struct session *s = &session[3];
	uint32_t fills = 0;
	session[1].lie = (struct lie){ .lies = true, .value = 0, .needed = 20 };
	shards = 2;
	begin_job("bsp", 3);
	deaf = true;
	while (work(2))
		;
	session[2].closed = true;
	check(fal_coord_gone(coord, now, 2, "reset"), 0, "gone");
	while (work(1) || work(3))
		;
	deaf = false;
	check(fal_coord_heard(coord, now), 0, "heard");
	slow = true;
	for (uint32_t i = 0; i < s->is.helds; i++)
		if (is_check(&s->is.held[i]))
			answer(3, &s->is.held[i]);
		else
			s->is.held[fills++] = s->is.held[i];
	check(waits, 1, "taken back by one");
	s->is.helds = fills;
	check(fills > 0 && s->is.held[0].fills.worker == 2, 1, "fills");
	work(3);
	slow = false;
	check(fal_coord_heard(coord, now), 0, "heard");
	session[1].lie.lies = false;
	run();
	honest_model();
	check(lines("\"ev\":\"again\""), 1, "done again");
	audit();
}

/* What a shard has ended ahead stays, whatever another one takes back. */
static void
a_shard_is_over(void **state)
{
	(void)state;
	session[1].lie =
		(struct lie){ .lies = true, .last = true, .value = 0, .needed = 20 };
	shards = 2;
	begin_job("bsp", 3);
	run();
	honest_model();
	check(lines("\"ev\":\"again\"") > 0, 1, "done again");
	nobody_honest_is_gone(3);
	audit();
}

static void
beyond_on_two_runs(void **state)
{
	(void)state;
	for (uint32_t i = 1; i <= 3; i++)
		session[i].lie = (struct lie){ .lies = true, .each = true, .above = 32 };
	begin_job("bsp", 3);
	run();
	check(fal_coord_status(coord).failed, 1, "failed");
	assert_non_null(strstr(fal_coord_status(coord).why, "on two runs"));
	check(lines("\"ev\":\"again\""), 1, "done again");
}

/* Rounds of one worker have nobody else to ask. */
static void
rounds_of_ones_own(void **state)
{
	(void)state;
	session[1].lie = (struct lie){ .lies = true, .each = true, .above = 32 };
	begin_job("asp", 3);
	run();
	check(fal_coord_status(coord).done, 1, "done");
	check(session[1].closed, 1, "the liar is gone");
	nobody_honest_is_gone(3);
	audit();
}

static void
alone_beyond(void **state)
{
	(void)state;
	session[1].lie = (struct lie){ .lies = true, .each = true, .above = 32 };
	begin_job("asp", 1);
	run();
	check(fal_coord_status(coord).failed, 1, "failed");
	assert_non_null(strstr(fal_coord_status(coord).why, "out of the numbers"));
}

/* One key's worker, alone, whose gradients lead out of the numbers each time. */
static double
lone_beyond(const char *scheme)
{
	struct fal_coord_lone is;
	session[1].lie = (struct lie){ .lies = true, .each = true, .above = 32 };
	begin_job(scheme, 1);
	fal_coord_alone(coord, 300, 2);
	for (uint32_t i = 0; i < 2000 && !fal_coord_lone(coord, &is); i++)
		step_once();
	check(fal_coord_lone(coord, &is), 1, scheme);
	check(strcmp(is.key, "k1"), 0, "key");
	check(is.until == now + 300, 1, "until when");
	assert_non_null(strstr(is.why, "on two runs"));
	check(fal_coord_status(coord).failed, 0, "failed on one word");
	return now;
}

/* It ends no job: others come, and finish it. */
static void
lone_beyond_waits(void **state)
{
	static const char *const rules[] = { "bsp", "epsp", "epsp:1", "epsp:3" };
	for (size_t i = 0; i < 4; i++) {
		begin(NULL);
		shards = 1 + (uint32_t)i % 3;
		const double said = lone_beyond(rules[i]);
		check(join_as(6, 1), 0, "HELLO of another session of its key");
		now += 299;
		check(fal_coord_tick(coord, now), 0, "tick");
		check(fal_coord_status(coord).failed, 0, "failed before the time");
		join(2);
		now = said + 400;
		check(fal_coord_tick(coord, now), 0, "tick");
		run();
		check(fal_coord_status(coord).done, 1, "done");
		check(session[1].closed, 1, "the liar is gone");
		check(session[2].closed, 0, "the honest one is gone");
		audit();
		if (i < 3)
			end(state);
	}
}

/* Nobody comes who could say otherwise. */
static void
lone_beyond_is_believed(void **state)
{
	(void)state;
	const double said = lone_beyond("epsp:1");
	run();
	check(fal_coord_status(coord).failed, 1, "failed");
	check(now == said + 300, 1, "it has waited as long");
	assert_non_null(strstr(fal_coord_status(coord).why, "on two runs"));
}

static void
answers_that_were_not_asked(void **state)
{
	(void)state;
	static const uint8_t two[4] = { 20, 20, 20, 20 };
	begin_job("epsp", 2);
	struct fal_msg m = { .type = FAL_MSG_CHECKED };
	m.checked.needed = (struct fal_tail){ two, 2 };
	check(tell(1, &m), 0, "nobody asked");
	m.checked.round = UINT64_MAX;
	check(tell(1, &m), 0, "no such round");
	m.checked.needed.n = 0;
	check(tell(1, &m), FAL_EINVAL, "nothing");
	m.checked.needed.n = 3;
	check(tell(2, &m), FAL_EINVAL, "more than there are");
	join(3);
	m.checked.first = UINT32_MAX;
	check(tell(3, &m), FAL_EINVAL, "from far beyond");
}

int
main(void)
{
	tell = tell_or_go;
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(one_liar),
		TEST(honest_jobs_have_no_checks),
		TEST(the_key_is_charged),
		TEST(the_gone_are_charged),
		TEST(a_witness_that_left_is_heard),
		TEST(one_key_for_all_is_needed),
		TEST(alone_it_is_believed),
		TEST(silent_witnesses),
		TEST(false_witness),
		TEST(odd_witnesses),
		TEST(other_bits_refute_nothing),
		TEST(outside_the_law),
		TEST(changes_that_ruin),
		TEST(beyond_the_numbers),
		TEST(beyond_when_squared),
		TEST(a_shard_takes_back_late),
		TEST(a_shard_is_over),
		TEST(beyond_on_two_runs),
		TEST(rounds_of_ones_own),
		TEST(alone_beyond),
		TEST(lone_beyond_waits),
		TEST(lone_beyond_is_believed),
		TEST(answers_that_were_not_asked),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
