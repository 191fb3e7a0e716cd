/* falcon-ps --join: one connection after another, and what lives longer than they do. */
#include "join.h"

#include "base/build.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/notify.h"
#include "net/dial.h"
#include "sec/secret.h"
#include "session.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PART_MS = 10000 }; /* for workers to take what they were sent */

static void dial(struct ps_join *j);

struct fal_chan_opt
join_chan_opt(const struct ps_join *j)
{
	return (struct fal_chan_opt){ .link = j->link.bandwidth > 0 ? &j->link : NULL };
}

void
join_end(struct ps_join *j, int code, const char *why)
{
	if (j->ending)
		return;
	if (why != NULL)
		fal_cli_err(PROG, "%s", why);
	j->ending = true;
	j->code = code;
	if (j->chan != NULL && j->open)
		fal_chan_close(j->chan);
	else if (j->chan != NULL)
		fal_chan_kill(j->chan);
	place_forget(j);
	fal_listen_close(j->listen);
	j->listen = NULL;
	ps_close(&j->timer);
	/* Another signal is heard, and changes nothing. */
	uv_unref((uv_handle_t *)&j->on_int);
	uv_unref((uv_handle_t *)&j->on_term);
}

int
join_piece(void *join, const struct fal_buf *msg)
{
	const struct ps_join *j = join;
	int err = fal_chan_send(j->chan, msg, FAL_SEND_CONTROL);
	if (err < 0 && err != FAL_ENOMEM) { /* what is lost ends the incarnation there */
		fal_chan_close(j->chan);
		err = FAL_OK;
	}
	return err;
}

void
join_say(struct ps_join *j, struct fal_msg *m)
{
	m->incarnation = j->incarnation;
	if (ps_chan_send(j->chan, m, FAL_SEND_CONTROL) < 0)
		fal_chan_close(j->chan);
}

static void
on_open(void *arg, struct fal_chan *c)
{
	struct ps_join *j = arg;
	const struct ps_options *o = &j->run->opt;
	struct fal_msg m = { .type = FAL_MSG_JOIN };
	(void)c;
	j->open = true;
	j->incarnation = 0; /* not known before PLACE */
	m.join.schema = fal_msg_schema();
	snprintf(m.join.version, sizeof(m.join.version), "%s", fal_build());
	snprintf(m.join.address, sizeof(m.join.address), "%s",
		 fal_listen_text(j->listen));
	memcpy(m.join.public, fal_keyring_public(j->keys), sizeof(m.join.public));
	m.join.shards = (uint32_t)o->shards;
	m.join.standby = o->standby;
	memcpy(m.join.instance, j->instance, sizeof(m.join.instance));
	join_say(j, &m);
	if (fal_retry_reached(&j->retry, uv_hrtime()))
		fal_cli_err(PROG, "%s: connected again", o->join);
	else
		fal_cli_err(PROG, "%s: joined, listening on %s", o->join,
			    fal_listen_text(j->listen));
	fal_cli_notify("READY=1\nSTATUS=joined");
}

void
join_parted(struct ps_join *j)
{
	if (j->parting && !j->ending && guest_parted(j))
		join_end(j, FAL_EXIT_DONE, j->bye.text);
}

static void
on_parting(uv_timer_t *t)
{
	struct ps_join *j = t->data;
	join_end(j, FAL_EXIT_DONE, j->bye.text);
}

static void
on_msg(void *arg, struct fal_chan *c, const uint8_t *p, size_t n)
{
	struct ps_join *j = arg;
	struct fal_msg m;
	struct fal_diag why;
	(void)c;
	int err = fal_msg_get(p, n, &m);
	if (j->ending || j->parting)
		return;
	if (err == FAL_OK && m.type == FAL_MSG_DONE) {
		fal_diag_set(&j->bye, 0, "done: %s", m.done.why);
		/* What workers were sent and have not got yet they may wait for. */
		j->parting = true;
		guest_part(j);
		uv_timer_start(&j->timer, on_parting, PART_MS, 0);
		join_parted(j);
	} else if (err == FAL_OK && m.type == FAL_MSG_LATER) {
		fal_diag_set(&j->later, 0, "%s: %s", j->run->opt.join, m.later.why);
	} else if (err == FAL_OK && m.type == FAL_MSG_REFUSE) {
		fal_diag_set(&why, 0, "%s: refused: %s", j->run->opt.join, m.refuse.why);
		join_end(j, m.refuse.key != 0 ? FAL_EXIT_NOPERM : FAL_EXIT_NO, why.text);
	} else {
		err = err == FAL_OK ? place_msg(j, &m) : err;
		if (err < 0) {
			fal_diag_set(&why, 0, "%s: %s: %s", j->run->opt.join,
				     fal_msg_name(m.type), fal_strerror(err));
			join_end(j, FAL_EXIT_NO, why.text);
		}
	}
}

static void
on_room(void *arg, struct fal_chan *c)
{
	(void)c;
	place_more(arg);
}

static void
on_retry(uv_timer_t *t)
{
	dial(t->data);
}

static void
on_close(void *arg, struct fal_chan *c, int err, const char *reason)
{
	struct ps_join *j = arg;
	(void)c;
	j->chan = NULL;
	j->open = false;
	if (j->ending || j->parting)
		return;
	place_forget(j);
	const int code = fal_retry_after(&j->retry, PROG, err, reason, &j->later, false);
	if (code >= 0)
		join_end(j, code, reason);
	else
		uv_timer_start(&j->timer, on_retry,
			       fal_retry_pause_ms(&j->retry, uv_hrtime()), 0);
}

static void
dial(struct ps_join *j)
{
	const struct fal_chan_ops ops = { .arg = j,
					  .on_open = on_open,
					  .on_msg = on_msg,
					  .on_room = on_room,
					  .on_close = on_close };
	const struct fal_chan_opt opt = join_chan_opt(j);
	int err = fal_dial(&j->loop, &j->run->coordinator, j->run->key, &opt, &ops,
			   &j->chan);
	struct fal_diag why;
	if (err < 0) {
		fal_diag_set(&why, err, "%s: %s", j->run->opt.join, fal_strerror(err));
		join_end(j, err == FAL_EINVAL ? FAL_EXIT_USAGE : FAL_EXIT_NO, why.text);
	}
}

static void
on_signal(uv_signal_t *h, int signum)
{
	(void)signum;
	fal_cli_notify("STOPPING=1");
	join_end(h->data, FAL_EXIT_DONE, NULL);
}

/* Its listener, with a key of its own that nobody has seen before. */
static int
listen_for(struct ps_join *j, struct fal_diag *diag)
{
	const struct fal_listen_ops ops = { .arg = j, .on_accept = guest_accept };
	j->secret = fal_secret_alloc(FAL_KEY_BYTES);
	if (j->secret == NULL)
		return fal_diag_set(diag, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
	fal_random_bytes(j->secret, FAL_KEY_BYTES);
	int err = guest_keys(j);
	if (err < 0)
		return fal_diag_set(diag, err, "%s", fal_strerror(err));
	struct fal_listen_opt listen = { .addr = &j->run->listen.v[0],
					 .keyring = j->keys,
					 .chan = join_chan_opt(j) };
	listen.chan.unseals = ps_may_unseal(&j->run->opt);
	err = fal_listen_start(&j->loop, &listen, &ops, &j->listen, diag);
	const int fd = (int)j->run->opt.ready_fd - 1;
	return err < 0 || fd < 0 ? err
				 : fal_cli_ready(fd, fal_listen_text(j->listen), diag);
}

int
ps_run_join(const struct ps_run *run)
{
	struct ps_join *j = fal_calloc(1, sizeof(*j));
	struct fal_diag diag = { "" };
	if (j == NULL)
		return ps_run_say(&diag, FAL_ENOMEM);
	const int bad = uv_loop_init(&j->loop);
	if (bad < 0) {
		free(j);
		fal_diag_set(&diag, FAL_EIO, "%s", uv_strerror(bad));
		return ps_run_say(&diag, FAL_EIO);
	}
	signal(SIGPIPE, SIG_IGN);
	j->run = run;
	j->link = (struct fal_link){ .bandwidth = (double)run->opt.rate_limit,
				     .shared = &j->busy };
	j->retry.lost = uv_hrtime();
	fal_random_bytes(j->instance, sizeof(j->instance));
	uv_timer_init(&j->loop, &j->timer);
	uv_signal_init(&j->loop, &j->on_int);
	uv_signal_init(&j->loop, &j->on_term);
	j->timer.data = j->on_int.data = j->on_term.data = j;
	uv_signal_start(&j->on_int, on_signal, SIGINT);
	uv_signal_start(&j->on_term, on_signal, SIGTERM);
	int err = listen_for(j, &diag);
	if (err < 0)
		join_end(j, fal_cli_exit(err), diag.text);
	else
		dial(j);
	uv_run(&j->loop, UV_RUN_DEFAULT);
	ps_close(&j->on_int);
	ps_close(&j->on_term);
	uv_run(&j->loop, UV_RUN_DEFAULT);
	uv_loop_close(&j->loop);
	ps_wants_free(&j->wants);
	const int code = j->code;
	fal_keyring_free(j->keys);
	fal_secret_free(j->secret);
	free(j->guest);
	image_queue_free(&j->images);
	free(j);
	return code;
}
