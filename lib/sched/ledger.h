/* The ledger of one round: its tasks, and which contribution has claimed each task.
 *
 * The ledger alone decides whether a result counts: the first claim of a task wins, so
 * the task sets of contributions never overlap.  A fence ends a contribution, whose tasks
 * become unclaimed again and are marked `fills`: another contribution must claim them and
 * fill the fenced one.  Of the filling contribution, shards drop exactly the blocks that
 * the fenced one has brought (design.md, I11).  The scheduler knows which workers hold a
 * task; the ledger only logs changes of holders for the trace.
 *
 * A task without a finite result may be skipped: the task then counts as claimed, has no
 * samples, and belongs to no contribution.
 */
#ifndef FAL_SCHED_LEDGER_H
#define FAL_SCHED_LEDGER_H

#include "base/buf.h"
#include "base/cid.h"
#include "base/metrics.h"
#include "sched/grid.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAL_NONE UINT32_MAX /* no task, no contribution, no worker slot */

enum fal_contrib_state {
	FAL_CONTRIB_OPEN,   /* takes claims and blocks */
	FAL_CONTRIB_FENCED, /* accepts nothing more; its tasks are unclaimed again */
	FAL_CONTRIB_DONE    /* all its blocks are counted */
};

struct fal_contrib {
	struct fal_contrib_id id;
	uint32_t fills; /* index of the contribution that this one fills, or FAL_NONE */
	uint32_t tasks; /* claimed tasks */
	uint32_t due;   /* of these, tasks claimed ahead and not reported yet */
	uint32_t head;  /* index of its newest claim in fal_ledger.claim */
	uint32_t older; /* the worker's contribution before this one, or FAL_NONE */
	enum fal_contrib_state state;
	bool sealed; /* takes no more claims: its worker has asked for the ticket */
	/* The caller's: */
	uint32_t blocks;       /* blocks that shards have added, not dropped */
	double claimed_at;     /* time of its last claim */
	double first_block_at; /* time of its first block; 0: none came */
	double last_block_at;  /* time of its last block */
	bool is_counted; /* all its blocks are counted, but some results are not reported
			  */
	bool is_fenced_by_all; /* FENCED, and all shards know of the fence */
};

#define FAL_CLAIM_HASH 16 /* bytes of the hash of a task's result */

struct fal_claim {
	uint32_t task;
	/* index of the next older claim of the same contribution, or FAL_NONE */
	uint32_t next;
	/* The caller's: */
	uint8_t hash[FAL_CLAIM_HASH]; /* 0: no result so far */
	uint64_t version;             /* the version that the task was computed on */
};

struct fal_ltask {
	uint32_t contrib; /* index of the claiming contribution, or FAL_NONE */
	uint32_t claim;   /* index of its claim, if `contrib` is not FAL_NONE */
	/* index of the fenced contribution that a claim of the task must fill, or
	 * FAL_NONE */
	uint32_t fills;
	uint32_t samples;
	int64_t loss; /* of the claim, fixed point (falcon-protocol(7)) */
	bool due;     /* claimed ahead: its result is not reported yet */
	bool skipped;
};

/* Events of a range of tasks, for the trace. */
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

/* Extends the range by `task`; false: the task does not touch the range.  Ranges also
 * grow downwards, because tasks leave a queue at its tail. */
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
	/* the round has tasks first … first+tasks-1 of its clock */
	uint32_t first, tasks;
	/* claimed: tasks with a claim of a contribution that is not fenced, and skipped
	 * tasks; skipped: skipped tasks only. */
	uint32_t claimed, skipped;
	uint32_t claimed_samples, skipped_samples;
	uint32_t due; /* claimed ahead and not reported yet */
	/* The caller's: claims that another key was to compute once more; the equal
	 * answers; the unlike answers. */
	uint32_t asked, equal, unlike;
	struct fal_ltask *task; /* by task - first */
	size_t task_cap;
	/* of the claims, by task - first, if has_metrics */
	struct fal_metrics *metrics;
	size_t metrics_cap;
	bool has_metrics;
	struct fal_contrib *contrib;
	uint32_t contribs;
	size_t contrib_cap;
	struct fal_newest { /* a hash table; worker 0: an empty place */
		uint32_t worker, contrib;
	} *newest;
	uint32_t contributors;   /* workers in `newest` */
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

/* Begins a round of tasks first … first+tasks-1 of a clock, all unclaimed; forgets the
 * last round. */
void fal_ledger_open(struct fal_ledger *l, const struct fal_grid *g, uint64_t clock,
		     uint32_t first, uint32_t tasks);

/* Does the task belong to this round? */
static inline bool
fal_ledger_has(const struct fal_ledger *l, uint32_t task)
{
	return task >= l->first && task - l->first < l->tasks;
}

/* The entry of the task, which must belong to this round. */
static inline struct fal_ltask *
fal_ledger_task(const struct fal_ledger *l, uint32_t task)
{
	return &l->task[task - l->first];
}

/* Claims `task` for contribution `id`, which fills `fills` ({0,0}: none).  Returns 1: the
 * claim wins; *ci is the index of the contribution.  Returns 0: the claim loses, because
 * the task is claimed or skipped or must fill another contribution, or because the
 * contribution is fenced.  FAL_EINVAL: no task of this round.  FAL_ESTATE: the
 * contribution is sealed or done, or has had another `fills`.  Contributions of a worker
 * may win their first claims in any order. */
int fal_ledger_claim(struct fal_ledger *l, struct fal_contrib_id id,
		     struct fal_contrib_id fills, uint32_t task, int64_t loss,
		     uint32_t *ci);

/* Claims the unclaimed `task` ahead, when the task is granted, for contribution `id`.
 * That contribution fills the contribution that the task must fill. */
void fal_ledger_preclaim(struct fal_ledger *l, struct fal_contrib_id id, uint32_t task);
/* Reports the result of a task that contribution `ci` has claimed ahead.  False: `ci` has
 * not claimed the task ahead, or the result was reported before. */
bool fal_ledger_report(struct fal_ledger *l, uint32_t ci, uint32_t task, int64_t loss);

/* The claim of `task` that counts; NULL: none. */
static inline struct fal_claim *
fal_ledger_claimed(const struct fal_ledger *l, uint32_t task)
{
	const struct fal_ltask *t = fal_ledger_task(l, task);
	return t->contrib != FAL_NONE ? &l->claim[t->claim] : NULL;
}

/* Skips the task, which must be unclaimed. */
void fal_ledger_skip(struct fal_ledger *l, uint32_t task);

/* The worker's newest contribution, or FAL_NONE.  O(1). */
uint32_t fal_ledger_newest(const struct fal_ledger *l, uint32_t worker);

/* The index of contribution `id`, or FAL_NONE. */
uint32_t fal_ledger_find(const struct fal_ledger *l, struct fal_contrib_id id);

/* Seals contribution `ci`; FAL_ESTATE: it was sealed before. */
int fal_ledger_seal(struct fal_ledger *l, uint32_t ci);

/* Fences the open contribution `ci`; its tasks are then unclaimed, and claims of them
 * must fill `ci`.  The caller puts the tasks back into queues (follow head, next). */
void fal_ledger_fence(struct fal_ledger *l, uint32_t ci);

/* Adds an entry of `task` for the trace; joins ranges that touch. */
void fal_ledger_log(struct fal_ledger *l, enum fal_entry_kind kind, uint32_t a,
		    uint32_t b, uint32_t task);

/* Σ of the losses of the claims that count, modulo 2^64. */
int64_t fal_ledger_loss(const struct fal_ledger *l);

/* Are all these losses known (base/loss.h)? */
bool fal_ledger_loss_known(const struct fal_ledger *l);

/* Sets the metrics of a claimed task; samples are set by the ledger. */
void fal_ledger_set_metrics(struct fal_ledger *l, uint32_t task,
			    const struct fal_metrics *m);

/* Σ of the metrics of the tasks that are not skipped, in the order of tasks: so the sum
 * does not depend on the order of claims. */
struct fal_metrics fal_ledger_metrics(const struct fal_ledger *l);

/* ---- grants ---- */

/* For each of n items, which are tasks of a round or test tasks: the workers that were
 * ever granted the item.  A worker may claim only tasks that the worker was granted; a
 * claim of a task that was taken away meanwhile is honest, too, so the history forgets no
 * grant.  {0} is empty and valid. */
struct fal_grant_history {
	uint32_t *newest; /* by item: index of its newest entry, plus 1; 0: none */
	size_t newest_cap;
	struct fal_grant_entry {
		uint32_t worker, older;
	} *v;
	uint32_t n;
	size_t cap;
};

/* Empties the history, for n items. */
void fal_grant_history_open(struct fal_grant_history *h, uint32_t n);
void fal_grant_history_free(struct fal_grant_history *h);

/* Adds a grant; a second grant of an item to the same worker changes nothing. */
void fal_grant_history_add(struct fal_grant_history *h, uint32_t item, uint32_t worker);

bool fal_grant_history_has(const struct fal_grant_history *h, uint32_t item,
			   uint32_t worker);

#endif
