/* The loop: the server's begin, its timers and signals, the progress that it shows, and
 * its end.  Sessions are in sessions.c. */
#include "server.h"

#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"
#include "cli/notify.h"
#include "crypto/secret.h"
#include "net/client.h"
#include "trace/chain.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
	LEAVE_MS = 4000,     /* a last snapshot may wait so long for its version, */
	END_MS = 5000,       /* and the process for whoever is to hear of the end */
	WORD_MS = 100,       /* the same, when a second signal came */
	FLUSH_MS = 500,      /* the trace is readable so late at the most */
	COMPRESS_EVERY = 100 /* clocks between measurements of compression */
};

static void stop(struct ps_server *s);
static void leave(struct ps_server *s);
static void on_wake(uv_timer_t *t);

void
ps_fail(struct ps_server *s, int err, const char *what)
{
	if (s->err < 0 || err == FAL_OK || s->stopping)
		return;
	if (!s->saved) {
		/* The coordinator may be in the midst of a call. */
		s->broken = err;
		if (s->out->why.text[0] == '\0')
			fal_diag_set(&s->out->why, err, "%s: %s", what,
				     fal_strerror(err));
		uv_timer_start(&s->wake, on_wake, 0, 0);
		return;
	}
	ps_abandon(s, fal_diag_set(s->diag, err, "%s: %s", what, fal_strerror(err)));
}

int
ps_affords(struct ps_server *s, const struct fal_rule *rule, uint32_t workers,
	   uint64_t more, struct fal_diag *why)
{
	const uint64_t all = workers + (uint64_t)fal_coord_status(s->coord).workers;
	struct ps_need_of of = s->run->need;
	of.rule = rule != NULL ? rule : &fal_coord_policy_now(s->coord)->rule;
	of.workers = all > of.workers ? all : of.workers;
	return fal_need_allowed(more + ps_need(&of, 0), 0, s->run->opt.max_memory, why);
}

/* ---- the progress of the job: a bar on a terminal, else a line for each epoch ---- */

/* Is each epoch's accuracy known? */
static bool
judges_all(const struct fal_files *j)
{
	return j->job.eval == FAL_JOB_EVAL_EPOCH && j->test.n > 0;
}

/* Seconds that it was worked on, in all its starts. */
static double
seconds_worked(const struct ps_server *s, double now)
{
	return s->run->worked + (s->began > 0 ? now - s->began : 0);
}

static void
show_bar(struct ps_server *s, const struct fal_coord_status *now)
{
	struct ps_show *w = &s->show;
	if (now->version > 0)
		snprintf(w->loss, sizeof(w->loss),
			 isnan(now->loss) ? "loss -" : "loss %.4f", now->loss);
	if (now->accuracy >= 0)
		snprintf(w->accuracy, sizeof(w->accuracy), "accuracy %.4f",
			 now->accuracy);
	s->progress.note[0] = w->accuracy;
	s->progress.note[1] = w->loss;
	fal_progress_show(&s->progress, now->clock, ps_now());
}

/* The epochs before that are told already. */
static void
show_from(struct ps_server *s, const struct fal_coord_past *past)
{
	const struct fal_files *j = s->job;
	const uint64_t every = fal_coord_status(s->coord).clocks / j->job.epochs;
	s->show.epoch = judges_all(j) ? past->judged_clock / every : past->epoch;
}

/* With the accuracy, if each epoch is judged: that is known a little later, when others
 * may be over. */
static void
show_epoch(struct ps_server *s, const struct fal_coord_status *now)
{
	const struct fal_files *j = s->job;
	const bool judges = judges_all(j);
	const uint64_t every = now->clocks / j->job.epochs;
	const uint64_t last = judges ? now->judged / every : now->epoch;
	struct ps_show *w = &s->show;
	const double t = ps_now();
	/* Not every epoch that is shorter than a second gets a line. */
	if (last <= w->epoch || last > now->epoch ||
	    (t < w->next && last < j->job.epochs))
		return;
	w->epoch = last;
	w->next = t + 1;
	char loss[32] = "", accuracy[32] = "";
	const double is = fal_coord_epoch_loss(s->coord, last);
	if (!isnan(is))
		snprintf(loss, sizeof(loss), "loss %.4f, ", is);
	if (judges)
		snprintf(accuracy, sizeof(accuracy), "accuracy %.4f, ", now->accuracy);
	ps_log(s->run, "epoch %" PRIu64 " of %" PRIu64 ": %s%s%.1f s", last,
	       (uint64_t)j->job.epochs, loss, accuracy, seconds_worked(s, t));
}

/* ---- the end, and time --- */

static void
on_wake(uv_timer_t *t)
{
	struct ps_server *s = t->data;
	if (s->out->why.text[0] == '\0')
		ps_fail(s, fal_coord_tick(s->coord, ps_now()), "scheduler");
	ps_after_event(s);
}

static void
on_flush(uv_timer_t *t)
{
	struct ps_server *s = t->data;
	ps_tell_refusals(s, false);
	ps_more_all(s); /* data that were to be had again */
	ps_put_off_held(s);
	ps_record_flush(&s->run->record);
	ps_tell_waiting(s);
}

static void
bid_farewell_all(struct ps_server *s)
{
	for (size_t i = 0; i < s->sessions.n; i++)
		ps_bid_farewell(s->sessions.v[i]);
}

/* No new sessions; the others end when what was sent has left. */
static void
stop(struct ps_server *s)
{
	if (s->stopping)
		return;
	s->stopping = true;
	ps_fleet_drain_over(s);
	if (s->out->again > 0) {
		fal_listen_pause(s->listen);
	} else {
		fal_listen_close(s->run->host.listen);
		s->run->host.listen = NULL;
	}
	s->listen = NULL;
	ps_tell_refusals(s, true);
	bid_farewell_all(s);
	ps_close(&s->wake);
	ps_close(&s->flush);
	ps_close(&s->leave);
	ps_fleet_close(s);
	if (s->above != NULL)
		above_close(s->above);
}

/* Ends, and tells the workers why. */
static void
stop_for(struct ps_server *s, enum fal_msg_type type, const char *why)
{
	ps_tell_all(s, type, why);
	stop(s);
}

/* Sessions that have not taken the last message by now end without it. */
static void
on_end(uv_timer_t *t)
{
	struct ps_server *s = t->data;
	while (s->sessions.n > 0)
		ps_lose(s->sessions.v[s->sessions.n - 1],
			"it did not take the last word in time");
	if (s->above != NULL)
		above_kill(s->above);
}

/* The job is over, well or not. */
static void
conclude(struct ps_server *s)
{
	struct fal_coord_status status = fal_coord_status(s->coord);
	double now = ps_now();
	struct fal_coord_left left;
	bool coming = false;
	/* With other trainers the job goes on from its last snapshot. */
	const bool any = status.failed ? fal_coord_kept(s->coord, &left) &&
						 !(left.trainers && ps_keep_any(s))
				       : fal_coord_newest(s->coord, &left);
	const float *params = any ? ps_fleet_params(s, left.version, &coming) : NULL;
	if (coming) /* ps_after_event follows */
		return;
	ps_tell_refusals(s, true);
	ps_fleet_drain_over(s);
	s->saved = true;
	s->out->seconds = seconds_worked(s, now);
	fal_progress_end();
	if (any)
		s->out->clock = left.clock;
	const char *why = NULL;
	if (!status.failed && s->out->why.text[0] != '\0') {
		status.failed = true;
		status.why = why = s->out->why.text;
	} else if (status.failed) { /* it outlives the coordinator */
		fal_diag_set(&s->out->why, 0, "%s", status.why);
		status.why = s->out->why.text;
	}
	s->out->status = status;
	s->out->best = s->best.is;
	if (!status.failed)
		s->out->average = fal_shard_set_average(s->shard_set);
	ps_publisher_forget(&s->wants.publisher); /* nobody computes on them any more */
	if (params != NULL)
		s->err = ps_result_keep(s->run, params, s->diag);
	const struct fal_coord_result result = { s->out->sha256, s->out->hash,
						 s->control.journal.chain.link,
						 s->out->seconds };
	fal_coord_finish(s->coord, now, &result,
			 s->err < 0 ? "the result could not be kept" : why);
	if (params != NULL && s->err == FAL_OK)
		s->err = ps_result_tell(s->run, s->diag);
	ps_fleet_end(s, FAL_MSG_DONE,
		     status.failed ? "the job has failed" : "the job is done");
	bid_farewell_all(s);
	if (s->run->opt.exit_when_done || s->err < 0 || status.failed)
		stop(s);
	else
		fal_cli_notify("STATUS=done");
}

/* We cannot go on; the job can, from its last snapshot. */
static void
give_up(struct ps_server *s)
{
	s->err = fal_diag_set(s->diag, s->broken,
			      "%s: %s; goes on from its last snapshot when it is "
			      "started again",
			      s->job->job.name, s->out->why.text);
	stop_for(s, FAL_MSG_LATER, "the coordinator stops, and may be back");
}

void
ps_abandon(struct ps_server *s, int err)
{
	s->err = err;
	stop_for(s, FAL_MSG_REFUSE, s->diag->text);
}

/* How far it is; before its shards are there, from where it is to go on. */
static struct fal_coord_status
how_far(const struct ps_server *s)
{
	if (s->coord != NULL)
		return fal_coord_status(s->coord);
	const struct fal_grid grid = fal_job_grid(&s->job->job, s->job->train.n);
	return (struct fal_coord_status){ .clock = s->found != NULL ? s->found->clock : 0,
					  .clocks = fal_grid_clocks(&grid) };
}

void
ps_again(struct ps_server *s, uint32_t had)
{
	if (s->leaving) { /* nobody waits for what they would have sent */
		s->reached = s->keep.last;
		leave(s);
		return;
	}
	s->out->again = had;
	s->out->status = how_far(s);
	stop_for(s, FAL_MSG_LATER,
		 "a shard is lost; the job goes on from its last snapshot");
}

void
ps_above_end(struct ps_server *s, int code, const char *why)
{
	s->out->code = code;
	s->out->above = true;
	ps_tell_refusals(s, true);
	const struct fal_coord_result none = { .journal = "" };
	fal_coord_finish(s->coord, ps_now(), &none, code == FAL_EXIT_DONE ? NULL : why);
	stop(s);
}

/* Nothing more is done for the coordinator above: the trace ends, and then the server. */
static void
part(struct ps_server *s, const char *why, const char *word)
{
	ps_tell_refusals(s, true);
	fal_coord_parted(s->coord, ps_now(), why);
	stop_for(s, FAL_MSG_LATER, word);
}

void
ps_above_lost(struct ps_server *s)
{
	s->out->again = 1;
	part(s, "the coordinator above is gone",
	     "the coordinator above is gone, and may be back");
}

void
ps_above_left(struct ps_server *s)
{
	s->out->code = FAL_EXIT_DONE;
	s->out->above = true;
	part(s, "it was drained above", "the group server was drained");
}

/* By a signal. */
static void
leave(struct ps_server *s)
{
	if (!s->saved) {
		s->out->stopped = s->out->signalled = true;
		s->out->status = how_far(s);
		ps_tell_all(s, FAL_MSG_LATER, "the coordinator stops, and may be back");
	}
	stop(s);
}

void
ps_after_event(struct ps_server *s)
{
	ps_tell_refused(s);
	if (s->stopping || s->saved || s->coord == NULL)
		return;
	if (s->above != NULL)
		above_event(s->above);
	if (s->stopping)
		return;
	ps_fleet_offer(s); /* or our own version's bytes would go first */
	ps_publish_wanted(s);
	if (s->out->why.text[0] != '\0') {
		if (ps_keep_any(s))
			give_up(s);
		else
			conclude(s);
		return;
	}
	ps_fleet_moves(s);
	struct fal_coord_status status = fal_coord_status(s->coord);
	if (s->began == 0 && status.workers >= s->run->opt.min_workers)
		s->began = ps_now();
	if (s->progress.out != NULL)
		show_bar(s, &status);
	else
		show_epoch(s, &status);
	if (s->began != 0)
		ps_tell_sizes(s, status.workers);
	ps_best_event(s, &status);
	ps_control_export(s);
	if (status.done && !status.failed &&
	    (!ps_keep_end(s, status.clock) || s->best.busy))
		return;
	if (status.failed && s->above != NULL) {
		ps_log(s->run, "%s", status.why);
		ps_above_end(s, FAL_EXIT_NO, status.why);
		return;
	}
	if (status.done || status.failed) {
		conclude(s);
		return;
	}
	if (status.stopped) {
		if (!s->out->stopped)
			ps_keep_last(s);
		s->out->stopped = true;
		s->out->status = status;
		if (s->keep.missing > 0)
			return;
		ps_fleet_end(s, FAL_MSG_DONE, "the job was stopped");
		stop_for(s, FAL_MSG_DONE, "the job was stopped");
		return;
	}
	ps_keep_event(s, status.clock);
	if (s->leaving && !ps_keep_soon(s)) {
		leave(s);
		return;
	}
	if (s->run->compress == FAL_COMPRESS_AUTO &&
	    status.clock >= s->measured + COMPRESS_EVERY) {
		s->measured = status.clock;
		for (size_t i = 0; i < s->sessions.n; i++)
			fal_chan_compress(s->sessions.v[i]->chan, FAL_COMPRESS_AUTO);
	}
	double wake = fal_coord_wake(s->coord), in = (wake - ps_now()) * 1e3;
	if (wake == INFINITY)
		uv_timer_stop(&s->wake);
	else
		uv_timer_start(&s->wake, on_wake, in > 0 ? (uint64_t)ceil(in) : 0, 0);
}

static void
on_leave(uv_timer_t *t)
{
	leave(t->data);
}

/* Contributions on their way to the next version may take a moment, and sessions that are
 * to hear of the end may take another one; a second signal leaves no time for the
 * contributions. */
static void
stop_soon(struct ps_server *s)
{
	fal_cli_notify("STOPPING=1");
	const bool again = s->run->host.signalled;
	s->run->host.signalled = true;
	uv_timer_start(&s->end, on_end, !again ? END_MS : s->stopping ? 0 : WORD_MS, 0);
	if (s->stopping) {
		/* Not to begin again: it ends where it would have gone on. */
		if (s->out->again > 0)
			s->out->stopped = s->out->signalled = true;
		if (s->out->again > 0 && ps_keep_any(s))
			s->out->status.clock = s->keep.last;
		s->out->again = 0;
		return;
	}
	s->leaving = true;
	if (!again)
		ps_fleet_move_abort(s);
	/* Images of shards elsewhere take a moment, in which clocks go on. */
	if (!again && s->coord != NULL)
		s->reached = fal_coord_status(s->coord).clock;
	if (again || s->saved || !ps_keep_last(s)) {
		leave(s);
		return;
	}
	uv_timer_start(&s->leave, on_leave, LEAVE_MS, 0);
}

/* SIGHUP: the keyring is read again; who is not in it any more is out. */
static void
renew_keyring(struct ps_server *s)
{
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
		    fal_text_s(n));
	s->run->keys = fresh;
	if (s->listen != NULL)
		fal_listen_keyring(s->listen, fresh);
	fal_keyring_free(old);
	ps_count_keys(s);
}

/* ---- the job begins, or goes on --- */

/* Reads the journal.  The policy that the job begins with is the journal's last one, or
 * the job's own; or that of the snapshot that it goes on from. */
static int
begin_policy(struct ps_server *s)
{
	struct ps_run *r = s->run;
	const struct fal_found *found = s->found;
	const struct fal_job *job = &r->job.job;
	const struct fal_policy own = { .rule = job->rule,
					.no_clones = job->clones == FAL_JOB_CLONES_NO };
	char text[FAL_RULE_TEXT];
	int err = ps_control_open(&s->control, ps_state_path(&r->state, "policy.jsonl"),
				  &own, found != NULL ? &found->is : NULL, s->diag);
	if (err == FAL_OK && r->accepted[0] != '\0')
		err = ps_control_accept(&s->control, r->before.accepted, found->clock,
					found->is.past.version);
	s->policy = found != NULL ? &found->is.policy : &s->control.last;
	s->policy_by = found != NULL ? found->is.past.by : s->control.since.by;
	if (err == FAL_OK && strcmp(s->policy_by, "job") != 0)
		fal_cli_err(PROG, "%s: goes on with the policy %s, set by '%s'",
			    job->name, fal_rule_text(&s->policy->rule, text),
			    s->policy_by);
	return err;
}

/* The coordinator's configuration by job, model and data, and the state where the
 * coordinator begins or goes on. */
static struct fal_coord_conf
conf_of(const struct ps_server *s)
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
		/* Without layers the loss function is unknown. */
		.guess = j->model->layers > 0 ? log(j->model->classes) : 0,
		.skips = j->job.nonfinite == FAL_JOB_NONFINITE_SKIP,
		.audit_sums = j->job.audit == FAL_JOB_AUDIT_SUMS,
		.hashes = j->job.hashes > 0 ? j->job.hashes
					    : fal_leaf_every(j->model->params),
		.task_hashes = fal_job_hashes_tasks(&j->job),
		.verify = j->job.verify / 100,
		.verify_stop = j->job.verify_stop == FAL_JOB_VERIFY_STOP_YES,
		.lanes_start = j->job.lanes_start,
		.preclaims = true,
		.psld = j->job.placement == FAL_JOB_PLACEMENT_PSLD && s->above == NULL,
		.text_n = { (uint32_t)j->job_text.n, (uint32_t)j->model_text.n,
			    (uint32_t)j->manifest_bytes.n },
		.policy = s->policy,
		.policy_by = s->policy_by,
		.min_workers = (uint32_t)s->run->opt.min_workers,
		.tickets = s->tickets,
		.shards = fal_shard_set_shards(s->shard_set),
		.map = &s->fleet.map,
		.past = s->found != NULL ? &s->found->is.past : NULL,
		.before = s->run->before,
	};
	if (j->job.data_hash != NULL)
		(void)fal_unhex(j->job.data_hash, FAL_DATA_HASH, conf.data); /* judged */
	return conf;
}

static int
new_coord(struct ps_server *s)
{
	struct fal_coord_ops ops = { .arg = s,
				     .send = ps_send,
				     .model = ps_send_model,
				     .close = ps_close_peer,
				     .trace = ps_trace,
				     .came = ps_came,
				     .went = ps_went,
				     .late = ps_late,
				     .odd = ps_odd,
				     .unlike = ps_unlike,
				     .unstepped = ps_unstepped,
				     .journal = ps_control_journal,
				     .changed = ps_control_changed,
				     .marked = ps_keep_marked,
				     .moved = ps_fleet_moved,
				     .claimed = above_claimed,
				     .given = above_given,
				     .evaluated = above_evaluated,
				     .shards = ps_fleet_ops };
	struct fal_coord_conf conf = conf_of(s);
	struct fal_line_place place = { 0 };
	struct fal_line_above above;
	char print[FAL_KEY_FINGERPRINT + 1];
	ops.shards.arg = s;
	if (s->above != NULL) {
		const struct fal_client_key *key = s->run->key;
		fal_client_key_print(key, print);
		above = (struct fal_line_above){ s->run->opt.upstream, key->name, print };
		conf.above = &above;
	}
	fal_random_bytes(&conf.entropy, sizeof(conf.entropy));
	fal_files_place(s->job, s->fleet.places, &place);
	place.map = conf.tickets.epoch;
	conf.place = &place;
	int err = fal_coord_new(&conf, &ops, ps_now(), &s->coord);
	fal_secret_wipe(&conf.tickets, sizeof(conf.tickets));
	fal_files_place_free(&place);
	if (err < 0)
		return s->diag->text[0] != '\0'
			       ? err
			       : fal_diag_set(s->diag, err, "%s", fal_strerror(err));
	for (size_t i = 0; i < s->control.laters; i++) {
		const struct ps_later *l = &s->control.later[i];
		fal_coord_again(s->coord, &l->policy, l->since.clock, l->since.by);
	}
	s->progress = fal_progress_begin(s->job->job.name,
					 fal_coord_status(s->coord).clocks, ps_now());
	return FAL_OK;
}

int
ps_begin(struct ps_server *s)
{
	const struct fal_found *found = s->found;
	s->wants.publisher.shard_set = s->shard_set;
	s->wants.publisher.parallel = fal_threads_parallel(s->run->threads);
	s->wants.publisher.placed = s->job->job.placement == FAL_JOB_PLACEMENT_PSLD;
	memcpy(s->wants.publisher.job_hash, s->job->hash, FAL_HASH_BYTES);
	int err = new_coord(s);
	s->keep.at = ps_now();
	/* The parameters that the job begins with are the first snapshot. */
	if (err == FAL_OK && found == NULL && s->run->snapshots >= 0)
		err = fal_coord_mark_now(s->coord, ps_now());
	if (err < 0)
		return err;
	if (found != NULL) {
		s->keep.clock = s->keep.last = found->clock;
		s->keep.good = true; /* whatever comes before the next one */
		show_from(s, &found->is.past);
	}
	ps_count_keys(s);
	ps_accept_again(s);
	/* A job that goes on may be at its end already. */
	return found != NULL ? fal_coord_heard(s->coord, ps_now()) : FAL_OK;
}

/* ---- setting up --- */

/* Descriptors are for sessions and, a quarter, for handshakes; those that the job itself
 * needs to its end are open by now, but for those that listen, with what is beside each,
 * and a few are spared for keyring and journal.  FAL_EIO with a diagnosis: no worker
 * could ever come. */
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
	s->room = (uint32_t)(all - half_open);
	*handshakes = half_open > 0 ? (uint32_t)half_open : 1;
	return FAL_OK;
}

static int
tell_ready(struct ps_server *s)
{
	const char *text = fal_listen_text(s->listen);
	s->out->bound.n = fal_listen_addrs(s->listen, s->out->bound.v);
	ps_log(s->run, "listening on %s", text);
	ps_count_keys(s);
	if (s->work_keys == 1)
		fal_cli_err(PROG, "one key for all workers: they cannot be told apart, "
				  "and nobody can contradict what one of them sends");
	else if (s->work_keys == 2)
		fal_cli_err(PROG,
			    "two keys for all workers: where they contradict each "
			    "other nobody can tell who lies, and the honest one may "
			    "be sent away");
	fal_cli_notify("READY=1\nSTATUS=training");
	const int fd = (int)s->run->opt.ready_fd - 1;
	return fd < 0 ? FAL_OK : fal_cli_ready(fd, text, s->diag);
}

static void
init_handles(struct ps_server *s)
{
	uv_timer_init(s->loop, &s->wake);
	uv_timer_init(s->loop, &s->flush);
	uv_timer_init(s->loop, &s->leave);
	uv_timer_init(s->loop, &s->end);
	uv_unref((uv_handle_t *)&s->end);
	s->wake.data = s->flush.data = s->leave.data = s->end.data = s;
	uv_update_time(s->loop); /* it may not have run for a while */
	uv_timer_start(&s->flush, on_flush, FLUSH_MS, FLUSH_MS);
}

static void
on_signal(uv_signal_t *h, int signum)
{
	struct ps_server *s = h->loop->data;
	if (signum == SIGHUP)
		renew_keyring(s);
	else
		stop_soon(s);
}

/* The loop and its signals are there from the first incarnation on. */
static int
begin_host(struct ps_server *s)
{
	static const int heard[] = { SIGINT, SIGTERM, SIGHUP };
	struct ps_host *h = &s->run->host;
	const bool anew = h->loop.data == NULL;
	const int bad = anew ? uv_loop_init(&h->loop) : 0;
	if (bad < 0)
		return fal_diag_set(s->diag, FAL_EIO, "%s", uv_strerror(bad));
	for (size_t i = 0; anew && i < 3; i++) {
		uv_signal_init(&h->loop, &h->heard[i]);
		uv_unref((uv_handle_t *)&h->heard[i]);
		uv_signal_start(&h->heard[i], on_signal, heard[i]);
	}
	h->loop.data = s;
	return FAL_OK;
}

/* Completes the little work that is left, whatever comes: a signal after the first one
 * must not end the process by itself. */
void
ps_host_close(struct ps_host *h)
{
	if (h->loop.data == NULL)
		return;
	fal_listen_close(h->listen);
	for (size_t i = 0; i < 3; i++)
		ps_close(&h->heard[i]);
	uv_run(&h->loop, UV_RUN_DEFAULT);
	uv_loop_close(&h->loop);
	if (!h->signalled)
		return;
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
}

/* Reads the policy, places blocks if all shards are here, and listens.  0, or an error
 * with its diagnosis. */
static int
open_server(struct ps_server *s)
{
	struct ps_run *r = s->run;
	const uint64_t rate = r->opt.rate_limit;
	s->link = (struct fal_link){ .bandwidth = (double)rate, .shared = &s->busy };
	struct fal_listen_opt listen = { .addr = r->listen.v,
					 .addrs = r->listen.n,
					 .keyring = r->keys,
					 .chan.link = rate > 0 ? &s->link : NULL,
					 .chan.unseals = ps_may_unseal(&r->opt),
					 .paused = r->host.listen };
	const struct fal_listen_ops ops = { s, ps_accept, ps_log_stranger, ps_unwelcome };
	int err = begin_policy(s);
	/* Without processes of shards to wait for the job begins before anybody comes. */
	if (err == FAL_OK && ps_fleet_waits(s) == 0)
		err = ps_fleet_place(s);
	if (err == FAL_OK)
		err = share_descriptors(s, &listen.half_open);
	if (err == FAL_OK)
		err = fal_listen_start(s->loop, &listen, &ops, &s->listen, s->diag);
	if (err < 0)
		return err;
	r->host.listen = s->listen;
	return tell_ready(s);
}

int
ps_serve(struct ps_run *r, struct fal_diag *diag)
{
	struct ps_server s = { .run = r,
			       .job = &r->job,
			       .found = r->found.there ? &r->found : NULL,
			       .out = &r->out,
			       .diag = diag,
			       .loop = &r->host.loop,
			       .cache.most = PS_CACHE_MAX,
			       .control.journal.fd = -1,
			       .best.is = r->best_is,
			       .keep.now = fal_snapshot_none,
			       .near = true,
			       .wants.publisher = { .incarnation = r->state.incarnation,
						    .mixed = r->need.mixed } };
	signal(SIGPIPE, SIG_IGN);
	int err = begin_host(&s);
	if (err < 0)
		return err;
	init_handles(&s);
	ps_fleet_init(&s);
	if (r->opt.upstream != NULL)
		s.above = above_new(&s);
	err = open_server(&s);
	if (err == FAL_OK) {
		ps_after_event(&s);
	} else {
		if (s.above != NULL && s.coord != NULL) /* it gave nothing */
			fal_coord_parted(s.coord, ps_now(), "it could not begin");
		stop(&s);
	}
	uv_run(s.loop, UV_RUN_DEFAULT);
	fal_progress_end();
	ps_close(&s.end);
	uv_run(s.loop, UV_RUN_DEFAULT);
	/* Be it one of before the last one, which may have failed. */
	r->out.kept = ps_keep_any(&s) &&
		      s.keep.last >= (s.leaving ? s.reached : r->out.status.clock);
	if (s.keep.busy) /* some of it did not come any more */
		fal_snapshot_free(&s.keep.now);
	ps_wants_free(&s.wants);
	ps_cache_free(&s.cache);
	above_free(s.above);
	fal_coord_free(s.coord);
	fal_shard_set_free(s.shard_set);
	ps_fleet_free(&s.fleet);
	fal_secret_wipe(&s.tickets, sizeof(s.tickets));
	ps_control_close(&s.control);
	ps_best_free(&s.best);
	free(s.sessions.v);
	free(s.who.seen);
	return err < 0 ? err : s.err;
}
