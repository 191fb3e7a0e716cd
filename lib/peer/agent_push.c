/* Claims, and the contributions that they fill. */
#include "peer/agent_priv.h"

#include "base/mem.h"

#include <stdio.h>

struct fal_sum *
agent_take_sum(struct fal_agent *a)
{
	if (a->pool.n > 0)
		return a->pool.v[--a->pool.n];
	return fal_sum_new(a->conf.n);
}

int
agent_give_sum(struct fal_agent *a, struct fal_sum *sum)
{
	if (sum == NULL)
		return FAL_OK;
	if (FAL_GROW(a->pool.v, a->pool.cap, a->pool.n + 1) < 0) {
		fal_sum_free(sum);
		return FAL_ENOMEM;
	}
	a->pool.v[a->pool.n++] = sum;
	return FAL_OK;
}

/* The records of one contribution, as many in a message as fit. */
static int
push_contrib(struct fal_agent *a, const struct contrib *c)
{
	struct fal_msg m = { .type = FAL_MSG_PUSH };
	struct fal_buf records = { 0 }, one = { 0 };
	int err = FAL_OK;
	/* Room for the fields before the tail. */
	const size_t most = FAL_MSG_MAX - 64;
	m.push.clock = a->clock;
	m.push.seq = c->seq;
	m.push.tasks = c->tasks;
	m.push.kind = FAL_KIND_GRAD;
	m.push.epoch = a->conf.map_epoch;
	for (uint32_t b = 0; b < a->blocks && err == FAL_OK; b++) {
		uint64_t checksum = 0;
		if (a->conf.checksums)
			checksum = fal_sum_checksum(c->sum, b, a->conf.checksum_seed);
		fal_buf_clear(&one);
		err = fal_sum_pack(c->sum, b, a->current->exps[b],
				   a->conf.checksums ? &checksum : NULL, &one);
		if (err == FAL_OK && records.n > 0 && records.n + one.n > most) {
			m.push.records = (struct fal_tail){ records.p, records.n };
			err = agent_send(a, &m, true);
			fal_buf_clear(&records);
		}
		fal_put_bytes(&records, one.p, one.n);
	}
	if (err == FAL_OK)
		err = records.err;
	m.push.records = (struct fal_tail){ records.p, records.n };
	if (err == FAL_OK)
		err = agent_send(a, &m, true);
	fal_buf_free(&records);
	fal_buf_free(&one);
	return err;
}

static bool
agent_training(const struct fal_agent *a)
{
	for (uint32_t i = 0; i < a->conf.lanes_max; i++)
		if (a->lane[i].busy && !a->lane[i].cancelled && !a->lane[i].eval)
			return true;
	return false;
}

int
agent_push_if_idle(struct fal_agent *a)
{
	int err = FAL_OK;
	if (a->queue.n > 0 || a->pending.n > 0 || agent_training(a))
		return FAL_OK;
	while (a->contribs.n > 0 && err == FAL_OK) {
		struct contrib *c = &a->contribs.v[a->contribs.n - 1];
		if (c->tasks > 0) {
			a->pushing = true;
			err = push_contrib(a, c);
		}
		int gave = agent_give_sum(a, c->sum);
		err = err == FAL_OK ? gave : err;
		a->contribs.n--;
	}
	if (err == FAL_OK && a->leaving && !a->left) {
		struct fal_msg m = { .type = FAL_MSG_LEAVE };
		snprintf(m.leave.why, sizeof(m.leave.why), "%s", a->why);
		a->left = true;
		/* Behind the contributions, so in the bulk queue. */
		err = agent_send(a, &m, true);
	}
	return err;
}

/* The open contribution for tasks that fill `fills`; made if there is none. */
static int
contrib_for(struct fal_agent *a, struct fal_cid fills, uint32_t *seq)
{
	for (size_t i = 0; i < a->contribs.n; i++)
		if (fal_cid_eq(a->contribs.v[i].fills, fills)) {
			*seq = a->contribs.v[i].seq;
			return FAL_OK;
		}
	if (FAL_GROW(a->contribs.v, a->contribs.cap, a->contribs.n + 1) < 0)
		return FAL_ENOMEM;
	struct fal_sum *sum = agent_take_sum(a);
	if (sum == NULL)
		return FAL_ENOMEM;
	fal_sum_clear(sum);
	*seq = ++a->seq;
	a->contribs.v[a->contribs.n++] =
		(struct contrib){ .seq = *seq, .fills = fills, .sum = sum };
	return FAL_OK;
}

struct contrib *
agent_contrib(struct fal_agent *a, uint32_t seq)
{
	for (size_t i = 0; i < a->contribs.n; i++)
		if (a->contribs.v[i].seq == seq)
			return &a->contribs.v[i];
	return NULL;
}

int
agent_claim(struct fal_agent *a, const struct item *item, struct fal_sum *sum,
	    const struct fal_ran *ran)
{
	struct fal_msg m = { .type = FAL_MSG_CLAIM };
	int err = FAL_OK;
	m.claim.clock = a->clock;
	m.claim.task = item->task;
	m.claim.fills_worker = item->fills.worker;
	m.claim.fills_seq = item->fills.seq;
	m.claim.task_ns = ran->task_ns;
	m.claim.loss = ran->loss;
	m.claim.nonfinite = ran->nonfinite;
	if (ran->nonfinite) {
		err = agent_give_sum(a, sum);
		return err == FAL_OK ? agent_send(a, &m, false) : err;
	}
	if (FAL_GROW(a->pending.v, a->pending.cap, a->pending.n + 1) < 0 ||
	    contrib_for(a, item->fills, &m.claim.seq) < 0) {
		fal_sum_free(sum);
		return FAL_ENOMEM;
	}
	a->pending.v[a->pending.n++] = (struct pending){ item->task, m.claim.seq, sum };
	return agent_send(a, &m, false);
}
