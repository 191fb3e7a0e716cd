/* What liars bring about. */
#include "lies.h"

#include "trace/reader.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

struct search {
	const struct plan *p;
	uint64_t liar[MAX_WORKERS]; /* sessions of liars, by their numbers in the trace */
	uint32_t liars;
	bool found;
};

/* Is it the key of somebody who pushes lies? */
static bool
is_liars(const struct plan *p, const char *key)
{
	char name[16];
	uint32_t i = 0;
	snprintf(name, sizeof(name), "k%u", i);
	while (i < p->machines && strcmp(name, key) != 0)
		snprintf(name, sizeof(name), "k%u", ++i);
	for (uint32_t k = 0; k < p->machines; k++) {
		const struct machine *m = &p->machine[k];
		const bool has = k == i || m->key == i + 1;
		if (has && m->lie != HONEST && m->lie < LIE_PUSHES)
			return true;
	}
	return false;
}

static int
look(void *arg, struct fal_trace_line *l)
{
	struct search *s = arg;
	uint64_t id[2];
	if (strcmp(l->ev, "join") == 0 &&
	    is_liars(s->p, fal_trace_get_str(l, l->o, "key"))) {
		assert(s->liars < MAX_WORKERS);
		s->liar[s->liars++] = fal_trace_get_u64(l, l->o, "id", UINT32_MAX);
	}
	if (strcmp(l->ev, "check") != 0)
		return l->err;
	const char *verdict = fal_trace_get_str(l, l->o, "verdict");
	if (strcmp(verdict, "believed") != 0 && strcmp(verdict, "bounded") != 0)
		return l->err;
	fal_trace_get_tuple(l, l->o, "c", 2, id);
	for (uint32_t i = 0; i < s->liars; i++)
		s->found |= s->liar[i] == id[0];
	return l->err;
}

bool
liar_believed(const struct plan *p, const char *trace, size_t n)
{
	struct search s = { .p = p };
	struct fal_diag diag;
	struct fal_trace_reader *r = fal_trace_reader_new(look, &s);
	assert(r != NULL);
	/* What is wrong with the trace the audit says. */
	if (fal_trace_feed(r, trace, n, &diag) == 0)
		fal_trace_end(r, &diag);
	fal_trace_reader_free(r);
	return s.found;
}
