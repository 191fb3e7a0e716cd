/* Keeps the model of the best evaluation. */

#include "base/json_load.h"
#include "base/parse.h"
#include "cli/file.h"
#include "model/safetensors.h"
#include "server.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
best_model_hash(const struct fal_buf *file, struct ps_best_model *is)
{
	uint8_t digest[FAL_HASH_BYTES];
	fal_sha256(file->p, file->n, digest);
	fal_hex(digest, sizeof(digest), is->sha256);
}

/* ---- the file --- */

/* Reads the evaluation from the file's metadata.  FAL_EFORMAT: the metadata have no
 * evaluation. */
static int
best_model_get(const struct fal_buf *file, struct ps_best_model *out)
{
	struct fal_rd rd = fal_rd_init(file->p, file->n);
	const uint64_t n = fal_get_u64(&rd);
	const void *text = fal_get_bytes(&rd, n <= rd.n ? (size_t)n : SIZE_MAX);
	json_error_t why;
	if (rd.err < 0)
		return FAL_EFORMAT;
	json_t *o = fal_json_load(text, (size_t)n, 0, &why);
	if (o == NULL)
		return why.text[0] == '\0' ? FAL_ENOMEM : FAL_EFORMAT;
	const char *clock, *accuracy, *loss;
	int err = fal_json_unpack(o, NULL, 0, "{s:{s:s, s:s, s:s}}", "__metadata__",
				  "clock", &clock, "accuracy", &accuracy, "loss", &loss);
	if (err == FAL_OK && fal_parse_u64(clock, 0, UINT64_MAX, &out->clock) < 0)
		err = FAL_EFORMAT;
	if (err == FAL_OK) {
		out->accuracy = strtod(accuracy, NULL);
		out->loss = strtod(loss, NULL);
	}
	json_decref(o);
	return err;
}

int
ps_best_model_read(const char *path, struct ps_best_model *out, struct fal_diag *diag)
{
	struct fal_buf file = { 0 };
	*out = (struct ps_best_model){ 0 };
	int err = fal_cli_read(path, SIZE_MAX / 2, &file, diag);
	const bool exists = err == FAL_OK;
	if (exists)
		err = best_model_get(&file, out);
	if (exists && err < 0)
		fal_diag_set(diag, err, "%s: %s", path,
			     err == FAL_ENOMEM ? fal_strerror(err)
					       : "has no evaluation in its metadata");
	if (err == FAL_OK) {
		best_model_hash(&file, out);
		out->exists = true;
	}
	fal_buf_free(&file);
	return err == FAL_ENOENT ? FAL_OK : err;
}

/* ---- writing --- */

static void best_write_next(struct ps_server *s);

static void
best_on_work(uv_work_t *w)
{
	struct ps_server *s = w->data;
	struct ps_best_checkpoint *b = &s->best;
	b->err = fal_cli_write(s->run->best_path, b->writing.p, b->writing.n, 0666,
			       &b->diag);
}

static void
best_on_written(uv_work_t *w, int status)
{
	struct ps_server *s = w->data;
	struct ps_best_checkpoint *b = &s->best;
	(void)status;
	b->is_writing = false;
	fal_buf_free(&b->writing);
	uint64_t n;
	if (b->err < 0 && fal_ratelimit(&b->failures, ps_now(), &n))
		fal_cli_err(PROG, "%s; the job goes on", b->diag.text);
	best_write_next(s);
	s->events.after_event(s); /* the job's end may have waited for it */
}

static void
best_write_next(struct ps_server *s)
{
	struct ps_best_checkpoint *b = &s->best;
	if (b->is_writing || b->waiting.n == 0)
		return;
	b->writing = b->waiting;
	b->waiting = (struct fal_buf){ 0 };
	b->work.data = s;
	b->is_writing =
		uv_queue_work(s->loop, &b->work, best_on_work, best_on_written) == 0;
	if (!b->is_writing)
		fal_buf_free(&b->writing);
}

void
ps_best_checkpoint_update(struct ps_server *s, const struct fal_coord_figures *now)
{
	struct ps_best_checkpoint *b = &s->best;
	struct fal_coord_outcome left;
	if (s->run->best_path == NULL || now->accuracy < 0 ||
	    now->judged == b->judged_clock)
		return;
	struct ps_best_model is = { .exists = true,
				    .clock = now->judged,
				    .accuracy = now->accuracy,
				    .loss = now->accuracy_loss };
	/* The coordinator holds the judged version until the next epoch ends.  After a
	 * restart the version may be gone, but its evaluation was examined before. */
	const struct ps_best_model *best = &s->run->best;
	const bool better =
		(!best->exists ||
		 fal_coord_best_is_better(
			 &(struct fal_coord_best){ is.clock, is.accuracy, is.loss },
			 &(struct fal_coord_best){ best->clock, best->accuracy,
						   best->loss })) &&
		fal_coord_last_good_version(s->coord, &left) && left.clock == now->judged;
	bool coming = false;
	const float *params =
		better ? ps_pool_get_params(s, left.version, &coming) : NULL;
	if (coming)
		return;
	b->judged_clock = now->judged;
	if (params == NULL)
		return;
	char clock[24], accuracy[32], loss[32];
	const struct fal_metadata meta[] = { { "accuracy", accuracy },
					     { "clock", clock },
					     { "loss", loss } };
	snprintf(clock, sizeof(clock), "%" PRIu64, is.clock);
	snprintf(accuracy, sizeof(accuracy), "%.17g", is.accuracy);
	snprintf(loss, sizeof(loss), isnan(is.loss) ? "nan" : "%.17g", is.loss);
	struct fal_buf file = { 0 };
	if (fal_safetensors_put(s->job->model, params, meta,
				sizeof(meta) / sizeof(meta[0]), &file) < 0) {
		fal_buf_free(&file);
		return;
	}
	best_model_hash(&file, &is);
	s->run->best = is;
	fal_buf_free(&b->waiting);
	b->waiting = file;
	best_write_next(s);
}

void
ps_best_checkpoint_free(struct ps_best_checkpoint *b)
{
	fal_buf_free(&b->writing);
	fal_buf_free(&b->waiting);
}
