/* How a job begins, or goes on from a snapshot, and what is said when it is over. */
#include "run.h"

#include "base/fault.h"
#include "base/mem.h"
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
go_on(struct ps_run *r, const char *path, struct fal_coord_trace *before,
      struct fal_diag *diag)
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
	*before = (struct fal_coord_trace){ .t = fmax(was.t, m->past.t),
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
begin(struct ps_run *r, const char *path, struct fal_diag *diag)
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
say_resumed(const struct ps_run *r, const struct fal_coord_trace *before)
{
	const struct fal_grid grid = fal_job_grid(&r->job.job, r->job.train.n);
	if (r->found.damaged.text[0] != '\0')
		fal_cli_err(PROG, "%s/%s: the one before it is taken", r->state.dir,
			    r->found.damaged.text);
	if (before->torn > 0)
		fal_cli_err(PROG,
			    "%s/trace.jsonl: its end was torn: %" PRIu64
			    " byte%s cut off",
			    r->state.dir, before->torn, fal_text_s(before->torn));
	/* Of what had hardly begun there is nothing to say. */
	const double again_s = before->t - r->found.is.past.t;
	if (r->found.clock > 0 || again_s >= 0.05)
		fal_cli_err(PROG,
			    "%s: resumed at clock %" PRIu64 " of %" PRIu64
			    "; %.1f s of work are done again",
			    r->job.job.name, r->found.clock, fal_grid_clocks(&grid),
			    again_s);
}

/* The job has more epochs than it had. */
static void
say_longer(const struct ps_run *r)
{
	const struct fal_schedule *s = &r->job.job.schedule;
	const bool other = s->kind == FAL_COSINE && r->found.clock > s->warmup;
	fal_cli_err(PROG, "%s: %u epochs instead of %u%s", r->job.job.name,
		    r->job.job.epochs, r->state.epochs,
		    other ? "; by schedule.kind = cosine the learning rate of each clock "
			    "depends on how many there are: the model will not be the "
			    "one of a job that had them from its start"
			  : "");
}

/* What state and trace are to be when it serves: counted, as long as the job is now, at
 * the line where it goes on. */
static int
prepare(struct ps_run *r, const char *trace, struct fal_coord_trace *before,
	struct ps_best_is *best, struct fal_diag *diag)
{
	const bool longer = r->state.epochs > 0, resumes = r->found.there;
	int err = ps_state_count(&r->state, diag);
	if (err == FAL_OK)
		err = ps_result_reserve(r, diag);
	if (err == FAL_OK)
		err = ps_state_change(&r->state, &r->job, diag);
	if (err == FAL_OK)
		err = resumes ? go_on(r, trace, before, diag) : begin(r, trace, diag);
	if (err == FAL_OK && r->best != NULL && resumes)
		err = ps_best_read(r->best, best, diag);
	if (err == FAL_OK && longer)
		say_longer(r);
	if (err == FAL_OK && resumes)
		say_resumed(r, before);
	return err;
}

/* Why it ended, where it did not end well.  The exit code for that. */
static int
say_end(const struct ps_run *r, const struct ps_outcome *o)
{
	const char *name = r->job.job.name;
	const uint64_t clock = o->status.clock, clocks = o->status.clocks;
	if (o->above)
		return o->code;
	if (o->stopped && r->opt.upstream != NULL)
		return FAL_EXIT_DONE;
	if (o->stopped && o->kept) {
		fal_cli_err(PROG,
			    "%s: stopped at clock %" PRIu64 " of %" PRIu64
			    ", and goes on from there when it is started again",
			    name, clock, clocks);
		return o->signalled ? FAL_EXIT_DONE : FAL_EXIT_TEMPFAIL;
	}
	if (o->stopped) {
		fal_cli_err(PROG, "%s: stopped at clock %" PRIu64 " of %" PRIu64, name,
			    clock, clocks);
		return FAL_EXIT_TEMPFAIL;
	}
	if (o->status.failed && o->sha256[0] != '\0')
		fal_cli_err(PROG, "%s: what it was at clock %" PRIu64 " is in %s", name,
			    o->clock, r->model.path);
	return o->status.failed ? FAL_EXIT_NO : FAL_EXIT_DONE;
}

/* Which kinds of files are others than those that the snapshot was made with. */
static void
find_changes(struct ps_run *r)
{
	struct fal_snap_manifest *m = &r->found.is;
	const struct fal_files *j = &r->job;
	const char *data = j->job.data_hash;
	/* Of trainers' data nothing is known before they come. */
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
		fal_cli_err(PROG, "%s: goes on at clock %" PRIu64 " with other files:%s",
			    j->job.name, r->found.clock, r->accepted);
}

/* Trains.  An exit code. */
static int
train(struct ps_run *r)
{
	struct fal_diag diag = { "" };
	struct ps_outcome outcome = { 0 };
	struct fal_coord_trace before = { 0 };
	const struct fal_job *job = &r->job.job;
	const bool below = r->opt.upstream != NULL; /* what is kept is kept above */
	const bool keeps = !below && (job->state_clocks > 0 || job->state_seconds > 0);
	char *journal = ps_state_path(&r->state, "policy.jsonl");
	char *trace = ps_state_path(&r->state, "trace.jsonl");
	struct ps_serve_opt opt = { .host = &r->host,
				    .job = &r->job,
				    .record = &r->record,
				    .snapshots = keeps ? r->state.folder : -1,
				    .found = r->found.there ? &r->found : NULL,
				    .before = &before,
				    .journal = journal,
				    .listen = &r->listen,
				    .keyring = r->opt.keyring,
				    .keys = &r->keys,
				    .ready_fd = (int)r->opt.ready_fd - 1,
				    .unseals = ps_may_unseal(&r->opt),
				    .need = r->need,
				    .max_memory = r->opt.max_memory,
				    .min_workers = (uint32_t)r->opt.min_workers,
				    .shards = (uint32_t)r->opt.shards,
				    .min_shards = (uint32_t)r->opt.min_shards,
				    .had = below ? 0 : r->had,
				    .above = below ? &r->above : NULL,
				    .ends = r->ends,
				    .exit_when_done = r->opt.exit_when_done,
				    .compress = r->compress,
				    .rate_limit = r->opt.rate_limit,
				    .parallel = fal_threads_parallel(r->threads),
				    .keep = ps_result_keep,
				    .tell = ps_result_tell,
				    .arg = r };
	if (job->state_best == FAL_JOB_BEST_YES && !below)
		opt.best = r->best = ps_state_path(&r->state, "best.safetensors");
	int err = prepare(r, trace, &before, &opt.best_is, &diag);
	opt.incarnation = r->state.incarnation;
	opt.worked = r->worked;
	if (err == FAL_OK)
		err = ps_serve(&opt, &outcome, &diag);
	ps_record_close(&r->record);
	r->had = err == FAL_OK ? outcome.again : 0;
	r->state.begun = r->state.begun || r->had > 0;
	r->opt.ready_fd = 0; /* it was told */
	if (outcome.status.failed)
		fal_cli_err(PROG, "%s: clock %" PRIu64 ": %s", job->name,
			    outcome.status.clock, outcome.status.why);
	const int code = err < 0 ? ps_run_say(&diag, err) : say_end(r, &outcome);
	free(journal);
	free(trace);
	free(r->best);
	ps_place_drop(&r->model);
	ps_place_drop(&r->average);
	ps_place_drop(&r->result);
	return code;
}

/* One incarnation.  An exit code, unless r->had says that another one follows. */
static int
run(struct ps_run *r)
{
	struct fal_diag diag = { "" };
	char *dir = NULL;
	if (r->opt.state == NULL &&
	    FAL_TRY(MALLOC, -1, asprintf(&dir, "%s.state", r->job.job.name)) < 0)
		return ps_run_say(&diag, FAL_ENOMEM);
	const bool anew = r->opt.restart || r->opt.upstream != NULL;
	int err = ps_state_open(&r->state, dir != NULL ? dir : r->opt.state, &r->job,
				&r->opt.accept, anew, &diag);
	free(dir);
	int code = FAL_EXIT_NO;
	if (err < 0) {
		code = ps_run_say(&diag, err);
		goto close_state;
	}
	if (r->state.done && (r->state.failed || r->state.epochs == 0)) {
		code = ps_result_print(r, &r->state.result);
		fal_cli_err(PROG, "%s: the job %s", r->job.job.name,
			    r->state.failed ? "has failed" : "is done");
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

int
ps_run_start(struct ps_run *r)
{
	int code;
	r->ends = fal_calloc(PS_ACCOUNTS, sizeof(*r->ends));
	if (r->ends == NULL)
		return ps_run_say(&(struct fal_diag){ "" }, FAL_ENOMEM);
	do {
		r->record = (struct ps_record){ 0 };
		code = run(r);
	} while (r->had > 0);
	ps_host_close(&r->host);
	free(r->ends);
	return code;
}
