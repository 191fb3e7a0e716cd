/* See agree.h. */
#include "agree.h"

#include "../told.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cluster.h"
#include "reference.h"
#include "trace/reader.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS = 4, MEMBERS = 4 };

struct pair {
	struct plan one, two, group[GROUPS];
	char scheme[96];
	uint32_t groups, members; /* of each */
};

static struct machine
machine(double task_s)
{
	return (struct machine){ .task_s = task_s,
				 .lanes_min = 1,
				 .lanes_max = 1,
				 .cores = 1,
				 .latency = 1e-9,
				 .window = 4,
				 .crash_at = INFINITY,
				 .leave_at = INFINITY,
				 .stall_at = INFINITY,
				 .hang_at = INFINITY,
				 .cut_at = INFINITY };
}

static struct plan
plan(const struct toy *t, const char *scheme, uint32_t machines)
{
	return (struct plan){ .toy = *t,
			      .scheme = scheme,
			      .levels = true,
			      .calm = true,
			      .probes = true,
			      .shards = 1,
			      .most = 1,
			      .hashes = 1,
			      .parts = 1,
			      .keep = 1,
			      .machines = machines,
			      .min_workers = machines };
}

/* Each group has as many members, and each of them as many tasks of a round. */
static void
draw(struct pair *p, uint64_t seed)
{
	static const char *const modes[] = { "", ",mode=delta", ",mode=delta,rounds=2",
					     ",mode=delta,rounds=3,quorum=2,grace=0.001",
					     ",quorum=2" };
	struct fal_rng rng = fal_rng_init(seed, FAL_RNG_TEST, 33), *r = &rng;
	p->groups = 2 + fal_rng_below(r, GROUPS - 1);
	p->members = 1 + fal_rng_below(r, MEMBERS);
	struct toy t = { .seed = seed, .lr = 0.01f };
	t.n = 1 + fal_rng_below(r, 3 * FAL_BLOCK);
	t.task = 1 + fal_rng_below(r, 3);
	t.batch = t.task * p->groups * p->members * (1 + fal_rng_below(r, 3));
	t.samples = t.batch * (3 + fal_rng_below(r, 5));
	t.epochs = 1 + fal_rng_below(r, 2);
	t.optim.kind = fal_rng_below(r, 2) == 0 ? FAL_SGD : FAL_ADAMW;
	t.optim.beta1 = 0.9;
	t.optim.beta2 = 0.999;
	t.optim.eps = 1e-8f;
	snprintf(p->scheme, sizeof(p->scheme), "groups:%u%s", p->groups,
		 modes[fal_rng_below(r, sizeof(modes) / sizeof(modes[0]))]);
	p->one = plan(&t, p->scheme, p->groups * p->members);
	p->two = plan(&t, p->scheme, p->groups);
	double task_s = 0.01;
	for (uint32_t g = 0; g < p->groups; g++) {
		const struct machine m = machine(task_s);
		p->group[g] =
			plan(&t, fal_rng_below(r, 2) == 0 ? "bsp" : "epsp", p->members);
		for (uint32_t i = 0; i < p->members; i++)
			p->one.machine[g * p->members + i] = p->group[g].machine[i] = m;
		p->two.machine[g] = m;
		p->two.machine[g].group = &p->group[g];
		task_s *= 1.2 + 2 * (double)fal_rng_unit(r);
	}
}

/* Which rounds there were, in the order in which they were over, and versions between. */
static int
take(void *arg, struct fal_trace_line *l)
{
	struct fal_buf *b = arg;
	if (strcmp(l->ev, "update") == 0)
		fal_put_u8(b, '\n');
	if (strcmp(l->ev, "ledger") != 0)
		return FAL_OK;
	static const char *const of[] = { "clock", "first", "tasks" };
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++)
		fal_put_fmt(b, " %llu", (unsigned long long)told_u64(l, l->o, of[i]));
	fal_put_u8(b, ';');
	return l->err;
}

static struct fal_buf
order_of(const struct outcome *o)
{
	struct fal_buf b = { 0 };
	struct fal_diag diag;
	struct fal_trace_reader *r = fal_trace_reader_new(take, &b);
	assert(r != NULL);
	int err = reference_read(r, o->trace, o->trace_n, &diag);
	assert(err == FAL_OK && b.err == FAL_OK);
	fal_trace_reader_free(r);
	return b;
}

static void
free_outcome(struct outcome *o)
{
	for (size_t i = 0; i < o->groups; i++)
		free(o->group[i].p);
	free(o->group);
	free(o->params);
	free(o->trace);
}

/* *other: speeds did not say so, as two came too near to each other. */
static const char *
judge(const struct pair *p, const struct outcome *one, const struct outcome *two,
      bool *other)
{
	if (one->failure != NULL || two->failure != NULL)
		return one->failure != NULL ? one->failure : two->failure;
	struct fal_buf a = order_of(one), b = order_of(two);
	*other = a.n != b.n || memcmp(a.p, b.p, a.n) != 0;
	if (*other && getenv("SIM_TRACE") != NULL)
		fprintf(stderr, "one:%.*s\ntwo:%.*s\n", (int)a.n, (const char *)a.p,
			(int)b.n, (const char *)b.p);
	fal_buf_free(&a);
	fal_buf_free(&b);
	const size_t size = p->one.toy.n * sizeof(float);
	return !*other && memcmp(one->params, two->params, size) != 0 ? "another model"
								      : NULL;
}

bool
agree_table(uint64_t pairs, uint64_t from)
{
	uint64_t failed = 0, others = 0;
	struct pair *p = fal_calloc(1, sizeof(*p));
	assert(p != NULL);
	for (uint64_t i = 0; i < pairs; i++) {
		bool other = false;
		draw(p, from + i);
		struct outcome one = cluster_run(&p->one, from + i);
		struct outcome two = cluster_run(&p->two, from + i);
		const char *why = judge(p, &one, &two, &other);
		if (why != NULL)
			printf("# seed %llu: %s in two levels: %u groups of %u: %s\n",
			       (unsigned long long)(from + i), p->scheme, p->groups,
			       p->members, why);
		failed += why != NULL;
		others += other;
		free_outcome(&one);
		free_outcome(&two);
	}
	free(p);
	printf("# of %llu pairs of groups in one process and in two levels %llu had "
	       "another order\n",
	       (unsigned long long)pairs, (unsigned long long)others);
	return failed == 0 && 10 * others <= pairs;
}
