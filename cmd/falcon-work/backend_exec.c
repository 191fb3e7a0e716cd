/* Gradients by trainers: the pool of trainers, the job in the form for trainers, and the
 * job's tasks.
 *
 * A fault of a trainer costs only the current try of the task.  The backend tries again
 * until the task is done, or until the coordinator, whose deadline the task misses, gives
 * the task to another worker. */
#include "backend.h"

#include "base/mem.h"
#include "base/parse.h"
#include "base/rng.h"
#include "base/text.h"
#include "crypto/hash.h"
#include "crypto/secret.h"
#include "model/safetensors.h"
#include "work.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

/* --- the trainers ------------------------------------------------------------------- */

int
trainer_pool_open(const struct trainer_conf *conf, uint32_t lanes,
		  struct trainer_pool **out, struct fal_diag *diag)
{
	struct trainer_conf one = *conf;
	struct trainer_pool *pool = fal_xcalloc(1, sizeof(*pool));
	pool->trainer = fal_xcalloc(lanes, sizeof(struct trainer *));
	int err = FAL_OK;
	for (one.number = 0; one.number < lanes && err == FAL_OK; one.number++) {
		err = trainer_new(&one, &pool->trainer[one.number]);
		pool->lanes += err == FAL_OK;
	}
	if (err < 0)
		fal_diag_set(diag, err, "%s: %s", conf->command, fal_strerror(err));
	for (uint32_t i = 0; i < pool->lanes && err == FAL_OK; i++) {
		struct fal_grad_hello hello;
		err = trainer_wait_hello(pool->trainer[i], &hello, diag);
		if (i == 0)
			pool->hello = hello;
		else if (err == FAL_OK && !fal_grad_hello_equal(&pool->hello, &hello))
			err = fal_diag_set(diag, FAL_EIO,
					   "%s: trainers say different things",
					   conf->command);
	}
	if (err < 0)
		trainer_pool_close(pool);
	else
		*out = pool;
	return err;
}

void
trainer_pool_close(struct trainer_pool *pool)
{
	if (pool == NULL)
		return;
	for (uint32_t i = 0; i < pool->lanes;
	     i++) /* first, so that all trainers end at the same time */
		trainer_close_input(pool->trainer[i]);
	for (uint32_t i = 0; i < pool->lanes; i++)
		trainer_free(pool->trainer[i]);
	free(pool->trainer);
	free(pool);
}

/* --- the job ------------------------------------------------------------------------ */

/* The layout of samples in memory: the I64 tensor first, so that both are aligned. */
struct sample_layout {
	bool text;    /* x and y are windows of a text */
	bool whole;   /* x is I64, not F32 */
	bool targets; /* y is F32, not I64 */
	uint32_t y_each, x_each;
	uint64_t y, x;       /* bytes of a full task */
	uint64_t y_at, x_at; /* offsets */
};

static struct sample_layout
sample_layout_of(const struct fal_setup *s)
{
	const struct fal_part *part = &s->manifest.train;
	struct sample_layout l = { .text = s->job.format == FAL_JOB_FORMAT_TEXT };
	l.whole = l.text || (fal_dtype_is_integer(part->dtype) && part->dtype != FAL_U8);
	l.y_each = l.text ? s->job.window : 1;
	l.x_each = l.text ? s->job.window : part->values;
	l.targets = part->targets;
	l.y = (l.targets ? 4 : 8) * (uint64_t)s->job.task * l.y_each;
	l.x = (l.whole ? 8 : 4) * (uint64_t)s->job.task * l.x_each;
	l.y_at = l.targets ? l.x : 0;
	l.x_at = l.targets ? 0 : l.y;
	return l;
}

void
trainer_job_make(struct trainer_job *j, const struct fal_setup *s)
{
	*j = (struct trainer_job){ 0 };
	j->job = (struct fal_grad_job){ .name = s->job.name,
					.decay = s->job.optim.weight_decay > 0,
					.metrics = s->job.metrics,
					.seed = s->job.seed,
					.task = s->job.task,
					.batch = s->job.batch,
					.train = s->manifest.train.n,
					.test = s->manifest.test.n };
	j->model = s->model;
	j->params_bytes = s->model->values * sizeof(float);
	const struct sample_layout l = sample_layout_of(s);
	j->samples_bytes = l.y + l.x;
	const struct fal_optim *o = &s->job.optim;
	j->buffer = fal_xcalloc(s->model->tensors, sizeof(*j->buffer));
	j->job.buffer = j->buffer;
	for (uint32_t i = 0; i < s->model->tensors; i++) {
		struct fal_tensor *t = &s->model->tensor[i];
		/* Buffers are running statistics; they may be frozen, too. */
		if (fal_job_is_buffer(&s->job, t->name))
			j->buffer[j->job.buffers++] = t->name;
		/* The job's keys may freeze a tensor, too; the model has a mark for each
		 * frozen tensor. */
		for (uint32_t k = 0; k < o->ranges; k++)
			t->frozen |= o->range[k].rule == FAL_RANGE_FROZEN &&
				     t->offset - o->range[k].first < o->range[k].count;
	}
	/* The safetensors header of the two tensors of samples; a sample that is a vector
	 * has one dimension. */
	const struct fal_part *part = &s->manifest.train;
	struct fal_buf *out = &j->samples;
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
	if (fal_safetensors_header(s->model, &j->params) < 0 || j->samples.err < 0)
		fal_out_of_memory();
}

void
trainer_job_free(struct trainer_job *j)
{
	fal_buf_free(&j->params);
	fal_buf_free(&j->samples);
	free(j->buffer);
}

static int
sample_counts_differ(uint32_t its, uint32_t n, const char *kind, struct fal_diag *diag)
{
	return fal_diag_set(diag, FAL_EINVAL,
			    "the trainer has %u %s sample%s, the job %u", its, kind,
			    fal_text_plural(its), n);
}

int
trainer_job_check_data(const struct fal_setup *s, const struct fal_grad_hello *h,
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
		return sample_counts_differ(h->train, train, "training", diag);
	if (h->test != 0 && test != 0 && h->test != test)
		return sample_counts_differ(h->test, test, "test", diag);
	if (want == NULL || h->samples)
		return FAL_OK;
	if (memcmp(h->data, none, sizeof(none)) == 0)
		return fal_diag_set(diag, FAL_EINVAL,
				    "the trainer gives no hash of its data, the job "
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
trainer_job_fill_params(const struct fal_setup *s, float *params)
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

int
trainer_job_fill_samples(const struct fal_setup *s, const struct fal_lane_task *j,
			 uint32_t *label, void *data)
{
	const struct sample_layout l = sample_layout_of(s);
	void *x = (uint8_t *)data + l.x_at, *at = (uint8_t *)data + l.y_at;
	int64_t *y = at;
	if (l.text) { /* x gets windows, and y the byte that follows each byte */
		int64_t *next = x;
		for (uint32_t i = 0; i < j->count; i++) {
			const uint32_t id = fal_order_at(j->batch.order, j->first + i);
			uint32_t none;
			const uint8_t *row = fal_samples_row(j->batch.samples, id, &none);
			if (row == NULL)
				return FAL_ENOENT;
			for (uint32_t k = 0; k < l.y_each; k++) {
				*next++ = row[k];
				*y++ = row[k + 1];
			}
		}
		return FAL_OK;
	}
	int err =
		l.whole ? fal_batch_fill_integers(&j->batch, j->first, j->count, x, label)
			: fal_batch_fill(&j->batch, j->first, j->count, x, label);
	if (l.targets && err == FAL_OK)
		memcpy(at, label, j->count * sizeof(float));
	for (uint32_t i = 0; i < j->count && err == FAL_OK && !l.targets; i++)
		y[i] = label[i];
	return err;
}

/* Fills memory with invented samples, the same on all machines. */
static void
fill_made_up_samples(const struct fal_setup *s, void *data)
{
	const struct sample_layout l = sample_layout_of(s);
	const uint32_t task = s->job.task;
	struct fal_rng r = fal_rng_init(s->job.seed, FAL_RNG_TEST, 0);
	void *x_at = (uint8_t *)data + l.x_at, *y_at = (uint8_t *)data + l.y_at;
	int64_t *y = y_at, *whole = x_at;
	float *x = x_at, *target = y_at;
	for (uint64_t i = 0; i < (uint64_t)task * l.x_each; i++)
		if (l.text) /* letters, which every text has */
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

/* --- the backend -------------------------------------------------------------------- */

/* A lane's trainer.  The lane has two slots for tasks: while the trainer computes the
 * task of one slot, the other slot's thread converts the gradient before, or waits for
 * its turn. */
struct exec_lane {
	struct trainer *trainer;
	pthread_mutex_t turn; /* its holder is the trainer's owner, and changes these: */
	unsigned failures;    /* tries in a row, of any task, without a gradient */
	uint64_t proven;      /* number of the start proven to compute as the first */
	unsigned differing;   /* starts in a row with other bits */
	uint32_t *label;      /* [task] of the samples of the trainer's task */
	uint32_t *index[TRAINER_RESULTS]; /* [task] of the samples of each slot's task */
};

struct exec_backend {
	struct backend backend;
	struct fal_setup *setup;
	struct trainer_pool *pool;
	struct trainer_job job;
	struct exec_lane *lane;
	/* The fixed task: the job's first task, on parameters that all workers make. */
	float *params;
	uint32_t *index, count;
	bool is_pure; /* the same task gives the same bits; false before the probe */
	uint8_t bits[FAL_HASH_BYTES];
	_Atomic uint64_t ids; /* number of fixed tasks */
};

enum { MOST_FAILURES = 3, MOST_DIFFERING = 3 };

static const uint64_t fixed_id = UINT64_C(1) << 48; /* ids of lanes' tasks are below */

/* ns before a failed task is tried again; doubled each time. */
#define PAUSE_NS UINT64_C(50000000)

static struct backend_memory
exec_memory(struct backend *b, uint64_t room)
{
	const struct exec_backend *m = (struct exec_backend *)b;
	const uint64_t params = m->setup->model->params * sizeof(float);
	const uint64_t samples = b->needs_samples ? m->job.samples_bytes : 0;
	(void)room;
	/* Parameters and two gradients of each lane; the parameters of the fixed task. */
	return (struct backend_memory){ .lanes = m->pool->lanes * (3 * params + samples) +
						 params };
}

static int
exec_start(struct backend *b)
{
	struct exec_backend *m = (struct exec_backend *)b;
	struct fal_setup *s = m->setup;
	m->lane = fal_xcalloc(m->pool->lanes, sizeof(*m->lane));
	for (uint32_t i = 0; i < m->pool->lanes; i++) {
		struct exec_lane *l = &m->lane[i];
		l->trainer = m->pool->trainer[i];
		pthread_mutex_init(&l->turn, NULL);
		for (int k = 0; k < TRAINER_RESULTS; k++)
			l->index[k] = fal_xcalloc(s->job.task, sizeof(uint32_t));
		l->label = fal_xcalloc(s->job.task, sizeof(*l->label));
		trainer_set_job(l->trainer, &m->job);
	}
	const struct fal_places p = fal_setup_places(s, 0, 0);
	m->params = fal_calloc_aligned(s->model->params, sizeof(float));
	if (m->params == NULL)
		return FAL_ENOMEM;
	trainer_job_fill_params(s, m->params);
	struct fal_epoch *e = fal_setup_epoch(s, 0);
	m->index = fal_xcalloc(p.count, sizeof(*m->index));
	m->count = p.count;
	for (uint32_t i = 0; i < p.count; i++)
		m->index[i] = fal_order_at(&e->order, p.first + i);
	fal_epoch_release(e);
	return FAL_OK;
}

/* Returns FAL_EPERM, with a log line, if the lane's trainer was given up or has failed
 * too often. */
static int
check_failures(struct exec_backend *m, uint32_t lane)
{
	struct exec_lane *l = &m->lane[lane];
	if (trainer_is_given_up(l->trainer))
		return FAL_EPERM;
	if (l->failures < MOST_FAILURES)
		return FAL_OK;
	if (l->failures++ == MOST_FAILURES)
		fal_cli_err(PROG,
			    "trainer %u: it failed %d times in a row; it is given up",
			    lane, MOST_FAILURES);
	return FAL_EPERM;
}

static void
exec_free(struct backend *b)
{
	struct exec_backend *m = (struct exec_backend *)b;
	/* No trainer may use the job after the job is freed. */
	for (uint32_t i = 0; i < m->pool->lanes; i++)
		trainer_clear_job(m->pool->trainer[i]);
	for (uint32_t i = 0; m->lane != NULL && i < m->pool->lanes; i++) {
		for (int k = 0; k < TRAINER_RESULTS; k++)
			free(m->lane[i].index[k]);
		free(m->lane[i].label);
		pthread_mutex_destroy(&m->lane[i].turn);
	}
	free(m->lane);
	free(m->params);
	free(m->index);
	trainer_job_free(&m->job);
	free(m);
}

/* --- the fixed task ----------------------------------------------------------------- */

/* Makes the trainer's current process compute the fixed task, of invented samples, and
 * hashes the gradient to `bits`. */
static void
compute_fixed(struct exec_backend *m, struct trainer *t, unsigned area,
	      struct trainer_result *r, uint8_t bits[static FAL_HASH_BYTES])
{
	const struct trainer_task task = {
		.area = area,
		.line = { .id = fixed_id + ++m->ids,
			  .seed = fal_rng_task(m->setup->job.seed, 0, 0),
			  .count = m->count,
			  .index = m->index },
		.params = m->params,
		.serial = UINT64_MAX,
	};
	void *samples = trainer_samples(t);
	if (samples != NULL)
		fill_made_up_samples(m->setup, samples);
	trainer_compute(t, &task, r);
	if (r->end != TRAINER_DONE)
		return;
	fal_hash(trainer_hold_grads(t, area), m->setup->model->values * sizeof(float),
		 bits);
	trainer_release_grads(t);
}

/* Tries the fixed task until it is done. */
static int
probe_lane(struct exec_backend *m, uint32_t lane, struct trainer_result *r,
	   uint8_t bits[static FAL_HASH_BYTES])
{
	struct exec_lane *l = &m->lane[lane];
	int err = FAL_OK;
	*r = (struct trainer_result){ .end = TRAINER_CANCELLED };
	while (err == FAL_OK && r->end != TRAINER_DONE) {
		l->proven = trainer_prepare(l->trainer, fixed_id);
		if (l->proven != 0)
			compute_fixed(m, l->trainer, 0, r, bits);
		else if (!trainer_is_given_up(l->trainer))
			err = FAL_EIO;
		l->failures += r->end == TRAINER_FAILED || r->end == TRAINER_LOST;
		err = err == FAL_OK ? check_failures(m, lane) : err;
	}
	l->failures = 0;
	return err;
}

/* Makes the first trainer compute the fixed task twice, and each other trainer once.  The
 * second computation measures the speed. */
static int
exec_probe(struct backend *b, struct backend_profile *out)
{
	struct exec_backend *m = (struct exec_backend *)b;
	const struct fal_grad_hello *hello = &m->pool->hello;
	uint8_t bits[FAL_HASH_BYTES];
	struct trainer_result r;
	int err = probe_lane(m, 0, &r, m->bits);
	m->is_pure = !hello->impure;
	for (uint32_t i = 0; i < m->pool->lanes && err == FAL_OK; i++) {
		out->lane = i;
		err = probe_lane(m, i, &r, bits);
		if (i == 0)
			out->task_ns = r.ns;
		m->is_pure = m->is_pure && memcmp(bits, m->bits, sizeof(bits)) == 0;
	}
	if (err < 0)
		return err;
	memcpy(out->fingerprint, m->bits, FAL_FINGERPRINT);
	snprintf(out->kernels, sizeof(out->kernels), "trainer %.*s",
		 (int)fal_text_cut(hello->about, 50), hello->about);
	if (!b->needs_samples)
		memcpy(out->data_hash, hello->data, FAL_DATA_HASH);
	if (!m->is_pure) {
		/* No other worker may have this fingerprint: falcon-protocol(7),
		 * READY. */
		memset(out->fingerprint, 0, FAL_FINGERPRINT);
		fal_random_bytes(out->fingerprint + 8, FAL_FINGERPRINT - 8);
		fal_cli_err(PROG,
			    "the trainer is impure%s; "
			    "the final model will not be the same each time",
			    hello->impure ? ", as it says itself"
					  : ": the same task gives other bits");
	}
	return FAL_OK;
}

/* Checks that this start of the trainer computes the bits of the first start, because
 * the program may have been replaced meanwhile.  Ends a start with other bits;
 * FAL_EPERM: too many such starts.  `*proven` also stays false if the fixed task was
 * lost or cancelled. */
static int
prove_start(struct exec_backend *m, uint32_t lane, unsigned area, uint64_t start,
	    bool *proven)
{
	struct exec_lane *l = &m->lane[lane];
	uint8_t bits[FAL_HASH_BYTES];
	struct trainer_result r;
	*proven = true;
	if (!m->is_pure)
		l->proven = start; /* any start is as good as the first */
	if (l->proven == start)
		return FAL_OK;
	compute_fixed(m, l->trainer, area, &r, bits);
	*proven = r.end == TRAINER_DONE && memcmp(bits, m->bits, FAL_HASH_BYTES) == 0;
	if (*proven) {
		l->proven = start;
		l->differing = 0;
	} else if (r.end != TRAINER_DONE) {
		l->failures += r.end != TRAINER_CANCELLED;
	} else if (++l->differing < MOST_DIFFERING) {
		trainer_restart(l->trainer, "its fixed task has other bits than before");
	} else {
		fal_cli_err(
			PROG,
			"trainer %u: started again, it computes otherwise than before",
			lane);
		return FAL_EPERM;
	}
	return FAL_OK;
}

/* --- tasks -------------------------------------------------------------------------- */

/* The tries of a slot's task. */
struct exec_try {
	struct exec_backend *m;
	uint32_t lane;
	unsigned area;
	const struct fal_lane_task *job;
	struct trainer_result r; /* of the last try */
};

/* Makes the trainer's current process compute the task once. */
static int
try_task(struct exec_try *try)
{
	const struct exec_lane *l = &try->m->lane[try->lane];
	const struct fal_task_run *run = &try->job->run;
	const struct trainer_task task = {
		.area = try->area,
		.line = { .id = try->job->id,
			  .clock = run->clock,
			  .version = run->version,
			  .seed = run->seed,
			  .task = run->task,
			  .count = try->job->count,
			  .index = l->index[try->area],
			  .eval = run->eval },
		.params = run->params,
		.serial = run->serial,
		.kind = (unsigned)run->eval * 2 +
			(try->job->count < try->m->setup->job.task),
	};
	void *samples = trainer_samples(l->trainer);
	int err = samples != NULL ? trainer_job_fill_samples(try->m->setup, try->job,
							     l->label, samples)
				  : FAL_OK;
	if (err == FAL_OK)
		trainer_compute(l->trainer, &task, &try->r);
	return err;
}

/* Tries the task until there is a gradient, by an owner of the trainer.  FAL_EPERM: the
 * trainer can compute no more. */
static int
compute_task(struct exec_try *try)
{
	struct exec_lane *l = &try->m->lane[try->lane];
	const uint64_t id = try->job->id;
	bool proven = false;
	int err;
	try->r.end = TRAINER_CANCELLED;
	while ((err = check_failures(try->m, try->lane)) == FAL_OK) {
		const uint64_t until = uv_hrtime() + (PAUSE_NS << l->failures);
		if (try->r.end == TRAINER_FAILED)
			(void)trainer_pause(l->trainer, id, until);
		const uint64_t start = trainer_prepare(l->trainer, id);
		if (start == 0) {
			try->r.end = TRAINER_CANCELLED;
			return check_failures(try->m, try->lane);
		}
		try->r.end = TRAINER_LOST;
		err = prove_start(try->m, try->lane, try->area, start, &proven);
		if (err == FAL_OK && proven)
			err = try_task(try);
		if (err < 0)
			return err;
		if (!proven)
			continue;
		if (try->r.end == TRAINER_DONE && try->r.right > try->job->count) {
			trainer_restart(l->trainer,
					"more samples are right than there are");
			try->r.end = TRAINER_LOST;
		}
		if (try->r.end == TRAINER_DONE)
			l->failures = 0;
		if (try->r.end == TRAINER_DONE || try->r.end == TRAINER_CANCELLED)
			return FAL_OK;
		l->failures++;
	}
	return err;
}

static int
exec_run(struct backend *b, uint32_t slot, const struct fal_lane_task *job,
	 struct fal_task_result *ran)
{
	struct exec_backend *m = (struct exec_backend *)b;
	struct exec_try try = { .m = m,
				.lane = slot % m->pool->lanes,
				.area = slot / m->pool->lanes,
				.job = job };
	struct exec_lane *l = &m->lane[try.lane];
	bool again = false;
	int err;
	for (uint32_t i = 0; i < job->count; i++)
		l->index[try.area][i] = fal_order_at(job->batch.order, job->first + i);
	do {
		pthread_mutex_lock(&l->turn);
		/* Values that are not finite may be the fault of only this trainer. */
		if (again)
			trainer_restart(l->trainer, "its gradient is not finite");
		err = compute_task(&try);
		if (err < 0 || try.r.end != TRAINER_DONE) {
			pthread_mutex_unlock(&l->turn);
			*ran = (struct fal_task_result){ .cancelled = true };
			return err;
		}
		/* The gradient is converted beside the trainer's next task. */
		const struct fal_task_output made = {
			.grad = job->run.eval ? NULL
					      : trainer_hold_grads(l->trainer, try.area),
			.packed = m->setup->model,
			.loss = try.r.loss,
			.right = try.r.right,
			.metrics = &try.r.metrics,
		};
		pthread_mutex_unlock(&l->turn);
		ran->task_ns = try.r.ns;
		err = fal_lane_task_finish(job, &made, ran);
		if (made.grad != NULL)
			trainer_release_grads(l->trainer);
		again = !again && ran->nonfinite;
	} while (err == FAL_OK && again);
	return err;
}

static void
exec_cancel(struct backend *b, uint32_t slot, uint64_t id)
{
	const struct trainer_pool *pool = ((struct exec_backend *)b)->pool;
	trainer_cancel(pool->trainer[slot % pool->lanes], slot / pool->lanes, id);
}

static uint64_t
exec_progress(const struct backend *b)
{
	const struct trainer_pool *pool = ((const struct exec_backend *)b)->pool;
	uint64_t n = 0;
	for (uint32_t i = 0; i < pool->lanes; i++)
		n += trainer_progress(pool->trainer[i]);
	return n;
}

static void
exec_quit(struct backend *b)
{
	const struct trainer_pool *pool = ((struct exec_backend *)b)->pool;
	for (uint32_t i = 0; i < pool->lanes; i++)
		trainer_quit(pool->trainer[i]);
}

int
backend_exec_new(struct fal_setup *s, struct trainer_pool *pool, struct backend **out,
		 struct fal_diag *diag)
{
	static const struct backend_ops ops = {
		.memory = exec_memory,
		.start = exec_start,
		.probe = exec_probe,
		.run = exec_run,
		.cancel = exec_cancel,
		.progress = exec_progress,
		.quit = exec_quit,
		.free = exec_free,
	};
	struct fal_diag why;
	if (trainer_job_check_data(s, &pool->hello, &why) < 0)
		return fal_diag_set(diag, FAL_EINVAL, "%s: %s", s->job.name, why.text);
	struct exec_backend *m = fal_xcalloc(1, sizeof(*m));
	m->backend = (struct backend){ &ops, .needs_samples = pool->hello.samples,
				       .ahead = 1 };
	m->setup = s;
	m->pool = pool;
	trainer_job_make(&m->job, s);
	*out = &m->backend;
	return FAL_OK;
}
