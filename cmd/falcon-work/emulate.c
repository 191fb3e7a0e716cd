/* Times of tasks. */
#include "emulate.h"

/* Beyond every deadline, and sums of times stay far from 2^64. */
#define DAY_NS UINT64_C(86400000000000)
#define T0_NS 100000000 /* where nothing says what a clock takes */

void
emulate_bind(struct emulate *e, uint32_t batch)
{
	struct machine *m = &e->machine;
	if (e->clock == 0 && m->count > 0) {
		e->clock = (batch + m->count / 2) / m->count;
		if (e->clock == 0)
			e->clock = 1;
	}
	if (m->t0_ns != 0)
		return;
	const double t0 = (double)e->clock / (e->rate * e->cores) * 1e9;
	m->t0_ns = e->clock == 0 ? T0_NS
		   : t0 < 1      ? 1
		   : t0 < DAY_NS ? (uint64_t)t0
				 : DAY_NS;
}

struct step
emulate_speed(const struct emulate *e, uint64_t t)
{
	struct step all = { e->speed, UINT64_MAX };
	const bool freezes = e->freeze_ns != 0 && t < e->freeze_ns + e->freeze_for_ns;
	if (freezes && t >= e->freeze_ns)
		return (struct step){ 0, e->freeze_ns + e->freeze_for_ns };
	if (freezes)
		all.until = e->freeze_ns;
	for (unsigned i = 0; i <= PATTERNS; i++) {
		struct step s = { 1, UINT64_MAX };
		if (i < PATTERNS && e->pattern[i].on)
			s = pattern_at((enum pattern_kind)i, &e->pattern[i], &e->machine,
				       t);
		else if (i == PATTERNS && e->trace.n > 0)
			s = speeds_at(&e->trace, t);
		/* Whatever the others say, nothing is done until then. */
		if (s.speed == 0)
			return s;
		all.speed *= s.speed;
		if (s.until < all.until)
			all.until = s.until;
	}
	return all;
}

/* When work that takes `work_ns` at speed 1 is done, begun at `t`, before `stop`. */
static uint64_t
run(const struct emulate *e, uint64_t t, double work_ns, uint64_t stop)
{
	while (t < stop) {
		const struct step s = emulate_speed(e, t);
		const uint64_t until = s.until < stop ? s.until : stop;
		const double can = s.speed * (double)(until - t);
		if (can >= work_ns)
			return t + (uint64_t)(work_ns / s.speed + 0.5);
		work_ns -= can;
		t = until;
	}
	return stop;
}

/* Clock `n` of all patterns of work. */
static struct pace
pace_of(const struct emulate *e, uint64_t n)
{
	struct pace all = { 1, 0 };
	for (unsigned i = 0; i < PATTERNS; i++) {
		const enum pattern_kind kind = (enum pattern_kind)i;
		if (!e->pattern[i].on || !pattern_is_clocked(kind))
			continue;
		const struct pace p = pattern_pace(kind, &e->pattern[i], &e->machine, n);
		all.slow *= p.slow;
		all.pause_ns += p.pause_ns;
	}
	return all;
}

/* --- recording ------------------------------------------------------------------- */

/* Writes the speeds up to `t`, at the pace of what is being done. */
static void
write_until(struct emulate *e, uint64_t t)
{
	while (e->written.at < t) {
		const struct step s = emulate_speed(e, e->written.at);
		const double speed = s.speed * e->written.pace;
		if (speed != e->written.speed)
			speeds_write(e->record, e->written.at, speed);
		e->written.speed = speed;
		e->written.at = s.until < t ? s.until : t;
	}
}

/* --- tasks ----------------------------------------------------------------------- */

/* From `t` to `end`, at this pace. */
static void
met(struct emulate *e, uint64_t t, uint64_t end, double pace)
{
	write_until(e, t);
	e->written.pace = pace;
	write_until(e, end);
}

/* Goes through task `t`, from its begin on, until it is done or `stop`, and returns when;
 * what is met is written if `recorded`.  Times from the origin. */
static uint64_t
walk(struct emulate *e, const struct emulate_task *t, uint64_t stop, bool recorded)
{
	uint64_t now = t->begin - e->origin, first = t->first;
	const uint64_t last = t->first + t->samples;
	do {
		const uint64_t n = e->clock != 0 ? first / e->clock : 0;
		const uint64_t of_clock = e->clock != 0 ? first % e->clock : 1;
		uint64_t next = last;
		struct pace p = pace_of(e, n);
		if (e->clock != 0 && (n + 1) * e->clock < last)
			next = (n + 1) * e->clock;
		if (of_clock != 0 || t->samples == 0)
			p.pause_ns = 0;
		const uint64_t left = stop > now ? stop - now : 0;
		const uint64_t begin = now + (p.pause_ns < left ? p.pause_ns : left);
		const double part =
			t->samples == 0 ? 1 : (double)(next - first) / t->samples;
		const uint64_t end = run(e, begin, t->work_ns * part * p.slow, stop);
		if (recorded && begin > now)
			met(e, now, begin, 0);
		if (recorded)
			met(e, begin, end, 1 / p.slow);
		now = end;
		first = next;
	} while (first < last && now < stop);
	return now;
}

struct emulate_task
emulate_begin(struct emulate *e, const struct emulate_job *job, uint64_t now)
{
	struct emulate_task t = { .begin = now, .first = e->done };
	if (e->origin == 0) {
		e->origin = now;
		e->written.speed = -1; /* the first one is written */
		e->written.pace = 1;
	}
	t.work_ns = job->samples / e->rate * 1e9;
	if (job->active > e->cores)
		t.work_ns *= (double)job->active / e->cores;
	if (job->eval) {
		t.work_ns /= 3;
	} else {
		t.samples = job->samples;
		e->done += job->samples;
	}
	t.end = e->origin + walk(e, &t, now - e->origin + DAY_NS, false);
	return t;
}

void
emulate_met(struct emulate *e, const struct emulate_task *t, uint64_t end)
{
	if (e->record != NULL)
		walk(e, t, end - e->origin, true);
}

uint64_t
emulate_probe_ns(const struct emulate *e, uint32_t samples)
{
	const double ns = samples / (e->rate * e->speed) * 1e9;
	return ns < DAY_NS ? (uint64_t)(ns + 0.5) : DAY_NS;
}

uint64_t
emulate_start(const struct emulated *before, uint64_t now)
{
	return before->next && before->in_time ? before->end : now;
}

/* --- the link -------------------------------------------------------------------- */

static uint64_t
delay_ns(void *arg, uint64_t now)
{
	const struct emulate *e = arg;
	const struct pattern *p = &e->pattern[PATTERN_NETWORK];
	uint64_t ns = e->latency_ns;
	if (p->on && e->origin != 0 && now >= e->origin)
		ns += pattern_delay(p, &e->machine, now - e->origin);
	return ns;
}

const struct fal_link *
emulate_link(struct emulate *e)
{
	if (e == NULL ||
	    (e->latency_ns == 0 && e->bandwidth == 0 && !e->pattern[PATTERN_NETWORK].on))
		return NULL;
	e->link = (struct fal_link){ .bandwidth = e->bandwidth,
				     .delay_ns = delay_ns,
				     .arg = e };
	return &e->link;
}
