/* Gradients by trainers.
 *
 * What goes wrong in one costs the task that it has, which is tried again here until it
 * is done, or until the coordinator, whose deadline it misses, gives it to somebody else.
 */
#include "maker.h"

#include "base/mem.h"
#include "base/rng.h"
#include "base/text.h"
#include "exec.h"
#include "exec_job.h"
#include "sec/hash.h"
#include "sec/secret.h"
#include "work.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A gradient that a sum has its values from. */
struct lent {
	struct fal_loan loan;
	struct start *kept; /* where it is; NULL: it was not lent */
};

/* Its samples come first, as exec_job_fill has them. */
struct work {
	struct exec_samples samples;
	struct fal_ran *ran;
	struct lent *lent;
};

/* What one lane's task needs besides what its trainer has. */
struct bench {
	uint32_t *index, *label; /* [task] */
	struct lent lent[CHILD_TURNS];
	unsigned turn; /* of the task */
	struct work work;
	struct child_task task;
	/* Of its tries. */
	bool failed, nonfinite; /* the last one, as it said; one */
	unsigned failures;      /* in a row, of whatever task, without one that is made */
};

/* What is known of a trainer: whether this start of it computes as the first one did. */
struct proof {
	pthread_mutex_t mutex; /* who proves */
	uint64_t start;
	unsigned others; /* starts with other bits, one after the other */
};

struct maker_exec {
	struct maker maker;
	struct fal_setup *setup;
	struct exec *exec;
	struct child_job job;
	uint32_t slots;
	unsigned turns; /* of each */
	struct bench *bench;
	struct proof *proof;
	/* The fixed task: the first of the job, on parameters that all workers make. */
	float *params;
	uint32_t *index, count;
	bool probed, pure;
	uint8_t bits[FAL_HASH_BYTES];
	_Atomic uint64_t ids; /* of fixed tasks */
};

enum { MOST_FAILURES = 3, MOST_OTHERS = 3 };

static const uint64_t fixed_id = UINT64_C(1) << 48; /* those of lanes are below */

#define PAUSE_NS \
	UINT64_C(50000000) /* before a task that failed is tried again; doubled */

static struct maker_exec *
of(struct maker *maker)
{
	return (struct maker_exec *)maker;
}

/* What one turn of a slot takes. */
static uint64_t
turn_bytes(const struct maker_exec *m)
{
	return m->setup->model->params * sizeof(float) +
	       (m->maker.samples ? m->job.samples_bytes : 0);
}

static struct maker_need
need(struct maker *maker, uint64_t room)
{
	const struct maker_exec *m = of(maker);
	const uint64_t params = m->setup->model->params * sizeof(float);
	/* A place, and slots in turn. */
	const uint64_t each = params + m->turns * turn_bytes(m);
	(void)room;
	/* Of each child one more place; the parameters of the fixed task. */
	return (struct maker_need){ .lanes =
					    m->slots * each + (m->exec->n + 1) * params };
}

static int
fixed_task(struct maker_exec *m)
{
	struct fal_setup *s = m->setup;
	const struct fal_places p = fal_setup_places(s, 0, 0);
	struct fal_epoch *e = fal_setup_epoch(s, 0);
	m->params = fal_calloc_aligned(s->model->params, sizeof(float));
	m->index = fal_calloc(p.count, sizeof(*m->index));
	int err =
		e != NULL && m->params != NULL && m->index != NULL ? FAL_OK : FAL_ENOMEM;
	for (uint32_t i = 0; i < p.count && err == FAL_OK; i++)
		m->index[i] = fal_order_at(&e->order, p.first + i);
	m->count = p.count;
	fal_epoch_drop(e);
	if (err == FAL_OK)
		exec_job_params(s, m->params);
	return err;
}

static int
start(struct maker *maker)
{
	struct maker_exec *m = of(maker);
	const uint32_t task = m->setup->job.task;
	m->bench = fal_calloc(m->slots, sizeof(*m->bench));
	int err = m->bench != NULL ? fixed_task(m) : FAL_ENOMEM;
	for (uint32_t i = 0; i < m->slots && err == FAL_OK; i++) {
		struct bench *b = &m->bench[i];
		b->index = fal_calloc(task, sizeof(*b->index));
		b->label = fal_calloc(task, sizeof(*b->label));
		for (unsigned k = 0; k < m->turns; k++)
			b->lent[k].loan.soon = m->turns < CHILD_TURNS;
		if (b->index == NULL || b->label == NULL)
			err = FAL_ENOMEM;
	}
	for (uint32_t i = 0; i < m->exec->n && err == FAL_OK; i++)
		child_begin(m->exec->child[i], &m->job);
	return err;
}

/* What was lent is to be free for another task. */
static void
get_back(struct lent *l)
{
	if (l->loan.sum != NULL)
		fal_sum_own(l->loan.sum);
	child_drop(l->kept);
	l->kept = NULL;
}

static void
ready(struct maker *maker, uint32_t lane)
{
	const struct maker_exec *m = of(maker);
	struct bench *b = &m->bench[lane];
	b->turn = (b->turn + 1) % m->turns;
	for (unsigned k = 0; k < m->turns; k++)
		if (k == b->turn || b->lent[k].loan.sum == NULL)
			get_back(&b->lent[k]);
	b->failed = b->nonfinite = false;
}

/* A try on the lane came to nothing; one that the trainer could not begin with is none.
 */
static void
count_failure(struct bench *b, enum child_end end)
{
	b->failures += end != CHILD_UNSENT && end != CHILD_CANCELLED;
}

/* FAL_EPERM where the lane's trainer was given up, or has failed too often: it was said.
 */
static int
judge_failures(struct maker_exec *m, uint32_t lane)
{
	const struct exec_at at = exec_at(m->exec, lane);
	if (child_failed(at.child))
		return FAL_EPERM;
	if (m->bench[lane].failures < MOST_FAILURES)
		return FAL_OK;
	if (m->bench[lane].failures++ == MOST_FAILURES)
		fal_cli_err(PROG,
			    "trainer %u: it failed %d times in a row; it is given up",
			    at.number, MOST_FAILURES);
	return FAL_EPERM;
}

static void
exec_free(struct maker *maker)
{
	struct maker_exec *m = of(maker);
	for (uint32_t i = 0; m->bench != NULL && i < m->slots; i++)
		for (unsigned k = 0; k < CHILD_TURNS; k++)
			get_back(&m->bench[i].lent[k]);
	/* Nobody is to come back to what goes. */
	for (uint32_t i = 0; i < m->exec->n; i++)
		child_forget(m->exec->child[i]);
	for (uint32_t i = 0; m->bench != NULL && i < m->slots; i++) {
		free(m->bench[i].index);
		free(m->bench[i].label);
	}
	for (uint32_t i = 0; m->proof != NULL && i < m->exec->n; i++)
		pthread_mutex_destroy(&m->proof[i].mutex);
	free(m->bench);
	free(m->proof);
	free(m->params);
	free(m->index);
	exec_job_free(&m->job);
	free(m);
}

/* --- the fixed task ----------------------------------------------------------------- */

struct fixed {
	const struct fal_setup *setup;
	uint8_t *bits;
};

/* Made-up samples. */
static int
fill_fixed(void *arg, void *data)
{
	const struct fixed *f = arg;
	exec_job_made_up(f->setup, data);
	return FAL_OK;
}

static int
take_fixed(void *arg, const struct child_made *made, const float *grads)
{
	const struct fixed *f = arg;
	(void)made;
	fal_hash(grads, f->setup->model->values * sizeof(*grads), f->bits);
	return FAL_OK;
}

/* In this start of the trainer; its bits. */
static int
run_fixed(struct maker_exec *m, const struct exec_at *at, uint64_t start, unsigned turn,
	  struct child_made *made, uint8_t bits[static FAL_HASH_BYTES])
{
	struct fixed fixed = { m->setup, bits };
	const struct child_task task = {
		.line = { .id = fixed_id + ++m->ids,
			  .seed = fal_rng_task(m->setup->job.seed, 0, 0),
			  .slot = at->slot,
			  .count = m->count,
			  .index = m->index },
		.turn = turn,
		.params = m->params,
		.serial = UINT64_MAX,
		.kind = 0,
		.fill = fill_fixed,
		.take = take_fixed,
		.arg = &fixed,
		.start = start,
	};
	return child_do(at->child, &task, made);
}

/* Until it is made. */
static int
probe_once(struct maker_exec *m, uint32_t lane, unsigned turn, struct child_made *made,
	   uint8_t bits[static FAL_HASH_BYTES])
{
	const struct exec_at at = exec_at(m->exec, lane);
	int err = FAL_OK;
	*made = (struct child_made){ .end = CHILD_UNSENT };
	while (err == FAL_OK && made->end != CHILD_MADE) {
		const uint64_t start = child_start(at.child, at.slot, fixed_id);
		if (start != 0)
			err = run_fixed(m, &at, start, turn, made, bits);
		else if (!child_failed(at.child))
			err = FAL_EIO;
		m->proof[at.number].start = start;
		if (made->end != CHILD_MADE)
			count_failure(&m->bench[lane], made->end);
		err = err == FAL_OK ? judge_failures(m, lane) : err;
	}
	m->bench[lane].failures = 0;
	return err;
}

/* Twice by the first trainer, in two of its slots, once by each other; the second time
 * tells the speed. */
static int
probe(struct maker *maker, struct maker_probed *out)
{
	struct maker_exec *m = of(maker);
	uint8_t bits[FAL_HASH_BYTES];
	struct child_made made;
	int err = probe_once(m, 0, 0, &made, m->bits);
	m->pure = !m->exec->hello.impure;
	for (uint32_t i = 0; i < m->exec->n && err == FAL_OK; i++) {
		out->lane = i;
		err = probe_once(m, i, 1, &made, bits);
		if (i == 0)
			out->task_ns = made.ns;
		m->pure = m->pure && memcmp(bits, m->bits, sizeof(bits)) == 0;
	}
	if (err < 0)
		return err;
	memcpy(out->fingerprint, m->bits, FAL_FINGERPRINT);
	const char *about = m->exec->hello.about;
	snprintf(out->kernels, sizeof(out->kernels), "trainer %.*s",
		 (int)fal_text_cut(about, 50), about);
	if (!m->maker.samples)
		memcpy(out->data, m->exec->hello.data, FAL_DATA_HASH);
	if (!m->pure) {
		/* That of nobody else: falcon-protocol(7), READY. */
		memset(out->fingerprint, 0, FAL_FINGERPRINT);
		fal_random_bytes(out->fingerprint + 8, FAL_FINGERPRINT - 8);
		fal_cli_err(PROG,
			    "the trainer is impure%s; "
			    "the final model will not be the same each time",
			    m->exec->hello.impure ? ", as it says itself"
						  : ": the same task gives other bits");
	}
	m->probed = true;
	return FAL_OK;
}

/* The bits that this start gave are those of before, or it is not the one to go on with.
 */
static int
compare(const struct maker_exec *m, struct proof *p, const struct exec_at *at,
	uint64_t start, const uint8_t bits[static FAL_HASH_BYTES])
{
	if (memcmp(bits, m->bits, FAL_HASH_BYTES) == 0) {
		p->start = start;
		p->others = 0;
		return FAL_OK;
	}
	if (++p->others < MOST_OTHERS) {
		child_fault(at->child, start,
			    "its fixed task has other bits than before");
		return FAL_OK;
	}
	fal_cli_err(PROG, "trainer %u: started again, it computes otherwise than before",
		    at->number);
	return FAL_EPERM;
}

/* Whether this start of the trainer computes as the first one did: its program may be
 * another one by now.  `*proven` stays false where it was lost, too. */
static int
prove(struct maker_exec *m, uint32_t lane, uint64_t start, bool *proven)
{
	const struct exec_at at = exec_at(m->exec, lane);
	struct proof *p = &m->proof[at.number];
	struct bench *b = &m->bench[lane];
	uint8_t bits[FAL_HASH_BYTES];
	struct child_made made;
	int err = FAL_OK;
	*proven = !m->probed;
	if (*proven)
		return FAL_OK;
	pthread_mutex_lock(&p->mutex);
	if (!m->pure)
		p->start = start; /* is as good as any */
	if (p->start != start) {
		err = run_fixed(m, &at, start, b->turn, &made, bits);
		if (err == FAL_OK && made.end == CHILD_MADE)
			err = compare(m, p, &at, start, bits);
		else
			count_failure(b, made.end);
	}
	*proven = p->start == start;
	pthread_mutex_unlock(&p->mutex);
	return err;
}

/* --- tasks -------------------------------------------------------------------------- */

static int
take(void *arg, const struct child_made *made, const float *grads)
{
	const struct work *w = arg;
	const struct fal_run_made of = { .grad = grads,
					 .packed = w->samples.setup->model,
					 .loan = &w->lent->loan,
					 .loss = made->loss,
					 .right = made->right };
	w->ran->task_ns = made->ns;
	int err = fal_run_finish(w->samples.job, &of, w->ran);
	return err == FAL_OK && w->lent->loan.sum != NULL ? CHILD_KEEPS : err;
}

/* Has the bench ready for the task's first try. */
static void
prepare(const struct maker_exec *m, uint32_t lane, const struct fal_run_job *job)
{
	struct bench *b = &m->bench[lane];
	const struct fal_run *r = &job->run;
	for (uint32_t i = 0; i < job->count; i++)
		b->index[i] = fal_order_at(job->batch.order, job->first + i);
	b->work = (struct work){ .samples = { job, b->label, m->setup },
				 .lent = &b->lent[b->turn] };
	b->task = (struct child_task){
		.line = { .id = job->id,
			  .clock = r->clock,
			  .version = r->version,
			  .seed = r->seed,
			  .task = r->task,
			  .slot = exec_at(m->exec, lane).slot,
			  .count = job->count,
			  .index = b->index,
			  .eval = r->eval },
		.turn = b->turn,
		.params = r->params,
		.serial = r->serial,
		.kind = (unsigned)r->eval * 2 + (job->count < m->setup->job.task),
		.fill = exec_job_fill,
		.take = take,
		.arg = &b->work,
	};
}

/* Whether what was made is believed; else it is to be tried again. */
static bool
is_good(const struct exec_at *at, const struct child_task *task,
	const struct fal_ran *ran, bool again)
{
	const uint64_t start = task->start;
	struct fal_diag why, what;
	if (ran->right > ran->samples) {
		child_fault(at->child, start, "more samples are right than there are");
		return false;
	}
	if (!ran->nonfinite || again)
		return true;
	/* It may be the trainer's alone. */
	fal_diag_set(&why, FAL_ENONFINITE, "its gradient is not finite");
	if (ran->room > 0) {
		fal_run_say_large(ran->most, ran->room, task->line.version, &what);
		fal_diag_set(&why, FAL_ENONFINITE,
			     "its %.300s: scale the data or the loss", what.text);
	}
	child_fault(at->child, start, why.text);
	return false;
}

/* Whether a try that came to this was the last one. */
static bool
was_last(struct bench *b, const struct exec_at *at, const struct child_made *made)
{
	struct lent *lent = b->work.lent;
	struct fal_ran *ran = b->work.ran;
	lent->kept = made->kept;
	b->failed = made->end == CHILD_FAILED;
	if (made->end == CHILD_CANCELLED)
		*ran = (struct fal_ran){ .cancelled = true };
	if (made->end == CHILD_MADE && is_good(at, &b->task, ran, b->nonfinite)) {
		b->failures = 0;
		return true;
	}
	if (made->end != CHILD_MADE || !ran->nonfinite)
		count_failure(b, made->end);
	if (made->end != CHILD_MADE)
		return made->end == CHILD_CANCELLED;
	get_back(lent);
	b->nonfinite |= ran->nonfinite;
	return false;
}

static int
run(struct maker *maker, uint32_t lane, const struct fal_run_job *job,
    struct fal_ran *ran)
{
	struct maker_exec *m = of(maker);
	const struct exec_at at = exec_at(m->exec, lane);
	struct bench *b = &m->bench[lane];
	struct child_made made;
	bool proven;
	int err = FAL_OK;
	prepare(m, lane, job);
	b->work.ran = ran;
	assert(job->run.eval ||
	       (b->work.lent->kept == NULL && b->work.lent->loan.sum == NULL));
	while (err == FAL_OK && (err = judge_failures(m, lane)) == FAL_OK) {
		if (b->failed &&
		    !child_pause(at.child, at.slot, job->id, PAUSE_NS << b->failures))
			break;
		b->failed = false;
		b->task.start = child_start(at.child, at.slot, job->id);
		if (b->task.start == 0) {
			err = judge_failures(m, lane);
			break;
		}
		err = prove(m, lane, b->task.start, &proven);
		if (err < 0 || !proven)
			continue;
		err = child_do(at.child, &b->task, &made);
		if (err == FAL_OK && was_last(b, &at, &made))
			return FAL_OK;
	}
	*ran = (struct fal_ran){ .cancelled = true };
	return err;
}

static void
cancel(struct maker *maker, uint32_t lane, uint64_t id)
{
	const struct exec_at at = exec_at(of(maker)->exec, lane);
	child_cancel(at.child, at.slot, id);
}

static uint64_t
steps(const struct maker *maker)
{
	const struct exec *e = ((const struct maker_exec *)maker)->exec;
	uint64_t n = 0;
	for (uint32_t i = 0; i < e->n; i++)
		n += child_steps(e->child[i]);
	return n;
}

static void
quit(struct maker *maker)
{
	const struct exec *e = of(maker)->exec;
	for (uint32_t i = 0; i < e->n; i++)
		child_quit(e->child[i]);
}

int
maker_exec_new(struct fal_setup *s, struct exec *e, struct maker **out,
	       struct fal_diag *diag)
{
	static const struct maker_ops ops = {
		.need = need,
		.start = start,
		.probe = probe,
		.ready = ready,
		.run = run,
		.cancel = cancel,
		.steps = steps,
		.quit = quit,
		.free = exec_free,
	};
	struct maker_exec *m = fal_calloc(1, sizeof(*m));
	if (m == NULL)
		return fal_diag_set(diag, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
	struct fal_diag why;
	if (exec_job_agrees(s, &e->hello, &why) < 0) {
		free(m);
		return fal_diag_set(diag, FAL_EINVAL, "%s: %s", s->job.name, why.text);
	}
	m->maker = (struct maker){ &ops, .samples = e->hello.samples };
	m->setup = s;
	m->exec = e;
	m->slots = exec_slots(e);
	m->proof = fal_calloc(e->n, sizeof(*m->proof));
	for (uint32_t i = 0; m->proof != NULL && i < e->n; i++)
		pthread_mutex_init(&m->proof[i].mutex, NULL);
	int err = m->proof != NULL ? exec_job_make(&m->job, m->setup) : FAL_ENOMEM;
	if (err < 0) {
		exec_free(&m->maker);
		return fal_diag_set(diag, err, "%s", fal_strerror(err));
	}
	/* Three, as a gradient waits in its slot to be added with the next one
	 * (fal_sum_take), while that waits for its verdict, and the one after that is
	 * made.  Of a large model that is more memory than it is worth: its gradients are
	 * added at once, and two are enough. */
	m->turns = turn_bytes(m) > (UINT64_C(4) << 20) ? 2 : CHILD_TURNS;
	*out = &m->maker;
	return FAL_OK;
}
