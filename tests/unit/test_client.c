/* A client's session with a coordinator, over real sockets, with time twenty times as
 * fast: what it reaches, what refuses it, and whom it gives up. */
#include "test_net.h"

#include "cli/cli.h"
#include "net/client.h"
#include "wire/msg.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>

enum { FASTER = 20, SAID = 42 };

/* In the place of libuv's, for all of this program. */
int
uv_timer_start(uv_timer_t *t, uv_timer_cb cb, uint64_t ms, uint64_t repeat)
{
	int (*real)(uv_timer_t *, uv_timer_cb, uint64_t, uint64_t);
	*(void **)&real = dlsym(RTLD_NEXT, "uv_timer_start");
	return real(t, cb, ms / FASTER, repeat / FASTER);
}

uint64_t
uv_now(const uv_loop_t *loop)
{
	uint64_t (*real)(const uv_loop_t *);
	*(void **)&real = dlsym(RTLD_NEXT, "uv_now");
	return real(loop) * FASTER;
}

/* ---- the other end ----------------------------------------------------------------- */

/* A coordinator in a thread of its own, which says `answer` to the first message. */
static struct world world;
static struct fal_buf answer; /* n = 0: nothing */
static uv_thread_t thread;
static uv_async_t wake;
static atomic_bool stop;

static void
on_wake(uv_async_t *h)
{
	(void)h;
}

static void
serve(void *arg)
{
	struct end *e = &world.server[0];
	(void)arg;
	while (!stop) {
		uv_run(&world.loop, UV_RUN_ONCE);
		if (e->c == NULL || e->msgs == 0 || answer.n == 0)
			continue;
		fal_chan_send(e->c, &answer, FAL_SEND_CONTROL);
		answer.n = 0;
	}
}

static void
start(bool closes)
{
	begin(&world, (struct fal_listen_opt){ 0 });
	world.server[0].close_on_msg = closes;
	stop = false;
	assert_int_equal(uv_async_init(&world.loop, &wake, on_wake), 0);
	assert_int_equal(uv_thread_create(&thread, serve, NULL), 0);
}

static void
finish(void)
{
	stop = true;
	uv_async_send(&wake);
	uv_thread_join(&thread);
	uv_close((uv_handle_t *)&wake, NULL);
	end(&world);
	fal_buf_free(&answer);
}

/* A socket on a port of its own; its address. */
static struct fal_addr
bound(int *fd)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	socklen_t n = sizeof(in);
	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	*fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(*fd, (struct sockaddr *)&in, sizeof(in)), 0);
	assert_int_equal(getsockname(*fd, (struct sockaddr *)&in, &n), 0);
	return addr("127.0.0.1:%u", ntohs(in.sin_port));
}

/* ---- the client -------------------------------------------------------------------- */

struct session {
	bool interrupt; /* as soon as it is open */
	int err;        /* what on_msg returns */
	int code;       /* or else what on_msg ends it with */
	unsigned opened, msgs, over, ended;
	struct fal_diag why;
};

static void
on_session_open(void *arg, struct fal_client *c)
{
	struct session *s = arg;
	s->opened++;
	fal_client_send(c, &(struct fal_msg){ .type = FAL_MSG_FOLLOW });
	fal_client_expect_answer(c);
	if (s->interrupt)
		raise(SIGINT);
}

static int
on_session_msg(void *arg, struct fal_client *c, const struct fal_msg *m)
{
	struct session *s = arg;
	assert_false(fal_client_is_over(c));
	assert_int_equal(m->type, FAL_MSG_TRACE_END);
	s->msgs++;
	if (s->err == FAL_OK)
		fal_client_abort(c, s->code);
	assert_int_equal(s->ended, 0); /* that comes from the loop */
	return s->err;
}

static int
on_session_over(void *arg)
{
	((struct session *)arg)->over++;
	return SAID;
}

static void
on_session_close(void *arg, struct fal_client *c, int code)
{
	struct session *s = arg;
	s->ended++;
	s->why = c->why;
	assert_int_equal(code, c->code);
	assert_true(fal_client_is_over(c));
}

/* Runs it; `code` and what it says behind the address must be these. */
static void
expect(struct session *s, const struct fal_addr *at, struct fal_client_key key, int code,
       const char *text)
{
	struct fal_client_conf conf = { .addr = at,
					.addrs = 1,
					.key = &key,
					.role = FAL_ROLE_WORK,
					.arg = s,
					.on_open = on_session_open,
					.on_msg = on_session_msg,
					.on_over = on_session_over,
					.catches_sigint = true,
					.on_close = on_session_close };
	char want[FAL_ADDR_MAX + 600] = "", where[FAL_ADDR_MAX + 16];
	const int got = fal_client_run(&conf);
	fal_addr_format(at, where);
	if (*text != '\0')
		snprintf(want, sizeof(want), "%s: %s", where, text);
	assert_string_equal(s->why.text, want);
	assert_int_equal(got, code);
	assert_int_equal(s->ended, 1);
}

/* The same with the coordinator, which closes when it is asked or answers. */
static struct session
talk(struct session s, bool closes, struct fal_client_key key, int code, const char *text)
{
	start(closes);
	const struct fal_addr at = addr("%s", fal_listen_addr_text(world.l));
	expect(&s, &at, key, code, text);
	finish();
	return s;
}

static void
put(const struct fal_msg *m)
{
	fal_msg_put(&answer, m);
}

static void
answers(void **state)
{
	(void)state;
	const struct fal_client_key key = client_key("lab", 2, 1);
	const struct fal_msg end = { .type = FAL_MSG_TRACE_END };
	put(&end);
	struct session s = talk((struct session){ .code = 7 }, false, key, 7, "");
	assert_int_equal(s.opened, 1);
	assert_int_equal(s.msgs, 1);
	assert_int_equal(s.over, 0);
	put(&end);
	talk((struct session){ .err = FAL_EFORMAT }, false, key, FAL_EXIT_NO,
	     "TRACE_END: malformed data");
	fal_put_bytes(&answer, "\xff\xff", 2);
	talk((struct session){ 0 }, false, key, FAL_EXIT_NO,
	     "a message that cannot be read");
	/* It closes in order. */
	s = talk((struct session){ 0 }, true, key, SAID, "");
	assert_int_equal(s.over, 1);
}

static void
refusals(void **state)
{
	(void)state;
	const struct fal_client_key key = client_key("lab", 2, 1);
	struct fal_client_key wrong = client_key("lab", 9, 1);
	struct fal_msg no = { .type = FAL_MSG_REFUSE };
	snprintf(no.refuse.why, sizeof(no.refuse.why), "not today");
	put(&no);
	talk((struct session){ 0 }, false, key, FAL_EXIT_NOPERM, "refused: not today");
	/* Without a word, and the role may be why. */
	wrong = key;
	wrong.role = FAL_ROLE_OBSERVE;
	struct session s = talk((struct session){ 0 }, true, wrong, FAL_EXIT_NOPERM,
				"the key's role is observe: work is needed");
	assert_int_equal(s.over, 0);
}

/* A wrong key is not tried again. */
static void
wrong_keys(void **state)
{
	(void)state;
	const struct fal_client_key wrong[] = { client_key("lab", 9, 1),
						client_key("lab", 2, 9) };
	for (size_t i = 0; i < 2; i++) {
		struct session s = { 0 };
		struct fal_client_conf conf = { .addrs = 1,
						.key = &wrong[i],
						.arg = &s,
						.on_open = on_session_open,
						.on_close = on_session_close };
		start(false);
		const struct fal_addr at = addr("%s", fal_listen_addr_text(world.l));
		conf.addr = &at;
		const int code = fal_client_run(&conf);
		finish();
		assert_int_equal(code, FAL_EXIT_NOPERM);
		assert_int_equal(world.refusals, 1);
		if (strstr(s.why.text, "does not match, or ours is not in its keyring") ==
		    NULL)
			fail_msg("says '%s'", s.why.text);
	}
}

static void
silence(void **state)
{
	(void)state;
	struct session s = talk((struct session){ 0 }, false, client_key("lab", 2, 1),
				FAL_EXIT_TEMPFAIL, "no answer in time");
	assert_int_equal(s.opened, 1);
}

static void
interrupt(void **state)
{
	(void)state;
	struct session s = talk((struct session){ .interrupt = true }, false,
				client_key("lab", 2, 1), SAID, "");
	assert_int_equal(s.opened, 1);
	assert_int_equal(s.over, 1);
}

/* Nobody listens: it tries for ten of its seconds. */
static void
nobody(void **state)
{
	(void)state;
	int fd;
	struct session s = { 0 };
	const struct fal_addr at = bound(&fd);
	const uint64_t began = uv_hrtime();
	expect(&s, &at, client_key("lab", 2, 1), FAL_EXIT_TEMPFAIL, "connection refused");
	const double seconds = (double)(uv_hrtime() - began) * 1e-9 * FASTER;
	if (seconds < 8)
		fail_msg("it gave up after %g seconds", seconds);
	assert_int_equal(s.opened, 0);
	close(fd);
}

static void
garble(void *arg)
{
	static const char text[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n"
				   "Connection: close\r\n\r\n";
	const int fd = accept(*(int *)arg, NULL, NULL);
	send(fd, text, sizeof(text) - 1, MSG_NOSIGNAL);
	char in[256];
	while (recv(fd, in, sizeof(in), 0) > 0)
		;
	close(fd);
}

static void
garbage(void **state)
{
	(void)state;
	int fd;
	uv_thread_t other;
	struct session s = { 0 };
	const struct fal_addr at = bound(&fd);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(uv_thread_create(&other, garble, &fd), 0);
	expect(&s, &at, client_key("lab", 2, 1), FAL_EXIT_NO,
	       "it does not speak Falcon's protocol");
	assert_int_equal(s.opened, 0);
	uv_thread_join(&other);
	close(fd);
}

/* ---- a client that stays ------------------------------------------------------------
 */

/* It dials again whatever ends, until its retries or `rounds` end it. */
struct stayer {
	struct fal_client c;
	unsigned opened, lost, ended, rounds;
	bool speaks; /* in a call of the client: no callback may come */
	bool fails;  /* ends itself as soon as it is open */
	bool leaves; /* has left as soon as it is open */
	int code;
};

static void
on_stayer_open(void *arg, struct fal_client *c)
{
	struct stayer *s = arg;
	assert_false(s->speaks);
	s->opened++;
	c->is_leaving = s->leaves;
	s->speaks = true;
	fal_client_hello(c, &(struct fal_msg){ .hello.cores = 1 }, "lab",
			 (const uint8_t[FAL_INSTANCE]){ 7 });
	if (s->fails)
		fal_client_fail(c, 9, "it fails");
	s->speaks = false;
}

static int
on_stayer_msg(void *arg, struct fal_client *c, const struct fal_msg *m)
{
	(void)arg;
	(void)c;
	(void)m;
	return FAL_EFORMAT;
}

static int
on_stayer_job(void *arg, struct fal_client *c)
{
	return on_stayer_msg(arg, c, NULL);
}

static void
on_stayer_close(void *arg, struct fal_client *c, int code)
{
	struct stayer *s = arg;
	assert_false(s->speaks);
	assert_null(c->chan);
	assert_int_equal(s->ended, 0);
	s->ended += code >= 0;
	s->lost += code < 0;
	s->code = code;
	s->speaks = true;
	if (code < 0 && s->lost == s->rounds)
		fal_client_end(c, SAID);
	else if (code < 0)
		fal_client_retry(c, false);
	s->speaks = false;
}

/* Runs it until its end, with so many seconds of retries. */
static struct stayer
stay(struct stayer s, const struct fal_addr *at, uint64_t give_up)
{
	const struct fal_client_key key = client_key("lab", 2, 1);
	uv_loop_t loop;
	struct fal_retry retry = { .lost = uv_hrtime(),
				   .give_up = give_up * 1000000000 / FASTER };
	const struct fal_client_conf conf = { .prog = "stayer",
					      .loop = &loop,
					      .addr = at,
					      .addrs = 1,
					      .key = &key,
					      .retry = &retry,
					      .tries_doors = true,
					      .arg = &s,
					      .on_open = on_stayer_open,
					      .on_msg = on_stayer_msg,
					      .on_job = on_stayer_job,
					      .on_close = on_stayer_close };
	signal(SIGPIPE, SIG_IGN);
	assert_int_equal(uv_loop_init(&loop), 0);
	fal_client_init(&s.c, &conf);
	fal_client_retry(&s.c, true);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
	assert_int_equal(s.ended, 1);
	return s;
}

/* The same with the coordinator. */
static struct stayer
stay_with(struct stayer s, bool closes)
{
	start(closes);
	const struct fal_addr at = addr("%s", fal_listen_addr_text(world.l));
	s = stay(s, &at, 600);
	finish();
	return s;
}

static void
ends_of_a_stayer(void **state)
{
	struct fal_msg m = { .type = FAL_MSG_DONE };
	(void)state;
	snprintf(m.done.why, sizeof(m.done.why), "all is done");
	put(&m);
	struct stayer s = stay_with((struct stayer){ 0 }, false);
	assert_int_equal(s.code, FAL_EXIT_DONE);
	assert_string_equal(s.c.why.text, "done: all is done");
	/* Before WELCOME a refusal denies the key. */
	m = (struct fal_msg){ .type = FAL_MSG_REFUSE };
	put(&m);
	assert_int_equal(stay_with((struct stayer){ 0 }, false).code, FAL_EXIT_NOPERM);
	m = (struct fal_msg){ .type = FAL_MSG_WELCOME };
	m.welcome.job_n = m.welcome.model_n = 1; /* and no manifest */
	put(&m);
	s = stay_with((struct stayer){ 0 }, false);
	assert_int_equal(s.code, FAL_EXIT_NO);
	assert_non_null(strstr(s.c.why.text, ": WELCOME: "));
	s = stay_with((struct stayer){ .fails = true }, false);
	assert_int_equal(s.code, 9);
	assert_string_equal(s.c.why.text, "it fails");
	s = stay_with((struct stayer){ .leaves = true }, true);
	assert_int_equal(s.code, FAL_EXIT_NO);
	assert_int_equal(s.lost, 0);
}

/* It dials again after a close and after silence, and ends when its owner says so. */
static void
stays(void **state)
{
	(void)state;
	for (int closes = 0; closes < 2; closes++) {
		const struct stayer s =
			stay_with((struct stayer){ .rounds = 2 }, closes != 0);
		assert_int_equal(s.opened, 2);
		assert_int_equal(s.lost, 2);
		assert_int_equal(s.code, SAID);
	}
}

/* Nobody listens: it gives up in time. */
static void
stays_in_vain(void **state)
{
	int fd;
	const struct fal_addr at = bound(&fd);
	(void)state;
	const struct stayer s = stay((struct stayer){ 0 }, &at, 20);
	assert_int_equal(s.code, FAL_EXIT_TEMPFAIL);
	assert_int_equal(s.opened, 0);
	assert_true(s.lost >= 2);
	close(fd);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answers),    cmocka_unit_test(refusals),
		cmocka_unit_test(wrong_keys), cmocka_unit_test(silence),
		cmocka_unit_test(interrupt),  cmocka_unit_test(nobody),
		cmocka_unit_test(garbage),    cmocka_unit_test(ends_of_a_stayer),
		cmocka_unit_test(stays),      cmocka_unit_test(stays_in_vain),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("client", tests, NULL, NULL);
}
