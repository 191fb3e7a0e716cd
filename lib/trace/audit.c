/* The audit across lines: who joined, the order of clocks, updates, done. */
#include "trace/audit.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fal_audit {
	bool have_job;
	struct fal_trace_job job;
	uint32_t *id; /* that joined, ascending */
	size_t n_id, cap_id;
	uint32_t *gone; /* that left, ascending */
	size_t n_gone, cap_gone;
	uint64_t ledgers; /* clock that is due */
	uint64_t updates; /* clock whose update is due */
	bool done;
	uint64_t done_version;
	struct fal_ledger_sums sums;
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
	free(a->id);
	free(a->gone);
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

/* The first place of the n ascending ids that is not below `id`. */
static size_t
place(const uint32_t *ids, size_t n, uint32_t id)
{
	size_t lo = 0, hi = n;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (ids[mid] < id)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static bool
has(const uint32_t *ids, size_t n, uint32_t id)
{
	size_t at = place(ids, n, id);
	return at < n && ids[at] == id;
}

static int
insert(uint32_t **ids, size_t *n, size_t *cap, uint32_t id)
{
	if (FAL_GROW(*ids, *cap, *n + 1) < 0)
		return FAL_ENOMEM;
	size_t at = place(*ids, *n, id);
	memmove(&(*ids)[at + 1], &(*ids)[at], (*n - at) * sizeof(**ids));
	(*ids)[at] = id;
	(*n)++;
	return 0;
}

static bool
joined(void *arg, uint64_t id)
{
	const struct fal_audit *a = arg;
	return id <= UINT32_MAX && has(a->id, a->n_id, (uint32_t)id);
}

static int
take_join(struct fal_audit *a, struct fal_trace_line *l)
{
	uint32_t id = (uint32_t)fal_trace_get_u64(l, l->o, "id", UINT32_MAX);
	if (l->err != 0)
		return l->err;
	if (has(a->id, a->n_id, id))
		return finding(a, "line %llu: worker %u joined before",
			       (unsigned long long)l->number, id);
	return insert(&a->id, &a->n_id, &a->cap_id, id);
}

static int
take_leave(struct fal_audit *a, struct fal_trace_line *l)
{
	uint32_t id = (uint32_t)fal_trace_get_u64(l, l->o, "id", UINT32_MAX);
	if (l->err != 0)
		return l->err;
	if (!has(a->id, a->n_id, id) || has(a->gone, a->n_gone, id))
		return finding(a, "line %llu: worker %u left, but is not here",
			       (unsigned long long)l->number, id);
	return insert(&a->gone, &a->n_gone, &a->cap_gone, id);
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
	struct fal_ledger_env env = {
		.job = &a->job,
		.clock = clock,
		.joined = joined,
		.on_finding = on_finding,
		.arg = a,
	};
	return fal_ledger_judge(&env, l, &a->sums);
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
		return fal_diag_set(diag, FAL_ETRUNC, "no job line");
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
