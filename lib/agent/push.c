/* What is on its way: contributions that go out, message by message. */
#include "agent/priv.h"

#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int
agent_push(struct fal_agent *a, const struct push *p)
{
	if (p->sum == NULL || p->exps == NULL ||
	    FAL_GROW(a->pushes.v, a->pushes.cap, a->pushes.n + 1) < 0) {
		fal_sum_free(p->sum);
		free(p->exps);
		return FAL_ENOMEM;
	}
	a->pushes.v[a->pushes.n++] = *p;
	a->pushing = true;
	return FAL_OK;
}

void
agent_push_free(struct fal_agent *a)
{
	for (size_t i = 0; i < a->pushes.n; i++) {
		fal_sum_free(a->pushes.v[i].sum);
		free(a->pushes.v[i].exps);
	}
	free(a->pushes.v);
	fal_buf_free(&a->records);
}

int
agent_push_end(struct fal_agent *a, size_t i)
{
	const struct push p = a->pushes.v[i];
	if (i == 0)
		fal_buf_clear(&a->records);
	memmove(a->pushes.v + i, a->pushes.v + i + 1, (--a->pushes.n - i) * sizeof(p));
	free(p.exps);
	return agent_give_sum(a, p.sum);
}

size_t
agent_push_of(const struct fal_agent *a, uint64_t round, uint32_t seq)
{
	size_t i = 0;
	while (i < a->pushes.n &&
	       (a->pushes.v[i].ticket.round != round || a->pushes.v[i].ticket.seq != seq))
		i++;
	return i;
}

int
agent_push_over(struct fal_agent *a)
{
	int err = FAL_OK;
	for (size_t i = a->pushes.n; i-- > 0 && err == FAL_OK;)
		if (a->pushes.v[i].ticketed || a->pushes.v[i].early)
			err = agent_push_end(a, i);
	return err;
}

/* Bytes of records that are packed. */
static size_t
packed(const struct fal_agent *a)
{
	return a->records.n > 0 ? a->records.n - FAL_MSG_HEAD : 0;
}

static int
pack(struct fal_agent *a, struct push *p)
{
	const uint32_t b = p->packed++;
	if (a->records.n == 0)
		(void)fal_buf_room(&a->records, FAL_MSG_HEAD);
	return fal_sum_pack(p->sum, b, p->exps[b], &a->records);
}

/* Sends the first n bytes of records, with the head before them. */
static int
send_records(struct fal_agent *a, uint32_t shard, const struct push *p, size_t n)
{
	struct fal_msg m = { .type = FAL_MSG_PUSH, .incarnation = a->conf.incarnation };
	struct fal_buf head = { 0 };
	m.push.ticket = p->ticket;
	m.push.epoch = a->conf.map_epoch;
	int err = fal_msg_put(&head, &m);
	if (err == FAL_OK) {
		assert(head.n <= FAL_MSG_HEAD);
		uint8_t *at = a->records.p + FAL_MSG_HEAD - head.n;
		memcpy(at, head.p, head.n);
		const struct fal_buf msg = { .p = at, .n = head.n + n };
		if (a->ops.push != NULL)
			a->ops.push(a->ops.arg, shard, &msg);
		else
			a->ops.send(a->ops.arg, &msg, true);
	}
	fal_buf_free(&head);
	return err;
}

/* The next message of the first push: as many records as fit.  The one that does not is
 * kept for the message after it. */
static int
push_some(struct fal_agent *a)
{
	const size_t most = FAL_MSG_MAX - FAL_MSG_HEAD;
	struct push *p = &a->pushes.v[0];
	size_t fit = packed(a);
	uint32_t blocks = fit > 0; /* packed: in the message, or one too many */
	/* Only what goes to the same shard. */
	const uint32_t to = agent_route(a, p->packed - blocks);
	int err = FAL_OK;
	while (p->packed < a->blocks && err == FAL_OK &&
	       agent_route(a, p->packed) == to &&
	       (a->conf.push_blocks == 0 || blocks < a->conf.push_blocks)) {
		err = pack(a, p);
		if (packed(a) > most)
			break;
		fit = packed(a);
		blocks++;
	}
	if (err == FAL_OK)
		err = send_records(a, to, p, fit);
	if (err < 0)
		return err;
	a->records.n -= fit;
	uint8_t *at = a->records.p + FAL_MSG_HEAD;
	memmove(at, at + fit, packed(a));
	return p->packed == a->blocks && packed(a) == 0 ? agent_push_end(a, 0) : FAL_OK;
}

/* The first push of which something can go, as it has its ticket, or does not wait for
 * it; pushes.n: there is none. */
static size_t
sendable(const struct fal_agent *a)
{
	size_t i = 0;
	for (; i < a->pushes.n; i++) {
		const struct push *p = &a->pushes.v[i];
		if (p->ticketed || p->early)
			break;
	}
	return i;
}

bool
agent_push_waits(const struct fal_agent *a)
{
	return sendable(a) < a->pushes.n;
}

/* That one stands first; false: there is none. */
static bool
bring_forward(struct fal_agent *a)
{
	const size_t i = sendable(a);
	if (i == a->pushes.n)
		return false;
	const struct push p = a->pushes.v[i];
	memmove(a->pushes.v + 1, a->pushes.v, i * sizeof(p));
	a->pushes.v[0] = p;
	return true;
}

static int
leave(struct fal_agent *a)
{
	struct fal_msg m = { .type = FAL_MSG_LEAVE };
	snprintf(m.leave.why, sizeof(m.leave.why), "%s", a->why);
	a->left = true;
	/* Behind the contributions, so in the bulk queue. */
	return agent_send(a, &m, true);
}

int
fal_agent_more(struct fal_agent *a)
{
	const size_t on_way = a->pushes.n;
	int err;
	if (a->left)
		return 0;
	if (bring_forward(a))
		err = push_some(a);
	else if (a->leaving && a->pending.n + a->contribs.n + a->pushes.n == 0)
		err = leave(a);
	else
		return 0;
	if (err == FAL_OK && a->pushes.n < on_way)
		err = agent_dispatch(a); /* what waits for its sum */
	return err < 0 ? err : 1;
}

int
agent_diverged(struct fal_agent *a)
{
	struct fal_msg m = { .type = FAL_MSG_LEAVE };
	m.leave.cause = FAL_LEAVE_NONFINITE;
	snprintf(m.leave.why, sizeof(m.leave.why), "its weights are not finite");
	a->left = true;
	int err = agent_send(a, &m, false);
	return err < 0 ? err : FAL_ENONFINITE;
}
