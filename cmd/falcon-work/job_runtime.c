/* A job's setup, data, backend and lanes, and the memory that they need. */
#include "job_runtime.h"

#include "base/mem.h"
#include "base/text.h"
#include "cli/need.h"
#include "net/conn.h"
#include "net/sendq.h"

#include <inttypes.h>
#include <stdlib.h>

/* --- memory ------------------------------------------------------------------------- */

int
memory_need_check(const struct work_opt *opt, const char *job, const char *verb,
		  struct memory_need need, uint64_t logged, struct fal_diag *diag)
{
	if (fal_memory_mib(need.bytes) > fal_memory_mib(logged))
		fal_cli_err(PROG, "job %s %s %" PRIu64 " MiB", job, verb,
			    fal_memory_mib(need.bytes));
	struct fal_diag why;
	const int err =
		fal_memory_check(need.bytes, need.address_space, opt->max_memory, &why);
	if (err == FAL_OK)
		return FAL_OK;
	return fal_diag_set(diag, FAL_ENOMEM, "job %s with %u lane%s %s%s", job,
			    opt->lanes_max, fal_text_plural(opt->lanes_max), why.text,
			    err == FAL_ENOMEM && need.address_space > 0
				    ? "; OpenBLAS needs 128 MiB of it a lane"
				    : "");
}

/* The further tasks that a lane takes: emulated tasks of a lane follow each other. */
static uint32_t
runtime_ahead(const struct job_runtime *k)
{
	return k->conf.opt->emulate == NULL ? k->backend->ahead : 0;
}

/* The tasks of all lanes at a time. */
static uint32_t
runtime_slots(const struct job_runtime *k)
{
	return k->conf.opt->lanes_max * (1 + runtime_ahead(k));
}

/* Makes the configuration, without the members that depend on k->maximum. */
static struct fal_agent_conf
base_agent_conf(const struct job_runtime *k)
{
	const struct fal_grid grid =
		fal_job_grid(&k->setup.job, k->setup.manifest.train.n);
	return (struct fal_agent_conf){ .n = k->setup.model->params,
					.lanes_max = k->conf.opt->lanes_max,
					.ahead = runtime_ahead(k),
					.tasks = fal_grid_tasks_max(&grid),
					.grid = grid,
					.push_bits = k->setup.job.push_bits,
					.seed = k->setup.job.seed,
					.metrics = k->setup.job.metrics.n,
					.optim = k->setup.job.optim };
}

struct fal_agent_conf
runtime_agent_conf(const struct job_runtime *k)
{
	struct fal_agent_conf conf = base_agent_conf(k);
	conf.most = k->maximum;
	conf.sums = fal_agent_sums(&conf, &k->maximum);
	return conf;
}

/* The peak buffers of so many streams: a batch that waits, a batch that is sealed, a
 * batch in the socket, and the bytes read. */
static uint64_t
bytes_of_streams(const struct job_runtime *k, size_t streams)
{
	const uint64_t most = 3 * FAL_OUTBOX_MAX + FAL_CHAN_READ_AHEAD;
	const uint64_t model = k->setup.model->params * sizeof(float);
	return streams * (model < most ? model : most);
}

/* Returns the memory that the job needs in this process if the probe has `room`.  The
 * probe ends, and frees its memory, before there are versions and sums. */
static struct memory_need
need_with_probe(struct job_runtime *k, uint64_t agent, uint64_t room)
{
	const struct backend_memory m = k->backend->ops->memory(k->backend, room);
	const uint64_t data = k->backend->needs_samples ? fal_setup_bytes(&k->setup) : 0;
	k->agent_bytes = agent > m.probe ? agent : m.probe;
	k->streams_bytes = bytes_of_streams(k, k->conf.streams);
	return (struct memory_need){ k->conf.opt->program_bytes + m.kernels + data +
					     m.lanes + k->agent_bytes + k->streams_bytes,
				     m.address_space };
}

int
runtime_grow(struct job_runtime *k, const struct fal_agent_limits *to, size_t streams,
	     struct fal_diag *diag)
{
	const struct fal_agent_conf conf = base_agent_conf(k);
	const uint64_t agent = fal_agent_bytes(&conf, to),
		       bytes = bytes_of_streams(k, streams);
	const uint64_t more = agent > k->agent_bytes ? agent - k->agent_bytes : 0,
		       wider = bytes > k->streams_bytes ? bytes - k->streams_bytes : 0;
	const struct memory_need need = { k->need.bytes + more + wider,
					  k->need.address_space };
	int err = memory_need_check(k->conf.opt, k->setup.job.name, "now needs", need,
				    k->need.bytes, diag);
	if (err < 0)
		return err;
	k->need = need;
	k->agent_bytes += more;
	k->streams_bytes += wider;
	k->maximum = *to;
	return FAL_OK;
}

/* --- preparation -------------------------------------------------------------------- */

static int
start_parts(struct job_runtime *k)
{
	const struct runtime_conf *conf = &k->conf;
	const struct work_opt *opt = conf->opt;
	const struct lanes_conf lanes = { .backend = k->backend,
					  .lanes = runtime_slots(k),
					  .emulate = opt->emulate,
					  .hashes_tasks =
						  fal_job_hashes_tasks(&k->setup.job),
					  .arg = conf->arg,
					  .on_end = conf->on_task_end };
	const struct prefetch_ops ops = { conf->arg, conf->request_chunk,
					  conf->on_chunk };
	k->epoch = fal_xcalloc(runtime_slots(k), sizeof(struct fal_epoch *));
	int err = prefetch_new(conf->loop, &k->setup.manifest, opt->cache_dir, &ops,
			       &k->prefetch);
	if (err == FAL_OK)
		err = k->backend->ops->start(k->backend);
	if (opt->emulate != NULL)
		fal_emul_set_batch(opt->emulate, k->setup.job.batch);
	return err < 0 ? err : lanes_new(conf->loop, &lanes, &k->lanes);
}

static void
run_probe(uv_work_t *work)
{
	struct job_runtime *k = work->data;
	k->probe.err = k->backend->ops->probe(k->backend, &k->profile);
}

static void
run_load(uv_work_t *work)
{
	struct job_runtime *k = work->data;
	k->load.err = prefetch_load_local(k->prefetch, &k->setup.job,
					  k->conf.opt->data_dir, &k->load.diag);
}

static void
on_work_end(uv_work_t *work, int status)
{
	struct job_runtime *k = work->data;
	struct runtime_work *w = work == &k->probe.work ? &k->probe : &k->load;
	(void)status; /* never cancelled */
	w->is_running = false;
	w->succeeded = w->err == FAL_OK;
	k->conf.on_prepared(k->conf.arg);
}

static int
start_work(struct job_runtime *k, struct runtime_work *w, uv_work_cb work)
{
	w->work.data = k;
	w->is_running = uv_queue_work(k->conf.loop, &w->work, work, on_work_end) == 0;
	return w->is_running ? FAL_OK : FAL_EIO;
}

int
runtime_make(struct job_runtime *k, const struct runtime_conf *conf,
	     struct fal_texts *texts, struct fal_diag *diag)
{
	const struct work_opt *opt = conf->opt;
	k->conf = *conf;
	k->texts = *texts;
	*texts = (struct fal_texts){ 0 };
	const struct fal_buf *t = k->texts.text;
	const struct fal_setup_text job = { "coordinator's job", t[FAL_TEXT_JOB].p,
					    t[FAL_TEXT_JOB].n };
	const struct fal_setup_text model = { "coordinator's model", t[FAL_TEXT_MODEL].p,
					      t[FAL_TEXT_MODEL].n };
	fal_hash(job.p, job.n, k->job_hash);
	int err = fal_manifest_parse(t[FAL_TEXT_MANIFEST].p, t[FAL_TEXT_MANIFEST].n,
				     &k->setup.manifest);
	if (err < 0)
		return fal_diag_set(diag, err, "coordinator's manifest: %s",
				    fal_strerror(err));
	err = fal_setup_init(&k->setup, &job, &model, diag);
	k->maximum = fal_agent_limits(&k->setup.job.rule,
				      k->setup.job.eval != FAL_JOB_EVAL_NEVER);
	if (err == FAL_OK && k->setup.manifest.train.labels == NULL &&
	    k->setup.job.partition == FAL_JOB_PARTITION_LABEL_SKEW)
		return fal_diag_set(diag, FAL_EFORMAT,
				    "coordinator's manifest: no labels for "
				    "data.partition = label-skew");
	if (err == FAL_OK && opt->trainers != NULL)
		err = backend_exec_new(&k->setup, opt->trainers, &k->backend, diag);
	else if (err == FAL_OK)
		err = backend_native_new(&k->setup, opt->lanes_max, &k->backend, diag);
	if (err < 0)
		return err;
	/* Logs the need of the job with k->maximum, and checks the need against
	 * --max-memory.  The probe of a larger batch may take as much memory as versions
	 * and sums will take later, or 16 MiB; if --max-memory allows less, there is no
	 * such probe. */
	const uint64_t least = 16 << 20, most = opt->max_memory;
	const struct fal_agent_conf agent_conf = runtime_agent_conf(k);
	const uint64_t agent = fal_agent_bytes(&agent_conf, &k->maximum);
	k->need = need_with_probe(k, agent, agent > least ? agent : least);
	if (most != 0 && k->need.bytes > most)
		k->need = need_with_probe(k, agent, 0);
	err = memory_need_check(opt, k->setup.job.name, "needs", k->need, 0, diag);
	if (err < 0)
		return err;
	k->fetches_nothing = opt->data_dir != NULL || !k->backend->needs_samples;
	err = start_parts(k);
	if (err == FAL_OK)
		err = start_work(k, &k->probe, run_probe);
	if (err == FAL_OK && opt->data_dir != NULL)
		err = start_work(k, &k->load, run_load);
	k->is_made = err == FAL_OK;
	return err < 0 ? fal_diag_set(diag, err, "%s", fal_strerror(err)) : FAL_OK;
}

void
runtime_stop(struct job_runtime *k)
{
	lanes_free(k->lanes);
	prefetch_free(k->prefetch);
	k->lanes = NULL;
	k->prefetch = NULL;
}

void
runtime_free(struct job_runtime *k)
{
	runtime_stop(k);
	free(k->epoch);
	if (k->backend != NULL)
		k->backend->ops->free(k->backend);
	fal_setup_free(&k->setup);
	fal_texts_free(&k->texts);
	*k = (struct job_runtime){ 0 };
}

/* --- tasks -------------------------------------------------------------------------- */

void
runtime_fetch(struct job_runtime *k, uint64_t clock)
{
	if (k->fetches_nothing)
		return;
	const struct fal_places p = fal_setup_places(&k->setup, clock, 0);
	struct fal_epoch *e = fal_setup_epoch(&k->setup, p.epoch);
	prefetch_start(k->prefetch, &e->order, p.first, k->setup.job.task);
	fal_epoch_release(e);
}

bool
runtime_is_ready(const struct job_runtime *k)
{
	return k->probe.succeeded && !k->load.is_running &&
	       (!k->backend->needs_samples || prefetch_has_first_task(k->prefetch));
}

int
runtime_start_task(struct job_runtime *k, uint32_t lane, const struct fal_task_run *run)
{
	struct fal_setup *s = &k->setup;
	const struct fal_places p = run->eval
					    ? fal_setup_test_places(s, run->task)
					    : fal_setup_places(s, run->clock, run->task);
	struct fal_lane_task job = { .run = *run, .first = p.first, .count = p.count };
	if (p.count == 0)
		return FAL_EFORMAT;
	job.batch.samples = prefetch_samples(k->prefetch, run->eval);
	job.batch.norm = &s->norm;
	job.batch.order = &s->test_order;
	if (!run->eval) {
		k->epoch[lane] = fal_setup_epoch(s, p.epoch);
		job.batch.order = &k->epoch[lane]->order;
	}
	const bool has_samples =
		!k->backend->needs_samples ||
		prefetch_has(k->prefetch, run->eval, job.batch.order, p.first, p.count);
	lane_start(k->lanes, lane, &job, has_samples);
	if (!has_samples)
		prefetch_prioritize(k->prefetch, run->eval, job.batch.order, p.first,
				    p.count);
	return FAL_OK;
}

bool
runtime_can_start_early(const struct job_runtime *k)
{
	/* Only the native net can wait for blocks, and only without emulation does the
	 * wait take real time. */
	return k->backend->only_computes && k->conf.opt->emulate == NULL &&
	       k->setup.job.placement != FAL_JOB_PLACEMENT_PSLD;
}

void
runtime_release_tasks(struct job_runtime *k)
{
	for (uint32_t i = 0; i < runtime_slots(k); i++) {
		const struct fal_lane_task *j = lane_held_task(k->lanes, i);
		if (j != NULL && prefetch_has(k->prefetch, j->run.eval, j->batch.order,
					      j->first, j->count))
			lane_release(k->lanes, i);
	}
}

uint64_t
runtime_progress(const struct job_runtime *k)
{
	return lanes_progress(k->lanes) + k->chunks;
}

int
runtime_add_chunk(struct job_runtime *k, const struct fal_msg *m)
{
	k->chunks++;
	return prefetch_add_chunk(k->prefetch, m);
}

void
runtime_cancel(struct job_runtime *k, bool ends)
{
	if (ends && k->backend != NULL && k->backend->ops->quit != NULL)
		k->backend->ops->quit(k->backend);
	if (k->prefetch != NULL)
		prefetch_stop(k->prefetch);
	for (uint32_t i = 0; k->lanes != NULL && i < runtime_slots(k); i++)
		lane_cancel(k->lanes, i);
}

void
runtime_task_ended(struct job_runtime *k, uint32_t lane)
{
	fal_epoch_release(k->epoch[lane]);
	k->epoch[lane] = NULL;
}

bool
runtime_is_idle(const struct job_runtime *k)
{
	return !k->probe.is_running && !k->load.is_running &&
	       (k->lanes == NULL || lanes_are_idle(k->lanes));
}
