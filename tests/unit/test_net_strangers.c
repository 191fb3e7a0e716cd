/* Channels and those who should not have one: strangers are plain sockets. */
#include "net/handshake.h"
#include "net/record.h"
#include "test_net.h"

#include <signal.h>
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
		const struct fal_addr at = addr("%s", fal_listen_text(w.l));
		dial_as(&w, 0, &at, client_key(keys[i].name, keys[i].psk, keys[i].server),
			(struct fal_chan_opt){ 0 });
		SEND(&w.client[0], 'a');
		UNTIL(&w, w.client[0].closed == 1 && w.refusals == 1);
		snprintf(want, sizeof(want),
			 "%s: the coordinator's key does not match, or ours is not in "
			 "its keyring",
			 fal_listen_text(w.l));
		assert_string_equal(w.client[0].reason, want);
		assert_int_equal(w.client[0].err, FAL_EAUTH);
		assert_string_equal(w.refused, keys[i].log);
		assert_string_equal(w.source, "127.0.0.1");
		assert_int_equal(w.accepted, 0);
		assert_int_equal(w.client[0].opened, 0);
		end(&w);
	}
}

static int
stranger(struct world *w)
{
	const struct fal_addr at = addr("%s", fal_listen_text(w->l));
	struct sockaddr_in sin;
	assert_int_equal(uv_ip4_addr(at.what, at.port, &sin), 0);
	const int fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
	return fd;
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
	begin(&w, (struct fal_listen_opt){ .chan.deadline_ms = 20 });
	const int fd = stranger(&w), fd2 = stranger(&w);
	tell(fd, "FALC\1", 5);
	/* A whole handshake and then no record is half of one, too: a replay. */
	const struct fal_client_key key = client_key("lab", 2, 1);
	struct fal_buf hello = { 0 };
	struct fal_handshake *h;
	uint8_t in[128];
	assert_int_equal(fal_handshake_begin(&key, &hello, &h), 0);
	tell(fd2, hello.p, hello.n);
	assert_int_equal(receive(&w, fd2, in, sizeof(in), 57), 57);
	UNTIL(&w, w.refusals == 2);
	assert_string_equal(w.refused, "no handshake within 0.02 s");
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

static void
refuses_other_major(void **state)
{
	struct world w;
	uint8_t in[64];
	(void)state;
	begin(&w, (struct fal_listen_opt){ 0 });
	const int fd = stranger(&w);
	tell(fd, "FALC\2\0\0\0 whatever follows", 24);
	assert_int_equal(receive(&w, fd, in, sizeof(in), sizeof(in)), 9);
	assert_memory_equal(in, "FALC\1\0\0\0\1", 9);
	close(fd);
	UNTIL(&w, w.refusals == 1);
	assert_string_equal(w.refused, "it speaks protocol 2.0, we speak 1.0");
	end(&w);
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
	const size_t n = receive(w, fd, in, sizeof(in), 57);
	assert_int_equal(fal_handshake_finish(h, in, n, &s, NULL), 0);
	fal_handshake_free(h);
	fal_buf_free(&hello);
	return s;
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
		assert_int_equal(fal_record_seal(&s.tx, 0, rec, 4), 0);
		if (i != FIRST_FLIPPED) {
			tell(fd, rec, sizeof(rec));
			UNTIL(&w, w.server[0].msgs == 1);
			memcpy(rec + 8, "evil", 4);
			assert_int_equal(fal_record_seal(&s.tx, 0, rec, 4), 0);
		}
		rec[13] ^= i == FLIPPED || i == FIRST_FLIPPED ? 64 : 0;
		rec[3] = i == OVERSIZED ? 1 : 0; /* 16 MiB */
		tell(fd, rec, i == CUT ? 20 : sizeof(rec));
		if (i == CUT)
			shutdown(fd, SHUT_WR);
		UNTIL(&w, w.server[0].closed == 1 || w.refusals == 1);
		const bool joined = i != FIRST_FLIPPED;
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
		cmocka_unit_test(refuses_other_major),
		cmocka_unit_test(evil_records),
	};
	signal(SIGPIPE, SIG_IGN);
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
