/* The files of the result, and its lines on standard output. */
#include "server.h"

#include "base/json.h"
#include "base/json_load.h"
#include "base/parse.h"
#include "cli/file.h"
#include "model/safetensors.h"
#include "trace/chain.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The result as JSON, one object on one line. */
static void
result_put_json(const struct ps_run *r, struct fal_buf *out)
{
	const struct ps_outcome *o = &r->out;
	const struct fal_coord_status *s = &o->status;
	fal_json_open(out, '{');
	fal_json_member_str(out, "name", r->job.job.name);
	if (s->failed) {
		fal_json_member_str(out, "failed", s->why);
		fal_json_member_u64(out, "clock", o->clock);
	}
	fal_json_member_str(out, "model", r->model.path);
	fal_json_member_str(out, "sha256", o->sha256);
	fal_json_member_str(out, "hash", o->hash);
	fal_json_member_u64(out, "clocks", s->patience_is_over ? s->clock : s->clocks);
	if (o->average != NULL) {
		fal_json_member_str(out, "average", r->average.path);
		fal_json_member_str(out, "average_sha256", o->average_sha256);
	}
	if (r->best.exists) {
		fal_json_member_str(out, "best", r->best_path);
		fal_json_member_str(out, "best_sha256", r->best.sha256);
		fal_json_member_u64(out, "best_clock", r->best.clock);
		fal_json_member_num(out, "best_accuracy", r->best.accuracy);
	}
	if (s->figures.accuracy >= 0) {
		fal_json_member_num(out, "accuracy", s->figures.accuracy);
		fal_json_member_num(out, "test_loss", s->figures.accuracy_loss);
	}
	fal_json_member_num(out, "training_loss", s->figures.loss);
	fal_metrics_put_json(out, &r->job.job.metrics, &s->figures.metrics.clock,
			     s->figures.accuracy >= 0 ? &s->figures.metrics.test : NULL);
	fal_json_member_fixed(out, "seconds", o->seconds, 3);
	fal_json_member_u64(out, "moved", s->figures.tasks.moved);
	fal_json_member_u64(out, "cloned", s->figures.tasks.cloned);
	fal_json_member_u64(out, "filled", s->figures.tasks.filled);
	fal_json_member_u64(out, "lost", s->figures.tasks.lost);
	fal_json_member_u64(out, "skipped", s->figures.tasks.skipped);
	fal_json_member_str(out, "chain", r->trace.chain.link);
	fal_json_close(out, '}');
	fal_put_u8(out, '\n');
}

/* Checks that the folder's file has this SHA-256. */
static int
result_check_file(const struct ps_run *r, const char *name, const char *sha256,
		  struct fal_diag *diag)
{
	uint8_t digest[FAL_HASH_BYTES];
	char is[2 * FAL_HASH_BYTES + 1], *path = ps_state_path(&r->state, name);
	struct fal_buf file = { 0 };
	int err = fal_cli_read(path, SIZE_MAX / 2, &file, diag);
	fal_sha256(file.p, file.n, digest);
	fal_hex(digest, sizeof(digest), is);
	if (err == FAL_OK && strcmp(is, sha256) != 0)
		err = fal_diag_set(diag, FAL_EFORMAT,
				   "%s: its SHA-256 is %s, but the result's is %s", path,
				   is, sha256);
	fal_buf_free(&file);
	free(path);
	return err;
}

static void
result_print_loss(const char *label, const json_t *loss)
{
	if (json_is_number(loss))
		printf("%-14s %.4f\n", label, json_number_value(loss));
	else
		printf("%-14s -\n", label);
}

int
ps_result_print(const struct ps_run *r, const struct fal_buf *json)
{
	static const char *const name[] = { "model.safetensors", "average.safetensors",
					    "best.safetensors" };
	const char *sha256[] = { NULL, NULL, NULL }, *failed = NULL, *dir = r->state.dir;
	double accuracy = -1, best_accuracy = -1, seconds;
	struct fal_diag diag = { "" };
	/* null: unknown, or the last clock had no samples; NULL: no evaluation */
	json_t *loss, *test_loss = NULL;
	json_error_t why;
	json_t *o = fal_json_load(json->p, json->n, 0, &why);
	int err =
		o == NULL && why.text[0] == '\0'
			? FAL_ENOMEM
			: fal_json_unpack(o, NULL, 0,
					  "{s:s, s?s, s?s, s?s, s?F, s?o, s:o, s:F, s?F}",
					  "sha256", &sha256[0], "average_sha256",
					  &sha256[1], "best_sha256", &sha256[2], "failed",
					  &failed, "accuracy", &accuracy, "test_loss",
					  &test_loss, "training_loss", &loss, "seconds",
					  &seconds, "best_accuracy", &best_accuracy);
	/* The files of an earlier run may be lost. */
	for (size_t i = 0; i < 3 && err == 0 && json == &r->state.result; i++)
		if (sha256[i] != NULL && *sha256[i] != '\0')
			err = result_check_file(r, name[i], sha256[i], &diag);
	if (err == 0 && r->opt.json) {
		fwrite(json->p, 1, json->n, stdout);
	} else if (err == 0) {
		if (failed != NULL)
			printf("failed         %s\n", failed);
		printf("model          %s/%s\nsha256         %s\n", dir, name[0],
		       sha256[0]);
		if (sha256[1] != NULL)
			printf("average        %s/%s\n", dir, name[1]);
		if (sha256[2] != NULL)
			printf("best           %s/%s (accuracy %.4f)\n", dir, name[2],
			       best_accuracy);
		if (accuracy >= 0)
			printf("accuracy       %.4f\n", accuracy);
		if (test_loss != NULL)
			result_print_loss("test loss", test_loss);
		result_print_loss("training loss", loss);
		printf("time           %.2f s\n", seconds);
	} else if (diag.text[0] != '\0') {
		fal_cli_err(PROG,
			    "%s; without %s/result.json the job goes on from its last "
			    "snapshot; where there is none, --restart begins it again",
			    diag.text, dir);
	} else {
		fal_cli_err(PROG, "%s/result.json: %s", dir,
			    err == FAL_ENOMEM ? fal_strerror(err) : "not a result");
	}
	const bool well = err == 0 && failed == NULL;
	json_decref(o);
	return well ? FAL_EXIT_DONE : FAL_EXIT_NO;
}

/* Writes parameters as a file, and sets `sha256` to its hash.  The parameters are not
 * copied: there may be no memory for that. */
static int
result_write_model(struct ps_run *r, const float *params, struct ps_result_file *place,
		   char sha256[static 2 * FAL_HASH_BYTES + 1], struct fal_diag *diag)
{
	const struct fal_model *m = r->job.model;
	uint8_t digest[FAL_HASH_BYTES];
	struct fal_sha256_state sum;
	struct fal_buf head = { 0 };
	int err = fal_safetensors_head(m, NULL, 0, &head);
	fal_sha256_init(&sum);
	if (err == FAL_OK) {
		fal_sha256_update(&sum, head.p, head.n);
		err = ps_result_file_write(place, head.p, head.n, diag);
	}
	for (uint32_t i = 0; i < m->tensors && err == FAL_OK; i++) {
		const float *values = params + m->tensor[i].offset;
		const size_t bytes = m->tensor[i].count * sizeof(*values);
		fal_sha256_update(&sum, values, bytes);
		err = ps_result_file_write(place, values, bytes, diag);
	}
	if (err == FAL_OK)
		err = ps_result_file_commit(&r->state, place, diag);
	fal_sha256_final(&sum, digest);
	fal_hex(digest, sizeof(digest), sha256);
	fal_buf_free(&head);
	return err;
}

int
ps_result_write_models(struct ps_run *r, const float *params, struct fal_diag *diag)
{
	struct ps_outcome *o = &r->out;
	uint8_t hash[FAL_HASH_BYTES];
	int err = FAL_OK;
	fal_leaf_model(params, r->job.model->params, hash);
	fal_hex(hash, sizeof(hash), o->hash);
	if (o->average != NULL)
		err = result_write_model(r, o->average, &r->average, o->average_sha256,
					 diag);
	return err == FAL_OK ? result_write_model(r, params, &r->model, o->sha256, diag)
			     : err;
}

int
ps_result_write(struct ps_run *r, struct fal_diag *diag)
{
	struct fal_buf out = { 0 };
	result_put_json(r, &out);
	int err = out.err;
	ps_trace_file_sync(&r->trace);
	if (err == FAL_OK)
		err = ps_result_file_write(&r->result, out.p, out.n, diag);
	if (err == FAL_OK)
		err = ps_result_file_commit(&r->state, &r->result, diag);
	if (err == FAL_OK) {
		ps_result_print(r, &out);
		fflush(stdout); /* the process may run on for long; errors are reported at
				   its end */
	}
	fal_buf_free(&out);
	return err;
}

int
ps_result_reserve(struct ps_run *r, struct fal_diag *diag)
{
	/* bytes, at most */
	const size_t most = 4096 + r->job.job.metrics.n * (size_t)256;
	const uint64_t bytes = fal_safetensors_bound(r->job.model, 0);
	int err = ps_result_file_reserve(&r->state, "model.safetensors", bytes, &r->model,
					 diag);
	if (err == FAL_OK && r->job.job.optim.ema > 0)
		err = ps_result_file_reserve(&r->state, "average.safetensors", bytes,
					     &r->average, diag);
	return err < 0 ? err
		       : ps_result_file_reserve(&r->state, "result.json", most,
						&r->result, diag);
}
