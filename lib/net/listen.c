/* Accepting clients, and watching their keys. */
#include "net/listen.h"

#include "base/mem.h"
#include "net/conn_priv.h"
#include "net/door.h"
#include "net/gate.h"

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

TAILQ_HEAD(peer_list, peer);

/* An address at which the listener listens, or the local door beside an address.  An
 * endpoint is opened only once, since libuv closes the handle later. */
struct endpoint {
	struct fal_listen *listen;
	bool is_open;
	bool is_door; /* a local door, for our own user */
	union {
		uv_handle_t handle;
		uv_stream_t stream;
		uv_tcp_t tcp;
		uv_pipe_t pipe;
	} io;
	struct fal_addr bound;
	char text[FAL_ADDR_MAX + 16];
	bool has_waiting; /* a connection waits for the next turn */
};

/* All endpoints share the limits. */
struct fal_listen {
	uv_loop_t *loop;
	struct fal_buf text;               /* all addresses, with a NUL */
	const struct fal_keyring *keyring; /* NULL: paused, connections wait */
	struct fal_chan_opt chan_opt;
	struct fal_listen_ops ops;
	struct peer_list handshaking, opened; /* oldest first */
	unsigned n_handshaking, max_handshaking;
	unsigned accepted; /* in this turn */
	uv_check_t turn;   /* runs at the end of a turn */
	uv_timer_t review; /* checks for expired keys */
	unsigned handles;  /* open handles */
	struct fal_gate gate;
	size_t addrs;
	struct endpoint endpoint[]; /* for each address, then the local door of each */
};

/* --- clients --- */

/* An accepted channel, until it has ended. */
struct peer {
	struct fal_listen *listen; /* NULL: closed */
	struct fal_chan *chan;
	bool is_open;
	bool is_door;    /* by a local door: a client that fails there tries the port */
	int64_t expires; /* expiry of an open channel's key */
	uint64_t from;   /* fal_limit_source; 0: no network */
	uint64_t group;  /* for the limits: `from`, then fal_gate_group */
	TAILQ_ENTRY(peer) link;
};

/* Charges a wrong MAC to its source, and a right MAC to its name and source. */
static int
peer_on_greeting(void *arg, const uint8_t *p, size_t n, struct fal_session *s,
		 struct fal_buf *out, struct fal_diag *diag)
{
	struct peer *g = arg;
	struct fal_listen *l = g->listen;
	struct fal_greeting greeting;
	int err = fal_handshake_check(l->keyring, (int64_t)time(NULL), p, n, &greeting,
				      diag);
	if (err == FAL_EAUTH)
		return fal_gate_count_wrong(&l->gate, g->from, uv_hrtime(), diag);
	if (err < 0)
		return err;
	g->group = fal_gate_group(g->from, greeting.name);
	err = fal_gate_count_right(&l->gate, g->from, g->group, greeting.mac, uv_hrtime(),
				   diag);
	return err < 0 ? err : fal_handshake_answer(l->keyring, &greeting, s, out, diag);
}

/* Returns the reason why the peer's key is no longer valid; or sets g->expires and
 * returns NULL. */
static const char *
peer_check_key(struct peer *g, char text[static FAL_EXPIRED_TEXT])
{
	size_t n;
	const struct fal_key *key = fal_keyring_keys(g->listen->keyring, &n);
	char fingerprint[FAL_KEY_FINGERPRINT + 1];
	const char *why = "was revoked";
	for (size_t i = 0; i < n && why != NULL; i++) {
		if (strcmp(key[i].name, fal_chan_name(g->chan)) != 0)
			continue;
		fal_key_print_fingerprint(&key[i], fingerprint);
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

/* Ends an open channel whose key is no longer valid. */
static void
peer_end(struct peer *g, const char *what)
{
	const struct fal_listen_ops *ops = &g->listen->ops;
	struct fal_diag why;
	fal_diag_set(&why, 0, "key '%s' %s", fal_chan_name(g->chan), what);
	if (ops->on_key_end != NULL)
		ops->on_key_end(ops->arg, g->chan, why.text);
	else
		fal_chan_fail(g->chan, FAL_EPERM, "%s", why.text);
}

static void
peer_leave_handshaking(struct peer *g)
{
	TAILQ_REMOVE(&g->listen->handshaking, g, link);
	g->listen->n_handshaking--;
}

static void
peer_on_gone(void *arg)
{
	struct peer *g = arg;
	if (g->listen != NULL && g->is_open)
		TAILQ_REMOVE(&g->listen->opened, g, link);
	else if (g->listen != NULL)
		peer_leave_handshaking(g);
	free(g);
}

static void
peer_on_close(void *arg, struct fal_chan *c, int err, const char *reason)
{
	const struct peer *g = arg;
	const struct fal_listen *l = g->listen;
	(void)err;
	if (l->ops.on_refused != NULL && !g->is_door)
		l->ops.on_refused(l->ops.arg, fal_chan_source(c), reason);
}

static void
peer_on_open(void *arg, struct fal_chan *c)
{
	struct peer *g = arg;
	struct fal_listen *l = g->listen;
	char text[FAL_EXPIRED_TEXT];
	const char *why = peer_check_key(g, text);
	if (why != NULL) { /* the key was valid when the handshake began */
		fal_chan_fail(c, FAL_EPERM, "key '%s' %s", fal_chan_name(c), why);
		return;
	}
	peer_leave_handshaking(g);
	fal_gate_refund(&l->gate, g->from, g->group);
	TAILQ_INSERT_TAIL(&l->opened, g, link);
	g->is_open = true;
	l->ops.on_accept(l->ops.arg, c, fal_chan_name(c), fal_chan_role(c));
}

/* Is the peer in a handshake, with a proved key (`proved`) or without? */
static bool
peer_counts(const struct peer *g, bool proved)
{
	const enum fal_chan_state is = g->chan->state;
	return is != FAL_CHAN_DEAD && (is == FAL_CHAN_UNPROVEN) == proved;
}

/* Returns the oldest handshake of the group with the most handshakes; `*n`: the
 * handshakes of all groups. */
static struct peer *
find_victim(struct fal_listen *l, bool proved, unsigned *n)
{
	struct peer *g, *d, *victim = NULL;
	unsigned most = 0, seen = 0;
	*n = 0;
	TAILQ_FOREACH(g, &l->handshaking, link)
	*n += peer_counts(g, proved);
	TAILQ_FOREACH(g, &l->handshaking, link)
	{
		unsigned same = 0;
		if (seen + most >= *n)
			break;
		if (!peer_counts(g, proved))
			continue;
		for (d = g; d != NULL; d = TAILQ_NEXT(d, link))
			same += peer_counts(d, proved) && d->group == g->group;
		if (same > most) {
			most = same;
			victim = g;
		}
		seen++;
	}
	return victim;
}

/* Accepts a connection.  False: there is no memory for the connection, or no timer for an
 * emulated link; the connection waits on. */
static bool
endpoint_accept(struct endpoint *d)
{
	struct fal_listen *l = d->listen;
	struct peer *g = fal_calloc(1, sizeof(*g));
	const struct fal_chan_ops ops = { .arg = g,
					  .on_open = peer_on_open,
					  .on_close = peer_on_close };
	const struct fal_chan_host host = { .arg = g,
					    .greet = peer_on_greeting,
					    .gone = peer_on_gone };
	if (g == NULL)
		return false;
	g->listen = l;
	g->is_door = d->is_door;
	const int err =
		fal_chan_accept(&d->io.stream, &l->chan_opt, &ops, &host, &g->chan);
	if (err < 0) {
		free(g);
		return err != FAL_ELIMIT;
	}
	if (d->is_door && !fal_chan_is_same_user(g->chan)) {
		g->listen = NULL;
		fal_chan_kill(g->chan);
		return true;
	}
	struct sockaddr_storage ss = { 0 };
	if (fal_chan_peer(g->chan, &ss) != UV_ENOTSUP)
		g->from = g->group = fal_limit_source((struct sockaddr *)&ss);
	TAILQ_INSERT_TAIL(&l->handshaking, g, link);
	l->n_handshaking++;
	fal_chan_connected(g->chan);
	return true;
}

/* Accepts the connection, or lets it wait: then libuv does not call again until the
 * connection is accepted. */
static void
endpoint_on_connection(uv_stream_t *s, int status)
{
	struct endpoint *d = s->data;
	if (status < 0)
		return;
	d->has_waiting = d->listen->keyring == NULL ||
			 d->listen->accepted++ >= FAL_LISTEN_TURN || !endpoint_accept(d);
}

/* Ends handshakes beyond the limit, the oldest of the largest group first: a flood takes
 * only the flood's own places.  This turn has read all input that had come, so each
 * client has had its chance.  Then accepts the connections that wait. */
static void
listen_on_turn(uv_check_t *h)
{
	struct fal_listen *l = h->data;
	if (l->keyring == NULL)
		return;
	for (int proved = 0; proved < 2 && l->n_handshaking > l->max_handshaking;
	     proved++) {
		unsigned n;
		struct peer *victim;
		/* Ended handshakes leave the list at the end of this turn. */
		while (victim = find_victim(l, proved != 0, &n), n > l->max_handshaking)
			fal_chan_fail(victim->chan, FAL_ELIMIT,
				      "too many handshakes are under way");
	}
	l->accepted = 0;
	for (struct endpoint *d = l->endpoint; d < l->endpoint + 2 * l->addrs; d++) {
		l->accepted += d->has_waiting;
		d->has_waiting = d->has_waiting && !endpoint_accept(d);
	}
}

/* Is the channel still open?  In the callback for an earlier channel the owner may have
 * closed this channel, or all channels. */
static bool
peer_is_open(const struct peer *g)
{
	return g->listen != NULL && g->chan->state == FAL_CHAN_OPEN;
}

/* Checks expiry by the time of day, even if somebody sets the clock back or forward. */
static void
listen_on_review(uv_timer_t *h)
{
	struct fal_listen *l = h->data;
	const int64_t now = (int64_t)time(NULL);
	char text[FAL_EXPIRED_TEXT];
	struct peer *g;
	TAILQ_FOREACH(g, &l->opened, link)
	if (peer_is_open(g) && now >= g->expires)
		peer_end(g, fal_keyring_expired(l->keyring, fal_chan_name(g->chan), now,
						text));
}

/* --- binding --- */

static void
listen_release(struct fal_listen *l)
{
	if (--l->handles > 0)
		return;
	fal_buf_free(&l->text);
	free(l);
}

static void
endpoint_on_closed(uv_handle_t *h)
{
	listen_release(((struct endpoint *)h->data)->listen);
}

/* Listens at a Unix socket, which is taken.  libuv's errors. */
static int
endpoint_listen(struct endpoint *d, int fd)
{
	const int err = uv_pipe_open(&d->io.pipe, fd);
	if (err == 0)
		return uv_listen(&d->io.stream, BACKLOG, endpoint_on_connection);
	close(fd);
	return err;
}

/* Opens the local door beside a port, if the system allows one. */
static void
endpoint_open_door(struct endpoint *d, struct fal_listen *l, const struct sockaddr *at)
{
	const int fd = fal_door_bind(at);
	if (fd < 0)
		return;
	*d = (struct endpoint){ .listen = l, .is_door = true };
	uv_pipe_init(l->loop, &d->io.pipe, 0); /* cannot fail */
	d->io.handle.data = d;
	uv_unref(&d->io.handle);
	l->handles++;
	int err = endpoint_listen(d, fd);
	d->is_open = err == 0;
	if (err < 0)
		uv_close(&d->io.handle, endpoint_on_closed);
}

static int
endpoint_bind_tcp(struct endpoint *d, bool has_door, struct fal_diag *diag)
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
	if (err == 0 && has_door) /* the door is open before a client can look for it */
		endpoint_open_door(d + d->listen->addrs, d->listen,
				   (struct sockaddr *)&ss);
	if (err == 0)
		err = uv_listen(&d->io.stream, BACKLOG, endpoint_on_connection);
	if (err < 0)
		return fal_diag_set(diag, err == UV_EADDRINUSE ? FAL_EEXIST : FAL_EIO,
				    "%s: %s", d->text, uv_strerror(err));
	memcpy(d->bound.what, ip, sizeof(ip));
	/* The port has the same offset in both families. */
	d->bound.port = ntohs(((struct sockaddr_in *)&ss)->sin_port);
	return FAL_OK;
}

/* Removes a socket file at which no process listens; leaves all else. */
static void
remove_stale_socket(const struct sockaddr_un *to)
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
endpoint_bind_unix(struct endpoint *d, struct fal_diag *diag)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	memcpy(to.sun_path, d->bound.what, strlen(d->bound.what));
	remove_stale_socket(&to);
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fal_diag_set(diag, FAL_EIO, "%s: %s", d->text, strerror(errno));
	/* Linux creates the file with the socket's mode: the file never has another
	 * mode. */
	if (fchmod(fd, 0600) < 0 || bind(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
		const int e = errno;
		close(fd);
		return fal_diag_set(diag, e == EADDRINUSE ? FAL_EEXIST : FAL_EIO,
				    "%s: %s", d->text, strerror(e));
	}
	int err = endpoint_listen(d, fd);
	if (err < 0) {
		(void)unlink(to.sun_path);
		return fal_diag_set(diag, FAL_EIO, "%s: %s", d->text, uv_strerror(err));
	}
	return FAL_OK;
}

static void
on_listen_closed(uv_handle_t *h)
{
	listen_release(h->data);
}

/* Closes all endpoints. */
static void
listen_shut(struct fal_listen *l)
{
	for (struct endpoint *d = l->endpoint; d < l->endpoint + 2 * l->addrs; d++) {
		if (!d->is_open)
			continue;
		d->is_open = d->has_waiting = false;
		if (!d->is_door && d->bound.kind == FAL_ADDR_UNIX)
			(void)unlink(d->bound.what);
		uv_close(&d->io.handle, endpoint_on_closed);
	}
	uv_close((uv_handle_t *)&l->turn, on_listen_closed);
	uv_close((uv_handle_t *)&l->review, on_listen_closed);
}

/* Opens the endpoint of an address, with its local door. */
static int
endpoint_open(struct fal_listen *l, size_t i, const struct fal_listen_opt *opt,
	      struct fal_diag *diag)
{
	const struct fal_addr *at = &opt->addr[i];
	const bool tcp = at->kind == FAL_ADDR_TCP;
	struct endpoint *d = &l->endpoint[i];
	*d = (struct endpoint){ .listen = l, .bound = *at };
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
	err = tcp ? endpoint_bind_tcp(d, opt->chan.unseals, diag)
		  : endpoint_bind_unix(d, diag);
	/* `is_open` stays false, so that listen_shut does not unlink a socket file that
	 * another process owns */
	if (err < 0) {
		uv_close(&d->io.handle, endpoint_on_closed);
		return err;
	}
	d->is_open = true;
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
		l = fal_xcalloc(1, sizeof(*l) + 2 * addrs * sizeof(l->endpoint[0]));
	l->keyring = opt->keyring;
	l->chan_opt = opt->chan;
	l->ops = *ops;
	l->max_handshaking = opt->half_open != 0 ? opt->half_open : FAL_LISTEN_HALF_OPEN;
	if (opt->paused != NULL) {
		listen_on_turn(&l->turn); /* accepts the connections that wait */
		*out = l;
		return FAL_OK;
	}
	l->loop = loop;
	l->addrs = addrs;
	fal_gate_init(&l->gate);
	TAILQ_INIT(&l->handshaking);
	TAILQ_INIT(&l->opened);
	uv_check_init(loop, &l->turn); /* cannot fail */
	uv_check_start(&l->turn, listen_on_turn);
	uv_timer_init(loop, &l->review);
	uv_timer_start(&l->review, listen_on_review, FAL_LISTEN_REVIEW_MS,
		       FAL_LISTEN_REVIEW_MS);
	uv_unref((uv_handle_t *)&l->turn);
	uv_unref((uv_handle_t *)&l->review);
	l->handles = 2;
	l->turn.data = l->review.data = l;
	for (size_t i = 0; i < addrs && err == FAL_OK; i++)
		err = endpoint_open(l, i, opt, diag);
	fal_put_u8(&l->text, '\0');
	if (l->text.err < 0)
		fal_out_of_memory();
	if (err < 0) {
		listen_shut(l);
		return err;
	}
	*out = l;
	return FAL_OK;
}

const char *
fal_listen_addr_text(const struct fal_listen *l)
{
	return (const char *)l->text.p;
}

size_t
fal_listen_addrs(const struct fal_listen *l, struct fal_addr out[static FAL_ADDRS_MAX])
{
	for (size_t i = 0; i < l->addrs; i++)
		out[i] = l->endpoint[i].bound;
	return l->addrs;
}

void
fal_listen_keyring(struct fal_listen *l, const struct fal_keyring *keyring)
{
	struct peer *g;
	l->keyring = keyring;
	TAILQ_FOREACH(g, &l->opened, link)
	{
		char text[FAL_EXPIRED_TEXT];
		const char *why = peer_is_open(g) ? peer_check_key(g, text) : NULL;
		if (why != NULL)
			peer_end(g, why);
	}
}

/* Ends all handshakes, and drops the open channels from the lists. */
static void
listen_forget_clients(struct fal_listen *l)
{
	struct peer *g;
	TAILQ_FOREACH(g, &l->handshaking, link)
	{
		g->listen = NULL;
		fal_chan_kill(g->chan);
	}
	TAILQ_FOREACH(g, &l->opened, link)
	g->listen = NULL;
	TAILQ_INIT(&l->handshaking);
	TAILQ_INIT(&l->opened);
	l->n_handshaking = 0;
}

void
fal_listen_pause(struct fal_listen *l)
{
	listen_forget_clients(l);
	l->keyring = NULL;
}

void
fal_listen_close(struct fal_listen *l)
{
	if (l == NULL)
		return;
	listen_forget_clients(l);
	listen_shut(l);
}
