/* An honest worker beside the fuzzer: the real agent on one lane, in virtual time, whose
 * gradients are small numbers.  For the driver that includes it alone. */
#ifndef HONEST_H
#define HONEST_H

#include "../model_msg.h"
#include "../standin.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/loss.h"
#include "base/mem.h"
#include "server/coord.h"
#include "worker/agent.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { INBOX = 4096 };

struct honest {
	struct fal_agent *agent; /* NULL: it has not come yet */
	struct fal_coord *coord;
	uint32_t session, test, task; /* test samples, samples of a task */
	double now;
	bool busy, cancelled, sent;
	bool doubted; /* a shard has made up something: it may be refused for that */
	struct fal_task_run run;
	/* What was sent to it and has not arrived; an inbox that is full is no limit that
	 * a program has, and so a failure. */
	struct fal_buf in[INBOX], out[INBOX];
	uint32_t n_in, n_out;
	uint64_t steps;
	float *grad;
	size_t n;
};

static void
honest_post(struct fal_buf *box, uint32_t *n, const struct fal_buf *msg)
{
	if (*n == INBOX)
		abort();
	box[*n] = (struct fal_buf){ 0 };
	fal_put_bytes(&box[*n], msg->p, msg->n);
	if (box[(*n)++].err != 0)
		abort();
}

static void
honest_send(void *arg, const struct fal_buf *msg, bool bulk)
{
	struct honest *h = arg;
	(void)bulk;
	honest_post(h->out, &h->n_out, msg);
}

static void
honest_run(void *arg, uint32_t lane, const struct fal_task_run *run)
{
	struct honest *h = arg;
	if (lane != 0 || h->busy)
		abort();
	h->busy = true;
	h->cancelled = false;
	h->run = *run;
}

static void
honest_cancel(void *arg, uint32_t lane)
{
	struct honest *h = arg;
	(void)lane;
	h->cancelled = true;
}

static uint64_t
honest_steps(void *arg)
{
	struct honest *h = arg;
	return h->steps;
}

/* The lane's task is over. */
static int
honest_work(struct honest *h)
{
	struct fal_task_result ran = { .cancelled = h->cancelled, .task_ns = 1000000 };
	const struct fal_task_run *run = &h->run;
	ran.samples = h->task;
	if (run->eval && h->test - run->task * h->task < h->task)
		ran.samples = h->test - run->task * h->task;
	ran.right = run->eval ? ran.samples : 0;
	ran.loss = INT64_C(1) << FAL_LOSS_BITS;
	if (!run->eval && !h->cancelled) {
		for (size_t i = 0; i < h->n; i++)
			h->grad[i] = 0.01f * (float)((i + run->task) % 7);
		if (fal_sum_quantise(run->sum, h->grad, run->exps, run->room, NULL) < 0)
			abort();
	}
	h->busy = false;
	h->steps++;
	return fal_agent_finished(h->agent, (uint64_t)(h->now * 1e9) + 1, 0, &ran);
}

/* Everything that has arrived is heard and answered, but no task ends; false: nothing
 * had.
 */
static bool
honest_turn(struct honest *h)
{
	const uint64_t ns = (uint64_t)(h->now * 1e9) + 1;
	const uint32_t n = h->n_in;
	struct fal_msg m;
	for (uint32_t i = 0; i < n; i++) {
		if (fal_msg_get(h->in[i].p, h->in[i].n, &m) < 0)
			abort();
		if (m.type != FAL_MSG_WELCOME && m.type != FAL_MSG_DONE &&
		    m.type != FAL_MSG_REFUSE && fal_agent_msg(h->agent, ns, &m) < 0)
			abort();
		fal_buf_free(&h->in[i]);
	}
	memmove(h->in, h->in + n, (h->n_in - n) * sizeof(*h->in));
	h->n_in -= n;
	while (fal_agent_send_next(h->agent))
		;
	fal_agent_flushed(h->agent, ns);
	return n > 0;
}

/* What it has said is heard.  True: there was something. */
static bool
honest_heard(struct honest *h)
{
	const uint32_t n = h->n_out;
	struct fal_msg m;
	struct fal_diag diag;
	for (uint32_t i = 0; i < n; i++) {
		if (fal_msg_get(h->out[i].p, h->out[i].n, &m) < 0 ||
		    (fal_coord_msg(h->coord, h->now, h->session, &m, &diag) < 0 &&
		     !h->doubted))
			abort(); /* an honest worker is refused */
		fal_buf_free(&h->out[i]);
	}
	memmove(h->out, h->out + n, (h->n_out - n) * sizeof(*h->out));
	h->n_out -= n;
	return n > 0;
}

static void
honest_model(struct honest *h, const struct fal_coord_publication *is,
	     const float *params, const int8_t *exps)
{
	static uint64_t publication;
	struct fal_msg m = { .type = FAL_MSG_PUBLISHED };
	struct fal_buf out = { 0 };
	m.published.version = is->version;
	m.published.order = is->order;
	m.published.shard = 1;
	m.published.blocks = fal_blocks(h->n);
	m.published.publication = ++publication;
	fal_msg_put(&out, &m);
	honest_post(h->in, &h->n_in, &out);
	fal_buf_clear(&out);
	const struct fal_model_part part = { is->version, 0,    fal_blocks(h->n),
					     params,      h->n, exps };
	put_model_msg(&out, 0, &part);
	honest_post(h->in, &h->n_in, &out);
	fal_buf_free(&out);
}

static void
honest_join(struct honest *h, const char *key, const struct fal_agent_conf *conf)
{
	const struct fal_agent_ops ops = { .arg = h,
					   .send = honest_send,
					   .run = honest_run,
					   .cancel = honest_cancel,
					   .steps = honest_steps };
	const struct fal_coord_session who = { key, key, 0, 0 };
	struct fal_msg m = standin_hello("honest", 0x55);
	h->n = conf->n;
	h->grad = fal_calloc_aligned(conf->n, sizeof(float));
	h->agent = fal_agent_new(conf, &ops);
	struct fal_buf out = { 0 };
	if (h->agent == NULL || h->grad == NULL)
		abort();
	fal_coord_session_open(h->coord, h->session, &who);
	/* No other one may take it for its process. */
	memset(m.hello.instance, 0x55, FAL_INSTANCE);
	fal_msg_put(&out, &m);
	honest_send(h, &out, false);
	fal_buf_clear(&out);
	m = (struct fal_msg){ .type = FAL_MSG_READY };
	m.ready.task_ns = 1000000;
	fal_msg_put(&out, &m);
	honest_send(h, &out, false);
	fal_buf_free(&out);
	honest_heard(h);
}

static void
honest_free(struct honest *h)
{
	for (uint32_t i = 0; i < h->n_in; i++)
		fal_buf_free(&h->in[i]);
	for (uint32_t i = 0; i < h->n_out; i++)
		fal_buf_free(&h->out[i]);
	fal_agent_free(h->agent);
	free(h->grad);
	h->n_in = h->n_out = 0;
	h->agent = NULL;
}

#endif
