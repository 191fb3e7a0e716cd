/* Channels between friends, over real sockets: conversations, sharing, ends. */
#include "test_net.h"
#include "../drawn.h"
#include "base/rng.h"
#include "net/conn_priv.h"
#include "net/handshake.h"

#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

/* Both ways, then closed by the client. */
static void
converse(struct world *w)
{
	struct end *c = &w->client[0], *s = &w->server[0];
	SEND(c, 'a'); /* waits for the handshake */
	SEND(c, 'b');
	UNTIL(w, s->msgs == 2);
	assert_int_equal(c->opened, 1);
	assert_int_equal(w->accepted, 1);
	assert_string_equal(w->name, "lab");
	assert_int_equal(w->role, FAL_ROLE_WORK);
	assert_string_equal(fal_chan_name(s->c), "lab");
	SEND(s, 'x');
	assert_int_equal(send_bytes(s, 'y', FAL_RECORD_MAX, FAL_SEND_BULK), 0);
	UNTIL(w, c->msgs == 2 && s->drained >= 1);
	assert_string_equal(s->log, "ab");
	assert_string_equal(c->log, "xy");
	assert_int_equal(c->bytes, FAL_RECORD_MAX + 10);
	assert_true(fal_chan_stat(c->c).rx == fal_chan_stat(s->c).tx);
	SEND(c, 'c');
	fal_chan_close(c->c);
	assert_int_equal(c->closed, 0);
	assert_int_equal(send_bytes(c, 'd', 1, FAL_SEND_BULK), FAL_ESTATE);
	UNTIL(w, c->closed == 1 && s->closed == 1);
	assert_string_equal(s->log, "abc");
	assert_string_equal(s->reason, "closed by the peer");
	assert_int_equal(s->err, 0);
	assert_int_equal(c->err, 0);
}

static void
over_tcp(void **state)
{
	struct world w;
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	struct fal_addr at = addr("%s", fal_listen_addr_text(w.l));
	/* Perhaps ::1 first; a bare chroot does not know the name. */
	struct addrinfo *found = NULL;
	if (getaddrinfo("localhost", NULL, NULL, &found) == 0)
		snprintf(at.what, sizeof(at.what), "localhost");
	freeaddrinfo(found);
	dial_as(&w, 0, &at, client_key("lab", 2, 1), (struct fal_chan_opt){ 0 });
	converse(&w);
	assert_int_equal(w.refusals, 0);
	end(&w);
}

/* A listener on dir/s instead. */
static void
listen_unix(struct world *w)
{
	fal_listen_close(w->l);
	listen_at(w, addr("unix:%s/s", w->dir), (struct fal_listen_opt){ 0 });
}

static void
over_unix(void **state)
{
	struct world w;
	struct stat st;
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	/* A socket that nobody listens on is in the way. */
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s/s", w.dir);
	const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&sun, sizeof(sun)), 0);
	close(fd);
	listen_unix(&w);
	assert_int_equal(stat(sun.sun_path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);

	struct fal_listen *second;
	struct fal_diag d;
	const struct fal_addr at = addr("%s", fal_listen_addr_text(w.l));
	const struct fal_listen_opt opt = { .addr = &at, .keyring = w.kr };
	const struct fal_listen_ops ops = { &w, on_accept, on_refused, NULL };
	assert_int_equal(fal_listen_start(&w.loop, &opt, &ops, &second, &d), FAL_EEXIST);
	dial(&w, 0);
	converse(&w);
	end(&w);
	assert_int_equal(stat(sun.sun_path, &st), -1);
}

static void
over_a_command(void **state)
{
	struct world w;
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	listen_unix(&w);
	struct fal_addr at = addr("exec:exec socat - UNIX-CONNECT:%s/s", w.dir);
	dial_as(&w, 0, &at, client_key("lab", 2, 1), (struct fal_chan_opt){ 0 });
	converse(&w);
	/* One that would never end goes with its channel. */
	at = addr("exec:exec sleep 1000");
	dial_as(&w, 2, &at, client_key("lab", 2, 1), (struct fal_chan_opt){ 0 });
	end(&w);
}

/* All that we say first, which comes at once. */
#define TAKE "dd bs=512 count=1 status=none >/dev/null"

static void
commands_that_fail(void **state)
{
	static const struct {
		const char *command, *why;
		int err;
	} cases[] = {
		{ "exit 3", "the command ended with status 3", FAL_EIO },
		{ "exec 2>/dev/null; no-such-command",
		  "the command ended with status 127", FAL_EIO },
		{ "kill -9 $$", "the command ended with status 137", FAL_EIO },
		/* takes what we say, gives up, and says so after the stream's end */
		{ TAKE "; exec >&- <&-; exit 4", "the command ended with status 4",
		  FAL_EIO },
		{ "true", "the command ended with status 0", FAL_EIO },
		{ TAKE "; printf FALC", "the peer left in the handshake", FAL_ETRUNC },
		/* what socat does when the server leaves without a word */
		{ TAKE,
		  "the coordinator's key does not match, or ours is not in its keyring, "
		  "or a tunnel leads nowhere",
		  FAL_EPERM },
	};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct world w;
		char want[600];
		begin(&w, (struct fal_listen_opt){ 0 });
		const struct fal_addr at = addr("exec:%s", cases[i].command);
		dial_as(&w, 0, &at, client_key("lab", 2, 1), (struct fal_chan_opt){ 0 });
		UNTIL(&w, w.client[0].closed == 1);
		snprintf(want, sizeof(want), "exec:%s: %s", cases[i].command,
			 cases[i].why);
		assert_string_equal(w.client[0].reason, want);
		assert_int_equal(w.client[0].err, cases[i].err);
		end(&w);
	}
}

/* Whichever of its two ends does not come, of the stream or of the process. */
static void
commands_that_hang(void **state)
{
	static const char *const commands[] = {
		"exec sleep 1000", "exec >&- <&-; exec sleep 1000",
		"sleep 1 & exit 3", /* which holds the stream */
	};
	(void)state;
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
		struct world w;
		char want[600];
		begin(&w, (struct fal_listen_opt){ 0 });
		const struct fal_addr at = addr("exec:%s", commands[i]);
		dial_as(&w, 0, &at, client_key("lab", 2, 1),
			(struct fal_chan_opt){ .deadline_ms = 100 });
		UNTIL(&w, w.client[0].closed == 1);
		snprintf(want, sizeof(want), "exec:%s: no handshake within 0.1 s",
			 commands[i]);
		assert_string_equal(w.client[0].reason, want);
		assert_int_equal(w.client[0].err, FAL_EIO);
		end(&w);
	}
}

/* A resolver that hangs, until it is let go. */
static pthread_mutex_t resolver = PTHREAD_MUTEX_INITIALIZER;

int
getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
	    struct addrinfo **out)
{
	int (*next)(const char *, const char *, const struct addrinfo *,
		    struct addrinfo **);
	*(void **)&next = dlsym(RTLD_NEXT, "getaddrinfo");
	if (strcmp(host, "hangs.example") == 0 &&
	    (hints->ai_flags & AI_NUMERICHOST) == 0) {
		pthread_mutex_lock(&resolver);
		pthread_mutex_unlock(&resolver);
		host = "127.0.0.1";
	}
	return next(host, port, hints, out);
}

/* The deadline holds, whatever the resolver does; and those that hang are no more than
 * some. */
static void
names_that_are_not_resolved(void **state)
{
	struct world w;
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	const struct fal_addr at = addr("hangs.example:1");
	pthread_mutex_lock(&resolver);
	for (unsigned i = 0; i <= FAL_LOOKUPS_MAX; i++) {
		struct end *c = &w.client[0];
		*c = (struct end){ 0 };
		dial_as(&w, 0, &at, client_key("lab", 2, 1),
			(struct fal_chan_opt){ .deadline_ms = 20 });
		UNTIL(&w, c->closed == 1);
		assert_int_equal(c->err, FAL_EIO);
		assert_string_equal(
			c->reason,
			i < FAL_LOOKUPS_MAX
				? "hangs.example:1: no connection within 0.02 s"
				: "hangs.example:1: resource temporarily "
				  "unavailable");
	}
	/* What is no name is not looked up. */
	w.client[0] = (struct end){ 0 };
	meet(&w, 0);
	end(&w); /* which waits for none of them */
	pthread_mutex_unlock(&resolver);
}

/* Over a stream that tells of nothing: what carries it lives on when the server does not.
 * Who lives and has nothing to say is not missed. */
static void
signs_of_life(void **state)
{
	const unsigned life = 20;
	struct world w;
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	fal_listen_close(w.l);
	listen_at(&w, addr("unix:%s/s", w.dir),
		  (struct fal_listen_opt){ .chan.life_ms = life });
	const struct fal_addr at = addr("exec:exec socat - UNIX-CONNECT:%s/s", w.dir);
	dial_as(&w, 0, &at, client_key("lab", 2, 1),
		(struct fal_chan_opt){ .life_ms = life });
	struct end *c = &w.client[0], *s = &w.server[0];
	SEND(c, 'h');
	UNTIL(&w, s->msgs == 1);
	const uint64_t from = uv_hrtime();
	UNTIL(&w,
	      uv_hrtime() - from > 3 * FAL_CHAN_KEEPALIVES * life * UINT64_C(1000000));
	assert_int_equal(c->closed + s->closed, 0);
	assert_int_equal(c->msgs, 0);
	assert_int_equal(s->msgs, 1);
	/* Now the server is as if it hung. */
	uv_timer_stop(&s->c->deadline);
	uv_read_stop(&s->c->io.stream);
	UNTIL(&w, c->closed == 1);
	assert_int_equal(c->err, FAL_EIO);
	assert_non_null(strstr(c->reason, ": nothing was heard for 0.12 s"));
	end(&w);
}

static void
control_overtakes_bulk(void **state)
{
	struct world w;
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	meet(&w, 0);
	struct end *c = &w.client[0], *s = &w.server[0];
	const unsigned bulk = 800; /* 48 MB */
	for (unsigned i = 0; i < bulk; i++)
		assert_int_equal(send_bytes(c, 'b', 60000, FAL_SEND_BULK), 0);
	UNTIL(&w, s->msgs > 20);
	SEND(c, 'c');
	UNTIL(&w, s->msgs == bulk + 2);
	const char *at = memchr(s->log, 'c', s->msgs);
	assert_non_null(at);
	if (at - s->log > bulk / 2)
		fail_msg("control came as number %td of %u", at - s->log, s->msgs);
	UNTIL(&w, c->drained >= 1);
	assert_int_equal(fal_chan_stat(c->c).queued, 0);
	assert_true(fal_chan_stat(c->c).rate > 0);
	assert_int_equal(s->bytes, bulk * 60000u + 20);
	end(&w);
}

/* Whoever asks for room before each message has little waiting, and is told when to go
 * on. */
static void
room_is_for_a_batch(void **state)
{
	struct world w;
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	meet(&w, 0);
	struct end *c = &w.client[0], *s = &w.server[0];
	unsigned sent = 0, asked = 0;
	while (sent < 3000 && !w.late) { /* 180 MB */
		for (; sent < 3000 && fal_chan_has_room(c->c); sent++)
			assert_int_equal(send_bytes(c, 'b', 60000, FAL_SEND_BULK), 0);
		const size_t queued = fal_chan_stat(c->c).queued;
		if (queued > FAL_OUTBOX_MAX + 60000)
			fail_msg("%zu bytes wait", queued);
		const unsigned rooms = c->rooms;
		asked += sent < 3000;
		UNTIL(&w, c->rooms > rooms || sent == 3000);
	}
	UNTIL(&w, s->msgs == 3001);
	assert_true(asked > 3 && c->rooms >= asked);
	assert_true(c->rooms <= asked + 1);
	assert_int_equal(s->bytes, 3000 * 60000u + 10);
	end(&w);
}

/* Bulk is on its way while more of it is made, and calls nobody back; but others have
 * their turn. */
static void
bulk_leaves_while_it_is_made(void **state)
{
	enum { OFFER = 128 << 10 };
	struct world w;
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	const struct fal_addr at = addr("%s", fal_listen_addr_text(w.l));
	dial_as(&w, 0, &at, client_key("lab", 2, 1), (struct fal_chan_opt){ 0 });
	struct end *c = &w.client[0], *s = &w.server[0];
	unsigned sent = 0;
	for (; sent < 10; sent++) /* before the handshake nothing does */
		assert_int_equal(send_bytes(c, 'b', 60000, FAL_SEND_BULK), 0);
	assert_true(fal_chan_stat(c->c).tx == 0);
	UNTIL(&w, s->msgs == sent && c->drained > 0);
	const unsigned rooms = c->rooms, drained = c->drained;
	uint64_t was = fal_chan_stat(c->c).tx;
	for (size_t n = 60000; n < 2 * OFFER; n += 60000, sent++) {
		assert_true(fal_chan_has_room(c->c));
		assert_int_equal(send_bytes(c, 'b', 60000, FAL_SEND_BULK), 0);
		assert_int_equal(fal_chan_stat(c->c).tx > was + OFFER, n >= OFFER);
	}
	while (fal_chan_has_room(c->c)) {
		assert_in_range(sent, 0, 40); /* 30 is 1 MiB and something */
		assert_int_equal(send_bytes(c, 'b', 60000, FAL_SEND_BULK), 0);
		sent++;
	}
	assert_true(c->rooms == rooms && c->drained == drained);
	UNTIL(&w, c->rooms == rooms + 1 && s->msgs == sent);
	assert_true(fal_chan_has_room(c->c));
	UNTIL(&w, c->drained > drained);
	end(&w);
}

/* Who sends on_room, and may close there. */
struct roomy {
	struct end *end;
	unsigned more; /* messages, once */
	bool closes;
};

static void
send_there(void *arg, struct fal_chan *c)
{
	struct roomy *r = arg;
	if (r->more == 0)
		return;
	for (; r->more > 0; r->more--)
		assert_int_equal(send_bytes(r->end, 'r', 32768, FAL_SEND_BULK), 0);
	if (r->closes)
		fal_chan_close(c);
}

static void
drained_there(void *arg, struct fal_chan *c)
{
	struct roomy *r = arg;
	assert_int_equal(fal_chan_stat(c).held, 0);
	r->end->drained++;
}

static void
closed_there(void *arg, struct fal_chan *c, int err, const char *reason)
{
	struct roomy *r = arg;
	on_close(r->end, c, err, reason);
}

/* What is sent when there is room all leaves, and on_drain says so when it has, however
 * little the socket takes at a time; also if the channel is closed then. */
static void
all_leaves_that_is_sent_on_room(void **state)
{
	static char in[1 << 16];
	struct fal_rng rng = fal_rng_init(drawn_seed(87), FAL_RNG_TEST, 0);
	(void)state;
	for (int turn = 0; turn < 8; turn++) {
		struct world w;
		begin(&w, (struct fal_listen_opt){ 0 });
		meet(&w, 0);
		struct roomy r = { &w.client[0], 4 + fal_rng_below(&rng, 9), turn % 2 };
		const struct fal_chan_ops ops = { .arg = &r,
						  .on_room = send_there,
						  .on_drain = drained_there,
						  .on_close = closed_there };
		struct fal_chan *c = w.client[0].c, *s = w.server[0].c;
		const int from = fal_chan_fd(c), to = fal_chan_fd(s);
		const int little = 16384;
		size_t sent = r.more, came = 0;
		ssize_t n = 1;
		UNTIL(&w, w.client[0].drained > 0);
		fal_chan_set_ops(c, &ops);
		uv_read_stop(&s->io.stream);
		for (; fal_chan_has_room(c); sent++) {
			assert_int_equal(send_bytes(&w.client[0], 'b', 32768,
						    FAL_SEND_BULK),
					 0);
			while ((n = recv(to, in, sizeof(in), MSG_DONTWAIT)) > 0)
				came += (size_t)n;
		}
		setsockopt(from, SOL_SOCKET, SO_SNDBUF, &little, sizeof(little));
		setsockopt(to, SOL_SOCKET, SO_RCVBUF, &little, sizeof(little));
		sent *= FAL_RECORD_HEAD + 32768 + FAL_SEAL_TAG;
		w.client[0].drained = 0;
		while (came < sent && n != 0 && !w.late) {
			uv_run(&w.loop, UV_RUN_NOWAIT);
			n = recv(to, in, sizeof(in), MSG_DONTWAIT);
			came += n > 0 ? (size_t)n : 0;
		}
		assert_int_equal(came, sent);
		if (!r.closes)
			UNTIL(&w, w.client[0].drained > 0);
		end(&w);
	}
}

static void
nobody_there(void **state)
{
	struct world w;
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	const struct fal_addr gone = addr("%s", fal_listen_addr_text(w.l));
	fal_listen_close(w.l);
	w.l = NULL;
	uv_run(&w.loop, UV_RUN_NOWAIT);
	dial_as(&w, 0, &gone, client_key("lab", 2, 1), (struct fal_chan_opt){ 0 });
	const struct fal_addr path = addr("unix:%s/none", w.dir);
	dial_as(&w, 1, &path, client_key("lab", 2, 1), (struct fal_chan_opt){ 0 });
	dial_as(&w, 2, &gone, client_key("lab", 2, 1), (struct fal_chan_opt){ 0 });
	fal_chan_close(w.client[2].c);
	UNTIL(&w, w.client[0].closed && w.client[1].closed && w.client[2].closed);
	assert_non_null(strstr(w.client[0].reason, ": connection refused"));
	assert_non_null(strstr(w.client[1].reason, ": no such file or directory"));
	assert_int_equal(w.client[0].err, FAL_EIO);
	assert_int_equal(w.client[2].err, 0);
	end(&w);
}

/* Both ends learn within a minute that the other has lost its power. */
static void
asks_silent_peers(void **state)
{
	static const struct {
		int level, name, value;
	} want[] = {
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, 30 },
		{ IPPROTO_TCP, TCP_KEEPINTVL, 10 },
		{ IPPROTO_TCP, TCP_KEEPCNT, 3 },
		{ IPPROTO_TCP, TCP_NODELAY, 1 },
		{ IPPROTO_TCP, TCP_USER_TIMEOUT, 60000 },
	};
	struct world w;
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	meet(&w, 0);
	for (size_t i = 0; i < 2 * (sizeof(want) / sizeof(*want)); i++) {
		struct fal_chan *c = i % 2 == 0 ? w.client[0].c : w.server[0].c;
		const int fd = fal_chan_fd(c);
		int got = -1;
		socklen_t n = sizeof(got);
		assert_true(fd >= 0);
		assert_int_equal(getsockopt(fd, want[i / 2].level, want[i / 2].name, &got,
					    &n),
				 0);
		if (got != want[i / 2].value)
			fail_msg("option %d of %s is %d, not %d", want[i / 2].name,
				 i % 2 == 0 ? "the client" : "the server", got,
				 want[i / 2].value);
	}
	end(&w);
}

static void
queue_cap(void **state)
{
	struct world w;
	(void)state;
	begin(&w, (struct fal_listen_opt){ .chan.send_cap = 100000 });
	meet(&w, 0);
	struct end *s = &w.server[0];
	assert_int_equal(send_bytes(s, 'a', 60000, FAL_SEND_BULK), 0);
	assert_int_equal(send_bytes(s, 'b', 40001, FAL_SEND_CONTROL), FAL_ELIMIT);
	assert_int_equal(send_bytes(s, 'c', 40000, FAL_SEND_CONTROL), 0);
	assert_int_equal(fal_chan_stat(s->c).queued, 100000);
	UNTIL(&w, w.client[0].msgs == 2);
	assert_string_equal(w.client[0].log, "ca");
	end(&w);
}

static struct fal_shared_pool *pool; /* of all publications */

/* Adds the next message, which lies in one place. */
static int
add_one(struct fal_shared *s, const void *msg, size_t n)
{
	const struct fal_shared_text text = { .msg = { .p = msg, .n = n },
					      .index = s->made };
	return fal_shared_add_texts(s, &text, 1);
}

/* `n` messages more. */
static void
add(struct fal_shared *s, char first, int n)
{
	static uint8_t msg[50000];
	msg[0] = (uint8_t)first;
	while (n-- > 0)
		assert_int_equal(add_one(s, msg, sizeof(msg)), 0);
}

/* A publication of 40 messages, of which `made` are in. */
static struct fal_shared *
publish_some(uint64_t id, char first, bool zstd, int made)
{
	const struct fal_shared_opt opt = { .pool = pool,
					    .publication = id,
					    .count = 40,
					    .ad = "job 1",
					    .ad_n = 5,
					    .zstd = zstd };
	struct fal_shared *s;
	assert_int_equal(fal_shared_new(&opt, &s), 0);
	add(s, first, made);
	return s;
}

static struct fal_shared *
publish(uint64_t id, char first, bool zstd)
{
	return publish_some(id, first, zstd, 40);
}

static void
expect(struct end *e, const struct fal_shared *s)
{
	const struct fal_publication pub = {
		.id = s->pub.id, .count = 40, .key = s->pub.key, .ad = "job 1", .ad_n = 5
	};
	assert_int_equal(fal_chan_expect_publication(e->c, &pub), 0);
}

static bool
is_old(const void *arg, const struct fal_shared *s)
{
	(void)arg;
	return !s->lasting;
}

static void
shared_to_three(void **state)
{
	(void)state;
	for (int zstd = 0; zstd < 2; zstd++) {
		struct world w;
		begin(&w, (struct fal_listen_opt){ 0 });
		for (int i = 0; i < 3; i++)
			meet(&w, i);
		struct fal_shared *s = publish(7, 's', zstd);
		for (int i = 0; i < 3; i++) {
			expect(&w.client[i], s);
			assert_int_equal(fal_chan_send_shared(w.server[i].c, s), 0);
		}
		const size_t bytes = s->bytes;
		fal_shared_drop(s); /* the queues hold it */
		for (int i = 0; i < 3; i++) {
			UNTIL(&w, w.client[i].msgs == 40 && w.server[i].drained == 1);
			assert_int_equal(w.client[i].bytes, 40 * 50000);
			/* the same records to all, after the handshake */
			assert_int_equal(fal_chan_stat(w.server[i].c).tx,
					 bytes + FAL_HANDSHAKE_ANSWER);
		}
		assert_int_equal(bytes < 40 * 50000, zstd);
		end(&w);
	}
}

/* What there is of a publication leaves, and the rest when it is made; meanwhile the link
 * is free for anything else. */
static void
leaves_as_it_is_made(void **state)
{
	struct world w;
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	meet(&w, 0);
	struct fal_chan *c = w.server[0].c;
	struct fal_shared *s = publish_some(7, 's', false, 10);
	expect(&w.client[0], s);
	assert_int_equal(fal_chan_send_shared(c, s), 0);
	UNTIL(&w, w.client[0].msgs == 10 && w.server[0].drained == 1);
	assert_int_equal(send_bytes(&w.server[0], 'c', 1, FAL_SEND_CONTROL), 0);
	assert_int_equal(send_bytes(&w.server[0], 'b', 1, FAL_SEND_BULK), 0);
	UNTIL(&w, w.client[0].msgs == 12 && w.server[0].drained > 1);
	for (int i = 0; i < 3; i++) {
		const unsigned before = w.server[0].drained;
		add(s, 's', 10);
		fal_chan_write_now(c);
		UNTIL(&w, w.client[0].msgs == 22 + 10 * (unsigned)i &&
				  w.server[0].drained > before);
	}
	fal_shared_drop(s);
	assert_int_equal(w.client[0].bytes, 40 * 50000 + 2);
	end(&w);
}

/* What the socket has no room for goes with later offers, though the loop has no turn. */
static void
goes_with_later_offers(void **state)
{
	static char in[1 << 16];
	struct fal_rng rng = fal_rng_init(drawn_seed(88), FAL_RNG_TEST, 0);
	struct world w;
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	meet(&w, 0);
	struct fal_chan *c = w.server[0].c;
	struct fal_shared *s = publish(7, 's', false);
	const int fd = fal_chan_fd(w.client[0].c);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	size_t came = 0;
	assert_int_equal(fal_chan_send_shared(c, s), 0);
	fal_chan_write_now(c);
	while (came < s->bytes && poll(&p, 1, 1000) == 1) {
		const size_t most = 1000 + fal_rng_below(&rng, sizeof(in) - 999);
		const ssize_t n = recv(fd, in, most, 0);
		assert_true(n > 0);
		came += (size_t)n;
		fal_chan_write_now(c);
	}
	assert_int_equal(came, s->bytes);
	assert_int_equal(w.server[0].drained, 0);
	UNTIL(&w, w.server[0].drained == 1);
	fal_shared_drop(s);
	end(&w);
}

/* Others that are sent behind it are not held up, whole ones or not, in any order; each
 * comes in its own. */
static void
others_pass_what_is_made(void **state)
{
	enum { ALL = 3 };
	struct fal_rng rng = fal_rng_init(drawn_seed(86), FAL_RNG_TEST, 0);
	struct world w;
	struct fal_shared *s[ALL];
	int made[ALL], all = 0;
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	meet(&w, 0);
	for (int i = 0; i < ALL; i++) {
		all += made[i] = (int)fal_rng_below(&rng, 20);
		s[i] = publish_some((uint64_t)i + 1, (char)('1' + i), false, made[i]);
		expect(&w.client[0], s[i]);
		assert_int_equal(fal_chan_send_shared(w.server[0].c, s[i]), 0);
	}
	while (all < ALL * 40) {
		const int i = (int)fal_rng_below(&rng, ALL);
		const int more = 1 + (int)fal_rng_below(&rng, 8);
		if (made[i] + more > 40)
			continue;
		add(s[i], (char)('1' + i), more);
		made[i] += more;
		all += more;
		fal_chan_write_now(w.server[0].c);
		if (fal_rng_below(&rng, 3) == 0)
			UNTIL(&w, w.client[0].msgs == (unsigned)all);
	}
	for (int i = 0; i < ALL; i++)
		fal_shared_drop(s[i]);
	UNTIL(&w, w.client[0].msgs == (unsigned)all && w.server[0].drained > 0);
	for (int i = 0; i < ALL; i++) {
		int came = 0;
		for (unsigned k = 0; k < w.client[0].msgs; k++)
			came += w.client[0].log[k] == '1' + i;
		assert_int_equal(came, 40);
	}
	end(&w);
}

/* Who closes waits for nothing that is still to be made. */
static void
closes_before_all_is_made(void **state)
{
	struct world w;
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	meet(&w, 0);
	struct fal_shared *s = publish_some(7, 's', false, 10);
	expect(&w.client[0], s);
	assert_int_equal(fal_chan_send_shared(w.server[0].c, s), 0);
	fal_chan_close(w.server[0].c);
	UNTIL(&w, w.client[0].msgs == 10 && w.server[0].closed);
	fal_shared_drop(s);
	end(&w);
}

/* One that will never be whole is in nobody's way. */
static void
broken_ones_are_left_out(void **state)
{
	struct world w;
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	meet(&w, 0);
	struct fal_shared *s = publish_some(7, 's', false, 10), *next;
	expect(&w.client[0], s);
	assert_int_equal(fal_chan_send_shared(w.server[0].c, s), 0);
	UNTIL(&w, w.client[0].msgs == 10);
	next = publish(8, 'n', false);
	expect(&w.client[0], next);
	assert_int_equal(fal_chan_send_shared(w.server[0].c, next), 0);
	fal_shared_abandon(s);
	fal_shared_drop(s);
	fal_shared_drop(next);
	UNTIL(&w, w.client[0].msgs == 50 && w.server[0].drained > 0);
	end(&w);
}

static void
skips_to_the_newest(void **state)
{
	struct world w;
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	meet(&w, 0);
	struct fal_shared *s[3];
	for (uint64_t i = 0; i < 3; i++) {
		s[i] = publish(i + 1, (char)('1' + i), false);
		expect(&w.client[0], s[i]);
	}
	assert_int_equal(fal_chan_send_shared(w.server[0].c, s[0]), 0);
	assert_int_equal(fal_chan_send_shared(w.server[0].c, s[1]), 0);
	UNTIL(&w, w.client[0].msgs > 0); /* the first is on its way */
	fal_chan_drop_outdated(w.server[0].c, is_old, NULL);
	assert_int_equal(fal_chan_send_shared(w.server[0].c, s[2]), 0);
	UNTIL(&w,
	      w.client[0].log[w.client[0].msgs - 1] == '3' && w.server[0].drained > 0);
	const char *at = memchr(w.client[0].log, '3', w.client[0].msgs);
	UNTIL(&w, w.client[0].msgs == at - w.client[0].log + 40);
	assert_true(w.client[0].msgs < 120);
	for (int i = 0; i < 3; i++)
		fal_shared_drop(s[i]);
	/* Nobody told of this one. */
	struct fal_shared *unknown = publish(9, '9', false);
	assert_int_equal(fal_chan_send_shared(w.server[0].c, unknown), 0);
	fal_shared_drop(unknown);
	UNTIL(&w, w.client[0].closed == 1);
	assert_int_equal(w.client[0].err, FAL_ESTATE);
	end(&w);
}

static void
compression(void **state)
{
	struct world w;
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	meet(&w, 0);
	struct end *c = &w.client[0], *s = &w.server[0];
	fal_chan_compress(c->c, FAL_COMPRESS_ALWAYS);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(send_bytes(c, 'z', 50000, FAL_SEND_BULK), 0);
	UNTIL(&w, s->msgs == 11);
	const struct fal_chan_stat there = fal_chan_stat(c->c),
				   here = fal_chan_stat(s->c);
	assert_int_equal(s->bytes, 500010);
	assert_in_range(there.saved, 490000, 500000);
	assert_true(there.saved == here.saved);
	assert_in_range(here.rx, 1, 10000);
	fal_chan_compress(c->c, FAL_COMPRESS_NEVER);
	assert_int_equal(send_bytes(c, 'n', 50000, FAL_SEND_BULK), 0);
	UNTIL(&w, s->msgs == 12);
	assert_true(fal_chan_stat(c->c).saved == there.saved);
	end(&w);
}

/* Whether a channel to `at` compresses when that is up to it. */
static bool
auto_compresses(const char *at, const struct fal_link *link)
{
	struct world w;
	begin(&w, (struct fal_listen_opt){ 0 });
	fal_listen_close(w.l);
	w.l = NULL;
	struct fal_addr a =
		strcmp(at, "unix") == 0 ? addr("unix:%s/s", w.dir) : addr("%s", at);
	listen_at(&w, a, (struct fal_listen_opt){ 0 });
	a = addr("%s", fal_listen_addr_text(w.l));
	dial_as(&w, 0, &a, client_key("lab", 2, 1),
		(struct fal_chan_opt){ .link = link });
	SEND(&w.client[0], 'h');
	UNTIL(&w, w.server[0].msgs == 1);
	fal_chan_compress(w.client[0].c, FAL_COMPRESS_AUTO);
	fal_chan_compress(w.server[0].c, FAL_COMPRESS_AUTO);
	const bool yes = fal_chan_compressing(w.client[0].c);
	assert_false(fal_chan_compressing(w.server[0].c));
	end(&w);
	return yes;
}

static void
compresses_to_none(const char *const *at, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (auto_compresses(at[i], NULL))
			fail_msg("compresses to %s", at[i]);
}

static void
nothing_is_saved_within_a_machine(void **state)
{
	static const char *const local[] = { "127.0.0.1:0", "127.3.2.1:0", "unix" };
	const struct fal_link slow = { .bandwidth = 1e6, .delay_ns = no_delay };
	(void)state;
	compresses_to_none(local, sizeof(local) / sizeof(*local));
	assert_true(auto_compresses("127.0.0.1:0", &slow));
}

static void
nothing_is_saved_by_ipv6(void **state)
{
	static const char *const local[] = { "[::1]:0", "[::ffff:127.0.0.1]:0" };
	const struct sockaddr_in6 at = { .sin6_family = AF_INET6,
					 .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	int fd = socket(AF_INET6, SOCK_STREAM, 0);
	const bool there =
		fd >= 0 && bind(fd, (const struct sockaddr *)&at, sizeof(at)) == 0;
	(void)state;
	if (fd >= 0)
		close(fd);
	if (!there)
		skip();
	compresses_to_none(local, sizeof(local) / sizeof(*local));
}

static void
revoked(void **state)
{
	struct world w;
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	meet(&w, 0);
	const struct fal_addr at = addr("%s", fal_listen_addr_text(w.l));
	dial_as(&w, 1, &at, client_key("admin", 3, 1), (struct fal_chan_opt){ 0 });
	SEND(&w.client[1], 'h');
	UNTIL(&w, w.server[1].msgs == 1);
	assert_int_equal(w.role, FAL_ROLE_CONTROL);
	struct fal_keyring *fresh =
		parse("coordinator self " K1 "\nadmin control " K3 "\n");
	fal_listen_keyring(w.l, fresh);
	assert_int_equal(w.server[0].closed, 0);
	UNTIL(&w, w.server[0].closed == 1 && w.client[0].closed == 1);
	assert_int_equal(w.server[0].err, FAL_EPERM);
	assert_string_equal(w.server[0].reason, "key 'lab' was revoked");
	SEND(&w.client[1], 'i');
	UNTIL(&w, w.server[1].msgs == 2);
	dial(&w, 2);
	UNTIL(&w, w.client[2].closed == 1);
	assert_int_equal(w.client[2].err, FAL_EPERM);
	end(&w);
	fal_keyring_free(fresh);
}

/* Of a listener whose owner is through with the first one: it closes it. */
static void
close_listener(void *arg, struct fal_chan *c, const char *reason)
{
	struct world *w = arg;
	assert_non_null(w->l);
	assert_string_equal(reason, "key 'lab' was revoked");
	fal_chan_close(c);
	fal_listen_close(w->l);
	w->l = NULL;
}

static void
revoked_and_closed(void **state)
{
	struct world w;
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	fal_listen_close(w.l);
	const struct fal_addr at = addr("127.0.0.1:0");
	const struct fal_listen_opt opt = { .addr = &at, .keyring = w.kr };
	const struct fal_listen_ops ops = { &w, on_accept, on_refused, close_listener };
	assert_int_equal(fal_listen_start(&w.loop, &opt, &ops, &w.l, NULL), 0);
	for (int i = 0; i < 3; i++)
		meet(&w, i);
	struct fal_keyring *fresh = parse("coordinator self " K1 "\n");
	fal_listen_keyring(w.l, fresh);
	assert_null(w.l);
	UNTIL(&w, w.server[0].closed == 1 && w.client[0].closed == 1);
	assert_int_equal(w.server[0].err, FAL_OK); /* its owner's way to end it */
	assert_int_equal(w.server[1].closed + w.server[2].closed, 0);
	end(&w);
	fal_keyring_free(fresh);
}

static void
expired(void **state)
{
	struct world w;
	char text[256], at[32];
	const time_t until = time(NULL) + 2;
	struct tm tm;
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	strftime(at, sizeof(at), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&until, &tm));
	snprintf(text, sizeof(text), "coordinator self %s\nlab work %s %s\n", K1, K2, at);
	struct fal_keyring *fresh = parse(text);
	fal_listen_keyring(w.l, fresh);
	meet(&w, 0);
	UNTIL(&w, w.server[0].closed == 1 && w.client[0].closed == 1);
	assert_true(time(NULL) >= until);
	assert_int_equal(w.server[0].err, FAL_EPERM);
	static const char expired[] = "key 'lab' has expired, 20";
	assert_memory_equal(w.server[0].reason, expired, strlen(expired));
	assert_non_null(strstr(w.server[0].reason, "Z; it is 20"));
	dial(&w, 1);
	UNTIL(&w, w.client[1].closed == 1);
	assert_int_equal(w.client[1].err, FAL_EPERM);
	end(&w);
	fal_keyring_free(fresh);
}

static void
last_words_arrive(void **state)
{
	struct world w;
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	meet(&w, 0);
	struct end *c = &w.client[0], *s = &w.server[0];
	s->close_on_msg = true;
	for (unsigned i = 0; i < 200; i++) /* is still sending when it is refused */
		assert_int_equal(send_bytes(c, 'b', 60000, FAL_SEND_BULK), 0);
	SEND(s, 'r');
	UNTIL(&w, c->closed == 1 && s->closed == 1);
	assert_string_equal(c->log, "r");
	assert_int_equal(s->msgs, 2);
	assert_int_equal(c->closed + s->closed, 2);
	end(&w);
}

static void
killed_is_silent(void **state)
{
	struct world w;
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	meet(&w, 0);
	SEND(&w.client[0], 'x');
	fal_chan_kill(w.client[0].c);
	w.client[0].c = NULL;
	UNTIL(&w, w.server[0].closed == 1);
	assert_int_equal(w.client[0].closed, 0);
	assert_int_equal(w.server[0].msgs, 1);
	end(&w);
}

/* A listener that pauses lets the loop end; whoever came meanwhile gets in later, and who
 * was in before stays. */
static void
waits_while_paused(void **state)
{
	struct world w;
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	meet(&w, 0);
	fal_listen_pause(w.l);
	for (int i = 1; i < 3; i++) {
		dial(&w, i);
		SEND(&w.client[i], 'b');
		UNTIL(&w, fal_chan_stat(w.client[i].c).tx > 0);
	}
	SEND(&w.client[0], 'c');
	UNTIL(&w, w.server[0].msgs == 2);
	assert_int_equal(w.accepted, 1);
	const struct fal_listen_opt opt = { .keyring = w.kr, .paused = w.l };
	const struct fal_listen_ops ops = { &w, on_accept, on_refused, NULL };
	assert_int_equal(fal_listen_start(&w.loop, &opt, &ops, &w.l, NULL), 0);
	UNTIL(&w, w.server[1].msgs == 1 && w.server[2].msgs == 1);
	for (int i = 0; i < 3; i++)
		fal_chan_close(w.client[i].c);
	UNTIL(&w,
	      w.server[0].closed + w.server[1].closed + w.server[2].closed == 3 &&
		      w.client[0].closed + w.client[1].closed + w.client[2].closed == 3);
	fal_listen_pause(w.l);
	uv_unref((uv_handle_t *)&w.guard);
	uv_run(&w.loop, UV_RUN_DEFAULT); /* comes back */
	end(&w);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(over_tcp),
		cmocka_unit_test(over_unix),
		cmocka_unit_test(over_a_command),
		cmocka_unit_test(commands_that_fail),
		cmocka_unit_test(commands_that_hang),
		cmocka_unit_test(asks_silent_peers),
		cmocka_unit_test(signs_of_life),
		cmocka_unit_test(names_that_are_not_resolved),
		cmocka_unit_test(control_overtakes_bulk),
		cmocka_unit_test(room_is_for_a_batch),
		cmocka_unit_test(bulk_leaves_while_it_is_made),
		cmocka_unit_test(all_leaves_that_is_sent_on_room),
		cmocka_unit_test(nobody_there),
		cmocka_unit_test(queue_cap),
		cmocka_unit_test(shared_to_three),
		cmocka_unit_test(leaves_as_it_is_made),
		cmocka_unit_test(goes_with_later_offers),
		cmocka_unit_test(others_pass_what_is_made),
		cmocka_unit_test(closes_before_all_is_made),
		cmocka_unit_test(broken_ones_are_left_out),
		cmocka_unit_test(skips_to_the_newest),
		cmocka_unit_test(compression),
		cmocka_unit_test(nothing_is_saved_within_a_machine),
		cmocka_unit_test(nothing_is_saved_by_ipv6),
		cmocka_unit_test(revoked),
		cmocka_unit_test(revoked_and_closed),
		cmocka_unit_test(expired),
		cmocka_unit_test(waits_while_paused),
		cmocka_unit_test(last_words_arrive),
		cmocka_unit_test(killed_is_silent),
	};
	signal(SIGPIPE, SIG_IGN);
	cmocka_set_message_output(CM_OUTPUT_TAP);
	pool = fal_shared_pool_new(NULL);
	const int failed = cmocka_run_group_tests(tests, NULL, NULL);
	fal_shared_pool_free(pool);
	return failed;
}
