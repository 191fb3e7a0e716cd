/* Trace lines. */
#include "coord/trace_lines.h"

#include "base/json.h"
#include "base/parse.h"
#include "wire/bfp.h"

#include <inttypes.h>

static void
begin(struct fal_buf *b, double t, const char *ev)
{
	fal_buf_clear(b);
	fal_put_fmt(b, "{\"t\":%.6f,\"ev\":\"%s\"", t < 0 ? 0 : t, ev);
}

static void
key(struct fal_buf *b, const char *name)
{
	fal_put_fmt(b, ",\"%s\":", name);
}

static void
str(struct fal_buf *b, const char *name, const char *value)
{
	key(b, name);
	fal_json_str(b, value);
}

static void
num(struct fal_buf *b, const char *name, uint64_t value)
{
	key(b, name);
	fal_json_u64(b, value);
}

static void
real(struct fal_buf *b, const char *name, double value)
{
	key(b, name);
	fal_json_num(b, value);
}

static void
seconds(struct fal_buf *b, const char *name, uint64_t ns)
{
	key(b, name);
	fal_json_fixed(b, (double)ns * 1e-9, 6);
}

static void
end(struct fal_buf *b)
{
	fal_put_u8(b, '}');
}

static void
who(struct fal_buf *b, const struct fal_peer *p)
{
	str(b, "worker", p->name);
	num(b, "id", p->worker);
}

void
fal_line_job(struct fal_buf *b, const struct fal_coord_conf *conf, uint32_t blocks)
{
	static const char *const numerics[] = { "fast", "portable", "require" };
	const struct fal_grid *g = &conf->grid;
	begin(b, 0, "job");
	str(b, "name", conf->name);
	str(b, "hash", conf->hash);
	/* A string: JSON readers lose integers above 2^53. */
	fal_put_fmt(b, ",\"seed\":\"%" PRIu64 "\"", conf->seed);
	num(b, "epochs", g->epochs);
	num(b, "batch", g->batch);
	num(b, "task", g->task);
	if (g->parts > 1)
		num(b, "parts", g->parts);
	num(b, "samples", g->samples);
	num(b, "test", conf->test_samples);
	num(b, "params", conf->params);
	num(b, "blocks", blocks);
	num(b, "shards", conf->shards);
	num(b, "clocks_per_epoch", fal_grid_epoch_clocks(g));
	num(b, "clocks", fal_grid_clocks(g));
	fal_put_fmt(b, ",\"scheme\":\"");
	fal_rule_put(&conf->policy->rule, b);
	fal_put_u8(b, '"');
	str(b, "audit", conf->audit_sums ? "sums" : "claims");
	str(b, "numerics", numerics[conf->numerics]);
	str(b, "optimizer", fal_optim_name(conf->optim.kind));
	if (conf->optim.kind == FAL_MOMENTUM || conf->optim.kind == FAL_NESTEROV)
		real(b, "momentum", (double)conf->optim.momentum);
	if (conf->optim.kind == FAL_ADAMW)
		real(b, "beta1", conf->optim.beta1);
	num(b, "incarnation", conf->incarnation);
	str(b, "version", FAL_VERSION);
	end(b);
}

void
fal_line_policy(struct fal_buf *b, double t, const struct fal_line_policy *d)
{
	begin(b, t, "policy");
	num(b, "clock", d->clock);
	str(b, "scheme", d->scheme);
	str(b, "by", d->by);
	num(b, "version", d->version);
	if (d->policy != NULL) {
		key(b, "policy");
		fal_put_bytes(b, d->policy, d->policy_n);
	}
	end(b);
}

void
fal_line_hold(struct fal_buf *b, double t, const char *why, const char *by)
{
	begin(b, t, "hold");
	str(b, "why", why);
	str(b, "by", by);
	end(b);
}

void
fal_line_join(struct fal_buf *b, double t, const struct fal_peer *p,
	      const struct fal_known_key *k)
{
	char hex[2 * FAL_FINGERPRINT + 1];
	fal_hex(p->fingerprint, FAL_FINGERPRINT, hex);
	begin(b, t, "join");
	who(b, p);
	str(b, "key", k->name);
	str(b, "key_fingerprint", k->fingerprint);
	fal_put_fmt(b, ",\"lanes\":[%u,%u]", p->lanes_min, p->lanes_max);
	num(b, "cores", p->cores);
	str(b, "fingerprint", hex);
	if (p->task_ns > 0)
		seconds(b, "task_s", p->task_ns);
	if (p->large > 0) {
		num(b, "large", p->large);
		seconds(b, "large_s", p->large_ns);
	}
	end(b);
}

void
fal_line_leave(struct fal_buf *b, double t, const struct fal_peer *p, const char *why)
{
	begin(b, t, "leave");
	who(b, p);
	str(b, "reason", why);
	end(b);
}

/* The samples of the tasks that ended, the mean seconds of one, and how they changed. */
static void
paces(struct fal_buf *b, const struct fal_work *w)
{
	double sum = 0;
	uint64_t samples = 0;
	uint32_t tasks = 0;
	for (uint32_t i = 0; i < w->paces; i++) {
		sum += w->pace[i].seconds;
		samples += w->pace[i].samples;
		tasks += w->pace[i].tasks;
	}
	num(b, "samples", samples);
	key(b, "task_s");
	fal_json_fixed(b, tasks > 0 ? sum / tasks : 0, 6);
	if (w->paces < 2)
		return;
	key(b, "paces");
	for (uint32_t i = 0; i < w->paces; i++)
		fal_put_fmt(b, "%s[%u,%.0f,%" PRIu64 "]", i == 0 ? "[" : ",",
			    w->pace[i].tasks, 1e6 * w->pace[i].seconds / w->pace[i].tasks,
			    w->pace[i].samples);
	fal_put_u8(b, ']');
}

void
fal_line_clock(struct fal_buf *b, double t, struct fal_peer *p,
	       const struct fal_msg *worked)
{
	const struct fal_owed *o = &p->owed[0];
	const struct fal_work *w = &o->work;
	begin(b, t, "clock");
	num(b, "clock", o->clock);
	if (o->own)
		num(b, "round", o->round);
	who(b, p);
	num(b, "lanes", o->info.lanes);
	num(b, "share", w->share);
	num(b, "done", w->done);
	num(b, "in", w->in);
	num(b, "out", w->out);
	num(b, "cloned", w->cloned);
	num(b, "lost", w->lost);
	seconds(b, "compute", worked->worked.compute);
	seconds(b, "push", worked->worked.push);
	seconds(b, "pull", worked->worked.pull);
	seconds(b, "wait", worked->worked.wait);
	seconds(b, "push_all", worked->worked.push_all);
	seconds(b, "pull_all", worked->worked.pull_all);
	seconds(b, "late", worked->worked.late);
	paces(b, w);
	if (w->cut.tasks > 0) {
		num(b, "cut", w->cut.tasks);
		key(b, "cut_s");
		fal_json_fixed(b, w->cut.seconds, 6);
	}
	num(b, "staleness", w->stale_updates);
	num(b, "tx", o->tx - p->told_tx);
	num(b, "rx", o->rx - p->told_rx);
	p->told_tx = o->tx;
	p->told_rx = o->rx;
	end(b);
}

/* What became of the round, and how stale it was. */
static void
put_end(struct fal_buf *b, const struct fal_line_ledger *d)
{
	static const char *const ends[] = { "applied", "dropped", "abandoned" };
	static const char *const bases[] = { "version", "local", "rebase" };
	str(b, "end", ends[d->end]);
	if (d->end != FAL_ROUND_APPLIED) {
		str(b, "why", d->why);
		return;
	}
	if (d->delta)
		real(b, "weight", d->weight);
	if (d->among > 0)
		num(b, "among", d->among);
	if (d->divisor > 0)
		real(b, "divisor", d->divisor);
	if (d->steps > 0) {
		num(b, "steps", d->steps);
		str(b, "base", bases[d->base]);
	}
	if (d->steps > 0 && d->base == FAL_START_REBASE)
		num(b, "since", d->since);
	if (d->lr > 0)
		real(b, "lr", d->lr);
	fal_put_fmt(b, ",\"stale\":{\"clocks\":%" PRIu64 ",\"updates\":%" PRIu64,
		    d->clocks, d->updates);
	if (d->rank > 0)
		num(b, "rank", d->rank);
	end(b);
	if (d->rank > 0)
		num(b, "slot", d->slot);
}

/* Was the worker granted anything of the round on another version than the round's? */
static bool
elsewhere(const struct fal_line_ledger *d, uint32_t worker)
{
	for (size_t i = 0; i < d->ons; i++)
		if (d->on[i].round == d->round && d->on[i].worker == worker &&
		    d->on[i].version != d->version)
			return true;
	return false;
}

/* What was granted to those who got any of it on another version than the round's. */
static void
put_on(struct fal_buf *b, const struct fal_line_ledger *d)
{
	bool any = false;
	for (size_t i = 0; i < d->ons; i++) {
		const struct fal_granted_on *on = &d->on[i];
		if (on->round != d->round || !elsewhere(d, on->worker))
			continue;
		fal_put_fmt(b, "%s[%u,%u,%u,%" PRIu64 "]", any ? "," : ",\"on\":[",
			    on->worker, on->first, on->count, on->version);
		any = true;
	}
	if (any)
		fal_put_u8(b, ']');
}

void
fal_line_ledger(struct fal_buf *b, const struct fal_line_ledger *d,
		const struct fal_ledger *l)
{
	begin(b, d->t, "ledger");
	num(b, "round", d->round);
	num(b, "clock", d->clock);
	num(b, "first", d->first);
	num(b, "tasks", l->tasks);
	num(b, "samples", d->samples);
	num(b, "version", d->version);
	num(b, "blocks", d->blocks);
	str(b, "kind", d->delta ? "delta" : "grad");
	if (d->owner != 0)
		num(b, "owner", d->owner);
	if (d->group != 0)
		num(b, "group", d->group);
	if (d->local != 0)
		num(b, "local", d->local);
	put_end(b, d);
	fal_put_u8(b, ',');
	fal_ledger_json(l, b);
	put_on(b, d);
	if (d->sums)
		fal_put_fmt(b,
			    ",\"sent\":\"%016" PRIx64 "\",\"added\":\"%016" PRIx64 "\"",
			    d->sent, d->added);
	end(b);
}

void
fal_line_update(struct fal_buf *b, const struct fal_line_update *d)
{
	begin(b, d->t, "update");
	num(b, "version", d->version);
	num(b, "clock", d->clock);
	fal_put_fmt(b, ",\"rounds\":[");
	for (size_t i = 0; i < d->rounds; i++)
		fal_put_fmt(b, "%s%" PRIu64, i > 0 ? "," : "", d->round[i].round);
	fal_put_u8(b, ']');
	if (d->weight > 0)
		real(b, "weight", d->weight);
	if (d->among > 0)
		num(b, "among", d->among);
	if (d->divisor > 0)
		real(b, "divisor", d->divisor);
	num(b, "samples", d->samples);
	real(b, "loss", d->loss);
	real(b, "lr", d->lr);
	if (d->norm > 0)
		real(b, "norm", d->norm);
	num(b, "epoch", d->epoch);
	end(b);
}

void
fal_line_eval(struct fal_buf *b, const struct fal_line_eval *d)
{
	const char *comma = "";
	begin(b, d->t, "eval");
	num(b, "version", d->version);
	num(b, "epoch", d->epoch);
	num(b, "right", d->right);
	num(b, "total", d->total);
	real(b, "loss", d->loss);
	real(b, "accuracy", d->total > 0 ? (double)d->right / (double)d->total : 0);
	key(b, "keys");
	fal_put_u8(b, '[');
	for (size_t i = 0; i < d->keys; i++) {
		const struct fal_line_eval_key *k = &d->key[i];
		if (k->tasks == 0)
			continue;
		fal_put_fmt(b, "%s{\"key\":", comma);
		fal_json_str(b, k->name);
		fal_put_fmt(b, ",\"tasks\":%u,\"twice\":%u,\"alone\":%u}", k->tasks,
			    k->twice, k->alone);
		comma = ",";
	}
	fal_put_u8(b, ']');
	end(b);
}

void
fal_line_late(struct fal_buf *b, double t, const struct fal_peer *p,
	      const struct fal_coord_late *late)
{
	begin(b, t, late->owes != NULL ? "suspect" : "back");
	who(b, p);
	if (late->owes != NULL)
		str(b, "owes", late->owes);
	str(b, "why", late->why);
	key(b, "seconds");
	fal_json_fixed(b, late->seconds, 6);
	end(b);
}

void
fal_line_charge(struct fal_buf *b, double t, uint32_t worker, const char *name,
		const char *why)
{
	begin(b, t, "charge");
	str(b, "worker", name);
	num(b, "id", worker);
	str(b, "why", why);
	end(b);
}

void
fal_line_refuse(struct fal_buf *b, double t, const char *key, const char *why,
		uint64_t count)
{
	begin(b, t, "refuse");
	str(b, "key", key);
	str(b, "why", why);
	num(b, "count", count);
	end(b);
}

void
fal_line_nonfinite(struct fal_buf *b, const struct fal_line_nonfinite *d,
		   const struct fal_peer *p)
{
	begin(b, d->t, "nonfinite");
	num(b, "round", d->round);
	num(b, "clock", d->clock);
	num(b, "task", d->task);
	who(b, p);
	num(b, "first_sample", d->first_sample);
	end(b);
}

static void
cid(struct fal_buf *b, struct fal_cid id)
{
	fal_put_fmt(b, ",\"c\":[%u,%u]", id.worker, id.seq);
}

/* What it counts as, in runs of blocks that count the same. */
static void
bounded(struct fal_buf *b, const int8_t *counts, uint32_t blocks)
{
	const char *sep = "";
	fal_put_fmt(b, ",\"bound\":[");
	for (uint32_t from = 0, to; from < blocks; from = to) {
		for (to = from + 1; to < blocks && counts[to] == counts[from];)
			to++;
		if (counts[from] == FAL_EXP_NONE)
			continue;
		fal_put_fmt(b, "%s[%u,%u,%d]", sep, from, to - from, counts[from]);
		sep = ",";
	}
	fal_put_fmt(b, "]");
}

void
fal_line_check(struct fal_buf *b, double t, const struct fal_line_check *d)
{
	begin(b, t, "check");
	num(b, "round", d->round);
	cid(b, d->id);
	num(b, "block", d->block);
	fal_put_fmt(b, ",\"needed\":%d,\"shown\":%d", d->needed, d->shown);
	if (d->exponent != FAL_EXP_NONE)
		fal_put_fmt(b, ",\"exponent\":%d", d->exponent);
	if (d->by != 0)
		num(b, "by", d->by);
	if (d->counts != NULL)
		bounded(b, d->counts, d->blocks);
	str(b, "verdict", d->verdict);
	if (d->why != NULL)
		str(b, "why", d->why);
	end(b);
}

void
fal_line_again(struct fal_buf *b, double t, const struct fal_round_info *r,
	       const struct fal_line_again *d)
{
	begin(b, t, "again");
	num(b, "round", r->round);
	num(b, "clock", r->clock);
	num(b, "blocks", d->blocks);
	cid(b, d->id);
	str(b, "why", d->why);
	end(b);
}

void
fal_line_done(struct fal_buf *b, double t, uint64_t version, const char *sha256,
	      double accuracy)
{
	begin(b, t, "done");
	num(b, "version", version);
	str(b, "sha256", sha256);
	real(b, "seconds", t);
	if (accuracy >= 0)
		real(b, "accuracy", accuracy);
	end(b);
}

void
fal_line_failed(struct fal_buf *b, double t, uint64_t version, const char *why)
{
	begin(b, t, "failed");
	num(b, "version", version);
	str(b, "reason", why);
	end(b);
}
