/* Reading, inflating and checking, in a thread of libuv's pool. */
#include "fill.h"

#include "base/buf.h"

#include <string.h>

static int
fill_set(const struct fill *f, bool test, const char *names[static 2], uint32_t max,
	 struct fal_diag *diag)
{
	const struct fal_set_opts opts = {
		.max_samples = max,
		.classes = fal_samples_part(f->conf.samples[test])->classes
	};
	struct fal_buf path[2] = { { 0 }, { 0 } };
	struct fal_set set;
	for (unsigned i = 0; i < 2; i++) {
		const char *slash = strrchr(names[i], '/');
		fal_put_fmt(&path[i], "%s/%s", f->conf.dir,
			    slash != NULL ? slash + 1 : names[i]);
		fal_put_u8(&path[i], '\0');
	}
	int err = path[0].err < 0 ? path[0].err : path[1].err;
	if (err < 0)
		fal_diag_set(diag, err, "%s", fal_strerror(err));
	else
		err = fal_set_load_idx((char *)path[0].p, (char *)path[1].p, &opts, &set,
				       diag);
	if (err == FAL_OK) {
		err = fal_samples_put_set(f->conf.samples[test], &set);
		fal_set_free(&set);
		if (err < 0)
			fal_diag_set(diag, err, "%s: not the data of the job",
				     (char *)path[0].p);
	}
	fal_buf_free(&path[0]);
	fal_buf_free(&path[1]);
	return err;
}

static void
on_work(uv_work_t *work)
{
	struct fill *f = work->data;
	const struct fal_job *job = f->conf.job;
	const char *train[] = { job->train_images, job->train_labels };
	const char *test[] = { job->test_images, job->test_labels };
	f->err = fill_set(f, false, train, job->samples, &f->diag);
	if (f->err == FAL_OK && f->conf.samples[1] != NULL && test[0] != NULL)
		f->err = fill_set(f, true, test, job->test_samples, &f->diag);
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
