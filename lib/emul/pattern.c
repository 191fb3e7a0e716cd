/* The patterns of slowness: their arguments, and their effect on pace and speed. */
#include "emul/emul.h"

#include "base/parse.h"
#include "base/rng.h"
#include "base/text.h"

#include <math.h>
#include <string.h>

#define POINT_NS UINT64_C(5000000) /* between possible onsets of P3 */
#define SLOW_MAX 1e6               /* times */
#define CLOCKS_MAX 1e6             /* nominal clocks */
#define SECONDS_MAX 3600.0
#define ONE_OF_M (-1.0) /* stands for 1/M */

struct arg {
	double min, max, normal;
};

/* clang-format off */
static const struct {
	const char *number, *name;
	struct arg arg[FAL_PATTERN_ARGS]; /* max 0: no argument */
} patterns[FAL_PATTERNS] = {
	[FAL_PATTERN_PERSISTENT] = { "p1", "persistent", { { 1, SLOW_MAX, 4 }, { 1, 65535, 1 } } },
	[FAL_PATTERN_LEVEL] = { "p1b", "level", { { 1, SLOW_MAX, 2 }, { 0, 1, 0.2 } } },
	[FAL_PATTERN_CLASSES] = { "p1c", "classes", { { 1, SLOW_MAX, 2 }, { 0, 1, 0.5 } } },
	[FAL_PATTERN_GRADED] = { "p1e", "graded", { { 1, SLOW_MAX, 4 } } },
	[FAL_PATTERN_JITTER] = { "p0", "jitter", { { 0, 1, 0.05 } } },
	[FAL_PATTERN_SLEEP] = { "p1d", "sleep", { { 0, SECONDS_MAX, 0.5 } } },
	[FAL_PATTERN_RANDOM_CLOCK] = { "p2", "random-clock",
	  { { 1, SLOW_MAX, 6 }, { 0, 1, ONE_OF_M } } },
	[FAL_PATTERN_RANDOM_SLEEP] = { "p2b", "random-sleep",
	  { { 0, 1, 0.05 }, { 0, SECONDS_MAX, 0.1 } } },
	[FAL_PATTERN_GAUSS_SLEEP] = { "p2c", "gauss-sleep",
	  { { 0, 1, 0.3 }, { 0, CLOCKS_MAX, 1 }, { 0, CLOCKS_MAX, 0.5 } } },
	[FAL_PATTERN_POWER_LAW] = { "p5", "power-law", { { 1.5, 100, 4 } } },
	[FAL_PATTERN_SHIFTED_EXP] = { "p6", "shifted-exp", { { 0, 1, 0.5 } } },
	/* The least probability 0.001 bounds the search in slow_worker_speed. */
	[FAL_PATTERN_SLOW_WORKER] = { "p3", "slow-worker",
	  { { 0.001, 1, 0.01 }, { 1, SLOW_MAX, 4 }, { 0.01, 1000, 2 } } },
	[FAL_PATTERN_DISRUPTED] = { "p4", "disrupted",
	  { { 0, 1, 0.2 }, { 1, SLOW_MAX, 2 }, { 0.01, CLOCKS_MAX, 20 } } },
	[FAL_PATTERN_STALL] = { "p9", "stall",
	  { { 0.01, CLOCKS_MAX, 50 }, { 0, CLOCKS_MAX, 1 }, { 0, CLOCKS_MAX, 10 } } },
	[FAL_PATTERN_DRIFT] = { "p10", "drift", { { 1, SLOW_MAX, 2 }, { 2, CLOCKS_MAX, 50 } } },
	[FAL_PATTERN_NETWORK] = { "p7", "network",
	  { { 0, SECONDS_MAX, 0.05 }, { 0, 1, 0.2 }, { 0.01, CLOCKS_MAX, 20 } } },
};
/* clang-format on */

/* --- reading --------------------------------------------------------------------- */

int
fal_pattern_parse(char *text, enum fal_pattern_kind *kind, struct fal_pattern *out,
		  struct fal_diag *diag)
{
	struct fal_pattern p = { .on = true };
	char *rest = text, *name = strsep(&rest, ":");
	enum fal_pattern_kind k = 0;
	while (k < FAL_PATTERNS && strcmp(name, patterns[k].name) != 0 &&
	       strcmp(name, patterns[k].number) != 0)
		k++;
	if (k == FAL_PATTERNS)
		return fal_diag_set(diag, FAL_EINVAL,
				    "'%s' is not a pattern of falcon-emulate(5)",
				    FAL_QUOTE(name));
	for (unsigned i = 0; i < FAL_PATTERN_ARGS; i++) {
		const struct arg *a = &patterns[k].arg[i];
		p.arg[i] = a->normal;
		if (rest == NULL || a->max == 0)
			continue;
		const char *value = strsep(&rest, ":");
		if (fal_parse_double(value, a->min, a->max, &p.arg[i]) < 0)
			return fal_diag_set(diag, FAL_EINVAL,
					    "%s: '%s' is not a number from %g to %g",
					    name, FAL_QUOTE(value), a->min, a->max);
	}
	if (rest != NULL)
		return fal_diag_set(diag, FAL_EINVAL, "%s: '%s' is too much", name,
				    FAL_QUOTE(rest));
	if (k == FAL_PATTERN_STALL && (p.arg[1] > p.arg[2] || p.arg[2] > p.arg[0]))
		return fal_diag_set(diag, FAL_EINVAL,
				    "%s: %g to %g clocks, each %g, cannot be", name,
				    p.arg[1], p.arg[2], p.arg[0]);
	*kind = k;
	*out = p;
	return FAL_OK;
}

const char *
fal_pattern_name(enum fal_pattern_kind kind)
{
	return patterns[kind].name;
}

bool
fal_pattern_is_clocked(enum fal_pattern_kind kind)
{
	return kind >= FAL_PATTERN_JITTER && kind <= FAL_PATTERN_SHIFTED_EXP;
}

bool
fal_pattern_needs_worker(enum fal_pattern_kind kind, const struct fal_pattern *p)
{
	return kind <= FAL_PATTERN_GRADED || kind == FAL_PATTERN_SLEEP ||
	       (kind == FAL_PATTERN_RANDOM_CLOCK && p->arg[1] == ONE_OF_M);
}

/* --- random numbers -------------------------------------------------------------- */

void
fal_emul_draw(const struct fal_machine *m, unsigned stream, uint64_t n,
	      double out[static 4])
{
	const uint32_t key[2] = { (uint32_t)m->seed, (uint32_t)(m->seed >> 32) };
	const uint32_t ctr[4] = { (uint32_t)n, (uint32_t)(n >> 32),
				  stream << 16 | m->index, FAL_RNG_EMULATE };
	uint32_t word[4];
	fal_philox(ctr, key, word);
	for (unsigned i = 0; i < 4; i++)
		out[i] = (word[i] + 0.5) * 0x1p-32;
}

/* A standard normal number from two uniform numbers (Box and Muller). */
static double
normal_of(double u, double v)
{
	return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v);
}

/* --- of the machine -------------------------------------------------------------- */

/* Is the machine one of the last `n`? */
static bool
is_among_last(const struct fal_machine *m, double n)
{
	return m->index > m->count - n;
}

double
fal_pattern_share(enum fal_pattern_kind kind, const struct fal_pattern *p,
		  const struct fal_machine *m)
{
	const double k = p->arg[0];
	double steps;
	switch (kind) {
	case FAL_PATTERN_PERSISTENT:
		return is_among_last(m, p->arg[1]) ? 1 / k : 1;
	case FAL_PATTERN_LEVEL:
	case FAL_PATTERN_CLASSES:
		return is_among_last(m, round(m->count * p->arg[1])) ? 1 / k : 1;
	case FAL_PATTERN_GRADED:
		steps = m->count > 1 ? m->count - 1 : 1;
		return 1 / (1 + (m->index - 1) * (k - 1) / steps);
	default:
		return 1;
	}
}

/* --- of work --------------------------------------------------------------------- */

static uint64_t
seconds_to_ns(double seconds)
{
	return seconds > 0 ? (uint64_t)(seconds * 1e9) : 0;
}

struct fal_clock_pace
fal_pattern_pace(enum fal_pattern_kind kind, const struct fal_pattern *p,
		 const struct fal_machine *m, uint64_t n)
{
	struct fal_clock_pace pace = { 1, 0 };
	const double t0 = (double)m->t0_ns * 1e-9;
	double u[4];
	fal_emul_draw(m, kind, n, u);
	switch (kind) {
	case FAL_PATTERN_JITTER:
		/* Each clock takes time. */
		pace.slow = fmax(0.1, 1 + p->arg[0] * normal_of(u[0], u[1]));
		break;
	case FAL_PATTERN_SLEEP:
		pace.pause_ns = m->index % 2 == 1 ? seconds_to_ns(p->arg[0]) : 0;
		break;
	case FAL_PATTERN_RANDOM_CLOCK:
		if (u[0] < (p->arg[1] == ONE_OF_M ? 1.0 / m->count : p->arg[1]))
			pace.slow = p->arg[0];
		break;
	case FAL_PATTERN_RANDOM_SLEEP:
		pace.pause_ns = u[0] < p->arg[0] ? seconds_to_ns(u[1] * p->arg[1]) : 0;
		break;
	case FAL_PATTERN_GAUSS_SLEEP:
		if (u[0] < p->arg[0])
			pace.pause_ns = seconds_to_ns(
				t0 * (p->arg[1] + p->arg[2] * normal_of(u[1], u[2])));
		break;
	case FAL_PATTERN_POWER_LAW:
		pace.slow = pow(u[0], -1 / (p->arg[0] - 1));
		break;
	case FAL_PATTERN_SHIFTED_EXP:
		pace.slow = p->arg[0] - (1 - p->arg[0]) * log(u[0]);
		break;
	default:
		break;
	}
	return pace;
}

/* --- of time --------------------------------------------------------------------- */

static uint64_t
clocks_ns(const struct fal_machine *m, double clocks)
{
	const double length = clocks * (double)m->t0_ns;
	return length < 1 ? 1 : (uint64_t)length;
}

/* The machine is slow if an onset in the last `longest` ns began a slow period
 * that still lasts. */
static struct fal_speed
slow_worker_speed(const struct fal_pattern *p, const struct fal_machine *m, uint64_t t)
{
	const uint64_t longest = clocks_ns(m, p->arg[2]);
	const uint64_t now = t / POINT_NS;
	const uint64_t oldest = t > longest ? (t - longest) / POINT_NS : 0;
	for (uint64_t i = now + 1; i-- > oldest;) {
		double u[4];
		fal_emul_draw(m, FAL_PATTERN_SLOW_WORKER, i, u);
		const uint64_t end = i * POINT_NS + (uint64_t)(u[1] * (double)longest);
		if (u[0] < p->arg[0] && end > t)
			return (struct fal_speed){ 1 / p->arg[1], end };
	}
	return (struct fal_speed){ 1, (now + 1) * POINT_NS };
}

/* Is the window of `clocks` clocks around `t` struck, which has probability `chance`?
 * Windows begin at different times on different machines. */
static bool
is_window_struck(enum fal_pattern_kind kind, double chance, double clocks,
		 const struct fal_machine *m, uint64_t t, uint64_t *until)
{
	const uint64_t window = clocks_ns(m, clocks);
	const uint64_t shift = m->count == 0 ? 0 : window / m->count * (m->index - 1);
	const uint64_t n = (t + shift) / window;
	double u[4];
	fal_emul_draw(m, kind, n, u);
	*until = (n + 1) * window - shift;
	return u[0] < chance;
}

/* Each window has one stall, at a random place. */
static struct fal_speed
stall_speed(const struct fal_pattern *p, const struct fal_machine *m, uint64_t t)
{
	const uint64_t window = clocks_ns(m, p->arg[0]);
	const uint64_t n = t / window, at = t % window;
	double u[4];
	fal_emul_draw(m, FAL_PATTERN_STALL, n, u);
	const double clocks = p->arg[1] + u[0] * (p->arg[2] - p->arg[1]);
	const uint64_t length = clocks_ns(m, clocks);
	const uint64_t room = window > length ? window - length : 0;
	const uint64_t begin = (uint64_t)(u[1] * (double)room), end = begin + length;
	if (at < begin)
		return (struct fal_speed){ 1, n * window + begin };
	if (at < end)
		return (struct fal_speed){ 0,
					   n * window + (end < window ? end : window) };
	return (struct fal_speed){ 1, (n + 1) * window };
}

/* The speed goes from 1 to 1/K and back, one step a clock. */
static struct fal_speed
drift_speed(const struct fal_pattern *p, const struct fal_machine *m, uint64_t t)
{
	const uint64_t n = t / m->t0_ns;
	const double x = fmod((double)n, p->arg[1]) / p->arg[1];
	const double depth = 1 - fabs(2 * x - 1);
	return (struct fal_speed){ 1 - (1 - 1 / p->arg[0]) * depth, (n + 1) * m->t0_ns };
}

struct fal_speed
fal_pattern_at(enum fal_pattern_kind kind, const struct fal_pattern *p,
	       const struct fal_machine *m, uint64_t t)
{
	struct fal_speed s = { 1, UINT64_MAX };
	switch (kind) {
	case FAL_PATTERN_SLOW_WORKER:
		return slow_worker_speed(p, m, t);
	case FAL_PATTERN_DISRUPTED:
		if (is_window_struck(kind, p->arg[0], p->arg[2], m, t, &s.until))
			s.speed = 1 / p->arg[1];
		return s;
	case FAL_PATTERN_STALL:
		return stall_speed(p, m, t);
	case FAL_PATTERN_DRIFT:
		return drift_speed(p, m, t);
	default:
		return s;
	}
}

uint64_t
fal_pattern_delay(const struct fal_pattern *p, const struct fal_machine *m, uint64_t t)
{
	uint64_t until;
	return is_window_struck(FAL_PATTERN_NETWORK, p->arg[1], p->arg[2], m, t, &until)
		       ? seconds_to_ns(p->arg[0])
		       : 0;
}
