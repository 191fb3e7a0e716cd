/* Keeping the best model. */

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
sum(const struct fal_buf *file, struct ps_best_is *is)
{
	uint8_t digest[FAL_HASH_BYTES];
	fal_sha256(file->p, file->n, digest);
	fal_hex(digest, sizeof(digest), is->sha256);
}

/* ---- the file --- */

static int
put(const struct fal_model *m, const float *params, struct ps_best_is *is,
    struct fal_buf *out)
{
	char clock[24], accuracy[32], loss[32];
	const struct fal_metadata meta[] = { { "accuracy", accuracy },
					     { "clock", clock },
					     { "loss", loss } };
	snprintf(clock, sizeof(clock), "%" PRIu64, is->clock);
	snprintf(accuracy, sizeof(accuracy), "%.17g", is->accuracy);
	snprintf(loss, sizeof(loss), isnan(is->loss) ? "nan" : "%.17g", is->loss);
	int err =
		fal_safetensors_put(m, params, meta, sizeof(meta) / sizeof(meta[0]), out);
	if (err == FAL_OK)
		sum(out, is);
	return err;
}

/* FAL_EFORMAT: it does not say. */
static int
get(const struct fal_buf *file, struct ps_best_is *out)
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
ps_best_read(const char *path, struct ps_best_is *out, struct fal_diag *diag)
{
	struct fal_buf file = { 0 };
	*out = (struct ps_best_is){ 0 };
	int err = fal_cli_read(path, SIZE_MAX / 2, &file, diag);
	const bool there = err == FAL_OK;
	if (there)
		err = get(&file, out);
	if (there && err < 0)
		fal_diag_set(diag, err, "%s: %s", path,
			     err == FAL_ENOMEM ? fal_strerror(err)
					       : "does not say how good it is");
	if (err == FAL_OK) {
		sum(&file, out);
		out->there = true;
	}
	fal_buf_free(&file);
	return err == FAL_ENOENT ? FAL_OK : err;
}

/* ---- writing it --- */

static void write_next(struct ps_server *s);

static void
on_work(uv_work_t *w)
{
	struct ps_server *s = w->data;
	struct ps_best *b = &s->best;
	b->err = fal_cli_write(s->run->best, b->now.p, b->now.n, 0666, &b->diag);
}

static void
on_written(uv_work_t *w, int status)
{
	struct ps_server *s = w->data;
	struct ps_best *b = &s->best;
	(void)status;
	b->busy = false;
	fal_buf_free(&b->now);
	uint64_t n;
	if (b->err < 0 && fal_ratelimit(&b->none, ps_now(), &n))
		fal_cli_err(PROG, "%s; the job goes on", b->diag.text);
	write_next(s);
	ps_after_event(s); /* the job's end may have waited for that */
}

static void
write_next(struct ps_server *s)
{
	struct ps_best *b = &s->best;
	if (b->busy || b->next.n == 0)
		return;
	b->now = b->next;
	b->next = (struct fal_buf){ 0 };
	b->work.data = s;
	b->busy = uv_queue_work(s->loop, &b->work, on_work, on_written) == 0;
	if (!b->busy)
		fal_buf_free(&b->now);
}

/* At equal accuracy the lower loss wins.  An unknown loss is no evidence that the first
 * model is the better. */
static bool
is_better(const struct ps_best_is *is, const struct ps_best_is *than)
{
	return !than->there || is->accuracy > than->accuracy ||
	       (is->accuracy >= than->accuracy &&
		(is->loss < than->loss || isnan(than->loss)));
}

void
ps_best_event(struct ps_server *s, const struct fal_coord_status *now)
{
	struct ps_best *b = &s->best;
	struct fal_coord_left left;
	if (s->run->best == NULL || now->accuracy < 0 || now->judged == b->seen)
		return;
	struct ps_best_is is = { .there = true,
				 .clock = now->judged,
				 .accuracy = now->accuracy,
				 .loss = now->accuracy_loss };
	/* The coordinator holds the judged version until the next epoch ends.  Behind a
	 * restart the version may be gone, but its evaluation was examined before. */
	const bool better = is_better(&is, &b->is) && fal_coord_kept(s->coord, &left) &&
			    left.clock == now->judged;
	bool coming = false;
	const float *params = better ? ps_fleet_params(s, left.version, &coming) : NULL;
	if (coming)
		return;
	b->seen = now->judged;
	if (!better)
		return;
	struct fal_buf file = { 0 };
	if (params == NULL || put(s->job->model, params, &is, &file) < 0) {
		fal_buf_free(&file);
		return;
	}
	b->is = is;
	fal_buf_free(&b->next);
	b->next = file;
	write_next(s);
}

void
ps_best_free(struct ps_best *b)
{
	fal_buf_free(&b->now);
	fal_buf_free(&b->next);
}
