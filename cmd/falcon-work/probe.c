/* Probing, in a thread of libuv's pool. */
#include "probe.h"

#include "desk.h"

static void
on_work(uv_work_t *work)
{
	struct probe *p = work->data;
	struct desk *desk;
	p->err = desk_new(p->net, &desk);
	if (p->err < 0)
		return;
	p->err = desk_probe(desk, p->seed, p->fingerprint, &p->task_ns);
	desk_free(desk);
}

static void
on_after(uv_work_t *work, int status)
{
	struct probe *p = work->data;
	(void)status; /* nobody cancels it */
	p->running = false;
	p->done = p->err == FAL_OK;
	p->on_end(p->arg);
}

int
probe_start(struct probe *p, uv_loop_t *loop, const struct fal_net *net, uint64_t seed,
	    void (*on_end)(void *arg), void *arg)
{
	*p = (struct probe){ .net = net, .seed = seed, .on_end = on_end, .arg = arg };
	p->work.data = p;
	if (uv_queue_work(loop, &p->work, on_work, on_after) < 0)
		return FAL_EIO;
	p->running = true;
	return FAL_OK;
}
