/* Tasks of groups, on both sides. */
#include "trace/below.h"

#include "base/mem.h"
#include "base/spans.h"

#include <stdlib.h>
#include <string.h>

/* A clock's tasks follow those of the clock before, as if each had as many as may be. */
#define CLOCK FAL_TRACE_TASKS_MAX

struct group {
	char fingerprint[40]; /* of its key */
	struct fal_spans given;
	bool cut;      /* one of its traces has no end */
	size_t server; /* of its last trace */
};

struct fal_below {
	char hash[65]; /* of the job; "": there was no trace yet */
	struct fal_trace_job job;
	struct group *group;
	size_t groups, cap;
	size_t server; /* those that were read, this one among them */
	bool blank;    /* one of its traces says nothing */
	/* Of the trace that is read. */
	size_t at; /* whose it is, from 1; 0: no group's */
	bool said, ended;
};

struct fal_below *
fal_below_new(void)
{
	return fal_calloc(1, sizeof(struct fal_below));
}

void
fal_below_free(struct fal_below *b)
{
	if (b == NULL)
		return;
	for (size_t i = 0; i < b->groups; i++)
		fal_spans_free(&b->group[i].given);
	free(b->group);
	free(b);
}

void
fal_below_server(struct fal_below *b)
{
	b->server++;
	b->blank = false;
}

void
fal_below_server_end(struct fal_below *b)
{
	for (size_t i = 0; i < b->groups && b->blank; i++)
		b->group[i].cut |= b->group[i].server == b->server;
}

void
fal_below_begin(struct fal_below *b)
{
	b->at = 0;
	b->said = b->ended = false;
}

void
fal_below_end(struct fal_below *b)
{
	b->blank |= !b->said;
	if (b->at != 0 && !b->ended)
		b->group[b->at - 1].cut = true;
}

static struct group *
group_of(const struct fal_below *b, const char *fingerprint)
{
	for (size_t i = 0; i < b->groups; i++)
		if (strcmp(b->group[i].fingerprint, fingerprint) == 0)
			return &b->group[i];
	return NULL;
}

static int
take_job(struct fal_below *b, struct fal_trace_line *l)
{
	const char *hash = fal_trace_get_hex(l, l->o, FAL_F_HASH, 64);
	if (l->err != 0 || fal_trace_job_read(l, &b->job) < 0)
		return l->err;
	if (b->hash[0] != '\0' && strcmp(b->hash, hash) != 0)
		return fal_trace_fail(l, FAL_EINVAL,
				      "hash: another job than that of the trace before");
	memcpy(b->hash, hash, sizeof(b->hash));
	if (!fal_trace_has(l->o, FAL_F_ABOVE))
		return 0;
	const char *print = fal_trace_get_str(l, l->o, FAL_F_KEY_FINGERPRINT);
	const size_t n = strlen(print);
	if (l->err == 0 && n >= sizeof(b->group->fingerprint))
		return fal_trace_fail(l, FAL_EFORMAT, "key_fingerprint: too long");
	struct group *g = l->err == 0 ? group_of(b, print) : NULL;
	if (l->err == 0 && g == NULL) {
		if (FAL_GROW(b->group, b->cap, b->groups + 1) < 0)
			return fal_trace_fail(l, FAL_ENOMEM, "%s",
					      fal_strerror(FAL_ENOMEM));
		g = &b->group[b->groups++];
		*g = (struct group){ 0 };
		memcpy(g->fingerprint, print, n + 1);
	}
	b->at = g != NULL ? (size_t)(g - b->group) + 1 : 0;
	if (g != NULL)
		g->server = b->server;
	return l->err;
}

static int
take_ledger(struct fal_below *b, struct fal_trace_line *l)
{
	struct fal_trace_round r;
	uint64_t twice;
	if (b->at == 0 || fal_trace_round_read(l, &r) < 0 || r.end != FAL_TRACE_GIVEN)
		return l->err;
	if (r.clock >= b->job.clocks || r.first >= CLOCK || r.tasks > CLOCK - r.first)
		return fal_trace_fail(l, FAL_ELIMIT, "tasks that the job has not");
	const uint64_t from = r.clock * CLOCK + r.first;
	int err = fal_spans_add(&b->group[b->at - 1].given, from, from + r.tasks, &twice);
	return err < 0 ? fal_trace_fail(l, err, "%s", fal_strerror(err)) : l->err;
}

int
fal_below_line(void *below, struct fal_trace_line *l)
{
	struct fal_below *b = below;
	b->said = true;
	if (strcmp(l->ev, "job") == 0)
		return take_job(b, l);
	if (strcmp(l->ev, "restart") == 0)
		return fal_trace_job_restart(l, &b->job);
	b->ended = fal_trace_is_last(l);
	return strcmp(l->ev, "ledger") == 0 ? take_ledger(b, l) : l->err;
}

/* Those of the tasks that a contribution has which it had given. */
static void
judge_tasks(const struct group *g, struct fal_trace_line *l, const json_t *o,
	    const struct fal_trace_round *r, struct fal_below_sums *sums,
	    struct fal_findings *f)
{
	uint64_t v[2], odd = 0, first = 0;
	const size_t n = fal_trace_get_len(l, o, FAL_F_TASK_LIST);
	for (size_t i = 0; i < n && l->err == 0; i++) {
		fal_trace_get_row(l, o, FAL_F_TASK_LIST, i, 2, v);
		const uint64_t from = r->clock * CLOCK + v[0];
		for (uint64_t t = 0; t < v[1] && v[1] <= CLOCK; t++) {
			if (fal_spans_has(&g->given, from + t)) {
				sums->tasks++;
			} else {
				first = odd == 0 ? v[0] + t : first;
				odd++;
			}
		}
	}
	if (g->cut)
		sums->unknown += odd;
	else if (odd > 0)
		fal_finding(f, r, first, 1,
			    "it counts for a group that has not given it, and %llu more",
			    (unsigned long long)odd - 1);
}

int
fal_below_ledger(const struct fal_below *b, struct fal_trace_line *l,
		 const struct fal_trace_round *r, const struct fal_people *p,
		 struct fal_below_sums *sums, struct fal_findings *f)
{
	const size_t n = fal_trace_get_len(l, l->o, FAL_F_CONTRIB);
	if (!fal_trace_round_whole(r))
		return l->err;
	for (size_t i = 0; i < n && l->err == 0; i++) {
		const json_t *o = json_array_get(fal_trace_at(l->o, FAL_F_CONTRIB), i);
		uint64_t c[2] = { 0, 0 };
		fal_trace_get_tuple(l, o, FAL_F_C, 2, c);
		const size_t key = fal_people_key(p, (uint32_t)c[0]);
		const struct group *g = key != 0 && fal_people_is_group(p, (uint32_t)c[0])
						? group_of(b, p->key[key - 1].fingerprint)
						: NULL;
		/* What was claimed as it was granted may have come to nothing. */
		if (g != NULL && !fal_trace_get_flag(l, o, FAL_F_FENCED))
			judge_tasks(g, l, o, r, sums, f);
	}
	return l->err;
}
