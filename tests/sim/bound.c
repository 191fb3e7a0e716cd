/* How long a clock may take, at most, and how often somebody looks at it. */
#include "bound.h"

#include <math.h>

/* Seconds that machine `m` takes at most for a task that is granted, until the claim of
 * it is heard. */
static double
turn_s(const struct plan *p, const struct machine *m)
{
	double bytes = 6.0 * (double)p->toy.n;
	double crowd = fmax(1, (double)m->lanes_max / m->cores);
	double far = 0; /* to a shard, or from it */
	for (uint32_t i = 0; i < p->shards && p->apart; i++) {
		far = fmax(far, p->place[i].latency);
		for (uint32_t w = 0; w < p->machines; w++)
			far = fmax(far, p->way[w][i]);
	}
	return m->task_s * crowd * (1 + m->jitter) + 6 * m->latency +
	       bytes * m->per_byte + 8 * far;
}

double
bound_s(const struct plan *p)
{
	const struct machine *honest = &p->machine[p->machines - 1];
	uint32_t tasks = toy_clock_tasks(&p->toy, 0);
	double crowd = fmax(1, (double)honest->lanes_max / honest->cores);
	double each = honest->task_s * (1 + honest->jitter) * crowd;
	double all = ceil((double)tasks / honest->lanes_max) * each, most = 0;
	double talk = turn_s(p, honest), deadlines = 0;
	struct fal_rule rule;
	/* An update may throw away all other rounds, and then each round of a clock takes
	 * a whole turn. */
	fal_rule_parse(p->scheme, &rule, NULL);
	if (rule.scheme == FAL_RENNALA || rule.scheme == FAL_RINGMASTER)
		all += ceil((double)tasks / honest->lanes_max) * talk;
	for (uint32_t i = 0; i < p->machines; i++)
		most = fmax(most, turn_s(p, &p->machine[i]));
	for (uint32_t i = 0; i + 1 < p->machines; i++) {
		const struct machine *m = &p->machine[i];
		/* Lanes that go on have ten times as long. */
		const bool on = m->hang == HANG_PRETEND || m->hang == HANG_MUTE;
		double times = on ? 10 : m->hang == HANG_SLOW ? 2 : 1;
		double due = fmax(fmax(0.2, 4 * most), 12 * m->latency);
		/* A task and a check are due after two deadlines. */
		deadlines += times * (p->verify > 0 ? 2 : 1) * due;
	}
	/* Those may be due at its end; each hung one may let evaluations lie, too. */
	const bool evals = p->test_samples > 0;
	if (evals)
		all += ceil(p->test_samples / (double)p->toy.task) * each;
	return 2 * (all + (p->machines + 2) * talk) + deadlines * (2 + 2 * evals);
}

double
bound_wakes(const struct plan *p, uint32_t came)
{
	/* A machine without news is looked at after 1 ms at the soonest, then after twice
	 * as long as before; and thrice for each deadline, of which the least is 0.2 s.
	 */
	return p->machines * (log2(1 / 1e-3) + 3 / 0.2) + came;
}
