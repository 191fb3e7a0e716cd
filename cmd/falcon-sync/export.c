/* export: writes the newest version to a file; the coordinator sends it in pieces. */
#include "base/buf.h"
#include "cli/cli.h"
#include "cli/file.h"
#include "cli/progress.h"
#include "sync.h"

#include <jansson.h>

struct export
{
	const char *path;
	struct fal_buf model;
	struct fal_progress progress; /* total 0: not known yet */
};

static void
on_export_open(void *arg, struct fal_client *client)
{
	(void)arg;
	sync_ask(client, FAL_VERB_EXPORT, NULL, 0);
}

static int
on_export_msg(void *arg, struct fal_client *client, const struct fal_msg *m)
{
	struct export *e = arg;
	struct fal_diag diag;
	if (m->type != FAL_MSG_REPLY)
		return FAL_EFORMAT;
	if (m->reply.status != FAL_EXIT_DONE)
		return sync_end(client, sync_refused(m, NULL));
	fal_put_bytes(&e->model, m->reply.bytes.p, m->reply.bytes.n);
	if (e->model.err < 0)
		return e->model.err;
	/* The file's size by its header (safetensors: a u64, so many bytes of JSON, the
	 * data up to the largest end), once the header is complete. */
	struct fal_rd r = fal_rd_init(e->model.p, e->model.n);
	const uint64_t n = fal_get_u64(&r);
	if (e->progress.total == 0 && r.err == 0 && n <= r.n) {
		json_t *header = sync_json(&(struct fal_tail){ r.p, (size_t)n }), *tensor;
		json_int_t most = 0;
		const char *name;
		json_object_foreach(header, name, tensor)
		{
			const json_t *ends = json_object_get(tensor, "data_offsets");
			const json_int_t end =
				json_integer_value(json_array_get(ends, 1));
			most = end > most ? end : most;
		}
		json_decref(header);
		e->progress.total = 8 + n + (uint64_t)most;
	}
	if (e->progress.total > 0)
		fal_progress_show(&e->progress, e->model.n, uv_hrtime());
	if (m->reply.more) {
		fal_client_expect_answer(client);
		return FAL_OK;
	}
	fal_progress_wipe();
	if (fal_cli_write(e->path, e->model.p, e->model.n, 0666, &diag) < 0)
		return sync_end(client, fail(FAL_EXIT_NO, "%s", diag.text));
	return sync_end(client, FAL_EXIT_DONE);
}

int
sync_export(const struct sync_conf *conf, const char *path)
{
	struct export e = { .path = path,
			    .progress = fal_progress_begin(path, 0, uv_hrtime()) };
	struct fal_client_conf client = { .arg = &e,
					  .role = FAL_ROLE_CONTROL,
					  .on_open = on_export_open,
					  .on_msg = on_export_msg };
	int code = sync_run(conf, &client);
	fal_progress_wipe();
	fal_buf_free(&e.model);
	return code;
}
