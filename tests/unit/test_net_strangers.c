/* Channels and those who should not have one: strangers are plain sockets. */
#include "net/gate.h"
#include "net/handshake.h"
#include "net/record.h"
#include "test_net.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>

static void
wrong_keys(void **state)
{
	static const struct {
		const char *name;
		int psk, server;
		const char *log;
	} keys[] = {
		{ "lab", 3, 1, "key 'lab' does not authenticate" },
		{ "lab", 2, 4, "key 'lab' does not authenticate" },
		{ "lob", 2, 1, "key 'lob' is not in the keyring" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		struct world w;
		char want[600];
		begin(&w, (struct fal_listen_opt){ 0 });
		const struct fal_addr at = addr("%s", fal_listen_addr_text(w.l));
		dial_as(&w, 0, &at, client_key(keys[i].name, keys[i].psk, keys[i].server),
			(struct fal_chan_opt){ 0 });
		SEND(&w.client[0], 'a');
		UNTIL(&w, w.client[0].closed == 1 && w.refusals == 1);
		snprintf(want, sizeof(want),
			 "%s: the coordinator's key does not match, or ours is not in "
			 "its keyring, or a tunnel leads nowhere",
			 fal_listen_addr_text(w.l));
		assert_string_equal(w.client[0].reason, want);
		assert_int_equal(w.client[0].err, FAL_EPERM);
		assert_string_equal(w.refused, keys[i].log);
		assert_string_equal(w.source, "127.0.0.1");
		assert_int_equal(w.accepted, 0);
		assert_int_equal(w.client[0].opened, 0);
		end(&w);
	}
}

static int
stranger_to(const struct fal_addr *at, const char *ip)
{
	struct sockaddr_in sin, from;
	assert_int_equal(uv_ip4_addr(at->what, at->port, &sin), 0);
	assert_int_equal(uv_ip4_addr(ip, 0, &from), 0);
	const int fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
	return fd;
}

static int
stranger_from(struct world *w, const char *ip)
{
	const struct fal_addr at = addr("%s", fal_listen_addr_text(w->l));
	return stranger_to(&at, ip);
}

static int
stranger(struct world *w)
{
	return stranger_from(w, "127.0.0.1");
}

/* Bytes that the server sends, at least `min`, or up to its end. */
static size_t
receive(struct world *w, int fd, uint8_t *p, size_t cap, size_t min)
{
	size_t n = 0;
	while (n < min && !w->late) {
		const ssize_t got = recv(fd, p + n, cap - n, MSG_DONTWAIT);
		if (got == 0)
			break;
		if (got > 0)
			n += (size_t)got;
		uv_run(&w->loop, UV_RUN_NOWAIT);
	}
	assert_false(w->late);
	return n;
}

static void
tell(int fd, const void *p, size_t n)
{
	assert_int_equal(send(fd, p, n, MSG_NOSIGNAL), n);
}

/* A client that shook hands by itself and may now send what it likes. */
static struct fal_session
infiltrate(struct world *w, int fd)
{
	const struct fal_client_key key = client_key("lab", 2, 1);
	struct fal_buf hello = { 0 };
	struct fal_handshake *h;
	struct fal_session s;
	uint8_t in[128];
	assert_int_equal(fal_handshake_begin(&key, &hello, &h), 0);
	tell(fd, hello.p, hello.n);
	const size_t n = receive(w, fd, in, sizeof(in), FAL_HANDSHAKE_ANSWER);
	assert_int_equal(fal_handshake_finish(h, in, n, &s, NULL), 0);
	fal_handshake_free(h);
	fal_buf_free(&hello);
	return s;
}

static void
garbage(void **state)
{
	struct world w;
	uint8_t in[64];
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	const int fd = stranger(&w);
	tell(fd, "GET", 3);
	UNTIL(&w, w.refusals == 1);
	assert_string_equal(w.refused, "not Falcon's protocol");
	assert_int_equal(receive(&w, fd, in, sizeof(in), 1), 0); /* not a word */
	close(fd);
	end(&w);
}

static void
deadline(void **state)
{
	struct world w;
	(void)state;
	begin(&w, (struct fal_listen_opt){ .chan.deadline_ms = 250 });
	const int fd = stranger(&w), fd2 = stranger(&w);
	tell(fd, "FALC\2", 5);
	/* A whole handshake and then no record is half of one, too: a replay. */
	const struct fal_client_key key = client_key("lab", 2, 1);
	struct fal_buf hello = { 0 };
	struct fal_handshake *h;
	uint8_t in[128];
	assert_int_equal(fal_handshake_begin(&key, &hello, &h), 0);
	tell(fd2, hello.p, hello.n);
	assert_int_equal(receive(&w, fd2, in, sizeof(in), FAL_HANDSHAKE_ANSWER),
			 FAL_HANDSHAKE_ANSWER);
	UNTIL(&w, w.refusals == 2);
	assert_string_equal(w.refused, "no handshake within 0.25 s");
	assert_int_equal(w.accepted, 0);
	fal_handshake_free(h);
	fal_buf_free(&hello);
	close(fd);
	close(fd2);
	end(&w);
}

static void
half_open_flood(void **state)
{
	struct world w;
	int fd[5];
	(void)state;
	begin(&w, (struct fal_listen_opt){ .half_open = 2 });
	for (int i = 0; i < 5; i++)
		fd[i] = stranger(&w);
	UNTIL(&w, w.refusals >= 3);
	assert_int_equal(w.refusals, 3);
	assert_string_equal(w.refused, "too many handshakes are under way");
	meet(&w, 0); /* a friend still gets in */
	assert_int_equal(w.refusals, 4);
	for (int i = 0; i < 5; i++)
		close(fd[i]);
	end(&w);
}

/* All doors have them together; where one is taken, none is open. */
static void
half_open_at_two_doors(void **state)
{
	struct world w;
	struct fal_addr at[FAL_ADDRS_MAX] = { addr("127.0.0.1:0"), addr("127.0.0.1:0") };
	struct fal_listen *second;
	struct fal_diag d;
	struct stat st;
	int fd[5];
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	fal_listen_close(w.l);
	struct fal_listen_opt opt = {
		.addr = at, .addrs = 2, .keyring = w.kr, .half_open = 2
	};
	const struct fal_listen_ops ops = { &w, on_accept, on_refused, NULL };
	assert_int_equal(fal_listen_start(&w.loop, &opt, &ops, &w.l, NULL), 0);
	assert_int_equal(fal_listen_addrs(w.l, at), 2);
	assert_true(at[0].port != 0 && at[1].port != 0 && at[0].port != at[1].port);
	for (int i = 0; i < 5; i++)
		fd[i] = stranger_to(&at[i % 2], "127.0.0.1");
	UNTIL(&w, w.refusals >= 3);
	assert_int_equal(w.refusals, 3);
	for (int i = 0; i < 2; i++) {
		dial_as(&w, i, &at[i], client_key("lab", 2, 1),
			(struct fal_chan_opt){ 0 });
		SEND(&w.client[i], 'a');
		UNTIL(&w, w.accepted == (unsigned)i + 1);
	}
	const struct fal_addr taken = at[1];
	opt.addrs = 2;
	at[0] = addr("unix:%s/first", w.dir);
	assert_int_equal(fal_listen_start(&w.loop, &opt, &ops, &second, &d), FAL_EEXIST);
	char text[FAL_ADDR_MAX + 16];
	fal_addr_format(&taken, text);
	assert_int_equal(strncmp(d.text, text, strlen(text)), 0);
	assert_int_equal(stat(at[0].what, &st), -1);
	for (int i = 0; i < 5; i++)
		close(fd[i]);
	end(&w);
}

/* A flood has the places of its own source only, and ends by resets: nobody there is told
 * that its key is wrong. */
static void
flood_of_one_source(void **state)
{
	enum { FLOOD = 200 };
	struct world w;
	int fd[FLOOD];
	char c;
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	const int early = stranger(&w); /* older than all of it */
	for (int i = 0; i < FLOOD; i++) {
		fd[i] = stranger_from(&w, "127.0.0.2");
		uv_run(&w.loop, UV_RUN_NOWAIT);
	}
	UNTIL(&w, w.refusals >= FLOOD - FAL_LISTEN_HALF_OPEN + 1);
	assert_string_equal(w.refused, "too many handshakes are under way");
	assert_string_equal(w.source, "127.0.0.2");
	assert_int_equal(w.refusals, FLOOD - FAL_LISTEN_HALF_OPEN + 1);
	assert_int_equal(recv(fd[0], &c, 1, 0), -1);
	assert_int_equal(errno, ECONNRESET);
	meet(&w, 0);
	struct fal_session s = infiltrate(&w, early);
	assert_string_equal(w.source, "127.0.0.2");
	fal_seal_wipe(&s.tx);
	fal_seal_wipe(&s.rx);
	for (int i = 0; i < FLOOD; i++)
		close(fd[i]);
	close(early);
	end(&w);
}

/* One source may guess FAL_GATE_WRONG times at once; this costs no other one anything.
 */
static void
guesses_too_often(void **state)
{
	const struct fal_client_key wrong = client_key("lab", 3, 1);
	struct fal_buf hello = { 0 };
	struct fal_handshake *h;
	struct world w;
	unsigned tries = 0;
	uint8_t in[64];
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	assert_int_equal(fal_handshake_begin(&wrong, &hello, &h), 0);
	for (bool limited = false; !limited; tries++) {
		const int fd = stranger_from(&w, "127.0.0.2");
		tell(fd, hello.p, hello.n);
		UNTIL(&w, w.refusals == tries + 1);
		limited = strcmp(w.refused, "too many handshakes in a short time") == 0;
		const ssize_t got = recv(fd, in, sizeof(in), 0);
		assert_int_equal(got, limited ? -1 : 0); /* a reset, or silence */
		close(fd);
	}
	if (tries <= FAL_GATE_WRONG)
		fail_msg("limited after %u tries, not %d", tries, FAL_GATE_WRONG);
	assert_string_equal(w.source, "127.0.0.2");
	meet(&w, 0);
	fal_handshake_free(h);
	fal_buf_free(&hello);
	end(&w);
}

/* Clients that prove to be some are not counted, however often they come. */
static void
comes_back_often(void **state)
{
	struct world w;
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	for (int i = 0; i < 2 * FAL_GATE_RIGHT; i++) {
		meet(&w, 0);
		fal_chan_close(w.client[0].c);
		UNTIL(&w, w.client[0].closed == 1 && w.server[0].closed == 1);
		w.client[0] = w.server[0] = (struct end){ 0 };
		w.accepted = 0;
	}
	assert_int_equal(w.refusals, 0);
	end(&w);
}

/* Four threads that do nothing but come and say what does not open, each in its own way,
 * from the address of all who come by ssh. */
enum { FLOODERS = 4, JOINS = 40 };

struct flooder {
	struct sockaddr_in to;
	const uint8_t *says;
	size_t n;
	bool waits; /* for the end */
	atomic_bool *over;
	unsigned long came;
};

static void *
flood(void *arg)
{
	struct flooder *f = arg;
	uint8_t in[64];
	while (!atomic_load(f->over)) {
		const int fd = socket(AF_INET, SOCK_STREAM, 0);
		if (fd < 0 || connect(fd, (struct sockaddr *)&f->to, sizeof(f->to)) < 0) {
			close(fd);
			continue;
		}
		(void)!send(fd, f->says, f->n, MSG_NOSIGNAL);
		if (f->waits)
			(void)!recv(fd, in, sizeof(in), 0);
		f->came++;
		close(fd);
	}
	return NULL;
}

/* How many of JOINS get in while all flooders say the n bytes at `p`. */
static void
joins_among(const char *what, const uint8_t *p, size_t n, bool waits)
{
	struct world w;
	struct flooder f[FLOODERS];
	pthread_t thread[FLOODERS];
	atomic_bool over = false;
	unsigned joined = 0;
	unsigned long came = 0;
	begin(&w, (struct fal_listen_opt){ 0 });
	const struct fal_addr at = addr("%s", fal_listen_addr_text(w.l));
	for (int i = 0; i < FLOODERS; i++) {
		f[i] = (struct flooder){
			.says = p, .n = n, .waits = waits, .over = &over
		};
		assert_int_equal(uv_ip4_addr(at.what, at.port, &f[i].to), 0);
		assert_int_equal(pthread_create(&thread[i], NULL, flood, &f[i]), 0);
	}
	UNTIL(&w, w.refusals >= 200); /* whatever is spent is spent */
	for (int i = 0; i < JOINS; i++) {
		dial(&w, 0);
		SEND(&w.client[0], 'h');
		UNTIL(&w, w.client[0].closed == 1 || w.server[0].msgs == 1);
		joined += w.server[0].msgs == 1;
		if (w.client[0].c != NULL)
			fal_chan_kill(w.client[0].c);
		if (w.server[0].c != NULL)
			fal_chan_kill(w.server[0].c);
		w.client[0] = w.server[0] = (struct end){ 0 };
		w.accepted = 0;
	}
	atomic_store(&over, true);
	uv_timer_start(&w.guard, on_guard, GUARD_MS, 0);
	fal_listen_close(w.l); /* resets whoever still waits */
	w.l = NULL;
	for (int i = 0; i < FLOODERS; i++) {
		uv_run(&w.loop, UV_RUN_NOWAIT);
		assert_int_equal(pthread_join(thread[i], NULL), 0);
		came += f[i].came;
	}
	print_message("# %s: %u of %d joined; %lu others came, %u were refused\n", what,
		      joined, JOINS, came, w.refusals);
	assert_int_equal(joined, JOINS);
	end(&w);
}

static void
junk_locks_nobody_out(void **state)
{
	const struct fal_client_key wrong = client_key("lab", 3, 1);
	struct fal_buf hello = { 0 };
	struct fal_handshake *h;
	(void)state;
	assert_int_equal(fal_handshake_begin(&wrong, &hello, &h), 0);
	joins_among("wrong keys", hello.p, hello.n, true);
	joins_among("wrong keys, hastily", hello.p, hello.n, false);
	joins_among("half a word", hello.p, 5, false);
	joins_among("silence", hello.p, 0, false);
	fal_handshake_free(h);
	fal_buf_free(&hello);
}

static unsigned
takes(struct fal_limit *l, uint64_t source, double s)
{
	unsigned n = 0;
	while (n < 1000 && fal_limit_take_token(l, source, (uint64_t)(s * 1e9)))
		n++;
	return n;
}

static void
buckets(void **state)
{
	struct fal_limit l = { .burst = FAL_GATE_WRONG };
	unsigned all = 0;
	(void)state;
	assert_int_equal(takes(&l, 7, 1), FAL_GATE_WRONG);
	assert_int_equal(takes(&l, 8, 1), FAL_GATE_WRONG);
	assert_int_equal(takes(&l, 7, 1.55), 5);
	fal_limit_return_token(&l, 7);
	assert_int_equal(takes(&l, 7, 1.55), 1);
	fal_limit_return_token(&l, 9); /* not there */
	assert_int_equal(takes(&l, 7, 1000), FAL_GATE_WRONG);
	for (uint64_t i = 100; i < 100 + 10 * FAL_LIMIT_SOURCES; i++)
		all += takes(&l, i, 1000);
	assert_int_equal(all, (FAL_LIMIT_SOURCES - 1) * FAL_GATE_WRONG);
}

static uint64_t
source_of(const char *ip)
{
	struct sockaddr_in6 sin6;
	struct sockaddr_in sin;
	if (uv_ip4_addr(ip, 0, &sin) == 0)
		return fal_limit_source((struct sockaddr *)&sin);
	assert_int_equal(uv_ip6_addr(ip, 0, &sin6), 0);
	return fal_limit_source((struct sockaddr *)&sin6);
}

static void
sources(void **state)
{
	(void)state;
	assert_true(source_of("192.0.2.1") != source_of("192.0.2.2"));
	assert_true(source_of("192.0.2.1") == source_of("::ffff:192.0.2.1"));
	assert_true(source_of("2001:db8::1") == source_of("2001:db8::2:3:4:5"));
	assert_true(source_of("2001:db8::1") != source_of("2001:db8:0:1::1"));
}

/* Who has proved nothing is told nothing, whatever he speaks; who has is told why. */
#define WE "we are Falcon " FAL_VERSION " with protocol 9.0"

static void
refuses_other_major(void **state)
{
	const struct fal_client_key key = client_key("lab", 2, 1);
	struct world w;
	uint8_t in[64], hello[10 + 1 + 3 + 2 + FAL_HANDSHAKE_MAC] = "FALC\12\0\2\0";
	uint8_t mac_key[FAL_MAC_KEY];
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	int fd = stranger(&w);
	tell(fd, "FALC\3\0\0\0 whatever follows", 24);
	assert_int_equal(receive(&w, fd, in, sizeof(in), sizeof(in)), 0);
	close(fd);
	UNTIL(&w, w.refusals == 1);
	assert_string_equal(w.refused, "it speaks protocol 3.0, " WE);
	memcpy(hello + 8, "\46\0\3lab\0019", 8);
	for (int right = 0; right < 2; right++) {
		memcpy(mac_key, key.server, FAL_KEY_BYTES);
		fal_key_derive("falcon mac", key.server, key.psk,
			       mac_key + FAL_KEY_BYTES);
		fal_mac("falcon hello", mac_key, hello, 16, hello + 16);
		hello[22] ^= (uint8_t)!right;
		fd = stranger(&w);
		tell(fd, hello, sizeof(hello));
		assert_int_equal(receive(&w, fd, in, sizeof(in), sizeof(in)),
				 right ? 10 + sizeof(FAL_VERSION) + FAL_HANDSHAKE_MAC
				       : 0);
		close(fd);
		UNTIL(&w, w.refusals == 2U + (unsigned)right);
	}
	assert_memory_equal(in, "FALC\11\0\0\0\1\0", 10);
	assert_string_equal(w.refused, "it is Falcon 9 with protocol 10.2, " WE);
	end(&w);
}

/* What was said once is nobody's key: it has no answer the second time, and costs whom it
 * was stolen from nothing. */
static void
replay(void **state)
{
	const struct fal_client_key key = client_key("lab", 2, 1);
	struct fal_buf hello = { 0 };
	struct fal_handshake *h;
	struct world w;
	uint8_t in[128];
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	assert_int_equal(fal_handshake_begin(&key, &hello, &h), 0);
	const int first = stranger(&w);
	tell(first, hello.p, hello.n);
	assert_int_equal(receive(&w, first, in, sizeof(in), FAL_HANDSHAKE_ANSWER),
			 FAL_HANDSHAKE_ANSWER);
	for (unsigned i = 1; i <= 3 * FAL_GATE_RIGHT; i++) {
		const int fd = stranger(&w);
		tell(fd, hello.p, hello.n);
		UNTIL(&w, w.refusals == i);
		assert_true(recv(fd, in, sizeof(in), 0) <= 0);
		close(fd);
		if (i == 1)
			assert_string_equal(w.refused,
					    "a handshake that has come before");
	}
	meet(&w, 0);
	close(first);
	fal_handshake_free(h);
	fal_buf_free(&hello);
	end(&w);
}

/* Those who have proved a key do not give way to those who have not. */
static void
strangers_take_no_clients_place(void **state)
{
	const struct fal_client_key key = client_key("lab", 2, 1);
	enum { HALF = 4, MORE = 10 };
	struct world w;
	struct fal_buf hello = { 0 };
	struct fal_handshake *h;
	uint8_t in[128];
	int fd[MORE];
	(void)state;
	begin(&w, (struct fal_listen_opt){ .half_open = HALF });
	const int client = stranger(&w);
	assert_int_equal(fal_handshake_begin(&key, &hello, &h), 0);
	tell(client, hello.p, hello.n);
	assert_int_equal(receive(&w, client, in, sizeof(in), FAL_HANDSHAKE_ANSWER),
			 FAL_HANDSHAKE_ANSWER);
	for (int i = 0; i < MORE; i++)
		fd[i] = stranger(&w);
	UNTIL(&w, w.refusals == MORE - HALF);
	struct fal_session s;
	uint8_t rec[8 + 4 + 16] = "        good";
	assert_int_equal(fal_handshake_finish(h, in, FAL_HANDSHAKE_ANSWER, &s, NULL), 0);
	assert_int_equal(fal_record_seal(&s.tx, FAL_RECORD_SESSION, 0, rec, 4), 0);
	tell(client, rec, sizeof(rec));
	UNTIL(&w, w.server[0].msgs == 1);
	fal_seal_wipe(&s.tx);
	fal_seal_wipe(&s.rx);
	for (int i = 0; i < MORE; i++)
		close(fd[i]);
	close(client);
	fal_handshake_free(h);
	fal_buf_free(&hello);
	end(&w);
}

static void
evil_records(void **state)
{
	enum { FLIPPED, OVERSIZED, CUT, FIRST_FLIPPED, CASES };
	static const char *const why[] = {
		"a record was refused: authentication failed",
		"a record was refused: ", "the stream ended within a record",
		"a record was refused: authentication failed"
	};
	static const int err[] = { FAL_EAUTH, FAL_ELIMIT, FAL_ETRUNC, FAL_EAUTH };
	(void)state;
	for (int i = 0; i < CASES; i++) {
		struct world w;
		begin(&w, (struct fal_listen_opt){ 0 });
		const int fd = stranger(&w);
		struct fal_session s = infiltrate(&w, fd);
		uint8_t rec[8 + 4 + 16] = "        good";
		assert_int_equal(fal_record_seal(&s.tx, FAL_RECORD_SESSION, 0, rec, 4),
				 0);
		if (i != FIRST_FLIPPED) {
			tell(fd, rec, sizeof(rec));
			UNTIL(&w, w.server[0].msgs == 1);
			memcpy(rec + 8, "evil", 4);
			assert_int_equal(fal_record_seal(&s.tx, FAL_RECORD_SESSION, 0,
							 rec, 4),
					 0);
		}
		rec[13] ^= i == FLIPPED || i == FIRST_FLIPPED ? 64 : 0;
		rec[3] = i == OVERSIZED ? 1 : 0; /* 16 MiB */
		tell(fd, rec, i == CUT ? 20 : sizeof(rec));
		if (i == CUT)
			shutdown(fd, SHUT_WR);
		const bool joined = i != FIRST_FLIPPED;
		UNTIL(&w, joined ? w.server[0].closed == 1 : w.refusals == 1);
		assert_int_equal(w.accepted, joined);
		assert_int_equal(w.server[0].msgs, joined);
		assert_int_equal(joined ? w.server[0].err : FAL_EAUTH, err[i]);
		const char *said = joined ? w.server[0].reason : w.refused;
		if (strncmp(said, why[i], strlen(why[i])) != 0)
			fail_msg("'%s', expected '%s…'", said, why[i]);
		fal_seal_wipe(&s.tx);
		fal_seal_wipe(&s.rx);
		close(fd);
		end(&w);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wrong_keys),
		cmocka_unit_test(garbage),
		cmocka_unit_test(deadline),
		cmocka_unit_test(half_open_flood),
		cmocka_unit_test(half_open_at_two_doors),
		cmocka_unit_test(flood_of_one_source),
		cmocka_unit_test(guesses_too_often),
		cmocka_unit_test(comes_back_often),
		cmocka_unit_test(junk_locks_nobody_out),
		cmocka_unit_test(buckets),
		cmocka_unit_test(sources),
		cmocka_unit_test(refuses_other_major),
		cmocka_unit_test(replay),
		cmocka_unit_test(strangers_take_no_clients_place),
		cmocka_unit_test(evil_records),
	};
	signal(SIGPIPE, SIG_IGN);
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
