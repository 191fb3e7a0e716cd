/* The loop: setting up, timers, signals and the end.  Who is served is peers.c's. */
#include "server.h"

#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/notify.h"
#include "net/options.h"
#include "sec/secret.h"
#include "trace/chain.h"

#include <errno.h>
#include <fcntl.h>
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
	s->err = fal_diag_set(s->diag, err, "%s: %s", what, fal_strerror(err));
	ps_tell_all(s, FAL_MSG_REFUSE, s->diag->text);
	stop(s);
}

int
ps_affords(struct ps_server *s, const struct fal_rule *rule, uint64_t workers,
	   uint64_t more, struct fal_diag *why)
{
	struct ps_need_of of = s->opt->need;
	of.rule = rule;
	of.workers = workers > of.workers ? workers : of.workers;
	return ps_afford(&of, more, s->opt->max_memory, why);
}

/* --- the end, and time --- */

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
	ps_record_flush(s->opt->record);
	ps_tell_waiting(s);
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
		fal_listen_close(s->opt->host->listen);
		s->opt->host->listen = NULL;
	}
	s->listen = NULL;
	ps_tell_refusals(s, true);
	for (size_t i = 0; i < s->sessions.n; i++)
		ps_bid_farewell(s->sessions.v[i]);
	ps_close(&s->wake);
	ps_close(&s->flush);
	ps_close(&s->leave);
	ps_fleet_close(s);
	if (s->above != NULL)
		above_close(s->above);
}

/* Who has not taken the last word by now does without. */
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
	s->out->seconds = ps_worked(s, now);
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
		s->out->average = fal_rack_average(s->rack);
	ps_publisher_forget(&s->wants.publisher); /* nobody computes on them any more */
	if (params != NULL)
		s->err = s->opt->keep(s->opt->arg, params, s->out, s->diag);
	const struct fal_coord_result result = { s->out->sha256, s->out->hash,
						 s->control.journal.chain.link,
						 s->out->seconds };
	fal_coord_finish(s->coord, now, &result,
			 s->err < 0 ? "the result could not be kept" : why);
	if (params != NULL && s->err == FAL_OK)
		s->err = s->opt->tell(s->opt->arg, s->out, s->diag);
	ps_fleet_end(s, FAL_MSG_DONE,
		     status.failed ? "the job has failed" : "the job is done");
	for (size_t i = 0; i < s->sessions.n; i++)
		ps_bid_farewell(s->sessions.v[i]);
	if (s->opt->exit_when_done || s->err < 0 || status.failed)
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
			      s->opt->job->job.name, s->out->why.text);
	ps_tell_all(s, FAL_MSG_LATER, "the coordinator stops, and may be back");
	stop(s);
}

void
ps_abandon(struct ps_server *s, int err)
{
	s->err = err;
	ps_tell_all(s, FAL_MSG_REFUSE, s->diag->text);
	stop(s);
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
	s->out->status = s->coord != NULL ? fal_coord_status(s->coord)
					  : (struct fal_coord_status){ 0 };
	ps_tell_all(s, FAL_MSG_LATER,
		    "a shard is lost; the job goes on from its last "
		    "snapshot");
	stop(s);
}

void
ps_above_end(struct ps_server *s, int code, const char *why)
{
	s->out->code = code;
	s->out->above = true;
	const struct fal_coord_result none = { .journal = "" };
	fal_coord_finish(s->coord, ps_now(), &none, code == FAL_EXIT_DONE ? NULL : why);
	for (size_t i = 0; i < s->sessions.n; i++)
		ps_bid_farewell(s->sessions.v[i]);
	stop(s);
}

void
ps_above_lost(struct ps_server *s)
{
	s->out->again = 1;
	fal_coord_parted(s->coord, ps_now(), "the coordinator above is gone");
	ps_tell_all(s, FAL_MSG_LATER, "the coordinator above is gone, and may be back");
	stop(s);
}

void
ps_above_left(struct ps_server *s)
{
	s->out->code = FAL_EXIT_DONE;
	s->out->above = true;
	fal_coord_parted(s->coord, ps_now(), "it was drained above");
	ps_tell_all(s, FAL_MSG_LATER, "the group server was drained");
	stop(s);
}

/* How far it is; before its shards are there, from where it is to go on. */
static struct fal_coord_status
how_far(const struct ps_server *s)
{
	const struct fal_files *job = s->opt->job;
	const struct fal_found *found = s->opt->found;
	if (s->coord != NULL)
		return fal_coord_status(s->coord);
	const struct fal_grid grid = fal_job_grid(&job->job, job->train.n);
	return (struct fal_coord_status){ .clock = found != NULL ? found->clock : 0,
					  .clocks = fal_grid_clocks(&grid) };
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
	if (s->began == 0 && status.workers >= s->opt->min_workers)
		s->began = ps_now();
	ps_show(s, &status);
	if (s->began != 0)
		ps_tell_sizes(s, status.workers);
	ps_best_event(s, &status);
	ps_control_export(s);
	if (status.done && !status.failed &&
	    (!ps_keep_end(s, status.clock) || s->best.busy))
		return;
	if (status.failed && s->above != NULL) {
		fal_cli_err(PROG, "%s: %s", s->opt->job->job.name, status.why);
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
		ps_tell_all(s, FAL_MSG_DONE, "the job was stopped");
		ps_fleet_end(s, FAL_MSG_DONE, "the job was stopped");
		stop(s);
		return;
	}
	ps_keep_event(s, status.clock);
	if (s->leaving && !ps_keep_soon(s)) {
		leave(s);
		return;
	}
	if (s->opt->compress == FAL_COMPRESS_AUTO &&
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

/* What is on its way to the next version may take a moment, and whoever is to hear of the
 * end another one; a second signal takes none. */
static void
stop_soon(struct ps_server *s)
{
	fal_cli_notify("STOPPING=1");
	const bool again = s->opt->host->signalled;
	s->opt->host->signalled = true;
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
	if (fal_keyring_load(s->opt->keyring, &fresh, &why) < 0) {
		fal_cli_err(PROG, "%s (the old keyring holds)", why.text);
		return;
	}
	struct fal_keyring *old = *s->opt->keys;
	size_t n;
	(void)fal_keyring_keys(fresh, &n);
	fal_cli_err(PROG, "%s: read again: %zu key%s", s->opt->keyring, n, fal_text_s(n));
	*s->opt->keys = fresh;
	if (s->listen != NULL)
		fal_listen_keyring(s->listen, fresh);
	fal_keyring_free(old);
	ps_count_keys(s);
}

/* --- setting up --- */

static void
on_refused(void *arg, const char *source, const char *reason)
{
	ps_log_stranger(arg, source, reason);
}

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
	const rlim_t used = (rlim_t)lowest + SPARE + 2 * s->opt->listen->n;
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
	int fd = s->opt->ready_fd;
	fal_cli_err(PROG, "%s: listening on %s", s->opt->job->job.name, text);
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
	struct ps_host *h = s->opt->host;
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

/* What little is left to do is done, whatever comes: a signal after the first one must
 * not end it by itself. */
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

int
ps_serve(const struct ps_serve_opt *opt, struct ps_outcome *out, struct fal_diag *diag)
{
	struct ps_server s = { .opt = opt,
			       .loop = &opt->host->loop,
			       .out = out,
			       .diag = diag,
			       .cache.most = PS_CACHE_MAX };
	s.control.journal.fd = -1;
	s.best.is = opt->best_is;
	*out = (struct ps_outcome){ 0 };
	s.keep.now = fal_snapshot_none;
	signal(SIGPIPE, SIG_IGN);
	int err = begin_host(&s);
	if (err < 0)
		return err;
	init_handles(&s);
	ps_fleet_init(&s);
	if (opt->above != NULL)
		s.above = above_new(&s);
	s.near = true;
	s.wants.publisher.incarnation = opt->incarnation;
	s.wants.publisher.mixed = opt->need.mixed;
	err = opt->above != NULL && s.above == NULL
		      ? fal_diag_set(diag, FAL_ENOMEM, "out of memory")
		      : ps_begin_policy(&s);
	/* Where nobody is waited for it begins before anybody can come. */
	if (err == FAL_OK && ps_fleet_waits(&s) == 0)
		err = ps_fleet_place(&s);
	s.link = (struct fal_link){ .bandwidth = (double)opt->rate_limit,
				    .shared = &s.busy };
	struct fal_listen_opt listen = { .addr = opt->listen->v,
					 .addrs = opt->listen->n,
					 .keyring = *opt->keys,
					 .chan.link =
						 opt->rate_limit > 0 ? &s.link : NULL,
					 .chan.unseals = opt->unseals,
					 .paused = opt->host->listen };
	struct fal_listen_ops ops = { &s, ps_accept, on_refused, ps_unwelcome };
	if (err == FAL_OK)
		err = share_descriptors(&s, &listen.half_open);
	if (err == FAL_OK)
		err = fal_listen_start(s.loop, &listen, &ops, &s.listen, diag);
	if (err == FAL_OK) {
		opt->host->listen = s.listen;
		err = tell_ready(&s);
	}
	if (err == FAL_OK)
		ps_after_event(&s);
	if (err < 0) {
		if (s.above != NULL && s.coord != NULL) /* it gave nothing */
			fal_coord_parted(s.coord, ps_now(), "it could not begin");
		stop(&s);
	}
	uv_run(s.loop, UV_RUN_DEFAULT);
	fal_progress_end();
	ps_close(&s.end);
	uv_run(s.loop, UV_RUN_DEFAULT);
	/* Be it one of before the last one, which may have failed. */
	out->kept = ps_keep_any(&s) &&
		    s.keep.last >= (s.leaving ? s.reached : out->status.clock);
	if (s.keep.busy) /* some of it did not come any more */
		fal_snapshot_free(&s.keep.now);
	ps_wants_free(&s.wants);
	ps_cache_free(&s.cache);
	above_free(s.above);
	fal_coord_free(s.coord);
	fal_rack_free(s.rack);
	ps_fleet_free(&s.fleet);
	fal_secret_wipe(&s.tickets, sizeof(s.tickets));
	ps_control_close(&s.control);
	ps_best_free(&s.best);
	free(s.sessions.v);
	free(s.who.seen);
	return err < 0 ? err : s.err;
}
