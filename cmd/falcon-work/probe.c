/* Probing, in a thread of libuv's pool. */
#include "probe.h"

#include "desk.h"

/* On a desk of its own; the fingerprint if it is wanted. */
static int
try(const struct fal_net *net, uint64_t seed, uint8_t *fingerprint, struct desk_time *out)
{
	struct desk *desk;
	int err = desk_new(net, &desk);
	if (err < 0)
		return err;
	if (fingerprint != NULL)
		err = desk_fingerprint(desk, seed, fingerprint);
	if (err == FAL_OK)
		err = desk_time(desk, seed, out);
	desk_free(desk);
	return err;
}

static void
on_work(uv_work_t *work)
{
	struct probe *p = work->data;
	const struct probe_conf *c = &p->conf;
	static const uint64_t most =
		200000000; /* ns of a task; many would take too long */
	struct desk_time task, large;
	p->err = try(c->net, c->seed, p->fingerprint, &task);
	if (p->err < 0)
		return;
	p->task_ns = task.wall;
	if (c->large == NULL || task.cpu == 0 || task.wall > most ||
	    try(c->large, c->seed, NULL, &large) < 0)
		return;
	p->large = fal_net_batch(c->large);
	p->large_ns =
		(uint64_t)((double)task.wall * (double)large.cpu / (double)task.cpu);
}

static void
on_after(uv_work_t *work, int status)
{
	struct probe *p = work->data;
	(void)status; /* nobody cancels it */
	p->running = false;
	p->done = p->err == FAL_OK;
	p->conf.on_end(p->conf.arg);
}

int
probe_start(struct probe *p, uv_loop_t *loop, const struct probe_conf *conf)
{
	*p = (struct probe){ .conf = *conf };
	p->work.data = p;
	if (uv_queue_work(loop, &p->work, on_work, on_after) < 0)
		return FAL_EIO;
	p->running = true;
	return FAL_OK;
}
