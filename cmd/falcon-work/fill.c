/* Reading, inflating and checking, in a thread of libuv's pool. */
#include "fill.h"

#include "data/set.h"

static int
fill_set(const struct fill *f, bool test, struct fal_diag *diag)
{
	struct fal_samples *to = f->conf.samples[test];
	const struct fal_load files = { .job = f->conf.job,
					.dir = f->conf.dir,
					.test = test,
					.classes = fal_samples_part(to)->classes };
	struct fal_set set = { 0 };
	int err = fal_load_set(&files, &set, diag);
	if (err < 0)
		return err;
	err = fal_samples_put_set(to, &set);
	fal_set_free(&set);
	return err < 0 ? fal_diag_set(diag, err, "%s: not the %s data of the job",
				      f->conf.dir, test ? "test" : "training")
		       : FAL_OK;
}

static void
on_work(uv_work_t *work)
{
	struct fill *f = work->data;
	f->err = fill_set(f, false, &f->diag);
	if (f->err == FAL_OK && f->conf.samples[1] != NULL &&
	    fal_job_has_test(f->conf.job))
		f->err = fill_set(f, true, &f->diag);
}

static void
on_after(uv_work_t *work, int status)
{
	struct fill *f = work->data;
	(void)status; /* nobody cancels it */
	f->running = false;
	f->conf.on_end(f->conf.arg);
}

int
fill_start(struct fill *f, uv_loop_t *loop, const struct fill_conf *conf)
{
	*f = (struct fill){ .conf = *conf };
	f->work.data = f;
	if (uv_queue_work(loop, &f->work, on_work, on_after) < 0)
		return FAL_EIO;
	f->running = true;
	return FAL_OK;
}
