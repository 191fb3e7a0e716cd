/* falcon-ps: the coordinator and first shard of a job.  Reads the options, and checks the
 * options together with the job's files.  Then begins the job, resumes the job from a
 * snapshot, or finds that the job is done. */
#include "server.h"

#include "base/mem.h"
#include "base/text.h"
#include "cli/cores.h"
#include "cli/table.h"
#include "crypto/secret.h"
#include "job/policy.h"
#include "net/client.h"
#include "sched/policy.h"
#include "server/group.h"
#include "wire/bfp.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

/* The largest numbers of threads: by default, and by --threads. */
enum { THREADS = 8, THREADS_LIMIT = 1024 };
/* The shortest task in ns that is worth waking a thread up, which takes some 50 µs. */
#define MIN_TASK_NS 100000
/* Descriptors: with an average, a --trace, one address and one worker the coordinator
 * takes 30, as was measured.  loop.c checks the need for more workers when all other
 * files are open. */
enum { DESCRIPTORS = 32 };

/* Checks --upstream against a coordinator's other options.  Returns a negative number, or
 * an exit code. */
static int
check_upstream(const struct ps_options *o)
{
	const char *excluded = o->join != NULL     ? "--join"
			       : o->min_shards > 0 ? "--min-shards"
			       : o->from != NULL   ? "--from"
			       : o->restart        ? "--restart"
						   : NULL;
	if (o->upstream == NULL && o->key != NULL)
		return fal_cli_usage(PROG, "--key: only with --join or --upstream");
	if (o->upstream == NULL && o->scheme != NULL)
		return fal_cli_usage(PROG, "--scheme: only with --upstream");
	if (o->upstream == NULL)
		return -1;
	if (excluded != NULL)
		return fal_cli_usage(PROG, "--upstream: not with %s", excluded);
	return o->key != NULL ? -1 : fal_cli_usage(PROG, "--upstream: needs a --key");
}

/* Checks --join against the other options.  Returns a negative number, or an exit code.
 */
static int
check_join(const struct ps_options *o)
{
	const char *excluded = o->check             ? "--check"
			       : o->keyring != NULL ? "--keyring"
			       : o->state != NULL   ? "--state"
			       : o->trace != NULL   ? "--trace"
			       : o->from != NULL    ? "--from"
			       : o->restart         ? "--restart"
			       : o->set.n > 0       ? "--set"
			       : o->accept.n > 0    ? "--accept-change"
			       : o->min_workers > 1 ? "--min-workers"
			       : o->min_shards > 0  ? "--min-shards"
			       : o->exit_when_done  ? "--exit-when-done"
			       : o->json            ? "--json"
						    : NULL;
	return excluded == NULL ? -1
				: fal_cli_usage(PROG, "--join: not with %s", excluded);
}

/* Checks the ranges of numbers, and that the options go together.  Returns a negative
 * number, or an exit code. */
static int
check_options(const struct fal_cli *cli, const struct ps_options *o, uint64_t ready_fd)
{
	static const struct {
		const char *name;
		uint64_t least, most;
	} range[] = {
		{ "min-workers", 1, 1000000 },   { "min-shards", 0, FAL_SHARDS_MAX },
		{ "max-memory", 1, UINT64_MAX }, { "rate-limit", 1, UINT64_C(1) << 40 },
		{ "threads", 1, THREADS_LIMIT }, { "ready-fd", 0, 1023 }
	};
	const bool job = cli->n_args > 0;
	for (size_t i = 0; i < o->accept.n; i++)
		if (strcmp(o->accept.v[i], "data") != 0 &&
		    strcmp(o->accept.v[i], "net") != 0 &&
		    strcmp(o->accept.v[i], "init") != 0)
			return fal_cli_usage(
				PROG, "--accept-change: '%s' is not data, net or init",
				o->accept.v[i]);
	for (size_t i = 0; i < sizeof(range) / sizeof(range[0]); i++) {
		int code =
			fal_cli_range(cli, range[i].name, range[i].least, range[i].most);
		if (code >= 0)
			return code;
	}
	/* Before any file is opened: a file might get the same number.  fal_cli_parse has
	 * opened closed standard descriptors, for reading only. */
	const int flags = ready_fd <= 1023 ? fcntl((int)ready_fd, F_GETFL) : O_WRONLY;
	if (flags >= 0 && (flags & O_ACCMODE) == O_RDONLY)
		errno = EBADF;
	if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
		return fal_cli_usage(PROG, "--ready-fd: '%" PRIu64 "': %s", ready_fd,
				     strerror(errno));
	if (job && o->join != NULL)
		return fal_cli_usage(PROG, "--join: takes no JOB");
	if (!job && o->upstream != NULL && o->join == NULL)
		return fal_cli_usage(
			PROG, "--upstream: needs the JOB of the coordinator there");
	if (!job && o->join == NULL)
		return fal_cli_usage(PROG, "usage: " PROG " [OPTION...] JOB");
	if (o->join == NULL && o->standby)
		return fal_cli_usage(PROG, "--standby: only with --join");
	return o->upstream != NULL || o->join == NULL ? check_upstream(o) : check_join(o);
}

/* ---- checks of options and files --- */

/* Logs the size of the job, and the memory that it needs. */
static void
log_memory(const struct ps_run *r)
{
	const struct ps_options *o = &r->opt;
	const struct fal_files *j = &r->job;
	const struct fal_grid grid = fal_job_grid(&j->job, j->train.n);
	const uint64_t params = j->model->values;
	const uint32_t blocks = fal_blocks(j->model->params),
		       tasks = fal_grid_tasks(&grid, 0);
	char more[64] = "", beside[96] = "";
	if (j->job.block == FAL_JOB_BLOCK_TENSOR)
		snprintf(more, sizeof(more), " (%u without model.block = tensor)",
			 fal_blocks(params));
	if (o->min_shards > 0)
		snprintf(beside, sizeof(beside),
			 ", %" PRIu64 " while %" PRIu64 " process%s shards",
			 fal_memory_mib(
				 ps_estimate_memory(&r->memory, (uint32_t)o->min_shards)),
			 o->min_shards, o->min_shards > 1 ? "es have" : " has");
	ps_log(r,
	       "%" PRIu64 " parameter%s in %u block%s%s, %u task%s a clock, "
	       "needs %" PRIu64 " MiB%s",
	       params, fal_text_plural(params), blocks, fal_text_plural(blocks), more,
	       tasks, fal_text_plural(tasks),
	       fal_memory_mib(ps_estimate_memory(&r->memory, 0)), beside);
}

/* Prints a line for each tensor: name, shape, number of values. */
static void
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
	fal_table_print(&table);
}

/* Prints the placement of the blocks on so many shards. */
static void
print_shards(const struct fal_files *j, uint32_t shards)
{
	struct fal_table table = { .columns = 4 };
	struct fal_map map;
	uint32_t before[FAL_SHARDS_MAX + 1];
	fal_files_make_map(j, shards, &map, before);
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
	fal_table_print(&table);
}

/* Checks the options of coordinators and shard processes.  Returns 0 or an exit code. */
static int
check_common_options(struct ps_run *r)
{
	struct fal_diag diag = { "" };
	const struct ps_options *o = &r->opt;
	const char *own = o->join != NULL ? "127.0.0.1:0" : "127.0.0.1:7000";
	const char *at = o->join != NULL ? o->join : o->upstream;
	int err = fal_addrs_parse(o->listen != NULL ? o->listen : own, r->listen.v,
				  FAL_ADDRS_MAX, &r->listen.n, &diag);
	if (err < 0)
		return ps_report_error(&diag, err);
	if (o->join != NULL && r->listen.n > 1)
		return fal_cli_usage(PROG,
				     "--listen: '%s': with --join there is one address",
				     o->listen);
	if (fal_compress_parse(o->compress, &r->compress) < 0)
		return fal_cli_usage(PROG,
				     "--compress: '%s' is not auto, always or never",
				     o->compress);
	if (o->shards < 1 || o->shards > FAL_SHARDS_MAX)
		return fal_cli_usage(PROG, "--shards: %" PRIu64 " is not 1 to %d",
				     o->shards, FAL_SHARDS_MAX);
	if (at != NULL && (err = fal_addr_parse(at, &r->coordinator, &diag)) < 0)
		return ps_report_error(&diag, err);
	return FAL_EXIT_DONE;
}

/* Checks the options of a group server, and whether this job may have one; sets the rule
 * by which its members share.  `path`: the job's file.  Returns 0 or an exit code. */
static int
check_group(struct ps_run *r, const char *path)
{
	const struct ps_options *o = &r->opt;
	struct fal_job *job = &r->job.job;
	const bool bsp = o->scheme != NULL && strcmp(o->scheme, "bsp") == 0;
	if (o->scheme != NULL && !bsp && strcmp(o->scheme, "epsp") != 0)
		return fal_cli_usage(PROG, "--scheme: '%s' is not bsp or epsp",
				     o->scheme);
	const int code = fal_client_key_load(PROG, o->key, FAL_ROLE_WORK, &r->key);
	if (code != FAL_EXIT_DONE)
		return code;
	if (!o->check &&
	    memcmp(r->key->server, fal_keyring_public(r->keys), FAL_KEY_BYTES) == 0)
		return fal_cli_usage(PROG,
				     "--upstream: %s is the key to this very server: %s "
				     "is its keyring",
				     o->key, o->keyring);
	if (!fal_group_is_allowed(&job->rule))
		return fal_cli_usage(
			PROG, "%s: local steps, as by %s, are not for a group server",
			job->name, fal_scheme_name(job->rule.scheme));
	job->rule = (struct fal_rule){ .scheme = bsp ? FAL_BSP : FAL_EPSP };
	fal_random_bytes(r->instance, sizeof(r->instance));
	r->path = path;
	return FAL_EXIT_DONE;
}

/* Logs and checks the memory that the job needs; with --check, prints tensors and shards.
 * `path`: the job's file.  Returns 0 or an exit code. */
static int
check_memory(struct ps_run *r, const char *path)
{
	struct fal_diag diag = { "" };
	const struct ps_options *o = &r->opt;
	const struct fal_files *j = &r->job;
	r->memory =
		(struct ps_memory_inputs){ .program = r->program,
					   .job = j,
					   .rule = &j->job.rule,
					   .workers = o->min_workers,
					   .shards = (uint32_t)o->shards,
					   .is_mixed = ps_listens_on_tcp(&r->listen) };
	log_memory(r);
	char warning[FAL_STALE_TEXT];
	if (fal_stale_warning(&j->job.rule, &j->job.optim,
			      o->min_workers > 1 ? (uint32_t)o->min_workers : 0, warning))
		ps_log(r, "warning: %s", warning);
	const uint64_t need = ps_estimate_memory(&r->memory, 0);
	if (fal_memory_check(need, 0, o->max_memory, &diag) < 0) {
		fal_cli_err(PROG, "%s: %s", path, diag.text);
		/* Would the job fit with one momentum for all workers? */
		struct fal_files one = r->job;
		struct ps_memory_inputs in = r->memory;
		one.job.optim.one_momentum = true;
		in.job = &one;
		const uint64_t least = ps_estimate_memory(&in, 0);
		if (least < need &&
		    fal_memory_check(least, 0, o->max_memory, NULL) == FAL_OK)
			fal_cli_err(PROG,
				    "%s: needs %" PRIu64
				    " MiB with optimizer.momentum-per = server",
				    path, fal_memory_mib(least));
		return FAL_EXIT_NO;
	}
	if (!o->check)
		return FAL_EXIT_DONE;
	/* A process that joins has at least one shard. */
	uint64_t shards = o->shards + o->min_shards;
	shards = shards < FAL_SHARDS_MAX ? shards : FAL_SHARDS_MAX;
	print_tensors(j->model);
	if (shards > 1)
		print_shards(j, (uint32_t)shards);
	return FAL_EXIT_DONE;
}

/* Checks options and files of a job, by its file's path.  Returns 0 or an exit code. */
static int
check_job_options(struct ps_run *r, const char *path)
{
	struct fal_diag diag = { "" };
	const struct ps_options *o = &r->opt;
	const size_t n = o->trace != NULL ? strlen(o->trace) : 0;
	/* Because of this name, readers would take the trace for a compressed file. */
	if (n >= 4 && strcmp(o->trace + n - 4, ".zst") == 0)
		return fal_cli_usage(PROG,
				     "--trace: '%s': traces are written plain; leave out "
				     ".zst",
				     o->trace);
	int err = fal_files_load(&r->job, path, o->from, o->set.v, o->set.n, &diag);
	if (err == FAL_OK && !o->check) {
		fal_cli_hide_memory();
		err = fal_keyring_load(o->keyring, &r->keys, &diag);
		if (err == FAL_ENOENT)
			fal_diag_set(&diag, err,
				     "%s: no such keyring: falcon-key init DIR makes "
				     "DIR/keyring",
				     o->keyring);
	}
	if (err < 0) {
		/* Reports the input file that cannot be read, and the further problems of
		 * the job. */
		const struct fal_buf *more = &r->job.problems;
		ps_report_error(&diag, err);
		for (size_t at = 0, len; at < more->n; at += len + 1) {
			const char *line = (const char *)more->p + at;
			len = (size_t)((const char *)memchr(line, '\n', more->n - at) -
				       line);
			fal_cli_err(PROG, "%.*s", (int)len, line);
		}
		return err == FAL_ENOMEM ? FAL_EXIT_NO : FAL_EXIT_USAGE;
	}
	const int code = o->upstream != NULL ? check_group(r, path) : FAL_EXIT_DONE;
	return code == FAL_EXIT_DONE ? check_memory(r, path) : code;
}

/* ---- a job begins, or resumes --- */

/* Begins trace.jsonl, and the file of --trace. */
static int
begin_trace(struct ps_run *r, const char *path, struct fal_diag *diag)
{
	int err = ps_state_rename_trace(&r->state, diag);
	if (err == FAL_OK)
		err = ps_trace_file_create(&r->trace, path, diag);
	if (err == FAL_OK && r->opt.trace != NULL)
		err = ps_trace_file_create(&r->trace, r->opt.trace, diag);
	return err;
}

/* Continues trace.jsonl; the file of --trace gets all of it. */
static int
resume_trace(struct ps_run *r, const char *path, struct fal_diag *diag)
{
	const struct fal_snap_manifest *m = &r->found.is;
	struct ps_old_trace was = { 0 };
	struct ps_trace_position at = { .lines = m->lines };
	int err = ps_state_read_trace(&r->state, &was, &at, diag);
	/* No trace can be read without its job line. */
	const bool lost_job_line = err == FAL_OK && !was.has_job_line,
		   gone = access(path, F_OK) < 0;
	r->seconds_before = was.worked;
	r->state.has_trained |= lost_job_line; /* the trace cannot show it */
	if (lost_job_line)
		err = begin_trace(r, path, diag);
	else if (err == FAL_OK)
		err = ps_trace_file_append(&r->trace, path, &was, diag);
	if (err == FAL_OK && r->opt.trace != NULL && !lost_job_line)
		err = ps_trace_file_copy(&r->trace, path, r->opt.trace, diag);
	if (err == FAL_OK)
		err = fal_snapshot_clear(r->state.folder, r->found.clock + 1, diag);
	r->trace_before =
		(struct fal_coord_trace){ .t = fmax(was.t, m->past.t),
					  .lines = lost_job_line ? 0 : m->lines,
					  .until = was.clocks,
					  .torn = lost_job_line ? 0 : was.torn,
					  .accepted = r->accepted +
						      (r->accepted[0] != '\0') };
	if (err == FAL_OK && lost_job_line)
		fal_cli_err(PROG, "%s: %s, and a new trace begins at clock %" PRIu64,
			    path,
			    gone ? "is gone"
				 : "has lost its first line: it was put aside",
			    r->found.clock);
	else if (err == FAL_OK && was.changed > 0)
		fal_cli_err(PROG, "%s: its line %" PRIu64 " was changed after writing",
			    path, was.changed);
	else if (err == FAL_OK && strcmp(at.chain.link, m->chain) != 0)
		fal_cli_err(PROG,
			    "%s: its line %" PRIu64
			    " differs from the line where the snapshot was taken",
			    path, m->lines);
	ps_old_trace_free(&was);
	return err;
}

/* Prepares the state folder and the trace: counts the start, takes room for the result,
 * writes the job's text, and begins the files or cuts them to where the job resumes.  A
 * job that begins at its first clock loses the snapshots and the best model of an earlier
 * start, and keeps that start's trace under another name. */
static int
prepare_files(struct ps_run *r, const char *trace, struct fal_diag *diag)
{
	const struct fal_schedule *s = &r->job.job.schedule;
	const bool resumes = r->found.there;
	int err = ps_state_count_start(&r->state, diag);
	if (err == FAL_OK)
		err = ps_result_reserve(r, diag);
	if (err == FAL_OK)
		err = ps_state_write_job(&r->state, &r->job, diag);
	if (err == FAL_OK && resumes)
		err = resume_trace(r, trace, diag);
	if (err == FAL_OK && resumes && r->best_path != NULL)
		err = ps_best_model_read(r->best_path, &r->best, diag);
	if (err == FAL_OK && !resumes)
		err = fal_snapshot_clear(r->state.folder, 0, diag);
	if (err == FAL_OK && !resumes) {
		r->seconds_before = 0;
		err = begin_trace(r, trace, diag);
	}
	if (err == FAL_OK && !resumes && r->best_path != NULL &&
	    unlink(r->best_path) < 0 && errno != ENOENT)
		err = fal_diag_set(diag, FAL_EIO, "%s: %s", r->best_path,
				   strerror(errno));
	if (err == FAL_OK && r->state.epochs_before > 0)
		ps_log(r, "%u epochs instead of %u%s", r->job.job.epochs,
		       r->state.epochs_before,
		       s->kind == FAL_COSINE && r->found.clock > s->warmup
			       ? "; by schedule.kind = cosine the learning rate of each "
				 "clock depends on the number of epochs: the model will "
				 "differ from that of a job which began with this number"
			       : "");
	if (err < 0 || !resumes)
		return err;
	const struct fal_coord_trace *before = &r->trace_before;
	const struct fal_grid grid = fal_job_grid(&r->job.job, r->job.train.n);
	if (r->found.damaged.text[0] != '\0')
		fal_cli_err(PROG, "%s/%s: the snapshot before is taken", r->state.dir,
			    r->found.damaged.text);
	if (before->torn > 0)
		fal_cli_err(PROG,
			    "%s/trace.jsonl: its end was torn: %" PRIu64
			    " byte%s cut off",
			    r->state.dir, before->torn, fal_text_plural(before->torn));
	/* A job that had hardly begun needs no line. */
	const double again_s = before->t - r->found.is.past.t;
	if (r->found.clock > 0 || again_s >= 0.05)
		ps_log(r,
		       "resumed at clock %" PRIu64 " of %" PRIu64
		       "; %.1f s of work are done again",
		       r->found.clock, fal_grid_clocks(&grid), again_s);
	return FAL_OK;
}

/* Logs the end of an incarnation, unless the job is done.  Returns the exit code. */
static int
report_end(const struct ps_run *r)
{
	const struct ps_outcome *o = &r->out;
	const uint64_t clock = o->status.clock, clocks = o->status.clocks;
	if (o->ended_upstream)
		return o->code;
	if (o->stopped && r->opt.upstream != NULL)
		return FAL_EXIT_DONE;
	if (o->stopped && o->has_snapshot) {
		ps_log(r,
		       "stopped at clock %" PRIu64 " of %" PRIu64
		       ", and goes on from there when it is started again",
		       clock, clocks);
		return o->was_signalled ? FAL_EXIT_DONE : FAL_EXIT_TEMPFAIL;
	}
	if (o->stopped) {
		ps_log(r, "stopped at clock %" PRIu64 " of %" PRIu64, clock, clocks);
		return FAL_EXIT_TEMPFAIL;
	}
	if (o->status.failed && o->sha256[0] != '\0')
		ps_log(r, "the model of clock %" PRIu64 " is in %s", o->clock,
		       r->model.path);
	return o->status.failed ? FAL_EXIT_NO : FAL_EXIT_DONE;
}

/* Finds and logs the kinds of files that have changed since the snapshot. */
static void
find_changed_files(struct ps_run *r)
{
	struct fal_snap_manifest *m = &r->found.is;
	const struct fal_files *j = &r->job;
	const char *data = j->job.data_hash;
	/* The trainers' data are unknown before the trainers join. */
	if (data == NULL)
		data = ps_accepts_kind(&r->opt.accept, "data") ? "" : m->past.data;
	const bool trainers = m->past.data[0] != '\0' && strcmp(data, m->past.data) != 0;
	if (trainers)
		m->past.data[0] = '\0';
	snprintf(r->accepted, sizeof(r->accepted), "%s%s%s",
		 trainers || strcmp(m->data, j->data_hex) != 0 ? " data" : "",
		 strcmp(m->net, j->model_hex) != 0 ? " net" : "",
		 strcmp(m->init, fal_files_weights_hash(j)) != 0 ? " init" : "");
	if (r->accepted[0] != '\0')
		ps_log(r, "goes on at clock %" PRIu64 " with other files:%s",
		       r->found.clock, r->accepted);
}

/* Runs an incarnation.  Returns an exit code. */
static int
run_incarnation(struct ps_run *r)
{
	struct fal_diag diag = { "" };
	const struct fal_job *job = &r->job.job;
	const bool is_group = r->opt.upstream != NULL; /* its coordinator keeps files */
	char *trace = ps_state_path(&r->state, "trace.jsonl");
	r->snapshots = !is_group && (job->state_clocks > 0 || job->state_seconds > 0)
			       ? r->state.folder
			       : -1;
	r->best_path = !is_group && job->state_best == FAL_JOB_BEST_YES
			       ? ps_state_path(&r->state, "best.safetensors")
			       : NULL;
	r->best = (struct ps_best_model){ 0 };
	r->trace_before = (struct fal_coord_trace){ 0 };
	r->out = (struct ps_outcome){ 0 };
	int err = prepare_files(r, trace, &diag);
	if (err == FAL_OK)
		err = ps_serve(r, &diag);
	ps_trace_file_close(&r->trace);
	r->lost_processes = err == FAL_OK ? r->out.lost_processes : 0;
	r->state.has_trained = r->state.has_trained || r->lost_processes > 0;
	r->opt.ready_fd = 0; /* the descriptor's reader has the addresses */
	if (r->out.status.failed)
		fal_cli_err(PROG, "%s: clock %" PRIu64 ": %s", job->name,
			    r->out.status.clock, r->out.status.why);
	const int code = err < 0 ? ps_report_error(&diag, err) : report_end(r);
	free(trace);
	free(r->best_path);
	ps_result_file_drop(&r->model);
	ps_result_file_drop(&r->average);
	ps_result_file_drop(&r->result);
	return code;
}

/* Runs an incarnation if the state folder allows one.  Returns an exit code; if
 * r->lost_processes is not 0, another incarnation follows. */
static int
run_start(struct ps_run *r)
{
	struct fal_diag diag = { "" };
	char *dir = r->opt.state != NULL ? fal_xstrdup(r->opt.state)
					 : fal_xprintf("%s.state", r->job.job.name);
	const bool begins_anew = r->opt.restart || r->opt.upstream != NULL;
	int err = ps_state_open(&r->state, dir, &r->job, &r->opt.accept, begins_anew,
				&diag);
	free(dir);
	int code = FAL_EXIT_NO;
	if (err < 0) {
		code = ps_report_error(&diag, err);
		goto close_state;
	}
	if (r->state.is_done && (r->state.has_failed || r->state.epochs_before == 0)) {
		code = ps_result_print(r, &r->state.result);
		ps_log(r, "the job %s", r->state.has_failed ? "has failed" : "is done");
	} else if (r->opt.upstream != NULL) { /* no snapshot is here */
		code = run_incarnation(r);
	} else if ((!r->opt.restart || r->lost_processes > 0) &&
		   (err = fal_snapshot_find(r->state.folder, &r->job, &r->found, &diag)) <
			   0) {
		code = err == FAL_ESTATE ? FAL_EXIT_USAGE : FAL_EXIT_NO;
		fal_cli_err(PROG, "%s/%s", r->state.dir, diag.text);
	} else if ((r->state.has_trained || r->found.damaged.text[0] != '\0') &&
		   !r->opt.restart && !r->found.there && r->lost_processes == 0) {
		fal_cli_err(PROG,
			    "%s: the job was begun there and %s; there is no "
			    "snapshot to go on from%s%s: --restart begins at the first "
			    "clock, and keeps the trace",
			    r->state.dir,
			    r->state.is_done ? "is to have more epochs" : "is not done",
			    r->found.damaged.text[0] != '\0' ? ", as " : "",
			    r->found.damaged.text);
		code = FAL_EXIT_TEMPFAIL;
	} else {
		r->accepted[0] = '\0';
		if (r->found.there)
			find_changed_files(r);
		code = run_incarnation(r);
	}
close_state:
	fal_snap_manifest_free(&r->found.is);
	ps_state_close(&r->state);
	return code;
}

/* ---- the command line --- */

/* Checks the options and files, then runs the shards, or the job by one incarnation after
 * another.  Returns an exit code. */
static int
run_program(struct ps_run *r, const char *path)
{
	const bool joins = r->opt.join != NULL;
	if (r->opt.keyring == NULL)
		r->opt.keyring = "/etc/falcon/keyring";
	const unsigned cores = r->opt.threads == 0 ? fal_cli_cores() : 0;
	if (cores > 0)
		r->opt.threads = cores < THREADS ? cores : THREADS;
	r->program += fal_threads_bytes((uint32_t)r->opt.threads);
	int code = check_common_options(r);
	if (code == FAL_EXIT_DONE)
		code = joins ? fal_client_key_load(PROG, r->opt.key, FAL_ROLE_SHARD,
						   &r->key)
			     : check_job_options(r, path);
	if (code != FAL_EXIT_DONE)
		return code;
	if (r->opt.check && !joins)
		return FAL_EXIT_DONE;
	fal_suites_measure(uv_hrtime);
	r->threads = fal_threads_new((uint32_t)r->opt.threads, MIN_TASK_NS);
	if (joins) {
		code = ps_run_shard_server(r);
	} else {
		r->restart_accounts =
			fal_xcalloc(PS_ACCOUNTS, sizeof(*r->restart_accounts));
		do {
			r->trace = (struct ps_trace_file){ 0 };
			code = run_start(r);
		} while (r->lost_processes > 0);
		ps_host_close(&r->host);
		free(r->restart_accounts);
	}
	fal_threads_free(r->threads);
	return code;
}

int
main(int argc, char **argv)
{
	struct ps_run r = { .model.fd = -1,
			    .average.fd = -1,
			    .result.fd = -1,
			    .opt = { .compress = "auto", .min_workers = 1, .shards = 1 },
			    .program = fal_memory_prepare() };
	struct ps_options *o = &r.opt;
	uint64_t ready_fd = UINT64_MAX;
	const struct fal_opt opts[] = {
		{ "listen", 'l', FAL_OPT_TEXT, &o->listen,
		  "where to listen (default: 127.0.0.1:7000)", "ADDR,..." },
		{ "keyring", 'K', FAL_OPT_TEXT, &o->keyring,
		  "keys of the clients (default: /etc/falcon/keyring)", "FILE" },
		{ "state", 's', FAL_OPT_TEXT, &o->state,
		  "folder of the job's state (default: NAME.state)", "DIR" },
		{ "restart", 0, FAL_OPT_FLAG, &o->restart,
		  "begin a job that was not done at its first clock", NULL },
		{ "accept-change", 0, FAL_OPT_LIST, &o->accept,
		  "go on though these files have changed: data, net, init", "KIND" },
		{ "trace", 't', FAL_OPT_TEXT, &o->trace, "write the trace here, too",
		  "FILE" },
		{ "from", 0, FAL_OPT_TEXT, &o->from, "begin with these weights", "FILE" },
		{ "set", 0, FAL_OPT_LIST, &o->set, "change a key of the job",
		  "SECTION.KEY=VALUE" },
		{ "min-workers", 'w', FAL_OPT_U64, &o->min_workers,
		  "the first clock waits for so many (default: 1)", "N" },
		{ "shards", 0, FAL_OPT_U64, &o->shards,
		  "parts that the parameters are kept in (default: 1)", "N" },
		{ "min-shards", 0, FAL_OPT_U64, &o->min_shards,
		  "wait until so many processes have joined with shards", "N" },
		{ "join", 0, FAL_OPT_TEXT, &o->join,
		  "be shards of the job of this coordinator", "ADDR" },
		{ "upstream", 0, FAL_OPT_TEXT, &o->upstream,
		  "serve a group, which is one worker of this coordinator's job",
		  "ADDR" },
		{ "scheme", 0, FAL_OPT_TEXT, &o->scheme,
		  "with --upstream: its workers share by bsp or epsp (default: epsp)",
		  "NAME" },
		{ "key", 'k', FAL_OPT_TEXT, &o->key, "with --join or --upstream: the key",
		  "FILE" },
		{ "standby", 0, FAL_OPT_FLAG, &o->standby,
		  "with --join: only where shards are missing", NULL },
		{ "rate-limit", 0, FAL_OPT_SIZE, &o->rate_limit,
		  "send no more bytes a second", "SIZE" },
		{ "compress", 0, FAL_OPT_TEXT, &o->compress,
		  "zstd: auto, always or never (default: auto)", "MODE" },
		{ "threads", 0, FAL_OPT_U64, &o->threads,
		  "threads that step, seal and compress (default: one a core, at most 8)",
		  "N" },
		{ "seal-all", 0, FAL_OPT_FLAG, &o->seal_all,
		  "seal records of workers on this machine, too", NULL },
		{ "max-memory", 0, FAL_OPT_SIZE, &o->max_memory,
		  "refuse a job that needs more", "SIZE" },
		{ "ready-fd", 0, FAL_OPT_U64, &ready_fd,
		  "write the bound addresses to this descriptor", "N" },
		{ "exit-when-done", 'x', FAL_OPT_FLAG, &o->exit_when_done,
		  "exit when the job is done", NULL },
		{ "check", 0, FAL_OPT_FLAG, &o->check, "check the files and exit", NULL },
		{ "json", 'j', FAL_OPT_FLAG, &o->json, "print the result as JSON", NULL },
	};
	struct fal_cli cli = { .prog = PROG,
			       .args = "JOB | --join ADDR | --upstream ADDR JOB",
			       .opts = opts,
			       .n_opts = sizeof(opts) / sizeof(opts[0]),
			       .min_args = 0,
			       .max_args = 1,
			       .descriptors = DESCRIPTORS,
			       .schema = fal_msg_schema() };
	int code = fal_cli_parse(&cli, argc, argv);
	if (code < 0)
		code = check_options(&cli, o, ready_fd);
	if (code >= 0)
		goto free_cli;
	o->ready_fd = ready_fd == UINT64_MAX ? 0 : ready_fd + 1;
	code = fal_cli_finish(PROG, run_program(&r, cli.n_args > 0 ? cli.arg[0] : NULL));
	fal_files_free(&r.job);
	fal_keyring_free(r.keys);
	fal_secret_free(r.key);
free_cli:
	fal_cli_free(&cli);
	return code;
}
