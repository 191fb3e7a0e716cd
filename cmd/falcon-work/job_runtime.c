/* Lanes, data and the job they are for. */
#include "job_runtime.h"

#include "base/mem.h"
#include "net/conn.h"
#include "net/sendq.h"

#include <stdlib.h>

/* All but what follows from k->most. */
static struct fal_agent_conf
agent_conf(const struct kit *k)
{
	const struct fal_grid grid =
		fal_job_grid(&k->setup.job, k->setup.manifest.train.n);
	return (struct fal_agent_conf){ .n = k->setup.model->params,
					.lanes_max = k->conf.opt->lanes_max,
					.tasks = fal_grid_tasks(&grid, 0),
					.grid = grid,
					.push_bits = k->setup.job.push_bits,
					.seed = k->setup.job.seed,
					.optim = k->setup.job.optim };
}

struct fal_agent_conf
kit_agent_conf(const struct kit *k)
{
	struct fal_agent_conf conf = agent_conf(k);
	conf.most = k->most;
	conf.sums = fal_agent_sums(&conf, &k->most);
	return conf;
}

/* Bytes that come and go on so many streams: at the most a batch that waits, one that is
 * sealed, one that the socket has, and the bytes that were read. */
static uint64_t
streams_bytes(const struct kit *k, size_t streams)
{
	const uint64_t most = 3 * FAL_OUTBOX_MAX + FAL_CHAN_AHEAD;
	const uint64_t model = k->setup.model->params * sizeof(float);
	return streams * (model < most ? model : most);
}

/* The memory that the job takes of this process, where the probe has `room`.  The probe
 * is over, and its memory free, before there are versions and sums. */
static struct need
need_of(struct kit *k, uint64_t agent, uint64_t room)
{
	const struct maker_need is = k->maker->ops->need(k->maker, room);
	const uint64_t data = k->maker->samples ? fal_setup_bytes(&k->setup) : 0;
	k->agent = agent > is.probe ? agent : is.probe;
	k->streams = streams_bytes(k, k->conf.streams);
	return (struct need){ k->conf.opt->program + is.kernels + data + is.lanes +
				      k->agent + k->streams,
			      is.space };
}

/* Says what the job needs by k->most, and whether that is within --max-memory.  The probe
 * of a larger batch may take what versions and sums will, or 16 MiB; none, where
 * --max-memory is less. */
static int
afford(struct kit *k, struct fal_diag *diag)
{
	const struct work_opt *opt = k->conf.opt;
	const uint64_t least = 16 << 20, most = opt->max_memory;
	const struct fal_agent_conf conf = kit_agent_conf(k);
	const uint64_t agent = fal_agent_bytes(&conf, &k->most);
	k->need = need_of(k, agent, agent > least ? agent : least);
	if (most != 0 && k->need.bytes > most)
		k->need = need_of(k, agent, 0);
	return need_judge(opt, k->setup.job.name, "needs", k->need, 0, diag);
}

int
kit_grow(struct kit *k, const struct fal_agent_most *to, size_t streams,
	 struct fal_diag *diag)
{
	const struct fal_agent_conf conf = agent_conf(k);
	const uint64_t agent = fal_agent_bytes(&conf, to),
		       bytes = streams_bytes(k, streams);
	const uint64_t more = agent > k->agent ? agent - k->agent : 0,
		       wider = bytes > k->streams ? bytes - k->streams : 0;
	const struct need need = { k->need.bytes + more + wider, k->need.space };
	int err = need_judge(k->conf.opt, k->setup.job.name, "now needs", need,
			     k->need.bytes, diag);
	if (err < 0)
		return err;
	k->need = need;
	k->agent += more;
	k->streams += wider;
	k->most = *to;
	return FAL_OK;
}

static int
make_setup(struct kit *k, struct fal_diag *diag)
{
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
	err = fal_setup_make(&k->setup, &job, &model, diag);
	k->most = fal_agent_most(&k->setup.job.rule,
				 k->setup.job.eval != FAL_JOB_EVAL_NEVER);
	if (err == FAL_OK && k->setup.manifest.train.labels == NULL &&
	    k->setup.job.partition == FAL_JOB_PARTITION_LABEL_SKEW)
		return fal_diag_set(diag, FAL_EFORMAT,
				    "coordinator's manifest: no labels for "
				    "data.partition = label-skew");
	return err;
}

static int
equip(struct kit *k)
{
	const struct kit_conf *conf = &k->conf;
	const struct work_opt *opt = conf->opt;
	const struct lanes_conf lanes = { .maker = k->maker,
					  .lanes = opt->lanes_max,
					  .emulate = opt->emulate,
					  .hashed = fal_job_hashes_tasks(&k->setup.job),
					  .arg = conf->arg,
					  .on_end = conf->on_end };
	const struct feed_ops feed = { conf->arg, conf->get, conf->on_chunk };
	k->epoch = fal_xcalloc(opt->lanes_max, sizeof(struct fal_epoch *));
	int err = feed_new(conf->loop, &k->setup.manifest, opt->cache, &feed, &k->feed);
	if (err == FAL_OK)
		err = k->maker->ops->start(k->maker);
	if (opt->emulate != NULL)
		fal_emul_bind(opt->emulate, k->setup.job.batch);
	return err < 0 ? err : lanes_new(conf->loop, &lanes, &k->lanes);
}

/* ---- preparing --- */

static void
do_probe(uv_work_t *work)
{
	struct kit *k = work->data;
	k->probe.err = k->maker->ops->probe(k->maker, &k->probed);
}

static void
do_fill(uv_work_t *work)
{
	struct kit *k = work->data;
	k->fill.err = feed_fill(k->feed, &k->setup.job, k->conf.opt->data, &k->fill.diag);
}

static void
on_work_end(uv_work_t *work, int status)
{
	struct kit *k = work->data;
	struct kit_work *w = work == &k->probe.work ? &k->probe : &k->fill;
	(void)status; /* nobody cancels it */
	w->running = false;
	w->done = w->err == FAL_OK;
	k->conf.on_prepared(k->conf.arg);
}

static int
start_work(struct kit *k, struct kit_work *w, uv_work_cb work)
{
	w->work.data = k;
	w->running = uv_queue_work(k->conf.loop, &w->work, work, on_work_end) == 0;
	return w->running ? FAL_OK : FAL_EIO;
}

int
kit_make(struct kit *k, const struct kit_conf *conf, struct fal_texts *texts,
	 struct fal_diag *diag)
{
	const struct work_opt *opt = conf->opt;
	k->conf = *conf;
	k->texts = *texts;
	*texts = (struct fal_texts){ 0 };
	int err = make_setup(k, diag);
	if (err == FAL_OK)
		err = opt->exec != NULL
			      ? maker_exec_new(&k->setup, opt->exec, &k->maker, diag)
			      : maker_net_new(&k->setup, opt->lanes_max, &k->maker, diag);
	if (err == FAL_OK)
		err = afford(k, diag);
	if (err < 0)
		return err;
	k->local = opt->data != NULL || !k->maker->samples;
	err = equip(k);
	if (err == FAL_OK)
		err = start_work(k, &k->probe, do_probe);
	if (err == FAL_OK && opt->data != NULL)
		err = start_work(k, &k->fill, do_fill);
	k->made = err == FAL_OK;
	return err < 0 ? fal_diag_set(diag, err, "%s", fal_strerror(err)) : FAL_OK;
}

void
kit_stop(struct kit *k)
{
	lanes_free(k->lanes);
	feed_free(k->feed);
	k->lanes = NULL;
	k->feed = NULL;
}

void
kit_forget(struct kit *k)
{
	kit_stop(k);
	free(k->epoch);
	if (k->maker != NULL)
		k->maker->ops->free(k->maker);
	fal_setup_free(&k->setup);
	fal_texts_free(&k->texts);
	*k = (struct kit){ 0 };
}

void
kit_fetch(struct kit *k, uint64_t clock)
{
	if (k->local)
		return;
	const struct fal_places p = fal_setup_places(&k->setup, clock, 0);
	struct fal_epoch *e = fal_setup_epoch(&k->setup, p.epoch);
	feed_start(k->feed, &e->order, p.first, k->setup.job.task);
	fal_epoch_drop(e);
}

bool
kit_ready(const struct kit *k)
{
	return k->probe.done && !k->fill.running &&
	       (!k->maker->samples || feed_first(k->feed));
}

int
kit_run(struct kit *k, uint32_t lane, const struct fal_run *run)
{
	struct fal_setup *s = &k->setup;
	const struct fal_places p = run->eval
					    ? fal_setup_test_places(s, run->task)
					    : fal_setup_places(s, run->clock, run->task);
	struct fal_run_job job = { .run = *run, .first = p.first, .count = p.count };
	if (p.count == 0)
		return FAL_EFORMAT;
	job.batch.samples = feed_samples(k->feed, run->eval);
	job.batch.norm = &s->norm;
	job.batch.order = &s->test_order;
	if (!run->eval) {
		k->epoch[lane] = fal_setup_epoch(s, p.epoch);
		job.batch.order = &k->epoch[lane]->order;
	}
	const bool here = !k->maker->samples ||
			  feed_has(k->feed, run->eval, job.batch.order, p.first, p.count);
	lane_start(k->lanes, lane, &job, here);
	if (!here)
		feed_hurry(k->feed, run->eval, job.batch.order, p.first, p.count);
	return FAL_OK;
}

bool
kit_begins(const struct kit *k)
{
	/* A net whose time is real. */
	return k->maker->quick && k->conf.opt->emulate == NULL &&
	       k->setup.job.placement != FAL_JOB_PLACEMENT_PSLD;
}

void
kit_resume(struct kit *k)
{
	for (uint32_t i = 0; i < k->conf.opt->lanes_max; i++) {
		const struct fal_run_job *j = lane_waits(k->lanes, i);
		if (j != NULL &&
		    feed_has(k->feed, j->run.eval, j->batch.order, j->first, j->count))
			lane_begin(k->lanes, i);
	}
}

uint64_t
kit_steps(const struct kit *k)
{
	return lanes_steps(k->lanes) + k->chunks;
}

int
kit_chunk(struct kit *k, const struct fal_msg *m)
{
	k->chunks++;
	return feed_chunk(k->feed, m);
}

void
kit_halt(struct kit *k, bool end)
{
	if (end && k->maker != NULL && k->maker->ops->quit != NULL)
		k->maker->ops->quit(k->maker);
	if (k->feed != NULL)
		feed_stop(k->feed);
	for (uint32_t i = 0; k->lanes != NULL && i < k->conf.opt->lanes_max; i++)
		lane_cancel(k->lanes, i);
}

void
kit_ended(struct kit *k, uint32_t lane)
{
	fal_epoch_drop(k->epoch[lane]);
	k->epoch[lane] = NULL;
}

bool
kit_idle(const struct kit *k)
{
	return !k->probe.running && !k->fill.running &&
	       (k->lanes == NULL || lanes_idle(k->lanes));
}
