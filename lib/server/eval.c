/* Evaluations: what one key says of the test set, another one confirms.
 *
 * When all test tasks are counted, the coordinator draws a part of them, which is run
 * once more by other keys: nobody can know before which it will be.  Two counts that
 * differ are decided by a third key, or, where there is none, by the one that stands
 * first in the keyring; what was refuted of a key is run again by others in all that
 * nobody has confirmed.  Equal fingerprints count the same; others nearly. */
#include "server/coord_priv.h"

#include "base/loss.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	REPEAT_ONE_IN = 8, /* one in so many tasks is run twice */
	DIFFER_ONE_IN =
		16 /* other fingerprints: one in so many samples may come out otherwise */
};

/* How many samples test task `task` has; 0: there is no such task. */
static uint32_t
test_task_samples(const struct fal_coord *c, uint32_t task)
{
	const uint32_t most = c->conf.grid.task;
	uint64_t first = (uint64_t)task * most, all = c->conf.test_samples;
	if (first >= all)
		return 0;
	return all - first < most ? (uint32_t)(all - first) : most;
}

void
coord_start_evaluation(struct fal_coord *c, double now)
{
	struct coord_evaluation *e = &c->evaluation;
	const uint32_t task = c->conf.grid.task;
	e->tasks = (c->conf.test_samples + task - 1) / task;
	e->has_drawn = false;
	FAL_XGROW(e->task, e->task_cap, e->tasks);
	memset(e->task, 0, e->tasks * sizeof(*e->task));
	coord_record_error(c, fal_sched_eval(c->sched, now, e->tasks));
}

/* Do they say the same? */
static bool
results_agree(const struct coord_test_result *a, const struct coord_test_result *b,
	      uint32_t samples)
{
	if (memcmp(a->fingerprint, b->fingerprint, FAL_FINGERPRINT) == 0)
		return a->right == b->right && a->loss == b->loss;
	const double loss = fabs((double)a->loss - (double)b->loss);
	const uint32_t right =
		a->right > b->right ? a->right - b->right : b->right - a->right;
	return right <= 1 + samples / DIFFER_ONE_IN &&
	       loss <= fmax(fabs((double)a->loss), fabs((double)b->loss)) /
				       DIFFER_ONE_IN +
			       ldexp(samples, FAL_LOSS_BITS - 10);
}

/* The result that counts comes first. */
static void
prefer_result(struct coord_test_task *of, uint32_t at)
{
	const struct coord_test_result result = of->result[at];
	of->result[at] = of->result[0];
	of->result[0] = result;
}

static bool
repeat_test_task(struct fal_coord *c, double now, uint32_t task)
{
	c->evaluation.task[task].was_repeated = true;
	if (!fal_sched_eval_can_repeat(c->sched, task))
		return false;
	fal_sched_eval_again(c->sched, now, task);
	return true;
}

/* Test tasks that no other key has confirmed are evaluated again. */
static void
repeat_unconfirmed(struct fal_coord *c, double now, uint32_t key)
{
	for (uint32_t t = 0; t < c->evaluation.tasks; t++) {
		const struct coord_test_task *of = &c->evaluation.task[t];
		if (of->results == 1 && of->result[0].key == key)
			(void)repeat_test_task(c, now, t);
	}
}

/* Two results differ, and there is no third. */
static void
prefer_first_key(struct fal_coord *c, double now, struct coord_test_task *of)
{
	uint32_t best = 0;
	for (uint32_t i = 1; i < of->results; i++)
		if (c->sessions.key[of->result[i].key - 1].place <
		    c->sessions.key[of->result[best].key - 1].place)
			best = i;
	prefer_result(of, best);
	for (uint32_t i = 1; i < of->results; i++)
		if (of->result[i].key != of->result[0].key)
			repeat_unconfirmed(c, now, of->result[i].key);
}

/* There is more than one result on the task. */
static void
compare_results(struct fal_coord *c, double now, uint32_t task)
{
	struct coord_test_task *of = &c->evaluation.task[task];
	const uint32_t n = test_task_samples(c, task);
	struct coord_test_result *w = of->result;
	if (of->results == 2) {
		if (!results_agree(&w[0], &w[1], n) && !repeat_test_task(c, now, task))
			prefer_first_key(c, now, of);
		return;
	}
	for (uint32_t i = 0; i < 2; i++) {
		const struct coord_test_result liar = w[1 - i];
		/* Of one key two are one, unless there is no other. */
		const bool two = w[i].key != w[2].key || w[i].key == liar.key;
		if (two && results_agree(&w[i], &w[2], n)) {
			prefer_result(of, i);
			repeat_unconfirmed(c, now, liar.key);
			fal_sched_charge(c->sched, liar.worker,
					 "it evaluated otherwise than others");
			return;
		}
	}
	prefer_first_key(c, now, of);
}

/* A part of what the key alone has said is run once more. */
static void
draw_repeats(struct fal_coord *c, double now, uint32_t key)
{
	struct coord_evaluation *e = &c->evaluation;
	uint32_t left = 0;
	for (uint32_t t = 0; t < e->tasks; t++)
		left += e->task[t].results == 1 && e->task[t].result[0].key == key;
	uint32_t want = (left + REPEAT_ONE_IN - 1) / REPEAT_ONE_IN;
	for (uint32_t t = 0; t < e->tasks && want > 0; t++) {
		if (e->task[t].results != 1 || e->task[t].result[0].key != key)
			continue;
		if (fal_rng_below(&c->rng, left--) >= want)
			continue;
		want--;
		(void)repeat_test_task(c, now, t);
	}
}

static void
finish_evaluation(struct fal_coord *c, double now)
{
	uint64_t right = 0;
	int64_t loss = 0;
	bool known = true;
	struct fal_ev_eval_key *key = fal_xcalloc(c->sessions.keys, sizeof(*key));
	uint32_t keys = 0;
	for (uint32_t i = 0; i < c->sessions.keys; i++)
		key[i].key = c->sessions.key[i].record.name;
	for (uint32_t t = 0; t < c->evaluation.tasks; t++) {
		/* The first result makes the evaluation: the task counts for its key. */
		const struct coord_test_task *of = &c->evaluation.task[t];
		right += of->result[0].right;
		loss += of->result[0].loss;
		known &= fal_loss_known(of->result[0].loss, test_task_samples(c, t));
		struct fal_ev_eval_key *k = &key[of->result[0].key - 1];
		bool twice = false;
		for (uint32_t i = 1; i < of->results; i++)
			twice |= of->result[i].key != of->result[0].key;
		k->tasks++;
		k->twice += twice;
		k->alone += of->was_repeated && !twice;
	}
	const double n = c->conf.test_samples;
	c->evaluation.is_under_way = false;
	c->status.judged = c->evaluation.pinned_clocks;
	c->status.accuracy = (double)right / n;
	c->status.accuracy_loss = known ? fal_loss_is(loss) / n : (double)NAN;
	for (uint32_t i = 0; i < c->sessions.keys; i++)
		if (key[i].tasks > 0)
			key[keys++] = key[i];
	const struct fal_ev_eval line = {
		.version = c->evaluation.pinned_version,
		.epoch = c->evaluation.pinned_clocks /
			 fal_grid_epoch_clocks(&c->conf.grid),
		.right = right,
		.total = c->conf.test_samples,
		.loss = c->status.accuracy_loss,
		.accuracy = c->status.accuracy,
		.keys = { key, keys },
	};
	coord_trace_event(c, fal_coord_seconds(c, now), FAL_EV_EVAL, &line);
	free(key);
}

static void
take_result(struct fal_coord *c, double now, const struct coord_peer *p,
	    const struct fal_msg *m)
{
	struct coord_test_task *of = &c->evaluation.task[m->evaluated.task];
	struct coord_test_result *result = &of->result[of->results++];
	*result = (struct coord_test_result){ .worker = p->worker,
					      .key = p->key,
					      .right = m->evaluated.right,
					      .loss = m->evaluated.loss };
	memcpy(result->fingerprint, p->fingerprint, FAL_FINGERPRINT);
	if (of->results > 1)
		compare_results(c, now, m->evaluated.task);
	if (!fal_sched_eval_done(c->sched) || c->evaluation.has_drawn)
		return;
	c->evaluation.has_drawn = true;
	for (uint32_t key = 1; key <= c->sessions.keys; key++)
		draw_repeats(c, now, key);
}

int
coord_take_evaluated(struct fal_coord *c, double now, struct coord_peer *p,
		     const struct fal_msg *m, struct fal_diag *diag)
{
	if (!c->evaluation.is_under_way ||
	    m->evaluated.version != c->evaluation.pinned_version)
		return FAL_OK;
	const uint32_t samples = test_task_samples(c, m->evaluated.task);
	if (m->evaluated.samples != samples || m->evaluated.right > samples)
		return fal_diag_set(diag, FAL_EINVAL, "%u right of %u in test task %u",
				    m->evaluated.right, m->evaluated.samples,
				    m->evaluated.task);
	if (!fal_loss_fits(m->evaluated.loss, samples))
		return fal_diag_set(diag, FAL_EINVAL, "a loss of %.6g for %u sample%s",
				    fal_loss_is(m->evaluated.loss), samples,
				    fal_text_s(samples));
	int counts = fal_sched_evaluated(c->sched, now, p->worker, m->evaluated.task,
					 samples, (double)m->evaluated.task_ns * 1e-9);
	if (counts < 0)
		return fal_diag_set(diag, counts,
				    "evaluated task %u, which it was not given",
				    m->evaluated.task);
	if (counts == 1 && c->is_external) {
		c->ops.evaluated(coord_begin_callback(c), m);
		coord_end_callback(c);
	} else if (counts == 1) {
		take_result(c, now, p, m);
	}
	if (fal_sched_eval_done(c->sched) && !c->is_external)
		finish_evaluation(c, now);
	return FAL_OK;
}

/* ---- health ---------------------------------------------------------------------- */

/* Whether the job learns: the mean loss of its epochs, and the last version of which that
 * could be said.  falcon-job(5) has the rule of divergence. */

/* A job has diverged whose epoch has so many times the mean loss of guessing. */
enum { DIVERGED_FACTOR = 3 };

void
coord_pin_version(struct fal_coord *c, uint64_t version, uint64_t over)
{
	const struct fal_shard_order o = { .kind = FAL_ORDER_HOLD, .version = version };
	if (c->evaluation.pinned_clocks == over &&
	    c->evaluation.pinned_version == version)
		return;
	c->evaluation.pinned_version = version;
	c->evaluation.pinned_clocks = over;
	c->evaluation.pinned_is_evaluated = false;
	coord_command_shards(c, &o);
}

static int
order_doubles(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* The counts of the clock's epoch, which has begun with this call; NULL: the epoch is
 * over. */
static struct coord_health_epoch *
find_epoch(struct fal_coord *c, uint64_t clock)
{
	struct coord_health *h = &c->health;
	const uint64_t epoch = clock / fal_grid_epoch_clocks(&c->conf.grid) + 1;
	size_t i = h->epochs;
	if (epoch <= c->status.epoch)
		return NULL;
	while (i > 0 && h->epoch[i - 1].epoch > epoch)
		i--;
	if (i > 0 && h->epoch[i - 1].epoch == epoch)
		return &h->epoch[i - 1];
	FAL_XGROW(h->epoch, h->epoch_cap, h->epochs + 1);
	memmove(h->epoch + i + 1, h->epoch + i, (h->epochs++ - i) * sizeof(*h->epoch));
	h->epoch[i] = (struct coord_health_epoch){ .epoch = epoch };
	return &h->epoch[i];
}

void
coord_health_add_loss(struct fal_coord *c, uint64_t clock, double loss, uint64_t samples)
{
	struct coord_health_epoch *e = find_epoch(c, clock);
	if (e == NULL)
		return;
	e->loss += loss;
	e->samples += samples;
}

void
coord_health_add_skipped(struct fal_coord *c, uint64_t clock, uint64_t tasks)
{
	struct coord_health_epoch *e = tasks > 0 ? find_epoch(c, clock) : NULL;
	if (e != NULL)
		e->skipped += tasks;
}

void
coord_health_add_claim(struct fal_coord *c, uint64_t clock, uint32_t key, int64_t loss,
		       uint32_t samples)
{
	struct coord_health_epoch *e = find_epoch(c, clock);
	assert(key > 0);
	if (e == NULL)
		return;
	FAL_XGROW(e->key, e->key_cap, (size_t)key);
	FAL_XGROW(c->health.scratch, c->health.scratch_cap, (size_t)key);
	if (key > e->keys) {
		memset(e->key + e->keys, 0, (key - e->keys) * sizeof(*e->key));
		e->keys = key;
	}
	const bool known = fal_loss_known(loss, samples);
	e->key[key - 1].loss[known] += fal_loss_is(loss);
	e->key[key - 1].samples[known] += samples;
}

struct coord_health_epoch
coord_health_current_epoch(const struct fal_coord *c)
{
	static const struct coord_health_epoch none;
	const struct coord_health *h = &c->health;
	const bool any = h->epochs > 0 && h->epoch[0].epoch == c->status.epoch + 1;
	return any ? h->epoch[0] : none;
}

/* The median_key_loss, by key, of the mean losses that workers have had in the epoch so
 * far, so that one that lies neither ends a job nor keeps it from ending; of two keys the
 * lower. A loss that is not known, as a trainer may not say one, tells of nothing; but
 * where a key has no other they are all too large, or were none at first either. */
static double
median_key_loss(struct fal_coord *c, const struct coord_health_epoch *e)
{
	size_t n = 0;
	double *v = c->health.scratch;
	for (size_t i = 0; i < e->keys; i++) {
		const bool known = e->key[i].samples[true] > 0;
		if (e->key[i].samples[known] > 0)
			v[n++] = e->key[i].loss[known] / (double)e->key[i].samples[known];
	}
	if (n == 0)
		return 0;
	qsort(v, n, sizeof(*v), order_doubles);
	return v[(n - 1) / 2];
}

/* Is there none of its tasks that was not skipped?  What was dropped before it was done
 * may have had a result. */
static bool
epoch_is_skipped(const struct fal_coord *c, const struct coord_health_epoch *e)
{
	const uint64_t clocks = fal_grid_epoch_clocks(&c->conf.grid);
	uint64_t tasks = 0;
	if (e->samples > 0 || e->keys > 0 || e->skipped == 0)
		return false;
	for (uint64_t i = 0; i < clocks; i++)
		tasks += fal_grid_tasks(&c->conf.grid, c->status.epoch * clocks + i);
	return e->skipped >= tasks;
}

/* The next epoch is over. */
static void
close_epoch(struct fal_coord *c)
{
	const struct coord_health_epoch e = coord_health_current_epoch(c);
	struct coord_health *h = &c->health;
	const bool none = epoch_is_skipped(c, &e);
	c->status.epoch++;
	if (e.samples > 0)
		c->status.epoch_loss = e.loss / (double)e.samples;
	h->loss[c->status.epoch % HEALTH_LOSSES] = c->status.epoch_loss;
	if (none)
		c->failure = "diverged: no task of an epoch has a finite gradient";
	else if (c->conf.guess > 0 && median_key_loss(c, &e) > DIVERGED_FACTOR * h->start)
		c->failure = "diverged: the mean loss of an epoch is far above that of "
			     "guessing";
	if (e.epoch == 0)
		return;
	free(e.key);
	memmove(h->epoch, h->epoch + 1, --h->epochs * sizeof(*h->epoch));
}

/* Epochs whose counts are complete.  The clocks that another policy has left may be over
 * in another order than theirs, and in several updates. */
static uint64_t
complete_epochs(const struct fal_coord *c, uint32_t later)
{
	uint64_t over = fal_sched_over(c->sched);
	if (over > c->health.over)
		over = c->health.over;
	for (uint32_t i = later; i < c->rounds.n_collected; i++)
		if (!c->rounds.collected[i].is_own && c->rounds.collected[i].clock < over)
			over = c->rounds.collected[i].clock;
	return over / fal_grid_epoch_clocks(&c->conf.grid);
}

void
coord_health_update(struct fal_coord *c, uint64_t version, uint64_t over, uint32_t later)
{
	struct coord_health *h = &c->health;
	const uint64_t was = c->status.epoch;
	h->over = over > h->over ? over : h->over;
	if (h->start == 0)
		h->start = fmax(h->epochs > 0 ? median_key_loss(c, &h->epoch[0]) : 0,
				c->conf.guess);
	while (c->failure == NULL && c->status.epoch < complete_epochs(c, later))
		close_epoch(c);
	if (c->failure == NULL && c->status.epoch > was && !c->evaluation.is_under_way)
		coord_pin_version(c, version, over);
}

void
coord_health_restore(struct fal_coord *c, double start)
{
	c->health.start = start;
	c->health.first = c->status.epoch;
	c->health.loss[c->status.epoch % HEALTH_LOSSES] = c->status.epoch_loss;
}

double
fal_coord_epoch_loss(const struct fal_coord *c, uint64_t epoch)
{
	coord_enter(c);
	const uint64_t last = c->status.epoch;
	const bool known = epoch > 0 && epoch >= c->health.first && epoch <= last &&
			   last - epoch < HEALTH_LOSSES;
	return known ? c->health.loss[epoch % HEALTH_LOSSES] : NAN;
}

void
coord_health_free(struct fal_coord *c)
{
	for (size_t i = 0; i < c->health.epochs; i++)
		free(c->health.epoch[i].key);
	free(c->health.epoch);
	free(c->health.scratch);
}

bool
fal_coord_kept(const struct fal_coord *c, struct fal_coord_left *out)
{
	coord_enter(c);
	*out = (struct fal_coord_left){ c->evaluation.pinned_version,
					c->evaluation.pinned_clocks,
					c->failure == c->sessions.trainer.why };
	return c->evaluation.pinned_clocks != 0;
}

bool
fal_coord_newest(const struct fal_coord *c, struct fal_coord_left *out)
{
	coord_enter(c);
	*out = (struct fal_coord_left){ c->versions.published,
					c->versions.published_clocks, false };
	return c->versions.published != 0;
}

/* ---- verify ---------------------------------------------------------------------- */

/* Claims that another key computes once more: job.verify.
 *
 * A claim is drawn, when it has come, from what nobody else knows.  The scheduler asks a
 * worker of another key whose numerics are the same, and the round does not wait.  Unlike
 * results are told to the trace and the log; nothing is made again, and no key is
 * charged: falcon-stat --recompute tells which of the two is wrong. */

uint32_t
coord_numerics_number(const struct fal_coord *c, const uint8_t fp[static FAL_FINGERPRINT])
{
	uint32_t i = 0;
	while (i < c->sessions.workers &&
	       memcmp(c->sessions.worker[i].fingerprint, fp, FAL_FINGERPRINT) != 0)
		i++;
	return coord_is_deterministic(fp) ? i + 1 : 0;
}

bool
coord_verify_is_drawn(struct fal_coord *c, const struct coord_peer *p, uint64_t round)
{
	struct fal_round_info r;
	if (c->conf.verify <= 0 || !coord_is_deterministic(p->fingerprint) ||
	    !fal_sched_round(c->sched, round, &r) || r.delta)
		return false;
	return (double)fal_rng_unit(&c->rng) < c->conf.verify;
}

void
coord_verify_compare(struct fal_coord *c, double now, const struct coord_peer *p,
		     const struct fal_msg *m)
{
	const struct fal_checked_in in = { .worker = p->worker,
					   .task = m->checked.task,
					   .round = m->checked.round,
					   .hash = m->checked.hash };
	struct fal_round_info r;
	struct fal_verify of;
	if (!fal_sched_verified(c->sched, now, &in, &of) ||
	    !fal_sched_round(c->sched, of.round, &r))
		return;
	const struct coord_known_worker *w = coord_worker_of(c, of.id.worker);
	const uint64_t id[] = { of.id.worker, of.id.seq };
	char hex[2][2 * FAL_CLAIM_HASH + 1];
	const struct fal_ev_word result[] = { { w->name, of.id.worker, hex[0] },
					      { p->name, p->worker, hex[1] } };
	fal_hex(of.hash, FAL_CLAIM_HASH, hex[0]);
	fal_hex(m->checked.hash, FAL_CLAIM_HASH, hex[1]);
	const struct fal_coord_unlike unlike = {
		.clock = r.clock,
		.task = of.task,
		.name = { w->name, p->name },
		.key = { c->sessions.key[w->key - 1].record.name,
			 c->sessions.key[p->key - 1].record.name },
	};
	coord_trace_event(c, fal_coord_seconds(c, now), FAL_EV_VERIFY,
			  &(struct fal_ev_verify){
				  of.round, r.clock, of.task, { id, 2 }, { result, 2 } });
	if (c->conf.verify_stop && c->failure == NULL)
		c->failure = "two keys have unlike results of a task (verify.stop)";
	if (c->ops.unlike == NULL)
		return;
	c->ops.unlike(coord_begin_callback(c), &unlike);
	coord_end_callback(c);
}
