/* How soon who gets bits wrong is found. */
#include "soon.h"

#include "base/rng.h"
#include "cluster.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { RUNS = 1000, ENDS = 3, LAST = 100 };
static const uint32_t ends[ENDS] = { 10, 33, LAST };
static const double verified = 0.01;

/* What has begun before it was found may still have to be answered. */
enum { BEHIND = 30 };

static struct plan
draw(struct fal_rng *r, uint64_t seed)
{
	/* Of those in which whoever is asked has the version. */
	static const char *const schemes[] = { "bsp", "epsp", "epsp:1", "epsp:3" };
	static const double parts[] = { 0.2, 0.5, 1 };
	struct plan p = { .toy = { .seed = seed,
				   .n = (size_t)1 + fal_rng_below(r, 20),
				   .batch = 20 + fal_rng_below(r, 20),
				   .epochs = 300,
				   .optim = { .kind = FAL_SGD },
				   .lr = 0.01f },
			  .scheme = schemes[fal_rng_below(r, 4)],
			  .hashes = 1,
			  .verify = verified,
			  .shards = 1,
			  .most = 1,
			  .parts = 1,
			  .machines = 3 + fal_rng_below(r, 3),
			  .calm = true,
			  .entropy = seed,
			  .enough = LAST + BEHIND };
	p.toy.task = 1 + fal_rng_below(r, 2);
	p.toy.samples = p.toy.batch;
	p.toy.flips[0] = parts[fal_rng_below(r, 3)];
	p.min_workers = p.machines;
	p.preclaims = fal_rng_below(r, 2) == 0;
	p.early = seed % 2 == 0;
	p.begins = seed % 3 == 0;
	p.probes = fal_rng_below(r, 2) == 0;
	for (uint32_t i = 0; i < p.machines; i++)
		p.machine[i] =
			(struct machine){ .task_s = 0.01 * (1 + (double)fal_rng_unit(r)),
					  .jitter = 0.2 * (double)fal_rng_unit(r),
					  .lanes_min = 1,
					  .lanes_max = 1,
					  .cores = 1,
					  .latency = 1e-3 * (double)fal_rng_unit(r),
					  .per_byte = 1e-9,
					  .window = 2,
					  .crash_at = INFINITY,
					  .leave_at = INFINITY,
					  .stall_at = INFINITY,
					  .hang_at = INFINITY,
					  .cut_at = INFINITY };
	return p;
}

bool
soon_table(void)
{
	uint32_t found[ENDS] = { 0 };
	double want[ENDS] = { 0 }, spread[ENDS] = { 0 };
	bool good = true;
	for (uint64_t seed = 0; seed < RUNS; seed++) {
		struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 15);
		struct plan p = draw(&r, seed);
		struct outcome o = cluster_run(&p, seed);
		free(o.params);
		free(o.trace);
		if (o.failure != NULL || (o.found == 0 && o.did < LAST)) {
			printf("# how soon, %llu: %s, %u tasks\n",
			       (unsigned long long)seed,
			       o.failure != NULL ? o.failure : "too short", o.did);
			return false;
		}
		for (int i = 0; i < ENDS; i++) {
			const double q = 1 - pow(1 - verified * p.toy.flips[0], ends[i]);
			found[i] += o.found > 0 && o.found <= ends[i];
			want[i] += q;
			spread[i] += q * (1 - q);
		}
	}
	for (int i = 0; i < ENDS; i++) {
		const double by = (found[i] - want[i]) / sqrt(spread[i]);
		printf("# found within %u tasks: %u of %d, expected %.1f, %+.2f sigma\n",
		       ends[i], found[i], RUNS, want[i], by);
		good = good && fabs(by) < 3.9;
	}
	return good;
}
