/* falcon-ps: coordinator and first shard of a job.  Options are read, and judged with
 * what files say; then a job begins, goes on from a snapshot, or was done before. */
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

/* Threads: as many as are of use to most, and may be. */
enum { THREADS = 8, THREADS_MAX = 1024 };
/* What waking one up must be worth, in ns: it comes after some 50 µs. */
#define WORTH_NS 100000
/* Descriptors: with an average, a --trace and one address the coordinator takes 30 for
 * one worker, as was measured.  The need beyond that is judged when all else is open
 * (loop.c). */
enum { DESCRIPTORS = 32 };

/* Options of a coordinator: what goes with --upstream, and what does not.  Negative, or
 * an exit code. */
static int
check_upstream(const struct ps_options *o)
{
	const char *odd = o->join != NULL     ? "--join"
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
	if (odd != NULL)
		return fal_cli_usage(PROG, "--upstream: not with %s", odd);
	return o->key != NULL ? -1 : fal_cli_usage(PROG, "--upstream: needs a --key");
}

/* Can anything be written there?  A standard descriptor that was closed is held, but not
 * for that (fal_cli_parse). */
static bool
takes_text(int fd)
{
	const int flags = fcntl(fd, F_GETFL);
	if (flags >= 0 && (flags & O_ACCMODE) == O_RDONLY)
		errno = EBADF;
	return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

/* Options of a process with --join.  Negative, or an exit code. */
static int
check_join(const struct ps_options *o)
{
	const char *odd = o->check             ? "--check"
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
	return odd == NULL ? -1 : fal_cli_usage(PROG, "--join: not with %s", odd);
}

/* Numbers that are out of range, and options that do not go together.  Negative, or an
 * exit code. */
static int
check_together(const struct fal_cli *cli, const struct ps_options *o, uint64_t ready_fd)
{
	static const struct {
		const char *name;
		uint64_t least, most;
	} range[] = {
		{ "min-workers", 1, 1000000 },   { "min-shards", 0, FAL_SHARDS_MAX },
		{ "max-memory", 1, UINT64_MAX }, { "rate-limit", 1, UINT64_C(1) << 40 },
		{ "threads", 1, THREADS_MAX },   { "ready-fd", 0, 1023 }
	};
	for (size_t i = 0; i < o->accept.n; i++)
		if (strcmp(o->accept.v[i], "data") != 0 &&
		    strcmp(o->accept.v[i], "net") != 0 &&
		    strcmp(o->accept.v[i], "init") != 0)
			return fal_cli_usage(
				PROG, "--accept-change: '%s' is not data, net or init",
				o->accept.v[i]);
	const bool job = cli->n_args > 0;
	for (size_t i = 0; i < sizeof(range) / sizeof(range[0]); i++) {
		int code =
			fal_cli_range(cli, range[i].name, range[i].least, range[i].most);
		if (code >= 0)
			return code;
	}
	/* Before anything is opened that might get its number. */
	if (ready_fd <= 1023 && !takes_text((int)ready_fd))
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

/* ---- what options and files say --- */

int
ps_run_say(const struct fal_diag *diag, int err)
{
	fal_cli_err(PROG, "%s", diag->text[0] != '\0' ? diag->text : fal_strerror(err));
	return fal_cli_exit(err);
}

/* A file that cannot be read is a bad input file, whatever the error but FAL_ENOMEM. */
static int
say_bad_file(const struct fal_diag *diag, int err)
{
	ps_run_say(diag, err);
	return err == FAL_ENOMEM ? FAL_EXIT_NO : FAL_EXIT_USAGE;
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
	ps_log(r,
	       "%" PRIu64 " parameter%s in %u block%s%s, %u task%s a clock, "
	       "needs %" PRIu64 " MiB%s",
	       params, fal_text_s(params), blocks, fal_text_s(blocks), more, tasks,
	       fal_text_s(tasks), fal_need_mib(ps_need(&r->need, 0)), beside);
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
	print_table(&table);
}

/* Prints the placement of the blocks on so many shards. */
static void
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
}

/* Judges what any process of shards is told.  0 or an exit code. */
static int
check_words(struct ps_run *r)
{
	struct fal_diag diag = { "" };
	const struct ps_options *o = &r->opt;
	const char *own = o->join != NULL ? "127.0.0.1:0" : "127.0.0.1:7000";
	const char *at = o->join != NULL ? o->join : o->upstream;
	int err = fal_addrs_parse(o->listen != NULL ? o->listen : own, r->listen.v,
				  FAL_ADDRS_MAX, &r->listen.n, &diag);
	if (err < 0)
		return ps_run_say(&diag, err);
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
		return ps_run_say(&diag, err);
	return FAL_EXIT_DONE;
}

/* Reads the key to another coordinator.  0 or an exit code. */
static int
load_key(struct ps_run *r, enum fal_role role)
{
	struct fal_diag diag = { "" };
	fal_cli_hide_memory();
	int err = fal_client_key_load(r->opt.key, role, &r->key, &diag);
	if (err == FAL_OK)
		return FAL_EXIT_DONE;
	fal_cli_err(PROG, "%s", diag.text);
	return fal_cli_exit_file(err);
}

/* Judges what a group server is told, and whether there can be one for this job, which it
 * shares by a rule of its own.  `path`: the job's file.  0 or an exit code. */
static int
check_group(struct ps_run *r, const char *path)
{
	const struct ps_options *o = &r->opt;
	struct fal_job *job = &r->job.job;
	const bool bsp = o->scheme != NULL && strcmp(o->scheme, "bsp") == 0;
	if (o->scheme != NULL && !bsp && strcmp(o->scheme, "epsp") != 0)
		return fal_cli_usage(PROG, "--scheme: '%s' is not bsp or epsp",
				     o->scheme);
	const int code = load_key(r, FAL_ROLE_WORK);
	if (code != FAL_EXIT_DONE)
		return code;
	if (!o->check &&
	    memcmp(r->key->server, fal_keyring_public(r->keys), FAL_KEY_BYTES) == 0)
		return fal_cli_usage(PROG,
				     "--upstream: %s is the key to this very server: %s "
				     "is its keyring",
				     o->key, o->keyring);
	if (!fal_group_may(&job->rule))
		return fal_cli_usage(
			PROG, "%s: local steps, as by %s, are not for a group server",
			job->name, fal_scheme_name(job->rule.scheme));
	job->rule = (struct fal_rule){ .scheme = bsp ? FAL_BSP : FAL_EPSP };
	fal_random_bytes(r->instance, sizeof(r->instance));
	r->path = path;
	r->retry.lost = uv_hrtime();
	return FAL_EXIT_DONE;
}

bool
ps_has_port(const struct ps_addrs *listen)
{
	size_t i = 0;
	while (i < listen->n && listen->v[i].kind != FAL_ADDR_TCP)
		i++;
	return i < listen->n;
}

/* Says so, if the job is within its memory with one momentum for all workers. */
static void
propose_one_momentum(const struct ps_run *r, const char *path)
{
	struct fal_files one = r->job;
	struct ps_need_of need = r->need;
	one.job.optim.one_momentum = true;
	need.job = &one;
	const uint64_t least = ps_need(&need, 0);
	if (least < ps_need(&r->need, 0) &&
	    fal_need_allowed(least, 0, r->opt.max_memory, NULL) == FAL_OK)
		fal_cli_err(PROG,
			    "%s: needs %" PRIu64 " MiB with optimizer.momentum-per = "
			    "server",
			    path, fal_need_mib(least));
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
		ps_log(r, "warning: %s", warning);
	if (fal_need_allowed(ps_need(&r->need, 0), 0, o->max_memory, &diag) < 0) {
		fal_cli_err(PROG, "%s: %s", path, diag.text);
		propose_one_momentum(r, path);
		return FAL_EXIT_NO;
	}
	if (!o->check)
		return FAL_EXIT_DONE;
	/* A process that joins is only known to have one shard. */
	uint64_t shards = o->shards + o->min_shards;
	shards = shards < FAL_SHARDS_MAX ? shards : FAL_SHARDS_MAX;
	print_tensors(j->model);
	if (shards > 1)
		print_shards(j, (uint32_t)shards);
	return FAL_EXIT_DONE;
}

/* Judges options and files of a job, by its file's path.  0 or an exit code. */
static int
check_job(struct ps_run *r, const char *path)
{
	struct fal_diag diag = { "" };
	const struct ps_options *o = &r->opt;
	const size_t n = o->trace != NULL ? strlen(o->trace) : 0;
	/* Under such a name readers would take a trace for what it is not. */
	if (n >= 4 && strcmp(o->trace + n - 4, ".zst") == 0)
		return fal_cli_usage(PROG,
				     "--trace: '%s': traces are written plain; leave out "
				     ".zst",
				     o->trace);
	int err = fal_files_load(&r->job, path, o->from, o->set.v, o->set.n, &diag);
	if (err < 0)
		return say_bad_file(&diag, err);
	if (!o->check) {
		fal_cli_hide_memory();
		err = fal_keyring_load(o->keyring, &r->keys, &diag);
		if (err < 0)
			return say_bad_file(&diag, err);
	}
	const int code = o->upstream != NULL ? check_group(r, path) : FAL_EXIT_DONE;
	return code == FAL_EXIT_DONE ? check_need(r, path) : code;
}

/* ---- a job begins, or goes on --- */

/* Begins trace.jsonl, and what --trace names. */
static int
new_trace(struct ps_run *r, const char *path, struct fal_diag *diag)
{
	int err = ps_state_keep_trace(&r->state, diag);
	if (err == FAL_OK)
		err = ps_record_file(&r->record, path, diag);
	if (err == FAL_OK && r->opt.trace != NULL)
		err = ps_record_file(&r->record, r->opt.trace, diag);
	return err;
}

/* The trace of before is gone on with; what --trace names gets all of it. */
static int
go_on(struct ps_run *r, const char *path, struct fal_diag *diag)
{
	const struct fal_snap_manifest *m = &r->found.is;
	struct ps_trace was = { 0 };
	struct ps_trace_at at = { .lines = m->lines };
	int err = ps_state_trace(&r->state, &was, &at, diag);
	/* Without its job line nothing of a trace can be read. */
	const bool lost = err == FAL_OK && !was.job, gone = access(path, F_OK) < 0;
	r->worked = was.worked;
	r->state.begun |= lost; /* whatever its trace says */
	if (lost)
		err = new_trace(r, path, diag);
	else if (err == FAL_OK)
		err = ps_record_append(&r->record, path, &was, diag);
	if (err == FAL_OK && r->opt.trace != NULL && !lost)
		err = ps_record_copy(&r->record, path, r->opt.trace, diag);
	if (err == FAL_OK)
		err = fal_snapshot_clear(r->state.folder, r->found.clock + 1, diag);
	r->before = (struct fal_coord_trace){ .t = fmax(was.t, m->past.t),
					      .lines = lost ? 0 : m->lines,
					      .until = was.clocks,
					      .torn = lost ? 0 : was.torn,
					      .accepted = r->accepted +
							  (r->accepted[0] != '\0') };
	if (err == FAL_OK && lost)
		fal_cli_err(PROG, "%s: %s, and another one begins at clock %" PRIu64,
			    path,
			    gone ? "is gone"
				 : "has lost its first line: it was put aside",
			    r->found.clock);
	else if (err == FAL_OK && was.changed > 0)
		fal_cli_err(PROG, "%s: its line %" PRIu64 " is not what was written",
			    path, was.changed);
	else if (err == FAL_OK && strcmp(at.chain.link, m->chain) != 0)
		fal_cli_err(PROG,
			    "%s: its line %" PRIu64
			    " is not the one that the snapshot was taken at",
			    path, m->lines);
	ps_trace_free(&was);
	return err;
}

/* Everything from its beginning; what is there of another start is kept, or goes. */
static int
begin_job(struct ps_run *r, const char *path, struct fal_diag *diag)
{
	r->worked = 0;
	int err = fal_snapshot_clear(r->state.folder, 0, diag);
	if (err == FAL_OK)
		err = new_trace(r, path, diag);
	if (err == FAL_OK && r->best != NULL && unlink(r->best) < 0 && errno != ENOENT)
		err = fal_diag_set(diag, FAL_EIO, "%s: %s", r->best, strerror(errno));
	return err;
}

static void
say_resumed(const struct ps_run *r)
{
	const struct fal_coord_trace *before = &r->before;
	const struct fal_grid grid = fal_job_grid(&r->job.job, r->job.train.n);
	if (r->found.damaged.text[0] != '\0')
		fal_cli_err(PROG, "%s/%s: the one before it is taken", r->state.dir,
			    r->found.damaged.text);
	if (before->torn > 0)
		fal_cli_err(PROG,
			    "%s/trace.jsonl: its end was torn: %" PRIu64
			    " byte%s cut off",
			    r->state.dir, before->torn, fal_text_s(before->torn));
	/* A job that had hardly begun needs no line. */
	const double again_s = before->t - r->found.is.past.t;
	if (r->found.clock > 0 || again_s >= 0.05)
		ps_log(r,
		       "resumed at clock %" PRIu64 " of %" PRIu64
		       "; %.1f s of work are done again",
		       r->found.clock, fal_grid_clocks(&grid), again_s);
}

/* The job has more epochs than it had. */
static void
say_longer(const struct ps_run *r)
{
	const struct fal_schedule *s = &r->job.job.schedule;
	const bool other = s->kind == FAL_COSINE && r->found.clock > s->warmup;
	ps_log(r, "%u epochs instead of %u%s", r->job.job.epochs, r->state.epochs,
	       other ? "; by schedule.kind = cosine the learning rate of each clock "
		       "depends on how many there are: the model will not be the "
		       "one of a job that had them from its start"
		     : "");
}

/* Makes state and trace ready to serve: counts the start, writes down the job with its
 * present length, and sets the trace to the line where the job goes on. */
static int
prepare(struct ps_run *r, const char *trace, struct fal_diag *diag)
{
	const bool longer = r->state.epochs > 0, resumes = r->found.there;
	int err = ps_state_count(&r->state, diag);
	if (err == FAL_OK)
		err = ps_result_reserve(r, diag);
	if (err == FAL_OK)
		err = ps_state_change(&r->state, &r->job, diag);
	if (err == FAL_OK)
		err = resumes ? go_on(r, trace, diag) : begin_job(r, trace, diag);
	if (err == FAL_OK && r->best != NULL && resumes)
		err = ps_best_read(r->best, &r->best_is, diag);
	if (err == FAL_OK && longer)
		say_longer(r);
	if (err == FAL_OK && resumes)
		say_resumed(r);
	return err;
}

/* Why it ended, where it did not end well.  The exit code for that. */
static int
say_end(const struct ps_run *r)
{
	const struct ps_outcome *o = &r->out;
	const uint64_t clock = o->status.clock, clocks = o->status.clocks;
	if (o->above)
		return o->code;
	if (o->stopped && r->opt.upstream != NULL)
		return FAL_EXIT_DONE;
	if (o->stopped && o->kept) {
		ps_log(r,
		       "stopped at clock %" PRIu64 " of %" PRIu64
		       ", and goes on from there when it is started again",
		       clock, clocks);
		return o->signalled ? FAL_EXIT_DONE : FAL_EXIT_TEMPFAIL;
	}
	if (o->stopped) {
		ps_log(r, "stopped at clock %" PRIu64 " of %" PRIu64, clock, clocks);
		return FAL_EXIT_TEMPFAIL;
	}
	if (o->status.failed && o->sha256[0] != '\0')
		ps_log(r, "what it was at clock %" PRIu64 " is in %s", o->clock,
		       r->model.path);
	return o->status.failed ? FAL_EXIT_NO : FAL_EXIT_DONE;
}

/* Finds the kinds of files that differ from those that the snapshot was made with. */
static void
find_changes(struct ps_run *r)
{
	struct fal_snap_manifest *m = &r->found.is;
	const struct fal_files *j = &r->job;
	const char *data = j->job.data_hash;
	/* The trainers' data are unknown before the trainers come. */
	if (data == NULL)
		data = ps_state_accepts(&r->opt.accept, "data") ? "" : m->past.data;
	const bool trainers = m->past.data[0] != '\0' && strcmp(data, m->past.data) != 0;
	if (trainers)
		m->past.data[0] = '\0';
	snprintf(r->accepted, sizeof(r->accepted), "%s%s%s",
		 trainers || strcmp(m->data, j->data_hex) != 0 ? " data" : "",
		 strcmp(m->net, j->model_hex) != 0 ? " net" : "",
		 strcmp(m->init, fal_files_init(j)) != 0 ? " init" : "");
	if (r->accepted[0] != '\0')
		ps_log(r, "goes on at clock %" PRIu64 " with other files:%s",
		       r->found.clock, r->accepted);
}

/* Trains.  An exit code. */
static int
train(struct ps_run *r)
{
	struct fal_diag diag = { "" };
	const struct fal_job *job = &r->job.job;
	const bool below = r->opt.upstream != NULL; /* what is kept is kept above */
	char *trace = ps_state_path(&r->state, "trace.jsonl");
	r->snapshots = !below && (job->state_clocks > 0 || job->state_seconds > 0)
			       ? r->state.folder
			       : -1;
	r->best = !below && job->state_best == FAL_JOB_BEST_YES
			  ? ps_state_path(&r->state, "best.safetensors")
			  : NULL;
	r->best_is = (struct ps_best_is){ 0 };
	r->before = (struct fal_coord_trace){ 0 };
	r->out = (struct ps_outcome){ 0 };
	int err = prepare(r, trace, &diag);
	if (err == FAL_OK)
		err = ps_serve(r, &diag);
	ps_record_close(&r->record);
	r->had = err == FAL_OK ? r->out.again : 0;
	r->state.begun = r->state.begun || r->had > 0;
	r->opt.ready_fd = 0; /* it was told */
	if (r->out.status.failed)
		fal_cli_err(PROG, "%s: clock %" PRIu64 ": %s", job->name,
			    r->out.status.clock, r->out.status.why);
	const int code = err < 0 ? ps_run_say(&diag, err) : say_end(r);
	free(trace);
	free(r->best);
	ps_place_drop(&r->model);
	ps_place_drop(&r->average);
	ps_place_drop(&r->result);
	return code;
}

/* Runs an incarnation.  Returns an exit code, unless r->had says that another incarnation
 * follows. */
static int
run_once(struct ps_run *r)
{
	struct fal_diag diag = { "" };
	char *dir = r->opt.state != NULL ? fal_xstrdup(r->opt.state)
					 : fal_xprintf("%s.state", r->job.job.name);
	const bool anew = r->opt.restart || r->opt.upstream != NULL;
	int err = ps_state_open(&r->state, dir, &r->job, &r->opt.accept, anew, &diag);
	free(dir);
	int code = FAL_EXIT_NO;
	if (err < 0) {
		code = ps_run_say(&diag, err);
		goto close_state;
	}
	if (r->state.done && (r->state.failed || r->state.epochs == 0)) {
		code = ps_result_print(r, &r->state.result);
		ps_log(r, "the job %s", r->state.failed ? "has failed" : "is done");
	} else if (r->opt.upstream != NULL) { /* what is kept is kept above */
		code = train(r);
	} else if ((!r->opt.restart || r->had > 0) &&
		   (err = fal_snapshot_find(r->state.folder, &r->job, &r->found, &diag)) <
			   0) {
		code = err == FAL_ESTATE ? FAL_EXIT_USAGE : FAL_EXIT_NO;
		fal_cli_err(PROG, "%s/%s", r->state.dir, diag.text);
	} else if ((r->state.begun || r->found.damaged.text[0] != '\0') &&
		   !r->opt.restart && !r->found.there && r->had == 0) {
		fal_cli_err(PROG,
			    "%s: the job was begun there and %s; there is no "
			    "snapshot to go on from%s%s: --restart begins at the first "
			    "clock, and keeps the trace",
			    r->state.dir,
			    r->state.done ? "is to have more epochs" : "is not done",
			    r->found.damaged.text[0] != '\0' ? ", as " : "",
			    r->found.damaged.text);
		code = FAL_EXIT_TEMPFAIL;
	} else {
		r->accepted[0] = '\0';
		if (r->found.there)
			find_changes(r);
		code = train(r);
	}
close_state:
	fal_snap_manifest_free(&r->found.is);
	ps_state_close(&r->state);
	return code;
}

/* Opens the state and trains, unless the job was done before.  An exit code. */
static int
run_job(struct ps_run *r)
{
	int code;
	r->ends = fal_xcalloc(PS_ACCOUNTS, sizeof(*r->ends));
	do {
		r->record = (struct ps_record){ 0 };
		code = run_once(r);
	} while (r->had > 0);
	ps_host_close(&r->host);
	free(r->ends);
	return code;
}

/* ---- the command line --- */

/* Judges, and does, what was asked for.  An exit code. */
static int
run(struct ps_run *r, const char *path)
{
	const bool joins = r->opt.join != NULL;
	if (r->opt.keyring == NULL)
		r->opt.keyring = "/etc/falcon/keyring";
	const unsigned cores = r->opt.threads == 0 ? fal_cli_cores() : 0;
	if (cores > 0)
		r->opt.threads = cores < THREADS ? cores : THREADS;
	r->program += fal_threads_bytes((uint32_t)r->opt.threads);
	int code = check_words(r);
	if (code == FAL_EXIT_DONE)
		code = joins ? load_key(r, FAL_ROLE_SHARD) : check_job(r, path);
	if (code != FAL_EXIT_DONE)
		return code;
	if (r->opt.check && !joins)
		return FAL_EXIT_DONE;
	fal_suites_measure(uv_hrtime);
	r->threads = fal_threads_new((uint32_t)r->opt.threads, WORTH_NS);
	code = joins ? ps_run_join(r) : run_job(r);
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
			    .program = fal_need_program() };
	struct ps_options *o = &r.opt;
	uint64_t ready_fd = UINT64_MAX;
	const struct fal_opt opts[] = {
		{ "listen", 'l', FAL_OPT_TEXT, &o->listen, "where to listen",
		  "ADDR,..." },
		{ "keyring", 'K', FAL_OPT_TEXT, &o->keyring, "keys of the clients",
		  "FILE" },
		{ "state", 's', FAL_OPT_TEXT, &o->state,
		  "folder of the job's state (NAME.state)", "DIR" },
		{ "restart", 0, FAL_OPT_FLAG, &o->restart,
		  "begin a job that was not done at its first clock", NULL },
		{ "accept-change", 0, FAL_OPT_LIST, &o->accept,
		  "go on though these files are others: data, net, init", "KIND" },
		{ "trace", 't', FAL_OPT_TEXT, &o->trace, "write the trace here, too",
		  "FILE" },
		{ "from", 0, FAL_OPT_TEXT, &o->from, "begin with these weights", "FILE" },
		{ "set", 0, FAL_OPT_LIST, &o->set, "change a key of the job",
		  "SECTION.KEY=VALUE" },
		{ "min-workers", 'w', FAL_OPT_U64, &o->min_workers,
		  "the first clock waits for so many", "N" },
		{ "shards", 0, FAL_OPT_U64, &o->shards,
		  "parts that the parameters are kept in", "N" },
		{ "min-shards", 0, FAL_OPT_U64, &o->min_shards,
		  "wait until so many processes have joined with shards", "N" },
		{ "join", 0, FAL_OPT_TEXT, &o->join,
		  "be shards of the job of this coordinator", "ADDR" },
		{ "upstream", 0, FAL_OPT_TEXT, &o->upstream,
		  "be one worker, with all of its own, of this coordinator's job",
		  "ADDR" },
		{ "scheme", 0, FAL_OPT_TEXT, &o->scheme,
		  "with --upstream: bsp or epsp, by which its workers share", "NAME" },
		{ "key", 'k', FAL_OPT_TEXT, &o->key, "with --join or --upstream: the key",
		  "FILE" },
		{ "standby", 0, FAL_OPT_FLAG, &o->standby,
		  "with --join: only where shards are missing", NULL },
		{ "rate-limit", 0, FAL_OPT_SIZE, &o->rate_limit,
		  "send no more bytes a second", "SIZE" },
		{ "compress", 0, FAL_OPT_TEXT, &o->compress,
		  "zstd: auto, always or never", "MODE" },
		{ "threads", 0, FAL_OPT_U64, &o->threads,
		  "that steps, seals and compresses (one a core, at most 8)", "N" },
		{ "seal-all", 0, FAL_OPT_FLAG, &o->seal_all,
		  "seal records of workers on this machine, too", NULL },
		{ "max-memory", 0, FAL_OPT_SIZE, &o->max_memory,
		  "refuse a job that needs more", "SIZE" },
		{ "ready-fd", 0, FAL_OPT_U64, &ready_fd,
		  "write the bound addresses to this descriptor", "N" },
		{ "exit-when-done", 'x', FAL_OPT_FLAG, &o->exit_when_done,
		  "exit when the job is done", NULL },
		{ "check", 0, FAL_OPT_FLAG, &o->check, "judge the files and exit", NULL },
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
		code = check_together(&cli, o, ready_fd);
	if (code >= 0)
		goto free_cli;
	o->ready_fd = ready_fd == UINT64_MAX ? 0 : ready_fd + 1;
	code = fal_cli_finish(PROG, run(&r, cli.n_args > 0 ? cli.arg[0] : NULL));
	fal_files_free(&r.job);
	fal_keyring_free(r.keys);
	fal_secret_free(r.key);
free_cli:
	fal_cli_free(&cli);
	return code;
}
