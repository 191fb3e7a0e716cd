/* Channels over a unix socket, be it a door beside a port, whose records are not sealed,
 * and others, whose are: what is said comes all the same. */
#include "../drawn.h"
#include "net/conn_priv.h"
#include "net/door.h"
#include "test_net.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#define COUNT 4      /* messages of a publication */
#define REST 30000   /* bytes of each behind its head */
#define MODEL_HEAD 9 /* bytes before them: 'm', its publication, which one it is */
#define VERSIONS 3   /* of a talk */

enum kind { BULK, CONTROL, KINDS };

/* Messages that an end is to hear, and has heard, of each kind. */
struct ear {
	uint64_t seed;
	uint32_t said[KINDS], heard[KINDS];
};

/* The test that runs. */
static struct {
	struct world w;
	struct ear server, client;
	uint64_t publications;
	unsigned models, placed;
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

/* --- a relay of bytes: in another process, as the kernel tells processes apart --- */

static struct {
	pid_t pid; /* 0: none */
	struct sockaddr_un from, to;
} relay;

/* Hands on bytes that have come; false: no more come. */
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

static void
relay_runs(int at)
{
	const int client = accept(at, NULL, NULL);
	const int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct pollfd both[2] = { { .fd = client, .events = POLLIN },
				  { .fd = server, .events = POLLIN } };
	if (connect(server, (struct sockaddr *)&relay.to, sizeof(relay.to)) < 0)
		both[0].fd = both[1].fd = -1;
	while ((both[0].fd >= 0 || both[1].fd >= 0) && poll(both, 2, -1) > 0) {
		if (both[0].revents != 0 && !hand_on(client, server))
			both[0].fd = -1;
		if (both[1].revents != 0 && !hand_on(server, client))
			both[1].fd = -1;
	}
}

/* Begins the relay before dir/s; returns its address.  The relay's process listens, as
 * the kernel names the process that did. */
static struct fal_addr
relay_begin(void)
{
	char ready = 0;
	int say[2];
	relay.from.sun_family = relay.to.sun_family = AF_UNIX;
	snprintf(relay.from.sun_path, sizeof(relay.from.sun_path), "%s/r", t.w.dir);
	snprintf(relay.to.sun_path, sizeof(relay.to.sun_path), "%s/s", t.w.dir);
	assert_int_equal(pipe(say), 0);
	relay.pid = fork();
	if (relay.pid == 0) {
		const int at = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (bind(at, (struct sockaddr *)&relay.from, sizeof(relay.from)) < 0 ||
		    listen(at, 1) < 0 || write(say[1], "r", 1) != 1)
			_exit(1);
		relay_runs(at);
		_exit(0);
	}
	assert_true(relay.pid > 0);
	close(say[1]);
	assert_int_equal(read(say[0], &ready, 1), 1);
	close(say[0]);
	return addr("unix:%s/r", t.w.dir);
}

/* Waits for the relay's end; both channels have ended. */
static void
relay_end(void)
{
	int how;
	if (relay.pid == 0)
		return;
	assert_int_equal(waitpid(relay.pid, &how, 0), relay.pid);
	assert_int_equal(how, 0);
	relay.pid = 0;
}

/* --- two that meet --- */

enum way {
	BY_UNIX,
	BY_DOOR, /* beside a port */
	BY_RELAY,
	BY_TCP,
	BY_SEALER, /* the client seals all */
	BY_SEALED, /* the server does */
	BY_SLOW,   /* the client's line is emulated */
	BY_SLOWED, /* the server's is */
	WAYS
};

static void
two_meet(enum way way, uint64_t seed)
{
	static const struct fal_link slow = { .bandwidth = 1e9, .delay_ns = no_delay };
	const struct fal_chan_opt by = { .link = way == BY_SLOW ? &slow : NULL,
					 .unseals = way != BY_SEALER };
	const struct fal_chan_opt here = { .link = way == BY_SLOWED ? &slow : NULL,
					   .unseals = way != BY_SEALED };
	const struct fal_client_key key = client_key("lab", 2, 1);
	memset(&t, 0, sizeof(t));
	relay.pid = 0; /* that of a test that failed stays */
	t.server.seed = seed;
	t.client.seed = ~seed;
	begin(&t.w, (struct fal_listen_opt){ .chan = here });
	if (way != BY_DOOR && way != BY_TCP) {
		fal_listen_close(t.w.l);
		listen_at(&t.w, addr("unix:%s/s", t.w.dir),
			  (struct fal_listen_opt){ .chan = here });
	}
	const struct fal_addr at =
		way == BY_RELAY ? relay_begin() : addr("%s", fal_listen_addr_text(t.w.l));
	struct end *c = &t.w.client[0], *s = &t.w.server[0];
	struct fal_chan_ops ops = ops_of(c);
	ops.on_msg = on_heard;
	ops.on_place = on_place;
	ops.on_placed = on_placed;
	if (way == BY_DOOR)
		assert_int_equal(fal_dial_door(&t.w.loop, &at, &key, &by, &ops, &c->c),
				 0);
	else
		assert_int_equal(fal_dial(&t.w.loop, &at, &key, &by, &ops, &c->c), 0);
	SEND(c, 'h');
	UNTIL(&t.w, s->msgs == 1);
	ops = ops_of(s);
	ops.on_msg = on_heard;
	fal_chan_set_ops(s->c, &ops);
	if (way == BY_RELAY)
		unlink(relay.from.sun_path);
}

static void
two_part(void)
{
	end(&t.w);
	relay_end();
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

/* Do both ends seal no more, once all has come that they say of it? */
static bool
unsealed(void)
{
	const struct fal_chan *s = t.w.server[0].c, *c = t.w.client[0].c;
	asked_and_answered();
	asked_and_answered(); /* the server is the last to switch */
	assert_int_equal(fal_chan_is_unsealed(c), fal_chan_is_unsealed(s));
	assert_int_equal(c->reader->unsealed, fal_chan_is_unsealed(s));
	assert_int_equal(s->reader->unsealed, fal_chan_is_unsealed(c));
	return fal_chan_is_unsealed(s);
}

/* Adds one message. */
static int
add_text(struct fal_shared *s, const struct fal_aead_text *msg, uint32_t index)
{
	const struct fal_shared_text text = { *msg, index };
	return fal_shared_add_texts(s, &text, 1);
}

/* Publishes a version. */
static struct fal_shared *
publish(bool sealed)
{
	static uint8_t rest[REST];
	const struct fal_shared_opt opt = { .pool = pool,
					    .publication = ++t.publications,
					    .count = COUNT,
					    .ad = "job",
					    .ad_n = 3,
					    .version = t.publications,
					    .unsealed = !sealed };
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

/* Tells the client of the publication, and sends it. */
static void
send_publication(struct fal_shared *s)
{
	const struct fal_publication pub = { .id = s->pub.id,
					     .count = COUNT,
					     .key = s->pub.key,
					     .ad = "job",
					     .ad_n = 3,
					     .version = s->version };
	assert_int_equal(fal_chan_expect_publication(t.w.client[0].c, &pub), 0);
	assert_int_equal(fal_chan_send_shared(t.w.server[0].c, s), 0);
	fal_shared_drop(s);
}

static bool
all_heard(const struct ear *ear)
{
	return ear->heard[BULK] == ear->said[BULK] &&
	       ear->heard[CONTROL] == ear->said[CONTROL];
}

/* Has each end received as many bytes as the other one has sent? */
static bool
counts_agree(void)
{
	const struct fal_chan_stat c = fal_chan_stat(t.w.client[0].c),
				   s = fal_chan_stat(t.w.server[0].c);
	return c.rx == s.tx && s.rx == c.tx;
}

/* Both talk at once, and versions are published. */
static void
talk(struct fal_rng *rng)
{
	struct end *c = &t.w.client[0], *s = &t.w.server[0];
	const bool seals = !fal_chan_is_unsealed(s->c);
	const unsigned models = t.models;
	for (int i = 0; i < 350; i++) {
		say(c, &t.server, one_in(rng, 10) ? CONTROL : BULK);
		if (one_in(rng, 5))
			say(s, &t.client, one_in(rng, 4) ? CONTROL : BULK);
	}
	/* A sealed publication may be sent by any channel. */
	for (int i = 0; i < VERSIONS; i++)
		send_publication(publish(seals || i == 1));
	UNTIL(&t.w, all_heard(&t.server) && all_heard(&t.client));
	UNTIL(&t.w, t.models == models + VERSIONS * COUNT);
	UNTIL(&t.w, counts_agree());
}

static void
nothing_is_sealed(void **state)
{
	struct fal_rng rng = fal_rng_init(drawn_seed(81), FAL_RNG_TEST, 0);
	(void)state;
	const bool first = one_in(&rng, 2);
	for (int places = 0; places < 2; places++) {
		two_meet((places == 0) == first ? BY_UNIX : BY_DOOR, fal_rng_u64(&rng));
		struct end *c = &t.w.client[0], *s = &t.w.server[0];
		t.places = places;
		t.mixed = one_in(&rng, 2);
		talk(&rng); /* the switch is in the midst of it */
		assert_true(unsealed());
		for (int i = 0; i < 3; i++)
			talk(&rng);
		/* A message of 10 bytes, and its head. */
		const uint64_t stream = s->c->rx;
		const unsigned msgs = s->msgs;
		SEND(c, 'z');
		UNTIL(&t.w, s->msgs == msgs + 1);
		assert_int_equal(s->c->rx - stream, FAL_RECORD_HEAD + 10);
		if (t.places)
			assert_true(t.placed == t.models);
		two_part();
	}
}

static void
all_is_sealed(void **state)
{
	struct fal_rng rng = fal_rng_init(drawn_seed(82), FAL_RNG_TEST, 0);
	(void)state;
	for (enum way way = BY_RELAY; way < WAYS; way++) {
		two_meet(way, fal_rng_u64(&rng));
		t.places = one_in(&rng, 2);
		for (int i = 0; i < 3; i++) {
			talk(&rng);
			if (unsealed())
				fail_msg("nothing is sealed by way %d", way);
		}
		two_part();
	}
}

/* --- what breaks the rules --- */

/* Names a process: our own, with this byte changed, or none (-1). */
static void
name(struct end *from, int changed)
{
	uint8_t process[FAL_PROCESS_BYTES];
	assert_true(fal_process_name(process));
	if (changed >= 0)
		process[changed] ^= 1;
	fal_writer_put_unseal(from->c->writer, process, sizeof(process));
	fal_chan_flush(from->c);
}

/* Another process, another namespace, another kernel: the session stays sealed, and goes
 * on. */
static void
liars_are_not_believed(void **state)
{
	struct fal_rng rng = fal_rng_init(drawn_seed(83), FAL_RNG_TEST, 0);
	(void)state;
	for (int at = -1; at < FAL_PROCESS_BYTES; at++)
		for (int by_server = 0; by_server < 2; by_server++) {
			two_meet(by_server ? BY_SEALED : BY_SEALER, fal_rng_u64(&rng));
			struct end *c = &t.w.client[0], *s = &t.w.server[0];
			if (!by_server) {
				name(c, at);
				/* The client did not ask for the answer to a right name.
				 */
				if (at < 0)
					UNTIL(&t.w, c->closed == 1);
				else
					asked_and_answered();
				assert_int_equal(c->err, at < 0 ? FAL_ESTATE : 0);
				two_part();
				continue;
			}
			/* By a right name the client begins to send what is not sealed.
			 */
			name(s, at);
			SEND(s, 'q');
			UNTIL(&t.w, c->msgs > 0 && c->log[c->msgs - 1] == 'q');
			assert_int_equal(fal_chan_is_unsealed(c->c), at < 0);
			if (at >= 0)
				asked_and_answered();
			two_part();
		}
}

enum says {
	OWN_NAME,
	NOTHING,  /* the empty unseal record */
	ODD,      /* neither */
	UNSEALED, /* an unsealed message, */
	SHARED,   /* the same of a publication */
	SEALED,   /* a sealed one */
	UNSEAL    /* an unseal record, sealed where nothing is any more */
};

/* Bytes as they are, before all that waits. */
static void
put_raw(struct end *from, const uint8_t *p, size_t n)
{
	fal_writer_put_raw(from->c->writer, p, n);
	fal_chan_flush(from->c);
}

static void
say_oddly(struct end *from, enum says what)
{
	static const uint8_t message[] = { 1, 0, 0, 0, 1, 4, 0, 0, 'x' };
	static const uint8_t shared[21] = { 13, 0, 0, 0, 2, 4, 0, 0, 1 };
	static const uint8_t key[FAL_KEY_BYTES];
	uint8_t sealed[FAL_RECORD_HEAD + 4 + FAL_SEAL_TAG] = { 0 };
	const struct fal_publication pub = { .id = 1, .count = 1, .key = key };
	struct fal_seal tx;
	switch (what) {
	case OWN_NAME:
		name(from, -1);
		break;
	case NOTHING:
	case ODD:
		fal_writer_put_unseal(from->c->writer, "odd", what == ODD ? 3 : 0);
		fal_chan_flush(from->c);
		break;
	case UNSEALED:
		put_raw(from, message, sizeof(message));
		break;
	case SHARED: /* to the client alone */
		assert_int_equal(fal_chan_expect_publication(t.w.client[0].c, &pub), 0);
		put_raw(from, shared, sizeof(shared));
		break;
	default:
		assert_int_equal(fal_seal_init(&tx, FAL_SUITE_CHACHA20_POLY1305, key), 0);
		assert_int_equal(fal_record_seal(&tx,
						 what == SEALED ? FAL_RECORD_SESSION
								: FAL_RECORD_UNSEAL,
						 0, sealed, 4),
				 0);
		put_raw(from, sealed, sizeof(sealed));
		fal_seal_wipe(&tx);
	}
}

static void
rules_that_are_broken(void **state)
{
	static const struct {
		enum way way;
		bool by_server;
		enum says says;
		int err;
	} cases[] = {
		/* Unsealed, where nobody has agreed to that. */
		{ BY_TCP, false, UNSEALED, FAL_EFORMAT },
		{ BY_TCP, true, UNSEALED, FAL_EFORMAT },
		{ BY_TCP, true, SHARED, FAL_EFORMAT },
		{ BY_RELAY, false, UNSEALED, FAL_EFORMAT },
		{ BY_RELAY, true, UNSEALED, FAL_EFORMAT },
		{ BY_RELAY, true, SHARED, FAL_EFORMAT },
		{ BY_SEALER, true, UNSEALED, FAL_EFORMAT },
		{ BY_SEALED, false, UNSEALED, FAL_EFORMAT },
		/* The switch, of who has not answered, or was not answered. */
		{ BY_TCP, false, NOTHING, FAL_ESTATE },
		{ BY_TCP, true, NOTHING, FAL_ESTATE },
		{ BY_RELAY, false, NOTHING, FAL_ESTATE },
		{ BY_RELAY, true, NOTHING, FAL_ESTATE },
		{ BY_SEALER, false, NOTHING, FAL_ESTATE },
		{ BY_SEALER, true, NOTHING, FAL_ESTATE },
		{ BY_SEALED, false, NOTHING, FAL_ESTATE },
		{ BY_SEALED, true, NOTHING, FAL_ESTATE },
		/* A name that nobody has asked for, or a second one. */
		{ BY_TCP, true, OWN_NAME, FAL_ESTATE },
		{ BY_SEALER, true, OWN_NAME, FAL_ESTATE },
		{ BY_SEALED, false, OWN_NAME, FAL_ESTATE },
		{ BY_RELAY, false, OWN_NAME, FAL_ESTATE },
		{ BY_TCP, false, ODD, FAL_EFORMAT },
		{ BY_UNIX, false, SEALED, FAL_EFORMAT },
		{ BY_UNIX, true, SEALED, FAL_EFORMAT },
		{ BY_UNIX, false, UNSEAL, FAL_EFORMAT },
		{ BY_UNIX, true, UNSEAL, FAL_EFORMAT },
	};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		two_meet(cases[i].way, i);
		struct end *c = &t.w.client[0], *s = &t.w.server[0];
		struct end *says = cases[i].by_server ? s : c;
		struct end *hears = cases[i].by_server ? c : s;
		assert_int_equal(unsealed(), cases[i].way == BY_UNIX);
		say_oddly(says, cases[i].says);
		SEND(says, 'z');
		UNTIL(&t.w,
		      (c->closed == 1 && s->closed == 1) ||
			      (hears->msgs > 0 && hears->log[hears->msgs - 1] == 'z'));
		if (hears->err != cases[i].err)
			fail_msg("case %zu: %d, %s", i, hears->err, hears->reason);
		two_part();
	}
}

/* An end that is killed while both agree leaks nothing. */
static void
killed_between(void **state)
{
	(void)state;
	for (int turns = 0; turns < 12; turns++)
		for (int both = 0; both < 2; both++) {
			two_meet(BY_UNIX, 5);
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

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_sealed),
		cmocka_unit_test(all_is_sealed),
		cmocka_unit_test(liars_are_not_believed),
		cmocka_unit_test(rules_that_are_broken),
		cmocka_unit_test(killed_between),
	};
	signal(SIGPIPE, SIG_IGN);
	cmocka_set_message_output(CM_OUTPUT_TAP);
	pool = fal_shared_pool_new(NULL);
	const int failed = cmocka_run_group_tests(tests, NULL, NULL);
	fal_shared_pool_free(pool);
	return failed;
}
