/* A worker's key can cost the job that worker's work, and nothing else: what valid keys
 * in bad hands say, to the coordinator as a whole, beside an honest worker who does what
 * it is told.  Each case runs under several schemes. */
#include "../racked.h"
#include "../standin.h"
#include "base/err.h"
#include "base/loss.h"
#include "base/rng.h"
#include "trace/audit.h"
#include "trace/reader.h"
#include "wire/bfp.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PARAMS = FAL_BLOCK + 5, SESSIONS = 40, HELD = 256, SEQS = 4096 };

static const char *const schemes[] = { "bsp",          "epsp:1",   "asp",
				       "ssp:0",        "ssp:1",    "flexrr:1",
				       "dynsgd:1",     "consgd:1", "syncopt:1",
				       "wbsp",         "groups:2", "rennala:2",
				       "ringmaster:2", NULL };

/* A session.  Those of honest workers are run by `work`, the others by the tests. */
struct session {
	bool here, honest, diverges;
	struct standin is;
	struct standin_task ever[HELD]; /* that it was granted, the first ones */
	uint32_t evers;
	uint32_t seq, won; /* verdicts */
	bool last_won;
	uint16_t away; /* REFUSE or LATER, with `why` */
	char why[FAL_MSG_WHY];
	struct fal_msg_ticket ticket; /* the last one */
};

static struct {
	struct racked job;
	struct fal_coord *coord;
	struct session s[SESSIONS + 1];
	uint32_t sessions;
	struct fal_buf trace;
	struct fal_diag diag;
	struct fal_grid grid;
	uint32_t test_samples;
	double now;
	uint64_t seed;
	char where[64];
} w;

static uint8_t job_data; /* first byte of the hash that the next job asks for */

static void
check(int64_t got, int64_t want, const char *what)
{
	if (got != want)
		fail_msg("%s, seed %llu: %s: got %lld, want %lld (%s)", w.where,
			 (unsigned long long)w.seed, what, (long long)got,
			 (long long)want, w.diag.text);
}

/* --- what is said to a session ----------------------------------------------------- */

/* It will remember what it was granted. */
static void
on_grant(struct session *s, uint32_t from)
{
	for (uint32_t i = from; i < s->is.helds && s->evers < HELD; i++)
		s->ever[s->evers++] = s->is.held[i];
}

static void
on_send(void *arg, uint32_t peer, const struct fal_buf *msg)
{
	struct session *s = &w.s[peer];
	struct fal_msg m;
	(void)arg;
	check(fal_msg_get(msg->p, msg->n, &m), 0, "parse what was sent");
	const uint32_t held = s->is.helds;
	check(standin_told(&s->is, &m), 1, "room for what it is told");
	switch (m.type) {
	case FAL_MSG_GRANT:
		on_grant(s, held);
		break;
	case FAL_MSG_VERDICT:
		s->won += m.verdict.won;
		s->last_won = m.verdict.won;
		break;
	case FAL_MSG_TICKET:
		s->ticket = m.ticket;
		break;
	case FAL_MSG_REFUSE:
	case FAL_MSG_LATER:
		s->away = m.type;
		memcpy(s->why, m.refuse.why, sizeof(s->why));
		break;
	default:
		break;
	}
}

static void
on_close(void *arg, uint32_t peer, const char *why)
{
	(void)arg;
	w.s[peer].here = false;
	if (w.s[peer].honest)
		fail_msg("%s, seed %llu: an honest worker is sent away: %s", w.where,
			 (unsigned long long)w.seed, why);
}

static void
on_trace(void *arg, const char *line, size_t n)
{
	(void)arg;
	fal_put_bytes(&w.trace, line, n);
	fal_put_u8(&w.trace, '\n');
}

/* --- what sessions say -------------------------------------------------------------- */

/* A liar that is refused is gone. */
static int
tell(uint32_t peer, const struct fal_msg *m)
{
	w.diag.text[0] = '\0';
	if (!w.s[peer].here)
		return FAL_OK;
	int err = fal_coord_msg(w.coord, w.now, peer, m, &w.diag);
	if (err == FAL_OK)
		return FAL_OK;
	if (w.s[peer].honest)
		check(err, 0, fal_msg_name(m->type));
	w.s[peer].here = false;
	check(fal_coord_session_end(w.coord, w.now, peer, w.diag.text), 0, "gone");
	return err;
}

/* A session of key `key`, from 1, in the order of the keyring.  A liar's is not welcome
 * any more when its key was charged twice. */
static uint32_t
greet(uint32_t key, bool honest)
{
	uint32_t peer = ++w.sessions;
	char name[16], worker[16];
	const struct fal_coord_session who = { .key = name,
					       .fingerprint = name,
					       .place = key };
	snprintf(name, sizeof(name), "k%u", key);
	w.s[peer] = (struct session){ .here = true, .honest = honest };
	fal_coord_session_open(w.coord, peer, &who);
	snprintf(worker, sizeof(worker), "w%u", peer);
	const struct fal_msg m = standin_hello(worker, (uint8_t)peer);
	if (tell(peer, &m) < 0)
		check(!honest && strstr(w.diag.text, "charged twice") != NULL, 1,
		      "HELLO");
	return peer;
}

static uint32_t
join_as(uint32_t key, bool honest, uint8_t fingerprint)
{
	uint32_t peer = greet(key, honest);
	struct fal_msg m = { .type = FAL_MSG_READY };
	m.ready.fingerprint[0] = fingerprint;
	if (w.s[peer].here)
		check(tell(peer, &m), 0, "READY");
	return peer;
}

static uint32_t
join(uint32_t key, bool honest)
{
	return join_as(key, honest, 1);
}

static int
claim(uint32_t peer, const struct standin_task *t, bool nonfinite)
{
	struct session *s = &w.s[peer];
	struct fal_msg m = standin_claim(t, nonfinite ? 0 : ++s->seq, !nonfinite);
	m.claim.nonfinite = nonfinite;
	s->last_won = false;
	return tell(peer, &m);
}

/* Zeros, which are a gradient like others. */
static int
push(uint32_t peer, const struct standin_task *t)
{
	int8_t exps[FAL_BLOCK];
	struct fal_buf records = { 0 };
	if (!racked_exps(&w.job, t->version, exps))
		racked_exps(&w.job, fal_coord_status(w.coord).version, exps);
	check(standin_zeros(PARAMS, t->kind, exps, &records), 0, "pack");
	const struct fal_msg m = standin_push(&w.s[peer].ticket, &records);
	int err = tell(peer, &m);
	fal_buf_free(&records);
	return err;
}

/* What test task `task` has, and an honest worker says of it. */
static uint32_t
eval_samples(uint32_t task)
{
	uint32_t left = w.test_samples - task * w.grid.task;
	return left < w.grid.task ? left : w.grid.task;
}

static int
evaluated(uint32_t peer, uint32_t task, uint32_t right, int64_t loss)
{
	struct fal_msg m =
		standin_evaluated(w.s[peer].is.eval_version, task, eval_samples(task));
	m.evaluated.right = right;
	m.evaluated.loss = loss;
	return tell(peer, &m);
}

static int64_t
honest_loss(uint32_t task)
{
	return (int64_t)eval_samples(task) << FAL_LOSS_BITS;
}

/* The session does one thing that it was told to; false: there is nothing. */
static bool
work(uint32_t peer)
{
	struct session *s = &w.s[peer];
	if (!s->here)
		return false;
	if (s->is.helds > 0) {
		struct standin_task t = standin_take(&s->is, 0);
		check(claim(peer, &t, s->diverges), 0, "CLAIM");
		if (s->last_won)
			check(push(peer, &t), 0, "PUSH");
		return true;
	}
	if (s->is.evals == 0)
		return false;
	uint32_t task = s->is.eval[--s->is.evals];
	check(evaluated(peer, task, 0, honest_loss(task)), 0, "EVALUATED");
	return true;
}

static bool
is_over(void)
{
	struct fal_coord_status st = fal_coord_status(w.coord);
	return st.done || st.failed;
}

/* Honest workers work, `lie` is asked after each step of theirs, until the job is over.
 * A hostile step that goes on for ever is no progress. */
static void
run(bool (*lie)(uint32_t step))
{
	const uint32_t most = 20000;
	for (uint32_t step = 0; !is_over(); step++) {
		bool any = lie != NULL && lie(step);
		for (uint32_t p = 1; p <= w.sessions; p++)
			any = (w.s[p].honest && work(p)) || any;
		w.now += 1e-3;
		double wake = fal_coord_next_deadline(w.coord);
		if (!any && wake != INFINITY)
			w.now = fmax(w.now, wake);
		else if (!any)
			fail_msg("%s, seed %llu: the job stands still", w.where,
				 (unsigned long long)w.seed);
		check(fal_coord_tick(w.coord, w.now), 0, "tick");
		check(step < most, 1, "it goes on");
	}
}

/* --- the job ------------------------------------------------------------------------ */

static uint32_t min_workers = 1;

/* Sizes are drawn. */
static void
begin(const char *scheme, uint64_t seed, uint32_t test_samples)
{
	static const float init[PARAMS];
	struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 0);
	struct fal_policy policy = { .no_clones = false };
	const struct fal_coord_ops ops = { .send = on_send,
					   .model = racked_no_model,
					   .close = on_close,
					   .trace = on_trace };
	memset(&w, 0, sizeof(w));
	w.seed = seed;
	snprintf(w.where, sizeof(w.where), "%s", scheme);
	const uint32_t task = 1 + fal_rng_below(&r, 4);
	w.grid = (struct fal_grid){ .task = task,
				    .batch = 2 * task + fal_rng_below(&r, 20),
				    .epochs = 2 };
	w.grid.samples = 3 * w.grid.batch + fal_rng_below(&r, w.grid.batch);
	w.test_samples = test_samples;
	check(fal_rule_parse(scheme, &policy.rule, &w.diag), 0, "scheme");
	struct fal_coord_conf conf = { .name = "hostile",
				       .hash = "00",
				       .policy = &policy,
				       .policy_by = "job",
				       .entropy = seed,
				       .grid = w.grid,
				       .test_samples = test_samples,
				       .params = PARAMS,
				       .min_workers = min_workers };
	conf.schedule.lr = 0.1;
	conf.data[0] = job_data;
	check(racked_new(conf, ops, init, 0, &w.job), 0, "coordinator");
	w.coord = w.job.coord;
}

static void
audit(void)
{
	struct fal_audit_verdict v = { .ok = false };
	struct fal_audit *a = fal_audit_new();
	struct fal_trace_reader *r = fal_trace_reader_new(fal_audit_line, a);
	check(fal_trace_feed(r, (const char *)w.trace.p, w.trace.n, &w.diag), 0, "feed");
	check(fal_trace_end(r, &w.diag), 0, "trace");
	check(fal_audit_end(a, &v, &w.diag), 0, "audit");
	if (!v.ok)
		fail_msg("%s, seed %llu: the audit fails: %s", w.where,
			 (unsigned long long)w.seed, v.text[0]);
	fal_trace_reader_free(r);
	fal_audit_free(a);
}

static void
finish(bool done)
{
	struct fal_coord_status st = fal_coord_status(w.coord);
	if (st.done != done || st.failed == done)
		fail_msg("%s, seed %llu: %s", w.where, (unsigned long long)w.seed,
			 st.failed ? st.why : "the job is done");
	racked_finish(&w.job, w.now, NULL);
	if (done)
		audit();
}

static int
end(void **state)
{
	(void)state;
	racked_free(&w.job);
	w.coord = NULL;
	fal_buf_free(&w.trace);
	return 0;
}

/* --- cases -------------------------------------------------------------------------- */

/* Each session that is no honest one says of all that it holds that it is not finite, and
 * one that was sent away comes back, as long as there is room. */
/* Lines of the trace in which both stand. */
static uint32_t
lines(const char *ev, const char *part)
{
	uint32_t n = 0;
	fal_put_u8(&w.trace, 0);
	w.trace.n--;
	for (const char *p = (const char *)w.trace.p, *end; *p != '\0'; p = end + 1) {
		end = strchr(p, '\n');
		const char *is = strstr(p, ev), *has = strstr(p, part);
		n += is != NULL && is < end && has != NULL && has < end;
	}
	return n;
}

static uint32_t liars_key;

static bool
accuse(uint32_t step)
{
	bool any = false;
	(void)step;
	for (uint32_t p = 1, n = w.sessions; p <= n; p++) {
		struct session *s = &w.s[p];
		if (s->honest)
			continue;
		if (!s->here && w.sessions < SESSIONS && s->seq != UINT32_MAX) {
			s->seq = UINT32_MAX; /* it has a successor */
			join(liars_key, false);
			any = true;
		}
		while (s->here && s->is.helds > 0) {
			struct standin_task t = standin_take(&s->is, 0);
			any = true;
			(void)claim(p, &t, true);
		}
	}
	return any;
}

/* Two sessions of one key that find everything not finite, and a worker of another key.
 */
static void
accusers_of_one_key(void **state)
{
	(void)state;
	for (size_t i = 0; schemes[i] != NULL; i++)
		for (uint64_t seed = 0; seed < 4; seed++) {
			begin(schemes[i], seed, 0);
			liars_key = 1;
			join(1, false);
			join(1, false);
			join(2, true);
			run(accuse);
			check(lines("\"ev\":\"charge\"", ""), 0, "lines on charges");
			finish(true);
			end(NULL);
		}
}

/* They leave with weights that are not finite, having held nothing; and come again. */
static bool
leave_and_return(uint32_t step)
{
	if (step % 2 != 0 || w.sessions == SESSIONS)
		return false;
	uint32_t p = join(1, false);
	struct fal_msg m = { .type = FAL_MSG_LEAVE };
	m.leave.cause = 1;
	check(tell(p, &m), 0, "LEAVE");
	return true;
}

static void
leavers(void **state)
{
	(void)state;
	for (size_t i = 0; schemes[i] != NULL; i++)
		for (uint64_t seed = 0; seed < 2; seed++) {
			begin(schemes[i], seed, 0);
			join(2, true);
			run(leave_and_return);
			finish(true);
			end(NULL);
		}
}

/* Those with local steps of each worker's own. */
static const char *const steppers[] = { "dynsgd:1", "consgd:1", "wbsp" };

/* A session that says of its local steps that they led out of the numbers; false: it has
 * none. */
static bool
says_diverged(uint32_t p)
{
	struct fal_msg m = { .type = FAL_MSG_LEAVE };
	m.leave.cause = 1;
	const bool steps =
		w.s[p].is.helds > 0 && w.s[p].is.held[0].kind == FAL_KIND_DELTA;
	check(tell(p, &m), 0, "LEAVE");
	return steps;
}

/* The same of a session that joins, and is granted something while the others work. */
static bool
works_and_diverges(uint32_t key)
{
	const uint32_t p = join(key, false);
	for (int k = 0; k < 50 && w.s[p].is.helds == 0; k++)
		for (uint32_t o = 1; o < p; o++)
			work(o);
	return says_diverged(p);
}

/* A worker that is alone ends the job by that. */
static void
lone_leavers_are_believed(void **state)
{
	(void)state;
	uint32_t local = 0;
	for (size_t i = 0; schemes[i] != NULL; i++) {
		begin(schemes[i], i, 0);
		const bool steps = says_diverged(join(1, false));
		check(fal_coord_status(w.coord).failed, steps, "failed");
		if (steps)
			finish(false);
		local += steps;
		end(NULL);
	}
	check(local > 2, 1, "schemes with local steps");
}

/* With others here one key ends no job, however often it says so; a second one does. */
static void
leavers_and_others(void **state)
{
	(void)state;
	for (size_t i = 0; i < 2 * sizeof(steppers) / sizeof(steppers[0]); i++) {
		const bool second = i % 2;
		begin(steppers[i / 2], i, 0);
		for (uint32_t key = 2; key <= 4; key++)
			join(key, true);
		for (uint32_t n = 0; n < 5; n++) {
			works_and_diverges(1);
			check(fal_coord_status(w.coord).failed, 0, "failed");
		}
		if (second) {
			const bool steps = works_and_diverges(5);
			check(fal_coord_status(w.coord).failed, steps, "failed by two");
			if (steps) {
				end(NULL);
				continue;
			}
		}
		run(NULL);
		finish(true);
		end(NULL);
	}
}

/* A worker of the key joins, and its trainer fails. */
static void
fail_trainer(uint32_t key)
{
	struct fal_msg m = { .type = FAL_MSG_LEAVE };
	m.leave.cause = FAL_LEAVE_TRAINER;
	snprintf(m.leave.why, sizeof(m.leave.why), "no sample");
	check(tell(join(key, false), &m), 0, "LEAVE");
}

static void
wait_for(double seconds, bool failed)
{
	w.now += seconds;
	check(fal_coord_tick(w.coord, w.now), 0, "tick");
	check(fal_coord_status(w.coord).failed, failed, "failed");
}

/* They end the job when those of all keys have failed, and nobody is here or has worked
 * since; of a key that has not come, after a while. */
static void
trainers_fail(void **state)
{
	(void)state;
	for (size_t i = 0; schemes[i] != NULL; i++) {
		begin(schemes[i], i, 0);
		fal_coord_set_trainer_wait(w.coord, 300, 2);
		fail_trainer(1);
		fail_trainer(1);
		wait_for(299, false);
		const uint32_t p = join(2, true);
		fail_trainer(1);
		wait_for(1000, false); /* somebody is here, ... */
		check(work(p) && w.s[p].won > 0, 1, "it works");
		w.s[p].here = false;
		check(fal_coord_session_end(w.coord, w.now, p, "gone"), 0, "gone");
		wait_for(1000, false); /* ... and has worked */
		fail_trainer(2);
		wait_for(299, false);
		if (i % 2 == 0)
			fail_trainer(1);
		wait_for(i % 2 == 0 ? 0 : 1, true);
		assert_non_null(
			strstr(fal_coord_status(w.coord).why, "failed: no sample"));
		check(lines("trainer", "no sample"), i % 2 == 0 ? 5 : 4, "lines");
		end(NULL);
	}
	/* Whoever was here for long, and is gone for a moment, is waited for as well. */
	begin(schemes[0], 0, 0);
	fal_coord_set_trainer_wait(w.coord, 300, 2);
	const uint32_t p = join(2, false);
	fail_trainer(1);
	wait_for(1000, false);
	w.s[p].here = false;
	check(fal_coord_session_end(w.coord, w.now, p, "gone"), 0, "gone");
	wait_for(299, false);
	wait_for(1, true);
	end(NULL);
	struct fal_msg m = { .type = FAL_MSG_LEAVE };
	m.leave.cause = FAL_LEAVE_TRAINER + 1;
	begin(schemes[0], 0, 0);
	check(tell(join(1, false), &m), FAL_EINVAL, "an unknown cause");
	end(NULL);
}

/* What is true ends the job: one worker alone, two keys, or one key for all. */
static void
divergence(void **state)
{
	(void)state;
	static const uint32_t keys[][3] = {
		{ 1, 0, 0 }, { 1, 2, 0 }, { 1, 2, 3 }, { 1, 1, 1 }
	};
	for (size_t i = 0; schemes[i] != NULL; i++)
		for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
			begin(schemes[i], k, 0);
			for (uint32_t n = 0; n < 3 && keys[k][n] != 0; n++)
				w.s[join(keys[k][n], true)].diverges = true;
			run(NULL);
			finish(false);
			end(NULL);
		}
}

/* A task that `b` holds and `a` was never granted, or NULL. */
static const struct standin_task *
never(const struct session *a, const struct session *b)
{
	for (uint32_t i = 0; i < b->is.helds; i++) {
		uint32_t k = 0;
		while (k < a->evers && (a->ever[k].round != b->is.held[i].round ||
					a->ever[k].task != b->is.held[i].task))
			k++;
		if (k == a->evers)
			return &b->is.held[i];
	}
	return NULL;
}

/* Claims of what another one holds, of what nobody was given, and of rounds that are
 * none. */
static void
claims_of_what_was_not_held(void **state)
{
	(void)state;
	for (size_t i = 0; schemes[i] != NULL; i++) {
		min_workers = 2;
		begin(schemes[i], 7, 0);
		min_workers = 1;
		uint32_t liar = join(1, false), honest = join(2, true);
		check(w.s[liar].is.helds > 0, 1, "it holds something");
		struct standin_task other = w.s[liar].is.held[0];
		while (never(&w.s[liar], &w.s[honest]) == NULL)
			check(work(honest), 1, "the honest one works");
		other = *never(&w.s[liar], &w.s[honest]);
		check(claim(liar, &other, i % 2), FAL_ESTATE, "another's task");
		check(w.s[liar].won, 0, "claims won");
		liar = join(1, false);
		other.round = UINT64_MAX;
		if (w.s[liar].is.helds > 0)
			check(claim(liar, &other, false), FAL_ESTATE, "the last round");
		run(NULL);
		finish(true);
		end(NULL);
	}
}

/* All that it evaluates is right. */
static bool
boast(uint32_t step)
{
	bool any = false;
	(void)step;
	for (uint32_t p = 1; p <= w.sessions; p++) {
		struct session *s = &w.s[p];
		if (s->honest || !s->here)
			continue;
		if (s->is.helds > 0) {
			s->is.helds--;
			any = true;
		}
		while (s->here && s->is.evals > 0) {
			uint32_t task = s->is.eval[--s->is.evals];
			any = true;
			(void)evaluated(p, task, eval_samples(task), 0);
		}
	}
	return any;
}

/* What one key says of the test set counts as far as others say the same. */
static void
boasters(void **state)
{
	(void)state;
	/* the liar's key first; 0: nobody */
	static const uint32_t keys[][4] = { { 1, 2, 3, 0 },
					    { 3, 1, 2, 0 },
					    { 2, 1, 0, 0 },
					    { 1, 2, 3, 4 },
					    { 1, 1, 1, 1 } };
	for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
		for (uint64_t seed = 0; seed < 50; seed++) {
			begin("bsp", seed, 1 + (uint32_t)seed);
			for (uint32_t n = 0; n < 4 && keys[k][n] != 0; n++)
				join(keys[k][n], n > 0);
			run(boast);
			check(llround(1000 * fal_coord_status(w.coord).figures.accuracy),
			      0, "thousandths right");
			finish(true);
			end(NULL);
		}
}

/* A session whose trainer has these data; it is honest if it may stay. */
static uint32_t
join_data(uint32_t key, uint8_t data)
{
	uint32_t peer = greet(key, false);
	struct fal_msg m = { .type = FAL_MSG_READY };
	m.ready.fingerprint[0] = 1;
	m.ready.data[0] = data;
	check(tell(peer, &m), 0, "READY");
	return peer;
}

static void
sent_away(uint32_t peer, uint16_t type, uint8_t data, const char *best)
{
	char its[8];
	snprintf(its, sizeof(its), "%02x00", data);
	check(w.s[peer].here, 0, "somebody with other data");
	check(w.s[peer].away, type, "REFUSE or LATER");
	if (strstr(w.s[peer].why, its) == NULL || strstr(w.s[peer].why, best) == NULL)
		fail_msg("%s, seed %llu: not both hashes: %s", w.where,
			 (unsigned long long)w.seed, w.s[peer].why);
}

/* Whoever says other data than most keys is sent away, though he was here first and his
 * key stands before all others; those whom that cost a session come back. */
static void
other_data(void **state)
{
	(void)state;
	for (uint32_t seed = 0; seed < 20; seed++) {
		struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 1);
		const uint32_t honest = 2 + fal_rng_below(&r, 4);
		const uint8_t bad = (uint8_t)(2 + fal_rng_below(&r, 200));
		begin("epsp", seed, 0);
		const uint32_t liar = join_data(1, bad);
		check(w.s[liar].here, 1, "alone");
		const uint32_t none = join_data(honest + 2, 0);
		check(w.s[none].here, 1, "who says nothing");
		const uint32_t first = join_data(2, 1);
		sent_away(first, FAL_MSG_LATER, 1, "that of others has");
		for (uint32_t key = 3; key < honest + 2; key++)
			check(w.s[join_data(key, 1)].here, 1, "most keys");
		sent_away(liar, FAL_MSG_REFUSE, bad, "that of others has 0100");
		check(w.s[join_data(2, 1)].here, 1, "the first comes back");
		/* With no session of it left, the key may say so again. */
		sent_away(join_data(1, bad), honest > 1 ? FAL_MSG_REFUSE : FAL_MSG_LATER,
			  bad, "0100");
		/* A session of a key that says two things. */
		sent_away(join_data(2, bad), FAL_MSG_REFUSE, bad, "0100");
		for (uint32_t i = 1; i <= w.sessions; i++)
			w.s[i].honest = w.s[i].here;
		run(NULL);
		finish(true);
		end(NULL);
	}
}

/* What the job says of its data counts, whatever keys say. */
static void
data_of_the_job(void **state)
{
	(void)state;
	job_data = 7;
	begin("bsp", 0, 0);
	job_data = 0;
	sent_away(join_data(1, 1), FAL_MSG_REFUSE, 1, "the job's are 0700");
	sent_away(join_data(2, 1), FAL_MSG_REFUSE, 1, "the job's are 0700");
	const uint32_t peer = join_data(3, 7);
	check(w.s[peer].here, 1, "the job's data");
	w.s[peer].honest = true;
	run(NULL);
	finish(true);
	end(NULL);
}

/* No sum of losses is further from 0 than samples may be. */
static void
absurd_losses(void **state)
{
	(void)state;
	static const int64_t large = (5LL * FAL_LOSS_MAX) << FAL_LOSS_BITS;
	static const int64_t odd[] = { INT64_MIN, INT64_MAX, -large, large };
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		begin("bsp", i, 0);
		uint32_t liar = join(1, false);
		join(2, true);
		struct fal_msg m = { .type = FAL_MSG_CLAIM };
		m.claim.round = w.s[liar].is.held[0].round;
		m.claim.task = w.s[liar].is.held[0].task;
		m.claim.seq = 1;
		m.claim.version = w.s[liar].is.held[0].version;
		m.claim.loss = odd[i];
		check(tell(liar, &m), FAL_EINVAL, "an absurd loss");
		if (odd[i] == -large) /* 65536 a sample, in its unit */
			assert_string_equal(w.diag.text, "claims a loss of -327680");
		run(NULL);
		finish(true);
		end(NULL);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(claims_of_what_was_not_held, end),
		cmocka_unit_test_teardown(accusers_of_one_key, end),
		cmocka_unit_test_teardown(leavers, end),
		cmocka_unit_test_teardown(lone_leavers_are_believed, end),
		cmocka_unit_test_teardown(leavers_and_others, end),
		cmocka_unit_test_teardown(trainers_fail, end),
		cmocka_unit_test_teardown(divergence, end),
		cmocka_unit_test_teardown(boasters, end),
		cmocka_unit_test_teardown(other_data, end),
		cmocka_unit_test_teardown(data_of_the_job, end),
		cmocka_unit_test_teardown(absurd_losses, end),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
