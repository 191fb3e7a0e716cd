/* bench_sched: what one event costs the scheduler, in microseconds, and what planning a
 * clock costs, in seconds, for 100, 1,000 and 10,000 simulated workers.  They have one
 * lane each and speeds spread over a factor of 8; a clock has 4 tasks for each worker.
 * Everything but the measured calls is virtual.
 *
 * epsp and bsp have one round for all in a clock; in ssp every worker has rounds of its
 * own.
 *
 *	bench_sched [SCHEME [WORKERS]]
 *
 * runs only this one, so that its instructions can be counted (valgrind). */
#include "base/mem.h"
#include "base/rng.h"
#include "sched/heap.h"
#include "sched/sched.h"

#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TASKS_PER_WORKER = 4 };

/* One lane: it runs q[0]. */
struct worker {
	double task_s, began;
	uint32_t *q;
	size_t n, cap;
	uint64_t round; /* of these tasks */
	uint32_t seq;
	bool claimed; /* a task, in this round */
};

struct cluster {
	struct fal_sched *sched;
	struct fal_rng rng;
	struct worker *worker;
	struct fal_heap over; /* when each one's running task is over */
	uint32_t workers;
	uint64_t round; /* that was opened last */
	double now;     /* virtual */
	double cost;    /* seconds in claims, ticks and ends of workers' rounds */
	double planning;
	uint64_t events;
};

static void
must(int err, const char *what)
{
	if (err < 0) {
		fprintf(stderr, "bench_sched: %s: %s\n", what, fal_strerror(err));
		exit(1);
	}
}

/* The worker has pushed what it did of the round, and, if that is its own, all of it. */
static void
push(struct cluster *c, uint32_t i)
{
	struct worker *w = &c->worker[i];
	struct fal_round_info r;
	fal_sched_note_blocks(c->sched, c->now, w->round,
			      (struct fal_contrib_id){ i + 1, w->seq }, 1, true);
	w->seq++;
	w->claimed = false;
	if (!fal_sched_round(c->sched, w->round, &r) || r.owner == 0)
		return;
	double t = now();
	fal_sched_note_complete(c->sched, c->now, w->round);
	c->cost += now() - t;
	c->events++;
}

/* The next task of the queue begins; an idle worker has pushed all. */
static void
begin(struct cluster *c, uint32_t i)
{
	struct worker *w = &c->worker[i];
	w->began = c->now;
	if (w->n > 0) {
		double noise = 0.9 + 0.2 * (double)fal_rng_unit(&c->rng);
		fal_heap_set(&c->over, i, c->now + w->task_s * noise);
		return;
	}
	fal_heap_remove(&c->over, i);
	if (w->claimed)
		push(c, i);
}

static void
grant(struct cluster *c, uint32_t i, const struct fal_act *a)
{
	struct worker *w = &c->worker[i];
	bool idle = w->n == 0;
	must(FAL_GROW(w->q, w->cap, w->n + a->count), "queue");
	for (uint32_t t = 0; t < a->count; t++)
		w->q[w->n++] = a->first + t;
	w->round = a->round;
	if (idle)
		begin(c, i);
}

static void
revoke(struct cluster *c, uint32_t i, uint32_t first, uint32_t count)
{
	struct worker *w = &c->worker[i];
	uint32_t running = w->n > 0 ? w->q[0] : FAL_NONE;
	size_t kept = 0;
	for (size_t t = 0; t < w->n; t++)
		if (w->q[t] < first || w->q[t] - first >= count)
			w->q[kept++] = w->q[t];
	w->n = kept;
	if (running != FAL_NONE && (kept == 0 || w->q[0] != running))
		begin(c, i);
}

static void
act(struct cluster *c)
{
	struct fal_act a;
	while (fal_sched_next_action(c->sched, &a)) {
		if (a.kind == FAL_ACT_OPEN)
			c->round = a.round;
		else if (a.kind == FAL_ACT_GRANT)
			grant(c, a.worker - 1, &a);
		else if (a.kind == FAL_ACT_REVOKE)
			revoke(c, a.worker - 1, a.first, a.count);
		else if (a.kind == FAL_ACT_STEP)
			fal_sched_note_published(c->sched, c->now, a.version);
		else if (a.kind == FAL_ACT_FENCE)
			fal_sched_note_fenced(c->sched, c->now, a.round, a.cid);
	}
	fal_sched_forget(c->sched);
}

/* The next thing that happens: a tick, or a task that is over. */
static void
step(struct cluster *c)
{
	double over = fal_heap_min_key(&c->over), wake = fal_sched_next_tick(c->sched);
	if (isinf(over) || wake < over) {
		if (wake == INFINITY)
			must(FAL_ESTATE, "nothing is going to happen");
		c->now = fmax(c->now, wake);
		double t = now();
		fal_sched_tick(c->sched, c->now);
		c->cost += now() - t;
	} else {
		uint32_t i = fal_heap_top(&c->over);
		struct worker *w = &c->worker[i];
		c->now = over;
		struct fal_claim_report in = { .worker = i + 1,
					       .round = w->round,
					       .task = w->q[0],
					       .seq = w->seq,
					       .task_s = c->now - w->began };
		memmove(w->q, w->q + 1, --w->n * sizeof(*w->q));
		double t = now();
		int won = fal_sched_claim(c->sched, c->now, &in);
		c->cost += now() - t;
		must(won, "claim");
		w->claimed = w->claimed || won == 1;
		begin(c, i);
	}
	c->events++;
	act(c);
}

/* A clock of one round for all. */
static void
run_clock(struct cluster *c, uint64_t clock, uint32_t tasks)
{
	struct fal_round_info r = { 0 };
	double t = now();
	fal_sched_set_clock_limit(c->sched, c->now, clock + 1);
	c->planning += now() - t;
	act(c);
	must(fal_sched_round(c->sched, c->round, &r) ? 0 : FAL_ESTATE, "round");
	while (r.ledger->claimed < tasks)
		step(c);
	fal_sched_note_complete(c->sched, c->now, c->round);
	act(c);
	for (uint32_t i = 0; i < c->workers; i++) {
		c->worker[i].n = 0;
		c->worker[i].claimed = false;
		c->worker[i].seq++;
		fal_heap_remove(&c->over, i);
	}
}

/* All of the job, in workers' own rounds. */
static void
run_own(struct cluster *c, uint64_t clocks)
{
	fal_sched_set_clock_limit(c->sched, c->now, clocks);
	act(c);
	while (!fal_sched_is_done(c->sched))
		step(c);
}

static void
begin_cluster(struct cluster *c, const struct fal_sched_conf *conf)
{
	c->rng = fal_rng_init(c->workers, FAL_RNG_TEST, 0);
	c->worker = fal_calloc(c->workers, sizeof(*c->worker));
	must(c->worker != NULL ? FAL_OK : FAL_ENOMEM, "new");
	c->sched = fal_sched_new(conf);
	fal_heap_reserve(&c->over, c->workers);
	for (uint32_t i = 0; i < c->workers; i++) {
		struct fal_join j = { .id = i + 1,
				      .lanes_min = 1,
				      .lanes_max = 1,
				      .cores = 1,
				      .rtt = 1e-4 };
		j.task_s = 0.01 * pow(8, (double)fal_rng_unit(&c->rng));
		c->worker[i].task_s = j.task_s;
		c->worker[i].seq = 1;
		must(fal_sched_join(c->sched, 0, &j), "join");
	}
	act(c);
}

static void
end_cluster(struct cluster *c)
{
	for (uint32_t i = 0; i < c->workers; i++)
		free(c->worker[i].q);
	free(c->worker);
	fal_heap_free(&c->over);
	fal_sched_free(c->sched);
}

/* Does the scheme have one round for all in a clock? */
static bool
has_clocks(enum fal_scheme_id scheme)
{
	return scheme == FAL_EPSP || scheme == FAL_BSP;
}

static void
say(const struct cluster *c, const char *name, bool clocks, uint32_t n, uint32_t tasks)
{
	double rate = 0;
	for (uint32_t i = 0; i < c->workers; i++)
		rate += 1 / c->worker[i].task_s;
	figure(c->cost / (double)c->events * 1e6, "us", "%s.%u.event", name, c->workers);
	if (!clocks)
		return;
	figure(c->planning / n, "s", "%s.%u.planning", name, c->workers);
	figure(c->now / n / (tasks / rate), "of-ideal", "%s.%u.clock", name, c->workers);
}

/* Returns the seconds of an event. */
static double
bench(const struct fal_rule *rule, const char *name, uint32_t workers)
{
	struct fal_policy policy = { .rule = *rule };
	struct cluster c = { .workers = workers };
	uint32_t tasks = TASKS_PER_WORKER * workers;
	uint32_t clocks = 3 + 40000 / tasks;
	struct fal_sched_conf conf = { .policy = &policy,
				       .grid = { .samples = clocks * tasks,
						 .batch = tasks,
						 .task = 1,
						 .epochs = 1 } };
	begin_cluster(&c, &conf);
	if (has_clocks(rule->scheme))
		for (uint32_t k = 0; k < clocks; k++)
			run_clock(&c, k, tasks);
	else
		run_own(&c, clocks);
	say(&c, name, has_clocks(rule->scheme), clocks, tasks);
	end_cluster(&c);
	return c.cost / (double)c.events;
}

int
main(int argc, char **argv)
{
	static const struct {
		struct fal_rule rule;
		const char *name;
	} all[] = { { { .scheme = FAL_EPSP }, "sched" },
		    { { .scheme = FAL_BSP }, "sched.bsp" },
		    { { .scheme = FAL_SSP, .slack = 3 }, "sched.ssp" } };
	static const uint32_t sizes[] = { 100, 1000, 10000 };
	const char *only = argc > 1 ? argv[1] : NULL;
	const uint32_t workers = argc > 2 ? (uint32_t)atoi(argv[2]) : 0;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		double each[3] = { 0 };
		if (only != NULL && strcmp(only, all[i].name) != 0)
			continue;
		if (workers > 0) {
			bench(&all[i].rule, all[i].name, workers);
			continue;
		}
		for (size_t k = 0; k < 3; k++)
			each[k] = bench(&all[i].rule, all[i].name, sizes[k]);
		figure(each[2] / each[0], "ratio", "%s.event.10000-to-100", all[i].name);
	}
	return 0;
}
