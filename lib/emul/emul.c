/* Computes the times of tasks; reads, looks up and writes recorded speeds. */
#include "emul/emul.h"

#include "base/mem.h"
#include "base/parse.h"
#include "base/rng.h"
#include "base/text.h"
#include "cli/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A day is beyond every deadline, and sums of days stay far below 2^64. */
#define DAY_NS UINT64_C(86400000000000)
#define T0_NS 100000000 /* nominal clock without worker=I/M and clock= */

void
fal_emul_bind(struct fal_emul *e, uint32_t batch)
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
			s = fal_pattern_at((enum fal_pattern_kind)i, &e->pattern[i],
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
		t = until;
	}
	return stop;
}

struct fal_clock_pace
fal_emul_pace(const struct fal_emul *e, uint64_t n)
{
	struct fal_clock_pace all = { 1, 0 };
	for (unsigned i = 0; i < FAL_PATTERNS; i++) {
		const enum fal_pattern_kind kind = (enum fal_pattern_kind)i;
		if (!e->pattern[i].on || !fal_pattern_is_clocked(kind))
			continue;
		const struct fal_clock_pace p =
			fal_pattern_pace(kind, &e->pattern[i], &e->machine, n);
		all.slow *= p.slow;
		all.pause_ns += p.pause_ns;
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
			fal_speeds_write(e->record, e->written.at, speed);
		e->written.speed = speed;
		e->written.at = s.until < t ? s.until : t;
	}
}

/* --- tasks ----------------------------------------------------------------------- */

/* Records work from `t` to `end` at this pace. */
static void
record_work(struct fal_emul *e, uint64_t t, uint64_t end, double pace)
{
	record_until(e, t);
	e->written.pace = pace;
	record_until(e, end);
}

/* A part of a task within one clock. */
struct task_part {
	uint64_t end; /* the first sample of the next part */
	double work_ns;
	struct fal_clock_pace pace;
};

/* Returns the part of task `t` that begins at sample `first`. */
static struct task_part
task_part_from(const struct fal_emul *e, const struct fal_emul_task *t, uint64_t first)
{
	const uint64_t n = e->clock != 0 ? first / e->clock : 0;
	struct task_part p = { t->first + t->samples, t->work_ns, fal_emul_pace(e, n) };
	if (t->samples == 0 || e->clock == 0 || first % e->clock != 0)
		p.pace.pause_ns = 0;
	if (t->samples == 0)
		return p;
	if (e->clock != 0 && (n + 1) * e->clock < p.end)
		p.end = (n + 1) * e->clock;
	p.work_ns *= (double)(p.end - first) / t->samples;
	return p;
}

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
		const struct task_part p = task_part_from(e, t, first);
		const uint64_t room = stop > now ? stop - now : 0;
		const uint64_t pause = p.pace.pause_ns < room ? p.pace.pause_ns : room;
		left = p.work_ns * p.pace.slow;
		const uint64_t end = work_end(e, now + pause, stop, &left);
		if (is_recorded && pause > 0)
			record_work(e, now, now + pause, 0);
		if (is_recorded)
			record_work(e, now + pause, end, 1 / p.pace.slow);
		now = end;
		const double done = 1 - left / (p.work_ns * p.pace.slow);
		first += (uint64_t)ceil((double)(p.end - first) * done);
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
fal_emul_start(const struct fal_emulated *before, uint64_t now, uint64_t *regained)
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

static int
parse_speeds(const char *path, char *text, struct fal_speeds *s, struct fal_diag *diag)
{
	unsigned number = 0;
	for (char *rest = text; rest != NULL;) {
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
			why = parse_speed_line(s, line, &bad);
		if (why != NULL)
			return fal_diag_set(diag, FAL_EFORMAT, "%s:%u: '%s' %s", path,
					    number, FAL_QUOTE(bad), why);
	}
	if (s->n == 0)
		return fal_diag_set(diag, FAL_EFORMAT, "%s: no line with a speed", path);
	return FAL_OK;
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
	if (err == FAL_OK)
		err = parse_speeds(path, (char *)text.p, &s, diag);
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
	size_t low = 0, high = s->n; /* the line for `at` is in low … high-1 */
	while (high - low > 1) {
		const size_t mid = low + (high - low) / 2;
		if (s->v[mid].t <= at)
			low = mid;
		else
			high = mid;
	}
	uint64_t until = UINT64_MAX;
	if (low + 1 < s->n)
		until = base + s->v[low + 1].t;
	else if (s->loop != 0)
		until = base + s->loop;
	return (struct fal_speed){ s->v[low].speed, until };
}

void
fal_speeds_write(FILE *f, uint64_t t, double speed)
{
	fprintf(f, "%ju.%09ju %.9g\n", t / 1000000000, t % 1000000000, speed);
}

/* --- the link -------------------------------------------------------------------- */

static uint64_t
emul_delay_ns(void *arg, uint64_t now)
{
	const struct fal_emul *e = arg;
	const struct fal_pattern *p = &e->pattern[FAL_PATTERN_NETWORK];
	uint64_t ns = e->latency_ns;
	if (p->on && e->origin != 0 && now >= e->origin)
		ns += fal_pattern_delay(p, &e->machine, now - e->origin);
	return ns;
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
