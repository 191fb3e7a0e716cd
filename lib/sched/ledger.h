/* The ledger of one round: the tasks, and the contribution that has claimed each.
 *
 * The ledger alone decides whether a result counts: the first claim of a task wins, so
 * the task sets of contributions never overlap.  A fenced contribution gives its tasks
 * back, marked `fills`: the next worker puts them into a contribution that fills the
 * fenced one, and shards drop exactly the blocks that they already have (design.md, I11).
 * The holders of tasks are the scheduler's business; the ledger only writes their changes
 * down.
 *
 * A task without a finite result may be skipped: it counts, with no samples, and in no
 * contribution.
 */
#ifndef FAL_SCHED_LEDGER_H
#define FAL_SCHED_LEDGER_H

#include "base/buf.h"
#include "base/cid.h"
#include "sched/grid.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAL_NONE UINT32_MAX /* no task, no contribution, no worker slot */

enum fal_contrib_state {
	FAL_CONTRIB_OPEN,   /* claims come in, blocks may come in */
	FAL_CONTRIB_FENCED, /* nothing more is accepted; its tasks were given back */
	FAL_CONTRIB_DONE    /* all its blocks are counted */
};

struct fal_contrib {
	struct fal_cid id;
	uint32_t fills; /* index of the contribution that it fills, or FAL_NONE */
	uint32_t tasks; /* claimed tasks */
	uint32_t due;   /* of these, claimed ahead and not reported yet */
	uint32_t head;  /* its newest claim, an index into fal_ledger.claim */
	uint32_t older; /* the worker's contribution before this one, or FAL_NONE */
	enum fal_contrib_state state;
	bool sealed; /* takes no more claims: its ticket was given */
	/* The caller's: */
	uint32_t blocks; /* blocks that were added, not dropped */
	double claimed;  /* time of its last claim; */
	double first;    /* … of its first block, 0: none; */
	double came;     /* … of its last block */
	bool whole;      /* all its blocks are counted, but reports are due */
	bool everywhere; /* FENCED, and all shards know */
};

#define FAL_CLAIM_HASH 16 /* bytes, of a task's result */

struct fal_claim {
	uint32_t task;
	uint32_t next; /* an older claim of the same contribution, or FAL_NONE */
	/* The caller's: */
	uint8_t hash[FAL_CLAIM_HASH]; /* 0: no result so far */
	uint64_t version;             /* that the task was computed on */
};

struct fal_ltask {
	uint32_t contrib; /* index of the claiming contribution, or FAL_NONE */
	uint32_t claim;   /* index of its claim, with one */
	uint32_t fills;   /* index of the fenced contribution it must fill, or FAL_NONE */
	uint32_t samples;
	int64_t loss; /* of the claim, fixed point (falcon-protocol(7)) */
	bool due;     /* claimed ahead: its result is not reported yet */
	bool skipped;
};

/* Events of ranges of tasks, for the trace. */
enum fal_entry_kind {
	FAL_ENTRY_GRANT,   /* a: worker id */
	FAL_ENTRY_MOVE,    /* a: from, b: to */
	FAL_ENTRY_CLONE,   /* a: to */
	FAL_ENTRY_REGRANT, /* a: to */
	FAL_ENTRY_LOST,    /* a: worker of the lost claim */
	FAL_ENTRY_KINDS
};

struct fal_entry {
	uint32_t a, b, first, count;
};

/* Extends the range by `task`; false: they do not touch.  Tasks leave a queue from its
 * tail, so ranges grow downwards, too. */
static inline bool
fal_range_join(uint32_t *first, uint32_t *count, uint32_t task)
{
	if (*first != task + 1 && *first + *count != task)
		return false;
	*first = *first < task ? *first : task;
	++*count;
	return true;
}

struct fal_ledger {
	uint32_t first, tasks; /* the round's: tasks first … first+tasks-1 of its clock */
	/* Tasks claimed by a contribution that is not fenced, or skipped; skipped ones.
	 */
	uint32_t claimed, skipped;
	uint32_t claimed_samples, skipped_samples;
	uint32_t due; /* claimed ahead and not reported yet */
	/* The caller's: claims drawn for another key to compute once more, and the equal
	 * and the unlike answers. */
	uint32_t asked, equal, unlike;
	struct fal_ltask *task; /* by task - first */
	size_t task_cap;
	struct fal_contrib *contrib;
	uint32_t contribs;
	size_t contrib_cap;
	struct fal_newest { /* a hash table; worker 0: an empty place */
		uint32_t worker, contrib;
	} *newest;
	uint32_t contributors;   /* workers in it */
	size_t newest_cap;       /* a power of 2 */
	struct fal_claim *claim; /* every claim that won, in order */
	uint32_t claims;
	size_t claim_cap;
	struct {
		struct fal_entry *v;
		size_t n, cap;
	} log[FAL_ENTRY_KINDS];
};

void fal_ledger_free(struct fal_ledger *l);

/* Begins a round of the unclaimed tasks first … first+tasks-1 of a clock; forgets the
 * last round. */
void fal_ledger_open(struct fal_ledger *l, const struct fal_grid *g, uint64_t clock,
		     uint32_t first, uint32_t tasks);

/* Is the task of this round? */
static inline bool
fal_ledger_has(const struct fal_ledger *l, uint32_t task)
{
	return task >= l->first && task - l->first < l->tasks;
}

/* The task, which is of this round. */
static inline struct fal_ltask *
fal_ledger_task(const struct fal_ledger *l, uint32_t task)
{
	return &l->task[task - l->first];
}

/* Claims `task` for contribution `id`, which fills `fills` ({0,0}: none).  Sets `*ci` to
 * the index of the contribution when the claim is won. Returns 1: won.  0: lost (claimed
 * already, or skipped, or the task must fill another contribution, or the contribution is
 * fenced).  FAL_EINVAL: not a task of this round. FAL_ESTATE: a contribution that changes
 * what it fills or is sealed. Contributions of a worker may win their first claims in any
 * order. */
int fal_ledger_claim(struct fal_ledger *l, struct fal_cid id, struct fal_cid fills,
		     uint32_t task, int64_t loss, uint32_t *ci);

/* Claims the unclaimed `task` ahead, as it is granted, for contribution `id`, which fills
 * what the task must fill. */
void fal_ledger_preclaim(struct fal_ledger *l, struct fal_cid id, uint32_t task);
/* Reports the result of a task that contribution `ci` has claimed ahead.  False: it has
 * not, or the result was reported before. */
bool fal_ledger_report(struct fal_ledger *l, uint32_t ci, uint32_t task, int64_t loss);

/* The claim of `task` that counts; NULL: none. */
static inline struct fal_claim *
fal_ledger_claimed(const struct fal_ledger *l, uint32_t task)
{
	const struct fal_ltask *t = fal_ledger_task(l, task);
	return t->contrib != FAL_NONE ? &l->claim[t->claim] : NULL;
}

/* Skips the task, which no contribution has claimed. */
void fal_ledger_skip(struct fal_ledger *l, uint32_t task);

/* The worker's newest contribution, or FAL_NONE.  O(1). */
uint32_t fal_ledger_newest(const struct fal_ledger *l, uint32_t worker);

/* The index of contribution `id`, or FAL_NONE. */
uint32_t fal_ledger_find(const struct fal_ledger *l, struct fal_cid id);

/* Seals contribution `ci`; FAL_ESTATE: it was sealed before. */
int fal_ledger_seal(struct fal_ledger *l, uint32_t ci);

/* Fences the open contribution `ci`; its tasks are unclaimed and must fill it.  The
 * caller puts them back into queues (walk head, next). */
void fal_ledger_fence(struct fal_ledger *l, uint32_t ci);

/* Adds an entry for the trace; joins ranges that touch. */
void fal_ledger_log(struct fal_ledger *l, enum fal_entry_kind kind, uint32_t a,
		    uint32_t b, uint32_t task);

/* Σ of the losses of the claims that count, modulo 2^64. */
int64_t fal_ledger_loss(const struct fal_ledger *l);

/* Are all these losses known (base/loss.h)? */
bool fal_ledger_loss_known(const struct fal_ledger *l);

/* ---- grants ---- */

/* The workers that were ever granted each of n things.  A claim must be of a task that
 * its worker was granted, even of one that was taken away while the claim was under way.
 * {0} is empty and valid. */
struct fal_grant_history {
	uint32_t *newest; /* by thing: index of its newest entry + 1; 0: none */
	size_t newest_cap;
	struct fal_grant_entry {
		uint32_t worker, older;
	} *v;
	uint32_t n;
	size_t cap;
};

/* Empties the history, for n things. */
void fal_grant_history_open(struct fal_grant_history *h, uint32_t n);
void fal_grant_history_free(struct fal_grant_history *h);

/* Adds a grant; a second one of the same thing and worker changes nothing. */
void fal_grant_history_add(struct fal_grant_history *h, uint32_t thing, uint32_t worker);

bool fal_grant_history_has(const struct fal_grant_history *h, uint32_t thing,
			   uint32_t worker);

#endif
