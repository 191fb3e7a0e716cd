/* The coordinator's state machine. */
#include "peer/coord.h"

#include "base/json.h"
#include "base/mem.h"
#include "peer/trace_lines.h"
#include "sched/sched.h"
#include "store/store.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An evaluation must be over so many clocks after its version (DESIGN section 7). */
enum { EVAL_CLOCKS = 5 };

/* Clocks between measurements of a worker's round trip. */
enum { PING_EVERY = 16 };

/* Of the block map: all blocks are on the one shard. */
enum { MAP_EPOCH = 1 };

struct fal_coord {
	struct fal_coord_conf conf;
	struct fal_coord_ops ops;
	double start;
	struct fal_sched *sched;
	struct fal_store *store;
	uint64_t clocks; /* of the whole job */
	bool published;  /* the newest version has been sent out */
	bool began;      /* enough workers were here once */
	bool finished;
	const char *why; /* why the job stopped, or NULL */

	struct fal_peer *peer; /* in order of their numbers */
	uint32_t peers;
	size_t peer_cap;
	/* The workers of the live sessions, in order of their ids. */
	struct fal_live {
		uint32_t worker, session;
	} * live;
	uint32_t lives;
	size_t live_cap;
	uint32_t workers;                     /* ids given so far */
	uint32_t ready;                       /* workers ready now */
	uint8_t fingerprint[FAL_FINGERPRINT]; /* of the first worker */
	bool have_fingerprint;

	bool evaluating;
	float *kept;
	uint64_t kept_version;
	uint64_t eval_right, eval_samples;
	uint64_t eval_loss; /* modulo 2^64: a lying worker must not overflow it */

	struct fal_coord_status status;
	struct fal_buf line; /* scratch */
};

static int send_version(struct fal_coord *c, double now);
static int advance(struct fal_coord *c, double now);

int
fal_coord_new(const struct fal_coord_conf *conf, const struct fal_coord_ops *ops,
	      const float *init, double now, struct fal_coord **out)
{
	struct fal_coord *c = fal_calloc(1, sizeof(*c));
	if (c == NULL)
		return FAL_ENOMEM;
	c->conf = *conf;
	c->ops = *ops;
	c->start = now;
	c->status.accuracy = -1;
	c->clocks = (uint64_t)conf->epochs *
		    ((conf->samples + conf->batch - 1) / conf->batch);
	struct fal_sched_conf sched = { .scheme = conf->scheme,
					.lanes_start = conf->lanes_start,
					/* forward only: about a third of a step */
					.eval_cost = 1.0 / 3 };
	struct fal_store_conf store = { .n = conf->params,
					.optim = conf->optim,
					.checksums = conf->audit_sums,
					.checksum_seed = conf->seed };
	int err = fal_sched_new(&sched, &c->sched);
	if (err == FAL_OK) {
		c->store = fal_store_new(&store, init);
		c->kept = fal_calloc_aligned(conf->params, sizeof(float));
		err = c->store != NULL && c->kept != NULL ? FAL_OK : FAL_ENOMEM;
	}
	if (err < 0) {
		fal_coord_free(c);
		return err;
	}
	fal_line_job(&c->line, conf, c->clocks, fal_blocks(conf->params));
	ops->trace(ops->arg, (const char *)c->line.p, c->line.n);
	fal_line_policy(&c->line, 0, 0, conf->scheme);
	ops->trace(ops->arg, (const char *)c->line.p, c->line.n);
	*out = c;
	return FAL_OK;
}

void
fal_coord_free(struct fal_coord *c)
{
	if (c == NULL)
		return;
	fal_sched_free(c->sched);
	fal_store_free(c->store);
	free(c->peer);
	free(c->live);
	free(c->kept);
	fal_buf_free(&c->line);
	free(c);
}

static void
trace_line(struct fal_coord *c)
{
	if (c->line.err == 0)
		c->ops.trace(c->ops.arg, (const char *)c->line.p, c->line.n);
}

/* Where session `id` is, or belongs, in the sorted peers. */
static uint32_t
place(const struct fal_coord *c, uint32_t id)
{
	uint32_t low = 0, high = c->peers;
	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		if (c->peer[mid].id < id)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static struct fal_peer *
find(const struct fal_coord *c, uint32_t id)
{
	uint32_t at = place(c, id);
	return at < c->peers && c->peer[at].id == id ? &c->peer[at] : NULL;
}

static int
send_msg(struct fal_coord *c, uint32_t peer, struct fal_msg *m)
{
	struct fal_buf out = { 0 };
	if (peer == 0)
		return FAL_OK;
	m->incarnation = c->conf.incarnation;
	int err = fal_msg_put(&out, m);
	if (err == FAL_OK)
		c->ops.send(c->ops.arg, peer, &out);
	fal_buf_free(&out);
	return err;
}

/* Ends a session for cause. */
static int
refuse(struct fal_coord *c, double now, uint32_t peer, const char *why)
{
	struct fal_msg m = { .type = FAL_MSG_REFUSE };
	snprintf(m.refuse.why, sizeof(m.refuse.why), "%s", why);
	if (peer == 0)
		return FAL_OK;
	int err = send_msg(c, peer, &m);
	int gone = fal_coord_gone(c, now, peer, why);
	c->ops.close(c->ops.arg, peer, why);
	return err < 0 ? err : gone;
}

static uint64_t
clocks_per_epoch(const struct fal_coord *c)
{
	return c->clocks / c->conf.epochs;
}

static uint32_t
clock_samples(const struct fal_coord *c, uint64_t clock)
{
	uint64_t first = clock % clocks_per_epoch(c) * c->conf.batch;
	uint64_t left = c->conf.samples - first;
	return left < c->conf.batch ? (uint32_t)left : c->conf.batch;
}

static uint32_t
clock_tasks(const struct fal_coord *c, uint64_t clock)
{
	return (clock_samples(c, clock) + c->conf.task - 1) / c->conf.task;
}

/* Where worker `id` is, or belongs, among the live ones. */
static uint32_t
live_place(const struct fal_coord *c, uint32_t id)
{
	uint32_t low = 0, high = c->lives;
	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		if (c->live[mid].worker < id)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* The session of worker `id`, or 0: it is gone, and so is what was to be said to it. */
static uint32_t
session_of(const struct fal_coord *c, uint32_t id)
{
	uint32_t at = live_place(c, id);
	return at < c->lives && c->live[at].worker == id ? c->live[at].session : 0;
}

/* Asks for a sign of life; the answer gives the round trip time, too. */
static int
ping(struct fal_coord *c, double now, uint32_t peer)
{
	struct fal_msg m = { .type = FAL_MSG_PING };
	m.ping.stamp = (uint64_t)((now - c->start) * 1e9);
	return send_msg(c, peer, &m);
}

static int
apply(struct fal_coord *c, double now, const struct fal_act *a)
{
	struct fal_msg m = { 0 };
	uint64_t clock = fal_store_version(c->store);
	uint32_t to = session_of(c, a->worker);
	switch (a->kind) {
	case FAL_ACT_GRANT:
		m.type = FAL_MSG_GRANT;
		m.grant.clock = clock;
		m.grant.first = a->first;
		m.grant.count = a->count;
		m.grant.fills_worker = a->fills.worker;
		m.grant.fills_seq = a->fills.seq;
		return send_msg(c, to, &m);
	case FAL_ACT_REVOKE:
		m.type = FAL_MSG_REVOKE;
		m.revoke.clock = clock;
		m.revoke.first = a->first;
		m.revoke.count = a->count;
		return send_msg(c, to, &m);
	case FAL_ACT_LANES:
		m.type = FAL_MSG_LANES;
		m.lanes.lanes = a->count;
		return send_msg(c, to, &m);
	case FAL_ACT_FENCE: {
		int err = fal_store_fence(c->store, a->cid, a->fills);
		m.type = FAL_MSG_FENCE;
		m.fence.clock = clock;
		m.fence.seq = a->cid.seq;
		return err < 0 ? err : send_msg(c, to, &m);
	}
	case FAL_ACT_EVAL:
		m.type = FAL_MSG_EVAL;
		m.eval.version = c->kept_version;
		m.eval.first = a->first;
		m.eval.count = a->count;
		return send_msg(c, to, &m);
	case FAL_ACT_PING:
		return ping(c, now, to);
	case FAL_ACT_EVICT:
		return refuse(c, now, to, a->why);
	case FAL_ACT_STOP:
		c->why = "a gradient is not finite on two runs";
		fal_line_nonfinite(&c->line, now - c->start, clock, a->first, find(c, to),
				   clock % clocks_per_epoch(c) * c->conf.batch +
					   (uint64_t)a->first * c->conf.task);
		trace_line(c);
		return FAL_OK;
	}
	return FAL_OK;
}

/* Carries out what the scheduler decided. */
static int
drain(struct fal_coord *c, double now)
{
	struct fal_act a;
	while (fal_sched_next(c->sched, &a)) {
		int err = apply(c, now, &a);
		if (err < 0)
			return err;
	}
	return FAL_OK;
}

/* The lines of the clock that has just been completed. */
static void
trace_clock(struct fal_coord *c, double now, uint64_t clock, double lr)
{
	const struct fal_ledger *l = fal_sched_ledger(c->sched);
	struct fal_line_ledger d = { .t = now - c->start,
				     .clock = clock,
				     .samples = clock_samples(c, clock),
				     .blocks = fal_blocks(c->conf.params),
				     .sums = c->conf.audit_sums };
	if (d.sums) {
		d.sent = fal_store_sent(c->store);
		d.added = fal_store_added(c->store);
	}
	fal_line_ledger(&c->line, &d, l);
	trace_line(c);
	fal_line_update(&c->line, d.t, clock + 1, clock, d.samples, c->status.loss, lr,
			clock / clocks_per_epoch(c) + 1);
	trace_line(c);
	for (size_t i = 0; i < l->log[FAL_ENTRY_MOVE].n; i++)
		c->status.moved += l->log[FAL_ENTRY_MOVE].v[i].count;
	for (size_t i = 0; i < l->log[FAL_ENTRY_CLONE].n; i++)
		c->status.cloned += l->log[FAL_ENTRY_CLONE].v[i].count;
	for (size_t i = 0; i < l->log[FAL_ENTRY_LOST].n; i++)
		c->status.lost += l->log[FAL_ENTRY_LOST].v[i].count;
	for (uint32_t i = 0; i < l->contribs; i++)
		if (l->contrib[i].fills != FAL_NONE &&
		    l->contrib[i].state == FAL_CONTRIB_DONE)
			c->status.filled += l->contrib[i].tasks;
	for (uint32_t i = 0; i < c->peers; i++) {
		struct fal_peer *p = &c->peer[i];
		if (!p->ready)
			continue;
		p->owes_line = fal_sched_info(c->sched, p->worker, &p->info);
		p->line_clock = clock;
		p->line_rx = p->rx;
		p->line_tx = p->tx;
	}
}

/* Every block has counted its tasks: the parameters move on. */
static int
complete_clock(struct fal_coord *c, double now)
{
	uint64_t clock = fal_store_version(c->store);
	uint32_t samples = clock_samples(c, clock);
	/* One float for all shards; the law needs no more than that all use the same. */
	float lr = (float)fal_schedule_lr(&c->conf.schedule, clock);
	c->status.loss = ldexp((double)fal_ledger_loss(fal_sched_ledger(c->sched)),
			       -FAL_LOSS_BITS) /
			 samples;
	int err = fal_sched_close(c->sched, now);
	if (err < 0)
		return err;
	fal_store_update(c->store, lr, samples);
	c->published = false;
	/* The workers wait for the version; the trace waits for nobody. */
	err = send_version(c, now);
	trace_clock(c, now, clock, (double)lr);
	return err < 0 ? err : advance(c, now);
}

static bool
eval_due(const struct fal_coord *c, uint64_t version)
{
	if (c->conf.test_samples == 0 || version == 0)
		return false;
	return version == c->clocks ||
	       (c->conf.eval_every > 0 && version % c->conf.eval_every == 0);
}

static void
publish(struct fal_coord *c, bool keep)
{
	uint64_t version = fal_store_version(c->store);
	if (keep) {
		memcpy(c->kept, fal_store_params(c->store),
		       c->conf.params * sizeof(float));
		c->kept_version = version;
		c->eval_right = c->eval_samples = 0;
		c->eval_loss = 0;
		c->evaluating = true;
	}
	for (uint32_t i = 0; i < c->peers; i++)
		if (c->peer[i].ready)
			c->ops.model(c->ops.arg, c->peer[i].id, false, keep);
	c->published = true;
}

/* Publishes the newest version, and has it evaluated if that is due, as far as allowed.
 */
static int
send_version(struct fal_coord *c, double now)
{
	bool keep = eval_due(c, fal_store_version(c->store));
	uint32_t tasks = (c->conf.test_samples + c->conf.task - 1) / c->conf.task;
	if (c->published || (keep && c->evaluating)) /* the one before is not over yet */
		return FAL_OK;
	publish(c, keep);
	return keep ? fal_sched_eval(c->sched, now, tasks) : FAL_OK;
}

/* At a clock boundary: publishes, evaluates, opens the next clock, as far as allowed. */
static int
advance(struct fal_coord *c, double now)
{
	uint64_t version = fal_store_version(c->store);
	if (c->finished || c->why != NULL || fal_sched_is_open(c->sched) || !c->began)
		return drain(c, now);
	int err = send_version(c, now);
	if (err < 0)
		return err;
	if (!c->published)
		return drain(c, now);
	if (version == c->clocks) {
		c->finished = !c->evaluating;
		return drain(c, now);
	}
	if (c->evaluating && version >= c->kept_version + EVAL_CLOCKS)
		return drain(c, now);
	uint32_t tasks = clock_tasks(c, version);
	fal_store_open(c->store, tasks);
	err = fal_sched_open(c->sched, now, version, tasks);
	return err < 0 ? err : drain(c, now);
}

/* Tells a session that there is nothing to do any more. */
static int
send_done(struct fal_coord *c, uint32_t peer)
{
	struct fal_msg m = { .type = c->why != NULL ? FAL_MSG_REFUSE : FAL_MSG_DONE };
	const char *text = c->why != NULL ? c->why : "the job is done";
	snprintf(m.done.why, sizeof(m.done.why), "%s", text);
	return send_msg(c, peer, &m);
}

static int
on_hello(struct fal_coord *c, uint32_t peer, const struct fal_msg *m,
	 struct fal_diag *diag)
{
	if (find(c, peer) != NULL)
		return fal_diag_set(diag, FAL_ESTATE, "a second HELLO");
	if (m->hello.major != FAL_PROTO_MAJOR)
		return fal_diag_set(diag, FAL_EVERSION,
				    "protocol %u.%u is spoken here, %u.%u there",
				    FAL_PROTO_MAJOR, FAL_PROTO_MINOR, m->hello.major,
				    m->hello.minor);
	if (m->hello.lanes_min < 1 || m->hello.lanes_max < m->hello.lanes_min ||
	    m->hello.lanes_max > FAL_LANES_MAX || m->hello.cores < 1 ||
	    m->hello.name[0] == '\0')
		return fal_diag_set(diag, FAL_EINVAL, "a HELLO with %u:%u lanes",
				    m->hello.lanes_min, m->hello.lanes_max);
	struct fal_msg w = { .type = FAL_MSG_WELCOME };
	w.welcome.clock = fal_store_version(c->store);
	w.welcome.job_n = c->conf.text_n[FAL_TEXT_JOB];
	w.welcome.model_n = c->conf.text_n[FAL_TEXT_MODEL];
	w.welcome.manifest_n = c->conf.text_n[FAL_TEXT_MANIFEST];
	w.welcome.epoch = MAP_EPOCH;
	int err = send_msg(c, peer, &w);
	if (err < 0 || c->finished || c->why != NULL)
		return err < 0 ? err : send_done(c, peer);
	if (FAL_GROW(c->peer, c->peer_cap, (size_t)c->peers + 1) < 0)
		return FAL_ENOMEM;
	struct fal_peer *p = &c->peer[place(c, peer)];
	memmove(p + 1, p, (size_t)(c->peer + c->peers++ - p) * sizeof(*p));
	*p = (struct fal_peer){ .id = peer,
				.lanes_min = m->hello.lanes_min,
				.lanes_max = m->hello.lanes_max,
				.cores = m->hello.cores };
	snprintf(p->name, sizeof(p->name), "%s", m->hello.name);
	return FAL_OK;
}

static int
check_fingerprint(struct fal_coord *c, const struct fal_peer *p, struct fal_diag *diag)
{
	if (!c->have_fingerprint) {
		memcpy(c->fingerprint, p->fingerprint, FAL_FINGERPRINT);
		c->have_fingerprint = true;
	}
	if (c->conf.numerics == FAL_NUMERICS_REQUIRE &&
	    memcmp(c->fingerprint, p->fingerprint, FAL_FINGERPRINT) != 0)
		return fal_diag_set(diag, FAL_EPERM,
				    "rounds differently, and the job says "
				    "numerics = require");
	return FAL_OK;
}

static int
on_ready(struct fal_coord *c, double now, struct fal_peer *p, const struct fal_msg *m,
	 struct fal_diag *diag)
{
	if (p->ready)
		return fal_diag_set(diag, FAL_ESTATE, "a second READY");
	memcpy(p->fingerprint, m->ready.fingerprint, FAL_FINGERPRINT);
	int err = check_fingerprint(c, p, diag);
	if (err < 0)
		return err;
	if (FAL_GROW(c->live, c->live_cap, (size_t)c->lives + 1) < 0)
		return FAL_ENOMEM;
	p->worker = ++c->workers;
	c->live[c->lives++] = (struct fal_live){ p->worker, p->id };
	p->ready = true;
	c->ready++;
	fal_line_join(&c->line, now - c->start, p);
	trace_line(c);
	if (c->evaluating) {
		c->ops.model(c->ops.arg, p->id, true, true);
	}
	if (c->published)
		c->ops.model(c->ops.arg, p->id, false, false);
	struct fal_join j = { .id = p->worker,
			      .lanes_min = p->lanes_min,
			      .lanes_max = p->lanes_max,
			      .cores = p->cores,
			      .task_s = (double)m->ready.task_ns * 1e-9 };
	err = fal_sched_join(c->sched, now, &j);
	if (err == FAL_OK)
		err = ping(c, now, p->id);
	if (c->ready >= c->conf.min_workers)
		c->began = true;
	return err < 0 ? err : advance(c, now);
}

static int
on_claim(struct fal_coord *c, double now, struct fal_peer *p, const struct fal_msg *m,
	 struct fal_diag *diag)
{
	struct fal_claim_in in = { .worker = p->worker,
				   .clock = m->claim.clock,
				   .task = m->claim.task,
				   .seq = m->claim.seq,
				   .fills = { m->claim.fills_worker, m->claim.fills_seq },
				   .task_s = (double)m->claim.task_ns * 1e-9,
				   .loss = m->claim.loss,
				   .nonfinite = m->claim.nonfinite != 0 };
	int won = fal_sched_claim(c->sched, now, &in);
	if (won < 0)
		return fal_diag_set(diag, won, "claims task %u of clock %" PRIu64 ": %s",
				    in.task, in.clock, fal_strerror(won));
	struct fal_msg v = { .type = FAL_MSG_VERDICT };
	v.verdict.clock = in.clock;
	v.verdict.task = in.task;
	v.verdict.seq = in.seq;
	v.verdict.won = won == 1;
	/* Before what follows from it: a fence must find its verdicts given. */
	int err = in.nonfinite ? FAL_OK : send_msg(c, p->id, &v);
	if (err == FAL_OK && in.clock >= p->ping_clock) {
		/* Often while the round trip is not known well, then now and again. */
		p->ping_clock = in.clock + (in.clock < PING_EVERY ? 1 : PING_EVERY);
		err = ping(c, now, p->id);
	}
	return err < 0 ? err : drain(c, now);
}

/* Adds the records of a PUSH; *added counts those that were not there yet. */
static int
add_records(struct fal_coord *c, const struct fal_msg *m, struct fal_cid cid,
	    struct fal_cid fills, uint32_t *added, struct fal_diag *diag)
{
	struct fal_rd r = fal_rd_init(m->push.records.p, m->push.records.n);
	*added = 0;
	while (r.err == 0 && r.n > 0) {
		struct fal_bfp_rec rec;
		int err = fal_bfp_parse(&r, c->conf.params, &rec);
		if (err < 0)
			return fal_diag_set(diag, err, "a malformed block: %s",
					    fal_strerror(err));
		if (rec.has_checksum != c->conf.audit_sums)
			return fal_diag_set(diag, FAL_EINVAL, "a block %s checksum",
					    rec.has_checksum ? "with a" : "without its");
		err = fal_store_add(c->store, cid, fills, m->push.tasks, &rec);
		if (err < 0)
			return fal_diag_set(diag, err, "block %u: %s", rec.block,
					    fal_strerror(err));
		*added += err == 1;
	}
	return r.err;
}

static int
on_push(struct fal_coord *c, double now, struct fal_peer *p, const struct fal_msg *m,
	struct fal_diag *diag)
{
	if (!fal_sched_is_open(c->sched) || m->push.clock != fal_store_version(c->store))
		return FAL_OK; /* too late to matter */
	if (m->push.epoch != MAP_EPOCH)
		return fal_diag_set(diag, FAL_ESTATE, "wrong map: epoch %u",
				    m->push.epoch);
	struct fal_cid cid = { p->worker, m->push.seq };
	const struct fal_contrib *contrib = fal_sched_contrib(c->sched, cid);
	if (contrib == NULL || contrib->tasks != m->push.tasks ||
	    m->push.kind != FAL_KIND_GRAD)
		return fal_diag_set(diag, FAL_ESTATE,
				    "pushes %u tasks that it has not claimed so",
				    m->push.tasks);
	if (contrib->state == FAL_CONTRIB_FENCED)
		return FAL_OK;
	uint32_t added;
	int err =
		add_records(c, m, cid, fal_sched_fills(c->sched, contrib), &added, diag);
	/* What came before a bad record is counted: the ledger must say so. */
	fal_sched_arrived(c->sched, now, cid, added, fal_store_whole(c->store, cid));
	int next = fal_store_complete(c->store) ? complete_clock(c, now) : drain(c, now);
	return err < 0 ? err : next;
}

static int
on_worked(struct fal_coord *c, double now, struct fal_peer *p, const struct fal_msg *m)
{
	if (!p->owes_line || p->line_clock != m->worked.clock)
		return FAL_OK;
	p->owes_line = false;
	fal_line_clock(&c->line, now - c->start, p, m);
	trace_line(c);
	return FAL_OK;
}

/* How many samples test task `task` has; 0: there is no such task. */
static uint32_t
eval_samples(const struct fal_coord *c, uint32_t task)
{
	uint64_t first = (uint64_t)task * c->conf.task, all = c->conf.test_samples;
	if (first >= all)
		return 0;
	return all - first < c->conf.task ? (uint32_t)(all - first) : c->conf.task;
}

static int
on_evaluated(struct fal_coord *c, double now, struct fal_peer *p, const struct fal_msg *m,
	     struct fal_diag *diag)
{
	if (!c->evaluating || m->evaluated.version != c->kept_version)
		return FAL_OK;
	uint32_t samples = eval_samples(c, m->evaluated.task);
	if (m->evaluated.samples != samples || m->evaluated.right > samples)
		return fal_diag_set(diag, FAL_EINVAL, "%u right of %u in test task %u",
				    m->evaluated.right, m->evaluated.samples,
				    m->evaluated.task);
	int counts = fal_sched_evaluated(c->sched, now, p->worker, m->evaluated.task,
					 (double)m->evaluated.task_ns * 1e-9);
	if (counts < 0)
		return fal_diag_set(diag, counts, "evaluated task %u, which is none",
				    m->evaluated.task);
	if (counts == 1) {
		c->eval_right += m->evaluated.right;
		c->eval_samples += m->evaluated.samples;
		c->eval_loss += (uint64_t)m->evaluated.loss;
	}
	if (!fal_sched_eval_done(c->sched))
		return drain(c, now);
	double n = (double)c->eval_samples;
	c->evaluating = false;
	c->status.accuracy = (double)c->eval_right / n;
	c->status.accuracy_loss =
		ldexp((double)(int64_t)c->eval_loss, -FAL_LOSS_BITS) / n;
	fal_line_eval(&c->line, now - c->start, c->kept_version,
		      c->kept_version / clocks_per_epoch(c), c->eval_right,
		      c->eval_samples, c->status.accuracy_loss);
	trace_line(c);
	return advance(c, now);
}

/* A worker hands back what it has. */
static int
leave(struct fal_coord *c, double now, struct fal_peer *p, const char *why)
{
	if (!p->ready)
		return FAL_OK;
	p->ready = false;
	p->left = true;
	c->ready--;
	if (p->owes_line) {
		struct fal_msg none = { .type = FAL_MSG_WORKED };
		none.worked.clock = p->line_clock;
		int err = on_worked(c, now, p, &none);
		if (err < 0)
			return err;
	}
	fal_line_leave(&c->line, now - c->start, p, why);
	trace_line(c);
	int err = fal_sched_leave(c->sched, now, p->worker);
	return err < 0 ? err : drain(c, now);
}

int
fal_coord_msg(struct fal_coord *c, double now, uint32_t peer, const struct fal_msg *m,
	      struct fal_diag *diag)
{
	if (m->incarnation != c->conf.incarnation && m->type != FAL_MSG_HELLO)
		return fal_diag_set(diag, FAL_ESTATE, "a message of incarnation %u",
				    m->incarnation);
	if (m->type == FAL_MSG_HELLO)
		return on_hello(c, peer, m, diag);
	struct fal_peer *p = find(c, peer);
	if (p != NULL && p->left)
		return FAL_OK;
	if (p == NULL || (!p->ready && m->type != FAL_MSG_READY))
		return fal_diag_set(diag, FAL_ESTATE, "%s before %s",
				    fal_msg_name(m->type), p == NULL ? "HELLO" : "READY");
	int err = p->worker != 0 ? fal_sched_heard(c->sched, now, p->worker) : FAL_OK;
	if (err < 0)
		return err;
	switch (m->type) {
	case FAL_MSG_READY:
		return on_ready(c, now, p, m, diag);
	case FAL_MSG_CLAIM:
		return on_claim(c, now, p, m, diag);
	case FAL_MSG_PUSH:
		return on_push(c, now, p, m, diag);
	case FAL_MSG_WORKED:
		return on_worked(c, now, p, m);
	case FAL_MSG_EVALUATED:
		return on_evaluated(c, now, p, m, diag);
	case FAL_MSG_LEAVE:
		return leave(c, now, p, m->leave.why);
	case FAL_MSG_PONG:
		fal_sched_rtt(c->sched, p->worker,
			      fmax(now - c->start - (double)m->pong.stamp * 1e-9, 0));
		return drain(c, now);
	default:
		return fal_diag_set(diag, FAL_ESTATE, "%s is not for a worker to send",
				    fal_msg_name(m->type));
	}
}

int
fal_coord_gone(struct fal_coord *c, double now, uint32_t peer, const char *why)
{
	struct fal_peer *p = find(c, peer);
	if (p == NULL)
		return FAL_OK;
	int err = leave(c, now, p, why);
	/* Whatever followed from that may have moved the table. */
	p = find(c, peer);
	if (p == NULL)
		return err;
	uint32_t at = live_place(c, p->worker);
	if (at < c->lives && c->live[at].worker == p->worker)
		memmove(c->live + at, c->live + at + 1,
			(--c->lives - at) * sizeof(*c->live));
	memmove(p, p + 1, (size_t)(c->peer + --c->peers - p) * sizeof(*p));
	return err;
}

void
fal_coord_refused(struct fal_coord *c, double now, const char *source, const char *why)
{
	fal_line_refuse(&c->line, now - c->start, source, why);
	trace_line(c);
}

void
fal_coord_traffic(struct fal_coord *c, uint32_t peer, uint64_t rx, uint64_t tx)
{
	struct fal_peer *p = find(c, peer);
	if (p != NULL) {
		p->rx = rx;
		p->tx = tx;
	}
}

int
fal_coord_tick(struct fal_coord *c, double now)
{
	int err = fal_sched_tick(c->sched, now);
	return err < 0 ? err : drain(c, now);
}

double
fal_coord_wake(const struct fal_coord *c)
{
	return fal_sched_wake(c->sched);
}

const struct fal_store *
fal_coord_store(const struct fal_coord *c)
{
	return c->store;
}

const float *
fal_coord_kept(const struct fal_coord *c, uint64_t *version)
{
	*version = c->kept_version;
	return c->evaluating ? c->kept : NULL;
}

struct fal_coord_status
fal_coord_status(const struct fal_coord *c)
{
	struct fal_coord_status s = c->status;
	s.clock = fal_store_version(c->store);
	s.clocks = c->clocks;
	s.workers = c->ready;
	s.done = c->finished;
	s.failed = c->why != NULL;
	s.why = c->why;
	return s;
}

void
fal_coord_finish(struct fal_coord *c, double now, const char *sha256, const char *why)
{
	c->why = why != NULL ? why : c->why;
	for (uint32_t i = 0; i < c->peers; i++) {
		struct fal_peer *p = &c->peer[i];
		if (p->left)
			continue;
		if (p->owes_line) {
			struct fal_msg none = { .type = FAL_MSG_WORKED };
			none.worked.clock = p->line_clock;
			on_worked(c, now, p, &none);
		}
		send_done(c, p->id);
		p->ready = false;
		p->left = true;
	}
	if (c->why != NULL)
		fal_line_failed(&c->line, now - c->start, fal_store_version(c->store),
				c->why);
	else
		fal_line_done(&c->line, now - c->start, fal_store_version(c->store),
			      sha256, c->status.accuracy);
	trace_line(c);
}
