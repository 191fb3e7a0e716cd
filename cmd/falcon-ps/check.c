/* Whether options and files make a job that this process can serve, and what it needs;
 * and how it is said what is wrong. */
#include "run.h"

#include "base/text.h"
#include "cli/table.h"
#include "group/group.h"
#include "job/policy.h"
#include "net/options.h"
#include "sched/traits.h"
#include "sec/secret.h"
#include "wire/bfp.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

int
ps_run_say(const struct fal_diag *diag, int err)
{
	fal_cli_err(PROG, "%s", diag->text[0] != '\0' ? diag->text : fal_strerror(err));
	return fal_cli_exit(err);
}

/* What cannot be read is a bad input file, whatever was wrong. */
static int
say_bad_file(const struct fal_diag *diag, int err)
{
	ps_run_say(diag, err);
	return err == FAL_ENOMEM ? FAL_EXIT_NO : FAL_EXIT_USAGE;
}

/* A trace under such a name would not be what readers take it for. */
static bool
ends_in_zst(const char *path)
{
	size_t n = path != NULL ? strlen(path) : 0;
	return n >= 4 && strcmp(path + n - 4, ".zst") == 0;
}

/* How large the job is, and what it needs. */
static void
say_need(const struct ps_run *r)
{
	const struct ps_options *o = &r->opt;
	const struct fal_files *j = &r->job;
	const uint64_t params = j->model->values;
	const uint32_t blocks = fal_blocks(j->model->params), tasks = fal_files_tasks(j);
	char more[64] = "", beside[96] = "";
	if (j->job.block == FAL_JOB_BLOCK_TENSOR)
		snprintf(more, sizeof(more), " (%u without model.block = tensor)",
			 fal_blocks(params));
	if (o->min_shards > 0)
		snprintf(beside, sizeof(beside),
			 ", %" PRIu64 " while %" PRIu64 " process%s shards",
			 fal_need_mib(ps_need(&r->need, (uint32_t)o->min_shards)),
			 o->min_shards, o->min_shards > 1 ? "es have" : " has");
	fal_cli_err(PROG,
		    "%s: %" PRIu64 " parameter%s in %u block%s%s, %u task%s a clock, "
		    "needs %" PRIu64 " MiB%s",
		    j->job.name, params, fal_text_s(params), blocks, fal_text_s(blocks),
		    more, tasks, fal_text_s(tasks), fal_need_mib(ps_need(&r->need, 0)),
		    beside);
}

/* On standard output; frees its cells. */
static void
print_table(struct fal_table *table)
{
	struct fal_buf text = { 0 };
	fal_table_text(table, &text);
	fal_cli_print(&text);
	fal_buf_free(&text);
	fal_table_free(table);
}

/* Tensors as lines for people and scripts: name, shape, how many values. */
static int
print_tensors(const struct fal_model *m)
{
	struct fal_table table = { .columns = 3 };
	fal_table_add(&table, "tensor");
	fal_table_add(&table, "shape");
	fal_table_add(&table, "values");
	for (uint32_t i = 0; i < m->tensors; i++) {
		const struct fal_tensor *t = &m->tensor[i];
		char shape[FAL_MODEL_MAX_DIMS * 11 + 1] = "-";
		for (uint32_t d = 0, n = 0; d < t->dims; d++)
			n += (uint32_t)snprintf(shape + n, sizeof(shape) - n, "%s%u",
						d > 0 ? "x" : "", t->dim[d]);
		fal_table_add(&table, "%s", t->name);
		fal_table_add(&table, "%s", shape);
		fal_table_add(&table, "%" PRIu64, t->count);
	}
	print_table(&table);
	return FAL_OK;
}

/* Where the blocks will be, on so many shards. */
static int
print_shards(const struct fal_files *j, uint32_t shards)
{
	struct fal_table table = { .columns = 4 };
	struct fal_map map;
	uint32_t before[FAL_SHARDS_MAX + 1];
	fal_files_map(j, shards, &map, before);
	for (const char *const *head =
		     (const char *const[]){ "shard", "blocks", "bytes", "%", NULL };
	     *head != NULL; head++)
		fal_table_add(&table, "%s", *head);
	const size_t all = j->model->params;
	for (uint32_t i = 0; i < shards; i++) {
		const bool has = before[i + 1] > before[i];
		const struct fal_extent e =
			has ? map.of[before[i]] : (struct fal_extent){ 0, 0 };
		const size_t from = (size_t)e.first * FAL_BLOCK,
			     most = (size_t)e.count * FAL_BLOCK;
		const size_t values = all - from < most ? all - from : most;
		fal_table_add(&table, "%u", i + 1);
		fal_table_add(&table, "%u", e.count);
		fal_table_add(&table, "%zu", values * sizeof(float));
		fal_table_add(&table, "%.1f", 100.0 * e.count / fal_blocks(all));
	}
	print_table(&table);
	return FAL_OK;
}

/* Judges what any process of shards is told.  0 or an exit code. */
static int
check_words(struct ps_run *r)
{
	struct fal_diag diag = { "" };
	const struct ps_options *o = &r->opt;
	const char *own = o->join != NULL ? "127.0.0.1:0" : "127.0.0.1:7000";
	int err = fal_addrs_parse(o->listen != NULL ? o->listen : own, r->listen.v,
				  FAL_ADDRS_MAX, &r->listen.n, &diag);
	if (err < 0)
		return ps_run_say(&diag, err);
	if (o->join != NULL && r->listen.n > 1) {
		fal_cli_err(PROG, "--listen: '%s': with --join there is one address",
			    o->listen);
		return FAL_EXIT_USAGE;
	}
	if (fal_compress_parse(o->compress, &r->compress) < 0) {
		fal_cli_err(PROG, "--compress: '%s' is not auto, always or never",
			    o->compress);
		return FAL_EXIT_USAGE;
	}
	if (o->shards < 1 || o->shards > FAL_SHARDS_MAX) {
		fal_cli_err(PROG, "--shards: %" PRIu64 " is not 1 to %d", o->shards,
			    FAL_SHARDS_MAX);
		return FAL_EXIT_USAGE;
	}
	return FAL_EXIT_DONE;
}

int
ps_check_join(struct ps_run *r)
{
	struct fal_diag diag = { "" };
	const struct ps_options *o = &r->opt;
	int code = check_words(r);
	if (code != FAL_EXIT_DONE)
		return code;
	int err = fal_addr_parse(o->join, &r->coordinator, &diag);
	if (err < 0)
		return ps_run_say(&diag, err);
	fal_cli_hide_memory();
	err = fal_client_key_load(o->key, FAL_ROLE_SHARD, &r->key, &diag);
	if (err == FAL_OK)
		return FAL_EXIT_DONE;
	fal_cli_err(PROG, "%s", diag.text);
	return fal_cli_exit_file(err);
}

/* How the coordinator above is reached, and by which key.  0 or an exit code. */
static int
check_above(struct ps_run *r, const char *path)
{
	struct fal_diag diag = { "" };
	const struct ps_options *o = &r->opt;
	r->above = (struct ps_above_opt){ .text = o->upstream,
					  .addr = &r->coordinator,
					  .retry = &r->retry,
					  .several = &r->several,
					  .job = path };
	int err = fal_addr_parse(o->upstream, &r->coordinator, &diag);
	if (err < 0)
		return ps_run_say(&diag, err);
	if (o->scheme != NULL && strcmp(o->scheme, "bsp") != 0 &&
	    strcmp(o->scheme, "epsp") != 0) {
		fal_cli_err(PROG, "--scheme: '%s' is not bsp or epsp", o->scheme);
		return FAL_EXIT_USAGE;
	}
	fal_cli_hide_memory();
	err = fal_client_key_load(o->key, FAL_ROLE_WORK, &r->key, &diag);
	if (err < 0) {
		fal_cli_err(PROG, "%s", diag.text);
		return fal_cli_exit_file(err);
	}
	if (!o->check &&
	    memcmp(r->key->server, fal_keyring_public(r->keys), FAL_KEY_BYTES) == 0) {
		fal_cli_err(PROG,
			    "--upstream: %s is the key to this very server: %s is its "
			    "keyring",
			    o->key, o->keyring);
		return FAL_EXIT_USAGE;
	}
	fal_random_bytes(r->above.instance, sizeof(r->above.instance));
	r->above.key = r->key;
	return FAL_EXIT_DONE;
}

/* Whether there can be a group server for this job, which it shares by a rule of its
 * own.  0 or an exit code. */
static int
check_group(struct ps_run *r)
{
	struct fal_job *job = &r->job.job;
	const char *scheme = r->opt.scheme;
	if (!fal_group_may(&job->rule)) {
		fal_cli_err(PROG, "%s: local steps, as by %s, are not for a group server",
			    job->name, fal_scheme_name(job->rule.scheme));
		return FAL_EXIT_USAGE;
	}
	job->rule = (struct fal_rule){ .scheme = FAL_EPSP };
	if (scheme != NULL && strcmp(scheme, "bsp") == 0)
		job->rule.scheme = FAL_BSP;
	r->retry.lost = uv_hrtime();
	return FAL_EXIT_DONE;
}

bool
ps_may_unseal(const struct ps_options *o)
{
	return !o->seal_all && o->rate_limit == 0;
}

bool
ps_has_port(const struct ps_addrs *listen)
{
	size_t i = 0;
	while (i < listen->n && listen->v[i].kind != FAL_ADDR_TCP)
		i++;
	return i < listen->n;
}

/* Says what the job needs, and judges that.  `path`: its name for it.  0 or an exit code.
 */
static int
check_need(struct ps_run *r, const char *path)
{
	struct fal_diag diag = { "" };
	const struct ps_options *o = &r->opt;
	const struct fal_files *j = &r->job;
	r->need = (struct ps_need_of){ .program = r->program,
				       .job = j,
				       .rule = &j->job.rule,
				       .workers = o->min_workers,
				       .shards = (uint32_t)o->shards,
				       .mixed = ps_has_port(&r->listen) };
	say_need(r);
	char warning[FAL_STALE_TEXT];
	if (fal_stale_warning(&j->job.rule, &j->job.optim,
			      o->min_workers > 1 ? (uint32_t)o->min_workers : 0, warning))
		fal_cli_err(PROG, "%s: warning: %s", j->job.name, warning);
	if (ps_afford(&r->need, 0, o->max_memory, &diag) < 0) {
		fal_cli_err(PROG, "%s: %s", path, diag.text);
		return FAL_EXIT_NO;
	}
	if (!o->check)
		return FAL_EXIT_DONE;
	/* Of a process that joins no more is known than that it has one. */
	uint64_t shards = o->shards + o->min_shards;
	shards = shards < FAL_SHARDS_MAX ? shards : FAL_SHARDS_MAX;
	if (print_tensors(j->model) < 0 ||
	    (shards > 1 && print_shards(j, (uint32_t)shards) < 0))
		return ps_run_say(&diag, FAL_ENOMEM);
	return FAL_EXIT_DONE;
}

int
ps_check(struct ps_run *r, const char *path)
{
	struct fal_diag diag = { "" };
	const struct ps_options *o = &r->opt;
	int code = check_words(r);
	if (code != FAL_EXIT_DONE)
		return code;
	if (ends_in_zst(o->trace)) {
		fal_cli_err(PROG,
			    "--trace: '%s': traces are written plain; leave out "
			    ".zst",
			    o->trace);
		return FAL_EXIT_USAGE;
	}
	int err = fal_files_load(&r->job, path, o->from, o->set.v, o->set.n, &diag);
	if (err < 0)
		return say_bad_file(&diag, err);
	if (!o->check) {
		fal_cli_hide_memory();
		err = fal_keyring_load(o->keyring, &r->keys, &diag);
		if (err < 0)
			return say_bad_file(&diag, err);
	}
	if (o->upstream != NULL)
		code = check_above(r, path);
	if (o->upstream != NULL && code == FAL_EXIT_DONE)
		code = check_group(r);
	if (code != FAL_EXIT_DONE)
		return code;
	return check_need(r, path);
}
