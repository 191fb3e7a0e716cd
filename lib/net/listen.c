/* Accepting, and who is still welcome. */
#include "net/listen.h"

#include "base/mem.h"
#include "net/conn_priv.h"
#include "net/gate.h"
#include "net/near.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define BACKLOG 128

TAILQ_HEAD(guests, guest);

/* An address that is listened at, or what is beside it.  One that was shut is not opened
 * again: its handle closes in its own time. */
struct door {
	struct fal_listen *listen;
	bool up;
	bool near; /* beside a port: for our own user */
	union {
		uv_handle_t handle;
		uv_stream_t stream;
		uv_tcp_t tcp;
		uv_pipe_t pipe;
	} io;
	struct fal_addr bound;
	char text[FAL_ADDR_MAX + 16];
	bool waiting; /* one more is there, for the next turn */
};

/* All of them have the limits together. */
struct fal_listen {
	uv_loop_t *loop;
	struct fal_buf text;               /* of all addresses, with a NUL */
	const struct fal_keyring *keyring; /* NULL: whoever comes waits */
	struct fal_chan_opt chan_opt;
	struct fal_listen_ops ops;
	struct guests half, open; /* oldest first */
	unsigned half_n, half_max;
	unsigned accepted; /* in this turn */
	uv_check_t turn;   /* a turn is over */
	uv_timer_t review; /* of whose key has expired */
	unsigned handles;  /* that are not closed */
	struct fal_gate gate;
	size_t addrs;
	struct door door[]; /* of each address, then what is beside each */
};

/* --- guests --- */

/* A channel that was accepted, until it is gone. */
struct guest {
	struct fal_listen *listen; /* NULL: it is closed */
	struct fal_chan *chan;
	bool open;
	bool near;       /* who fails there comes again, at the port */
	int64_t expires; /* its key, once it is open */
	uint64_t from;   /* of fal_limit_source; 0: over no network */
	uint64_t group;  /* whom it is counted with: `from`, then fal_gate_group */
	TAILQ_ENTRY(guest) link;
};

/* A wrong MAC costs its source, and a right one its name and source. */
static int
on_greeting(void *arg, const uint8_t *p, size_t n, struct fal_session *s,
	    struct fal_buf *out, struct fal_diag *diag)
{
	struct guest *g = arg;
	struct fal_listen *l = g->listen;
	struct fal_greeting said;
	int err = fal_handshake_check(l->keyring, (int64_t)time(NULL), p, n, &said, diag);
	if (err == FAL_EAUTH)
		return fal_gate_wrong(&l->gate, g->from, uv_hrtime(), diag);
	if (err < 0)
		return err;
	g->group = fal_gate_group(g->from, said.name);
	err = fal_gate_right(&l->gate, g->from, g->group, said.mac, uv_hrtime(), diag);
	return err < 0 ? err : fal_handshake_answer(l->keyring, &said, s, out, diag);
}

/* Why its key is not good any more, or NULL: then g->expires says for how long. */
static const char *
judge(struct guest *g, char text[static FAL_EXPIRED_TEXT])
{
	size_t n;
	const struct fal_key *key = fal_keyring_keys(g->listen->keyring, &n);
	char fingerprint[FAL_KEY_FINGERPRINT + 1];
	const char *why = "was revoked";
	for (size_t i = 0; i < n && why != NULL; i++) {
		if (strcmp(key[i].name, fal_chan_name(g->chan)) != 0)
			continue;
		fal_key_print(&key[i], fingerprint);
		if (strcmp(fingerprint, fal_chan_fingerprint(g->chan)) != 0)
			continue;
		g->expires = key[i].expires;
		const int64_t now = time(NULL);
		why = key[i].role != fal_chan_role(g->chan) ? "has another role now"
		      : now >= key[i].expires
			      ? fal_keyring_expired(g->listen->keyring, key[i].name, now,
						    text)
			      : NULL;
	}
	return why;
}

/* Ends an open one for that. */
static void
send_away(struct guest *g, const char *what)
{
	const struct fal_listen_ops *ops = &g->listen->ops;
	struct fal_diag why;
	fal_diag_set(&why, 0, "key '%s' %s", fal_chan_name(g->chan), what);
	if (ops->on_unwelcome != NULL)
		ops->on_unwelcome(ops->arg, g->chan, why.text);
	else
		fal_chan_fail(g->chan, FAL_EPERM, "%s", why.text);
}

static void
leave_half(struct guest *g)
{
	TAILQ_REMOVE(&g->listen->half, g, link);
	g->listen->half_n--;
}

static void
on_gone(void *arg)
{
	struct guest *g = arg;
	if (g->listen != NULL && g->open)
		TAILQ_REMOVE(&g->listen->open, g, link);
	else if (g->listen != NULL)
		leave_half(g);
	free(g);
}

static void
on_half_close(void *arg, struct fal_chan *c, int err, const char *reason)
{
	const struct guest *g = arg;
	const struct fal_listen *l = g->listen;
	(void)err;
	if (l->ops.on_refused != NULL && !g->near)
		l->ops.on_refused(l->ops.arg, fal_chan_source(c), reason);
}

static void
on_half_open(void *arg, struct fal_chan *c)
{
	struct guest *g = arg;
	struct fal_listen *l = g->listen;
	char text[FAL_EXPIRED_TEXT];
	const char *why = judge(g, text);
	if (why != NULL) { /* since its handshake began */
		fal_chan_fail(c, FAL_EPERM, "key '%s' %s", fal_chan_name(c), why);
		return;
	}
	leave_half(g);
	fal_gate_proved(&l->gate, g->from, g->group);
	TAILQ_INSERT_TAIL(&l->open, g, link);
	g->open = true;
	l->ops.on_accept(l->ops.arg, c, fal_chan_name(c), fal_chan_role(c));
}

/* Whether it counts among those who are, or are not, known to hold a key. */
static bool
counts(const struct guest *g, bool proved)
{
	const enum fal_chan_state is = fal_chan_state(g->chan);
	return is != FAL_CHAN_DEAD && (is == FAL_CHAN_UNPROVEN) == proved;
}

/* The oldest handshake of the group that has most of them; `*n` of all groups. */
static struct guest *
crowded(struct fal_listen *l, bool proved, unsigned *n)
{
	struct guest *g, *d, *victim = NULL;
	unsigned most = 0, seen = 0;
	*n = 0;
	TAILQ_FOREACH(g, &l->half, link)
	*n += counts(g, proved);
	TAILQ_FOREACH(g, &l->half, link)
	{
		unsigned same = 0;
		if (seen + most >= *n)
			break;
		if (!counts(g, proved))
			continue;
		for (d = g; d != NULL; d = TAILQ_NEXT(d, link))
			same += counts(d, proved) && d->group == g->group;
		if (same > most) {
			most = same;
			victim = g;
		}
		seen++;
	}
	return victim;
}

/* If there are too many, the oldest of the group that has most gives way: a flood takes
 * the places of its own.  Those that are dead leave the list at the end of this turn. */
static void
make_room(struct fal_listen *l)
{
	if (l->half_n <= l->half_max)
		return;
	for (int proved = 0; proved < 2; proved++) {
		unsigned n;
		struct guest *victim = crowded(l, proved != 0, &n);
		while (n > l->half_max) {
			fal_chan_fail(victim->chan, FAL_ELIMIT,
				      "too many handshakes are under way");
			victim = crowded(l, proved != 0, &n);
		}
	}
}

/* False: there was no memory for it, or nothing for its slow line, so it goes on waiting.
 */
static bool
accept_one(struct door *d)
{
	struct fal_listen *l = d->listen;
	struct guest *g = fal_calloc(1, sizeof(*g));
	const struct fal_chan_ops ops = { .arg = g,
					  .on_open = on_half_open,
					  .on_close = on_half_close };
	const struct fal_chan_host host = { .arg = g,
					    .greet = on_greeting,
					    .gone = on_gone };
	if (g == NULL)
		return false;
	g->listen = l;
	g->near = d->near;
	const int err =
		fal_chan_accept(&d->io.stream, &l->chan_opt, &ops, &host, &g->chan);
	if (err < 0) {
		free(g);
		return err != FAL_ELIMIT;
	}
	if (d->near && !fal_chan_is_kin(g->chan)) {
		g->listen = NULL;
		fal_chan_kill(g->chan);
		return true;
	}
	struct sockaddr_storage ss = { 0 };
	if (fal_chan_peer(g->chan, &ss) != UV_ENOTSUP)
		g->from = g->group = fal_limit_source((struct sockaddr *)&ss);
	TAILQ_INSERT_TAIL(&l->half, g, link);
	l->half_n++;
	fal_chan_connected(g->chan);
	return true;
}

/* libuv asks no more until the one that waits is accepted. */
static void
on_connection(uv_stream_t *s, int status)
{
	struct door *d = s->data;
	if (status < 0)
		return;
	d->waiting = d->listen->keyring == NULL ||
		     d->listen->accepted++ >= FAL_LISTEN_TURN || !accept_one(d);
}

/* What had come was read in this turn, so whoever goes now has had his chance. */
static void
on_turn(uv_check_t *h)
{
	struct fal_listen *l = h->data;
	if (l->keyring == NULL)
		return;
	make_room(l);
	l->accepted = 0;
	for (struct door *d = l->door; d < l->door + 2 * l->addrs; d++) {
		l->accepted += d->waiting;
		d->waiting = d->waiting && !accept_one(d);
	}
}

/* Is it still to be looked at?  Whoever was told of one before may have closed its
 * channel, or all of this. */
static bool
stays(const struct guest *g)
{
	return g->listen != NULL && fal_chan_state(g->chan) == FAL_CHAN_OPEN;
}

/* By the time of day, however that is set. */
static void
on_review(uv_timer_t *h)
{
	struct fal_listen *l = h->data;
	const int64_t now = (int64_t)time(NULL);
	char text[FAL_EXPIRED_TEXT];
	struct guest *g;
	TAILQ_FOREACH(g, &l->open, link)
	if (stays(g) && now >= g->expires)
		send_away(g, fal_keyring_expired(l->keyring, fal_chan_name(g->chan), now,
						 text));
}

/* --- binding --- */

static void
release(struct fal_listen *l)
{
	if (--l->handles > 0)
		return;
	fal_buf_free(&l->text);
	free(l);
}

static void
on_door_closed(uv_handle_t *h)
{
	release(((struct door *)h->data)->listen);
}

/* Listens at a Unix socket, which is taken.  libuv's errors. */
static int
listen_at(struct door *d, int fd)
{
	const int err = uv_pipe_open(&d->io.pipe, fd);
	if (err == 0)
		return uv_listen(&d->io.stream, BACKLOG, on_connection);
	close(fd);
	return err;
}

/* What is beside a port is no condition of it. */
static void
open_near(struct door *d, struct fal_listen *l, const struct sockaddr *at)
{
	const int fd = fal_near_bind(at);
	if (fd < 0)
		return;
	*d = (struct door){ .listen = l, .near = true };
	uv_pipe_init(l->loop, &d->io.pipe, 0); /* cannot fail */
	d->io.handle.data = d;
	uv_unref(&d->io.handle);
	l->handles++;
	int err = listen_at(d, fd);
	d->up = err == 0;
	if (err < 0)
		uv_close(&d->io.handle, on_door_closed);
}

static int
bind_tcp(struct door *d, bool near, struct fal_diag *diag)
{
	struct addrinfo *ai, hints = { .ai_family = AF_UNSPEC,
				       .ai_socktype = SOCK_STREAM,
				       .ai_flags = AI_PASSIVE };
	char port[8], ip[INET6_ADDRSTRLEN];
	snprintf(port, sizeof(port), "%u", d->bound.port);
	int err = getaddrinfo(d->bound.what, port, &hints, &ai);
	if (err != 0)
		return fal_diag_set(diag, FAL_EIO, "%s: %s", d->text, gai_strerror(err));
	struct sockaddr_storage ss;
	int n = sizeof(ss);
	err = uv_tcp_bind(&d->io.tcp, ai->ai_addr, 0);
	freeaddrinfo(ai);
	if (err == 0)
		err = uv_tcp_getsockname(&d->io.tcp, (struct sockaddr *)&ss, &n);
	if (err == 0)
		err = uv_ip_name((struct sockaddr *)&ss, ip, sizeof(ip));
	if (err == 0 && near) /* it is there before anybody can look for it */
		open_near(d + d->listen->addrs, d->listen, (struct sockaddr *)&ss);
	if (err == 0)
		err = uv_listen(&d->io.stream, BACKLOG, on_connection);
	if (err < 0)
		return fal_diag_set(diag, err == UV_EADDRINUSE ? FAL_EEXIST : FAL_EIO,
				    "%s: %s", d->text, uv_strerror(err));
	memcpy(d->bound.what, ip, sizeof(ip));
	/* The port stands at the same place for both families. */
	d->bound.port = ntohs(((struct sockaddr_in *)&ss)->sin_port);
	return FAL_OK;
}

/* Removes a socket that nobody listens on; leaves all else. */
static void
remove_stale(const struct sockaddr_un *to)
{
	struct stat st;
	if (lstat(to->sun_path, &st) < 0 || !S_ISSOCK(st.st_mode))
		return;
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return;
	if (connect(fd, (const struct sockaddr *)to, sizeof(*to)) < 0 &&
	    errno == ECONNREFUSED)
		(void)unlink(to->sun_path);
	close(fd);
}

static int
bind_unix(struct door *d, struct fal_diag *diag)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	memcpy(to.sun_path, d->bound.what, strlen(d->bound.what));
	remove_stale(&to);
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fal_diag_set(diag, FAL_EIO, "%s: %s", d->text, strerror(errno));
	/* Linux creates the file with the mode of the socket: no moment without it. */
	if (fchmod(fd, 0600) < 0 || bind(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
		const int e = errno;
		close(fd);
		return fal_diag_set(diag, e == EADDRINUSE ? FAL_EEXIST : FAL_EIO,
				    "%s: %s", d->text, strerror(e));
	}
	int err = listen_at(d, fd);
	if (err < 0) {
		(void)unlink(to.sun_path);
		return fal_diag_set(diag, FAL_EIO, "%s: %s", d->text, uv_strerror(err));
	}
	return FAL_OK;
}

static void
on_listen_closed(uv_handle_t *h)
{
	release(h->data);
}

/* Nobody comes in any more. */
static void
shut(struct fal_listen *l)
{
	for (struct door *d = l->door; d < l->door + 2 * l->addrs; d++) {
		if (!d->up)
			continue;
		d->up = d->waiting = false;
		if (!d->near && d->bound.kind == FAL_ADDR_UNIX)
			(void)unlink(d->bound.what);
		uv_close(&d->io.handle, on_door_closed);
	}
	uv_close((uv_handle_t *)&l->turn, on_listen_closed);
	uv_close((uv_handle_t *)&l->review, on_listen_closed);
}

/* The door of an address, with what is beside it. */
static int
open_door(struct fal_listen *l, size_t i, const struct fal_listen_opt *opt,
	  struct fal_diag *diag)
{
	const struct fal_addr *at = &opt->addr[i];
	const bool tcp = at->kind == FAL_ADDR_TCP;
	struct door *d = &l->door[i];
	*d = (struct door){ .listen = l, .bound = *at };
	fal_addr_format(&d->bound, d->text);
	if (at->kind == FAL_ADDR_EXEC)
		return fal_diag_set(diag, FAL_EINVAL,
				    "exec:%.200s: a command cannot be listened on",
				    at->what);
	int err = tcp ? uv_tcp_init(l->loop, &d->io.tcp)
		      : uv_pipe_init(l->loop, &d->io.pipe, 0);
	if (err < 0)
		return fal_diag_set(diag, FAL_EIO, "%s", uv_strerror(err));
	d->io.handle.data = d;
	uv_unref(&d->io.handle);
	l->handles++;
	err = tcp ? bind_tcp(d, opt->chan.unseals, diag) : bind_unix(d, diag);
	if (err < 0) { /* what has its name is another's */
		uv_close(&d->io.handle, on_door_closed);
		return err;
	}
	d->up = true;
	fal_addr_format(&d->bound, d->text);
	fal_put_fmt(&l->text, "%s%s", i > 0 ? "," : "", d->text);
	return FAL_OK;
}

int
fal_listen_start(uv_loop_t *loop, const struct fal_listen_opt *opt,
		 const struct fal_listen_ops *ops, struct fal_listen **out,
		 struct fal_diag *diag)
{
	const size_t addrs = opt->addrs > 0 ? opt->addrs : 1;
	struct fal_listen *l = opt->paused;
	int err = FAL_OK;
	assert(addrs <= FAL_ADDRS_MAX);
	if (l == NULL)
		l = fal_xcalloc(1, sizeof(*l) + 2 * addrs * sizeof(l->door[0]));
	l->keyring = opt->keyring;
	l->chan_opt = opt->chan;
	l->ops = *ops;
	l->half_max = opt->half_open != 0 ? opt->half_open : FAL_LISTEN_HALF_OPEN;
	if (opt->paused != NULL) {
		on_turn(&l->turn); /* those who wait come in */
		*out = l;
		return FAL_OK;
	}
	l->loop = loop;
	l->addrs = addrs;
	fal_gate_init(&l->gate);
	TAILQ_INIT(&l->half);
	TAILQ_INIT(&l->open);
	uv_check_init(loop, &l->turn); /* cannot fail */
	uv_check_start(&l->turn, on_turn);
	uv_timer_init(loop, &l->review);
	uv_timer_start(&l->review, on_review, FAL_LISTEN_REVIEW_MS, FAL_LISTEN_REVIEW_MS);
	uv_unref((uv_handle_t *)&l->turn);
	uv_unref((uv_handle_t *)&l->review);
	l->handles = 2;
	l->turn.data = l->review.data = l;
	for (size_t i = 0; i < addrs && err == FAL_OK; i++)
		err = open_door(l, i, opt, diag);
	fal_put_u8(&l->text, '\0');
	if (l->text.err < 0)
		fal_out_of_memory();
	if (err < 0) {
		shut(l);
		return err;
	}
	*out = l;
	return FAL_OK;
}

const char *
fal_listen_text(const struct fal_listen *l)
{
	return (const char *)l->text.p;
}

size_t
fal_listen_addrs(const struct fal_listen *l, struct fal_addr out[static FAL_ADDRS_MAX])
{
	for (size_t i = 0; i < l->addrs; i++)
		out[i] = l->door[i].bound;
	return l->addrs;
}

void
fal_listen_keyring(struct fal_listen *l, const struct fal_keyring *keyring)
{
	struct guest *g;
	l->keyring = keyring;
	TAILQ_FOREACH(g, &l->open, link)
	{
		char text[FAL_EXPIRED_TEXT];
		const char *why = stays(g) ? judge(g, text) : NULL;
		if (why != NULL)
			send_away(g, why);
	}
}

/* None of those who came is known any more. */
static void
forget_guests(struct fal_listen *l)
{
	struct guest *g;
	TAILQ_FOREACH(g, &l->half, link)
	{
		g->listen = NULL;
		fal_chan_kill(g->chan);
	}
	TAILQ_FOREACH(g, &l->open, link)
	g->listen = NULL;
	TAILQ_INIT(&l->half);
	TAILQ_INIT(&l->open);
	l->half_n = 0;
}

void
fal_listen_pause(struct fal_listen *l)
{
	forget_guests(l);
	l->keyring = NULL;
}

void
fal_listen_close(struct fal_listen *l)
{
	if (l == NULL)
		return;
	forget_guests(l);
	shut(l);
}
