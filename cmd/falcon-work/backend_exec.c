/* Gradients by trainers: the trainers, the job as they are told, and the job's tasks.
 *
 * A fault of a trainer costs the task that the trainer has.  The task is tried again here
 * until it is done, or until the coordinator, whose deadline the task misses, gives it to
 * another worker. */
#include "backend_exec.h"

#include "base/mem.h"
#include "base/parse.h"
#include "base/rng.h"
#include "base/text.h"
#include "crypto/hash.h"
#include "crypto/secret.h"
#include "model/safetensors.h"
#include "work.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- the trainers ------------------------------------------------------------------- */

int
exec_open(const struct trainer_conf *conf, uint32_t lanes, struct exec **out,
	  struct fal_diag *diag)
{
	struct trainer_conf one = *conf;
	struct exec *e = fal_xcalloc(1, sizeof(*e));
	e->trainer = fal_xcalloc(lanes, sizeof(struct trainer *));
	int err = FAL_OK;
	for (one.number = 0; one.number < lanes && err == FAL_OK; one.number++) {
		err = trainer_new(&one, &e->trainer[one.number]);
		e->lanes += err == FAL_OK;
	}
	if (err < 0)
		fal_diag_set(diag, err, "%s: %s", conf->command, fal_strerror(err));
	for (uint32_t i = 0; i < e->lanes && err == FAL_OK; i++) {
		struct fal_grad_hello hello;
		err = trainer_greet(e->trainer[i], &hello, diag);
		if (i == 0)
			e->hello = hello;
		else if (err == FAL_OK && !fal_grad_alike(&e->hello, &hello))
			err = fal_diag_set(diag, FAL_EIO,
					   "%s: trainers say different things",
					   conf->command);
	}
	if (err < 0)
		exec_close(e);
	else
		*out = e;
	return err;
}

void
exec_close(struct exec *e)
{
	if (e == NULL)
		return;
	for (uint32_t i = 0; i < e->lanes; i++) /* all at the same time */
		trainer_close_input(e->trainer[i]);
	for (uint32_t i = 0; i < e->lanes; i++)
		trainer_free(e->trainer[i]);
	free(e->trainer);
	free(e);
}

/* --- the job ------------------------------------------------------------------------ */

/* How samples lie in memory: first what is I64, so that both are aligned. */
struct layout {
	bool text, whole, targets; /* x and y are windows; x is I64; y is F32 */
	uint32_t y_each, x_each;
	uint64_t y, x;       /* bytes of a full task */
	uint64_t y_at, x_at; /* where they begin */
};

static struct layout
layout_of(const struct fal_setup *s)
{
	const struct fal_part *part = &s->manifest.train;
	struct layout l = { .text = s->job.format == FAL_JOB_FORMAT_TEXT };
	l.whole = l.text || (fal_dtype_is_whole(part->dtype) && part->dtype != FAL_U8);
	l.y_each = l.text ? s->job.window : 1;
	l.x_each = l.text ? s->job.window : part->values;
	l.targets = part->targets;
	l.y = (l.targets ? 4 : 8) * (uint64_t)s->job.task * l.y_each;
	l.x = (l.whole ? 8 : 4) * (uint64_t)s->job.task * l.x_each;
	l.y_at = l.targets ? l.x : 0;
	l.x_at = l.targets ? 0 : l.y;
	return l;
}

/* The two tensors of samples; a vector has no more dimensions than that. */
static void
samples_header(const struct fal_setup *s, struct fal_buf *out)
{
	const struct fal_part *part = &s->manifest.train;
	const struct layout l = layout_of(s);
	fal_put_fmt(out, "{\"y\":{\"dtype\":\"%s\",\"shape\":[%u",
		    l.targets ? "F32" : "I64", s->job.task);
	if (l.text)
		fal_put_fmt(out, ",%u", l.y_each);
	fal_put_fmt(out,
		    "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]},"
		    "\"x\":{\"dtype\":\"%s\",\"shape\":[%u,",
		    l.y_at, l.y_at + l.y, l.whole ? "I64" : "F32", s->job.task);
	if (part->shape[0] == 1 && part->shape[1] == 1)
		fal_put_fmt(out, "%u", l.x_each);
	else
		fal_put_fmt(out, "%u,%u,%u", part->shape[0], part->shape[1],
			    part->shape[2]);
	fal_put_fmt(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}}", l.x_at,
		    l.x_at + l.x);
}

void
exec_job_make(struct trainer_job *j, const struct fal_setup *s)
{
	*j = (struct trainer_job){ 0 };
	j->job = (struct fal_grad_job){ .name = s->job.name,
					.decay = s->job.optim.weight_decay > 0,
					.seed = s->job.seed,
					.task = s->job.task,
					.batch = s->job.batch,
					.train = s->manifest.train.n,
					.test = s->manifest.test.n };
	j->model = s->model;
	j->params_bytes = s->model->values * sizeof(float);
	const struct layout l = layout_of(s);
	j->samples_bytes = l.y + l.x;
	const struct fal_optim *o = &s->job.optim;
	j->buffer = fal_xcalloc(s->model->tensors, sizeof(*j->buffer));
	j->job.buffer = j->buffer;
	for (uint32_t i = 0; i < s->model->tensors; i++) {
		struct fal_tensor *t = &s->model->tensor[i];
		/* Running statistics, though they be frozen. */
		if (fal_job_buffers(&s->job, t->name))
			j->buffer[j->job.buffers++] = t->name;
		/* Tensors that the job's keys freeze are marked in the model, too. */
		for (uint32_t k = 0; k < o->ranges; k++)
			t->frozen |= o->range[k].rule == FAL_RANGE_FROZEN &&
				     t->offset - o->range[k].first < o->range[k].count;
	}
	samples_header(s, &j->samples);
	if (fal_safetensors_header(s->model, &j->params) < 0 || j->samples.err < 0)
		fal_out_of_memory();
}

void
exec_job_free(struct trainer_job *j)
{
	fal_buf_free(&j->params);
	fal_buf_free(&j->samples);
	free(j->buffer);
}

static int
samples_differ(uint32_t its, uint32_t n, const char *kind, struct fal_diag *diag)
{
	return fal_diag_set(diag, FAL_EINVAL,
			    "the trainer has %u %s sample%s, the job %u", its, kind,
			    fal_text_s(its), n);
}

int
exec_job_agrees(const struct fal_setup *s, const struct fal_grad_hello *h,
		struct fal_diag *diag)
{
	static const uint8_t none[FAL_GRAD_DATA];
	const uint32_t train = s->manifest.train.n, test = s->manifest.test.n;
	const char *want = s->job.data_hash;
	char hex[2 * FAL_GRAD_DATA + 1];
	if (h->samples && s->job.format == FAL_JOB_FORMAT_INDEX)
		return fal_diag_set(diag, FAL_EINVAL,
				    "the trainer asks for samples, but data.format = "
				    "index has none");
	if (h->train != 0 && h->train != train)
		return samples_differ(h->train, train, "training", diag);
	if (h->test != 0 && test != 0 && h->test != test)
		return samples_differ(h->test, test, "test", diag);
	if (want == NULL || h->samples)
		return FAL_OK;
	if (memcmp(h->data, none, sizeof(none)) == 0)
		return fal_diag_set(diag, FAL_EINVAL,
				    "the trainer says no hash of its data, the job "
				    "asks for %s",
				    want);
	fal_hex(h->data, FAL_GRAD_DATA, hex);
	if (strcmp(hex, want) != 0)
		return fal_diag_set(diag, FAL_EINVAL,
				    "the trainer has the data %s, the job's are %s", hex,
				    want);
	return FAL_OK;
}

void
exec_job_params(const struct fal_setup *s, float *params)
{
	struct fal_rng r = fal_rng_init(s->job.seed, FAL_RNG_TEST, 1);
	if (s->model->layers > 0)
		fal_model_init(s->model, s->job.seed, params);
	for (uint32_t i = 0; s->model->layers == 0 && i < s->model->tensors; i++) {
		const struct fal_tensor *t = &s->model->tensor[i];
		for (uint64_t k = 0; k < t->count; k++)
			params[t->offset + k] = (fal_rng_unit(&r) - 0.5f) / 8;
	}
}

/* Windows, and beside each byte the next one. */
static int
fill_text(const struct fal_run_job *job, uint32_t window, int64_t *y, int64_t *x)
{
	const struct fal_batch *b = &job->batch;
	for (uint32_t i = 0; i < job->count; i++) {
		const uint32_t id = fal_order_at(b->order, job->first + i);
		uint32_t none;
		const uint8_t *row = fal_samples_row(b->samples, id, &none);
		if (row == NULL)
			return FAL_ENOENT;
		for (uint32_t k = 0; k < window; k++) {
			*x++ = row[k];
			*y++ = row[k + 1];
		}
	}
	return FAL_OK;
}

int
exec_job_fill(const struct fal_setup *s, const struct fal_run_job *j, uint32_t *label,
	      void *data)
{
	const struct layout l = layout_of(s);
	void *x = (uint8_t *)data + l.x_at, *at = (uint8_t *)data + l.y_at;
	int64_t *y = at;
	if (l.text)
		return fill_text(j, l.y_each, y, x);
	int err = l.whole ? fal_batch_whole(&j->batch, j->first, j->count, x, label)
			  : fal_batch_fill(&j->batch, j->first, j->count, x, label);
	if (l.targets && err == FAL_OK)
		memcpy(at, label, j->count * sizeof(float));
	for (uint32_t i = 0; i < j->count && err == FAL_OK && !l.targets; i++)
		y[i] = label[i];
	return err;
}

/* Fills memory with samples that are the same everywhere, and made up. */
static void
made_up_samples(const struct fal_setup *s, void *data)
{
	const struct layout l = layout_of(s);
	const uint32_t task = s->job.task;
	struct fal_rng r = fal_rng_init(s->job.seed, FAL_RNG_TEST, 0);
	void *x_at = (uint8_t *)data + l.x_at, *y_at = (uint8_t *)data + l.y_at;
	int64_t *y = y_at, *whole = x_at;
	float *x = x_at, *target = y_at;
	for (uint64_t i = 0; i < (uint64_t)task * l.x_each; i++)
		if (l.text) /* of letters that every text has */
			whole[i] = 'a' + (int64_t)fal_rng_below(&r, 26);
		else if (l.whole)
			whole[i] = fal_rng_below(&r, 2);
		else
			x[i] = fal_rng_unit(&r);
	for (uint64_t i = 0; i < task && l.targets; i++)
		target[i] = fal_rng_unit(&r);
	for (uint64_t i = 0; i < (uint64_t)task * l.y_each && !l.targets; i++)
		y[i] = l.text ? 'a' + (int64_t)fal_rng_below(&r, 26)
			      : (int64_t)fal_rng_below(&r, s->manifest.train.classes);
}

/* --- the maker ---------------------------------------------------------------------- */

/* The means of one lane's task beside those of its trainer. */
struct bench {
	struct trainer *trainer;
	uint32_t *index, *label; /* [task] */
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
start(struct maker *maker)
{
	struct maker_exec *m = of(maker);
	const uint32_t task = m->setup->job.task;
	m->bench = fal_xcalloc(m->exec->lanes, sizeof(*m->bench));
	for (uint32_t i = 0; i < m->exec->lanes; i++) {
		struct bench *b = &m->bench[i];
		b->trainer = m->exec->trainer[i];
		b->index = fal_xcalloc(task, sizeof(*b->index));
		b->label = fal_xcalloc(task, sizeof(*b->label));
		trainer_begin(b->trainer, &m->job);
	}
	struct fal_setup *s = m->setup;
	const struct fal_places p = fal_setup_places(s, 0, 0);
	m->params = fal_calloc_aligned(s->model->params, sizeof(float));
	if (m->params == NULL)
		return FAL_ENOMEM;
	exec_job_params(s, m->params);
	struct fal_epoch *e = fal_setup_epoch(s, 0);
	m->index = fal_xcalloc(p.count, sizeof(*m->index));
	m->count = p.count;
	for (uint32_t i = 0; i < p.count; i++)
		m->index[i] = fal_order_at(&e->order, p.first + i);
	fal_epoch_drop(e);
	return FAL_OK;
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
maker_exec_free(struct maker *maker)
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

/* Has the trainer's current process compute the fixed task, of made-up samples, and
 * hashes the gradient to `bits`. */
static void
run_fixed(struct maker_exec *m, struct trainer *t, struct trainer_made *made,
	  uint8_t bits[static FAL_HASH_BYTES])
{
	const struct trainer_task task = {
		.line = { .id = fixed_id + ++m->ids,
			  .seed = fal_rng_task(m->setup->job.seed, 0, 0),
			  .count = m->count,
			  .index = m->index },
		.params = m->params,
		.serial = UINT64_MAX,
	};
	void *samples = trainer_samples(t);
	if (samples != NULL)
		made_up_samples(m->setup, samples);
	trainer_do(t, &task, made);
	if (made->end == TRAINER_MADE)
		fal_hash(trainer_grads(t), m->setup->model->values * sizeof(float), bits);
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
			run_fixed(m, b->trainer, made, bits);
		else if (!trainer_failed(b->trainer))
			err = FAL_EIO;
		if (made->end != TRAINER_MADE)
			b->failures += made->end != TRAINER_CANCELLED;
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
		/* The fingerprint is no other worker's: falcon-protocol(7), READY. */
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
		run_fixed(m, b->trainer, &made, bits);
		if (made.end == TRAINER_MADE)
			err = compare(m, lane, start, bits);
		else
			b->failures += made.end != TRAINER_CANCELLED;
	}
	*proven = b->proven == start;
	return err;
}

/* --- tasks -------------------------------------------------------------------------- */

/* Has the trainer's current process compute the task, once. */
static int
run_once(const struct maker_exec *m, uint32_t lane, const struct fal_run_job *job,
	 struct trainer_made *made, struct fal_ran *ran)
{
	const struct bench *b = &m->bench[lane];
	const struct fal_run *r = &job->run;
	const struct trainer_task task = {
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
	};
	void *samples = trainer_samples(b->trainer);
	int err = samples != NULL ? exec_job_fill(m->setup, job, b->label, samples)
				  : FAL_OK;
	if (err < 0)
		return err;
	trainer_do(b->trainer, &task, made);
	if (made->end != TRAINER_MADE)
		return FAL_OK;
	const struct fal_run_made of = { .grad = r->eval ? NULL
							 : trainer_grads(b->trainer),
					 .packed = m->setup->model,
					 .loss = made->loss,
					 .right = made->right };
	ran->task_ns = made->ns;
	return fal_run_finish(job, &of, ran);
}

/* Whether what was made is believed; else it is to be tried again. */
static bool
is_good(const struct bench *b, const struct fal_ran *ran)
{
	if (ran->right > ran->samples) {
		trainer_fault(b->trainer, "more samples are right than there are");
		return false;
	}
	if (!ran->nonfinite || b->nonfinite)
		return true;
	/* The fault may be this trainer's alone. */
	trainer_fault(b->trainer, "its gradient is not finite");
	return false;
}

/* Whether a try that came to this was the last one. */
static bool
was_last(struct bench *b, enum trainer_end end, const struct fal_ran *ran)
{
	b->failed = end == TRAINER_FAILED;
	if (end == TRAINER_MADE && is_good(b, ran)) {
		b->failures = 0;
		return true;
	}
	if (end == TRAINER_MADE && ran->nonfinite)
		b->nonfinite = true;
	else
		b->failures += end != TRAINER_CANCELLED;
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
	for (uint32_t i = 0; i < job->count; i++)
		b->index[i] = fal_order_at(job->batch.order, job->first + i);
	b->failed = b->nonfinite = false;
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
			err = run_once(m, lane, job, &made, ran);
		if (err < 0)
			break;
		over = proven && was_last(b, made.end, ran);
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
		.free = maker_exec_free,
	};
	struct fal_diag why;
	if (exec_job_agrees(s, &e->hello, &why) < 0)
		return fal_diag_set(diag, FAL_EINVAL, "%s: %s", s->job.name, why.text);
	struct maker_exec *m = fal_xcalloc(1, sizeof(*m));
	m->maker = (struct maker){ &ops, .samples = e->hello.samples };
	m->setup = s;
	m->exec = e;
	exec_job_make(&m->job, s);
	*out = &m->maker;
	return FAL_OK;
}
