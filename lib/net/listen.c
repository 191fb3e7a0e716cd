/* Accepting, and who is still welcome. */
#include "net/listen.h"

#include "base/mem.h"
#include "net/chan_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define BACKLOG 128

TAILQ_HEAD(chans, fal_chan);

struct fal_listen {
	uv_loop_t *loop;
	union {
		uv_handle_t handle;
		uv_stream_t stream;
		uv_tcp_t tcp;
		uv_pipe_t pipe;
	} io;
	struct fal_addr bound;
	char text[FAL_ADDR_MAX + 16];
	const struct fal_keyring *keyring;
	struct fal_chan_opt chan_opt;
	struct fal_listen_ops ops;
	struct chans half, open; /* oldest first */
	unsigned half_n, half_max;
	unsigned accepted; /* in this turn */
	bool waiting;      /* one more is there, for the next */
	uv_check_t turn;   /* a turn is over */
	unsigned handles;  /* that are not closed */
	struct fal_gate gate;
};

/* --- channels --- */

static void
on_half_gone(struct fal_chan *c)
{
	struct fal_listen *l = c->owner;
	if (l == NULL)
		return;
	TAILQ_REMOVE(&l->half, c, link);
	l->half_n--;
}

static void
on_open_gone(struct fal_chan *c)
{
	struct fal_listen *l = c->owner;
	if (l != NULL)
		TAILQ_REMOVE(&l->open, c, link);
}

static void
on_half_close(void *arg, struct fal_chan *c, int err, const char *reason)
{
	struct fal_listen *l = arg;
	(void)err;
	if (l->ops.on_refused != NULL)
		l->ops.on_refused(l->ops.arg, c->source, reason);
}

static void
on_half_open(void *arg, struct fal_chan *c)
{
	struct fal_listen *l = arg;
	on_half_gone(c);
	fal_gate_proved(&l->gate, c->from, c->group);
	TAILQ_INSERT_TAIL(&l->open, c, link);
	c->on_gone = on_open_gone;
	l->ops.on_accept(l->ops.arg, c, c->name, c->role);
}

/* The peer's address as text, without its port, and as the limits see it. */
static void
set_source(struct fal_chan *c)
{
	struct sockaddr_storage ss = { 0 };
	const char *text = "unix";
	char ip[INET6_ADDRSTRLEN] = "?";
	if (fal_stream_is_tcp(c->io)) {
		text = ip;
		if (fal_stream_peer(c->io, &ss) == 0)
			(void)uv_ip_name((struct sockaddr *)&ss, ip, sizeof(ip));
		c->from = c->group = fal_limit_source((struct sockaddr *)&ss);
	}
	snprintf(c->source, sizeof(c->source), "%s", text);
}

/* Whether `c` counts among those who are, or are not, known to hold a key. */
static bool
counts(const struct fal_chan *c, bool proved)
{
	return c->state != FAL_CHAN_DEAD && (c->state == FAL_CHAN_UNPROVEN) == proved;
}

/* The oldest handshake of the group that has most of them; `*n` of all groups. */
static struct fal_chan *
crowded(struct fal_listen *l, bool proved, unsigned *n)
{
	struct fal_chan *c, *d, *victim = NULL;
	unsigned most = 0, seen = 0;
	*n = 0;
	for (c = TAILQ_FIRST(&l->half); c != NULL; c = TAILQ_NEXT(c, link))
		*n += counts(c, proved);
	for (c = TAILQ_FIRST(&l->half); c != NULL; c = TAILQ_NEXT(c, link)) {
		unsigned same = 0;
		if (seen + most >= *n)
			break;
		if (!counts(c, proved))
			continue;
		for (d = c; d != NULL; d = TAILQ_NEXT(d, link))
			same += counts(d, proved) && d->group == c->group;
		if (same > most) {
			most = same;
			victim = c;
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
		struct fal_chan *victim = crowded(l, proved != 0, &n);
		while (n > l->half_max) {
			fal_chan_fail(victim, FAL_ELIMIT,
				      "too many handshakes are under way");
			victim = crowded(l, proved != 0, &n);
		}
	}
}

static int
init_stream(const struct fal_listen *l, struct fal_chan *c)
{
	return l->bound.kind == FAL_ADDR_TCP ? fal_stream_tcp(c->io)
					     : fal_stream_pipe(c->io);
}

/* False: there was no memory, so it goes on waiting. */
static bool
accept_one(struct fal_listen *l)
{
	const struct fal_chan_ops ops = { .arg = l,
					  .on_open = on_half_open,
					  .on_close = on_half_close };
	struct fal_chan *c;
	if (fal_chan_new(l->loop, &l->chan_opt, &ops, &c) < 0)
		return false;
	c->keyring = &l->keyring;
	c->gate = &l->gate;
	if (init_stream(l, c) < 0) {
		fal_chan_kill(c);
		return false;
	}
	c->pending++;
	if (uv_accept(&l->io.stream, fal_stream_uv(c->io)) < 0) {
		fal_chan_kill(c);
		return true;
	}
	set_source(c);
	c->owner = l;
	c->on_gone = on_half_gone;
	TAILQ_INSERT_TAIL(&l->half, c, link);
	l->half_n++;
	fal_chan_connected(c);
	return true;
}

/* libuv asks no more until the one that waits is accepted. */
static void
on_connection(uv_stream_t *s, int status)
{
	struct fal_listen *l = s->data;
	if (status < 0)
		return;
	l->waiting = l->accepted++ >= FAL_LISTEN_TURN || !accept_one(l);
}

/* What had come was read in this turn, so whoever goes now has had his chance. */
static void
on_turn(uv_check_t *h)
{
	struct fal_listen *l = h->data;
	make_room(l);
	l->accepted = l->waiting ? 1 : 0;
	if (l->waiting)
		l->waiting = !accept_one(l);
}

/* --- binding --- */

static int
bind_tcp(struct fal_listen *l, struct fal_diag *diag)
{
	struct addrinfo *ai, hints = { .ai_family = AF_UNSPEC,
				       .ai_socktype = SOCK_STREAM,
				       .ai_flags = AI_PASSIVE };
	char port[8], ip[INET6_ADDRSTRLEN];
	snprintf(port, sizeof(port), "%u", l->bound.port);
	int err = getaddrinfo(l->bound.what, port, &hints, &ai);
	if (err != 0)
		return fal_diag_set(diag, FAL_EIO, "%s: %s", l->text, gai_strerror(err));
	err = uv_tcp_bind(&l->io.tcp, ai->ai_addr, 0);
	freeaddrinfo(ai);
	if (err == 0)
		err = uv_listen(&l->io.stream, BACKLOG, on_connection);
	if (err < 0)
		return fal_diag_set(diag, err == UV_EADDRINUSE ? FAL_EEXIST : FAL_EIO,
				    "%s: %s", l->text, uv_strerror(err));
	struct sockaddr_storage ss;
	int n = sizeof(ss);
	err = uv_tcp_getsockname(&l->io.tcp, (struct sockaddr *)&ss, &n);
	if (err == 0)
		err = uv_ip_name((struct sockaddr *)&ss, ip, sizeof(ip));
	if (err < 0)
		return fal_diag_set(diag, FAL_EIO, "%s: %s", l->text, uv_strerror(err));
	memcpy(l->bound.what, ip, sizeof(ip));
	/* The port stands at the same place for both families. */
	l->bound.port = ntohs(((struct sockaddr_in *)&ss)->sin_port);
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
bind_unix(struct fal_listen *l, struct fal_diag *diag)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	memcpy(to.sun_path, l->bound.what, strlen(l->bound.what));
	remove_stale(&to);
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return fal_diag_set(diag, FAL_EIO, "%s: %s", l->text, strerror(errno));
	/* Linux creates the file with the mode of the socket: no moment without it. */
	if (fchmod(fd, 0600) < 0 || bind(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
		const int e = errno;
		close(fd);
		return fal_diag_set(diag, e == EADDRINUSE ? FAL_EEXIST : FAL_EIO,
				    "%s: %s", l->text, strerror(e));
	}
	int err = uv_pipe_open(&l->io.pipe, fd);
	if (err < 0)
		close(fd);
	else
		err = uv_listen(&l->io.stream, BACKLOG, on_connection);
	if (err < 0) {
		(void)unlink(to.sun_path);
		return fal_diag_set(diag, FAL_EIO, "%s: %s", l->text, uv_strerror(err));
	}
	return FAL_OK;
}

static void
on_listen_closed(uv_handle_t *h)
{
	struct fal_listen *l = h->data;
	if (--l->handles == 0)
		free(l);
}

static void
close_handles(struct fal_listen *l)
{
	uv_close(&l->io.handle, on_listen_closed);
	uv_close((uv_handle_t *)&l->turn, on_listen_closed);
}

int
fal_listen_start(uv_loop_t *loop, const struct fal_listen_opt *opt,
		 const struct fal_listen_ops *ops, struct fal_listen **out,
		 struct fal_diag *diag)
{
	const bool tcp = opt->addr->kind == FAL_ADDR_TCP;
	if (opt->addr->kind == FAL_ADDR_EXEC)
		return fal_diag_set(diag, FAL_EINVAL,
				    "exec:%.200s: a command cannot be listened on",
				    opt->addr->what);
	struct fal_listen *l = fal_calloc(1, sizeof(*l));
	if (l == NULL)
		return fal_diag_set(diag, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
	l->loop = loop;
	l->bound = *opt->addr;
	l->keyring = opt->keyring;
	l->chan_opt = opt->chan;
	l->ops = *ops;
	l->half_max = opt->half_open != 0 ? opt->half_open : FAL_LISTEN_HALF_OPEN;
	fal_gate_init(&l->gate);
	TAILQ_INIT(&l->half);
	TAILQ_INIT(&l->open);
	fal_addr_format(&l->bound, l->text);
	int err =
		tcp ? uv_tcp_init(loop, &l->io.tcp) : uv_pipe_init(loop, &l->io.pipe, 0);
	if (err < 0) {
		free(l);
		return fal_diag_set(diag, FAL_EIO, "%s", uv_strerror(err));
	}
	uv_check_init(loop, &l->turn); /* cannot fail */
	uv_check_start(&l->turn, on_turn);
	l->handles = 2;
	l->io.handle.data = l->turn.data = l;
	err = tcp ? bind_tcp(l, diag) : bind_unix(l, diag);
	if (err < 0) {
		close_handles(l);
		return err;
	}
	fal_addr_format(&l->bound, l->text);
	*out = l;
	return FAL_OK;
}

const char *
fal_listen_text(const struct fal_listen *l)
{
	return l->text;
}

/* Whether the key that opened `c` is in `kr` with the same role. */
static bool
welcome(const struct fal_keyring *kr, const struct fal_chan *c)
{
	const struct fal_key *keys[2];
	char fingerprint[FAL_KEY_FINGERPRINT + 1];
	(void)fal_keyring_find(kr, c->name, (int64_t)time(NULL), keys);
	for (int i = 0; i < 2; i++) {
		fal_key_fingerprint(keys[i]->psk, fingerprint);
		if (keys[i]->role == c->role && strcmp(fingerprint, c->fingerprint) == 0)
			return true;
	}
	return false;
}

void
fal_listen_keyring(struct fal_listen *l, const struct fal_keyring *keyring)
{
	struct fal_chan *c;
	l->keyring = keyring;
	for (c = TAILQ_FIRST(&l->open); c != NULL; c = TAILQ_NEXT(c, link))
		if (!welcome(keyring, c))
			fal_chan_fail(c, FAL_EPERM, "its key was revoked");
	for (c = TAILQ_FIRST(&l->half); c != NULL; c = TAILQ_NEXT(c, link))
		if (c->state == FAL_CHAN_UNPROVEN && !welcome(keyring, c))
			fal_chan_fail(c, FAL_EPERM, "its key was revoked");
}

void
fal_listen_close(struct fal_listen *l)
{
	struct fal_chan *c;
	if (l == NULL)
		return;
	for (c = TAILQ_FIRST(&l->half); c != NULL; c = TAILQ_NEXT(c, link)) {
		c->owner = NULL;
		fal_chan_kill(c);
	}
	for (c = TAILQ_FIRST(&l->open); c != NULL; c = TAILQ_NEXT(c, link))
		c->owner = NULL;
	if (l->bound.kind == FAL_ADDR_UNIX)
		(void)unlink(l->bound.what);
	close_handles(l);
}
