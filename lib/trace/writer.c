/* The lines of a trace, written; the longest has writer_ledger.c. */
#include "trace/writer.h"

#include "base/build.h"
#include "base/json.h"
#include "base/parse.h"
#include "sec/hash.h"
#include "trace/member.h"
#include "wire/bfp.h"
#include "wire/msg.h"

#include <inttypes.h>
#include <math.h>

/* Hashes of net, data and weights, where they are known. */
static void
put_inputs(struct fal_buf *b, const char *model, const char *data, const char *from)
{
	fal_member_str(b, FAL_F_MODEL, model);
	fal_member_str(b, FAL_F_DATA, data);
	fal_member_str(b, FAL_F_FROM, from);
}

void
fal_line_job(struct fal_buf *b, const struct fal_line_job *d)
{
	const struct fal_grid *g = &d->grid;
	fal_member_begin(b, 0, "job");
	fal_member_str(b, FAL_F_NAME, d->name);
	fal_member_str(b, FAL_F_HASH, d->hash);
	put_inputs(b, d->model, d->data, d->from);
	/* A string: JSON readers lose integers above 2^53. */
	fal_member_key(b, FAL_F_SEED, FAL_FIELD_TEXT);
	fal_put_fmt(b, "\"%" PRIu64 "\"", d->seed);
	fal_member_num(b, FAL_F_EPOCHS, g->epochs);
	fal_member_num(b, FAL_F_BATCH, g->batch);
	fal_member_num(b, FAL_F_TASK, g->task);
	if (g->parts > 1)
		fal_member_num(b, FAL_F_PARTS, g->parts);
	fal_member_num(b, FAL_F_SAMPLES, g->samples);
	fal_member_num(b, FAL_F_TEST, d->test);
	fal_member_num(b, FAL_F_PARAMS, d->params);
	fal_member_num(b, FAL_F_BLOCKS, d->blocks);
	fal_member_num(b, FAL_F_SHARDS, d->shards);
	fal_member_num(b, FAL_F_CLOCKS_PER_EPOCH, fal_grid_epoch_clocks(g));
	fal_member_num(b, FAL_F_CLOCKS, fal_grid_clocks(g));
	fal_member_key(b, FAL_F_SCHEME, FAL_FIELD_TEXT);
	fal_put_u8(b, '"');
	fal_rule_put(d->rule, b);
	fal_put_u8(b, '"');
	fal_member_str(b, FAL_F_AUDIT, d->sums ? "sums" : "claims");
	fal_member_num(b, FAL_F_HASH_EVERY, d->hashes);
	fal_member_str(b, FAL_F_NUMERICS, d->numerics);
	if (d->skips)
		fal_member_str(b, FAL_F_NONFINITE, "skip");
	fal_member_str(b, FAL_F_OPTIMIZER, fal_optim_name(d->optim->kind));
	if (d->optim->kind == FAL_MOMENTUM || d->optim->kind == FAL_NESTEROV)
		fal_member_real(b, FAL_F_MOMENTUM, (double)d->optim->momentum);
	if (d->optim->kind == FAL_ADAMW)
		fal_member_real(b, FAL_F_BETA1, d->optim->beta1);
	fal_member_num(b, FAL_F_INCARNATION, d->incarnation);
	if (d->above != NULL) {
		fal_member_str(b, FAL_F_ABOVE, d->above->address);
		fal_member_str(b, FAL_F_KEY, d->above->key);
		fal_member_str(b, FAL_F_KEY_FINGERPRINT, d->above->key_fingerprint);
	}
	fal_member_str(b, FAL_F_PROGRAM, fal_build());
	fal_member_end(b);
}

void
fal_line_place(struct fal_buf *b, double t, const struct fal_line_place *d)
{
	fal_member_begin(b, t, "place");
	fal_member_num(b, FAL_F_MAP, d->map);
	fal_member_str(b, FAL_F_RULE, d->rule);
	if (d->by != NULL) {
		fal_member_str(b, FAL_F_BY_NAME, d->by);
		fal_member_seconds(b, FAL_F_TOOK, d->took);
	}
	fal_member_num(b, FAL_F_SHARDS, d->shards);
	if (d->places > d->shards)
		fal_member_num(b, FAL_F_PLACES, d->places);
	fal_member_list(b, FAL_F_RUNS);
	for (uint32_t i = 0, end = 0; i < d->blocks; i = end) {
		while (end < d->blocks && d->shard[end] == d->shard[i])
			end++;
		fal_member_row(b, 3, (const uint64_t[]){ d->shard[i] + 1, i, end - i });
	}
	fal_json_close(b, ']');
	fal_member_end(b);
}

void
fal_line_shard(struct fal_buf *b, double t, const struct fal_line_shard *d)
{
	fal_member_begin(b, t, "shard");
	fal_member_num(b, FAL_F_SHARD, (uint64_t)d->shard + 1);
	fal_member_num(b, FAL_F_CLOCK, d->clock);
	fal_member_num(b, FAL_F_VERSION, d->version);
	fal_member_str(b, FAL_F_BY_NAME, d->name);
	fal_member_str(b, FAL_F_ADDRESS, d->address);
	fal_member_num(b, FAL_F_BLOCKS, d->blocks);
	fal_member_num(b, FAL_F_RX, d->rx);
	fal_member_num(b, FAL_F_TX, d->tx);
	fal_member_seconds(b, FAL_F_SERVICE, d->service);
	fal_member_seconds(b, FAL_F_QUEUE, d->queue);
	if (!isnan(d->took))
		fal_member_seconds(b, FAL_F_TOOK, d->took);
	fal_member_seconds(b, FAL_F_BLAME, d->blame);
	fal_member_end(b);
}

void
fal_line_restart(struct fal_buf *b, const struct fal_line_restart *d)
{
	fal_member_begin(b, d->t, "restart");
	fal_member_num(b, FAL_F_INCARNATION, d->incarnation);
	fal_member_num(b, FAL_F_CLOCK, d->clock);
	fal_member_num(b, FAL_F_VERSION, d->version);
	fal_member_num(b, FAL_F_UNTIL, d->until);
	fal_member_num(b, FAL_F_LINES, d->lines);
	fal_member_num(b, FAL_F_TORN, d->torn);
	fal_member_str(b, FAL_F_HASH, d->hash);
	put_inputs(b, d->model, d->data, d->from);
	if (d->accepted != NULL && d->accepted[0] != '\0')
		fal_member_str(b, FAL_F_ACCEPTED, d->accepted);
	fal_member_num(b, FAL_F_EPOCHS, d->epochs);
	fal_member_end(b);
}

void
fal_line_policy(struct fal_buf *b, double t, const struct fal_line_policy *d)
{
	fal_member_begin(b, t, "policy");
	fal_member_num(b, FAL_F_CLOCK, d->clock);
	fal_member_str(b, FAL_F_SCHEME, d->scheme);
	fal_member_str(b, FAL_F_BY_NAME, d->by);
	fal_member_num(b, FAL_F_VERSION, d->version);
	if (d->policy != NULL) {
		fal_member_key(b, FAL_F_POLICY, FAL_FIELD_OBJECT);
		fal_put_bytes(b, d->policy, d->policy_n);
	}
	fal_member_end(b);
}

void
fal_line_hold(struct fal_buf *b, double t, const char *why, const char *by)
{
	fal_member_begin(b, t, "hold");
	fal_member_str(b, FAL_F_WHY, why);
	fal_member_str(b, FAL_F_BY_NAME, by);
	fal_member_end(b);
}

void
fal_line_join(struct fal_buf *b, double t, const struct fal_line_join *d)
{
	char hex[2 * FAL_FINGERPRINT + 1];
	fal_hex(d->fingerprint, FAL_FINGERPRINT, hex);
	fal_member_begin(b, t, "join");
	fal_member_who(b, d->who);
	fal_member_str(b, FAL_F_KEY, d->key);
	fal_member_str(b, FAL_F_KEY_FINGERPRINT, d->key_fingerprint);
	fal_member_pair(b, FAL_F_LANES_RANGE, d->lanes_min, d->lanes_max);
	fal_member_num(b, FAL_F_CORES, d->cores);
	fal_member_str(b, FAL_F_FINGERPRINT, hex);
	if (d->build[0] != '\0')
		fal_member_str(b, FAL_F_PROGRAM, d->build);
	if (d->kernels[0] != '\0')
		fal_member_str(b, FAL_F_KERNELS, d->kernels);
	if (d->task_ns > 0)
		fal_member_ns(b, FAL_F_TASK_S, d->task_ns);
	if (d->large > 0) {
		fal_member_num(b, FAL_F_LARGE, d->large);
		fal_member_ns(b, FAL_F_LARGE_S, d->large_ns);
	}
	fal_member_end(b);
}

void
fal_line_group(struct fal_buf *b, double t, struct fal_line_who w, uint32_t members,
	       uint32_t lanes)
{
	fal_member_begin(b, t, "group");
	fal_member_who(b, w);
	fal_member_num(b, FAL_F_MEMBERS, members);
	fal_member_num(b, FAL_F_LANES, lanes);
	fal_member_end(b);
}

void
fal_line_leave(struct fal_buf *b, double t, struct fal_line_who w, const char *why,
	       bool fell)
{
	fal_member_begin(b, t, "leave");
	fal_member_who(b, w);
	fal_member_str(b, FAL_F_REASON, why);
	if (fell) {
		fal_member_key(b, FAL_F_FELL, FAL_FIELD_FLAG);
		fal_json_bool(b, true);
	}
	fal_member_end(b);
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
	fal_member_num(b, FAL_F_SAMPLES, samples);
	fal_member_seconds(b, FAL_F_TASK_S, tasks > 0 ? sum / tasks : 0);
	if (w->paces < 2)
		return;
	fal_member_list(b, FAL_F_PACES);
	for (uint32_t i = 0; i < w->paces; i++) {
		fal_json_open(b, '[');
		fal_json_u64(b, w->pace[i].tasks);
		fal_json_fixed(b, 1e6 * w->pace[i].seconds / w->pace[i].tasks, 0);
		fal_json_u64(b, w->pace[i].samples);
		fal_json_close(b, ']');
	}
	fal_json_close(b, ']');
}

static void
spans(struct fal_buf *b, const struct fal_line_spans *is)
{
	fal_member_list(b, FAL_F_SPANS);
	fal_member_row(b, 2, is->pull);
	fal_member_row(b, 2, is->compute);
	fal_member_row(b, 2, is->push);
	fal_json_close(b, ']');
	fal_member_ns(b, FAL_F_WAITED, is->waited);
	fal_member_ns(b, FAL_F_STREAMED, is->streamed);
}

void
fal_line_clock(struct fal_buf *b, double t, const struct fal_line_clock *d)
{
	const struct fal_work *w = d->work;
	fal_member_begin(b, t, "clock");
	fal_member_num(b, FAL_F_CLOCK, d->clock);
	if (d->own)
		fal_member_num(b, FAL_F_ROUND, d->round);
	fal_member_who(b, d->who);
	fal_member_num(b, FAL_F_LANES, d->lanes);
	fal_member_num(b, FAL_F_SHARE, w->share);
	fal_member_num(b, FAL_F_DONE, w->done);
	fal_member_num(b, FAL_F_IN, w->in);
	fal_member_num(b, FAL_F_OUT, w->out);
	fal_member_num(b, FAL_F_CLONED, w->cloned);
	fal_member_num(b, FAL_F_LOST, w->lost);
	fal_member_ns(b, FAL_F_COMPUTE, d->spent.compute);
	fal_member_ns(b, FAL_F_PUSH, d->spent.push);
	fal_member_ns(b, FAL_F_PULL, d->spent.pull);
	fal_member_ns(b, FAL_F_WAIT, d->spent.wait);
	fal_member_ns(b, FAL_F_PUSH_ALL, d->spent.push_all);
	fal_member_ns(b, FAL_F_PULL_ALL, d->spent.pull_all);
	fal_member_ns(b, FAL_F_LATE, d->spent.late);
	if (d->rtt > 0)
		fal_member_seconds(b, FAL_F_RTT, d->rtt);
	if (d->spans.known)
		spans(b, &d->spans);
	paces(b, w);
	if (w->cut.tasks > 0) {
		fal_member_num(b, FAL_F_CUT, w->cut.tasks);
		fal_member_seconds(b, FAL_F_CUT_S, w->cut.seconds);
	}
	fal_member_num(b, FAL_F_STALENESS, w->stale_updates);
	fal_member_num(b, FAL_F_TX, d->tx);
	fal_member_num(b, FAL_F_RX, d->rx);
	fal_member_end(b);
}

/* The lines that were pushed: one by its part of the workers; or, with a quorum, each by
 * its samples. */
static void
pushes(struct fal_buf *b, const struct fal_line_update *d)
{
	if (d->groups > 0)
		fal_member_num(b, FAL_F_GROUPS, d->groups);
	if (d->pushes > 0 && d->groups == 0) {
		fal_member_real(b, FAL_F_WEIGHT, d->push->weight);
		fal_member_num(b, FAL_F_AMONG, d->push->among);
		return;
	}
	if (d->pushes == 0)
		return;
	fal_member_list(b, FAL_F_PUSHES);
	for (size_t i = 0; i < d->pushes; i++) {
		fal_json_open(b, '[');
		fal_json_u64(b, d->push[i].group);
		fal_json_num(b, d->push[i].weight);
		fal_json_close(b, ']');
	}
	fal_json_close(b, ']');
	fal_member_list(b, FAL_F_OUTER);
	fal_json_num(b, d->outer);
	fal_json_num(b, d->momentum);
	fal_json_close(b, ']');
}

void
fal_line_update(struct fal_buf *b, const struct fal_line_update *d)
{
	char hex[2 * FAL_HASH_BYTES + 1];
	fal_member_begin(b, d->t, "update");
	fal_member_num(b, FAL_F_VERSION, d->version);
	fal_member_num(b, FAL_F_CLOCK, d->clock);
	fal_member_list(b, FAL_F_ROUNDS);
	for (size_t i = 0; i < d->rounds; i++)
		fal_json_u64(b, d->round[i].round);
	fal_json_close(b, ']');
	pushes(b, d);
	if (d->divisor > 0)
		fal_member_real(b, FAL_F_DIVISOR, d->divisor);
	fal_member_num(b, FAL_F_SAMPLES, d->samples);
	fal_member_real(b, FAL_F_LOSS, d->loss);
	fal_member_real(b, FAL_F_LR, d->lr);
	if (d->norm > 0)
		fal_member_real(b, FAL_F_NORM, d->norm);
	fal_member_num(b, FAL_F_EPOCH, d->epoch);
	if (d->made[1] > 0) {
		fal_member_seconds(b, FAL_F_MADE, d->made[0]);
		fal_member_seconds(b, FAL_F_MADE_ALL, d->made[1]);
	}
	if (d->hash != NULL) {
		fal_hex(d->hash, FAL_HASH_BYTES, hex);
		fal_member_str(b, FAL_F_HASH, hex);
		fal_hex(d->exponents, FAL_HASH_BYTES, hex);
		fal_member_str(b, FAL_F_EXPONENTS, hex);
	}
	fal_member_end(b);
}

void
fal_line_eval(struct fal_buf *b, const struct fal_line_eval *d)
{
	fal_member_begin(b, d->t, "eval");
	fal_member_num(b, FAL_F_VERSION, d->version);
	fal_member_num(b, FAL_F_EPOCH, d->epoch);
	fal_member_num(b, FAL_F_RIGHT, d->right);
	fal_member_num(b, FAL_F_TOTAL, d->total);
	fal_member_real(b, FAL_F_LOSS, d->loss);
	fal_member_real(b, FAL_F_ACCURACY,
			d->total > 0 ? (double)d->right / (double)d->total : 0);
	fal_member_list(b, FAL_F_KEYS);
	for (size_t i = 0; i < d->keys; i++) {
		const struct fal_line_eval_key *k = &d->key[i];
		if (k->tasks == 0)
			continue;
		fal_json_open(b, '{');
		fal_member_str(b, FAL_F_KEY, k->name);
		fal_member_num(b, FAL_F_TASKS, k->tasks);
		fal_member_num(b, FAL_F_TWICE, k->twice);
		fal_member_num(b, FAL_F_ALONE, k->alone);
		fal_member_end(b);
	}
	fal_json_close(b, ']');
	fal_member_end(b);
}

void
fal_line_late(struct fal_buf *b, double t, const struct fal_line_late *d)
{
	fal_member_begin(b, t, d->owes != NULL ? "suspect" : "back");
	fal_member_who(b, d->who);
	fal_member_str(b, FAL_F_OWES, d->owes);
	fal_member_str(b, FAL_F_WHY, d->why);
	fal_member_seconds(b, FAL_F_SECONDS, d->seconds);
	fal_member_end(b);
}

void
fal_line_charge(struct fal_buf *b, double t, struct fal_line_who w, const char *why)
{
	fal_member_begin(b, t, "charge");
	fal_member_who(b, w);
	fal_member_str(b, FAL_F_WHY, why);
	fal_member_end(b);
}

void
fal_line_refuse(struct fal_buf *b, double t, const char *name, const char *why,
		uint64_t count)
{
	fal_member_begin(b, t, "refuse");
	fal_member_str(b, FAL_F_KEY, name);
	fal_member_str(b, FAL_F_WHY, why);
	fal_member_num(b, FAL_F_COUNT, count);
	fal_member_end(b);
}

void
fal_line_trainer(struct fal_buf *b, double t, const char *key, const char *why)
{
	fal_member_begin(b, t, "trainer");
	fal_member_str(b, FAL_F_KEY, key);
	fal_member_str(b, FAL_F_WHY, why);
	fal_member_end(b);
}

static void
doubt(struct fal_buf *b, double t, const char *ev, const struct fal_line_doubt *d)
{
	fal_member_begin(b, t, ev);
	fal_member_num(b, FAL_F_ROUND, d->round);
	fal_member_num(b, FAL_F_CLOCK, d->clock);
	fal_member_num(b, FAL_F_TASK, d->task);
	fal_member_who(b, d->who);
}

void
fal_line_nonfinite(struct fal_buf *b, double t, const struct fal_line_doubt *d)
{
	doubt(b, t, "nonfinite", d);
	fal_member_num(b, FAL_F_FIRST_SAMPLE, d->first_sample);
	fal_member_end(b);
}

void
fal_line_alone(struct fal_buf *b, double t, const struct fal_line_doubt *d,
	       double seconds)
{
	doubt(b, t, "alone", d);
	fal_member_seconds(b, FAL_F_SECONDS, seconds);
	fal_member_end(b);
}

void
fal_line_diverged(struct fal_buf *b, double t, const struct fal_line_diverged *d)
{
	fal_member_begin(b, t, "diverged");
	fal_member_num(b, FAL_F_CLOCK, d->clock);
	fal_member_who(b, d->who);
	fal_member_str(b, FAL_F_WHY, d->why);
	fal_member_seconds(b, FAL_F_SECONDS, d->seconds);
	fal_member_end(b);
}

/* What it counts as, in runs of blocks that count the same. */
static void
bounded(struct fal_buf *b, const int8_t *counts, uint32_t blocks)
{
	fal_member_list(b, FAL_F_BOUND);
	for (uint32_t from = 0, to; from < blocks; from = to) {
		for (to = from + 1; to < blocks && counts[to] == counts[from];)
			to++;
		if (counts[from] == FAL_EXP_NONE)
			continue;
		fal_json_open(b, '[');
		fal_json_u64(b, from);
		fal_json_u64(b, to - from);
		fal_json_i64(b, counts[from]);
		fal_json_close(b, ']');
	}
	fal_json_close(b, ']');
}

void
fal_line_check(struct fal_buf *b, double t, const struct fal_line_check *d)
{
	fal_member_begin(b, t, "check");
	fal_member_num(b, FAL_F_ROUND, d->round);
	fal_member_pair(b, FAL_F_C, d->id.worker, d->id.seq);
	fal_member_num(b, FAL_F_BLOCK, d->block);
	fal_member_exponent(b, FAL_F_NEEDED, d->needed);
	fal_member_exponent(b, FAL_F_SHOWN, d->shown);
	if (d->exponent != FAL_EXP_NONE)
		fal_member_exponent(b, FAL_F_EXPONENT, d->exponent);
	if (d->by != 0)
		fal_member_num(b, FAL_F_BY, d->by);
	if (d->counts != NULL)
		bounded(b, d->counts, d->blocks);
	fal_member_str(b, FAL_F_VERDICT, d->verdict);
	fal_member_str(b, FAL_F_WHY, d->why);
	fal_member_end(b);
}

void
fal_line_again(struct fal_buf *b, double t, const struct fal_round_info *r,
	       const struct fal_line_again *d)
{
	fal_member_begin(b, t, "again");
	fal_member_num(b, FAL_F_ROUND, r->round);
	fal_member_num(b, FAL_F_CLOCK, r->clock);
	fal_member_num(b, FAL_F_BLOCKS, d->blocks);
	fal_member_pair(b, FAL_F_C, d->id.worker, d->id.seq);
	fal_member_str(b, FAL_F_WHY, d->why);
	fal_member_end(b);
}

void
fal_line_verify(struct fal_buf *b, double t, const struct fal_line_verify *d)
{
	fal_member_begin(b, t, "verify");
	fal_member_num(b, FAL_F_ROUND, d->round);
	fal_member_num(b, FAL_F_CLOCK, d->clock);
	fal_member_num(b, FAL_F_TASK, d->task);
	fal_member_pair(b, FAL_F_C, d->id.worker, d->id.seq);
	fal_member_list(b, FAL_F_WORDS);
	for (int i = 0; i < 2; i++) {
		char hex[2 * FAL_CLAIM_HASH + 1];
		fal_hex(d->word[i].hash, FAL_CLAIM_HASH, hex);
		fal_json_open(b, '{');
		fal_member_who(b, d->word[i].who);
		fal_member_str(b, FAL_F_HASH, hex);
		fal_member_end(b);
	}
	fal_json_close(b, ']');
	fal_member_end(b);
}

void
fal_line_gap(struct fal_buf *b, const struct fal_line_gap *d)
{
	fal_buf_clear(b);
	fal_put_fmt(b, "{\"%s\":%s,\"%s\":\"gap\"", fal_field_name(FAL_F_T), d->t,
		    fal_field_name(FAL_F_EV));
	fal_member_num(b, FAL_F_LINES, d->lines);
	fal_member_num(b, FAL_F_BYTES, d->bytes);
	fal_member_str(b, FAL_F_BLAKE2B, d->blake2b);
	fal_member_str(b, FAL_F_LINK, d->link);
	fal_member_end(b);
}

void
fal_line_now(struct fal_buf *b, double t, const char *link)
{
	fal_member_begin(b, t, "now");
	fal_member_str(b, FAL_F_LINK, link);
	fal_member_end(b);
}

void
fal_line_newer(struct fal_buf *b, double t, uint64_t version)
{
	fal_member_begin(b, t, "version");
	fal_member_num(b, FAL_F_VERSION, version);
	fal_member_end(b);
}

void
fal_line_done(struct fal_buf *b, const struct fal_line_done *d)
{
	fal_member_begin(b, d->t, "done");
	fal_member_num(b, FAL_F_VERSION, d->version);
	if (d->sha256 != NULL) {
		fal_member_str(b, FAL_F_SHA256, d->sha256);
		fal_member_str(b, FAL_F_HASH, d->hash);
	}
	if (d->journal[0] != '\0')
		fal_member_str(b, FAL_F_JOURNAL, d->journal);
	fal_member_key(b, FAL_F_SECONDS, FAL_FIELD_SECONDS);
	fal_json_num(b, d->t);
	fal_member_seconds(b, FAL_F_TRAINED, d->trained);
	if (d->accuracy >= 0)
		fal_member_real(b, FAL_F_ACCURACY, d->accuracy);
	fal_member_end(b);
}

void
fal_line_failed(struct fal_buf *b, double t, uint64_t version, double trained,
		const char *why)
{
	fal_member_begin(b, t, "failed");
	fal_member_num(b, FAL_F_VERSION, version);
	fal_member_seconds(b, FAL_F_TRAINED, trained);
	fal_member_str(b, FAL_F_REASON, why);
	fal_member_end(b);
}
