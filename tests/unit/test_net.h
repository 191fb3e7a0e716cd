/* The world of the channels' tests: one loop, a listener, both ends of some channels, and
 * what became of each. */
#ifndef TEST_NET_H
#define TEST_NET_H

#include "base/err.h"
#include "crypto/noise.h"
#include "net/conn.h"
#include "net/listen.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Keys of 32 equal bytes: 1, 2, 3. */
#define K1 "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
#define K2 "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI="
#define K3 "AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM="
#define GUARD_MS 60000 /* a test that hangs fails after it */
#define ENDS 4
#define LOG 4096

/* One end of a channel, and what became of it. */
struct end {
	struct fal_chan *c; /* NULL: none, or over */
	unsigned opened, msgs, rooms, drained, closed;
	size_t bytes;
	char log[LOG]; /* first byte of each message */
	int err;
	char reason[512];
	bool close_on_msg;
};

struct world {
	uv_loop_t loop;
	uv_timer_t guard;
	bool late;
	char dir[64];
	struct fal_keyring *kr;
	struct fal_listen *l;
	struct end server[ENDS], client[ENDS];
	unsigned accepted, refusals;
	char source[64], refused[512]; /* the last one */
	char name[64];
	enum fal_role role;
};

/* Of struct fal_link: an emulated line without a delay. */
static inline uint64_t
no_delay(void *arg, uint64_t now)
{
	(void)arg;
	(void)now;
	return 0;
}

static inline void
on_open(void *arg, struct fal_chan *c)
{
	struct end *e = arg;
	assert_ptr_equal(e->c, c);
	e->opened++;
}

static inline void
on_msg(void *arg, struct fal_chan *c, const uint8_t *p, size_t n)
{
	struct end *e = arg;
	if (e->msgs < LOG)
		e->log[e->msgs] = (char)(n != 0 ? p[0] : '-');
	e->msgs++;
	e->bytes += n;
	if (e->close_on_msg)
		fal_chan_close(c);
}

static inline void
on_room(void *arg, struct fal_chan *c)
{
	struct end *e = arg;
	assert_true(fal_chan_has_room(c));
	e->rooms++;
}

static inline void
on_drain(void *arg, struct fal_chan *c)
{
	struct end *e = arg;
	(void)c;
	e->drained++;
}

static inline void
on_close(void *arg, struct fal_chan *c, int err, const char *reason)
{
	struct end *e = arg;
	assert_ptr_equal(e->c, c);
	e->c = NULL;
	e->closed++;
	e->err = err;
	snprintf(e->reason, sizeof(e->reason), "%s", reason);
}

static inline struct fal_chan_ops
ops_of(struct end *e)
{
	return (struct fal_chan_ops){ .arg = e,
				      .on_open = on_open,
				      .on_msg = on_msg,
				      .on_room = on_room,
				      .on_drain = on_drain,
				      .on_close = on_close };
}

static inline void
on_accept(void *arg, struct fal_chan *c, const char *name, enum fal_role role)
{
	struct world *w = arg;
	struct end *e = &w->server[w->accepted++];
	const struct fal_chan_ops ops = ops_of(e);
	e->c = c;
	snprintf(w->name, sizeof(w->name), "%s", name);
	w->role = role;
	fal_chan_set_ops(c, &ops);
}

static inline void
on_refused(void *arg, const char *source, const char *reason)
{
	struct world *w = arg;
	w->refusals++;
	snprintf(w->source, sizeof(w->source), "%s", source);
	snprintf(w->refused, sizeof(w->refused), "%s", reason);
}

static inline void
on_guard(uv_timer_t *t)
{
	((struct world *)t->data)->late = true;
}

/* Runs the loop until `fact` holds. */
#define UNTIL(w, fact)                                   \
	do {                                             \
		while (!(fact) && !(w)->late)            \
			uv_run(&(w)->loop, UV_RUN_ONCE); \
		assert_true(fact);                       \
	} while (0)

static inline struct fal_keyring *
parse(const char *text)
{
	struct fal_keyring *kr;
	assert_int_equal(fal_keyring_parse(text, strlen(text), "k", &kr, NULL), 0);
	return kr;
}

static inline struct fal_addr __attribute__((format(printf, 1, 2)))
addr(const char *fmt, ...)
{
	char text[FAL_ADDR_MAX];
	struct fal_addr a;
	struct fal_diag d = { "" };
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (fal_addr_parse(text, &a, &d) < 0)
		fail_msg("%s", d.text);
	return a;
}

static inline void
listen_at(struct world *w, struct fal_addr at, struct fal_listen_opt opt)
{
	const struct fal_listen_ops ops = { w, on_accept, on_refused, NULL };
	struct fal_diag d = { "" };
	opt.addr = &at;
	opt.keyring = w->kr;
	if (fal_listen_start(&w->loop, &opt, &ops, &w->l, &d) < 0)
		fail_msg("%s", d.text);
}

static inline void
begin(struct world *w, struct fal_listen_opt opt)
{
	*w = (struct world){ 0 };
	uv_loop_init(&w->loop);
	uv_timer_init(&w->loop, &w->guard);
	w->guard.data = w;
	uv_timer_start(&w->guard, on_guard, GUARD_MS, 0);
	snprintf(w->dir, sizeof(w->dir), "/tmp/falcon-test-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	w->kr = parse("coordinator self " K1 "\nlab work " K2 "\nadmin control " K3 "\n");
	listen_at(w, addr("127.0.0.1:0"), opt);
}

/* Nothing may be left: no handle, no callback. */
static inline void
end(struct world *w)
{
	for (int i = 0; i < ENDS; i++) {
		if (w->server[i].c != NULL)
			fal_chan_kill(w->server[i].c);
		if (w->client[i].c != NULL)
			fal_chan_kill(w->client[i].c);
	}
	fal_listen_close(w->l);
	uv_close((uv_handle_t *)&w->guard, NULL);
	uv_run(&w->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&w->loop), 0);
	fal_keyring_free(w->kr);
	assert_int_equal(rmdir(w->dir), 0);
}

static inline struct fal_client_key
client_key(const char *name, int psk, int server)
{
	struct fal_client_key key = { .role = FAL_ROLE_WORK };
	uint8_t secret[FAL_KEY_BYTES];
	snprintf(key.name, sizeof(key.name), "%s", name);
	memset(key.psk, psk, sizeof(key.psk));
	memset(secret, server, sizeof(secret));
	fal_noise_derive_public(secret, key.server);
	return key;
}

static inline void
dial_as(struct world *w, int i, const struct fal_addr *at, struct fal_client_key key,
	struct fal_chan_opt opt)
{
	const struct fal_chan_ops ops = ops_of(&w->client[i]);
	assert_int_equal(fal_dial(&w->loop, at, &key, &opt, &ops, &w->client[i].c), 0);
}

static inline void
dial(struct world *w, int i)
{
	const struct fal_addr at = addr("%s", fal_listen_addr_text(w->l));
	dial_as(w, i, &at, client_key("lab", 2, 1), (struct fal_chan_opt){ 0 });
}

static inline int
send_bytes(struct end *e, char first, size_t n, enum fal_send how)
{
	static uint8_t bytes[FAL_RECORD_MAX];
	const struct fal_buf msg = { .p = bytes, .n = n };
	bytes[0] = (uint8_t)first;
	return fal_chan_send(e->c, &msg, how);
}

#define SEND(e, first) assert_int_equal(send_bytes(e, first, 10, FAL_SEND_CONTROL), 0)

/* Client i and server i know each other. */
static inline void
meet(struct world *w, int i)
{
	dial(w, i);
	SEND(&w->client[i], 'h');
	UNTIL(w, w->server[i].msgs == 1);
}

#endif
