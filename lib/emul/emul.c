/* The patterns of slowness; the times of tasks; recorded speeds. */
#include "emul/emul.h"

#include "base/mem.h"
#include "base/parse.h"
#include "base/rng.h"
#include "base/sorted.h"
#include "base/text.h"
#include "cli/file.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- patterns --------------------------------------------------------------------- */

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
	/* The least probability 0.001 bounds the search in pattern_speed. */
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

/* --- parsing --------------------------------------------------------------------- */

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
		return fal_diag_set(diag, FAL_EINVAL, "%s: '%s' is one argument too many",
				    name, FAL_QUOTE(rest));
	if (k == FAL_PATTERN_STALL && (p.arg[1] > p.arg[2] || p.arg[2] > p.arg[0]))
		return fal_diag_set(
			diag, FAL_EINVAL,
			"%s: %g to %g clocks in each %g clocks are impossible", name,
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

double
fal_pattern_share(enum fal_pattern_kind kind, const struct fal_pattern *p,
		  const struct fal_machine *m)
{
	const double k = p->arg[0];
	double steps, slow; /* slow: so many machines, the last ones */
	switch (kind) {
	case FAL_PATTERN_PERSISTENT:
	case FAL_PATTERN_LEVEL:
	case FAL_PATTERN_CLASSES:
		slow = kind == FAL_PATTERN_PERSISTENT ? p->arg[1]
						      : round(m->count * p->arg[1]);
		return m->index > m->count - slow ? 1 / k : 1;
	case FAL_PATTERN_GRADED:
		steps = m->count > 1 ? m->count - 1 : 1;
		return 1 / (1 + (m->index - 1) * (k - 1) / steps);
	default:
		return 1;
	}
}

/* --- of time --------------------------------------------------------------------- */

static uint64_t
seconds_to_ns(double seconds)
{
	return seconds > 0 ? (uint64_t)(seconds * 1e9) : 0;
}

static uint64_t
clocks_ns(const struct fal_machine *m, double clocks)
{
	const double length = clocks * (double)m->t0_ns;
	return length < 1 ? 1 : (uint64_t)length;
}

/* Returns whether the window of `clocks` clocks around `t` is struck; `chance` is the
 * probability.  Windows begin at different times on different machines. */
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

/* Returns the speed at `t` ns under a pattern of time, and a time until which the speed
 * cannot change; { 1, UINT64_MAX } for other kinds. */
static struct fal_speed
pattern_speed(enum fal_pattern_kind kind, const struct fal_pattern *p,
	      const struct fal_machine *m, uint64_t t)
{
	struct fal_speed s = { 1, UINT64_MAX };
	double depth, u[4];
	switch (kind) {
	case FAL_PATTERN_SLOW_WORKER: {
		/* The machine is slow if an onset in the last `longest` ns began a slow
		 * period that still lasts. */
		const uint64_t longest = clocks_ns(m, p->arg[2]);
		const uint64_t now = t / POINT_NS;
		const uint64_t oldest = t > longest ? (t - longest) / POINT_NS : 0;
		for (uint64_t i = now + 1; i-- > oldest;) {
			fal_emul_draw(m, kind, i, u);
			const uint64_t end =
				i * POINT_NS + (uint64_t)(u[1] * (double)longest);
			if (u[0] < p->arg[0] && end > t)
				return (struct fal_speed){ 1 / p->arg[1], end };
		}
		s.until = (now + 1) * POINT_NS;
		return s;
	}
	case FAL_PATTERN_DISRUPTED:
		if (is_window_struck(kind, p->arg[0], p->arg[2], m, t, &s.until))
			s.speed = 1 / p->arg[1];
		return s;
	case FAL_PATTERN_STALL: {
		/* Each window has one stall, at a random place. */
		const uint64_t window = clocks_ns(m, p->arg[0]);
		const uint64_t n = t / window, at = t % window;
		fal_emul_draw(m, kind, n, u);
		const double clocks = p->arg[1] + u[0] * (p->arg[2] - p->arg[1]);
		const uint64_t length = clocks_ns(m, clocks);
		const uint64_t room = window > length ? window - length : 0;
		const uint64_t begin = (uint64_t)(u[1] * (double)room);
		const uint64_t end = begin + length < window ? begin + length : window;
		s.speed = at >= begin && at < end ? 0 : 1;
		s.until = n * window + (at < begin ? begin : at < end ? end : window);
		return s;
	}
	case FAL_PATTERN_DRIFT:
		/* The speed goes from 1 to 1/K and back, one step a clock. */
		s.until = (t / m->t0_ns + 1) * m->t0_ns;
		depth = 1 -
			fabs(2 * fmod((double)(t / m->t0_ns), p->arg[1]) / p->arg[1] - 1);
		s.speed = 1 - (1 - 1 / p->arg[0]) * depth;
		return s;
	default:
		return s;
	}
}

/* --- the machine ------------------------------------------------------------------ */

/* A day is beyond every deadline, and sums of days stay far below 2^64. */
#define DAY_NS UINT64_C(86400000000000)
#define T0_NS 100000000 /* nominal clock without worker=I/M and clock= */

void
fal_emul_set_batch(struct fal_emul *e, uint32_t batch)
{
	struct fal_machine *m = &e->machine;
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

struct fal_speed
fal_emul_speed(const struct fal_emul *e, uint64_t t)
{
	struct fal_speed all = { e->speed, UINT64_MAX };
	const bool freezes = e->freeze_ns != 0 && t < e->freeze_ns + e->freeze_for_ns;
	if (freezes && t >= e->freeze_ns)
		return (struct fal_speed){ 0, e->freeze_ns + e->freeze_for_ns };
	if (freezes)
		all.until = e->freeze_ns;
	for (unsigned i = 0; i <= FAL_PATTERNS; i++) {
		struct fal_speed s = { 1, UINT64_MAX };
		if (i < FAL_PATTERNS && e->pattern[i].on)
			s = pattern_speed((enum fal_pattern_kind)i, &e->pattern[i],
					  &e->machine, t);
		else if (i == FAL_PATTERNS && e->trace.n > 0)
			s = fal_speeds_at(&e->trace, t);
		if (s.speed == 0) /* other factors do not matter until then */
			return s;
		all.speed *= s.speed;
		if (s.until < all.until)
			all.until = s.until;
	}
	return all;
}

/* Returns when work of `*work_ns` at speed 1 that begins at `t` ends, at most `stop`;
 * `*work_ns` becomes the work that is left then. */
static uint64_t
work_end(const struct fal_emul *e, uint64_t t, uint64_t stop, double *work_ns)
{
	while (t < stop) {
		const struct fal_speed s = fal_emul_speed(e, t);
		const uint64_t until = s.until < stop ? s.until : stop;
		const double done = s.speed * (double)(until - t);
		if (done >= *work_ns) {
			t += (uint64_t)(*work_ns / s.speed + 0.5);
			*work_ns = 0;
			return t;
		}
		*work_ns -= done;
		assert(*work_ns > 0);
		t = until;
	}
	return stop;
}

struct fal_clock_pace
fal_emul_pace(const struct fal_emul *e, uint64_t n)
{
	const struct fal_machine *m = &e->machine;
	const double t0 = (double)m->t0_ns * 1e-9;
	struct fal_clock_pace all = { 1, 0 };
	for (unsigned i = 0; i < FAL_PATTERNS; i++) {
		const struct fal_pattern *p = &e->pattern[i];
		const enum fal_pattern_kind kind = (enum fal_pattern_kind)i;
		double u[4];
		if (!p->on || !fal_pattern_is_clocked(kind))
			continue;
		fal_emul_draw(m, kind, n, u);
		switch (kind) {
		case FAL_PATTERN_JITTER:
			/* A clock takes at least a tenth of its usual time. */
			all.slow *= fmax(0.1, 1 + p->arg[0] * normal_of(u[0], u[1]));
			break;
		case FAL_PATTERN_SLEEP:
			if (m->index % 2 == 1)
				all.pause_ns += seconds_to_ns(p->arg[0]);
			break;
		case FAL_PATTERN_RANDOM_CLOCK:
			if (u[0] < (p->arg[1] == ONE_OF_M ? 1.0 / m->count : p->arg[1]))
				all.slow *= p->arg[0];
			break;
		case FAL_PATTERN_RANDOM_SLEEP:
			if (u[0] < p->arg[0])
				all.pause_ns += seconds_to_ns(u[1] * p->arg[1]);
			break;
		case FAL_PATTERN_GAUSS_SLEEP:
			if (u[0] < p->arg[0])
				all.pause_ns += seconds_to_ns(
					t0 *
					(p->arg[1] + p->arg[2] * normal_of(u[1], u[2])));
			break;
		case FAL_PATTERN_POWER_LAW:
			all.slow *= pow(u[0], -1 / (p->arg[0] - 1));
			break;
		case FAL_PATTERN_SHIFTED_EXP:
			all.slow *= p->arg[0] - (1 - p->arg[0]) * log(u[0]);
			break;
		default:
			break;
		}
	}
	return all;
}

/* --- recording ------------------------------------------------------------------- */

/* Writes the speeds up to `t`, at the pace of the current work. */
static void
record_until(struct fal_emul *e, uint64_t t)
{
	while (e->written.at < t) {
		const struct fal_speed s = fal_emul_speed(e, e->written.at);
		const double speed = s.speed * e->written.pace;
		if (speed != e->written.speed)
			fprintf(e->record, "%ju.%09ju %.9g\n", e->written.at / 1000000000,
				e->written.at % 1000000000, speed);
		e->written.speed = speed;
		e->written.at = s.until < t ? s.until : t;
	}
}

/* --- tasks ----------------------------------------------------------------------- */

/* Advances through task `t` to its end, at most to `stop`, and writes the speeds met if
 * `is_recorded`.  Returns the end, from the origin, and the next sample in `*reached`. */
static uint64_t
walk_task(struct fal_emul *e, const struct fal_emul_task *t, uint64_t stop,
	  bool is_recorded, uint64_t *reached)
{
	uint64_t now = t->begin - e->origin, first = t->first;
	const uint64_t last = t->first + t->samples;
	double left;
	do {
		/* The part of the task from sample `first` on, within one clock. */
		const uint64_t n = e->clock != 0 ? first / e->clock : 0;
		struct fal_clock_pace pace = fal_emul_pace(e, n);
		uint64_t next = last; /* the first sample of the next part */
		double work_ns = t->work_ns;
		if (t->samples == 0 || e->clock == 0 || first % e->clock != 0)
			pace.pause_ns = 0;
		if (t->samples > 0) {
			if (e->clock != 0 && (n + 1) * e->clock < next)
				next = (n + 1) * e->clock;
			work_ns *= (double)(next - first) / t->samples;
		}
		const uint64_t room = stop > now ? stop - now : 0;
		const uint64_t pause = pace.pause_ns < room ? pace.pause_ns : room;
		left = work_ns * pace.slow;
		const uint64_t end = work_end(e, now + pause, stop, &left);
		if (is_recorded) {
			record_until(e, now);
			e->written.pace = 0;
			record_until(e, now + pause);
			e->written.pace = 1 / pace.slow;
			record_until(e, end);
		}
		now = end;
		const double done = 1 - left / (work_ns * pace.slow);
		first += (uint64_t)ceil((double)(next - first) * done);
	} while (left == 0 && first < last && now < stop);
	*reached = first;
	return now;
}

struct fal_emul_task
fal_emul_begin(struct fal_emul *e, const struct fal_emul_job *job, uint64_t now)
{
	struct fal_emul_task t = { .begin = now, .first = e->done };
	uint64_t reached;
	if (e->origin == 0) {
		e->origin = now;
		e->written.speed = -1; /* the first speed differs and is written */
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
	t.end = e->origin + walk_task(e, &t, now - e->origin + DAY_NS, false, &reached);
	return t;
}

void
fal_emul_end(struct fal_emul *e, const struct fal_emul_task *t, uint64_t end)
{
	uint64_t reached;
	if (e->record == NULL && end >= t->end)
		return;
	walk_task(e, t, end - e->origin, e->record != NULL, &reached);
	if (e->done == t->first + t->samples)
		e->done = reached;
}

uint64_t
fal_emul_probe_ns(const struct fal_emul *e, uint32_t samples)
{
	const double ns = samples / (e->rate * e->speed) * 1e9;
	return ns < DAY_NS ? (uint64_t)(ns + 0.5) : DAY_NS;
}

uint64_t
fal_emul_task_begin_time(const struct fal_emul_previous *before, uint64_t now,
			 uint64_t *regained)
{
	const bool follows = before->next && before->in_time;
	*regained = follows ? before->late : 0;
	return follows ? before->end : now;
}

/* --- recorded speeds ------------------------------------------------------------- */

#define TRACE_FILE_MAX ((size_t)64 << 20) /* bytes */
#define TRACE_S_MAX 1e8
#define TRACE_SPEED_MAX 1e6

/* Parses "SECONDS SPEED" or "SECONDS loop", without line end and comment.  Returns NULL,
 * or the fault of the word `*bad`. */
static const char *
parse_speed_line(struct fal_speeds *s, char *line, const char **bad)
{
	char *rest = line;
	const char *time = strsep(&rest, " \t");
	double seconds, speed;
	*bad = time;
	if (fal_parse_double(time, 0, TRACE_S_MAX, &seconds) < 0)
		return "is not a number of seconds";
	const uint64_t t = (uint64_t)llround(seconds * 1e9);
	if (s->loop != 0)
		return "stands behind a loop";
	if (s->n == 0 ? t != 0 : t <= s->v[s->n - 1].t)
		return s->n == 0 ? "is not 0, where a trace begins"
				 : "is not later than the line before";
	*bad = rest != NULL ? rest + strspn(rest, " \t") : "";
	if (s->n > 0 && strcmp(*bad, "loop") == 0) {
		s->loop = t;
		return NULL;
	}
	if (fal_parse_double(*bad, 0, TRACE_SPEED_MAX, &speed) < 0)
		return "is not a speed";
	FAL_XGROW(s->v, s->cap, s->n + 1);
	s->v[s->n++] = (struct fal_speeds_line){ t, speed };
	return NULL;
}

int
fal_speeds_read(const char *path, struct fal_speeds *out, struct fal_diag *diag)
{
	struct fal_buf text = { 0 };
	struct fal_speeds s = { 0 };
	int err = fal_cli_read(path, TRACE_FILE_MAX, &text, diag);
	if (err < 0)
		return err;
	if (text.n > 0 && memchr(text.p, '\0', text.n) != NULL)
		err = fal_diag_set(diag, FAL_EFORMAT, "%s: not a text", path);
	fal_put_u8(&text, '\0');
	if (err == FAL_OK && text.err < 0)
		err = fal_diag_set(diag, text.err, "%s: %s", path,
				   fal_strerror(text.err));
	unsigned number = 0; /* of the line */
	for (char *rest = (char *)text.p; rest != NULL && err == FAL_OK;) {
		char *line = strsep(&rest, "\n");
		const char *bad, *why = NULL;
		number++;
		/* Strip the comment and the blanks at both ends. */
		line[strcspn(line, "#")] = '\0';
		line += strspn(line, " \t");
		for (size_t n = strlen(line);
		     n > 0 && strchr(" \t\r", line[n - 1]) != NULL;)
			line[--n] = '\0';
		if (*line != '\0')
			why = parse_speed_line(&s, line, &bad);
		if (why != NULL)
			err = fal_diag_set(diag, FAL_EFORMAT, "%s:%u: '%s' %s", path,
					   number, FAL_QUOTE(bad), why);
	}
	if (err == FAL_OK && s.n == 0)
		err = fal_diag_set(diag, FAL_EFORMAT, "%s: no line with a speed", path);
	fal_buf_free(&text);
	if (err < 0)
		fal_speeds_free(&s);
	else
		*out = s;
	return err;
}

void
fal_speeds_free(struct fal_speeds *s)
{
	free(s->v);
	*s = (struct fal_speeds){ 0 };
}

struct fal_speed
fal_speeds_at(const struct fal_speeds *s, uint64_t t)
{
	const uint64_t base = s->loop != 0 ? t / s->loop * s->loop : 0, at = t - base;
	/* the first line after `at`; the first line of all is at 0 */
	const size_t next = fal_sorted_place64(s->v, s->n, sizeof(*s->v), at + 1);
	uint64_t until = UINT64_MAX;
	if (next < s->n)
		until = base + s->v[next].t;
	else if (s->loop != 0)
		until = base + s->loop;
	return (struct fal_speed){ s->v[next - 1].speed, until };
}

/* --- the link -------------------------------------------------------------------- */

static uint64_t
emul_delay_ns(void *arg, uint64_t now)
{
	const struct fal_emul *e = arg;
	const struct fal_pattern *p = &e->pattern[FAL_PATTERN_NETWORK];
	uint64_t until;
	const bool is_slow = p->on && e->origin != 0 && now >= e->origin &&
			     is_window_struck(FAL_PATTERN_NETWORK, p->arg[1], p->arg[2],
					      &e->machine, now - e->origin, &until);
	return e->latency_ns + (is_slow ? seconds_to_ns(p->arg[0]) : 0);
}

const struct fal_link *
fal_emul_link(struct fal_emul *e)
{
	if (e == NULL || (e->latency_ns == 0 && e->bandwidth == 0 &&
			  !e->pattern[FAL_PATTERN_NETWORK].on))
		return NULL;
	e->link = (struct fal_link){ .bandwidth = e->bandwidth,
				     .delay_ns = emul_delay_ns,
				     .arg = e };
	return &e->link;
}

bool
fal_emul_flips(const struct fal_emul *e, uint64_t clock, uint32_t task)
{
	double u[4];
	/* falcon-job(5): a clock has at most 2^20 tasks. */
	fal_emul_draw(&e->machine, FAL_PATTERNS + 1, clock << 20 | task, u);
	return u[0] < e->flip;
}
