/* A client whose key is good, and who asks for too much:
 *
 *	asks KEY ADDR early        a chunk before HELLO
 *	asks KEY ADDR flood N      N chunks at once, after HELLO
 *	asks KEY ADDR sessions N   so many sessions at a time
 *	asks KEY ADDR read N M     all data, again and again, in N sessions: M MiB
 *	asks KEY ADDR stall N S    chunks in N sessions, and takes none for S seconds
 *	asks KEY ADDR follow N     the trace, N times in one session
 *	asks KEY ADDR churn N      joins and leaves, N times in a row
 *
 * Says in one line what it got: sessions, those that were refused and those sent away for
 * later, chunks, in how many seconds, and why the last one ended. */
#include "cli/cli.h"
#include "crypto/keyring.h"
#include "job/chunk.h"
#include "net/client.h"
#include "net/conn.h"
#include "wire/msg.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SESSIONS = 1024, AHEAD = 8, ASKS = 16 };

struct session {
	struct fal_chan *c;
	uint32_t next;           /* chunk */
	uint32_t there, bytes;   /* chunks; bytes of the manifest */
	struct fal_buf manifest; /* so far */
};

static uv_loop_t loop;
static uv_timer_t timer;
static struct fal_addr addr;
static struct fal_client_key *key;
static struct session session[SESSIONS];
static const char *mode;
static bool many; /* sessions at a time, one after the other */
static bool stalled;
static unsigned wanted, came, manifests, open_now, welcome, refused, later, whole;
static uint64_t bytes, enough = UINT64_MAX;
static char why[256] = "-";

static void dial(struct session *s);

static void
on_time(uv_timer_t *t)
{
	uv_stop(t->loop);
}

static void
say(struct session *s, const struct fal_msg *m)
{
	struct fal_buf out = { 0 };
	fal_msg_put(&out, m);
	fal_chan_send(s->c, &out, FAL_SEND_CONTROL);
	fal_buf_free(&out);
}

static void
hello(struct session *s)
{
	struct fal_msg m = { .type = FAL_MSG_HELLO };
	m.hello.schema = fal_msg_schema();
	snprintf(m.hello.name, sizeof(m.hello.name), "asks");
	m.hello.lanes_min = m.hello.lanes_max = m.hello.cores = 1;
	static uint32_t process;
	process++;
	memcpy(m.hello.instance, &process, sizeof(process));
	say(s, &m);
}

static void
ask(struct session *s)
{
	struct fal_msg m = { .type = FAL_MSG_CHUNK_GET };
	m.chunk_get.chunk = s->there > 0 ? s->next++ % s->there : 0;
	say(s, &m);
}

static void
on_open(void *arg, struct fal_chan *c)
{
	struct session *s = arg;
	(void)c;
	open_now++;
	if (many && came < wanted && came < SESSIONS)
		dial(&session[came]);
	if (strcmp(mode, "early") == 0)
		ask(s);
	else if (strcmp(mode, "follow") == 0)
		for (unsigned i = 0; i < wanted; i++)
			say(s, &(struct fal_msg){ .type = FAL_MSG_FOLLOW,
						  .follow.live = 1 });
	else
		hello(s);
}

/* All sessions ask for as much as they may, and nothing is read any more. */
static void
stall(void)
{
	for (unsigned i = 0; i < came; i++)
		for (unsigned k = 0; k < ASKS; k++)
			ask(&session[i]);
	stalled = true;
	uv_timer_start(&timer, on_time, 1, 0);
}

/* The last text: it says how many chunks there are. */
static void
on_manifest(struct session *s, const struct fal_tail *piece)
{
	struct fal_manifest m;
	fal_put_bytes(&s->manifest, piece->p, piece->n);
	if (s->manifest.n < s->bytes)
		return;
	if (fal_manifest_parse(s->manifest.p, s->manifest.n, &m) < 0)
		abort();
	fal_buf_free(&s->manifest);
	s->there = m.train.chunks;
	fal_manifest_free(&m);
	manifests++;
	if (strcmp(mode, "stall") == 0 && manifests == wanted)
		stall();
	const unsigned n = strcmp(mode, "flood") == 0  ? wanted
			   : strcmp(mode, "read") == 0 ? AHEAD
						       : 0;
	for (unsigned i = 0; i < n; i++)
		ask(s);
}

static void
on_chunk(struct session *s, const struct fal_msg *m)
{
	bytes += m->chunk.bytes.n;
	if (bytes >= enough)
		uv_timer_start(&timer, on_time, 0, 0);
	if (m->chunk.offset + m->chunk.bytes.n < m->chunk.total)
		return;
	whole++;
	if (strcmp(mode, "read") == 0)
		ask(s);
}

static void
on_welcome(struct session *s, const struct fal_msg *m)
{
	welcome++;
	s->bytes = m->welcome.manifest_n;
	if (strcmp(mode, "churn") == 0) {
		say(s, &(struct fal_msg){ .type = FAL_MSG_READY });
		fal_chan_close(s->c);
	}
}

static void
on_msg(void *arg, struct fal_chan *c, const uint8_t *p, size_t n)
{
	struct session *s = arg;
	struct fal_msg m;
	(void)c;
	if (fal_msg_get(p, n, &m) < 0)
		abort();
	if (m.type == FAL_MSG_WELCOME)
		on_welcome(s, &m);
	else if (m.type == FAL_MSG_TEXT && m.text.which == FAL_TEXT_MANIFEST)
		on_manifest(s, &m.text.bytes);
	else if (m.type == FAL_MSG_CHUNK)
		on_chunk(s, &m);
	else if (m.type == FAL_MSG_REFUSE || m.type == FAL_MSG_LATER)
		snprintf(why, sizeof(why), "%s",
			 m.type == FAL_MSG_LATER ? m.later.why : m.refuse.why);
	refused += m.type == FAL_MSG_REFUSE;
	later += m.type == FAL_MSG_LATER;
}

static void
on_close(void *arg, struct fal_chan *c, int err, const char *reason)
{
	struct session *s = arg;
	(void)c;
	(void)err;
	if (strcmp(why, "-") == 0)
		snprintf(why, sizeof(why), "%s", reason);
	open_now--;
	fal_buf_free(&s->manifest);
	*s = (struct session){ 0 };
	if (strcmp(mode, "churn") == 0 && came < wanted)
		dial(s);
	else if (open_now == 0 || strcmp(mode, "sessions") != 0)
		uv_timer_start(&timer, on_time, 0, 0);
}

static void
dial(struct session *s)
{
	const struct fal_chan_ops ops = {
		.arg = s, .on_open = on_open, .on_msg = on_msg, .on_close = on_close
	};
	const struct fal_chan_opt opt = { 0 };
	came++;
	if (fal_dial(&loop, &addr, key, &opt, &ops, &s->c) < 0)
		abort();
}

int
main(int argc, char **argv)
{
	struct fal_diag diag;
	if (argc < 4 || fal_client_key_load("asks", argv[1], FAL_ROLE_NONE, &key) != 0 ||
	    fal_addr_parse(argv[2], &addr, &diag) < 0)
		return 2;
	mode = argv[3];
	wanted = argc > 4 ? (unsigned)atoi(argv[4]) : 1;
	signal(SIGPIPE, SIG_IGN);
	uv_loop_init(&loop);
	uv_timer_init(&loop, &timer);
	many = strcmp(mode, "sessions") == 0 || strcmp(mode, "read") == 0 ||
	       strcmp(mode, "stall") == 0;
	const unsigned last = argc > 5 ? (unsigned)atoi(argv[5]) : 0;
	const bool reads = strcmp(mode, "read") == 0;
	if (reads)
		enough = (uint64_t)last << 20;
	const uint64_t began = uv_hrtime();
	dial(&session[0]);
	uv_timer_start(&timer, on_time,
		       reads                                    ? 90000
		       : last > 0 && strcmp(mode, "stall") != 0 ? 1000 * (uint64_t)last
								: 20000,
		       0);
	uv_run(&loop, UV_RUN_DEFAULT);
	if (stalled)
		sleep(last);
	const double took = 1e-9 * (double)(uv_hrtime() - began);
	printf("sessions %u open %u welcome %u refused %u later %u chunks %u bytes %llu "
	       "seconds %.0f: %s\n",
	       came, open_now, welcome, refused, later, whole, (unsigned long long)bytes,
	       floor(took), why);
	return 0;
}
