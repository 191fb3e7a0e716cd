/* The audit across lines: who joined, the order of clocks, updates, done. */
#include "trace/audit.h"

#include "base/mem.h"
#include "trace/ids.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HERE, GONE };

struct fal_audit {
	bool have_job;
	struct fal_trace_job job;
	struct fal_ids ids; /* that joined; HERE or GONE */
	uint64_t ledgers;   /* clock that is due */
	uint64_t updates;   /* clock whose update is due */
	bool done;
	uint64_t done_version;
	struct fal_judge_sums sums;
	uint64_t findings;
	char **text;
	size_t n_text, cap_text;
};

struct fal_audit *
fal_audit_new(void)
{
	return fal_calloc(1, sizeof(struct fal_audit));
}

void
fal_audit_free(struct fal_audit *a)
{
	if (a == NULL)
		return;
	for (size_t i = 0; i < a->n_text; i++)
		free(a->text[i]);
	free(a->text);
	fal_ids_free(&a->ids);
	free(a);
}

static int
on_finding(void *arg, const char *text)
{
	struct fal_audit *a = arg;
	a->findings++;
	if (a->n_text == FAL_AUDIT_TEXTS_MAX)
		return 0;
	if (FAL_GROW(a->text, a->cap_text, a->n_text + 1) < 0)
		return FAL_ENOMEM;
	char *copy = fal_strdup(text);
	if (copy == NULL)
		return FAL_ENOMEM;
	a->text[a->n_text++] = copy;
	return 0;
}

static int __attribute__((format(printf, 2, 3)))
finding(struct fal_audit *a, const char *fmt, ...)
{
	char text[320];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return on_finding(a, text);
}

static bool
joined(void *arg, uint64_t id)
{
	const struct fal_audit *a = arg;
	return id <= UINT32_MAX && fal_ids_get(&a->ids, (uint32_t)id) != NULL;
}

static int
take_join(struct fal_audit *a, struct fal_trace_line *l)
{
	uint32_t id = (uint32_t)fal_trace_get_u64(l, l->o, "id", UINT32_MAX);
	if (l->err != 0)
		return l->err;
	if (fal_ids_get(&a->ids, id) != NULL)
		return finding(a, "line %llu: worker %u joined before",
			       (unsigned long long)l->number, id);
	return fal_ids_put(&a->ids, id, HERE);
}

static int
take_leave(struct fal_audit *a, struct fal_trace_line *l)
{
	uint32_t id = (uint32_t)fal_trace_get_u64(l, l->o, "id", UINT32_MAX);
	if (l->err != 0)
		return l->err;
	size_t *state = fal_ids_get(&a->ids, id);
	if (state == NULL || *state == GONE)
		return finding(a, "line %llu: worker %u left, but is not here",
			       (unsigned long long)l->number, id);
	*state = GONE;
	return 0;
}

/* One update a clock is what bsp and epsp (slack 0) do. */
static int
take_scheme(struct fal_trace_line *l)
{
	const char *s = fal_trace_get_str(l, l->o, "scheme");
	if (l->err == 0 && strcmp(s, "bsp") != 0 && strcmp(s, "epsp") != 0 &&
	    strcmp(s, "epsp:0") != 0)
		return fal_trace_fail(l, FAL_EINVAL,
				      "scheme: '%.40s' is neither bsp nor epsp", s);
	return l->err;
}

static int
take_job(struct fal_audit *a, struct fal_trace_line *l)
{
	if (a->have_job)
		return fal_trace_fail(l, FAL_EINVAL, "a second job line");
	if (take_scheme(l) < 0 || fal_trace_job_read(l, &a->job) < 0)
		return l->err;
	a->have_job = true;
	return 0;
}

/* Is the line for the clock that is due?  A line for a later one counts the clocks
 * between as missing; *due moves behind it. */
static bool
is_due(struct fal_audit *a, struct fal_trace_line *l, uint64_t clock, uint64_t *due)
{
	if (clock >= a->job.clocks)
		finding(a, "clock %llu: %s: the job has %llu clocks",
			(unsigned long long)clock, l->ev,
			(unsigned long long)a->job.clocks);
	else if (clock < *due)
		finding(a, "clock %llu: %s again, or out of order",
			(unsigned long long)clock, l->ev);
	else {
		if (clock > *due)
			finding(a, "clock %llu: no %s before that of clock %llu",
				(unsigned long long)*due, l->ev,
				(unsigned long long)clock);
		*due = clock + 1;
		return true;
	}
	return false;
}

static int
take_ledger(struct fal_audit *a, struct fal_trace_line *l)
{
	uint64_t clock = fal_trace_get_u64(l, l->o, "clock", FAL_TRACE_NUM_MAX);
	if (l->err != 0 || !is_due(a, l, clock, &a->ledgers))
		return l->err;
	struct fal_judge_env env = {
		.job = &a->job,
		.clock = clock,
		.joined = joined,
		.on_finding = on_finding,
		.arg = a,
	};
	return fal_judge_ledger(&env, l, &a->sums);
}

static int
take_update(struct fal_audit *a, struct fal_trace_line *l)
{
	static const char *const key[] = { "version", "samples", "epoch" };
	uint64_t clock = fal_trace_get_u64(l, l->o, "clock", FAL_TRACE_NUM_MAX);
	if (l->err != 0 || !is_due(a, l, clock, &a->updates))
		return l->err;
	const uint64_t want[] = { clock + 1, fal_trace_job_samples(&a->job, clock),
				  fal_trace_job_epoch(&a->job, clock) };
	for (size_t i = 0; i < 3; i++) {
		uint64_t is = fal_trace_get_u64(l, l->o, key[i], FAL_TRACE_NUM_MAX);
		if (l->err != 0 || is == want[i])
			continue;
		int err = finding(a, "clock %llu: update: %s is %llu, not %llu",
				  (unsigned long long)clock, key[i],
				  (unsigned long long)is, (unsigned long long)want[i]);
		if (err < 0)
			return err;
	}
	return l->err;
}

static int
take_done(struct fal_audit *a, struct fal_trace_line *l)
{
	if (a->done)
		return fal_trace_fail(l, FAL_EINVAL, "a second done line");
	a->done_version = fal_trace_get_u64(l, l->o, "version", FAL_TRACE_NUM_MAX);
	a->done = true;
	return l->err;
}

int
fal_audit_line(void *audit, struct fal_trace_line *l)
{
	struct fal_audit *a = audit;
	if (strcmp(l->ev, "job") == 0)
		return take_job(a, l);
	if (!a->have_job)
		return fal_trace_fail(l, FAL_EINVAL, "the first line is not job");
	if (strcmp(l->ev, "join") == 0)
		return take_join(a, l);
	if (strcmp(l->ev, "leave") == 0)
		return take_leave(a, l);
	if (strcmp(l->ev, "policy") == 0)
		return take_scheme(l);
	if (strcmp(l->ev, "ledger") == 0)
		return take_ledger(a, l);
	if (strcmp(l->ev, "update") == 0)
		return take_update(a, l);
	if (strcmp(l->ev, "done") == 0)
		return take_done(a, l);
	return 0;
}

/* What only the end can show. */
static int
judge_end(struct fal_audit *a)
{
	uint64_t most = a->ledgers > a->updates ? a->ledgers : a->updates;
	uint64_t least = a->ledgers < a->updates ? a->ledgers : a->updates;
	uint64_t due = a->done ? a->job.clocks : most > 0 ? most - 1 : 0;
	int err = 0;
	/* A trace of a running job may end between a clock's ledger and its update. */
	if (least < due)
		err = finding(a, "clock %llu: no %s", (unsigned long long)least,
			      least == a->ledgers ? "ledger" : "update");
	if (err == 0 && a->done && a->done_version != a->job.clocks)
		err = finding(a, "done: version is %llu, not %llu",
			      (unsigned long long)a->done_version,
			      (unsigned long long)a->job.clocks);
	return err;
}

int
fal_audit_end(struct fal_audit *a, struct fal_audit_verdict *out, struct fal_diag *diag)
{
	if (!a->have_job)
		return fal_diag_set(diag, FAL_ETRUNC, "1: no job line");
	int err = judge_end(a);
	if (err < 0)
		return fal_diag_set(diag, err, "%s", fal_strerror(err));
	*out = (struct fal_audit_verdict){
		.ok = a->findings == 0,
		.finished = a->done,
		.clocks = a->ledgers,
		.of_clocks = a->job.clocks,
		.sums = a->sums,
		.findings = a->findings,
		.text = (const char *const *)a->text,
		.n_text = a->n_text,
	};
	return 0;
}
