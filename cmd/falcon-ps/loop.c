/* The event loop: the server's begin, its timers and signals, what follows from an event,
 * and the server's end. */
#include "server.h"

#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"
#include "cli/notify.h"
#include "crypto/secret.h"
#include "math/scalar.h"
#include "net/client.h"
#include "trace/chain.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
	LEAVE_MS = 4000,     /* for the last snapshot's version */
	END_MS = 5000,       /* for sessions, to take the last message; */
	END_SOON_MS = 100,   /* … after a second signal */
	FLUSH_MS = 500,      /* the longest delay of a line of the trace */
	COMPRESS_EVERY = 100 /* clocks between measurements of compression */
};

/* ---- the job's progress: a bar on a terminal, else a line for each epoch --- */

/* Is each epoch evaluated? */
static bool
judges_each_epoch(const struct fal_files *j)
{
	return j->job.eval == FAL_JOB_EVAL_EPOCH && j->test.n > 0;
}

/* Seconds of training, over all starts. */
static double
seconds_worked(const struct ps_server *s, double now)
{
	return s->run->seconds_before +
	       (s->progress.began_at > 0 ? now - s->progress.began_at : 0);
}

/* Logs an epoch that is over; with test loss and accuracy, if each epoch is evaluated.
 * These are known only a little later, when further epochs may be over. */
static void
progress_log_epoch(struct ps_server *s, const struct fal_coord_status *now)
{
	const struct fal_files *j = s->job;
	const bool judges = judges_each_epoch(j);
	const uint64_t every = now->clocks / j->job.epochs;
	const uint64_t last = judges ? now->figures.judged / every : now->figures.epoch;
	struct ps_progress *p = &s->progress;
	const double t = ps_now();
	/* Logs at most one line a second, and always the last epoch. */
	if (last <= p->epoch || last > now->figures.epoch ||
	    (t < p->next_at && last < j->job.epochs))
		return;
	p->epoch = last;
	p->next_at = t + 1;
	char loss[40] = "", test_loss[40] = "", accuracy[32] = "";
	struct fal_metrics training;
	const double is = fal_coord_epoch_loss(s->coord, last, &training);
	if (!isnan(is))
		snprintf(loss, sizeof(loss), "training loss %.4f, ", is);
	if (judges && !isnan(now->figures.accuracy_loss))
		snprintf(test_loss, sizeof(test_loss), "test loss %.4f, ",
			 now->figures.accuracy_loss);
	if (judges)
		snprintf(accuracy, sizeof(accuracy), "accuracy %.4f, ",
			 now->figures.accuracy);
	struct fal_buf metrics = { 0 };
	for (uint32_t i = 0; i < j->job.metrics.n; i++) {
		fal_put_fmt(&metrics, ", %s ", j->job.metrics.v[i]);
		fal_metric_put_text(&metrics, &training, i);
		if (judges)
			fal_put_fmt(&metrics, ", test ");
		if (judges)
			fal_metric_put_text(&metrics, &now->figures.metrics.test, i);
	}
	fal_put_u8(&metrics, '\0');
	ps_log(s->run, "epoch %" PRIu64 " of %" PRIu64 ": %s%s%s%.1f s%s", last,
	       (uint64_t)j->job.epochs, loss, test_loss, accuracy, seconds_worked(s, t),
	       metrics.err == FAL_OK ? (char *)metrics.p : "");
	fal_buf_free(&metrics);
}

static void
progress_show(struct ps_server *s, const struct fal_coord_status *now)
{
	struct ps_progress *p = &s->progress;
	if (p->began_at == 0 && now->workers >= s->run->opt.min_workers)
		p->began_at = ps_now();
	if (p->bar.out == NULL) {
		progress_log_epoch(s, now);
	} else {
		if (now->version > 0)
			snprintf(p->loss, sizeof(p->loss),
				 isnan(now->figures.loss) ? "training loss -"
							  : "training loss %.4f",
				 now->figures.loss);
		if (now->figures.accuracy >= 0)
			snprintf(p->accuracy, sizeof(p->accuracy), "accuracy %.4f",
				 now->figures.accuracy);
		const uint64_t epochs = s->job->job.epochs, next = now->figures.epoch + 1;
		snprintf(p->epochs, sizeof(p->epochs), "epoch %" PRIu64 " of %" PRIu64,
			 next < epochs ? next : epochs, epochs);
		p->bar.note[0] = p->epochs;
		p->bar.note[1] = p->accuracy;
		p->bar.note[2] = p->loss;
		fal_progress_show(&p->bar, now->clock, uv_hrtime());
	}
	if (p->began_at != 0)
		ps_log_task_sizes(s, now->workers);
}

/* ---- the end --- */

static void
finish_all_sessions(struct ps_server *s)
{
	for (size_t i = 0; i < s->sessions.n; i++)
		ps_finish_session(s->sessions.v[i]);
}

/* Begins the end of the server: there are no new sessions, and each old session ends when
 * the peer has taken all sent messages. */
static void
loop_stop(struct ps_server *s)
{
	if (s->end.is_stopping)
		return;
	s->end.is_stopping = true;
	ps_pool_cancel_drain(s);
	if (s->out->lost_processes > 0) {
		fal_listen_pause(s->listen);
	} else {
		fal_listen_close(s->run->host.listen);
		s->run->host.listen = NULL;
	}
	s->listen = NULL;
	ps_log_refusals(s, true);
	finish_all_sessions(s);
	ps_close_handle(&s->timers.wake);
	ps_close_handle(&s->timers.flush);
	ps_close_handle(&s->timers.leave);
	ps_pool_close(s);
	if (s->upstream != NULL)
		ps_upstream_close(s->upstream);
}

/* As loop_stop, and tells the workers why. */
static void
loop_stop_with(struct ps_server *s, enum fal_msg_type type, const char *why)
{
	ps_send_to_workers(s, type, why);
	loop_stop(s);
}

/* The job is done or has failed: writes the result, and ends the trace. */
static void
conclude_job(struct ps_server *s)
{
	struct fal_coord_status status = fal_coord_status(s->coord);
	double now = ps_now();
	struct fal_coord_outcome left;
	bool coming = false;
	assert(!s->end.is_saved && !s->end.is_stopping);
	/* If other trainers may come, the job can resume from its last snapshot. */
	const bool any = status.failed
				 ? fal_coord_last_good_version(s->coord, &left) &&
					   !(left.trainers && ps_snapshots_has_any(s))
				 : fal_coord_newest_version(s->coord, &left);
	const float *params = any ? ps_pool_get_params(s, left.version, &coming) : NULL;
	if (coming) /* after_event follows */
		return;
	ps_log_refusals(s, true);
	ps_pool_cancel_drain(s);
	s->end.is_saved = true;
	s->out->seconds = seconds_worked(s, now);
	fal_progress_wipe();
	if (any)
		s->out->clock = left.clock;
	const char *why = NULL;
	if (!status.failed && s->out->why.text[0] != '\0') {
		status.failed = true;
		status.why = why = s->out->why.text;
	} else if (status.failed) { /* the text outlives the coordinator */
		fal_diag_set(&s->out->why, 0, "%s", status.why);
		status.why = s->out->why.text;
	}
	s->out->status = status;
	if (!status.failed)
		s->out->average = fal_shard_set_average(s->shard_set);
	/* no worker computes on these versions any more */
	ps_publisher_drop(&s->broadcast.publisher);
	if (params != NULL)
		s->end.err = ps_result_write_models(s->run, params, s->diag);
	const struct fal_coord_result result = { s->out->sha256, s->out->hash,
						 s->policy.journal.chain.link,
						 s->out->seconds };
	fal_coord_finish(s->coord, now, &result,
			 s->end.err < 0 ? "the result could not be kept" : why);
	if (params != NULL && s->end.err == FAL_OK)
		s->end.err = ps_result_write(s->run, s->diag);
	ps_pool_end(s, FAL_MSG_DONE,
		    status.failed ? "the job has failed" : "the job is done");
	finish_all_sessions(s);
	if (s->run->opt.exit_when_done || s->end.err < 0 || status.failed) {
		loop_stop(s);
	} else {
		ps_log(s->run,
		       "is done: falcon-stat and late workers get answers until SIGTERM "
		       "or Ctrl-C; --exit-when-done exits at once");
		fal_cli_notify("STATUS=done");
	}
}

/* Ends the incarnation: this process cannot go on, but the job can, from its last
 * snapshot. */
static void
give_up_incarnation(struct ps_server *s)
{
	s->end.err = fal_diag_set(s->diag, s->end.broken,
				  "%s: %s; goes on from its last snapshot when it is "
				  "started again",
				  s->job->job.name, s->out->why.text);
	loop_stop_with(s, FAL_MSG_LATER, "the coordinator stops, and may be back");
}

/* The job's status; before its shards are there, the status from which it begins or
 * resumes. */
static struct fal_coord_status
current_status(const struct ps_server *s)
{
	if (s->coord != NULL)
		return fal_coord_status(s->coord);
	const struct fal_grid grid = fal_job_grid(&s->job->job, s->job->train.n);
	return (struct fal_coord_status){ .clock = s->resumed != NULL ? s->resumed->clock
								      : 0,
					  .clocks = fal_grid_clocks(&grid) };
}

/* Ends the server for a signal. */
static void
loop_leave(struct ps_server *s)
{
	if (!s->end.is_saved) {
		s->out->stopped = s->out->was_signalled = true;
		s->out->status = current_status(s);
		ps_send_to_workers(s, FAL_MSG_LATER,
				   "the coordinator stops, and may be back");
	}
	loop_stop(s);
}

/* ---- the job begins, or resumes --- */

/* Opens the policy journal, and finds the policy that the coordinator begins with: the
 * snapshot's, the journal's last one, or the job's. */
static int
open_policy(struct ps_server *s)
{
	struct ps_run *r = s->run;
	const struct fal_snapshot_found *found = s->resumed;
	const struct fal_job *job = &r->job.job;
	const struct fal_policy own = { .rule = job->rule,
					.no_clones = job->clones == FAL_JOB_CLONES_NO };
	char text[FAL_RULE_TEXT];
	int err = ps_policy_log_open(&s->policy, ps_state_path(&r->state, "policy.jsonl"),
				     &own, found != NULL ? &found->is : NULL, s->diag);
	if (err == FAL_OK && r->accepted[0] != '\0')
		err = ps_policy_log_accept_files(&s->policy, r->trace_before.accepted,
						 found->clock, found->is.past.version);
	s->policy.initial = found != NULL ? &found->is.policy : &s->policy.last;
	s->policy.initial_by = found != NULL ? found->is.past.by : s->policy.origin.by;
	if (err == FAL_OK && strcmp(s->policy.initial_by, "job") != 0)
		fal_cli_err(PROG, "%s: goes on with the policy %s, set by '%s'",
			    job->name, fal_rule_text(&s->policy.initial->rule, text),
			    s->policy.initial_by);
	return err;
}

/* Makes the coordinator's configuration of job, model and data, and of the state in which
 * it begins or resumes. */
static struct fal_coord_conf
make_coord_conf(const struct ps_server *s)
{
	const struct fal_files *j = s->job;
	const struct fal_grid grid = fal_job_grid(&j->job, j->train.n);
	const bool evals = j->job.eval != FAL_JOB_EVAL_NEVER;
	struct fal_coord_conf conf = {
		.name = j->job.name,
		.hash = j->hash_hex,
		.model_hash = j->model_hex,
		.data_hash = j->data_hex,
		.from = j->from[0] != '\0' ? j->from : NULL,
		.seed = j->job.seed,
		.numerics = (enum fal_numerics)j->job.numerics,
		.grid = grid,
		.test_samples = evals ? j->test.n : 0,
		.eval_every = j->job.eval == FAL_JOB_EVAL_EPOCH
				      ? (uint32_t)fal_grid_epoch_clocks(&grid)
				      : 0,
		.params = j->model->params,
		.optim = j->job.optim,
		.schedule = j->job.schedule,
		.patience = j->job.patience * fal_grid_epoch_clocks(&grid),
		.best = { s->run->best.clock, s->run->best.accuracy, s->run->best.loss },
		.metrics = j->job.metrics,
		/* Without layers the loss function is unknown. */
		.guess = j->model->layers > 0 ? fal_log(j->model->classes) : 0,
		.skips = j->job.nonfinite == FAL_JOB_NONFINITE_SKIP,
		.audit_sums = j->job.audit == FAL_JOB_AUDIT_SUMS,
		.hashes = j->job.hashes > 0 ? j->job.hashes
					    : fal_leaf_interval(j->model->params),
		.task_hashes = fal_job_hashes_tasks(&j->job),
		.verify = j->job.verify / 100,
		.verify_stop = j->job.verify_stop == FAL_JOB_VERIFY_STOP_YES,
		.lanes_start = j->job.lanes_start,
		.preclaims = true,
		.psld = j->job.placement == FAL_JOB_PLACEMENT_PSLD && s->upstream == NULL,
		.text_n = { (uint32_t)j->job_text.n, (uint32_t)j->model_text.n,
			    (uint32_t)j->manifest_bytes.n },
		.policy = s->policy.initial,
		.policy_by = s->policy.initial_by,
		.min_workers = (uint32_t)s->run->opt.min_workers,
		.tickets = s->tickets,
		.shards = fal_shard_set_count(s->shard_set),
		.map = &s->pool.map,
		.past = s->resumed != NULL ? &s->resumed->is.past : NULL,
		.before = s->run->trace_before,
	};
	if (j->job.data_hash != NULL)
		(void)fal_unhex(j->job.data_hash, FAL_DATA_HASH,
				conf.data); /* checked by job_files */
	return conf;
}

/* A fal_coord_ops.model: the session wants a version. */
static void
loop_on_publication(void *arg, uint32_t peer, const struct fal_coord_publication *model)
{
	struct ps_server *s = arg;
	struct ps_session *session = ps_find_session(&s->sessions, peer);
	if (session == NULL)
		return;
	ps_broadcast_add(&s->broadcast, &session->reader, model);
	ps_pool_publish(s, peer, model);
}

static int
create_coord(struct ps_server *s)
{
	struct fal_coord_ops ops = { .arg = s,
				     .send = ps_send_to_peer,
				     .model = loop_on_publication,
				     .close = ps_close_peer,
				     .trace = ps_on_trace_line,
				     .came = ps_status_on_joined,
				     .went = ps_status_on_left,
				     .late = ps_status_on_late,
				     .odd = ps_status_on_unlike_kernels,
				     .unlike = ps_status_on_unlike_results,
				     .unstepped = ps_status_on_unstepped,
				     .journal = ps_controllers_on_journal,
				     .changed = ps_controllers_on_changed,
				     .marked = ps_snapshots_on_marked,
				     .moved = ps_pool_on_moved,
				     .claimed = ps_upstream_on_claimed,
				     .given = ps_upstream_on_given,
				     .evaluated = ps_upstream_on_evaluated,
				     .shards = ps_pool_ops };
	struct fal_coord_conf conf = make_coord_conf(s);
	struct fal_line_place place = { 0 };
	struct fal_coord_upstream above;
	char print[FAL_KEY_FINGERPRINT + 1];
	ops.shards.arg = s;
	if (s->upstream != NULL) {
		const struct fal_client_key *key = s->run->key;
		fal_client_key_print_fingerprint(key, print);
		above = (struct fal_coord_upstream){ s->run->opt.upstream, key->name,
						     print };
		conf.above = &above;
	}
	fal_random_bytes(&conf.entropy, sizeof(conf.entropy));
	fal_files_make_place_line(s->job, s->pool.rule_shards, &place);
	place.map = conf.tickets.epoch;
	conf.place = &place;
	int err = fal_coord_new(&conf, &ops, ps_now(), &s->coord);
	fal_secret_wipe(&conf.tickets, sizeof(conf.tickets));
	fal_place_line_free(&place);
	if (err < 0)
		return s->diag->text[0] != '\0'
			       ? err
			       : fal_diag_set(s->diag, err, "%s", fal_strerror(err));
	for (size_t i = 0; i < s->policy.n_replayed; i++) {
		const struct ps_replayed_policy *r = &s->policy.replayed[i];
		fal_coord_schedule_policy(s->coord, &r->policy, r->origin.clock,
					  r->origin.by);
	}
	s->progress.bar =
		fal_progress_begin(s->job->job.name, fal_coord_status(s->coord).clocks,
				   uv_hrtime());
	return FAL_OK;
}

/* All blocks have their shards: makes the coordinator. */
static int
loop_begin_job(struct ps_server *s)
{
	const struct fal_snapshot_found *found = s->resumed;
	s->broadcast.publisher.shard_set = s->shard_set;
	s->broadcast.publisher.parallel = fal_threads_parallel(s->run->threads);
	s->broadcast.publisher.sends_whole =
		s->job->job.placement == FAL_JOB_PLACEMENT_PSLD;
	memcpy(s->broadcast.publisher.job_hash, s->job->hash, FAL_HASH_BYTES);
	int err = create_coord(s);
	s->snapshots.at = ps_now();
	/* The parameters that the job begins with are the first snapshot. */
	if (err == FAL_OK && found == NULL && s->run->snapshots >= 0)
		err = fal_coord_snapshot_now(s->coord, ps_now());
	if (err < 0)
		return err;
	if (found != NULL) {
		s->snapshots.clock = s->snapshots.good_clock = found->clock;
		s->snapshots.last_is_good = true; /* until a later one fails */
		/* The epochs before the snapshot count as logged. */
		const struct fal_coord_status now = fal_coord_status(s->coord);
		const uint64_t every = now.clocks / s->job->job.epochs;
		s->progress.epoch = judges_each_epoch(s->job) ? now.figures.judged / every
							      : now.figures.epoch;
	}
	ps_count_worker_keys(s);
	ps_introduce_sessions(s);
	/* A job that resumes may be at its end already. */
	return found != NULL ? fal_coord_tick(s->coord, ps_now()) : FAL_OK;
}

/* ---- what follows from an event --- */

/* A group server's part in its coordinator's job ends with this exit code. */
static void
end_group(struct ps_server *s, int code, const char *why)
{
	const struct fal_coord_result none = { .journal = "" };
	s->out->code = code;
	s->out->ended_upstream = true;
	ps_log_refusals(s, true);
	fal_coord_finish(s->coord, ps_now(), &none, code == FAL_EXIT_DONE ? NULL : why);
	loop_stop(s);
}

/* A group server leaves its coordinator's job: the trace ends, and then the server.
 * `message` is for the group's members. */
static void
leave_group(struct ps_server *s, const char *why, const char *message)
{
	ps_log_refusals(s, true);
	fal_coord_lose_upstream(s->coord, ps_now(), why);
	loop_stop_with(s, FAL_MSG_LATER, message);
}

/* Acts on a cause of the server's end that another file has recorded.  Returns whether
 * the server ends. */
static bool
end_if_recorded(struct ps_server *s)
{
	struct ps_end *e = &s->end;
	if (e->is_stopping)
		return true;
	if (e->err < 0) {
		loop_stop_with(s, FAL_MSG_REFUSE, s->diag->text);
	} else if (e->lost_processes > 0 && e->is_leaving) {
		/* The last snapshot cannot be taken any more. */
		e->reached = s->snapshots.good_clock;
		loop_leave(s);
	} else if (e->lost_processes > 0) {
		s->out->lost_processes = e->lost_processes;
		s->out->status = current_status(s);
		loop_stop_with(s, FAL_MSG_LATER,
			       "a shard is lost; the job goes on from its last snapshot");
	} else if (e->upstream == PS_UPSTREAM_ENDED) {
		end_group(s, e->upstream_code, e->upstream_why.text);
	} else if (e->upstream == PS_UPSTREAM_LOST) {
		s->out->lost_processes = 1;
		leave_group(s, "the coordinator above is gone",
			    "the coordinator above is gone, and may be back");
	} else if (e->upstream == PS_UPSTREAM_LEFT) {
		s->out->code = FAL_EXIT_DONE;
		s->out->ended_upstream = true;
		leave_group(s, "it was drained above", "the group server was drained");
	}
	return e->is_stopping;
}

/* Has the job begun?  Begins the job when all blocks have their shards. */
static bool
job_has_begun(struct ps_server *s)
{
	if (s->coord != NULL)
		return true;
	if (!s->pool.has_map || ps_pool_count_unplaced(s) > 0)
		return false;
	const int err = loop_begin_job(s);
	if (err < 0)
		s->end.err = err;
	return !end_if_recorded(s);
}

/* An operator stopped the job: takes the last snapshot, then ends the server. */
static void
end_stopped_job(struct ps_server *s, const struct fal_coord_status *status)
{
	if (!s->out->stopped)
		ps_snapshots_take_last(s);
	s->out->stopped = true;
	s->out->status = *status;
	if (s->snapshots.missing > 0)
		return;
	ps_pool_end(s, FAL_MSG_DONE, "the job was stopped");
	loop_stop_with(s, FAL_MSG_DONE, "the job was stopped");
}

static void
loop_on_wake(uv_timer_t *t)
{
	struct ps_server *s = t->data;
	if (s->out->why.text[0] == '\0')
		ps_fail(s, fal_coord_tick(s->coord, ps_now()), "scheduler");
	s->events.after_event(s);
}

/* Does all work that may follow from an event, in a fixed order. */
static void
after_event(struct ps_server *s)
{
	ps_log_session_ends(s);
	if (end_if_recorded(s) || s->end.is_saved || !job_has_begun(s) || s->end.is_saved)
		return;
	if (s->upstream != NULL)
		ps_upstream_work(s->upstream);
	if (end_if_recorded(s))
		return;
	ps_pool_flush(s); /* before the bytes of our own version */
	ps_publish_versions(s);
	if (s->out->why.text[0] != '\0') {
		if (ps_snapshots_has_any(s))
			give_up_incarnation(s);
		else
			conclude_job(s);
		return;
	}
	ps_pool_plan_moves(s);
	const struct fal_coord_status status = fal_coord_status(s->coord);
	progress_show(s, &status);
	ps_best_checkpoint_update(s, &status.figures);
	ps_controllers_export(s);
	const bool ends_early = status.stopped && status.patience_is_over;
	if (ends_early && s->best.is_writing)
		return;
	if (ends_early)
		ps_log(s->run, "no better model in %u epoch%s: done",
		       s->job->job.patience, fal_text_plural(s->job->job.patience));
	if (status.done && !status.failed &&
	    (!ps_snapshots_finish(s, status.clock) || s->best.is_writing))
		return;
	if (status.failed && s->upstream != NULL) {
		ps_log(s->run, "%s", status.why);
		end_group(s, FAL_EXIT_NO, status.why);
		return;
	}
	if (status.done || status.failed || ends_early) {
		conclude_job(s);
		return;
	}
	if (status.stopped) {
		end_stopped_job(s, &status);
		return;
	}
	ps_snapshots_schedule(s, status.clock);
	if (s->end.is_leaving && !ps_snapshots_is_pending(s)) {
		loop_leave(s);
		return;
	}
	if (s->run->compress == FAL_COMPRESS_AUTO &&
	    status.clock >= s->progress.zip_clock + COMPRESS_EVERY) {
		s->progress.zip_clock = status.clock;
		for (size_t i = 0; i < s->sessions.n; i++)
			fal_chan_compress(s->sessions.v[i]->chan, FAL_COMPRESS_AUTO);
	}
	const double wake = fal_coord_next_deadline(s->coord),
		     in = (wake - ps_now()) * 1e3;
	if (wake == INFINITY)
		uv_timer_stop(&s->timers.wake);
	else
		uv_timer_start(&s->timers.wake, loop_on_wake,
			       in > 0 ? (uint64_t)ceil(in) : 0, 0);
}

/* ---- timers and signals --- */

static void
loop_on_flush(uv_timer_t *t)
{
	struct ps_server *s = t->data;
	ps_log_refusals(s, false);
	ps_send_all_pending(s); /* chunks that waited for their key's account */
	ps_expire_held_hellos(s);
	ps_trace_file_flush(&s->run->trace);
	ps_log_waiting(s);
}

/* Ends the sessions that have not taken the last message by now. */
static void
loop_on_end(uv_timer_t *t)
{
	struct ps_server *s = t->data;
	for (size_t i = 0; i < s->sessions.n; i++)
		fal_chan_fail(s->sessions.v[i]->chan, FAL_EIO,
			      "it did not take the last message in time");
	if (s->upstream != NULL)
		ps_upstream_kill(s->upstream);
}

static void
loop_on_leave(uv_timer_t *t)
{
	loop_leave(t->data);
}

/* Begins the end for a signal.  First the last snapshot may wait for contributions to the
 * next version; then sessions may wait for the last message.  A second signal leaves the
 * snapshot out. */
static void
loop_on_stop_signal(struct ps_server *s)
{
	fal_cli_notify("STOPPING=1");
	const bool again = s->run->host.was_signalled;
	s->run->host.was_signalled = true;
	uv_timer_start(&s->timers.end, loop_on_end,
		       !again               ? END_MS
		       : s->end.is_stopping ? 0
					    : END_SOON_MS,
		       0);
	if (s->end.is_stopping) {
		/* The process ends now, although another incarnation was to follow. */
		if (s->out->lost_processes > 0)
			s->out->stopped = s->out->was_signalled = true;
		if (s->out->lost_processes > 0 && ps_snapshots_has_any(s))
			s->out->status.clock = s->snapshots.good_clock;
		s->out->lost_processes = 0;
		return;
	}
	s->end.is_leaving = true;
	if (!again)
		ps_pool_abort_move(s);
	/* Clocks continue while images of shards elsewhere are on their way. */
	if (!again && s->coord != NULL)
		s->end.reached = fal_coord_status(s->coord).clock;
	if (again || s->end.is_saved || !ps_snapshots_take_last(s)) {
		loop_leave(s);
		return;
	}
	uv_timer_start(&s->timers.leave, loop_on_leave, LEAVE_MS, 0);
}

static void
loop_on_signal(uv_signal_t *h, int signum)
{
	struct ps_server *s = h->loop->data;
	if (signum != SIGHUP) {
		loop_on_stop_signal(s);
		return;
	}
	/* Reads the keyring again, and ends the sessions of keys that are no longer in
	 * the keyring. */
	struct fal_keyring *fresh = NULL;
	struct fal_diag why = { "" };
	if (fal_keyring_load(s->run->opt.keyring, &fresh, &why) < 0) {
		fal_cli_err(PROG, "%s (the old keyring holds)", why.text);
		return;
	}
	struct fal_keyring *old = s->run->keys;
	size_t n;
	(void)fal_keyring_keys(fresh, &n);
	fal_cli_err(PROG, "%s: read again: %zu key%s", s->run->opt.keyring, n,
		    fal_text_plural(n));
	s->run->keys = fresh;
	if (s->listen != NULL)
		fal_listen_keyring(s->listen, fresh);
	fal_keyring_free(old);
	ps_count_worker_keys(s);
}

/* ---- the server begins --- */

/* Divides the free descriptors: three quarters for sessions, one for handshakes.  The
 * job's own descriptors are open by now, except two for each address to listen at, and a
 * few that keyring and journal need at times.  FAL_EIO with a diagnosis: not even one
 * worker could join. */
static int
share_descriptors(struct ps_server *s, uint32_t *handshakes)
{
	enum { SPARE = 8 };
	struct rlimit most = { 0 };
	getrlimit(RLIMIT_NOFILE, &most);
	most.rlim_cur = most.rlim_max;
	setrlimit(RLIMIT_NOFILE, &most);
	getrlimit(RLIMIT_NOFILE, &most);
	const int lowest = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
	if (lowest < 0)
		return fal_diag_set(s->diag, FAL_EIO, "%s", strerror(errno));
	close(lowest);
	const rlim_t used = (rlim_t)lowest + SPARE + 2 * s->run->listen.n;
	if (most.rlim_cur <= used)
		return fal_diag_set(s->diag, FAL_EIO,
				    "%ju descriptors are too few: with what is open it "
				    "takes %ju (ulimit -n)",
				    (uintmax_t)most.rlim_cur, (uintmax_t)used + 1);
	const rlim_t left = most.rlim_cur - used;
	const rlim_t all = left < UINT32_MAX ? left : UINT32_MAX;
	const rlim_t half_open =
		all / 4 < FAL_LISTEN_HALF_OPEN ? all / 4 : FAL_LISTEN_HALF_OPEN;
	s->sessions.max = (uint32_t)(all - half_open);
	*handshakes = half_open > 0 ? (uint32_t)half_open : 1;
	return FAL_OK;
}

/* Makes the loop and its signals, if this is the first incarnation, and the timers. */
static int
open_loop(struct ps_server *s)
{
	static const int heard[] = { SIGINT, SIGTERM, SIGHUP };
	struct ps_host *h = &s->run->host;
	const bool is_open = h->loop.data != NULL;
	const int bad = is_open ? 0 : uv_loop_init(&h->loop);
	if (bad < 0)
		return fal_diag_set(s->diag, FAL_EIO, "%s", uv_strerror(bad));
	for (size_t i = 0; !is_open && i < 3; i++) {
		uv_signal_init(&h->loop, &h->heard[i]);
		uv_unref((uv_handle_t *)&h->heard[i]);
		uv_signal_start(&h->heard[i], loop_on_signal, heard[i]);
	}
	h->loop.data = s;
	uv_timer_init(s->loop, &s->timers.wake);
	uv_timer_init(s->loop, &s->timers.flush);
	uv_timer_init(s->loop, &s->timers.leave);
	uv_timer_init(s->loop, &s->timers.end);
	uv_unref((uv_handle_t *)&s->timers.end);
	s->timers.wake.data = s->timers.flush.data = s;
	s->timers.leave.data = s->timers.end.data = s;
	uv_update_time(s->loop); /* the loop may not have run for a while */
	uv_timer_start(&s->timers.flush, loop_on_flush, FLUSH_MS, FLUSH_MS);
	return FAL_OK;
}

/* A second signal must not kill the process while it completes its last work. */
void
ps_host_close(struct ps_host *h)
{
	if (h->loop.data == NULL)
		return;
	fal_listen_close(h->listen);
	for (size_t i = 0; i < 3; i++)
		ps_close_handle(&h->heard[i]);
	uv_run(&h->loop, UV_RUN_DEFAULT);
	uv_loop_close(&h->loop);
	if (!h->was_signalled)
		return;
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
}

/* Opens the policy, begins the job if its shards are all in this process, listens, and
 * says so.  Returns an error with its diagnosis. */
static int
open_server(struct ps_server *s)
{
	struct ps_run *r = s->run;
	const uint64_t rate = r->opt.rate_limit;
	s->rate.link =
		(struct fal_link){ .bandwidth = (double)rate, .shared = &s->rate.busy };
	struct fal_listen_opt listen = { .addr = r->listen.v,
					 .addrs = r->listen.n,
					 .keyring = r->keys,
					 .chan.link = rate > 0 ? &s->rate.link : NULL,
					 .chan.unseals = ps_allows_unsealed(&r->opt),
					 .paused = r->host.listen };
	const struct fal_listen_ops ops = { s, ps_on_accept, ps_log_failed_handshake,
					    ps_on_key_removed };
	int err = open_policy(s);
	/* Without shard processes to wait for, the job begins before listening. */
	if (err == FAL_OK && ps_pool_count_missing(s) == 0) {
		err = ps_pool_place(s);
		if (err == FAL_OK)
			err = loop_begin_job(s);
	}
	if (err == FAL_OK)
		err = share_descriptors(s, &listen.half_open);
	if (err == FAL_OK)
		err = fal_listen_start(s->loop, &listen, &ops, &s->listen, s->diag);
	if (err < 0)
		return err;
	r->host.listen = s->listen;
	const char *text = fal_listen_addr_text(s->listen);
	s->out->bound.n = fal_listen_addrs(s->listen, s->out->bound.v);
	ps_log(r, "listening on %s", text);
	ps_count_worker_keys(s);
	if (s->sessions.worker_keys == 1)
		fal_cli_err(PROG, "one key for all workers: they cannot be told apart, "
				  "and nobody can contradict what one of them sends");
	else if (s->sessions.worker_keys == 2)
		fal_cli_err(PROG, "two keys for all workers: where their results differ "
				  "nobody can tell which is wrong, and an honest worker "
				  "may be sent away; a third key decides");
	fal_cli_notify("READY=1\nSTATUS=training");
	const int fd = (int)r->opt.ready_fd - 1;
	return fd < 0 ? FAL_OK : fal_cli_write_ready(fd, text, s->diag);
}

int
ps_serve(struct ps_run *r, struct fal_diag *diag)
{
	struct ps_server s = { .run = r,
			       .job = &r->job,
			       .resumed = r->found.there ? &r->found : NULL,
			       .out = &r->out,
			       .diag = diag,
			       .loop = &r->host.loop,
			       .events = { after_event, ps_snapshots_add_image },
			       .cache.limit = PS_CACHE_MAX,
			       .policy.journal.fd = -1,
			       .snapshots.current = fal_snapshot_none,
			       .workers_are_local = true,
			       .broadcast.publisher = {
				       .incarnation = r->state.incarnation,
				       .is_mixed = r->memory.is_mixed } };
	signal(SIGPIPE, SIG_IGN);
	int err = open_loop(&s);
	if (err < 0)
		return err;
	ps_pool_init(&s);
	if (r->opt.upstream != NULL)
		s.upstream = ps_upstream_new(&s);
	err = open_server(&s);
	if (err == FAL_OK) {
		after_event(&s);
	} else {
		if (s.upstream != NULL && s.coord != NULL) /* no work was done */
			fal_coord_lose_upstream(s.coord, ps_now(), "it could not begin");
		loop_stop(&s);
	}
	uv_run(s.loop, UV_RUN_DEFAULT);
	fal_progress_wipe();
	ps_close_handle(&s.timers.end);
	uv_run(s.loop, UV_RUN_DEFAULT);
	/* An earlier snapshot counts, too: the last one may have failed. */
	r->out.has_snapshot =
		ps_snapshots_has_any(&s) &&
		s.snapshots.good_clock >=
			(s.end.is_leaving ? s.end.reached : r->out.status.clock);
	if (s.snapshots.is_busy) /* some of its images did not come */
		fal_snapshot_free(&s.snapshots.current);
	ps_broadcast_free(&s.broadcast);
	ps_cache_free(&s.cache);
	ps_upstream_free(s.upstream);
	fal_coord_free(s.coord);
	fal_shard_set_free(s.shard_set);
	ps_pool_free(&s.pool);
	fal_secret_wipe(&s.tickets, sizeof(s.tickets));
	ps_policy_log_close(&s.policy);
	fal_buf_free(&s.controllers.report);
	ps_best_checkpoint_free(&s.best);
	free(s.sessions.v);
	free(s.status.known);
	return err < 0 ? err : s.end.err;
}
