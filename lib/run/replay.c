/* Replays clocks: a lane computes tasks, and a shard_set of one shard makes versions. */
#include "run/replay.h"

#include "base/mem.h"
#include "base/rng.h"
#include "run/task_runner.h"
#include "run/threads.h"
#include "wire/bfp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct replay_lane {
	struct fal_task_runner *runner;
	struct fal_sum *task, *sum; /* of one task; of all tasks of the lane */
	int err;
};

struct fal_replay {
	struct fal_replay_conf conf;
	struct fal_shard_set_conf set_conf;
	struct fal_setup setup;
	struct fal_net *net;
	struct fal_samples *samples;
	uint8_t fingerprint[FAL_FINGERPRINT];
	struct fal_shard_set *shard_set; /* of one shard */
	uint64_t version, round;
	bool is_nonfinite; /* a step gave values that are not finite */
	int8_t *exps;
	struct fal_buf record;
	struct fal_threads *threads; /* one for each lane */
	struct replay_lane *lane;
	/* The current clock. */
	const struct fal_replay_clock *clock;
	struct fal_replay_task *results;
	const float *params, *late_params;
	const struct fal_order *order;
	uint32_t tasks;
};

/* ---- memory and samples --- */

int
fal_replay_new(const struct fal_replay_conf *conf, struct fal_replay **out,
	       struct fal_diag *diag)
{
	struct fal_replay *a = fal_xcalloc(1, sizeof(*a));
	a->conf = *conf;
	a->set_conf = fal_files_shard_set_conf(conf->files, 1);
	a->set_conf.each.checksums = false; /* the replay trusts its own sums */
	int err = fal_files_make_setup(conf->files, &a->setup, diag);
	if (err == FAL_OK)
		err = fal_task_runner_net(&a->setup, &a->net, diag);
	if (err < 0)
		fal_replay_free(a);
	else
		*out = a;
	return err;
}

/* The comparison with a snapshot needs the most: two shard_sets, one of them without an
 * open round, and the images of both.  Each lane's task sum is only quantised. */
uint64_t
fal_replay_memory(const struct fal_replay *a, uint64_t *space)
{
	const uint64_t lanes = a->conf.lanes, params = a->setup.model->params;
	const uint32_t versions = a->conf.versions > 0 ? a->conf.versions : 1;
	const struct fal_store_limits own = { .versions = versions, .rounds = 1 },
				      snapshot = { .versions = versions };
	const uint64_t sums = fal_sum_bytes(params) + fal_sum_bytes(params) / 2;
	/* The byte functions count each of the two shard_sets and two images as if it
	 * held a copy of a version. */
	const uint64_t not_held = (4 - a->conf.held) * params * sizeof(float);
	*space = lanes * fal_kern_space();
	return fal_setup_bytes(&a->setup) +
	       lanes * (fal_net_kernel_bytes(a->net) + fal_task_runner_bytes(a->net) +
			sums) +
	       fal_shard_set_bytes(&a->set_conf, &own) +
	       fal_shard_set_bytes(&a->set_conf, &snapshot) +
	       2 * fal_shard_set_image_bytes(&a->set_conf, &snapshot) - not_held;
}

int
fal_replay_start(struct fal_replay *a, struct fal_diag *diag)
{
	a->exps = fal_xcalloc(fal_blocks(a->setup.model->params), 1);
	fal_kern_reserve(a->conf.lanes);
	int err = fal_samples_new(&a->setup.manifest.train, &a->samples);
	if (err == FAL_OK)
		err = fal_samples_put_set(a->samples, &a->conf.files->train);
	const size_t n = a->setup.model->params;
	a->lane = fal_xcalloc(a->conf.lanes, sizeof(*a->lane));
	a->threads = fal_threads_new(a->conf.lanes, 0);
	for (unsigned i = 0; i < a->conf.lanes && err == FAL_OK; i++) {
		struct replay_lane *l = &a->lane[i];
		l->task = fal_sum_new(n);
		l->sum = fal_sum_new(n);
		err = l->task != NULL && l->sum != NULL
			      ? fal_task_runner_new(a->net, &l->runner)
			      : FAL_ENOMEM;
	}
	if (err == FAL_OK)
		err = fal_task_runner_fingerprint(a->lane[0].runner, a->setup.job.seed,
						  a->fingerprint);
	return err < 0 ? fal_diag_set(diag, err, "%s", fal_strerror(err)) : FAL_OK;
}

void
fal_replay_free(struct fal_replay *a)
{
	if (a == NULL)
		return;
	fal_threads_free(a->threads);
	for (unsigned i = 0; a->lane != NULL && i < a->conf.lanes; i++) {
		fal_task_runner_free(a->lane[i].runner);
		fal_sum_free(a->lane[i].task);
		fal_sum_free(a->lane[i].sum);
	}
	free(a->lane);
	fal_shard_set_free(a->shard_set);
	fal_net_free(a->net);
	fal_samples_free(a->samples);
	fal_setup_free(&a->setup);
	fal_buf_free(&a->record);
	free(a->exps);
	free(a);
}

const uint8_t *
fal_replay_fingerprint(const struct fal_replay *a)
{
	return a->fingerprint;
}

/* ---- versions --- */

/* Makes a shard_set with the contents of the snapshot, or at version 0. */
static int
load_shard_set(const struct fal_replay *a, int folder, const struct fal_snapshot_found *f,
	       struct fal_shard_set **out, struct fal_diag *diag)
{
	*out = fal_files_new_shard_set(a->conf.files, &a->set_conf);
	if (*out == NULL)
		return fal_diag_set(diag, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
	return f != NULL ? fal_snapshot_load(folder, f, *out, diag) : FAL_OK;
}

int
fal_replay_load_snapshot(struct fal_replay *a, int folder,
			 const struct fal_snapshot_found *f, struct fal_diag *diag)
{
	fal_shard_set_free(a->shard_set);
	a->version = f != NULL ? f->is.image.version : 0;
	a->is_nonfinite = false;
	return load_shard_set(a, folder, f, &a->shard_set, diag);
}

const float *
fal_replay_params(struct fal_replay *a)
{
	return fal_shard_set_params(a->shard_set, a->version);
}

const int8_t *
fal_replay_exponents(const struct fal_replay *a)
{
	struct fal_shard_part part;
	return fal_shard_set_part(a->shard_set, 0, a->version, &part) ? part.exps : NULL;
}

/* Makes the image of a shard_set's newest version. */
static int
make_image(struct fal_shard_set *r, uint64_t version, struct fal_image *out)
{
	const struct fal_shard_order mark = { .kind = FAL_ORDER_SNAPSHOT,
					      .version = version };
	int err = fal_shard_set_order(r, &mark, NULL);
	if (err < 0)
		return err;
	return fal_shard_set_take_marked(r, version, out) ? FAL_OK : FAL_ENOMEM;
}

/* Compares the contents that job and data determine.  The coordinator chooses held copies
 * and the number of kept versions. */
static bool
images_equal(const struct fal_image *a, const struct fal_image *b,
	     char differs[static FAL_IMAGE_NAME])
{
	const char *name = a->is.steps != b->is.steps ? "steps" : NULL;
	for (uint32_t i = 0; i < a->arrays && name == NULL; i++) {
		const struct fal_image_array *x = &a->array[i], *y = b->array;
		const struct fal_image_array *end = y + b->arrays;
		while (y < end && strcmp(y->name, x->name) != 0)
			y++;
		if (strncmp(x->name, "held.", 5) != 0 && y < end &&
		    (x->bytes != y->bytes || memcmp(x->p, y->p, x->bytes) != 0))
			name = x->name;
	}
	snprintf(differs, FAL_IMAGE_NAME, "%s", name != NULL ? name : "");
	return name == NULL;
}

int
fal_replay_compare(struct fal_replay *a, int folder, const struct fal_snapshot_found *f,
		   char differs[static FAL_IMAGE_NAME], struct fal_diag *diag)
{
	struct fal_shard_set *kept = NULL;
	struct fal_image replayed = { 0 }, written = { 0 };
	bool same = false;
	int err = load_shard_set(a, folder, f, &kept, diag);
	if (err == FAL_OK)
		err = make_image(a->shard_set, a->version, &replayed);
	if (err == FAL_OK)
		err = make_image(kept, f->is.image.version, &written);
	if (err == FAL_OK)
		same = images_equal(&replayed, &written, differs);
	fal_image_free(&replayed);
	fal_image_free(&written);
	fal_shard_set_free(kept);
	return err < 0 ? err : same;
}

/* ---- a clock --- */

/* Computes a task on the lane of the thread, and adds the gradient to the lane's sum
 * unless the clock skips the task. */
static void
replay_task(void *replay, uint32_t task, uint32_t thread)
{
	struct fal_replay *a = replay;
	struct replay_lane *l = &a->lane[thread];
	struct fal_task_result ran = { 0 };
	struct fal_replay_task *result = &a->results[task];
	const struct fal_places p = fal_setup_places(&a->setup, a->clock->clock, task);
	const struct fal_lane_task job = {
		.run = { .clock = a->clock->clock,
			 .task = task,
			 .params = task < a->clock->late ? a->params : a->late_params,
			 .exps = a->exps,
			 .sum = l->task,
			 .room = fal_bfp_room(a->set_conf.each.tasks),
			 .bits = a->setup.job.push_bits,
			 .seed = fal_rng_task(a->setup.job.seed, a->clock->clock, task) },
		.batch = { a->samples, a->order, &a->setup.norm },
		.first = p.first,
		.count = p.count,
		.hashed = true
	};
	if (l->err == FAL_OK)
		l->err = fal_task_runner_run(l->runner, &job, &ran);
	if (l->err < 0)
		return;
	result->nonfinite = ran.nonfinite;
	if (result->nonfinite)
		return;
	memcpy(result->hash, ran.hash, sizeof(result->hash));
	const uint32_t blocks =
		a->clock->seed != NULL ? fal_blocks(fal_sum_len(l->task)) : 0;
	for (uint32_t b = 0; b < blocks; b++)
		result->sum += fal_sum_checksum(l->task, b, b, a->clock->seed[task]);
	if (!a->clock->skips[task])
		l->err = fal_sum_add(l->sum, l->task);
}

/* Gives the shards an order and handles the result; orders the scaling when the squares
 * are known. */
static int
send_order(struct fal_replay *a, const struct fal_shard_order *o)
{
	struct fal_shard_result r = { 0 };
	const int err = fal_shard_set_order(a->shard_set, o, &r);
	int next = FAL_OK;
	for (size_t i = 0; i < r.n && next == FAL_OK; i++) { /* SCALE adds to the list */
		struct fal_shard_order scale = { .kind = FAL_ORDER_SCALE };
		a->is_nonfinite |= r.v[i].odd != NULL;
		if (r.v[i].kind == FAL_REPORT_STEPPED)
			a->version = r.v[i].version;
		if (r.v[i].kind != FAL_REPORT_SQUARES)
			continue;
		for (uint32_t b = 0; b < r.v[i].blocks; b++)
			scale.squares += r.v[i].squares[b];
		next = fal_shard_set_order(a->shard_set, &scale, &r);
	}
	fal_shard_result_free(&r);
	return err < 0 ? err : next;
}

/* Opens the round and pushes the sum of all tasks that are not skipped; `*samples`
 * becomes the number of samples that count. */
static int
push_round(struct fal_replay *a, const struct fal_grid *g, uint32_t *samples)
{
	const uint64_t clock = a->clock->clock;
	const uint32_t blocks = fal_blocks(a->setup.model->params);
	const struct fal_shard_order open = { .kind = FAL_ORDER_OPEN,
					      .round = a->round,
					      .facts = { .version = a->clock->on,
							 .tasks = a->tasks,
							 .kind = FAL_KIND_GRAD } };
	struct fal_ticket t = {
		.round = a->round, .id = { 1, 1 }, .tasks = a->tasks, .facts = open.facts
	};
	int err = send_order(a, &open);
	*samples = fal_grid_samples(g, clock);
	for (uint32_t i = 0; i < a->tasks && err == FAL_OK; i++) {
		const struct fal_shard_order skip = { .kind = FAL_ORDER_SKIP,
						      .round = a->round,
						      .facts = { .tasks = 1 } };
		if (!a->clock->skips[i])
			continue;
		*samples -= fal_grid_range_samples(g, clock, i, 1);
		t.tasks--;
		err = send_order(a, &skip);
	}
	for (uint32_t b = 0; b < blocks && t.tasks > 0 && err == FAL_OK; b++) {
		fal_buf_clear(&a->record);
		err = fal_sum_pack(a->lane[0].sum, b, a->exps[b], &a->record);
		const struct fal_tail tail = { a->record.p, a->record.n };
		struct fal_shard_result r = { 0 };
		if (err == FAL_OK)
			err = fal_shard_set_push(a->shard_set, &t, &tail, &r, NULL);
		fal_shard_result_free(&r); /* no step comes before END */
	}
	return err;
}

int
fal_replay_clock(struct fal_replay *a, const struct fal_replay_clock *c,
		 struct fal_replay_task *out)
{
	const struct fal_grid g = fal_job_grid(&a->setup.job, a->setup.manifest.train.n);
	struct fal_shard_part part, late = { 0 };
	uint32_t samples = 0;
	a->tasks = fal_grid_tasks(&g, c->clock);
	if (!fal_shard_set_part(a->shard_set, 0, c->on, &part))
		return FAL_ESTATE;
	if (c->late < a->tasks && !fal_shard_set_part(a->shard_set, 0, c->on + 1, &late))
		return FAL_ESTATE;
	struct fal_epoch *e =
		fal_setup_epoch(&a->setup,
				fal_setup_places(&a->setup, c->clock, 0).epoch);
	a->clock = c;
	a->results = out;
	a->params = part.params;
	a->late_params = late.params;
	memcpy(a->exps, part.exps, part.count);
	a->order = &e->order;
	memset(out, 0, a->tasks * sizeof(*out));
	/* Computes all tasks on all lanes; lane 0 then has the sum of all tasks. */
	for (unsigned i = 0; i < a->conf.lanes; i++) {
		a->lane[i].err = FAL_OK;
		fal_sum_clear(a->lane[i].sum);
	}
	fal_parallel_each(fal_threads_parallel(a->threads), a->tasks, replay_task, a);
	int err = a->lane[0].err;
	for (unsigned i = 1; i < a->conf.lanes && err == FAL_OK; i++)
		err = a->lane[i].err < 0 ? a->lane[i].err
					 : fal_sum_add(a->lane[0].sum, a->lane[i].sum);
	fal_epoch_release(e);
	for (uint32_t i = 0; i < a->tasks && err == FAL_OK; i++)
		if (out[i].nonfinite && !c->skips[i])
			err = FAL_ENONFINITE;
	if (err == FAL_OK)
		err = push_round(a, &g, &samples);
	if (err < 0)
		return err;
	/* Ends the round and makes the next version. */
	const struct fal_shard_order end = { .kind = FAL_ORDER_END,
					     .round = a->round,
					     .end = FAL_END_MERGE };
	const struct fal_shard_order make = { .kind = FAL_ORDER_STEP,
					      .version = a->version + 1,
					      .lr = c->lr,
					      .divisor = samples,
					      .clipped = samples > 0 &&
							 a->set_conf.each.optim.clip > 0,
					      .versions = a->conf.versions };
	err = a->is_nonfinite ? FAL_ENONFINITE : send_order(a, &end);
	if (err == FAL_OK)
		err = send_order(a, &make);
	a->round++;
	return err == FAL_OK && a->is_nonfinite ? FAL_ENONFINITE : err;
}
