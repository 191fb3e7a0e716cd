/* The world of the coordinator's tests: one coordinator, its trace, sessions that join,
 * and the audit.  The including test defines where messages go. */
#ifndef TEST_COORD_H
#define TEST_COORD_H

#include "../racked.h"
#include "../standin.h"
#include "base/err.h"
#include "trace/audit.h"
#include "trace/reader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { SESSIONS = 9 };

static struct racked job;
static struct fal_coord *coord; /* the job's */
static struct fal_buf trace;
static struct fal_diag diag;
static double now = 0.5;
static uint8_t fingerprint[SESSIONS + 1]; /* of the workers, by session */
static uint32_t incarnation;              /* of the coordinator */

static void
check(int64_t got, int64_t want, const char *what)
{
	if (got != want)
		fail_msg("%s: got %lld, want %lld (%s)", what, (long long)got,
			 (long long)want, diag.text);
}

static int
tell_coord(uint32_t peer, const struct fal_msg *m)
{
	diag.text[0] = '\0';
	return fal_coord_msg(coord, now, peer, m, &diag);
}

/* Sends a message of the session; returns the coordinator's result. */
static int (*tell)(uint32_t peer, const struct fal_msg *m) = tell_coord;

static void
on_trace(void *arg, const char *line, size_t n)
{
	(void)arg;
	fal_put_bytes(&trace, line, n);
	fal_put_u8(&trace, '\n');
}

/* A coordinator of the scheme, without clones, begins with zeros. */
static inline void
begin_scheme(const char *scheme, struct fal_coord_conf conf, struct fal_coord_ops ops)
{
	static const float init[2 * FAL_BLOCK];
	struct fal_policy policy = { .no_clones = true };
	check(fal_rule_parse(scheme, &policy.rule, &diag), 0, "scheme");
	conf.name = "test";
	conf.hash = "00";
	conf.policy = &policy;
	conf.policy_by = "job";
	ops.trace = on_trace;
	now = 0.5;
	fal_buf_clear(&trace);
	check(racked_new(conf, ops, init, 0, &job), 0, "coordinator");
	coord = job.coord;
}

/* Counts occurrences of the text in the trace. */
static inline uint32_t
lines(const char *what)
{
	uint32_t n = 0;
	fal_put_u8(&trace, '\0');
	trace.n--;
	for (const char *at = (const char *)trace.p; (at = strstr(at, what)) != NULL;
	     at++)
		n++;
	return n;
}

static void
open_as(uint32_t peer, uint32_t key)
{
	char name[16];
	const struct fal_coord_session who = { .key = name,
					       .fingerprint = name,
					       .place = key };
	snprintf(name, sizeof(name), "k%u", key);
	fal_coord_session_open(coord, peer, &who);
}

static int
hello(uint32_t peer, const char *name, uint8_t instance)
{
	const struct fal_msg m = standin_hello(name, instance);
	return tell(peer, &m);
}

/* Joins with this key; returns the result of HELLO. */
static int
join_as(uint32_t peer, uint32_t key)
{
	char name[16];
	struct fal_msg m = { .type = FAL_MSG_READY, .incarnation = incarnation };
	snprintf(name, sizeof(name), "w%u", peer);
	open_as(peer, key);
	int err = hello(peer, name, (uint8_t)peer);
	if (err < 0)
		return err;
	m.ready.fingerprint[0] = fingerprint[peer];
	check(tell(peer, &m), 0, "READY");
	return 0;
}

/* Joins with a key of the session's own. */
static void
join(uint32_t peer)
{
	check(join_as(peer, peer), 0, "HELLO");
}

static struct fal_audit_verdict
audited(void)
{
	struct fal_audit_verdict v = { .ok = false };
	struct fal_audit *a = fal_audit_new();
	struct fal_trace_reader *r = fal_trace_reader_new(fal_audit_line, a);
	check(fal_trace_feed(r, (const char *)trace.p, trace.n, &diag), 0, "feed");
	check(fal_trace_end(r, &diag), 0, "trace");
	check(fal_audit_end(a, &v, &diag), 0, "audit");
	if (!v.ok)
		fail_msg("the audit fails: %s", v.text[0]);
	fal_trace_reader_free(r);
	fal_audit_free(a);
	v.text = NULL; /* was the audit's */
	v.n_text = 0;
	return v;
}

static int
end(void **state)
{
	(void)state;
	racked_free(&job);
	coord = NULL;
	fal_buf_free(&trace);
	return 0;
}

#endif
