/* Evaluations, the job's health, and verified claims: results of one key that another key
 * confirms.
 *
 * When all test tasks are counted, the coordinator draws a part of them, which other keys
 * run once more: nobody can know beforehand which tasks are drawn.  If two results
 * differ, a third key decides; if there is no third key, or its result agrees with both
 * or with neither, the key that comes first in the keyring decides.  All results of the
 * refuted key that nobody has confirmed are then run again by others.  Honest workers
 * with equal fingerprints get equal results; other honest workers get nearly equal
 * results.
 */
#include "server/coord_priv.h"

#include "base/loss.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- evaluation -------------------------------------------------------------------- */

enum {
	REPEAT_ONE_IN = 8, /* one of so many tasks is run twice */
	DIFFER_ONE_IN = 16 /* one of so many samples may differ between fingerprints */
};

/* The count of samples of the test task; 0: there is no such task. */
static uint32_t
test_task_samples(const struct fal_coord *c, uint32_t task)
{
	const uint32_t full = c->conf.grid.task;
	const uint64_t first = (uint64_t)task * full, all = c->conf.test_samples;
	if (first >= all)
		return 0;
	return all - first < full ? (uint32_t)(all - first) : full;
}

void
coord_evaluate_version(struct fal_coord *c, double now, uint64_t version,
		       uint64_t clocks_over)
{
	struct coord_evaluation *e = &c->evaluation;
	const uint64_t every = c->conf.eval_every > 0 ? c->conf.eval_every : c->clocks;
	coord_pin_version(c, version, clocks_over);
	e->pin.is_under_way = e->pin.is_evaluated = true;
	e->pin.next_clock = clocks_over / every * every + every;
	e->pin.next_clock = e->pin.next_clock < c->clocks ? e->pin.next_clock : c->clocks;
	coord_start_evaluation(c, now);
}

void
coord_start_evaluation(struct fal_coord *c, double now)
{
	struct coord_evaluation *e = &c->evaluation;
	const uint32_t full = c->conf.grid.task;
	e->tasks = (c->conf.test_samples + full - 1) / full;
	e->has_drawn = false;
	FAL_XGROW(e->task, e->task_cap, e->tasks);
	memset(e->task, 0, e->tasks * sizeof(*e->task));
	coord_record_error(c, fal_sched_start_eval(c->sched, now, e->tasks));
}

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

/* Puts the result that counts first. */
static void
prefer_result(struct coord_test_task *t, uint32_t i)
{
	const struct coord_test_result r = t->result[i];
	t->result[i] = t->result[0];
	t->result[0] = r;
}

/* Makes another key run the task once more; returns false if there is no other key. */
static bool
repeat_test_task(struct fal_coord *c, double now, uint32_t task)
{
	c->evaluation.task[task].repeat_was_wanted = true;
	if (!fal_sched_eval_can_repeat(c->sched, task))
		return false;
	fal_sched_repeat_eval(c->sched, now, task);
	return true;
}

/* Returns true if this key is the only key with a result of the task. */
static bool
is_unconfirmed(const struct fal_coord *c, uint32_t task, uint32_t key)
{
	const struct coord_test_task *t = &c->evaluation.task[task];
	return t->results == 1 && t->result[0].key == key;
}

static void
repeat_unconfirmed(struct fal_coord *c, double now, uint32_t key)
{
	for (uint32_t task = 0; task < c->evaluation.tasks; task++)
		if (is_unconfirmed(c, task, key))
			(void)repeat_test_task(c, now, task);
}

/* Called when nobody decides: the result of the key that comes first in the keyring
 * counts. */
static void
prefer_first_key(struct fal_coord *c, double now, struct coord_test_task *t)
{
	uint32_t best = 0;
	for (uint32_t i = 1; i < t->results; i++)
		if (coord_key(c, t->result[i].key)->place <
		    coord_key(c, t->result[best].key)->place)
			best = i;
	prefer_result(t, best);
	for (uint32_t i = 1; i < t->results; i++)
		if (t->result[i].key != t->result[0].key)
			repeat_unconfirmed(c, now, t->result[i].key);
}

/* Compares the two or three results of the task. */
static void
compare_results(struct fal_coord *c, double now, uint32_t task)
{
	struct coord_test_task *t = &c->evaluation.task[task];
	const uint32_t n = test_task_samples(c, task);
	struct coord_test_result *r = t->result;
	if (t->results == 2) {
		if (!results_agree(&r[0], &r[1], n) && !repeat_test_task(c, now, task))
			prefer_first_key(c, now, t);
		return;
	}
	for (uint32_t i = 0; i < 2; i++) {
		const struct coord_test_result refuted = r[1 - i];
		/* Two results of one key count as one, unless all three are of that key.
		 */
		const bool are_two = r[i].key != r[2].key || r[i].key == refuted.key;
		if (are_two && results_agree(&r[i], &r[2], n) &&
		    !results_agree(&refuted, &r[2], n)) {
			prefer_result(t, i);
			repeat_unconfirmed(c, now, refuted.key);
			fal_sched_charge(c->sched, refuted.worker,
					 "it evaluated otherwise than others");
			return;
		}
	}
	prefer_first_key(c, now, t);
}

/* An evaluation must be over so many clocks after its version (design.md, I17). */
enum { EVAL_CLOCKS = 5 };

uint64_t
coord_evaluation_clocks(const struct fal_coord *c)
{
	const uint64_t every = c->conf.eval_every > 0 ? c->conf.eval_every : c->clocks;
	return every - 1 < EVAL_CLOCKS ? every - 1 : EVAL_CLOCKS;
}

void
coord_check_patience(struct fal_coord *c)
{
	const uint64_t clock = c->figures.judged + coord_evaluation_clocks(c);
	if (c->conf.patience > 0 && c->conf.best.clock > 0 && clock < c->clocks &&
	    c->figures.judged >= c->conf.best.clock + c->conf.patience)
		c->control.stop_clock = clock;
}

/* Any evaluation is better than none.  At equal accuracy the lower loss wins; an unknown
 * loss is no evidence that the first model is better. */
bool
fal_coord_best_is_better(const struct fal_coord_best *is,
			 const struct fal_coord_best *than)
{
	return than->clock == 0 || is->accuracy > than->accuracy ||
	       (is->accuracy >= than->accuracy &&
		(is->loss < than->loss || isnan(than->loss)));
}

/* Sums up the results that count, and writes the `eval` line. */
static void
finish_evaluation(struct fal_coord *c, double now)
{
	struct coord_evaluation *e = &c->evaluation;
	uint64_t right = 0;
	int64_t loss = 0;
	bool is_known = true;
	struct fal_metrics metrics = { 0 };
	struct fal_ev_metric metric[FAL_METRICS_MAX];
	struct fal_ev_eval_key *key = fal_xcalloc(c->sessions.keys, sizeof(*key));
	uint32_t keys = 0;
	for (uint32_t task = 0; task < e->tasks; task++) {
		/* The task counts for the key of the first result. */
		const struct coord_test_task *t = &e->task[task];
		right += t->result[0].right;
		loss += t->result[0].loss;
		fal_metrics_add(&metrics, &t->result[0].metrics);
		is_known &=
			fal_loss_is_known(t->result[0].loss, test_task_samples(c, task));
		struct fal_ev_eval_key *k = &key[t->result[0].key - 1];
		bool is_confirmed = false;
		for (uint32_t i = 1; i < t->results; i++)
			is_confirmed |= t->result[i].key != t->result[0].key;
		k->tasks++;
		k->twice += is_confirmed;
		k->alone += t->repeat_was_wanted && !is_confirmed;
	}
	for (uint32_t i = 0; i < c->sessions.keys; i++) {
		key[i].key = c->sessions.key[i].record.name;
		if (key[i].tasks > 0)
			key[keys++] = key[i];
	}
	const double n = c->conf.test_samples;
	e->pin.is_under_way = false;
	c->figures.judged = e->pin.clocks;
	c->figures.accuracy = (double)right / n;
	c->figures.accuracy_loss = is_known ? fal_loss_decode(loss) / n : (double)NAN;
	c->figures.metrics.test = metrics;
	const struct fal_ev_eval line = {
		.version = e->pin.version,
		.epoch = e->pin.clocks / fal_grid_epoch_clocks(&c->conf.grid),
		.right = right,
		.total = c->conf.test_samples,
		.loss = c->figures.accuracy_loss,
		.accuracy = c->figures.accuracy,
		.keys = { key, keys },
		.metrics = { metric, coord_list_metrics(c, &metrics, metric) },
	};
	coord_trace_event(c, now, FAL_EV_EVAL, &line);
	free(key);
	const struct fal_coord_best is = { c->figures.judged, line.accuracy, line.loss };
	if (fal_coord_best_is_better(&is, &c->conf.best))
		c->conf.best = is;
	coord_check_patience(c);
}

static void
add_result(struct fal_coord *c, double now, const struct coord_peer *p,
	   const struct fal_msg *m, const struct fal_metrics *metrics)
{
	struct coord_test_task *t = &c->evaluation.task[m->evaluated.task];
	assert(t->results < TEST_RESULTS_MAX);
	struct coord_test_result *r = &t->result[t->results++];
	*r = (struct coord_test_result){ .worker = p->worker,
					 .key = p->key,
					 .right = m->evaluated.right,
					 .loss = m->evaluated.loss,
					 .metrics = *metrics };
	memcpy(r->fingerprint, p->fingerprint, FAL_FINGERPRINT);
	if (t->results > 1)
		compare_results(c, now, m->evaluated.task);
	if (!fal_sched_is_eval_done(c->sched) || c->evaluation.has_drawn)
		return;
	c->evaluation.has_drawn = true;
	/* Draws a part of each key's unconfirmed tasks, which are run once more. */
	for (uint32_t key = 1; key <= c->sessions.keys; key++) {
		uint32_t left = 0;
		for (uint32_t task = 0; task < c->evaluation.tasks; task++)
			left += is_unconfirmed(c, task, key);
		uint32_t wanted = (left + REPEAT_ONE_IN - 1) / REPEAT_ONE_IN;
		for (uint32_t task = 0; task < c->evaluation.tasks && wanted > 0; task++)
			if (is_unconfirmed(c, task, key) &&
			    fal_rng_below(&c->rng, left--) < wanted) {
				wanted--;
				(void)repeat_test_task(c, now, task);
			}
	}
}

int
coord_on_evaluated(struct fal_coord *c, double now, struct coord_peer *p,
		   const struct fal_msg *m, struct fal_diag *diag)
{
	if (!c->evaluation.pin.is_under_way ||
	    m->evaluated.version != c->evaluation.pin.version)
		return FAL_OK;
	const uint32_t samples = test_task_samples(c, m->evaluated.task);
	if (m->evaluated.samples != samples || m->evaluated.right > samples)
		return fal_diag_set(diag, FAL_EINVAL, "%u right of %u in test task %u",
				    m->evaluated.right, m->evaluated.samples,
				    m->evaluated.task);
	if (!fal_loss_fits(m->evaluated.loss, samples))
		return fal_diag_set(diag, FAL_EINVAL, "a loss of %.6g for %u sample%s",
				    fal_loss_decode(m->evaluated.loss), samples,
				    fal_text_plural(samples));
	struct fal_metrics metrics;
	if (coord_read_metrics(c, &m->evaluated.metrics, samples, &metrics, diag) < 0)
		return FAL_EINVAL;
	int counts = fal_sched_claim_eval(c->sched, now, p->worker, m->evaluated.task,
					  samples, (double)m->evaluated.task_ns * 1e-9);
	if (counts < 0)
		return fal_diag_set(diag, counts,
				    "evaluated task %u, which it was not given",
				    m->evaluated.task);
	if (counts == 1 && c->is_external) {
		COORD_CALL(c, evaluated, m);
	} else if (counts == 1) {
		add_result(c, now, p, m, &metrics);
	}
	if (fal_sched_is_eval_done(c->sched) && !c->is_external)
		finish_evaluation(c, now);
	return FAL_OK;
}

/* ---- health ---------------------------------------------------------------------- */

/* The health of the job: does the model learn?  This part keeps the mean loss of epochs,
 * and pins the last version that is known to be good.  falcon-job(5) has the rule of
 * divergence. */

/* An epoch has diverged if its mean loss is so many times the loss of guessing. */
enum { DIVERGED_FACTOR = 3 };

void
coord_pin_version(struct fal_coord *c, uint64_t version, uint64_t clocks_over)
{
	struct coord_evaluation *e = &c->evaluation;
	if (e->pin.clocks == clocks_over && e->pin.version == version)
		return;
	e->pin.version = version;
	e->pin.clocks = clocks_over;
	e->pin.is_evaluated = false;
	coord_command_shards(c, &(struct fal_shard_order){ .kind = FAL_ORDER_PIN,
							   .version = version });
}

static int
order_doubles(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* The counts of the clock's epoch, which may begin with this call; NULL: the epoch is
 * over. */
static struct coord_health_epoch *
find_epoch(struct fal_coord *c, uint64_t clock)
{
	struct coord_health *h = &c->health;
	const uint64_t epoch = clock / fal_grid_epoch_clocks(&c->conf.grid) + 1;
	size_t i = h->epochs;
	if (epoch <= c->figures.epoch)
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
coord_health_add_loss(struct fal_coord *c, uint64_t clock, double loss, uint64_t samples,
		      const struct fal_metrics *metrics)
{
	struct coord_health_epoch *e = find_epoch(c, clock);
	if (e == NULL)
		return;
	e->loss += loss;
	e->samples += samples;
	fal_metrics_add(&e->metrics, metrics);
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
	const bool is_known = fal_loss_is_known(loss, samples);
	e->key[key - 1].loss[is_known] += fal_loss_decode(loss);
	e->key[key - 1].samples[is_known] += samples;
}

struct coord_health_epoch
coord_health_current_epoch(const struct fal_coord *c)
{
	const struct coord_health *h = &c->health;
	const bool has_counts =
		h->epochs > 0 && h->epoch[0].epoch == c->figures.epoch + 1;
	return has_counts ? h->epoch[0] : (struct coord_health_epoch){ 0 };
}

/* The median over keys of the mean losses in the epoch so far; of two keys the lower
 * loss.  With a median, a key that lies can neither end a job nor keep the job from
 * ending.  A loss that is not known does not count, because a trainer may report no
 * losses.  But if a key has no known loss at all, its unknown losses count: either they
 * are too large, or the key has reported none from the start. */
static double
median_key_loss(struct fal_coord *c, const struct coord_health_epoch *e)
{
	size_t n = 0;
	double *v = c->health.scratch;
	for (size_t i = 0; i < e->keys; i++) {
		const bool is_known = e->key[i].samples[true] > 0;
		if (e->key[i].samples[is_known] > 0)
			v[n++] = e->key[i].loss[is_known] /
				 (double)e->key[i].samples[is_known];
	}
	if (n == 0)
		return 0;
	qsort(v, n, sizeof(*v), order_doubles);
	return v[(n - 1) / 2];
}

/* Returns true if all tasks of the epoch were skipped.  A task that was dropped before
 * its end does not count as skipped, because its result may have been finite. */
static bool
epoch_is_skipped(const struct fal_coord *c, const struct coord_health_epoch *e)
{
	const uint64_t clocks = fal_grid_epoch_clocks(&c->conf.grid);
	uint64_t tasks = 0;
	if (e->samples > 0 || e->keys > 0 || e->skipped == 0)
		return false;
	for (uint64_t i = 0; i < clocks; i++)
		tasks += fal_grid_tasks(&c->conf.grid, c->figures.epoch * clocks + i);
	return e->skipped >= tasks;
}

/* Ends the current epoch: takes its mean loss, and ends the job if the job has diverged.
 */
static void
close_epoch(struct fal_coord *c)
{
	const struct coord_health_epoch e = coord_health_current_epoch(c);
	struct coord_health *h = &c->health;
	const bool is_skipped = epoch_is_skipped(c, &e);
	c->figures.epoch++;
	if (e.samples > 0)
		c->figures.epoch_loss = e.loss / (double)e.samples;
	c->figures.metrics.epoch = e.metrics;
	h->loss[c->figures.epoch % HEALTH_LOSSES] = c->figures.epoch_loss;
	h->metrics[c->figures.epoch % HEALTH_LOSSES] = e.metrics;
	if (is_skipped)
		c->failure = "diverged: no task of an epoch has a finite gradient";
	else if (c->conf.guess > 0 && median_key_loss(c, &e) > DIVERGED_FACTOR * h->start)
		c->failure = "diverged: the mean loss of an epoch is far above that of "
			     "guessing";
	if (e.epoch == 0)
		return;
	free(e.key);
	memmove(h->epoch, h->epoch + 1, --h->epochs * sizeof(*h->epoch));
}

void
coord_health_update(struct fal_coord *c, uint64_t version, uint64_t clocks_over,
		    uint32_t first_later)
{
	struct coord_health *h = &c->health;
	const uint64_t epochs = c->figures.epoch;
	h->clocks_over = clocks_over > h->clocks_over ? clocks_over : h->clocks_over;
	if (h->start == 0)
		h->start = fmax(h->epochs > 0 ? median_key_loss(c, &h->epoch[0]) : 0,
				c->conf.guess);
	/* The clocks with complete counts: clocks of an earlier policy may end out of
	 * order, and in several updates. */
	uint64_t clocks = fal_sched_first_open_clock(c->sched);
	if (clocks > h->clocks_over)
		clocks = h->clocks_over;
	for (uint32_t i = first_later; i < c->rounds.n_collected; i++) {
		const struct coord_collected *later = &c->rounds.collected[i];
		if (!later->is_own && later->clock < clocks)
			clocks = later->clock;
	}
	while (c->failure == NULL &&
	       c->figures.epoch < clocks / fal_grid_epoch_clocks(&c->conf.grid))
		close_epoch(c);
	/* A newer version may have been evaluated before this one was published. */
	if (c->failure == NULL && c->figures.epoch > epochs &&
	    !c->evaluation.pin.is_under_way && version > c->evaluation.pin.version)
		coord_pin_version(c, version, clocks_over);
}

void
coord_health_restore(struct fal_coord *c, double start)
{
	c->health.start = start;
	c->health.first = c->figures.epoch;
	c->health.loss[c->figures.epoch % HEALTH_LOSSES] = c->figures.epoch_loss;
	c->health.metrics[c->figures.epoch % HEALTH_LOSSES] = c->figures.metrics.epoch;
}

double
fal_coord_epoch_loss(const struct fal_coord *c, uint64_t epoch, struct fal_metrics *out)
{
	const struct coord_health *h = &c->health;
	coord_enter(c);
	const uint64_t last = c->figures.epoch;
	const bool is_known = epoch > 0 && epoch >= h->first && epoch <= last &&
			      last - epoch < HEALTH_LOSSES;
	*out = is_known ? h->metrics[epoch % HEALTH_LOSSES] : (struct fal_metrics){ 0 };
	return is_known ? h->loss[epoch % HEALTH_LOSSES] : NAN;
}

void
coord_health_free(struct fal_coord *c)
{
	for (size_t i = 0; i < c->health.epochs; i++)
		free(c->health.epoch[i].key);
	free(c->health.epoch);
	free(c->health.scratch);
}

/* ---- verify ---------------------------------------------------------------------- */

/* Verification (job.verify): another key computes some claims once more.
 *
 * A claim is drawn after its arrival, by random bits that nobody else knows.  The
 * scheduler asks a worker of another key with the same numerics, and the round does not
 * wait for the answer.  Unlike results go to the trace and the log.  The result is not
 * computed again, and no key is charged, because only falcon-stat --recompute tells which
 * of the two results is wrong. */

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
	const struct fal_check_answer in = { .worker = p->worker,
					     .task = m->checked.task,
					     .round = m->checked.round,
					     .hash = m->checked.hash };
	struct fal_round_info r;
	struct fal_verify claim;
	if (!fal_sched_answer_check(c->sched, now, &in, &claim) ||
	    !fal_sched_round(c->sched, claim.round, &r))
		return;
	const struct coord_known_worker *w = coord_worker(c, claim.id.worker);
	const uint64_t id[] = { claim.id.worker, claim.id.seq };
	char hex[2][2 * FAL_CLAIM_HASH + 1];
	const struct fal_ev_word word[] = { { w->name, claim.id.worker, hex[0] },
					    { p->name, p->worker, hex[1] } };
	fal_hex(claim.hash, FAL_CLAIM_HASH, hex[0]);
	fal_hex(m->checked.hash, FAL_CLAIM_HASH, hex[1]);
	const struct fal_coord_mismatch unlike = {
		.clock = r.clock,
		.task = claim.task,
		.name = { w->name, p->name },
		.key = { coord_key(c, w->key)->record.name,
			 coord_key(c, p->key)->record.name },
	};
	coord_trace_event(
		c, now, FAL_EV_VERIFY,
		&(struct fal_ev_verify){
			claim.round, r.clock, claim.task, { id, 2 }, { word, 2 } });
	if (c->conf.verify_stop && c->failure == NULL)
		c->failure = "two keys have unlike results of a task (verify.stop)";
	COORD_CALL(c, unlike, &unlike);
}
