/* What workers say to the coordinator. */
#include "coord/priv.h"

#include "base/loss.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Clocks between measurements of a worker's round trip. */
enum { PING_EVERY = 16 };

int
coord_send_done(struct fal_coord *c, uint32_t peer)
{
	struct fal_msg m = { .type = c->why != NULL ? FAL_MSG_REFUSE : FAL_MSG_DONE };
	const char *text = c->why != NULL ? c->why : "the job is done";
	snprintf(m.done.why, sizeof(m.done.why), "%s", text);
	return coord_send(c, peer, &m);
}

static int
unwelcome(struct fal_diag *diag)
{
	return fal_diag_set(diag, FAL_EPERM,
			    "its key was charged twice for what it sent");
}

static int
on_hello(struct fal_coord *c, double now, uint32_t peer, const struct fal_msg *m,
	 struct fal_diag *diag)
{
	struct fal_peer *p = coord_find(c, peer);
	if (p == NULL || p->greeted)
		return fal_diag_set(diag, FAL_ESTATE, "a second HELLO");
	int err = fal_msg_judge_schema(m->hello.schema, diag);
	if (err < 0)
		return err;
	if (m->hello.lanes_min < 1 || m->hello.lanes_max < m->hello.lanes_min ||
	    m->hello.lanes_max > FAL_LANES_MAX || m->hello.cores < 1)
		return fal_diag_set(diag, FAL_EINVAL, "a HELLO with %u:%u lanes",
				    m->hello.lanes_min, m->hello.lanes_max);
	if (coord_is_banned(c, p))
		return unwelcome(diag);
	if (!fal_name_valid(m->hello.name))
		return fal_diag_set(diag, FAL_EINVAL,
				    "a HELLO with a name that is not 1 to 63 of "
				    "A-Z a-z 0-9 . _ -");
	struct fal_msg w = { .type = FAL_MSG_WELCOME };
	w.welcome.clock = fal_sched_front(c->sched);
	w.welcome.job_n = c->conf.text_n[FAL_TEXT_JOB];
	w.welcome.model_n = c->conf.text_n[FAL_TEXT_MODEL];
	w.welcome.manifest_n = c->conf.text_n[FAL_TEXT_MANIFEST];
	w.welcome.epoch = c->conf.tickets.epoch;
	err = coord_send(c, peer, &w);
	if (err < 0 || c->finished || c->why != NULL)
		return err < 0 ? err : coord_send_done(c, peer);
	p->greeted = true;
	p->group = m->hello.group != 0;
	p->since = fal_coord_seconds(c, now);
	p->lanes_min = m->hello.lanes_min;
	p->lanes_max = m->hello.lanes_max;
	p->cores = m->hello.cores;
	memcpy(p->build, m->hello.version, sizeof(p->build));
	return coord_name(c, now, peer, m->hello.name, m->hello.instance);
}

static void
trace_join(struct fal_coord *c, double now, struct fal_peer *p)
{
	const struct fal_known_key *k = &c->key[p->key - 1];
	const uint64_t lanes[] = { p->lanes_min, p->lanes_max };
	char hex[2 * FAL_FINGERPRINT + 1];
	const struct fal_ev_join line = {
		.worker = p->name,
		.id = p->worker,
		.key = k->name,
		.key_fingerprint = k->fingerprint,
		.lanes = { lanes, 2 },
		.cores = p->cores,
		.fingerprint = hex,
		.version = p->build[0] != '\0' ? p->build : NULL,
		.kernels = p->kernels[0] != '\0' ? p->kernels : NULL,
		.task_s = (double)p->task_ns * 1e-9,
		.large = p->large,
		.large_s = p->large > 0 ? (double)p->large_ns * 1e-9 : (double)NAN,
	};
	fal_hex(p->fingerprint, FAL_FINGERPRINT, hex);
	p->joined = fal_coord_seconds(c, now);
	fal_trace_put(&c->line, p->joined, FAL_EV_JOIN, &line);
	coord_trace(c);
}

static void
tell_came(struct fal_coord *c, const struct fal_peer *p)
{
	if (c->ops.came == NULL)
		return;
	coord_call(c);
	c->ops.came(c->ops.arg, p->id, p->name, c->key[p->key - 1].name);
	coord_called(c);
}

static void
tell_went(struct fal_coord *c, const struct fal_peer *p, const char *why)
{
	if (c->ops.went == NULL)
		return;
	coord_call(c);
	c->ops.went(c->ops.arg, p->id, p->name, why);
	coord_called(c);
}

static int
on_ready(struct fal_coord *c, double now, struct fal_peer *p, const struct fal_msg *m,
	 struct fal_diag *diag)
{
	if (p->ready)
		return fal_diag_set(diag, FAL_ESTATE, "a second READY");
	if (coord_is_banned(c, p)) /* since HELLO */
		return unwelcome(diag);
	const bool tried = m->ready.large > 0 || m->ready.large_ns > 0;
	if (tried && (m->ready.task_ns == 0 || m->ready.large_ns == 0 ||
		      m->ready.large <= c->conf.grid.task))
		return fal_diag_set(diag, FAL_EINVAL,
				    "probes %u samples in %" PRIu64 " ns", m->ready.large,
				    m->ready.large_ns);
	int err = coord_data(c, now, p, m->ready.data);
	if (err != FAL_OK)
		return err < 0 ? err : FAL_OK;
	memcpy(p->fingerprint, m->ready.fingerprint, FAL_FINGERPRINT);
	memcpy(p->kernels, m->ready.kernels, sizeof(p->kernels));
	p->task_ns = m->ready.task_ns;
	p->large = m->ready.large;
	p->large_ns = m->ready.large_ns;
	if (FAL_GROW(c->live, c->live_cap, (size_t)c->lives + 1) < 0 ||
	    FAL_GROW(c->known, c->known_cap, (size_t)c->workers + 1) < 0)
		return FAL_ENOMEM;
	struct fal_known_worker *known = &c->known[c->workers];
	known->key = p->key;
	memcpy(known->fingerprint, p->fingerprint, FAL_FINGERPRINT);
	memcpy(known->name, p->name, sizeof(known->name));
	p->worker = ++c->workers;
	c->live[c->lives++] = (struct fal_live){ p->worker, p->id };
	p->ready = true;
	c->ready++;
	trace_join(c, now, p);
	tell_came(c, p);
	const struct fal_bound_lanes probe = coord_lanes(c, p);
	struct fal_join j = { .id = p->worker,
			      .name = p->name,
			      .key = p->key,
			      .numerics = coord_numerics_of(c, p->fingerprint),
			      .lanes_min = p->lanes_min,
			      .lanes_max = p->lanes_max,
			      .cores = p->cores,
			      .task_s = probe.task_s,
			      .fixed = probe.fixed,
			      .rtt = p->rtt,
			      .was = coord_speed_of(c, p),
			      .group = p->group,
			      /* until it is seen whose fingerprint counts */
			      .stands_by = c->conf.numerics == FAL_NUMERICS_REQUIRE };
	err = coord_send_blocks(c, p->id);
	if (err == FAL_OK)
		err = fal_sched_join(c->sched, now, &j);
	if (err == FAL_OK)
		err = coord_ping(c, now, p->id);
	if (err == FAL_OK)
		err = coord_numerics(c, now);
	if (err == FAL_OK)
		err = coord_data_others(c, now);
	if (c->ready >= c->conf.min_workers)
		c->began = true;
	return err < 0 ? err : coord_advance(c, now);
}

/* Workers of the group server have come or gone. */
static int
on_capacity(struct fal_coord *c, double now, struct fal_peer *p, const struct fal_msg *m,
	    struct fal_diag *diag)
{
	if (m->capacity.lanes < 1 || m->capacity.lanes > FAL_LANES_MAX ||
	    m->capacity.members < 1)
		return fal_diag_set(diag, FAL_EINVAL, "a CAPACITY of %u lanes of %u",
				    m->capacity.lanes, m->capacity.members);
	p->lanes_min = p->lanes_max = p->cores = m->capacity.lanes;
	p->task_ns = m->capacity.task_ns > 0 ? m->capacity.task_ns : p->task_ns;
	p->large = 0;
	p->large_ns = 0;
	fal_trace_put(&c->line, fal_coord_seconds(c, now), FAL_EV_GROUP,
		      &(struct fal_ev_group){ p->name, p->worker, m->capacity.members,
					      m->capacity.lanes });
	coord_trace(c);
	int err = fal_sched_capacity(c->sched, now, p->worker, m->capacity.lanes,
				     (double)m->capacity.task_ns * 1e-9);
	return err < 0 ? err : coord_advance(c, now);
}

/* The worker has closed a contribution: it gets the ticket, or, where nothing of it
 * counts any more, learns so. */
static int
seal(struct fal_coord *c, const struct fal_peer *p, uint64_t round, uint32_t seq,
     struct fal_diag *diag)
{
	const struct fal_cid id = { p->worker, seq };
	struct fal_msg m = { .type = FAL_MSG_FENCE };
	struct fal_ticket t;
	int sealed = fal_sched_seal(c->sched, round, id);
	if (sealed < 0)
		return fal_diag_set(diag, sealed,
				    "closes contribution %u of round %" PRIu64 " twice",
				    seq, round);
	m.fence.round = round;
	m.fence.seq = seq;
	if (sealed == 1 && coord_ticket(c, round, id, &t)) {
		m.type = FAL_MSG_TICKET;
		fal_ticket_put(&c->conf.tickets, p->id, &t, &m.ticket);
	}
	return coord_send(c, p->id, &m);
}

static int
on_seal(struct fal_coord *c, double now, const struct fal_peer *p,
	const struct fal_msg *m, struct fal_diag *diag)
{
	int err = seal(c, p, m->seal.round, m->seal.seq, diag);
	return err < 0 ? err : coord_advance(c, now);
}

/* To whoever has brought the task. */
static void
tell_claimed(struct fal_coord *c, const struct fal_msg *m)
{
	const struct fal_coord_claimed is = { .round = m->claim.round,
					      .task_ns = m->claim.task_ns,
					      .task = m->claim.task,
					      .loss = m->claim.loss,
					      .hash = m->claim.hash };
	if (c->brought)
		coord_tell_claimed(c, &is);
}

/* Was the worker granted the task, if it was, on other versions than it says? */
static bool
is_granted_else(const struct fal_coord *c, const struct fal_round_info *r,
		const struct fal_claim_in *in)
{
	bool other = !r->mixed && in->version != r->version;
	for (size_t i = 0; i < c->ons && r->mixed; i++) {
		const struct fal_granted_on *o = &c->on[i];
		if (o->round != r->round || o->worker != in->worker ||
		    in->task - o->first >= o->count)
			continue;
		if (o->version == in->version)
			return false;
		other = true;
	}
	return other;
}

static int
on_claim(struct fal_coord *c, double now, struct fal_peer *p, const struct fal_msg *m,
	 struct fal_diag *diag)
{
	struct fal_claim_in in = { .worker = p->worker,
				   .round = m->claim.round,
				   .task = m->claim.task,
				   .seq = m->claim.seq,
				   .fills = { m->claim.fills_worker, m->claim.fills_seq },
				   .task_s = (double)m->claim.task_ns * 1e-9,
				   .loss = m->claim.loss,
				   .version = m->claim.version,
				   .nonfinite = m->claim.nonfinite != 0 };
	if (c->conf.task_hashes)
		memcpy(in.hash, m->claim.hash, sizeof(in.hash));
	if (!fal_loss_fits(in.loss, c->conf.grid.task))
		return fal_diag_set(diag, FAL_EINVAL, "claims a loss of %.6g",
				    fal_loss_is(in.loss));
	struct fal_round_info r;
	if (fal_sched_round(c->sched, in.round, &r) && is_granted_else(c, &r, &in))
		return fal_diag_set(diag, FAL_EINVAL,
				    "computes round %" PRIu64 " on version %" PRIu64,
				    in.round, m->claim.version);
	in.verify = !in.nonfinite && coord_verify_draw(c, p, in.round);
	int won = fal_sched_claim(c->sched, now, &in);
	if (won < 0)
		return fal_diag_set(diag, won, "claims task %u of round %" PRIu64 ": %s",
				    in.task, in.round, fal_strerror(won));
	int err = FAL_OK;
	if (won == 1 && !in.nonfinite)
		coord_trainer_works(c);
	if (won == 1 && !in.nonfinite && !c->brought &&
	    fal_sched_round(c->sched, in.round, &r))
		err = coord_health_claim(c, r.clock, p->key, in.loss,
					 fal_grid_range_samples(&c->conf.grid, r.clock,
								in.task, 1));
	if (won == 1 && !in.nonfinite)
		tell_claimed(c, m);
	/* What was claimed ahead waits for nothing. */
	const bool waits = !in.nonfinite && in.seq < FAL_PRECLAIMED;
	struct fal_msg v = { .type = FAL_MSG_VERDICT };
	v.verdict.round = in.round;
	v.verdict.task = in.task;
	v.verdict.seq = in.seq;
	v.verdict.won = won == 1;
	/* Before what follows from it: a fence must find its verdicts given. */
	if (err == FAL_OK && waits)
		err = coord_send(c, p->id, &v);
	if (err == FAL_OK && waits && m->claim.last != 0)
		err = seal(c, p, in.round, in.seq, diag);
	uint64_t clock = fal_sched_over(c->sched);
	if (err == FAL_OK && clock >= p->ping_clock) {
		/* Often while the round trip is not known well, then now and again. */
		p->ping_clock = clock + (clock < PING_EVERY ? 1 : PING_EVERY);
		err = coord_ping(c, now, p->id);
	}
	return err < 0 ? err : coord_advance(c, now);
}

/* What is pushed behind the only claim of its contribution, before its worker can have
 * the ticket, gets that here.  0: nothing of it counts; 1; or FAL_ESTATE. */
static int
ticket_early(const struct fal_coord *c, const struct fal_peer *p, struct fal_msg *m,
	     struct fal_diag *diag)
{
	const struct fal_msg_ticket *is = &m->push.ticket;
	const struct fal_cid id = { p->worker, is->seq };
	const struct fal_contrib *to = fal_sched_contrib(c->sched, is->round, id);
	struct fal_ticket t;
	if (!fal_sched_begun(c->sched, is->round))
		return fal_diag_set(diag, FAL_ESTATE, "pushes to round %" PRIu64,
				    is->round);
	if (to == NULL || to->state == FAL_CONTRIB_FENCED)
		return 0;
	if (!to->sealed)
		return fal_diag_set(diag, FAL_ESTATE,
				    "pushes contribution %u of round %" PRIu64
				    " before it is closed",
				    is->seq, is->round);
	if (to->tasks != 1 || is->tasks != 1 || !coord_ticket(c, is->round, id, &t))
		return 0;
	fal_ticket_put(&c->conf.tickets, p->id, &t, &m->push.ticket);
	return 1;
}

/* A push is the shards' business; what becomes of it they say. */
static int
on_push(struct fal_coord *c, double now, struct fal_peer *p, const struct fal_msg *m,
	struct fal_diag *diag)
{
	struct fal_msg early;
	if (fal_ticket_blank(&m->push.ticket)) {
		early = *m;
		m = &early;
		const int counts = ticket_early(c, p, &early, diag);
		if (counts <= 0)
			return counts;
	}
	coord_call(c);
	int err = c->ops.shards.push(c->ops.shards.arg, p->id, m, diag);
	coord_called(c);
	if (err == FAL_ELIMIT || err == FAL_EINVAL)
		coord_charge_key(c, p);
	int next = coord_advance(c, now);
	return err < 0 ? err : next;
}

/* The part of what it says to have spent that counts: nobody spends more than it is here,
 * but for what its clock runs faster and what came late; the audit holds the trace to
 * twice that (falcon-trace(5)).  Its first line tells also of what was before it joined.
 */
static double
credible(struct fal_peer *p, double now, const struct fal_msg *m)
{
	const double here = now - (p->accounted ? p->joined : p->since);
	const double most = here + 0.5 + here / 200 - p->spent;
	const double says = ((double)m->worked.compute + (double)m->worked.push +
			     (double)m->worked.pull + (double)m->worked.wait) *
			    1e-9;
	const double counts = fmin(says, fmax(most, 0));
	p->spent += p->accounted ? counts : 0;
	p->accounted = true;
	return says > 0 ? counts / says : 1;
}

/* Seconds, of which a part counts. */
static double
part_of(uint64_t ns, double part)
{
	return (double)(part < 1 ? (uint64_t)((double)ns * part) : ns) * 1e-9;
}

/* Writes the oldest `clock` line that the peer owes. */
static void
pay(struct fal_coord *c, double now, struct fal_peer *p, const struct fal_msg *m)
{
	const struct fal_owed *o = &p->owed[0];
	const double at = fal_coord_seconds(c, now), part = credible(p, at, m);
	struct fal_ev_clock line = { .clock = o->clock,
				     .round = o->own ? o->round : FAL_TRACE_ABSENT,
				     .worker = p->name,
				     .id = p->worker,
				     .lanes = o->info.lanes,
				     .compute = part_of(m->worked.compute, part),
				     .push = part_of(m->worked.push, part),
				     .pull = part_of(m->worked.pull, part),
				     .wait = part_of(m->worked.wait, part),
				     .push_all = part_of(m->worked.push_all, 1),
				     .pull_all = part_of(m->worked.pull_all, 1),
				     .late = part_of(m->worked.late, 1),
				     .rtt = o->info.rtt,
				     .tx = o->tx - p->told_tx,
				     .rx = o->rx - p->told_rx };
	fal_line_clock(&c->line, at, &o->work, &line);
	coord_trace(c);
	p->told_tx = o->tx;
	p->told_rx = o->rx;
	memmove(p->owed, p->owed + 1, sizeof(*p->owed) * --p->oweds);
}

/* Writes the `clock` lines that the peer owes, up to that of the ACCOUNT `m` answers. */
static int
on_worked(struct fal_coord *c, double now, struct fal_peer *p, const struct fal_msg *m,
	  struct fal_diag *diag)
{
	const struct fal_msg none = { .type = FAL_MSG_WORKED };
	uint32_t at = 0;
	while (at < p->oweds && p->owed[at].round != m->worked.mark)
		at++;
	if (at == p->oweds && (at == 0 || m->worked.mark < p->answered ||
			       m->worked.mark > p->owed[0].round))
		return FAL_OK;
	/* It comes from far, and its line could not wait: it goes into the next one. */
	at = at < p->oweds ? at : 0;
	p->answered = m->worked.mark + 1;
	int err = coord_waited(c, p->worker, m);
	if (err < 0)
		return fal_diag_set(diag, err, "WORKED: %s", fal_strerror(err));
	for (; at > 0; at--)
		pay(c, now, p, &none);
	pay(c, now, p, m);
	return coord_advance(c, now);
}

void
coord_owed(struct fal_coord *c, double now, struct fal_peer *p, uint32_t left)
{
	const struct fal_msg none = { .type = FAL_MSG_WORKED };
	while (p->oweds > left)
		pay(c, now, p, &none);
}

/* A worker hands back what it has. */
static int
leave(struct fal_coord *c, double now, struct fal_peer *p, const char *why)
{
	if (!p->ready)
		return FAL_OK;
	char plain[FAL_MSG_WHY];
	why = fal_text_plain(plain, sizeof(plain), why);
	p->ready = false;
	p->left = true;
	c->ready--;
	coord_owed(c, now, p, 0);
	fal_trace_put(&c->line, fal_coord_seconds(c, now), FAL_EV_LEAVE,
		      &(struct fal_ev_leave){ p->name, p->worker, why, !p->parted });
	coord_trace(c);
	tell_went(c, p, why);
	fal_sched_leave(c->sched, now, p->worker);
	int err = coord_numerics(c, now);
	return err < 0 ? err : coord_advance(c, now);
}

static int
on_leave(struct fal_coord *c, double now, struct fal_peer *p, const struct fal_msg *m,
	 struct fal_diag *diag)
{
	char why[FAL_MSG_WHY];
	fal_text_plain(why, sizeof(why), m->leave.why);
	if (m->leave.cause > FAL_LEAVE_TRAINER)
		return fal_diag_set(diag, FAL_EINVAL, "LEAVE for cause %u",
				    m->leave.cause);
	if (m->leave.cause == FAL_LEAVE_NONFINITE && fal_sched_steps(c->sched, p->worker))
		coord_diverged(c, p, "local steps led to weights that are not finite");
	if (m->leave.cause == FAL_LEAVE_TRAINER)
		coord_trainer_failed(c, now, p, why);
	p->parted = m->leave.cause == FAL_LEAVE_ASKED;
	if (p->ready)
		return leave(c, now, p, why);
	p->left = true;
	tell_went(c, p, why);
	return coord_advance(c, now);
}

static int
on_pong(struct fal_coord *c, double now, const struct fal_peer *p,
	const struct fal_msg *m)
{
	double rtt = fmax(now - c->start - (double)m->pong.stamp * 1e-9, 0);
	fal_sched_pong(c->sched, now, p->worker, rtt, m->pong.steps);
	return coord_advance(c, now);
}

int
fal_coord_msg(struct fal_coord *c, double now, uint32_t peer, const struct fal_msg *m,
	      struct fal_diag *diag)
{
	coord_enter(c);
	if (m->incarnation != c->conf.tickets.incarnation && m->type != FAL_MSG_HELLO)
		return fal_diag_set(diag, FAL_ESTATE, "a message of incarnation %u",
				    m->incarnation);
	if (m->type == FAL_MSG_HELLO)
		return on_hello(c, now, peer, m, diag);
	struct fal_peer *p = coord_find(c, peer);
	if (p != NULL && p->left)
		return FAL_OK;
	bool greeted = p != NULL && p->greeted;
	bool early = m->type == FAL_MSG_READY || m->type == FAL_MSG_LEAVE;
	if (!greeted || (!p->ready && !early))
		return fal_diag_set(diag, FAL_ESTATE, "%s before %s",
				    fal_msg_name(m->type), greeted ? "READY" : "HELLO");
	if (p->worker != 0)
		fal_sched_heard(c->sched, now, p->worker);
	switch (m->type) {
	case FAL_MSG_READY:
		return on_ready(c, now, p, m, diag);
	case FAL_MSG_CLAIM:
		return on_claim(c, now, p, m, diag);
	case FAL_MSG_PUSH:
		return on_push(c, now, p, m, diag);
	case FAL_MSG_SEAL:
		return on_seal(c, now, p, m, diag);
	case FAL_MSG_WORKED:
		return on_worked(c, now, p, m, diag);
	case FAL_MSG_EVALUATED:
		return coord_evaluated(c, now, p, m, diag);
	case FAL_MSG_CHECKED: {
		int err = coord_verify_checked(c, now, p, m);
		return err < 0 ? err : coord_advance(c, now);
	}
	case FAL_MSG_LEAVE:
		return on_leave(c, now, p, m, diag);
	case FAL_MSG_PONG:
		return on_pong(c, now, p, m);
	case FAL_MSG_CAPACITY:
		return on_capacity(c, now, p, m, diag);
	default:
		return fal_diag_set(diag, FAL_ESTATE, "%s is not for a worker to send",
				    fal_msg_name(m->type));
	}
}

int
fal_coord_gone(struct fal_coord *c, double now, uint32_t peer, const char *why)
{
	coord_enter(c);
	struct fal_peer *p = coord_find(c, peer);
	if (p == NULL)
		return FAL_OK;
	/* So long it kept the job from its end: it may be back. */
	if (p->greeted)
		c->trainer.since = now;
	int err = leave(c, now, p, why);
	/* Whatever followed from that may have moved the table. */
	p = coord_find(c, peer);
	if (p == NULL)
		return err;
	uint32_t at = coord_live_place(c, p->worker);
	if (at < c->lives && c->live[at].worker == p->worker)
		memmove(c->live + at, c->live + at + 1,
			(--c->lives - at) * sizeof(*c->live));
	memmove(p, p + 1, (size_t)(c->peer + --c->peers - p) * sizeof(*p));
	return err;
}

void
fal_coord_refused(struct fal_coord *c, double now, const char *key, const char *why,
		  uint64_t count)
{
	coord_enter(c);
	fal_trace_put(&c->line, fal_coord_seconds(c, now), FAL_EV_REFUSE,
		      &(struct fal_ev_refuse){ key, why, count });
	coord_trace(c);
}

void
fal_coord_traffic(struct fal_coord *c, uint32_t peer, uint64_t rx, uint64_t tx)
{
	coord_enter(c);
	struct fal_peer *p = coord_find(c, peer);
	if (p != NULL) {
		p->rx = rx;
		p->tx = tx;
	}
}
