/* Channels over a unix socket, be it a door beside a port, whose ends share memory, and
 * others, whose ends do not: what is said comes all the same. */
#include "../drawn.h"
#include "net/chan_priv.h"
#include "test_net.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#define COUNT 4      /* messages of a publication */
#define REST 30000   /* bytes of each on the shelf */
#define MODEL_HEAD 9 /* bytes before them: 'm', its publication, which one it is */
#define BYTES ((size_t)COUNT * REST)

enum kind { BULK, CONTROL, KINDS };

/* What an end is to hear, and has heard. */
struct ear {
	uint64_t seed;
	uint32_t said[KINDS], heard[KINDS];
	size_t bulk; /* bytes of long bulk that was said */
};

/* The test that runs. */
static struct {
	struct world w;
	struct ear server, client;
	struct fal_shelf *shelf;
	uint64_t publications;
	unsigned models, placed, missed;
	uint64_t missed_last;
	bool places, mixed;
	uint8_t room[REST];
} t;

static struct fal_shared_pool *pool; /* of all publications */

/* --- what is said --- */

static void
draw_bytes(uint64_t of, uint32_t which, uint8_t *p, size_t n)
{
	struct fal_rng rng = fal_rng_init(of, FAL_RNG_TEST, which);
	for (size_t i = 0; i < n; i += 4) {
		const uint32_t v = fal_rng_u32(&rng);
		memcpy(p + i, &v, n - i < 4 ? n - i : 4);
	}
}

/* Message `which` of its kind, for this ear: its bytes, of which there are n. */
static size_t
make(const struct ear *ear, enum kind kind, uint32_t which,
     uint8_t out[static FAL_RECORD_MAX])
{
	static const uint32_t most[] = { 10, 4096, 9000, FAL_RECORD_MAX, FAL_RECORD_MAX };
	struct fal_rng rng = fal_rng_init(ear->seed + kind, FAL_RNG_TEST, which);
	const uint32_t all = most[fal_rng_below(&rng, kind == CONTROL ? 2 : 5)];
	const size_t n = 1 + fal_rng_below(&rng, all);
	draw_bytes(fal_rng_u64(&rng), which, out, n);
	out[0] = kind == BULK ? 'b' : 'c';
	return n;
}

static void
say(struct end *from, struct ear *to, enum kind kind)
{
	static uint8_t bytes[FAL_RECORD_MAX];
	const size_t n = make(to, kind, to->said[kind]++, bytes);
	const struct fal_buf msg = { .p = bytes, .n = n };
	if (kind == BULK && n >= FAL_WRITER_RING_MIN)
		to->bulk += n;
	assert_int_equal(fal_chan_send(from->c, &msg,
				       kind == BULK ? FAL_SEND_BULK : FAL_SEND_CONTROL),
			 0);
}

/* --- and heard --- */

/* Is this a message of a publication, its values at `rest`? */
static void
is_model(const uint8_t *p, const uint8_t *rest)
{
	static uint8_t want[REST];
	uint32_t which;
	uint64_t id = 0;
	memcpy(&which, p + 5, 4);
	memcpy(&id, p + 1, 4);
	assert_in_range(id, 1, t.publications);
	draw_bytes(id, which, want, REST);
	assert_memory_equal(rest, want, REST);
	t.models++;
}

static void
on_heard(void *arg, struct fal_chan *c, const uint8_t *p, size_t n)
{
	static uint8_t want[FAL_RECORD_MAX];
	struct ear *ear = arg == &t.w.server[0] ? &t.server : &t.client;
	on_msg(arg, c, p, n);
	if (p[0] == 'm') {
		assert_int_equal(n, MODEL_HEAD + REST);
		is_model(p, p + MODEL_HEAD);
	} else if (p[0] == 'b' || p[0] == 'c') {
		const enum kind kind = p[0] == 'b' ? BULK : CONTROL;
		assert_true(ear->heard[kind] < ear->said[kind]);
		assert_int_equal(n, make(ear, kind, ear->heard[kind]++, want));
		assert_memory_equal(p, want, n);
	}
}

static uint8_t *
on_place(void *arg, const struct fal_publication *pub, uint32_t index, size_t n,
	 size_t *head)
{
	(void)arg;
	assert_in_range(pub->id, 1, t.publications);
	assert_in_range(index, 0, COUNT - 1);
	assert_int_equal(n, MODEL_HEAD + REST);
	*head = MODEL_HEAD;
	return t.places ? t.room : NULL;
}

static void
on_placed(void *arg, struct fal_chan *c, const uint8_t *p, size_t n)
{
	assert_int_equal(n, MODEL_HEAD);
	on_msg(arg, c, p, n);
	is_model(p, t.room);
	t.placed++;
}

static void
on_missed(void *arg, struct fal_chan *c, const struct fal_publication *pub)
{
	(void)arg;
	(void)c;
	t.missed++;
	t.missed_last = pub->id;
}

/* --- a relay, which hands on bytes --- */

static struct {
	pthread_t thread;
	int at; /* it listens */
	struct sockaddr_un from, to;
	bool runs;
} relay;

/* What the one has said, to the other; false: no more comes. */
static bool
hand_on(int from, int to)
{
	static uint8_t bytes[1 << 16];
	const ssize_t n = read(from, bytes, sizeof(bytes));
	for (ssize_t at = 0, put; at < n; at += put)
		if ((put = write(to, bytes + at, (size_t)(n - at))) < 0)
			return false;
	if (n <= 0)
		(void)shutdown(to, SHUT_WR);
	return n > 0;
}

static void *
relay_runs(void *arg)
{
	const int client = accept(relay.at, NULL, NULL);
	const int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct pollfd both[2] = { { .fd = client, .events = POLLIN },
				  { .fd = server, .events = POLLIN } };
	(void)arg;
	if (connect(server, (struct sockaddr *)&relay.to, sizeof(relay.to)) < 0)
		both[0].fd = both[1].fd = -1;
	while ((both[0].fd >= 0 || both[1].fd >= 0) && poll(both, 2, -1) > 0) {
		if (both[0].revents != 0 && !hand_on(client, server))
			both[0].fd = -1;
		if (both[1].revents != 0 && !hand_on(server, client))
			both[1].fd = -1;
	}
	close(client);
	close(server);
	return NULL;
}

/* Where it listens, before dir/s. */
static struct fal_addr
relay_begin(void)
{
	relay.from.sun_family = relay.to.sun_family = AF_UNIX;
	snprintf(relay.from.sun_path, sizeof(relay.from.sun_path), "%s/r", t.w.dir);
	snprintf(relay.to.sun_path, sizeof(relay.to.sun_path), "%s/s", t.w.dir);
	relay.at = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(relay.at, (struct sockaddr *)&relay.from,
			      sizeof(relay.from)),
			 0);
	assert_int_equal(listen(relay.at, 1), 0);
	assert_int_equal(pthread_create(&relay.thread, NULL, relay_runs, NULL), 0);
	relay.runs = true;
	return addr("unix:%s/r", t.w.dir);
}

/* After its ends. */
static void
relay_end(void)
{
	if (!relay.runs)
		return;
	assert_int_equal(pthread_join(relay.thread, NULL), 0);
	close(relay.at);
	relay.runs = false;
}

/* --- two that meet --- */

enum way {
	BY_UNIX,
	BY_DOOR,  /* beside a port */
	BY_RELAY, /* descriptors are lost */
	BY_TCP,
	BY_DEAF,   /* the client does not know what to do about what it missed */
	BY_SLOW,   /* its line is emulated */
	BY_SLOWED, /* the server's is */
	WAYS
};

static uint64_t
no_delay(void *arg, uint64_t now)
{
	(void)arg;
	(void)now;
	return 0;
}

static unsigned
open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;
	assert_non_null(d);
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

static unsigned had; /* files, before they met */

static void
two_meet(enum way way, uint64_t seed)
{
	static const struct fal_link slow = { .bandwidth = 1e9, .delay_ns = no_delay };
	const struct fal_chan_opt by = { .link = way == BY_SLOW ? &slow : NULL };
	const struct fal_chan_opt here = { .link = way == BY_SLOWED ? &slow : NULL };
	const struct fal_client_key key = client_key("lab", 2, 1);
	memset(&t, 0, sizeof(t));
	relay.runs = false; /* that of a test that failed stays */
	had = open_files();
	t.server.seed = seed;
	t.client.seed = ~seed;
	begin(&t.w, (struct fal_listen_opt){ .chan = here });
	if (way == BY_DOOR) {
		fal_listen_close(t.w.l);
		listen_at(&t.w, addr("127.0.0.1:0"),
			  (struct fal_listen_opt){ .near = true });
	} else if (way != BY_TCP) {
		fal_listen_close(t.w.l);
		listen_at(&t.w, addr("unix:%s/s", t.w.dir),
			  (struct fal_listen_opt){ .chan = here });
	}
	const struct fal_addr at =
		way == BY_RELAY ? relay_begin() : addr("%s", fal_listen_text(t.w.l));
	struct end *c = &t.w.client[0], *s = &t.w.server[0];
	struct fal_chan_ops ops = ops_of(c);
	ops.on_msg = on_heard;
	ops.on_place = on_place;
	ops.on_placed = on_placed;
	ops.on_missed = way == BY_DEAF ? NULL : on_missed;
	if (way == BY_DOOR)
		assert_int_equal(fal_dial_near(&t.w.loop, &at, &key, &by, &ops, &c->c),
				 0);
	else
		assert_int_equal(fal_dial(&t.w.loop, &at, &key, &by, &ops, &c->c), 0);
	SEND(c, 'h');
	UNTIL(&t.w, s->msgs == 1);
	ops = ops_of(s);
	ops.on_msg = on_heard;
	fal_chan_adopt(s->c, &ops);
	if (way == BY_RELAY)
		unlink(relay.from.sun_path);
	assert_int_equal(fal_shelf_new(BYTES, &t.shelf), 0);
}

static void
two_part(void)
{
	end(&t.w);
	relay_end();
	fal_shelf_free(t.shelf);
	assert_int_equal(open_files(), had);
}

/* All that was sent before has been heard. */
static void
asked_and_answered(void)
{
	struct end *c = &t.w.client[0], *s = &t.w.server[0];
	const unsigned here = s->msgs, there = c->msgs;
	SEND(s, 'q');
	UNTIL(&t.w, c->msgs > there && c->log[c->msgs - 1] == 'q');
	SEND(c, 'a');
	UNTIL(&t.w, s->msgs > here && s->log[s->msgs - 1] == 'a');
}

/* Offers memory; did the client take it? */
static bool
lent(void)
{
	struct fal_chan *s = t.w.server[0].c, *c = t.w.client[0].c;
	assert_false(fal_chan_may_share(c));
	assert_false(fal_chan_shares(s));
	assert_int_equal(fal_chan_lend(s, t.shelf), 0);
	assert_false(fal_chan_may_share(s)); /* once */
	asked_and_answered();
	assert_int_equal(fal_chan_shares(c), fal_chan_shares(s));
	/* They are on their way, or closed: the maps are enough. */
	assert_int_equal(s->fds + c->fds, 0);
	return fal_chan_shares(s);
}

/* One message. */
static int
add_text(struct fal_shared *s, const struct fal_aead_text *msg, uint32_t index)
{
	const struct fal_shared_text text = { *msg, (size_t)index * REST, index };
	return fal_shared_add_texts(s, &text, 1);
}

/* Publishes what is there as a version, where it is told. */
static struct fal_shared *
publish(uint64_t version, struct fal_shelf *shelf)
{
	static uint8_t rest[REST];
	const struct fal_shared_opt opt = { .pool = pool,
					    .publication = ++t.publications,
					    .count = COUNT,
					    .ad = "job",
					    .ad_n = 3,
					    .version = version,
					    .shelf = shelf };
	const uint32_t turn = t.mixed ? (uint32_t)t.publications % COUNT : 0;
	struct fal_shared *s;
	assert_int_equal(fal_shared_new(&opt, &s), 0);
	for (uint32_t k = 0; k < COUNT; k++) {
		const uint32_t i = (k + turn) % COUNT;
		uint8_t head[MODEL_HEAD] = { 'm' };
		memcpy(head + 1, &t.publications, 4);
		memcpy(head + 5, &i, 4);
		draw_bytes(t.publications, i, rest, REST);
		const struct fal_aead_text text = { head, MODEL_HEAD, rest, REST };
		assert_int_equal(add_text(s, &text, i), 0);
	}
	return s;
}

/* And sends it, once the client has been told. */
static void
send_publication(struct fal_shared *s)
{
	const struct fal_publication pub = { .id = fal_shared_publication(s),
					     .count = COUNT,
					     .key = fal_shared_key(s),
					     .ad = "job",
					     .ad_n = 3,
					     .version = fal_shared_version(s) };
	assert_int_equal(fal_chan_expect_shared(t.w.client[0].c, &pub), 0);
	assert_int_equal(fal_chan_send_shared(t.w.server[0].c, s), 0);
	fal_shared_drop(s);
}

static bool
all_heard(const struct ear *ear)
{
	return ear->heard[BULK] == ear->said[BULK] &&
	       ear->heard[CONTROL] == ear->said[CONTROL];
}

/* What was sent is what was received, by whatever way. */
static bool
counts_agree(void)
{
	const struct fal_chan_stat c = fal_chan_stat(t.w.client[0].c),
				   s = fal_chan_stat(t.w.server[0].c);
	return c.rx == s.tx && s.rx == c.tx;
}

/* Both talk at once, of more than a ring holds, and versions are published. */
static void
talk(struct fal_rng *rng)
{
	struct end *c = &t.w.client[0], *s = &t.w.server[0];
	const bool shares = fal_chan_shares(s->c);
	const unsigned models = t.models;
	for (int i = 0; i < 350; i++) {
		say(c, &t.server, one_in(rng, 10) ? CONTROL : BULK);
		if (one_in(rng, 5))
			say(s, &t.client, one_in(rng, 4) ? CONTROL : BULK);
	}
	for (uint64_t version = 1; version <= FAL_SHELF_SLOTS; version++)
		send_publication(publish(t.publications + 1, shares ? t.shelf : NULL));
	UNTIL(&t.w, all_heard(&t.server) && all_heard(&t.client));
	UNTIL(&t.w, t.models == models + FAL_SHELF_SLOTS * COUNT);
	UNTIL(&t.w, counts_agree());
}

/* Bytes that came by memory, at the server and at the client. */
static uint64_t
beside(const struct end *e)
{
	return fal_reader_beside(e->c->reader);
}

static void
memory_is_shared(void **state)
{
	struct fal_rng rng = fal_rng_init(drawn_seed(81), FAL_RNG_TEST, 0);
	(void)state;
	const bool first = one_in(&rng, 2);
	for (int places = 0; places < 2; places++) {
		two_meet((places == 0) == first ? BY_UNIX : BY_DOOR, fal_rng_u64(&rng));
		const struct end *c = &t.w.client[0], *s = &t.w.server[0];
		t.places = places;
		t.mixed = one_in(&rng, 2);
		assert_true(fal_chan_may_share(s->c));
		talk(&rng); /* by the stream, as yet */
		assert_int_equal(beside(s) + beside(c), 0);
		t.server.bulk = 0;
		assert_true(lent());
		const uint64_t stream = s->c->rx;
		for (int i = 0; i < 3; i++)
			talk(&rng);
		/* By the ring as much as it holds, the rest by the stream. */
		assert_true(beside(s) > 2 * FAL_RING_LEAST);
		assert_true(beside(s) < t.server.bulk);
		assert_true(s->c->rx - stream > t.server.bulk - beside(s));
		assert_true(beside(s) == fal_writer_beside(c->c->writer));
		/* And all of what was published on the shelf. */
		assert_true(beside(c) == 3 * FAL_SHELF_SLOTS * BYTES);
		assert_true(beside(c) == fal_writer_beside(s->c->writer));
		assert_int_equal(t.placed, places ? t.models : 0);
		assert_int_equal(t.missed, 0);
		two_part();
	}
}

static void
nothing_is_shared(void **state)
{
	struct fal_rng rng = fal_rng_init(drawn_seed(82), FAL_RNG_TEST, 0);
	(void)state;
	for (enum way way = BY_RELAY; way < WAYS; way++) {
		two_meet(way, fal_rng_u64(&rng));
		const struct end *c = &t.w.client[0], *s = &t.w.server[0];
		const bool may = fal_chan_may_share(s->c);
		t.places = one_in(&rng, 2);
		assert_int_equal(may, way != BY_TCP && way != BY_SLOWED);
		if (lent())
			fail_msg("memory is shared by way %d", way);
		for (int i = 0; i < 2; i++)
			talk(&rng);
		assert_int_equal(beside(s) + beside(c), 0);
		assert_int_equal(fal_writer_beside(c->c->writer), 0);
		assert_int_equal(t.missed, 0);
		two_part();
	}
}

/* Who is too late is told, and the next version comes; so does the missed one by the
 * stream. */
static void
missed_ones_are_told(void **state)
{
	(void)state;
	for (int how = 0; how < 4; how++) {
		two_meet(BY_UNIX, 2);
		t.places = how % 2 != 0;
		t.mixed = how / 2 != 0;
		assert_true(lent());
		send_publication(publish(1, t.shelf));
		for (uint64_t version = 2; version <= FAL_SHELF_SLOTS; version++)
			fal_shared_drop(publish(version, t.shelf));
		struct fal_shared *next = publish(9, t.shelf);
		const uint64_t id = fal_shared_publication(next);
		send_publication(next);
		UNTIL(&t.w, t.models == COUNT);
		assert_int_equal(t.missed, 1);
		assert_int_equal(t.missed_last, 1);
		assert_int_equal(beside(&t.w.client[0]), BYTES);
		send_publication(publish(1, NULL));
		UNTIL(&t.w, t.models == 2 * COUNT);
		/* And when others were only about to be made there. */
		send_publication(publish(10, t.shelf));
		for (uint64_t version = 11; version <= 10 + FAL_SHELF_SLOTS; version++)
			fal_shelf_take(t.shelf, version);
		asked_and_answered();
		UNTIL(&t.w, t.missed == 2);
		assert_int_equal(t.missed_last, id + 2);
		send_publication(publish(10, t.shelf));
		UNTIL(&t.w, t.models == 3 * COUNT);
		assert_int_equal(t.missed, 2);
		two_part();
	}
}

static void
tell(struct end *e, const struct fal_memory *m)
{
	assert_int_equal(fal_writer_put_memory(e->c->writer, m, false), 0);
	fal_chan_flush(e->c);
}

/* Words at the wrong moment end the session, of whoever hears them. */
static void
words_at_the_wrong_moment(void **state)
{
	static const struct {
		bool shares, by_server;
		struct fal_memory m;
		int err;
	} cases[] = {
		{ false, false, { .word = FAL_MEMORY_TAKEN }, FAL_ESTATE },
		{ true, false, { .word = FAL_MEMORY_TAKEN }, FAL_ESTATE },
		{ false, false, { .word = FAL_MEMORY_OFFER, .ring = 64 }, FAL_ESTATE },
		{ true, false, { .word = FAL_MEMORY_OFFER, .ring = 64 }, FAL_ESTATE },
		{ true, true, { .word = FAL_MEMORY_OFFER, .ring = 64 }, FAL_ESTATE },
		{ false, true, { .word = FAL_MEMORY_TAKEN }, FAL_ESTATE },
		{ true, true, { .word = FAL_MEMORY_TAKEN }, FAL_ESTATE },
		{ false, false, { .word = FAL_MEMORY_SENT }, FAL_EFORMAT },
		{ true, true, { .word = FAL_MEMORY_SENT }, FAL_EFORMAT },
		{ true,
		  false,
		  { .word = FAL_MEMORY_SENT, .where = { .n = 9, .at = UINT64_MAX } },
		  FAL_EFORMAT },
	};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		two_meet(BY_UNIX, i);
		struct end *c = &t.w.client[0], *s = &t.w.server[0];
		struct end *hears = cases[i].by_server ? c : s;
		if (cases[i].shares)
			assert_true(lent());
		struct end *says = cases[i].by_server ? s : c;
		tell(says, &cases[i].m);
		SEND(says, 'z');
		UNTIL(&t.w,
		      (c->closed == 1 && s->closed == 1) ||
			      (hears->msgs > 0 && hears->log[hears->msgs - 1] == 'z'));
		if (hears->err != cases[i].err)
			fail_msg("word %zu: %d, %s", i, hears->err, hears->reason);
		two_part();
	}
	/* An offer of nothing is only not taken. */
	const struct fal_memory m = { .word = FAL_MEMORY_OFFER, .shelf = 5, .ring = 64 };
	two_meet(BY_UNIX, 7);
	tell(&t.w.server[0], &m);
	asked_and_answered();
	assert_false(fal_chan_shares(t.w.client[0].c));
	two_part();
}

/* Descriptors that are not what was offered, or not all of them. */
static void
spoil(struct fal_chan *s, int how)
{
	const int first = s->fd[0];
	switch (how) {
	case 0: /* none */
		close(s->fd[0]);
		close(s->fd[1]);
		s->fds = 0;
		break;
	case 1: /* the shelf's alone */
		close(s->fd[1]);
		s->fds = 1;
		break;
	case 2: /* in the wrong order */
		s->fd[0] = s->fd[1];
		s->fd[1] = first;
		break;
	case 3: /* twice the shelf */
		assert_true(dup2(s->fd[0], s->fd[1]) >= 0);
		break;
	case 4: /* what may become shorter */
		assert_true(ftruncate(s->fd[0], 1) < 0);
		s->fd[0] = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		assert_int_equal(ftruncate(s->fd[0], 1 << 20), 0);
		close(first);
		break;
	default: /* no memory */
		s->fd[1] = dup2(STDERR_FILENO, s->fd[1]);
		break;
	}
}

static void
spoilt_offers_are_not_taken(void **state)
{
	struct fal_rng rng = fal_rng_init(drawn_seed(83), FAL_RNG_TEST, 0);
	(void)state;
	for (int how = 0; how < 6; how++) {
		two_meet(BY_UNIX, fal_rng_u64(&rng));
		struct fal_chan *s = t.w.server[0].c, *c = t.w.client[0].c;
		assert_int_equal(fal_chan_lend(s, t.shelf), 0);
		assert_int_equal(s->fds, FAL_CHAN_FDS);
		spoil(s, how);
		asked_and_answered();
		if (fal_chan_shares(c) || fal_chan_shares(s))
			fail_msg("offer %d is taken", how);
		assert_int_equal(s->fds + c->fds, 0);
		talk(&rng);
		assert_int_equal(beside(&t.w.server[0]), 0);
		two_part();
	}
}

/* A record with eight descriptors beside it. */
static void
hand_many(struct end *from)
{
	struct fal_piece piece;
	int fd[8];
	assert_int_equal(fal_writer_put(from->c->writer, "x", 1, FAL_SEND_CONTROL), 0);
	assert_int_equal(fal_writer_next(from->c->writer, 0, &piece), 1);
	for (int i = 0; i < 8; i++)
		fd[i] = dup(STDERR_FILENO);
	const uv_buf_t buf = { .base = (char *)(uintptr_t)piece.p, .len = piece.n };
	assert_int_equal(fal_stream_hand(from->c->io, &buf, 1, fd, 8), piece.n);
	for (int i = 0; i < 8; i++)
		close(fd[i]);
	fal_piece_free(&piece);
}

/* Whoever sends descriptors that nobody wants spends none of ours. */
static void
descriptors_for_nothing(void **state)
{
	struct fal_rng rng = fal_rng_init(drawn_seed(84), FAL_RNG_TEST, 0);
	(void)state;
	for (int by_server = 0; by_server < 2; by_server++) {
		two_meet(BY_UNIX, fal_rng_u64(&rng));
		struct end *c = &t.w.client[0], *s = &t.w.server[0];
		struct end *from = by_server ? s : c, *to = by_server ? c : s;
		const unsigned before = open_files();
		for (int i = 0; i < 50; i++) {
			const unsigned msgs = to->msgs;
			hand_many(from);
			UNTIL(&t.w, to->msgs == msgs + 1);
		}
		asked_and_answered();
		/* No more are kept than an offer has. */
		assert_in_range(open_files(), before,
				before + (by_server ? FAL_CHAN_FDS : 0));
		assert_int_equal(fal_chan_lend(s->c, t.shelf), 0);
		asked_and_answered();
		assert_int_equal(fal_chan_shares(s->c), !by_server);
		assert_int_equal(fal_chan_shares(c->c), !by_server);
		two_part();
	}
}

/* Who is killed while descriptors are on their way leaves none. */
static void
killed_between(void **state)
{
	(void)state;
	for (int turns = 0; turns < 12; turns++)
		for (int both = 0; both < 2; both++) {
			two_meet(BY_UNIX, 5);
			assert_int_equal(fal_chan_lend(t.w.server[0].c, t.shelf), 0);
			for (int i = 0; i < turns / 2; i++)
				uv_run(&t.w.loop, UV_RUN_NOWAIT);
			struct end *first =
				turns % 2 == 0 ? &t.w.server[0] : &t.w.client[0];
			fal_chan_kill(first->c);
			first->c = NULL;
			if (both == 0)
				UNTIL(&t.w,
				      t.w.server[0].closed + t.w.client[0].closed == 1);
			two_part();
		}
}

/* What the loop and the library open once is open. */
static int
warm_up(void **state)
{
	(void)state;
	two_meet(BY_UNIX, 3);
	end(&t.w);
	fal_shelf_free(t.shelf);
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_is_shared),
		cmocka_unit_test(nothing_is_shared),
		cmocka_unit_test(missed_ones_are_told),
		cmocka_unit_test(words_at_the_wrong_moment),
		cmocka_unit_test(spoilt_offers_are_not_taken),
		cmocka_unit_test(descriptors_for_nothing),
		cmocka_unit_test(killed_between),
	};
	signal(SIGPIPE, SIG_IGN);
	cmocka_set_message_output(CM_OUTPUT_TAP);
	pool = fal_shared_pool_new(NULL);
	const int failed = cmocka_run_group_tests(tests, warm_up, NULL);
	fal_shared_pool_free(pool);
	return failed;
}
