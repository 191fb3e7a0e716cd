/* A ledger line while it is judged: what judge_read.c reads and judge.c judges.
 * Private to these two. */
#ifndef FAL_TRACE_JUDGE_PRIV_H
#define FAL_TRACE_JUDGE_PRIV_H

#include "trace/judge.h"

enum what { GRANT, REGRANT, CLONE, MOVE, LOST, SKIPPED, ADDED };

struct event {
	uint32_t task;
	uint32_t order; /* of the line: events of a task keep it */
	uint32_t a;     /* the worker; MOVE: from; ADDED: index of the contribution */
	uint32_t b;     /* MOVE: to */
	enum what what;
};

#define NO_CONTRIB SIZE_MAX

struct contrib {
	uint32_t id, seq;
	size_t fills;       /* index of the contribution it fills, or NO_CONTRIB */
	uint64_t inherited; /* blocks that were added before it */
	uint64_t blocks;    /* blocks that it added */
	uint64_t first, count, tasks; /* its first range; tasks in all */
	bool fenced;
	/* Scratch of judging one task: */
	uint32_t seen;       /* times it names the task */
	uint32_t fills_seen; /* fills of it that name the task */
};

/* A worker that was given the task, and how often it holds it now. */
struct holder {
	uint32_t id, now;
};

struct ledger {
	const struct fal_judge_env *env;
	struct fal_findings *f;          /* of env */
	const struct fal_trace_round *r; /* of env */
	struct fal_trace_line *l;
	struct event *ev;
	size_t n_ev, cap_ev;
	struct contrib *c;
	size_t n_c;
	size_t *by_key; /* contributions sorted by (id, seq) */
	struct holder *hold;
	size_t n_hold;
	/* Tasks that were skipped, and what fenced contributions brought of them. */
	uint64_t skipped, brought;
	/* audit = sums: the line has them; those of the contributions, added up */
	bool sums;
	uint64_t sum;
};

/* Reads the arrays of the line into events and contributions, and judges what needs no
 * other task: who is named, blocks, fences, fills.  Errors are left in g->l. */
void judge_read(struct ledger *g, struct fal_judge_sums *sums);

#endif
