/* Probing, in a thread of libuv's pool. */
#include "probe.h"

static void
on_work(uv_work_t *work)
{
	struct probe *p = work->data;
	p->err = p->conf.maker->ops->probe(p->conf.maker, &p->found);
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
