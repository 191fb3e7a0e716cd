/* Evaluations: what one key says of the test set, another one confirms.
 *
 * When all test tasks are counted, the coordinator draws a part of them, which is run
 * once more by other keys: nobody can know before which it will be.  Two counts that
 * differ are decided by a third key, or, where there is none, by the one that stands
 * first in the keyring; what was refuted of a key is run again by others in all that
 * nobody has confirmed.  Equal fingerprints count the same; others nearly. */
#include "coord/priv.h"

#include "base/loss.h"
#include "base/mem.h"
#include "base/text.h"

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

int
coord_eval_begin(struct fal_coord *c, double now)
{
	struct fal_evaluation *e = &c->eval;
	const uint32_t task = c->conf.grid.task;
	e->tasks = (c->conf.test_samples + task - 1) / task;
	e->drawn = false;
	if (FAL_GROW(e->count, e->cap, e->tasks) < 0)
		return FAL_ENOMEM;
	memset(e->count, 0, e->tasks * sizeof(*e->count));
	return fal_sched_eval(c->sched, now, e->tasks);
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

static uint32_t
place_of(const struct fal_coord *c, uint32_t key)
{
	return c->key[key - 1].place;
}

/* The word that counts comes first. */
static void
prefer(struct fal_count *of, uint32_t at)
{
	const struct fal_word word = of->word[at];
	of->word[at] = of->word[0];
	of->word[0] = word;
}

static int
ask_again(struct fal_coord *c, double now, uint32_t task)
{
	c->eval.count[task].asked = true;
	if (!fal_sched_eval_can_repeat(c->sched, task))
		return 0;
	fal_sched_eval_again(c->sched, now, task);
	return 1;
}

/* Test tasks that no other key has confirmed are evaluated again. */
static int
repeat_unconfirmed(struct fal_coord *c, double now, uint32_t key)
{
	int err = FAL_OK;
	for (uint32_t t = 0; t < c->eval.tasks && err >= 0; t++) {
		const struct fal_count *of = &c->eval.count[t];
		if (of->words == 1 && of->word[0].key == key)
			err = ask_again(c, now, t);
	}
	return err < 0 ? err : FAL_OK;
}

/* Two words differ, and there is no third. */
static int
first_in_keyring(struct fal_coord *c, double now, struct fal_count *of)
{
	uint32_t best = 0;
	for (uint32_t i = 1; i < of->words; i++)
		if (place_of(c, of->word[i].key) < place_of(c, of->word[best].key))
			best = i;
	prefer(of, best);
	int err = FAL_OK;
	for (uint32_t i = 1; i < of->words && err == FAL_OK; i++)
		if (of->word[i].key != of->word[0].key)
			err = repeat_unconfirmed(c, now, of->word[i].key);
	return err;
}

static int
refute(struct fal_coord *c, double now, const struct fal_word *liar)
{
	int err = repeat_unconfirmed(c, now, liar->key);
	if (err < 0)
		return err;
	fal_sched_charge(c->sched, liar->worker, "it evaluated otherwise than others");
	return FAL_OK;
}

/* There is more than one word on the task. */
static int
judge(struct fal_coord *c, double now, uint32_t task)
{
	struct fal_count *of = &c->eval.count[task];
	const uint32_t n = samples_of(c, task);
	struct fal_word *w = of->word;
	if (of->words == 2) {
		if (agree(&w[0], &w[1], n))
			return FAL_OK;
		int asked = ask_again(c, now, task);
		return asked == 0 ? first_in_keyring(c, now, of)
				  : (asked < 0 ? asked : FAL_OK);
	}
	for (uint32_t i = 0; i < 2; i++) {
		const struct fal_word liar = w[1 - i];
		/* Of one key two are one, unless there is no other. */
		const bool two = w[i].key != w[2].key || w[i].key == liar.key;
		if (two && agree(&w[i], &w[2], n)) {
			prefer(of, i);
			return refute(c, now, &liar);
		}
	}
	return first_in_keyring(c, now, of);
}

/* A part of what the key alone has said is run once more. */
static int
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
		int err = ask_again(c, now, t);
		if (err < 0)
			return err;
	}
	return FAL_OK;
}

static int
draw(struct fal_coord *c, double now)
{
	int err = FAL_OK;
	c->eval.drawn = true;
	for (uint32_t key = 1; key <= c->keys && err == FAL_OK; key++)
		err = draw_of(c, now, key);
	return err;
}

/* Whose words make the evaluation: counts the task for its key. */
static void
count_for(struct fal_ev_eval_key *key, const struct fal_count *of)
{
	bool twice = false;
	for (uint32_t i = 1; i < of->words; i++)
		twice |= of->word[i].key != of->word[0].key;
	struct fal_ev_eval_key *k = &key[of->word[0].key - 1];
	k->tasks++;
	k->twice += twice;
	k->alone += of->asked && !twice;
}

static int
conclude(struct fal_coord *c, double now)
{
	uint64_t right = 0;
	int64_t loss = 0;
	bool known = true;
	struct fal_ev_eval_key *key = fal_calloc(c->keys, sizeof(*key));
	uint32_t keys = 0;
	if (key == NULL)
		return FAL_ENOMEM;
	for (uint32_t i = 0; i < c->keys; i++)
		key[i].key = c->key[i].name;
	for (uint32_t t = 0; t < c->eval.tasks; t++) {
		right += c->eval.count[t].word[0].right;
		loss += c->eval.count[t].word[0].loss;
		known &= fal_loss_known(c->eval.count[t].word[0].loss, samples_of(c, t));
		count_for(key, &c->eval.count[t]);
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
	fal_trace_put(&c->line, fal_coord_seconds(c, now), FAL_EV_EVAL, &line);
	coord_trace(c);
	free(key);
	return FAL_OK;
}

static int
hear(struct fal_coord *c, double now, const struct fal_peer *p, const struct fal_msg *m)
{
	struct fal_count *of = &c->eval.count[m->evaluated.task];
	struct fal_word *word = &of->word[of->words++];
	*word = (struct fal_word){ .worker = p->worker,
				   .key = p->key,
				   .right = m->evaluated.right,
				   .loss = m->evaluated.loss };
	memcpy(word->fingerprint, p->fingerprint, FAL_FINGERPRINT);
	int err = of->words > 1 ? judge(c, now, m->evaluated.task) : FAL_OK;
	if (err == FAL_OK && fal_sched_eval_done(c->sched) && !c->eval.drawn)
		err = draw(c, now);
	return err;
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
	if (counts == 1 && c->brought)
		return coord_tell_evaluated(c, now, m);
	int err = counts == 1 ? hear(c, now, p, m) : FAL_OK;
	if (err == FAL_OK && fal_sched_eval_done(c->sched) && !c->brought)
		err = conclude(c, now);
	return err < 0 ? err : coord_advance(c, now);
}
