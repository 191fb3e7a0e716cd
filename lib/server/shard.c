/* A shard: executes orders, adds pushes to rounds, and reports the results. */
#include "server/shard.h"

#include "base/branch.h"
#include "base/mem.h"
#include "base/sorted.h"
#include "crypto/secret.h"
#include "server/store.h"
#include "trace/chain.h"

#include <stdlib.h>
#include <string.h>

struct shard_round {
	uint64_t round; /* first member: rounds are sorted by it */
	/* the round is not open in the store, because its version is not made yet */
	bool awaits_version;
	bool end_ordered; /* END was ordered before the round is complete */
	/* tasks that were skipped while the round awaits its version */
	uint32_t skipped;
	struct fal_facts facts;
};

struct fal_shard {
	struct fal_shard_conf conf;
	struct fal_store *store;
	struct shard_round *open; /* by round */
	size_t opens, open_cap;
	uint64_t next_round; /* no order has opened this round or a later round */
	/* Fences of rounds that are not open yet. */
	struct early_fence {
		uint64_t round;
		struct fal_contrib_id id, fills;
	} *fence;
	size_t fences, fence_cap;
	/* Orders that the shard executes in sequence.  The first one waits for its round,
	 * or for the squares of other shards; the others wait for the first one. */
	struct queued_order {
		struct fal_shard_order order;
		bool squares_reported;
	} *queue;
	size_t queued, queue_cap;
	struct {
		bool exists;
		uint64_t version;
		float *params;
		int8_t *exps;
	} pinned;
	struct fal_image marked; /* an image; or memory for an image; or empty */
	bool has_marked;         /* an image */
};

struct fal_shard *
fal_shard_new(const struct fal_shard_conf *conf, const float *init)
{
	const size_t from = (size_t)conf->first * FAL_BLOCK;
	const size_t most = (size_t)conf->count * FAL_BLOCK;
	struct fal_shard *s = fal_xcalloc(1, sizeof(*s));
	const struct fal_store_conf store = { .n = conf->n - from < most ? conf->n - from
									 : most,
					      .first = conf->first,
					      .tasks = conf->tasks,
					      .bits = conf->bits,
					      .optim = conf->optim,
					      .checksums = conf->checksums,
					      .parallel = conf->parallel };
	s->conf = *conf;
	s->store = fal_store_new(&store, init);
	s->pinned.params = fal_alloc_pages(store.n, sizeof(float));
	s->pinned.exps = fal_xcalloc(conf->count, 1);
	if (s->store != NULL && s->pinned.params != NULL)
		return s;
	fal_shard_free(s);
	return NULL;
}

void
fal_shard_report_free(struct fal_shard_report *report)
{
	free(report->brought);
	free(report->exps);
	free(report->squares);
	free(report->leaves);
	*report = (struct fal_shard_report){ 0 };
}

void
fal_shard_result_add(struct fal_shard_result *r, const struct fal_shard_report *report)
{
	FAL_XGROW(r->v, r->cap, r->n + 1);
	r->v[r->n++] = *report;
}

void
fal_shard_result_free(struct fal_shard_result *r)
{
	for (size_t i = 0; i < r->n; i++)
		fal_shard_report_free(&r->v[i]);
	free(r->v);
	*r = (struct fal_shard_result){ 0 };
}

void
fal_shard_free(struct fal_shard *s)
{
	if (s == NULL)
		return;
	free(s->open);
	free(s->fence);
	free(s->queue);
	free(s->pinned.params);
	free(s->pinned.exps);
	fal_image_free(&s->marked);
	fal_store_free(s->store);
	fal_secret_wipe(&s->conf.tickets, sizeof(s->conf.tickets));
	free(s);
}

/* Finds an open round, or NULL. */
static struct shard_round *
shard_find_round(const struct fal_shard *s, uint64_t round)
{
	const size_t at = fal_sorted_place64(s->open, s->opens, sizeof(*s->open), round);
	return at < s->opens && s->open[at].round == round ? &s->open[at] : NULL;
}

static void
add_report(const struct fal_shard *s, const struct fal_shard_report *report,
	   struct fal_shard_result *r)
{
	fal_shard_result_add(r, report);
	r->v[r->n - 1].shard = s->conf.number;
}

/* ---- the pinned version; images -------------------------------------------------------
 */

/* Copies a kept version to the pinned version.  FAL_ESTATE: the store does not have it.
 */
static int
pin_version(struct fal_shard *s, uint64_t version)
{
	const float *params;
	const int8_t *exps;
	if (!fal_store_find_version(s->store, version, &params, &exps))
		return FAL_ESTATE;
	s->pinned.exists = true;
	s->pinned.version = version;
	memcpy(s->pinned.params, params, fal_store_len(s->store) * sizeof(float));
	memcpy(s->pinned.exps, exps, s->conf.count);
	return FAL_OK;
}

/* Appends the present state to `live`, without kept versions before `from`. */
static int
live_image(struct fal_shard *s, uint64_t from, struct fal_image *live)
{
	int err = fal_store_image(s->store, from, live);
	live->is.holds = s->pinned.exists;
	live->is.held = s->pinned.version;
	if (err < 0 || !s->pinned.exists || fal_image_keeps(&live->is))
		return err;
	fal_image_add(live, "held.params", true, s->pinned.params,
		      fal_store_len(s->store) * sizeof(float));
	fal_image_add(live, "held.exponents", false, s->pinned.exps, s->conf.count);
	return FAL_OK;
}

int
fal_shard_image(struct fal_shard *s, struct fal_image *live)
{
	return live_image(s, 0, live);
}

/* Makes an image of the newest version and of older ones from `from` on.  If memory is
 * short there is no image, and the job continues. */
static void
mark_version(struct fal_shard *s, uint64_t from)
{
	struct fal_image live = { 0 };
	s->has_marked = live_image(s, from, &live) == FAL_OK &&
			fal_image_copy(&s->marked, &live) == FAL_OK;
	fal_image_free(&live);
}

bool
fal_shard_take_marked(struct fal_shard *s, uint64_t version, struct fal_image *out)
{
	if (!s->has_marked || s->marked.is.version != version)
		return false;
	*out = s->marked;
	s->marked = (struct fal_image){ 0 };
	s->has_marked = false;
	return true;
}

void
fal_shard_recycle_image(struct fal_shard *s, struct fal_image *image)
{
	if (s->has_marked || s->marked.arrays > 0)
		fal_image_free(image);
	else
		s->marked = *image;
	*image = (struct fal_image){ 0 };
}

int
fal_shard_restore_begin(struct fal_shard *s, const struct fal_image_head *is,
			struct fal_image *live)
{
	if (is->holds && is->held > is->version)
		return FAL_EINVAL;
	int err = fal_store_restore_begin(s->store, is);
	s->pinned.exists = is->holds;
	s->pinned.version = is->held;
	return err < 0 ? err : fal_shard_image(s, live);
}

void
fal_shard_restore_end(struct fal_shard *s)
{
	fal_store_restore_end(s->store);
	/* A pinned version that is also a kept version has no arrays of its own in the
	 * image. */
	if (s->pinned.exists && s->pinned.version >= fal_store_oldest(s->store))
		(void)pin_version(s, s->pinned.version);
}

/* ---- rounds ------------------------------------------------------------------------ */

/* Reports a complete round, unless its end was ordered ahead: then execute_queue ends the
 * round. */
static void
report_completion(const struct fal_shard *s, const struct shard_round *o,
		  struct fal_shard_result *r)
{
	const struct fal_shard_report complete = { .kind = FAL_REPORT_COMPLETE,
						   .round = o->round };
	if (!o->end_ordered && fal_store_is_complete(s->store, o->round))
		add_report(s, &complete, r);
}

/* Opens a round in the store, and fences contributions whose fences came before. */
static int
open_in_store(struct fal_shard *s, uint64_t round, const struct fal_facts *facts)
{
	const struct fal_store_round r = { .round = round,
					   .tasks = facts->tasks,
					   .kind = facts->kind,
					   .version = facts->version,
					   .mixed = facts->mixed,
					   .seed = fal_ticket_seed(&s->conf.tickets,
								   round) };
	size_t kept = 0;
	int err = FAL_OK;
	fal_store_open(s->store, &r);
	for (size_t i = 0; i < s->fences; i++) {
		const struct early_fence e = s->fence[i];
		if (e.round != round)
			s->fence[kept++] = e;
		else if (err == FAL_OK)
			err = fal_store_fence(s->store, round, e.id, e.fills);
	}
	s->fences = kept;
	return err;
}

/* Returns true if the round needs a version that is not made yet. */
static bool
lacks_version(const struct fal_shard *s, const struct fal_facts *facts)
{
	return facts->kind == FAL_KIND_GRAD &&
	       !fal_store_find_version(s->store, facts->version, NULL, NULL);
}

/* Adds a round, at OPEN, or at the first ticket if that comes before OPEN. */
static int
shard_add_round(struct fal_shard *s, uint64_t round, const struct fal_facts *facts)
{
	const size_t at = fal_sorted_place64(s->open, s->opens, sizeof(*s->open), round);
	const bool waits = lacks_version(s, facts);
	if (facts->tasks == 0)
		return FAL_EINVAL;
	FAL_XGROW(s->open, s->open_cap, s->opens + 1);
	int err = waits ? FAL_OK : open_in_store(s, round, facts);
	if (err < 0)
		return err;
	memmove(s->open + at + 1, s->open + at, (s->opens++ - at) * sizeof(*s->open));
	s->open[at] = (struct shard_round){ .round = round,
					    .awaits_version = waits,
					    .facts = *facts };
	return FAL_OK;
}

/* Opens the rounds whose version has been made. */
static int
open_waiting_rounds(struct fal_shard *s, struct fal_shard_result *r)
{
	int err = FAL_OK;
	for (size_t i = 0; i < s->opens && err == FAL_OK; i++) {
		struct shard_round *o = &s->open[i];
		if (!o->awaits_version || lacks_version(s, &o->facts))
			continue;
		const struct fal_contrib_id none = { 0, 0 };
		o->awaits_version = false;
		err = open_in_store(s, o->round, &o->facts);
		if (err < 0 || o->skipped == 0)
			continue;
		err = fal_store_skip(s->store, o->round, o->skipped, none);
		report_completion(s, o, r);
	}
	return err;
}

static int
execute_fence(struct fal_shard *s, const struct shard_round *open,
	      const struct fal_shard_order *o, struct fal_shard_result *r)
{
	const struct fal_shard_report fenced = { .kind = FAL_REPORT_FENCED,
						 .round = o->round,
						 .id = o->id };
	int err = FAL_OK;
	if (open != NULL && !open->awaits_version)
		err = fal_store_fence(s->store, o->round, o->id, o->fills);
	else if (open == NULL && o->round >= s->next_round && s->fences == s->conf.tasks)
		err = FAL_ELIMIT;
	else if (open != NULL || o->round >= s->next_round) {
		FAL_XGROW(s->fence, s->fence_cap, s->fences + 1);
		s->fence[s->fences++] = (struct early_fence){ o->round, o->id, o->fills };
	}
	if (err == FAL_OK)
		add_report(s, &fenced, r);
	return err;
}

static int
execute_skip(struct fal_shard *s, struct shard_round *open,
	     const struct fal_shard_order *o, struct fal_shard_result *r)
{
	const bool was_complete = fal_store_is_complete(s->store, o->round);
	const uint32_t tasks = o->facts.tasks;
	if (open->awaits_version) {
		if (tasks > open->facts.tasks - open->skipped)
			return FAL_EINVAL;
		open->skipped += tasks;
		return FAL_OK;
	}
	int err = fal_store_skip(s->store, o->round, tasks, o->fills);
	if (!was_complete)
		report_completion(s, open, r);
	return err;
}

static int
keep_versions(struct fal_shard *s, uint32_t versions)
{
	if (versions == 0)
		return FAL_EINVAL;
	fal_store_set_retained(s->store,
			       versions < FAL_KEPT_MAX ? versions : FAL_KEPT_MAX);
	return FAL_OK;
}

/* ---- orders in sequence -------------------------------------------------------------
 */

/* Returns true if the order may end the round.  The round must be complete, and its
 * contributions must be of the kind that this end needs. */
static bool
can_end_round(const struct fal_shard *s, const struct shard_round *open,
	      const struct fal_shard_order *o)
{
	const bool grads = o->end == FAL_END_MERGE || o->end == FAL_END_BRANCH ||
			   o->end == FAL_END_FORWARD;
	if (o->end == FAL_END_DROP)
		return true;
	return fal_store_is_complete(s->store, o->round) &&
	       open->facts.kind == (grads ? FAL_KIND_GRAD : FAL_KIND_DELTA) &&
	       (o->end != FAL_END_BRANCH ||
		fal_store_has_branch(s->store, fal_branch_of(o->version)));
}

static void
report_set_unstepped(struct fal_shard_report *report,
		     const struct fal_unstepped *unstepped)
{
	report->beyond = unstepped->out_of_range;
	if (unstepped->out_of_range > 0) {
		report->id = unstepped->by.id;
		report->most = unstepped->by.exponent;
	}
	/* All gradients were in range, but some step would leave the range of finite
	 * numbers. */
	if (unstepped->nonfinite > 0)
		report->odd = "a step would make parameters that are not finite";
}

/* Uses the sum of the round as o->end says; fills in `ended`. */
static int
shard_collect_round(struct fal_shard *s, const struct fal_shard_order *o,
		    struct fal_shard_report *ended)
{
	const struct fal_store_step_branch step = { .version = o->version,
						    .lr = o->lr,
						    .divisor = o->divisor,
						    .squares = o->squares };
	struct fal_unstepped unstepped = { 0 };
	int err = FAL_OK;
	switch (o->end) {
	case FAL_END_MERGE:
		err = fal_store_merge(s->store, o->round);
		break;
	case FAL_END_ADD:
		fal_store_add_delta(s->store, o->round, o->weight, &unstepped);
		break;
	case FAL_END_BRANCH:
		unstepped = fal_store_step_branch(s->store, o->round, &step);
		break;
	case FAL_END_REWEIGHT:
		ended->rank = fal_store_reweight(s->store, o->round, o->slot, &unstepped);
		fal_store_forget_slots(s->store, 0, o->below);
		break;
	case FAL_END_FORWARD:
		err = o->into != NULL ? fal_store_forward(s->store, o->round, o->into)
				      : FAL_EINVAL;
		break;
	case FAL_END_DROP:
		break;
	}
	if (err == FAL_ELIMIT)
		ended->odd = "gradients are beyond the range of sums";
	else if (err < 0)
		return err;
	report_set_unstepped(ended, &unstepped);
	return FAL_OK;
}

static int
execute_end(struct fal_shard *s, struct shard_round *open,
	    const struct fal_shard_order *o, struct fal_shard_result *r)
{
	struct fal_shard_report ended = { .kind = FAL_REPORT_ENDED, .round = o->round };
	if (!can_end_round(s, open, o))
		return FAL_ESTATE;
	if (s->conf.checksums) {
		ended.brought =
			fal_store_list_contributions(s->store, o->round, &ended.broughts);
		ended.added = fal_store_checksum(s->store, o->round);
	}
	int err = shard_collect_round(s, o, &ended);
	fal_store_drop(s->store, o->round); /* no effect if the round is gone by now */
	memmove(open, open + 1, (size_t)(s->open + --s->opens - open) * sizeof(*open));
	if (err == FAL_OK)
		add_report(s, &ended, r);
	else
		fal_shard_report_free(&ended);
	return err;
}

struct hash_job {
	const struct fal_store *of;
	uint8_t *leaves;
};

/* Hashes the leaves of FAL_LEAF_BATCH blocks. */
static void
hash_part(void *of, uint32_t part, uint32_t thread)
{
	(void)thread;
	const struct hash_job *h = of;
	const size_t from = (size_t)part * FAL_LEAF_BATCH * FAL_BLOCK;
	const size_t left = fal_store_len(h->of) - from;
	const size_t n =
		left < FAL_LEAF_BATCH * FAL_BLOCK ? left : FAL_LEAF_BATCH * FAL_BLOCK;
	fal_leaf_hashes(fal_store_params(h->of) + from, n,
			h->leaves + (size_t)part * FAL_LEAF_BATCH * FAL_HASH_BYTES);
}

static int
execute_step(struct fal_shard *s, const struct fal_shard_order *o,
	     struct fal_shard_result *r)
{
	struct fal_shard_report stepped = { .kind = FAL_REPORT_STEPPED };
	if (o->weight > 0)
		fal_store_outer_step(s->store, o->weight, o->momentum);
	int err = keep_versions(s, o->versions);
	if (err < 0)
		return err;
	const struct fal_unstepped unstepped =
		fal_store_step(s->store,
			       &(struct fal_store_update){ .lr = o->lr,
							   .divisor = o->divisor,
							   .squares = o->squares,
							   .pusher = o->slot,
							   .part = o->part });
	report_set_unstepped(&stepped, &unstepped);
	stepped.version = fal_store_version(s->store);
	if (o->mark)
		mark_version(s, o->below);
	if (o->hash) { /* the report has the leaves and exponents of the new version */
		const uint32_t blocks = s->conf.count;
		stepped.leaves = fal_xcalloc(blocks, FAL_HASH_BYTES);
		stepped.exps = fal_xcalloc(blocks, sizeof(*stepped.exps));
		memcpy(stepped.exps, fal_store_exps(s->store), blocks);
		stepped.first = s->conf.first;
		stepped.blocks = blocks;
		struct hash_job of = { s->store, stepped.leaves };
		fal_parallel_each(s->conf.parallel,
				  (blocks + FAL_LEAF_BATCH - 1) / FAL_LEAF_BATCH,
				  hash_part, &of);
	}
	add_report(s, &stepped, r);
	return FAL_OK;
}

/* Starts an early step if the first queued orders are the merge of the round and a step
 * by that round alone. */
static void
try_early_step(struct fal_shard *s, const struct shard_round *open)
{
	const struct fal_shard_order *end = &s->queue[0].order,
				     *step = s->queued > 1 ? &s->queue[1].order : end;
	if ((s->conf.at_once != NULL && *s->conf.at_once) || open->awaits_version ||
	    end->kind != FAL_ORDER_END || end->end != FAL_END_MERGE ||
	    step->kind != FAL_ORDER_STEP || step->ahead || step->clipped ||
	    step->weight > 0 || step->part.share > 0)
		return;
	const struct fal_store_step_early how = { .round = open->round,
						  .lr = step->lr,
						  .divisor = step->divisor };
	(void)fal_store_step_early(s->store, &how);
}

static int
execute_order(struct fal_shard *s, const struct fal_shard_order *o,
	      struct fal_shard_result *r)
{
	struct shard_round *open = shard_find_round(s, o->round);
	const uint32_t branch = fal_branch_of(o->version);
	int err = FAL_OK;
	switch (o->kind) {
	case FAL_ORDER_END:
		err = open != NULL ? execute_end(s, open, o, r) : FAL_OK;
		break;
	case FAL_ORDER_BRANCH:
		if (branch == 0 || branch > FAL_IMAGE_OTHERS)
			return FAL_EINVAL;
		fal_store_set_branch(s->store, o->version);
		break;
	case FAL_ORDER_COLLECT:
		if (!fal_store_has_branch(s->store, o->branch))
			return FAL_ESTATE;
		fal_store_collect_branch(s->store, o->branch, o->weight);
		return FAL_OK;
	case FAL_ORDER_STEP:
		err = execute_step(s, o, r);
		break;
	case FAL_ORDER_RETAIN:
		return keep_versions(s, o->versions);
	case FAL_ORDER_PIN:
		return pin_version(s, o->version);
	case FAL_ORDER_SNAPSHOT:
		mark_version(s, o->below);
		return FAL_OK;
	case FAL_ORDER_FORGET:
		if (o->slot != 0) {
			fal_store_forget_slots(s->store, o->slot, o->slot + 1);
			return FAL_OK;
		}
		fal_store_forget_slots(s->store, 0, UINT64_MAX);
		fal_store_forget_branches(s->store);
		return FAL_OK;
	default:
		return FAL_EINVAL; /* an order of the shard set */
	}
	return err < 0 ? err : open_waiting_rounds(s, r);
}

/* Executes the queued orders up to the first order that must wait. */
static int
execute_queue(struct fal_shard *s, struct fal_shard_result *r)
{
	int err = FAL_OK;
	while (s->queued > 0 && err == FAL_OK) {
		struct queued_order *first = &s->queue[0];
		const struct fal_shard_order o = first->order;
		const struct shard_round *open =
			o.ahead ? shard_find_round(s, o.round) : NULL;
		if (open != NULL && !fal_store_is_complete(s->store, o.round)) {
			try_early_step(s, open);
			return FAL_OK;
		}
		if (o.clipped) {
			if (first->squares_reported)
				return FAL_OK;
			first->squares_reported = true;
			struct fal_shard_report are = { .kind = FAL_REPORT_SQUARES,
							.version = o.version,
							.first = s->conf.first,
							.blocks = s->conf.count };
			are.squares = fal_xcalloc(are.blocks, sizeof(*are.squares));
			fal_store_squares(s->store,
					  o.kind == FAL_ORDER_END ? o.round : UINT64_MAX,
					  o.divisor, are.squares);
			add_report(s, &are, r);
			return FAL_OK;
		}
		memmove(first, first + 1, --s->queued * sizeof(*first));
		err = execute_order(s, &o, r);
	}
	return err;
}

/* ---- orders ------------------------------------------------------------------------ */

int
fal_shard_order(struct fal_shard *s, const struct fal_shard_order *o,
		struct fal_shard_result *r)
{
	struct shard_round *open = shard_find_round(s, o->round);
	int err = FAL_OK;
	switch (o->kind) {
	case FAL_ORDER_OPEN:
		s->next_round = o->round + 1;
		return open != NULL ? FAL_OK : shard_add_round(s, o->round, &o->facts);
	case FAL_ORDER_FENCE:
		return execute_fence(s, open, o, r);
	case FAL_ORDER_SKIP:
		err = open != NULL ? execute_skip(s, open, o, r) : FAL_OK;
		break;
	case FAL_ORDER_SCALE: /* answers the SQUARES of the first queued order */
		if (s->queued == 0 || !s->queue[0].squares_reported)
			return FAL_OK;
		s->queue[0].order.squares = o->squares;
		s->queue[0].order.clipped = false;
		break;
	case FAL_ORDER_INSTALL:
		if (o->params == NULL)
			return FAL_EINVAL;
		if (fal_store_early_blocks(s->store, NULL) != NULL)
			return FAL_ESTATE; /* an early step makes the next version */
		err = keep_versions(s, o->versions);
		if (err == FAL_OK)
			err = fal_store_install(s->store, o->version,
						o->params +
							(size_t)s->conf.first * FAL_BLOCK,
						o->exps + s->conf.first);
		if (err == FAL_OK)
			err = open_waiting_rounds(s, r);
		break;
	default:
		FAL_XGROW(s->queue, s->queue_cap, s->queued + 1);
		if (open != NULL && o->kind == FAL_ORDER_END)
			open->end_ordered = o->ahead;
		s->queue[s->queued++] = (struct queued_order){ .order = *o };
	}
	return err < 0 ? err : execute_queue(s, r);
}

/* ---- pushes ------------------------------------------------------------------------ */

/* Adds each good record, and counts new records in `arrived`.  Returns the error of
 * the first bad record.  *any: the shard has the block of at least one record. */
static int
add_records(struct fal_shard *s, const struct fal_store_from *from, struct fal_rd r,
	    struct fal_shard_report *arrived, bool *any, struct fal_diag *diag)
{
	int err = FAL_OK;
	while (r.n > 0) {
		struct fal_bfp_rec rec;
		struct fal_diag *why = err == FAL_OK ? diag : NULL;
		int got = fal_bfp_parse(&r, s->conf.n, &rec);
		if (got < 0) {
			fal_diag_set(why, got, "a malformed block: %s",
				     fal_strerror(got));
			return err < 0 ? err : got;
		}
		if (rec.block - s->conf.first >= s->conf.count)
			continue;
		*any = true;
		got = fal_store_add(s->store, from, &rec);
		arrived->blocks += got == 1;
		/* A worker may not know of a fence yet. */
		if (got >= 0 || got == FAL_EFENCED)
			continue;
		fal_diag_set(why, got, "block %u: %s", rec.block, fal_strerror(got));
		err = err == FAL_OK ? got : err;
	}
	return err;
}

int
fal_shard_push(struct fal_shard *s, const struct fal_ticket *t,
	       const struct fal_tail *records, struct fal_shard_result *r,
	       struct fal_diag *diag)
{
	struct fal_shard_report arrived = { .kind = FAL_REPORT_ARRIVED,
					    .round = t->round,
					    .id = t->id };
	const struct fal_store_from from = {
		.round = t->round, .id = t->id, .fills = t->fills, .tasks = t->tasks
	};
	const struct shard_round *open = shard_find_round(s, t->round);
	if (open == NULL && t->round < s->next_round)
		return FAL_OK; /* the round is over */
	/* No honest worker can have computed on a version that is not made yet, because
	 * workers get its blocks from this shard. */
	if (open != NULL ? open->awaits_version : lacks_version(s, &t->facts))
		return fal_diag_set(diag, FAL_ESTATE,
				    "pushes what nobody can have computed yet");
	/* The ticket opens the round if OPEN has not come. */
	int err = open != NULL ? FAL_OK : shard_add_round(s, t->round, &t->facts);
	if (err < 0)
		return err;
	const bool was_complete = fal_store_is_complete(s->store, t->round);
	const bool was_whole = fal_store_is_whole(s->store, t->round, t->id);
	bool any = false;
	err = add_records(s, &from, fal_rd_init(records->p, records->n), &arrived, &any,
			  diag);
	fal_store_step_ready(s->store);
	if (!any)
		return err;
	/* The good records count although one record is bad, so the coordinator must
	 * get their report. */
	arrived.whole = !was_whole && fal_store_is_whole(s->store, t->round, t->id);
	add_report(s, &arrived, r);
	if (was_complete || !fal_store_is_complete(s->store, t->round))
		return err;
	report_completion(s, shard_find_round(s, t->round), r);
	const int next = execute_queue(s, r);
	return err < 0 ? err : next;
}

uint64_t
fal_shard_version(const struct fal_shard *s)
{
	return fal_store_version(s->store);
}

bool
fal_shard_find_version(const struct fal_shard *s, uint64_t version, const float **params,
		       const int8_t **exps)
{
	if (fal_store_find_version(s->store, version, params, exps))
		return true;
	if (!s->pinned.exists || version != s->pinned.version)
		return false;
	*params = s->pinned.params;
	*exps = s->pinned.exps;
	return true;
}

bool
fal_shard_making(const struct fal_shard *s, struct fal_shard_making *out)
{
	uint32_t n;
	const uint8_t *made = fal_store_early_blocks(s->store, &n);
	if (made == NULL)
		return false;
	*out = (struct fal_shard_making){ .version = fal_store_version(s->store) + 1,
					  .params = fal_store_params(s->store),
					  .exps = fal_store_exps(s->store),
					  .made = made,
					  .n = n };
	return true;
}

const float *
fal_shard_average(const struct fal_shard *s)
{
	return fal_store_average(s->store);
}
