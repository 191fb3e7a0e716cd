/* Plays made-up clocks into a trace, and reads the report of it. */
#ifndef FAL_TESTS_REPORT_PLAY_H
#define FAL_TESTS_REPORT_PLAY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "proj/report.h"
#include "whole.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS_MAX = 8, TASK = 64 };

/* What a worker does in a clock. */
struct did {
	double task_s; /* of a task on one lane */
	double push, pull, wait;
	uint32_t lanes, tasks, share, lost, stale;
	const char *paces; /* a member of the line, or NULL */
};

/* A trace that grows. */
struct play {
	struct fal_buf b;
	struct fal_trace_reader *reader; /* NULL before the first read_on */
	double t;
	uint64_t clock, round;
	size_t workers;
	double coord; /* seconds from the last push to the next grant */
	struct did did[WORKERS_MAX];
};

static inline void
assert_near(double is, double want)
{
	if (!(fabs(is - want) <= 1e-6))
		fail_msg("is %.9g, want %.9g", is, want);
}

/* A job of 1000 clocks of `tasks` tasks; `probe`: members of the join lines, or "". */
static inline void
begin_probed(struct play *p, const char *scheme, size_t workers, uint32_t tasks,
	     const char *probe)
{
	*p = (struct play){ .workers = workers };
	fal_put_fmt(&p->b,
		    "{\"t\":0,\"ev\":\"job\",\"name\":\"toy\",\"epochs\":1,\"batch\":%u,"
		    "\"task\":%d,\"samples\":%u,\"blocks\":1,\"clocks_per_epoch\":1000,"
		    "\"params\":1000000,"
		    "\"clocks\":1000,\"scheme\":\"%s\",\"audit\":\"claims\"}\n",
		    tasks * TASK, TASK, tasks * TASK * 1000, scheme);
	for (size_t i = 0; i < workers; i++) {
		fal_put_fmt(&p->b,
			    "{\"t\":0,\"ev\":\"join\",\"worker\":\"w%zu\",\"id\":%zu,"
			    "\"lanes\":[1,16],\"cores\":16,\"fingerprint\":\"f\"%s}\n",
			    i + 1, i + 1, probe);
		p->did[i] = (struct did){
			.task_s = 0.01,
			.lanes = 1,
			.tasks = tasks / (uint32_t)workers,
			.share = tasks / (uint32_t)workers,
		};
	}
}

static inline void
begin(struct play *p, const char *scheme, size_t workers, uint32_t tasks)
{
	begin_probed(p, scheme, workers, tasks, "");
}

static inline double
compute_of(const struct did *d)
{
	const uint32_t n = d->tasks + d->lost;
	return d->task_s * ((n + d->lanes - 1) / d->lanes);
}

static inline void
tell(struct play *p, size_t i, bool own)
{
	const struct did *d = &p->did[i];
	fal_put_fmt(&p->b, "{\"t\":%.6f,\"ev\":\"clock\",\"clock\":%llu", p->t,
		    (unsigned long long)p->clock);
	if (own)
		fal_put_fmt(&p->b, ",\"round\":%llu", (unsigned long long)p->round);
	fal_put_fmt(&p->b,
		    ",\"worker\":\"w%zu\",\"id\":%zu,\"lanes\":%u,\"share\":%u,"
		    "\"done\":%u,\"in\":1,\"out\":2,\"cloned\":3,\"lost\":%u,"
		    "\"compute\":%.9f,\"push\":%.9f,\"pull\":%.9f,\"wait\":%.9f,"
		    "\"task_s\":%.9f,\"staleness\":%u%s}\n",
		    i + 1, i + 1, d->lanes, d->share, d->tasks, d->lost, compute_of(d),
		    d->push, d->pull, d->wait, d->task_s, d->stale,
		    d->paces != NULL ? d->paces : "");
}

static inline void
ledger(struct play *p, uint32_t tasks, size_t owner, const char *end)
{
	fal_put_fmt(&p->b,
		    "{\"t\":%.6f,\"ev\":\"ledger\",\"round\":%llu,\"clock\":%llu,"
		    "\"first\":0,\"tasks\":%u,\"samples\":%u,\"version\":%llu,"
		    "\"blocks\":1,\"end\":\"%s\",\"why\":\"stale\",",
		    p->t, (unsigned long long)p->round, (unsigned long long)p->clock,
		    tasks, tasks * TASK, (unsigned long long)p->round, end);
	if (owner > 0)
		fal_put_fmt(&p->b, "\"owner\":%zu,", owner);
	fal_put_fmt(&p->b,
		    "\"grant\":[],\"move\":[],\"clone\":[],\"regrant\":[],\"lost\":[],"
		    "\"contrib\":[{\"c\":[%zu,1],\"tasks\":[[0,%u]],\"blocks\":1}]}\n",
		    owner > 0 ? owner : 1, tasks);
	p->round++;
}

/* A clock in which all wait for the last, and then for the coordinator. */
static inline void
clock_of(struct play *p)
{
	uint32_t tasks = 0;
	double last = 0;
	for (size_t i = 0; i < p->workers; i++) {
		struct did *d = &p->did[i];
		d->wait = -(compute_of(d) + d->push + d->pull);
		last = -d->wait > last ? -d->wait : last;
		tasks += d->tasks;
	}
	p->t += last + p->coord;
	ledger(p, tasks, 0, "applied");
	for (size_t i = 0; i < p->workers; i++) {
		p->did[i].wait += last + p->coord;
		tell(p, i, false);
	}
	p->clock++;
}

/* A round of worker i's own, told when it ends. */
static inline void
round_of(struct play *p, size_t i, const char *end)
{
	ledger(p, p->did[i].tasks, i + 1, end);
	tell(p, i, true);
}

/* Reads what the play has written since the last time. */
static inline void
read_on(struct fal_report *r, struct play *p)
{
	struct fal_diag diag = { "" };
	if (p->reader == NULL)
		p->reader = fal_trace_reader_new(fal_report_line, r);
	assert_non_null(p->reader);
	assert_int_equal(p->b.err, 0);
	if (whole_feed(p->reader, p->b.p, p->b.n, &diag) < 0 ||
	    fal_trace_end(p->reader, &diag) < 0 || fal_report_end(r, &diag) < 0)
		fail_msg("%s", diag.text);
	fal_buf_free(&p->b);
}

static inline void
finish(struct fal_report *r, struct play *p)
{
	*r = (struct fal_report){ 0 };
	read_on(r, p);
	fal_trace_reader_free(p->reader);
	p->reader = NULL;
}

/* Exactly these findings, in this order. */
static inline void
assert_findings(const struct fal_report *r, size_t n, const char *const want[])
{
	for (size_t i = 0; i < n || i < r->findings; i++) {
		const char *is = i < r->findings ? r->finding[i].text : "(none)";
		if (i >= n || strcmp(is, want[i]) != 0)
			fail_msg("finding %zu is '%s', want '%s'", i, is,
				 i < n ? want[i] : "(none)");
		if (strlen(is) > 90)
			fail_msg("%zu characters: '%s'", strlen(is), is);
	}
}

#define FINDINGS(r, ...)                                                               \
	assert_findings(r,                                                             \
			sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *), \
			(const char *const[]){ __VA_ARGS__ })

/* The fourth of four is four times slower. */
static inline void
straggle(struct play *p, const char *scheme)
{
	begin(p, scheme, 4, 16);
	p->coord = 0.001;
	p->did[3].task_s = 0.04;
	for (size_t i = 0; i < 4; i++)
		p->did[i].push = p->did[i].pull = 0.001;
}

#endif
