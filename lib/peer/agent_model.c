/* Versions of the parameters: coming, current, kept. */
#include "peer/agent_priv.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void
agent_free_snapshot(struct snapshot *s)
{
	if (s == NULL)
		return;
	free(s->params);
	free(s->exps);
	free(s->seen);
	free(s);
}

void
agent_drop(struct fal_agent *a, struct snapshot *s)
{
	if (s == NULL || --s->refs > 0)
		return;
	agent_free_snapshot(a->spare);
	a->spare = s;
}

static struct snapshot *
snapshot_alloc(const struct fal_agent *a)
{
	struct snapshot *s = fal_calloc(1, sizeof(*s));
	if (s == NULL)
		return NULL;
	s->params = fal_calloc_aligned(a->conf.n, sizeof(float));
	s->exps = fal_calloc(a->blocks, 1);
	s->seen = fal_calloc(a->blocks, 1);
	if (s->params == NULL || s->exps == NULL || s->seen == NULL) {
		agent_free_snapshot(s);
		return NULL;
	}
	return s;
}

static struct snapshot *
snapshot_new(struct fal_agent *a, uint64_t version)
{
	struct snapshot *s = a->spare != NULL ? a->spare : snapshot_alloc(a);
	if (s == NULL)
		return NULL;
	a->spare = NULL;
	memset(s->seen, 0, a->blocks);
	s->refs = 1;
	s->version = version;
	s->left = a->blocks;
	return s;
}

bool
agent_pulling(const struct fal_agent *a)
{
	return a->coming[0] != NULL || a->coming[1] != NULL;
}

int
agent_on_version(struct fal_agent *a, const struct fal_msg *m)
{
	/* One to be kept is not given up for a newer one. */
	struct snapshot **coming = &a->coming[m->version.keep != 0];
	struct snapshot *s = snapshot_new(a, m->version.version);
	if (s == NULL)
		return FAL_ENOMEM;
	agent_drop(a, *coming);
	*coming = s;
	return FAL_OK;
}

/* The clock that ends with the version now complete: where its time went. */
static int
report(struct fal_agent *a, uint64_t version)
{
	struct fal_msg m = { .type = FAL_MSG_WORKED };
	m.worked.clock = version - 1;
	m.worked.compute = a->spent[COMPUTE];
	m.worked.push = a->spent[PUSH];
	m.worked.pull = a->spent[PULL];
	m.worked.wait = a->spent[WAIT];
	m.worked.push_all = a->push_all;
	m.worked.pull_all = a->pull_all;
	m.worked.late = a->late;
	memset(a->spent, 0, sizeof(a->spent));
	a->push_all = a->pull_all = a->late = 0;
	return agent_send(a, &m, false);
}

/* All of `a->coming[keep]` is here. */
static int
model_complete(struct fal_agent *a, bool keep)
{
	struct snapshot *s = a->coming[keep];
	int err = FAL_OK;
	bool newer = a->current == NULL || s->version > a->current->version;
	a->coming[keep] = NULL;
	if (newer && a->current != NULL)
		err = report(a, s->version);
	if (keep) {
		agent_drop(a, a->kept);
		a->kept = s;
		s->refs++;
	}
	if (newer) {
		agent_drop(a, a->current);
		a->current = s;
	} else {
		agent_drop(a, s);
	}
	if (err == FAL_OK && newer && s->version > a->clock)
		err = agent_enter_clock(a, s->version);
	return err == FAL_OK ? agent_dispatch(a) : err;
}

int
agent_on_model(struct fal_agent *a, const struct fal_msg *m)
{
	bool keep = a->coming[1] != NULL && a->coming[1]->version == m->model.version;
	struct snapshot *s = a->coming[keep];
	if (s == NULL || s->version != m->model.version)
		return FAL_OK; /* of a version that was skipped */
	uint32_t first = m->model.first, blocks = m->model.blocks;
	if (blocks == 0 || first >= a->blocks || blocks > a->blocks - first)
		return FAL_EFORMAT;
	size_t from = (size_t)first * FAL_BLOCK, to = from + (size_t)blocks * FAL_BLOCK;
	size_t values = (to < a->conf.n ? to : a->conf.n) - from;
	if (m->model.data.n != blocks + values * sizeof(float))
		return FAL_EFORMAT;
	for (uint32_t b = first; b < first + blocks; b++) {
		int8_t e = (int8_t)m->model.data.p[b - first];
		if (e < FAL_EXP_MIN || e > FAL_EXP_MAX || s->seen[b])
			return FAL_EFORMAT;
		s->seen[b] = 1;
		s->left--;
	}
	memcpy(s->exps + first, m->model.data.p, blocks);
	memcpy(s->params + from, m->model.data.p + blocks, values * sizeof(float));
	return s->left == 0 ? model_complete(a, keep) : FAL_OK;
}
