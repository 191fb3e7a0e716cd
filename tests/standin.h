/* A worker that is not there: what it was told, and what it says then, for tests that do
 * by hand, or wrongly, what a worker does.  Messages borrow what they are made of. */
#ifndef TESTS_STANDIN_H
#define TESTS_STANDIN_H

#include "base/err.h"
#include "sched/ledger.h"
#include "wire/bfp.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { STANDIN_HELD = 256, STANDIN_MAP = 1 };

struct standin_task {
	uint64_t round, version;
	uint32_t task;
	struct fal_contrib_id fills;
	uint8_t kind; /* FAL_KIND_CHECK: it is to be run once more */
};

struct standin {
	struct standin_task held[STANDIN_HELD];
	uint32_t helds;
	uint64_t eval_version; /* under evaluation; of it these tasks are to be run: */
	uint32_t eval[STANDIN_HELD], evals;
};

/* It was told this.  False: there is no room for what is granted. */
static inline bool
standin_told(struct standin *s, const struct fal_msg *m)
{
	uint32_t kept = 0;
	switch (m->type) {
	case FAL_MSG_GRANT:
		for (uint32_t i = 0; i < m->grant.count; i++) {
			if (s->helds == STANDIN_HELD)
				return false;
			s->held[s->helds++] =
				(struct standin_task){ .round = m->grant.round,
						       .version = m->grant.version,
						       .task = m->grant.first + i,
						       .fills = { m->grant.fills_worker,
								  m->grant.fills_seq },
						       .kind = m->grant.kind };
		}
		return true;
	case FAL_MSG_REVOKE:
		for (uint32_t i = 0; i < s->helds; i++) {
			const struct standin_task *t = &s->held[i];
			if (t->round != m->revoke.round ||
			    t->task - m->revoke.first >= m->revoke.count ||
			    (t->kind == FAL_KIND_CHECK) != (m->revoke.check != 0))
				s->held[kept++] = *t;
		}
		s->helds = kept;
		return true;
	case FAL_MSG_EVAL:
		if (m->eval.version != s->eval_version)
			s->evals = 0;
		s->eval_version = m->eval.version;
		for (uint32_t i = 0; i < m->eval.count; i++) {
			if (s->evals == STANDIN_HELD)
				return false;
			s->eval[s->evals++] = m->eval.first + i;
		}
		return true;
	default:
		return true;
	}
}

/* It has one task less: that at this place. */
static inline struct standin_task
standin_take(struct standin *s, uint32_t at)
{
	const struct standin_task t = s->held[at];
	memmove(s->held + at, s->held + at + 1, (--s->helds - at) * sizeof(t));
	return t;
}

/* One lane. */
static inline struct fal_msg
standin_hello(const char *name, uint8_t instance)
{
	struct fal_msg m = { .type = FAL_MSG_HELLO };
	m.hello.schema = fal_msg_schema();
	snprintf(m.hello.name, sizeof(m.hello.name), "%s", name);
	m.hello.lanes_min = m.hello.lanes_max = m.hello.cores = 1;
	m.hello.instance[0] = instance;
	return m;
}

static inline struct fal_msg
standin_claim(const struct standin_task *t, uint32_t seq, bool last)
{
	struct fal_msg m = { .type = FAL_MSG_CLAIM };
	m.claim.round = t->round;
	m.claim.task = t->task;
	m.claim.seq = seq;
	m.claim.fills_worker = t->fills.worker;
	m.claim.fills_seq = t->fills.seq;
	m.claim.version = t->version;
	m.claim.task_ns = 1000000;
	m.claim.last = last;
	return m;
}

static inline struct fal_msg
standin_seal(uint64_t round, uint32_t seq)
{
	struct fal_msg m = { .type = FAL_MSG_SEAL };
	m.seal.round = round;
	m.seal.seq = seq;
	return m;
}

static inline struct fal_msg
standin_push(const struct fal_msg_ticket *ticket, const struct fal_buf *records)
{
	struct fal_msg m = { .type = FAL_MSG_PUSH };
	m.push.ticket = *ticket;
	m.push.epoch = STANDIN_MAP;
	m.push.records = (struct fal_tail){ records->p, records->n };
	return m;
}

static inline struct fal_msg
standin_checked(const struct standin_task *t)
{
	struct fal_msg m = { .type = FAL_MSG_CHECKED };
	m.checked.round = t->round;
	m.checked.task = t->task;
	return m;
}

/* Of a test task: none right, no loss. */
static inline struct fal_msg
standin_evaluated(uint64_t version, uint32_t task, uint32_t samples)
{
	struct fal_msg m = { .type = FAL_MSG_EVALUATED };
	m.evaluated.version = version;
	m.evaluated.task = task;
	m.evaluated.samples = samples;
	m.evaluated.task_ns = 1000;
	return m;
}

/* The records of all blocks: of a gradient of zeros on a version with these exponents,
 * or, where the round is of changes, which have exponents of their own, of none. */
static inline int
standin_zeros(size_t params, uint8_t kind, const int8_t *exps, struct fal_buf *out)
{
	struct fal_sum *sum = fal_sum_new(params);
	int err = sum != NULL ? FAL_OK : FAL_ENOMEM;
	for (uint32_t b = 0; b < fal_blocks(params) && err == FAL_OK; b++)
		err = fal_sum_pack(sum, b, kind == FAL_KIND_DELTA ? FAL_EXP_MIN : exps[b],
				   out);
	fal_sum_free(sum);
	return err;
}

#endif
