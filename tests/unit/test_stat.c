/* falcon-stat against a coordinator of our own: the table, following, and each way to be
 * turned away.  $FALCON_BIN is the folder of the programs. */
#include "base/err.h"
#include "crypto/noise.h"
#include "net/listen.h"
#include "wire/msg.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define KEY(c)                                                                  \
	c c c c c c c c c c /* with 3 more characters: 32 equal bytes in base64 \
			     */
#define K1 KEY("AQEB") "AQE="
#define K2 KEY("AgIC") "AgI="
#define K3 KEY("AwMD") "AwM="
#define GUARD_MS 60000 /* a test that hangs fails after it */
#define OUT_MAX 65536

/* What a job of two clocks has told before and after the test looked. */
static const char job[] =
	"{\"t\":0,\"ev\":\"job\",\"name\":\"toy\",\"hash\":\"00\",\"seed\":\"1\","
	"\"epochs\":2,\"batch\":64,\"task\":8,\"samples\":64,\"test\":0,"
	"\"params\":20000,\"blocks\":5,\"shards\":1,\"clocks_per_epoch\":1,\"clocks\":2,"
	"\"scheme\":\"epsp\",\"audit\":\"claims\",\"hashes\":16,\"numerics\":\"fast\","
	"\"optimizer\":\"sgd\","
	"\"incarnation\":0,\"version\":\"0.1.0\"}\n"
	"{\"t\":0.1,\"ev\":\"join\",\"worker\":\"fast\",\"id\":1,\"lanes\":[1,2],"
	"\"cores\":2,\"fingerprint\":\"f00d\"}\n";
static const char update[] =
	"{\"t\":2.5,\"ev\":\"update\",\"version\":2,\"clock\":1,"
	"\"rounds\":[1],\"samples\":64,\"loss\":0.5,\"lr\":0.1,\"epoch\":2}\n";
static const char done[] = "{\"t\":3,\"ev\":\"done\",\"version\":2,\"sha256\":\"00\","
			   "\"seconds\":3,\"trained\":3}\n";

/* What the coordinator does after the history. */
enum then { ENDS, WAITS, REFUSES, LATER, LEAVES, CUTS };

struct world {
	uv_loop_t loop;
	uv_timer_t guard;
	char dir[64], key[96], at[FAL_ADDR_MAX + 16];
	struct fal_keyring *kr;
	struct fal_listen *l;
	const char *history;
	enum then then;
	struct fal_chan *c; /* NULL: none, or over */
	int live;           /* of FOLLOW; -1: never asked */
	uv_process_t child;
	uv_pipe_t out, err;
	unsigned open; /* of the child: process, out, err */
	char text[2][OUT_MAX];
	size_t n[2];
	int64_t status;
	int signal;
	/* The child's first line has come. */
	void (*on_line)(struct world *w);
};

static void
send_msg(struct world *w, const struct fal_msg *m)
{
	struct fal_buf b = { 0 };
	fal_msg_put(&b, m);
	assert_int_equal(fal_chan_send(w->c, &b, FAL_SEND_CONTROL), 0);
	fal_buf_free(&b);
}

static void
send_trace(struct world *w, const char *p, size_t n)
{
	struct fal_msg m = { .type = FAL_MSG_TRACE };
	m.trace.lines = (struct fal_tail){ (const uint8_t *)p, n };
	send_msg(w, &m);
}

static void
on_msg(void *arg, struct fal_chan *c, const uint8_t *p, size_t n)
{
	struct world *w = arg;
	struct fal_msg m, refuse = { .type = FAL_MSG_REFUSE, .refuse.why = "not today" };
	const struct fal_msg later = { .type = FAL_MSG_LATER, .later.why = "a crowd" };
	assert_int_equal(fal_msg_get(p, n, &m), 0);
	assert_int_equal(m.type, FAL_MSG_FOLLOW);
	w->live = m.follow.live;
	if (w->then == REFUSES)
		send_msg(w, &refuse);
	if (w->then == LATER)
		send_msg(w, &later);
	if (w->then == REFUSES || w->then == LATER || w->then == LEAVES) {
		fal_chan_close(c);
		return;
	}
	/* A line may come in pieces. */
	const size_t all = strlen(w->history), half = all / 2;
	send_trace(w, w->history, half);
	send_trace(w, w->history + half, all - half);
	if (w->then == ENDS)
		send_msg(w, &(struct fal_msg){ .type = FAL_MSG_TRACE_END });
}

static void
on_drain(void *arg, struct fal_chan *c)
{
	struct world *w = arg;
	if (w->then != CUTS || w->live < 0)
		return;
	w->c = NULL;
	fal_chan_kill(c);
}

static void
on_close(void *arg, struct fal_chan *c, int err, const char *reason)
{
	struct world *w = arg;
	(void)c;
	(void)err;
	(void)reason;
	w->c = NULL;
}

static void
on_accept(void *arg, struct fal_chan *c, const char *name, enum fal_role role)
{
	struct world *w = arg;
	const struct fal_chan_ops ops = {
		.arg = w, .on_msg = on_msg, .on_drain = on_drain, .on_close = on_close
	};
	(void)name;
	(void)role;
	w->c = c;
	fal_chan_set_ops(c, &ops);
}

static void
on_refused(void *arg, const char *source, const char *reason)
{
	(void)arg;
	(void)source;
	(void)reason;
}

static void
on_guard(uv_timer_t *t)
{
	struct world *w = t->data;
	uv_process_kill(&w->child, SIGKILL); /* the test then fails by its status */
}

static void
write_key(struct world *w, const char *name, const char *psk)
{
	uint8_t secret[FAL_KEY_BYTES], public[FAL_KEY_BYTES];
	char server[FAL_KEY_TEXT + 1];
	memset(secret, 1, sizeof(secret));
	fal_noise_derive_public(secret, public);
	fal_key_encode(public, server);
	FILE *f = fopen(w->key, "w");
	assert_int_equal(fchmod(fileno(f), 0600), 0);
	assert_non_null(f);
	fprintf(f, "%s %s %s %s\n", name, name, psk, server);
	assert_int_equal(fclose(f), 0);
}

static void
begin(struct world *w)
{
	static const char text[] =
		"coordinator self " K1 "\nobserve observe " K2 "\nwork work " K3 "\n";
	struct fal_diag d = { "" };
	struct fal_addr any;
	*w = (struct world){ .history = job, .live = -1 };
	uv_loop_init(&w->loop);
	uv_timer_init(&w->loop, &w->guard);
	w->guard.data = w;
	snprintf(w->dir, sizeof(w->dir), "/tmp/falcon-test-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	snprintf(w->key, sizeof(w->key), "%s/key", w->dir);
	write_key(w, "observe", K2);
	assert_int_equal(fal_keyring_parse(text, strlen(text), "k", &w->kr, &d), 0);
	assert_int_equal(fal_addr_parse("127.0.0.1:0", &any, &d), 0);
	const struct fal_listen_opt opt = { .addr = &any, .keyring = w->kr };
	const struct fal_listen_ops ops = { w, on_accept, on_refused, NULL };
	if (fal_listen_start(&w->loop, &opt, &ops, &w->l, &d) < 0)
		fail_msg("%s", d.text);
	snprintf(w->at, sizeof(w->at), "%s", fal_listen_addr_text(w->l));
}

static void
end(struct world *w)
{
	if (w->c != NULL)
		fal_chan_kill(w->c);
	fal_listen_close(w->l);
	uv_close((uv_handle_t *)&w->guard, NULL);
	uv_run(&w->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&w->loop), 0);
	fal_keyring_free(w->kr);
	assert_int_equal(unlink(w->key), 0);
	assert_int_equal(rmdir(w->dir), 0);
}

static void
on_exit_(uv_process_t *p, int64_t status, int sig)
{
	struct world *w = p->data;
	w->status = status;
	w->signal = sig;
	w->open--;
	uv_close((uv_handle_t *)p, NULL);
}

static void
on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *buf)
{
	struct world *w = h->data;
	const int i = h == (uv_handle_t *)&w->err;
	(void)hint;
	*buf = uv_buf_init(w->text[i] + w->n[i], (unsigned)(OUT_MAX - 1 - w->n[i]));
}

static void
on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
	struct world *w = s->data;
	const int i = s == (uv_stream_t *)&w->err;
	(void)buf;
	if (n < 0) {
		w->open--;
		uv_close((uv_handle_t *)s, NULL);
		return;
	}
	w->n[i] += (size_t)n;
	w->text[i][w->n[i]] = '\0';
	if (i == 0 && w->on_line != NULL && strchr(w->text[0], '\n') != NULL) {
		w->on_line(w);
		w->on_line = NULL;
	}
}

/* Runs falcon-stat with `option` (may be NULL) at `at` to its end, and checks how it
 * exits. */
static void
falcon_stat(struct world *w, const char *option, const char *at, int want)
{
	const char *bin = getenv("FALCON_BIN");
	char path[4096], key[128], where[FAL_ADDR_MAX + 16], opt[32];
	snprintf(path, sizeof(path), "%s/falcon-stat",
		 bin != NULL ? bin : "build/release");
	snprintf(key, sizeof(key), "-k%s", w->key);
	snprintf(where, sizeof(where), "%s", at);
	snprintf(opt, sizeof(opt), "%s", option != NULL ? option : "");
	char *args[] = { path, key, where, option != NULL ? opt : NULL, NULL };
	const int pipes = UV_CREATE_PIPE | UV_WRITABLE_PIPE;
	uv_pipe_init(&w->loop, &w->out, 0);
	uv_pipe_init(&w->loop, &w->err, 0);
	uv_stdio_container_t io[3] = {
		{ .flags = UV_IGNORE },
		{ .flags = (uv_stdio_flags)pipes, .data.stream = (uv_stream_t *)&w->out },
		{ .flags = (uv_stdio_flags)pipes, .data.stream = (uv_stream_t *)&w->err },
	};
	const uv_process_options_t o = {
		.exit_cb = on_exit_,
		.file = path,
		.args = args,
		.stdio_count = 3,
		.stdio = io,
	};
	const int err = uv_spawn(&w->loop, &w->child, &o);
	if (err < 0)
		fail_msg("%s: %s", path, uv_strerror(err));
	w->child.data = w->out.data = w->err.data = w;
	w->open = 3;
	uv_read_start((uv_stream_t *)&w->out, on_alloc, on_read);
	uv_read_start((uv_stream_t *)&w->err, on_alloc, on_read);
	uv_timer_start(&w->guard, on_guard, GUARD_MS, 0);
	while (w->open != 0)
		uv_run(&w->loop, UV_RUN_ONCE);
	uv_timer_stop(&w->guard);
	if (w->status != want || w->signal != 0)
		fail_msg("exit status %d, signal %d, want %d\n%s%s", (int)w->status,
			 w->signal, want, w->text[0], w->text[1]);
}

static void
has(const char *text, const char *part)
{
	if (strstr(text, part) == NULL)
		fail_msg("no \"%s\" in:\n%s", part, text);
}

/* One line on stderr, about the address. */
static void
says(const struct world *w, const char *what)
{
	char head[FAL_ADDR_MAX + 64];
	snprintf(head, sizeof(head), "falcon-stat: %s: ", w->at);
	has(w->text[1], head);
	has(w->text[1], what);
	assert_ptr_equal(strchr(w->text[1], '\n'), w->text[1] + w->n[1] - 1);
}

static void
test_table(void **state)
{
	struct world w;
	(void)state;
	begin(&w);
	falcon_stat(&w, NULL, w.at, 0);
	assert_int_equal(w.live, 0);
	has(w.text[0], "job: toy, epsp\nWORKER");
	has(w.text[0], "\nfast ");
	assert_string_equal(w.text[1], "");
	end(&w);
}

/* A trace from the second clock on knows no beginning of its first row. */
static void
test_history(void **state)
{
	char history[sizeof(job) + sizeof(update)];
	struct world w;
	(void)state;
	begin(&w);
	snprintf(history, sizeof(history), "%s%s", job, update);
	w.history = history;
	falcon_stat(&w, "--history", w.at, 0);
	has(w.text[0], "    2        0.50000          -         -        -         -\n");
	end(&w);
}

static void
tell_done(struct world *w)
{
	assert_string_equal(w->text[0], job);
	send_trace(w, done, strlen(done));
}

static void
test_follow(void **state)
{
	struct world w;
	(void)state;
	begin(&w);
	w.then = WAITS;
	w.on_line = tell_done; /* only when the history has come out */
	falcon_stat(&w, "--follow", w.at, 0);
	assert_int_equal(w.live, 1);
	assert_int_equal(w.n[0], strlen(job) + strlen(done));
	assert_string_equal(w.text[0] + strlen(job), done);
	assert_string_equal(w.text[1], "");
	end(&w);
}

static void
tell_end(struct world *w)
{
	send_msg(w, &(struct fal_msg){ .type = FAL_MSG_TRACE_END });
}

static void
interrupt(struct world *w)
{
	uv_process_kill(&w->child, SIGINT);
}

static void
test_follow_ends(void **state)
{
	struct world w;
	(void)state;
	begin(&w);
	w.then = WAITS;
	w.on_line = tell_end;
	falcon_stat(&w, "-f", w.at, 0);
	w.n[0] = 0;
	w.then = ENDS;
	falcon_stat(&w, "-f", w.at, 0);
	assert_non_null(strstr(w.text[1], ": the trace ends before the job: it may go "
					  "on\n"));
	w.n[0] = w.n[1] = 0;
	w.text[1][0] = '\0';
	w.then = WAITS;
	w.on_line = interrupt;
	falcon_stat(&w, "-f", w.at, 0);
	assert_string_equal(w.text[0], job);
	assert_string_equal(w.text[1], "");
	end(&w);
}

static void
stop_reading(struct world *w)
{
	w->open--;
	uv_close((uv_handle_t *)&w->out, NULL);
	send_trace(w, update, strlen(update));
	send_trace(w, update, strlen(update));
}

/* The rest of the pipe leaves: one line says so, and it ends. */
static void
test_follow_unread(void **state)
{
	struct world w;
	(void)state;
	begin(&w);
	w.then = WAITS;
	w.on_line = stop_reading;
	falcon_stat(&w, "-f", w.at, 0);
	assert_string_equal(w.text[1], "");
	end(&w);
}

static void
test_lost(void **state)
{
	struct world w;
	(void)state;
	begin(&w);
	w.then = CUTS;
	falcon_stat(&w, "-f", w.at, 1);
	says(&w, "closed");
	assert_string_equal(w.text[0], job);
	w.n[0] = w.n[1] = 0;
	w.text[0][0] = '\0';
	falcon_stat(&w, NULL, w.at, 1);
	says(&w, "closed");
	assert_string_equal(w.text[0], "");
	end(&w);
}

static void
test_refused(void **state)
{
	struct world w;
	(void)state;
	begin(&w);
	w.then = REFUSES;
	falcon_stat(&w, NULL, w.at, 77);
	says(&w, "not today");

	w.n[1] = 0;
	w.then = LATER;
	falcon_stat(&w, NULL, w.at, 75);
	says(&w, "later: a crowd");

	w.n[1] = 0;
	w.then = LEAVES;
	write_key(&w, "work", K3);
	falcon_stat(&w, NULL, w.at, 77);
	says(&w, "the key's role is work");

	w.n[1] = 0;
	w.live = -1;
	write_key(&w, "observe", K3);
	falcon_stat(&w, "-f", w.at, 77);
	says(&w, "the coordinator's key does not match, or ours is not in its keyring");
	assert_int_equal(w.live, -1);
	end(&w);
}

static void
test_nobody(void **state)
{
	struct world w;
	(void)state;
	begin(&w);
	snprintf(w.at, sizeof(w.at), "unix:%s/none", w.dir);
	falcon_stat(&w, NULL, w.at, 75);
	has(w.text[1], "/none: no such file or directory; trying again\n");
	has(w.text[1], "/none: no such file or directory\n");
	end(&w);
}

static void
test_rubbish(void **state)
{
	struct world w;
	(void)state;
	begin(&w);
	w.history = "rubbish\n";
	falcon_stat(&w, NULL, w.at, 2);
	has(w.text[1], ":1: ");
	w.n[1] = 0;
	falcon_stat(&w, "-f", w.at, 2);
	has(w.text[1], ":1: ");
	end(&w);
}

static void
test_usage(void **state)
{
	struct world w;
	(void)state;
	begin(&w);
	falcon_stat(&w, "--audit", w.at, 2);
	says(&w, "--audit needs the whole trace");
	falcon_stat(&w, "--follow", w.key, 2);
	falcon_stat(&w, NULL, "lab:70000", 2);
	assert_int_equal(w.live, -1);
	end(&w);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),         cmocka_unit_test(test_history),
		cmocka_unit_test(test_follow),        cmocka_unit_test(test_follow_ends),
		cmocka_unit_test(test_follow_unread), cmocka_unit_test(test_lost),
		cmocka_unit_test(test_refused),       cmocka_unit_test(test_nobody),
		cmocka_unit_test(test_rubbish),       cmocka_unit_test(test_usage),
	};
	signal(SIGPIPE, SIG_IGN);
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("stat", tests, NULL, NULL);
}
