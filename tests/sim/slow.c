/* How soon blocks leave a shard whose line gets slow: coordinator, agents, shards and
 * psld together, where a clock takes what the slowest line does. */
#include "slow.h"

#include "base/quantile.h"
#include "base/rng.h"
#include "cluster.h"
#include "reference.h"
#include "server/psld.h"
#include "trace/reader.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 16, CLOCKS = 60, FOUND = 5, WON = 10 };

/* As the trace has it. */
struct course {
	double at[CLOCKS + 1];    /* when version v was made */
	double moved[CLOCKS * 2]; /* when blocks moved */
	uint32_t versions, moves;
};

/* In how many clocks since its line got slow: blocks had moved, a tenth was left to be
 * won. */
struct result {
	uint32_t found, won;
};

static double
between(struct fal_rng *r, double low, double high)
{
	return low + (high - low) * (double)fal_rng_unit(r);
}

static struct plan
draw(struct fal_rng *r, uint64_t seed)
{
	struct plan p = { .toy = { .seed = seed,
				   .n = (size_t)(20 + fal_rng_below(r, 16)) * FAL_BLOCK,
				   .epochs = CLOCKS,
				   .optim = { .kind = FAL_SGD },
				   .lr = 0.01f },
			  /* Else others do a task whose worker still waits for its
			   * version, which goes on to take up a line here. */
			  .scheme = "bsp",
			  .hashes = 1000,
			  .shards = 2 + fal_rng_below(r, 3),
			  .parts = 1,
			  .machines = 2 + fal_rng_below(r, 3),
			  .psld = true,
			  .apart = true,
			  .calm = true,
			  .entropy = seed };
	p.most = p.shards;
	p.piece = 64;
	p.toy.task = 1 + fal_rng_below(r, 3);
	p.toy.batch = p.toy.samples = p.toy.task * p.machines;
	p.min_workers = p.machines;
	p.slow = fal_rng_below(r, p.shards);
	p.slower = between(r, 2.5, 8);
	/* What a clock takes beside: a tenth of it. */
	const double line = between(r, 5e-8, 5e-7),
		     clock = line * (double)p.toy.n * 4 * p.machines / p.shards;
	p.slow_at = between(r, 20, 30) * 1.15 * clock;
	for (uint32_t i = 0; i < p.shards; i++) {
		p.line[i] = line;
		p.place[i] = (struct place){ .latency = between(r, 1e-5, 1e-3) * clock,
					     .stall_at = INFINITY,
					     .lost_at = INFINITY,
					     .dies_at = INFINITY };
		for (uint32_t w = 0; w < p.machines; w++)
			p.way[w][i] = between(r, 1e-5, 1e-3) * clock;
	}
	for (uint32_t i = 0; i < p.machines; i++)
		p.machine[i] = (struct machine){ .task_s = between(r, 0.03, 0.06) * clock,
						 .jitter = between(r, 0, 0.1),
						 .lanes_min = 1,
						 .lanes_max = 1,
						 .cores = 1,
						 .latency = 1e-4 * clock,
						 .per_byte = 1e-12,
						 .window = 2,
						 .crash_at = INFINITY,
						 .leave_at = INFINITY,
						 .stall_at = INFINITY,
						 .hang_at = INFINITY,
						 .cut_at = INFINITY };
	return p;
}

static int
on_line(void *arg, struct fal_trace_line *l)
{
	struct course *c = arg;
	if (strcmp(l->ev, "update") == 0 && c->versions < CLOCKS)
		c->at[++c->versions] = l->t;
	else if (strcmp(l->ev, "place") == 0 && l->t > 0 && c->moves < 2 * CLOCKS)
		c->moved[c->moves++] = l->t;
	return FAL_OK;
}

static bool
has_moved(const struct course *c, double from, double to)
{
	uint32_t i = 0;
	while (i < c->moves && (c->moved[i] <= from || c->moved[i] > to))
		i++;
	return i < c->moves;
}

/* Seconds that the slowest line takes for its blocks, and at best. */
static double
lines(const struct plan *p, bool slow, bool best)
{
	double cost[MAX_SHARDS], t = 0;
	uint32_t to[MAX_SHARDS], all = (uint32_t)(p->toy.n / FAL_BLOCK);
	const double block = FAL_BLOCK * 4.0 * p->machines;
	for (uint32_t i = 0; i < p->shards; i++) {
		const uint32_t has = all * (i + 1) / p->shards - all * i / p->shards;
		cost[i] = p->line[i] * block * (slow && i == p->slow ? p->slower : 1);
		t = fmax(t, has * cost[i]);
	}
	return best ? fal_psld_level(cost, NULL, p->shards, all, to) : t;
}

static void
judge(const struct plan *p, const struct course *c, struct result *is)
{
	uint32_t from = 1, n = 0;
	double even[CLOCKS];
	while (from < c->versions && c->at[from] < p->slow_at)
		from++;
	for (uint32_t v = 2; v < from; v++)
		if (!has_moved(c, c->at[v - 1], c->at[v]))
			even[n++] = c->at[v] - c->at[v - 1];
	*is = (struct result){ UINT32_MAX, UINT32_MAX };
	if (n == 0)
		return;
	const double beside = fal_quantile(even, n, 0.5) - lines(p, false, false);
	const double was = beside + lines(p, true, false),
		     best = beside + lines(p, true, true);
	for (uint32_t v = from + 1; v <= c->versions; v++) {
		const bool moves = has_moved(c, c->at[v - 1], c->at[v]);
		const double clock = c->at[v] - c->at[v - 1];
		if (moves && is->found == UINT32_MAX)
			is->found = v - from;
		if (is->found < v - from && clock - best <= 0.1 * (was - best) &&
		    is->won == UINT32_MAX)
			is->won = v - from;
	}
}

/* Is the model that of the plain loop? */
static bool
is_lawful(const struct plan *p, const struct outcome *o)
{
	const size_t size = p->toy.n * sizeof(float);
	float *want = malloc(size);
	bool is = want != NULL && o->params != NULL;
	if (is) {
		toy_reference(&p->toy, &(struct fal_rule){ 0 }, want);
		is = memcmp(want, o->params, size) == 0;
	}
	free(want);
	return is;
}

/* Plays one; false: what should follow does not. */
static bool
play(uint64_t seed, struct result *is)
{
	struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 26);
	struct plan p = draw(&r, seed);
	struct outcome o = cluster_run(&p, seed);
	struct course c = { .versions = 0 };
	struct fal_diag diag = { "" };
	struct fal_trace_reader *reader = fal_trace_reader_new(on_line, &c);
	int err = reference_read(reader, o.trace, o.trace_n, &diag);
	fal_trace_reader_free(reader);
	judge(&p, &c, is);
	const bool good = o.failure == NULL && err == FAL_OK && is_lawful(&p, &o) &&
			  is->found <= FOUND && is->won <= FOUND + WON;
	if (!good)
		printf("# seed %llu: a slow line: %s%s shard %u of %u takes %.1f times "
		       "as long (moved in clock %d, done in clock %d)\n",
		       (unsigned long long)seed, o.failure != NULL ? o.failure : "",
		       diag.text, p.slow + 1, p.shards, p.slower, (int)is->found,
		       (int)is->won);
	if (!good && getenv("SIM_TRACE") != NULL)
		fwrite(o.trace, 1, o.trace_n, stderr);
	free(o.params);
	free(o.trace);
	return good;
}

bool
slow_table(void)
{
	struct result most = { 0 };
	bool good = true;
	for (uint64_t seed = 0; seed < RUNS; seed++) {
		struct result is;
		good = play(seed, &is) && good;
		most.found = is.found > most.found ? is.found : most.found;
		most.won = is.won > most.won ? is.won : most.won;
	}
	printf("# %d lines get slow: blocks have left within %d clocks, and 90 %% of the "
	       "gain is won within %d\n",
	       RUNS, (int)most.found, (int)most.won);
	return good;
}
