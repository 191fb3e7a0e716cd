/* The ledger of one round: which task is claimed by which contribution.
 *
 * It alone decides whether a result counts: the first claim of a task wins, so the task
 * sets of contributions never overlap.  A fenced contribution gives its tasks back,
 * marked `fills`: whoever runs them again puts them into contributions that fill it, and
 * shards drop exactly the blocks that they already have (design.md, I11).  Who
 * holds which task is the scheduler's business, not the ledger's; it only writes the
 * moves down.
 *
 * A task that gives no finite result may be skipped: it counts, with no samples, and in
 * no contribution.
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
	uint32_t fills;  /* index of the contribution that it fills, or FAL_NONE */
	uint32_t tasks;  /* claimed tasks */
	uint32_t due;    /* of these, claimed ahead and not reported yet */
	uint32_t head;   /* its newest claim, an index into fal_ledger.claim */
	uint32_t blocks; /* the caller's: blocks that were added, not dropped */
	uint32_t older;  /* the worker's contribution before this one, or FAL_NONE */
	double claimed;  /* the caller's: when it last won a claim, */
	double first;    /* when a block of it first came; 0: none did so far, */
	double came;     /* … and when one last did */
	enum fal_contrib_state state;
	bool sealed; /* no claim goes into it any more: its ticket was given */
	bool whole;  /* the caller's: all its blocks are counted, but reports are due */
	bool everywhere; /* the caller's: FENCED, and all shards know */
};

#define FAL_CLAIM_HASH 16 /* bytes, of what the task gave */

struct fal_claim {
	uint32_t task;
	uint32_t next; /* an older claim of the same contribution, or FAL_NONE */
	uint8_t hash[FAL_CLAIM_HASH]; /* the caller's; 0: no result so far */
	uint64_t version;             /* the caller's: that it was computed on */
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

/* What happened to ranges of tasks, for the trace. */
enum fal_entry_kind {
	FAL_ENTRY_GRANT,   /* a: worker id */
	FAL_ENTRY_MOVE,    /* a: from, b: to */
	FAL_ENTRY_CLONE,   /* a: to */
	FAL_ENTRY_REGRANT, /* a: to */
	FAL_ENTRY_LOST,    /* a: whose claim lost */
	FAL_ENTRY_KINDS
};

struct fal_entry {
	uint32_t a, b, first, count;
};

/* Makes the range one task longer where `task` touches it; true if it did.  Tasks leave a
 * queue from its tail, so ranges grow downwards, too. */
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
	/* tasks claimed by a contribution that is not fenced, or skipped; these */
	uint32_t claimed, skipped;
	uint32_t claimed_samples, skipped_samples;
	uint32_t due; /* of these, claimed ahead and not reported yet */
	/* The caller's: claims that were drawn for another key to compute once more, and
	 * those that came out the same there, or not. */
	uint32_t asked, equal, unlike;
	struct fal_ltask *task; /* by task - first */
	size_t task_cap;
	struct fal_contrib *contrib;
	uint32_t contribs;
	size_t contrib_cap;
	struct fal_newest { /* open addressing; worker 0: an empty place */
		uint32_t worker, contrib;
	} *newest;
	uint32_t contributors; /* workers in it */
	size_t newest_cap;
	struct fal_claim *claim; /* every claim that won, in order */
	uint32_t claims;
	size_t claim_cap;
	struct {
		struct fal_entry *v;
		size_t n, cap;
	} log[FAL_ENTRY_KINDS];
};

void fal_ledger_free(struct fal_ledger *l);

/* Begins a round of the unclaimed tasks first … first+tasks-1 of a clock; forgets the one
 * before. */
void fal_ledger_open(struct fal_ledger *l, const struct fal_grid *g, uint64_t clock,
		     uint32_t first, uint32_t tasks);

/* The place of task `task` in l->task. */
static inline struct fal_ltask *
fal_ledger_task(const struct fal_ledger *l, uint32_t task)
{
	return &l->task[task - l->first];
}

/* Is it a task of this round? */
static inline bool
fal_ledger_has(const struct fal_ledger *l, uint32_t task)
{
	return task >= l->first && task - l->first < l->tasks;
}

/* A claim of `task` by contribution `id`, which fills `fills` ({0,0}: none).  `*ci`
 * becomes the index of the contribution when it is won.
 * Returns 1: won.  0: lost (claimed already, or skipped, or the task must fill another
 * contribution, or the contribution is fenced).  FAL_EINVAL: not a task of this round.
 * FAL_ESTATE: a contribution that changes what it fills or is sealed.
 * Contributions of a worker may win their first claims in any order. */
int fal_ledger_claim(struct fal_ledger *l, struct fal_cid id, struct fal_cid fills,
		     uint32_t task, int64_t loss, uint32_t *ci);

/* The same, ahead: `task`, which nobody has claimed, is granted to contribution `id`,
 * which it goes into whatever becomes of others; it fills what the task must fill. */
void fal_ledger_preclaim(struct fal_ledger *l, struct fal_cid id, uint32_t task);
/* A task of contribution `ci` that was claimed ahead has a result.  False: it is none, or
 * was reported before. */
bool fal_ledger_report(struct fal_ledger *l, uint32_t ci, uint32_t task, int64_t loss);

/* The claim of `task` that counts; NULL: there is none. */
static inline struct fal_claim *
fal_ledger_claimed(const struct fal_ledger *l, uint32_t task)
{
	const struct fal_ltask *t = fal_ledger_task(l, task);
	return t->contrib != FAL_NONE ? &l->claim[t->claim] : NULL;
}

/* The task, which no contribution has claimed, is skipped. */
void fal_ledger_skip(struct fal_ledger *l, uint32_t task);

/* The worker's newest contribution, or FAL_NONE.  O(1). */
uint32_t fal_ledger_newest(const struct fal_ledger *l, uint32_t worker);

/* The index of contribution `id`; FAL_NONE. */
uint32_t fal_ledger_find(const struct fal_ledger *l, struct fal_cid id);

/* Contribution `ci` is closed; FAL_ESTATE: it was before. */
int fal_ledger_seal(struct fal_ledger *l, uint32_t ci);

/* Fences the open contribution `ci`; its tasks are unclaimed and must fill it.  The
 * caller puts them back into queues (walk head, next). */
void fal_ledger_fence(struct fal_ledger *l, uint32_t ci);

/* Writes an entry for the trace; joins ranges that touch. */
void fal_ledger_log(struct fal_ledger *l, enum fal_entry_kind kind, uint32_t a,
		    uint32_t b, uint32_t task);

/* Σ of the losses of the claims that count, modulo 2^64. */
int64_t fal_ledger_loss(const struct fal_ledger *l);

/* Is each of these known (base/loss.h)? */
bool fal_ledger_loss_known(const struct fal_ledger *l);

/* ---- grants ---- */

/* Every worker that was ever given each of n things.  A claim must be of a task that its
 * worker was given, even one that was taken back while the claim was under way.  {0} is
 * empty and valid. */
struct fal_grant_history {
	uint32_t *newest; /* by thing: index of its newest entry + 1; 0: none */
	size_t newest_cap;
	struct fal_grant_entry {
		uint32_t worker, older;
	} *v;
	uint32_t n;
	size_t cap;
};

/* Empty again, for n things. */
void fal_grant_history_open(struct fal_grant_history *h, uint32_t n);
void fal_grant_history_free(struct fal_grant_history *h);

/* Once more counts once. */
void fal_grant_history_add(struct fal_grant_history *h, uint32_t thing, uint32_t worker);

bool fal_grant_history_has(const struct fal_grant_history *h, uint32_t thing, uint32_t worker);

#endif
