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
	PART = 8, /* one in so many tasks is run twice */
	NEAR = 16 /* other fingerprints: one in so many samples may come out otherwise */
};

/* How many samples test task `task` has; 0: there is no such task. */
static uint32_t
samples_of(const struct fal_coord *c, uint32_t task)
{
	const uint32_t most = c->conf.grid.task;
	uint64_t first = (uint64_t)task * most, all = c->conf.test_samples;
	if (first >= all)
		return 0;
	return all - first < most ? (uint32_t)(all - first) : most;
}

void
coord_eval_begin(struct fal_coord *c, double now)
{
	struct fal_evaluation *e = &c->eval;
	const uint32_t task = c->conf.grid.task;
	e->tasks = (c->conf.test_samples + task - 1) / task;
	e->drawn = false;
	FAL_XGROW(e->count, e->cap, e->tasks);
	memset(e->count, 0, e->tasks * sizeof(*e->count));
	coord_expect(c, fal_sched_eval(c->sched, now, e->tasks));
}

/* Do they say the same? */
static bool
agree(const struct fal_word *a, const struct fal_word *b, uint32_t samples)
{
	if (memcmp(a->fingerprint, b->fingerprint, FAL_FINGERPRINT) == 0)
		return a->right == b->right && a->loss == b->loss;
	const double loss = fabs((double)a->loss - (double)b->loss);
	const uint32_t right =
		a->right > b->right ? a->right - b->right : b->right - a->right;
	return right <= 1 + samples / NEAR &&
	       loss <= fmax(fabs((double)a->loss), fabs((double)b->loss)) / NEAR +
			       ldexp(samples, FAL_LOSS_BITS - 10);
}

/* The word that counts comes first. */
static void
prefer(struct fal_count *of, uint32_t at)
{
	const struct fal_word word = of->word[at];
	of->word[at] = of->word[0];
	of->word[0] = word;
}

static bool
ask_again(struct fal_coord *c, double now, uint32_t task)
{
	c->eval.count[task].asked = true;
	if (!fal_sched_eval_can_repeat(c->sched, task))
		return false;
	fal_sched_eval_again(c->sched, now, task);
	return true;
}

/* Test tasks that no other key has confirmed are evaluated again. */
static void
repeat_unconfirmed(struct fal_coord *c, double now, uint32_t key)
{
	for (uint32_t t = 0; t < c->eval.tasks; t++) {
		const struct fal_count *of = &c->eval.count[t];
		if (of->words == 1 && of->word[0].key == key)
			(void)ask_again(c, now, t);
	}
}

/* Two words differ, and there is no third. */
static void
first_in_keyring(struct fal_coord *c, double now, struct fal_count *of)
{
	uint32_t best = 0;
	for (uint32_t i = 1; i < of->words; i++)
		if (c->key[of->word[i].key - 1].place <
		    c->key[of->word[best].key - 1].place)
			best = i;
	prefer(of, best);
	for (uint32_t i = 1; i < of->words; i++)
		if (of->word[i].key != of->word[0].key)
			repeat_unconfirmed(c, now, of->word[i].key);
}

/* There is more than one word on the task. */
static void
judge(struct fal_coord *c, double now, uint32_t task)
{
	struct fal_count *of = &c->eval.count[task];
	const uint32_t n = samples_of(c, task);
	struct fal_word *w = of->word;
	if (of->words == 2) {
		if (!agree(&w[0], &w[1], n) && !ask_again(c, now, task))
			first_in_keyring(c, now, of);
		return;
	}
	for (uint32_t i = 0; i < 2; i++) {
		const struct fal_word liar = w[1 - i];
		/* Of one key two are one, unless there is no other. */
		const bool two = w[i].key != w[2].key || w[i].key == liar.key;
		if (two && agree(&w[i], &w[2], n)) {
			prefer(of, i);
			repeat_unconfirmed(c, now, liar.key);
			fal_sched_charge(c->sched, liar.worker,
					 "it evaluated otherwise than others");
			return;
		}
	}
	first_in_keyring(c, now, of);
}

/* A part of what the key alone has said is run once more. */
static void
draw_of(struct fal_coord *c, double now, uint32_t key)
{
	struct fal_evaluation *e = &c->eval;
	uint32_t left = 0;
	for (uint32_t t = 0; t < e->tasks; t++)
		left += e->count[t].words == 1 && e->count[t].word[0].key == key;
	uint32_t want = (left + PART - 1) / PART;
	for (uint32_t t = 0; t < e->tasks && want > 0; t++) {
		if (e->count[t].words != 1 || e->count[t].word[0].key != key)
			continue;
		if (fal_rng_below(&c->rng, left--) >= want)
			continue;
		want--;
		(void)ask_again(c, now, t);
	}
}

static void
conclude(struct fal_coord *c, double now)
{
	uint64_t right = 0;
	int64_t loss = 0;
	bool known = true;
	struct fal_ev_eval_key *key = fal_xcalloc(c->keys, sizeof(*key));
	uint32_t keys = 0;
	for (uint32_t i = 0; i < c->keys; i++)
		key[i].key = c->key[i].is.name;
	for (uint32_t t = 0; t < c->eval.tasks; t++) {
		/* The first word makes the evaluation: the task counts for its key. */
		const struct fal_count *of = &c->eval.count[t];
		right += of->word[0].right;
		loss += of->word[0].loss;
		known &= fal_loss_known(of->word[0].loss, samples_of(c, t));
		struct fal_ev_eval_key *k = &key[of->word[0].key - 1];
		bool twice = false;
		for (uint32_t i = 1; i < of->words; i++)
			twice |= of->word[i].key != of->word[0].key;
		k->tasks++;
		k->twice += twice;
		k->alone += of->asked && !twice;
	}
	const double n = c->conf.test_samples;
	c->evaluating = false;
	c->status.judged = c->kept_clock;
	c->status.accuracy = (double)right / n;
	c->status.accuracy_loss = known ? fal_loss_is(loss) / n : (double)NAN;
	for (uint32_t i = 0; i < c->keys; i++)
		if (key[i].tasks > 0)
			key[keys++] = key[i];
	const struct fal_ev_eval line = {
		.version = c->kept_version,
		.epoch = c->kept_clock / fal_grid_epoch_clocks(&c->conf.grid),
		.right = right,
		.total = c->conf.test_samples,
		.loss = c->status.accuracy_loss,
		.accuracy = c->status.accuracy,
		.keys = { key, keys },
	};
	coord_put(c, fal_coord_seconds(c, now), FAL_EV_EVAL, &line);
	free(key);
}

static void
hear(struct fal_coord *c, double now, const struct fal_peer *p, const struct fal_msg *m)
{
	struct fal_count *of = &c->eval.count[m->evaluated.task];
	struct fal_word *word = &of->word[of->words++];
	*word = (struct fal_word){ .worker = p->worker,
				   .key = p->key,
				   .right = m->evaluated.right,
				   .loss = m->evaluated.loss };
	memcpy(word->fingerprint, p->fingerprint, FAL_FINGERPRINT);
	if (of->words > 1)
		judge(c, now, m->evaluated.task);
	if (!fal_sched_eval_done(c->sched) || c->eval.drawn)
		return;
	c->eval.drawn = true;
	for (uint32_t key = 1; key <= c->keys; key++)
		draw_of(c, now, key);
}

int
coord_evaluated(struct fal_coord *c, double now, struct fal_peer *p,
		const struct fal_msg *m, struct fal_diag *diag)
{
	if (!c->evaluating || m->evaluated.version != c->kept_version)
		return FAL_OK;
	const uint32_t samples = samples_of(c, m->evaluated.task);
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
	if (counts == 1 && c->brought) {
		c->ops.evaluated(coord_call(c), m);
		coord_called(c);
	} else if (counts == 1) {
		hear(c, now, p, m);
	}
	if (fal_sched_eval_done(c->sched) && !c->brought)
		conclude(c, now);
	return FAL_OK;
}

/* ---- health ---------------------------------------------------------------------- */

/* Whether the job learns: the mean loss of its epochs, and the last version of which that
 * could be said.  falcon-job(5) has the rule of divergence. */

/* A job has diverged whose epoch has so many times the mean loss of guessing. */
enum { FAR = 3 };

void
coord_keep(struct fal_coord *c, uint64_t version, uint64_t over)
{
	const struct fal_shard_order o = { .kind = FAL_ORDER_HOLD, .version = version };
	if (c->kept_clock == over && c->kept_version == version)
		return;
	c->kept_version = version;
	c->kept_clock = over;
	c->judged = false;
	coord_order(c, &o);
}

static int
compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* The counts of the clock's epoch, which has begun with this call; NULL: the epoch is
 * over. */
static struct fal_health_epoch *
epoch_at(struct fal_coord *c, uint64_t clock)
{
	struct fal_health *h = &c->health;
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
	h->epoch[i] = (struct fal_health_epoch){ .epoch = epoch };
	return &h->epoch[i];
}

void
coord_health_count(struct fal_coord *c, uint64_t clock, double loss, uint64_t samples)
{
	struct fal_health_epoch *e = epoch_at(c, clock);
	if (e == NULL)
		return;
	e->loss += loss;
	e->samples += samples;
}

void
coord_health_skip(struct fal_coord *c, uint64_t clock, uint64_t tasks)
{
	struct fal_health_epoch *e = tasks > 0 ? epoch_at(c, clock) : NULL;
	if (e != NULL)
		e->skipped += tasks;
}

void
coord_health_claim(struct fal_coord *c, uint64_t clock, uint32_t key, int64_t loss,
		   uint32_t samples)
{
	struct fal_health_epoch *e = epoch_at(c, clock);
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

struct fal_health_epoch
coord_health_under_way(const struct fal_coord *c)
{
	static const struct fal_health_epoch none;
	const struct fal_health *h = &c->health;
	const bool any = h->epochs > 0 && h->epoch[0].epoch == c->status.epoch + 1;
	return any ? h->epoch[0] : none;
}

/* The median, by key, of the mean losses that workers have had in the epoch so far, so
 * that one that lies neither ends a job nor keeps it from ending; of two keys the lower.
 * A loss that is not known, as a trainer may not say one, tells of nothing; but where a
 * key has no other they are all too large, or were none at first either. */
static double
median(struct fal_coord *c, const struct fal_health_epoch *e)
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
	qsort(v, n, sizeof(*v), compare);
	return v[(n - 1) / 2];
}

/* Is there none of its tasks that was not skipped?  What was dropped before it was done
 * may have had a result. */
static bool
all_skipped(const struct fal_coord *c, const struct fal_health_epoch *e)
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
judge_epoch(struct fal_coord *c)
{
	const struct fal_health_epoch e = coord_health_under_way(c);
	struct fal_health *h = &c->health;
	const bool none = all_skipped(c, &e);
	c->status.epoch++;
	if (e.samples > 0)
		c->status.epoch_loss = e.loss / (double)e.samples;
	h->loss[c->status.epoch % HEALTH_LOSSES] = c->status.epoch_loss;
	if (none)
		c->why = "diverged: no task of an epoch has a finite gradient";
	else if (c->conf.guess > 0 && median(c, &e) > FAR * h->start)
		c->why = "diverged: the mean loss of an epoch is far above that of "
			 "guessing";
	if (e.epoch == 0)
		return;
	free(e.key);
	memmove(h->epoch, h->epoch + 1, --h->epochs * sizeof(*h->epoch));
}

/* Epochs whose counts are complete.  The clocks that another policy has left may be over
 * in another order than theirs, and in several updates. */
static uint64_t
ended(const struct fal_coord *c, uint32_t later)
{
	uint64_t over = fal_sched_over(c->sched);
	if (over > c->health.over)
		over = c->health.over;
	for (uint32_t i = later; i < c->mergeds; i++)
		if (!c->merged[i].own && c->merged[i].clock < over)
			over = c->merged[i].clock;
	return over / fal_grid_epoch_clocks(&c->conf.grid);
}

void
coord_health(struct fal_coord *c, uint64_t version, uint64_t over, uint32_t later)
{
	struct fal_health *h = &c->health;
	const uint64_t was = c->status.epoch;
	h->over = over > h->over ? over : h->over;
	if (h->start == 0)
		h->start =
			fmax(h->epochs > 0 ? median(c, &h->epoch[0]) : 0, c->conf.guess);
	while (c->why == NULL && c->status.epoch < ended(c, later))
		judge_epoch(c);
	if (c->why == NULL && c->status.epoch > was && !c->evaluating)
		coord_keep(c, version, over);
}

void
coord_health_become(struct fal_coord *c, double start)
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
	*out = (struct fal_coord_left){ c->kept_version, c->kept_clock,
					c->why == c->trainer.why };
	return c->kept_clock != 0;
}

bool
fal_coord_newest(const struct fal_coord *c, struct fal_coord_left *out)
{
	coord_enter(c);
	*out = (struct fal_coord_left){ c->published, c->stepped, false };
	return c->published != 0;
}

/* ---- verify ---------------------------------------------------------------------- */

/* Claims that another key computes once more: job.verify.
 *
 * A claim is drawn, when it has come, from what nobody else knows.  The scheduler asks a
 * worker of another key whose numerics are the same, and the round does not wait.  Unlike
 * results are told to the trace and the log; nothing is made again, and no key is
 * charged: falcon-stat --recompute tells which of the two is wrong. */

uint32_t
coord_numerics_of(const struct fal_coord *c, const uint8_t fp[static FAL_FINGERPRINT])
{
	uint32_t i = 0;
	while (i < c->workers &&
	       memcmp(c->known[i].fingerprint, fp, FAL_FINGERPRINT) != 0)
		i++;
	return coord_is_pure(fp) ? i + 1 : 0;
}

bool
coord_verify_draw(struct fal_coord *c, const struct fal_peer *p, uint64_t round)
{
	struct fal_round_info r;
	if (c->conf.verify <= 0 || !coord_is_pure(p->fingerprint) ||
	    !fal_sched_round(c->sched, round, &r) || r.delta)
		return false;
	return (double)fal_rng_unit(&c->rng) < c->conf.verify;
}

void
coord_verify_checked(struct fal_coord *c, double now, const struct fal_peer *p,
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
	const struct fal_known_worker *w = coord_known(c, of.id.worker);
	const uint64_t id[] = { of.id.worker, of.id.seq };
	char hex[2][2 * FAL_CLAIM_HASH + 1];
	const struct fal_ev_word word[] = { { w->name, of.id.worker, hex[0] },
					    { p->name, p->worker, hex[1] } };
	fal_hex(of.hash, FAL_CLAIM_HASH, hex[0]);
	fal_hex(m->checked.hash, FAL_CLAIM_HASH, hex[1]);
	const struct fal_coord_unlike unlike = {
		.clock = r.clock,
		.task = of.task,
		.name = { w->name, p->name },
		.key = { c->key[w->key - 1].is.name, c->key[p->key - 1].is.name },
	};
	coord_put(c, fal_coord_seconds(c, now), FAL_EV_VERIFY,
		  &(struct fal_ev_verify){
			  of.round, r.clock, of.task, { id, 2 }, { word, 2 } });
	if (c->conf.verify_stop && c->why == NULL)
		c->why = "two keys have unlike results of a task (verify.stop)";
	if (c->ops.unlike == NULL)
		return;
	c->ops.unlike(coord_call(c), &unlike);
	coord_called(c);
}
