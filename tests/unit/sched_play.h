/* Plays workers to lib/sched alone, in virtual time: grants → claims after the tasks'
 * times → arrivals → complete rounds.  No store and no wire; one lane a worker.
 *
 * A worker waits for a version that it is sent, pushes what it did of a round when it
 * holds no more of it, and forgets what is revoked. */
#ifndef FAL_TESTS_SCHED_PLAY_H
#define FAL_TESTS_SCHED_PLAY_H

#include "sched/bound.h"
#include "sched/scheme.h"
#include "sched/state.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum {
	PLAY_WORKERS = 48,
	PLAY_QUEUE = 512,
	PLAY_ACTS = FAL_ACT_STOP + 1,
	PLAY_DROPS = 200,
	PLAY_MAKES = 256 /* versions that are made at once */
};

struct play_item {
	uint64_t round;
	uint32_t task;
	struct fal_contrib_id fills;
	double from, began; /* not before; began < 0: not yet */
	double ends;
	bool check; /* as a witness */
};

/* What the worker does, or did, of a round; seq 0: a free place. */
struct play_part {
	uint64_t round;
	struct fal_contrib_id fills;
	uint32_t seq;
	double arrives; /* INFINITY: not pushed yet */
	uint32_t left;  /* blocks, but the last one */
};

struct play_worker {
	uint32_t id;      /* 0: not here */
	double slow;      /* a task takes so many times task_s */
	enum play_fault { /* answers PING, but */
			  PLAY_WELL,
			  PLAY_HANGS,  /* its lanes stand still */
			  PLAY_DENIES, /* nothing that it computes is finite */
			  PLAY_KEEPS,  /* it pushes nothing, */
			  PLAY_SECOND, /* … or every second contribution, */
			  PLAY_DRIPS   /* … or a block each 0.15 s */
	} fault;
	double held_up; /* begins no task before */
	double ready;   /* has the version that it was sent */
	struct play_item q[PLAY_QUEUE];
	uint32_t n, seq;
	struct play_part part[32];
};

static struct play {
	struct fal_sched *s;
	double now, task_s, link_s; /* task_s: of a full task; link_s: one way */
	double push_s;              /* what a push takes beside link_s */
	double make_s;              /* step → all shards have made the version */
	uint64_t ordered, made;     /* versions; made: so far */
	double made_at[PLAY_MAKES]; /* by version */
	double fixed;               /* the part of task_s that any task takes */
	int64_t loss;               /* of each task */
	struct play_worker worker[PLAY_WORKERS + 1]; /* by id */
	uint32_t last_id;
	/* A further factor on the tasks of worker `id` in its clock; NULL: 1. */
	double (*slower)(uint32_t id, uint64_t clock);
	void (*on_act)(const struct fal_act *a); /* sees each action; NULL: nobody */
	/* A round is complete: true: the test has seen to it.  NULL: it goes on. */
	bool (*on_complete)(uint64_t round);
	uint64_t acts[PLAY_ACTS];
	uint64_t tasks[FAL_FATE_RETRY + 1]; /* of ended rounds, by fate */
	double busy;                        /* seconds of finished tasks */
} play;

/* Whole numbers of any type. */
#define play_check(got, want, what) play_same((int64_t)(got), (int64_t)(want), (what))

static inline void
play_same(int64_t got, int64_t want, const char *what)
{
	if (got != want)
		fail_msg("%s: got %lld, want %lld", what, (long long)got,
			 (long long)want);
}

static inline void
play_near(double got, double want, double tol, const char *what)
{
	if (!(fabs(got - want) <= tol))
		fail_msg("%s: got %.9g, want %.9g within %g", what, got, want, tol);
}

static inline void
play_at_least(double got, double want, const char *what)
{
	if (!(got >= want))
		fail_msg("%s: got %.9g, want at least %.9g", what, got, want);
}

static inline struct fal_worker *
play_its(uint32_t id)
{
	struct fal_worker *w = fal_worker_find(play.s, id);
	if (w == NULL)
		fail_msg("worker %u is not here", id);
	return w;
}

static inline struct fal_round_info
play_round(uint64_t round)
{
	struct fal_round_info r;
	if (!fal_sched_round(play.s, round, &r))
		fail_msg("round %llu is not known", (unsigned long long)round);
	return r;
}

static inline void
play_drop(struct play_worker *w, const struct play_item *of, uint32_t count)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < w->n; i++)
		if (w->q[i].round != of->round || w->q[i].check != of->check ||
		    w->q[i].task - of->task >= count)
			w->q[kept++] = w->q[i];
	w->n = kept;
}

static inline void
play_forget(struct play_worker *w, uint64_t round, uint32_t first, uint32_t count)
{
	const struct play_item of = { .round = round, .task = first };
	play_drop(w, &of, count);
}

static inline void
play_grant(struct play_worker *w, const struct fal_act *a)
{
	for (uint32_t i = 0; i < a->count; i++) {
		uint32_t at = w->n++;
		play_at_least(PLAY_QUEUE, w->n, "room in a queue");
		for (; at > 0 && w->q[at - 1].round > a->round && w->q[at - 1].began < 0;
		     at--)
			w->q[at] = w->q[at - 1];
		w->q[at] = (struct play_item){ .round = a->round,
					       .task = a->first + i,
					       .fills = a->fills,
					       .from = w->ready,
					       .began = -1,
					       .check = a->kind == FAL_ACT_CHECK };
	}
}

/* When the version that was ordered last is there. */
static inline double
play_newest_at(void)
{
	return play.made_at[play.ordered % PLAY_MAKES];
}

/* When the next version is; INFINITY: none is to be made. */
static inline double
play_makes(void)
{
	return play.made < play.ordered ? play.made_at[(play.made + 1) % PLAY_MAKES]
					: INFINITY;
}

static inline void
play_made(void)
{
	fal_sched_note_published(play.s, play.now, ++play.made);
}

static inline void
play_order(uint64_t version)
{
	play_at_least(PLAY_MAKES, (double)(version - play.made), "versions to make");
	play.ordered = version;
	play.made_at[version % PLAY_MAKES] = play.now + play.make_s;
	if (play.make_s <= 0)
		play_made();
}

static inline void
play_follow(const struct fal_act *a)
{
	struct play_worker *w = a->worker != 0 ? &play.worker[a->worker] : NULL;
	play.acts[a->kind]++;
	if (play.on_act != NULL)
		play.on_act(a);
	if (a->kind == FAL_ACT_END)
		play.tasks[a->fate] += play_round(a->round).tasks;
	if (a->kind == FAL_ACT_GRANT || a->kind == FAL_ACT_CHECK)
		play_grant(w, a);
	if (a->kind == FAL_ACT_UNCHECK) {
		const struct play_item of = { .round = a->round,
					      .task = a->first,
					      .check = true };
		play_drop(w, &of, a->count);
	}
	if (a->kind == FAL_ACT_REVOKE)
		play_forget(w, a->round, a->first, a->count);
	for (uint32_t id = 1; id <= PLAY_WORKERS && a->kind == FAL_ACT_MODEL; id++)
		if (w == NULL || w->id == id)
			play.worker[id].ready =
				fmax(play.now, play_newest_at()) + play.link_s;
	if (a->kind == FAL_ACT_STEP)
		play_order(a->version);
	if (a->kind == FAL_ACT_FENCE) {
		for (uint32_t i = 0; i < 32; i++)
			if (w->part[i].seq == a->cid.seq)
				w->part[i].seq = 0;
		fal_sched_note_fenced(play.s, play.now, a->round, a->cid);
	}
	if (a->kind == FAL_ACT_PING && w->id != 0)
		fal_sched_note_pong(play.s, play.now, w->id, 0,
				    w->fault == PLAY_HANGS ? 0
							   : (uint64_t)(play.now * 1e6));
}

/* What a task takes, in full ones. */
static inline double
play_size(uint64_t round, uint32_t task)
{
	const struct fal_grid *g = &play.s->grid;
	uint32_t samples = fal_grid_range_samples(g, play_round(round).clock, task, 1);
	return fal_bound_task_size(play.fixed,
				   (double)samples / fal_grid_full_samples(g));
}

/* A lane that is free begins with what stands first and can begin. */
static inline void
play_lanes(void)
{
	for (uint32_t id = 1; id <= PLAY_WORKERS; id++) {
		struct play_worker *w = &play.worker[id];
		struct play_item *i = &w->q[0];
		if (w->id == 0 || w->n == 0 || i->began >= 0 || w->fault == PLAY_HANGS)
			continue;
		double factor = w->slow;
		if (play.slower != NULL)
			factor *= play.slower(id, play_its(id)->team->clock);
		i->began = fmax(fmax(play.now, i->from), w->held_up);
		i->ends = i->began + play.task_s * factor * play_size(i->round, i->task);
	}
}

static inline void
play_follow_all(void)
{
	struct fal_act a;
	while (fal_sched_next_action(play.s, &a))
		play_follow(&a);
	fal_sched_forget(play.s);
	play_lanes();
}

static inline void
play_begin(const char *rule, const struct fal_grid *grid)
{
	struct fal_diag diag = { 0 };
	struct fal_policy policy = { 0 };
	struct fal_sched_conf conf = { .policy = &policy, .grid = *grid };
	play = (struct play){ .task_s = 5e-3, .link_s = 2e-3 };
	if (fal_rule_parse(rule, &policy.rule, &diag) < 0)
		fail_msg("%s: %s", rule, diag.text);
	play.s = fal_sched_new(&conf);
}

/* key: whose; 0: its own. */
static inline void
play_join_as(double slow, uint32_t key)
{
	uint32_t id = ++play.last_id;
	struct fal_join j = {
		.id = id, .key = key, .lanes_min = 1, .lanes_max = 1, .cores = 1
	};
	play.worker[id].id = id;
	play.worker[id].slow = slow;
	play_check(fal_sched_join(play.s, play.now, &j), 0, "join");
	play_follow_all();
}

static inline void
play_join(double slow)
{
	play_join_as(slow, 0);
}

static inline void
play_leave(uint32_t id)
{
	memset(&play.worker[id], 0, sizeof(play.worker[id]));
	fal_sched_leave(play.s, play.now, id);
	play_follow_all();
}

/* The worker's part of the round, or a free place for it. */
static inline struct play_part *
play_part(struct play_worker *w, uint64_t round, struct fal_contrib_id fills)
{
	struct play_part *place = NULL;
	for (uint32_t i = 0; i < 32; i++) {
		struct play_part *p = &w->part[i];
		if (p->seq == 0)
			place = p;
		else if (p->round == round && fal_contrib_id_equal(p->fills, fills) &&
			 isinf(p->arrives))
			return p;
	}
	assert_non_null(place);
	*place = (struct play_part){ round, fills, 0, INFINITY, 0 };
	return place;
}

/* What the worker holds no more of is pushed. */
static inline void
play_push(struct play_worker *w)
{
	for (uint32_t i = 0; i < 32; i++) {
		struct play_part *p = &w->part[i];
		bool more = p->seq == 0 || !isinf(p->arrives);
		for (uint32_t k = 0; k < w->n && !more; k++)
			more = w->q[k].round == p->round && !w->q[k].check;
		const bool keeps = w->fault == PLAY_KEEPS ||
				   (w->fault == PLAY_SECOND && p->seq % 2 == 0);
		if (more || keeps)
			continue;
		p->arrives = play.now + play.link_s + play.push_s;
		p->left = w->fault == PLAY_DRIPS ? PLAY_DROPS : 0;
	}
}

static inline void
play_checked(struct play_worker *w)
{
	const struct play_item i = w->q[0];
	play_drop(w, &i, 1);
	fal_sched_note_message(play.s, play.now, w->id);
	play_follow_all();
}

static inline void
play_claim(struct play_worker *w)
{
	struct play_item i = w->q[0];
	struct play_part *p = play_part(w, i.round, i.fills);
	const bool denies = w->fault == PLAY_DENIES;
	struct fal_claim_report c = { .worker = w->id,
				      .round = i.round,
				      .task = i.task,
				      .seq = p->seq != 0 ? p->seq : w->seq + 1,
				      .fills = i.fills,
				      .task_s = i.ends - i.began,
				      .loss = play.loss,
				      .nonfinite = denies };
	play_forget(w, i.round, i.task, 1);
	play.busy += c.task_s;
	fal_sched_note_message(play.s, play.now, w->id);
	int won = fal_sched_claim(play.s, play.now, &c);
	play_at_least(won, 0, "claim");
	if (won > 0 && p->seq == 0)
		p->seq = ++w->seq;
	play_follow_all();
}

static inline void
play_arrive(struct play_worker *w, struct play_part *p)
{
	struct fal_contrib_id cid = { w->id, p->seq };
	struct fal_round_info r;
	if (p->left > 0) {
		p->left--;
		p->arrives = play.now + 0.15;
		fal_sched_note_blocks(play.s, play.now, p->round, cid, 1, false);
		play_follow_all();
		return;
	}
	p->seq = 0;
	fal_sched_note_blocks(play.s, play.now, p->round, cid, 1, true);
	if (!fal_sched_round(play.s, p->round, &r))
		return;
	bool complete = r.ledger->claimed == r.tasks;
	for (uint32_t i = 0; i < r.ledger->contribs; i++)
		complete &= r.ledger->contrib[i].state != FAL_CONTRIB_OPEN;
	if (complete && (play.on_complete == NULL || !play.on_complete(p->round)))
		fal_sched_note_complete(play.s, play.now, p->round);
	play_follow_all();
}

/* The next event; false: nothing more happens, or not before `until`. */
static inline bool
play_step(double until)
{
	struct play_worker *who = NULL;
	struct play_part *part = NULL;
	double next = fal_sched_next_tick(play.s);
	for (uint32_t id = 1; id <= PLAY_WORKERS; id++) {
		struct play_worker *w = &play.worker[id];
		play_push(w);
		if (w->n > 0 && w->q[0].began >= 0 && w->q[0].ends < next) {
			who = w;
			part = NULL;
			next = w->q[0].ends;
		}
		for (uint32_t i = 0; i < 32; i++)
			if (w->part[i].seq != 0 && w->part[i].arrives < next) {
				who = w;
				part = &w->part[i];
				next = part->arrives;
			}
	}
	const bool makes = play_makes() < next;
	next = fmin(next, play_makes());
	if (isinf(next) || next > until)
		return false;
	play.now = fmax(play.now, next);
	if (makes)
		play_made();
	else if (part != NULL)
		play_arrive(who, part);
	else if (who != NULL && who->q[0].check)
		play_checked(who);
	else if (who != NULL)
		play_claim(who);
	else
		fal_sched_tick(play.s, play.now);
	play_follow_all();
	return true;
}

/* Clocks before `clocks` may begin; time goes on until all is over, or to `until`. */
static inline void
play_run(uint64_t clocks, double until)
{
	fal_sched_set_clock_limit(play.s, play.now, clocks);
	play_follow_all();
	while (!(fal_sched_is_quiet(play.s) && fal_sched_next_clock(play.s) >= clocks) &&
	       play_step(until))
		;
}

/* Begins with a job of `clocks` clocks of `tasks` tasks, one sample each. */
static inline void
play_job(const char *rule, uint32_t clocks, uint32_t tasks)
{
	const struct fal_grid grid = {
		.samples = clocks * tasks, .batch = tasks, .task = 1, .epochs = 1
	};
	play_begin(rule, &grid);
}

static inline int
play_end(void **state)
{
	(void)state;
	fal_sched_free(play.s);
	play.s = NULL;
	return 0;
}

#endif
