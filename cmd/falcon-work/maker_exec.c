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

#include <stdlib.h>
#include <string.h>

/* Its samples come first, as exec_job_fill has them. */
struct work {
	struct exec_samples samples;
	struct fal_ran *ran;
};

/* What one lane's task needs besides what its trainer has. */
struct bench {
	struct trainer *trainer;
	uint32_t *index, *label; /* [task] */
	struct work work;
	struct trainer_task task;
	/* State of the tries. */
	bool failed, nonfinite; /* the last one, as it said; one */
	unsigned failures;      /* in a row, of whatever task, without one that is made */
	/* Whether this start of the trainer computes as the first one did. */
	uint64_t proven; /* the start that does */
	unsigned others; /* starts with other bits, one after the other */
};

struct maker_exec {
	struct maker maker;
	struct fal_setup *setup;
	struct exec *exec;
	struct trainer_job job;
	struct bench *bench; /* by lane */
	/* The fixed task: the first of the job, on parameters that all workers make. */
	float *params;
	uint32_t *index, count;
	bool pure; /* false: not, or not probed yet */
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

static struct maker_need
need(struct maker *maker, uint64_t room)
{
	const struct maker_exec *m = of(maker);
	const uint64_t params = m->setup->model->params * sizeof(float);
	const uint64_t samples = m->maker.samples ? m->job.samples_bytes : 0;
	(void)room;
	/* Parameters and a gradient of each lane; the parameters of the fixed task. */
	return (struct maker_need){ .lanes = m->exec->lanes * (2 * params + samples) +
					     params };
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
	m->bench = fal_calloc(m->exec->lanes, sizeof(*m->bench));
	int err = m->bench != NULL ? fixed_task(m) : FAL_ENOMEM;
	for (uint32_t i = 0; i < m->exec->lanes && err == FAL_OK; i++) {
		struct bench *b = &m->bench[i];
		b->trainer = m->exec->trainer[i];
		b->index = fal_calloc(task, sizeof(*b->index));
		b->label = fal_calloc(task, sizeof(*b->label));
		if (b->index == NULL || b->label == NULL)
			err = FAL_ENOMEM;
	}
	for (uint32_t i = 0; i < m->exec->lanes && err == FAL_OK; i++)
		trainer_begin(m->exec->trainer[i], &m->job);
	return err;
}

/* Counts a try that came to nothing, unless it was cancelled. */
static void
count_failure(struct bench *b, enum trainer_end end)
{
	b->failures += end != TRAINER_CANCELLED;
}

/* FAL_EPERM where the lane's trainer was given up, or has failed too often: it was said.
 */
static int
judge_failures(struct maker_exec *m, uint32_t lane)
{
	struct bench *b = &m->bench[lane];
	if (trainer_failed(b->trainer))
		return FAL_EPERM;
	if (b->failures < MOST_FAILURES)
		return FAL_OK;
	if (b->failures++ == MOST_FAILURES)
		fal_cli_err(PROG,
			    "trainer %u: it failed %d times in a row; it is given up",
			    lane, MOST_FAILURES);
	return FAL_EPERM;
}

static void
exec_free(struct maker *maker)
{
	struct maker_exec *m = of(maker);
	/* Nobody is to come back to what goes. */
	for (uint32_t i = 0; i < m->exec->lanes; i++)
		trainer_forget(m->exec->trainer[i]);
	for (uint32_t i = 0; m->bench != NULL && i < m->exec->lanes; i++) {
		free(m->bench[i].index);
		free(m->bench[i].label);
	}
	free(m->bench);
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
take_fixed(void *arg, const struct trainer_made *made, const float *grads)
{
	const struct fixed *f = arg;
	(void)made;
	fal_hash(grads, f->setup->model->values * sizeof(*grads), f->bits);
	return FAL_OK;
}

/* Has the trainer's current process compute the fixed task, and hashes the gradient to
 * `bits`. */
static int
run_fixed(struct maker_exec *m, struct trainer *t, struct trainer_made *made,
	  uint8_t bits[static FAL_HASH_BYTES])
{
	struct fixed fixed = { m->setup, bits };
	const struct trainer_task task = {
		.line = { .id = fixed_id + ++m->ids,
			  .seed = fal_rng_task(m->setup->job.seed, 0, 0),
			  .count = m->count,
			  .index = m->index },
		.params = m->params,
		.serial = UINT64_MAX,
		.kind = 0,
		.fill = fill_fixed,
		.take = take_fixed,
		.arg = &fixed,
	};
	return trainer_do(t, &task, made);
}

/* Tries until the fixed task is made. */
static int
probe_once(struct maker_exec *m, uint32_t lane, struct trainer_made *made,
	   uint8_t bits[static FAL_HASH_BYTES])
{
	struct bench *b = &m->bench[lane];
	int err = FAL_OK;
	*made = (struct trainer_made){ .end = TRAINER_CANCELLED };
	while (err == FAL_OK && made->end != TRAINER_MADE) {
		b->proven = trainer_start(b->trainer, fixed_id);
		if (b->proven != 0)
			err = run_fixed(m, b->trainer, made, bits);
		else if (!trainer_failed(b->trainer))
			err = FAL_EIO;
		if (made->end != TRAINER_MADE)
			count_failure(b, made->end);
		err = err == FAL_OK ? judge_failures(m, lane) : err;
	}
	b->failures = 0;
	return err;
}

/* Twice by the first trainer, once by each other; the second time tells the speed. */
static int
probe(struct maker *maker, struct maker_probed *out)
{
	struct maker_exec *m = of(maker);
	uint8_t bits[FAL_HASH_BYTES];
	struct trainer_made made;
	int err = probe_once(m, 0, &made, m->bits);
	m->pure = !m->exec->hello.impure;
	for (uint32_t i = 0; i < m->exec->lanes && err == FAL_OK; i++) {
		out->lane = i;
		err = probe_once(m, i, &made, bits);
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
	return FAL_OK;
}

/* Compares this start's bits with the first ones.  The trainer starts again if they
 * differ.
 */
static int
compare(const struct maker_exec *m, uint32_t lane, uint64_t start,
	const uint8_t bits[static FAL_HASH_BYTES])
{
	struct bench *b = &m->bench[lane];
	if (memcmp(bits, m->bits, FAL_HASH_BYTES) == 0) {
		b->proven = start;
		b->others = 0;
		return FAL_OK;
	}
	if (++b->others < MOST_OTHERS) {
		trainer_fault(b->trainer, "its fixed task has other bits than before");
		return FAL_OK;
	}
	fal_cli_err(PROG, "trainer %u: started again, it computes otherwise than before",
		    lane);
	return FAL_EPERM;
}

/* Whether this start of the trainer computes as the first one did: its program may be
 * another one by now.  `*proven` stays false where it was lost, too. */
static int
prove(struct maker_exec *m, uint32_t lane, uint64_t start, bool *proven)
{
	struct bench *b = &m->bench[lane];
	uint8_t bits[FAL_HASH_BYTES];
	struct trainer_made made;
	int err = FAL_OK;
	if (!m->pure)
		b->proven = start; /* is as good as any */
	if (b->proven != start) {
		err = run_fixed(m, b->trainer, &made, bits);
		if (err == FAL_OK && made.end == TRAINER_MADE)
			err = compare(m, lane, start, bits);
		else
			count_failure(b, made.end);
	}
	*proven = b->proven == start;
	return err;
}

/* --- tasks -------------------------------------------------------------------------- */

static int
take(void *arg, const struct trainer_made *made, const float *grads)
{
	const struct work *w = arg;
	const struct fal_run_made of = { .grad = grads,
					 .packed = w->samples.setup->model,
					 .loss = made->loss,
					 .right = made->right };
	w->ran->task_ns = made->ns;
	return fal_run_finish(w->samples.job, &of, w->ran);
}

/* Has the bench ready for the task's first try. */
static void
prepare(const struct maker_exec *m, uint32_t lane, const struct fal_run_job *job,
	struct fal_ran *ran)
{
	struct bench *b = &m->bench[lane];
	const struct fal_run *r = &job->run;
	for (uint32_t i = 0; i < job->count; i++)
		b->index[i] = fal_order_at(job->batch.order, job->first + i);
	b->failed = b->nonfinite = false;
	b->work = (struct work){ { job, b->label, m->setup }, ran };
	b->task = (struct trainer_task){
		.line = { .id = job->id,
			  .clock = r->clock,
			  .version = r->version,
			  .seed = r->seed,
			  .task = r->task,
			  .count = job->count,
			  .index = b->index,
			  .eval = r->eval },
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
is_good(const struct bench *b)
{
	const struct fal_ran *ran = b->work.ran;
	if (ran->right > ran->samples) {
		trainer_fault(b->trainer, "more samples are right than there are");
		return false;
	}
	if (!ran->nonfinite || b->nonfinite)
		return true;
	/* It may be the trainer's alone. */
	trainer_fault(b->trainer, "its gradient is not finite");
	return false;
}

/* Whether a try that came to this was the last one. */
static bool
was_last(struct bench *b, enum trainer_end end)
{
	const struct fal_ran *ran = b->work.ran;
	b->failed = end == TRAINER_FAILED;
	if (end == TRAINER_MADE && is_good(b)) {
		b->failures = 0;
		return true;
	}
	if (end == TRAINER_MADE && ran->nonfinite)
		b->nonfinite = true;
	else
		count_failure(b, end);
	return end == TRAINER_CANCELLED;
}

static int
run(struct maker *maker, uint32_t lane, const struct fal_run_job *job,
    struct fal_ran *ran)
{
	struct maker_exec *m = of(maker);
	struct bench *b = &m->bench[lane];
	struct trainer_made made = { .end = TRAINER_CANCELLED };
	bool proven, over = false;
	int err = FAL_OK;
	prepare(m, lane, job, ran);
	while (!over && (err = judge_failures(m, lane)) == FAL_OK) {
		if (b->failed &&
		    !trainer_pause(b->trainer, job->id, PAUSE_NS << b->failures))
			break;
		b->failed = false;
		const uint64_t start = trainer_start(b->trainer, job->id);
		if (start == 0) {
			err = judge_failures(m, lane);
			break;
		}
		err = prove(m, lane, start, &proven);
		if (err == FAL_OK && proven)
			err = trainer_do(b->trainer, &b->task, &made);
		if (err < 0)
			break;
		over = proven && was_last(b, made.end);
	}
	if (!over || made.end == TRAINER_CANCELLED)
		*ran = (struct fal_ran){ .cancelled = true };
	return err;
}

static void
cancel(struct maker *maker, uint32_t lane, uint64_t id)
{
	trainer_cancel(of(maker)->exec->trainer[lane], id);
}

static uint64_t
steps(const struct maker *maker)
{
	const struct exec *e = ((const struct maker_exec *)maker)->exec;
	uint64_t n = 0;
	for (uint32_t i = 0; i < e->lanes; i++)
		n += trainer_steps(e->trainer[i]);
	return n;
}

static void
quit(struct maker *maker)
{
	const struct exec *e = of(maker)->exec;
	for (uint32_t i = 0; i < e->lanes; i++)
		trainer_quit(e->trainer[i]);
}

int
maker_exec_new(struct fal_setup *s, struct exec *e, struct maker **out,
	       struct fal_diag *diag)
{
	static const struct maker_ops ops = {
		.need = need,
		.start = start,
		.probe = probe,
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
	int err = exec_job_make(&m->job, m->setup);
	if (err < 0) {
		exec_free(&m->maker);
		return fal_diag_set(diag, err, "%s", fal_strerror(err));
	}
	*out = &m->maker;
	return FAL_OK;
}
