/* The audit across lines: the workers that joined, the tasks that have ended, the rounds
 * that make versions, the scheme that holds. */
#include "trace/audit.h"

#include "base/mem.h"
#include "trace/audit_priv.h"
#include "wire/block_map.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TWICE = 2 };

/* Most results that are not finite and wait for the ends of their tasks. */
enum { WAITING_MAX = 1 << 16 };

/* ---- findings ------------------------------------------------------------------------
 */

/* Bytes of a text; room behind it for how many more there are of its kind. */
enum { TEXT = 400, MORE = 48 };

static void __attribute__((format(printf, 3, 0)))
finding_add(struct fal_findings *f, const char *of, const char *fmt, va_list ap)
{
	size_t i = 0;
	f->n++;
	while (i < f->kinds && f->kind[i].fmt != fmt)
		i++;
	if (i == f->kinds) {
		FAL_XGROW(f->kind, f->kind_cap, i + 1);
		f->kind[f->kinds++] = (struct fal_findings_kind){ .fmt = fmt };
	}
	if (f->kind[i].n++ >= FAL_FINDINGS_KIND_MAX)
		return;
	char *text = fal_xcalloc(1, TEXT + MORE);
	const size_t at = (size_t)snprintf(text, TEXT, "%s", of);
	vsnprintf(text + at, TEXT - at, fmt, ap);
	FAL_XGROW(f->text, f->cap, f->n_text + 1);
	f->kind[i].last = f->n_text;
	f->text[f->n_text++] = text;
}

void
fal_finding(struct fal_findings *f, const struct fal_trace_round *r, uint64_t first,
	    uint64_t count, const char *fmt, ...)
{
	char of[FAL_TRACE_ROUND_NAME + 64] = "", name[FAL_TRACE_ROUND_NAME];
	int at = 0;
	if (r != NULL)
		at = snprintf(of, sizeof(of), "%s: ", fal_trace_round_name(r, name));
	if (count == 1)
		snprintf(of + at, sizeof(of) - (size_t)at, "task %ju: ", first);
	else if (count > 1)
		snprintf(of + at, sizeof(of) - (size_t)at, "tasks %ju-%ju: ", first,
			 first + count - 1);
	va_list ap;
	va_start(ap, fmt);
	finding_add(f, of, fmt, ap);
	va_end(ap);
}

static void __attribute__((format(printf, 3, 4)))
finding_line(struct fal_audit *a, const struct fal_trace_line *l, const char *fmt, ...)
{
	char of[32];
	snprintf(of, sizeof(of), "line %ju: ", l->number);
	va_list ap;
	va_start(ap, fmt);
	finding_add(&a->f, of, fmt, ap);
	va_end(ap);
}

void
fal_audit_found(struct fal_audit *a, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	finding_add(&a->f, "", fmt, ap);
	va_end(ap);
}

/* The last text of each kind tells how many more there are. */
static void
findings_end(struct fal_findings *f)
{
	for (size_t i = 0; i < f->kinds; i++)
		if (f->kind[i].n > FAL_FINDINGS_KIND_MAX)
			snprintf(strchr(f->text[f->kind[i].last], '\0'), MORE,
				 ", and %ju more of this kind",
				 f->kind[i].n - FAL_FINDINGS_KIND_MAX);
}

/* ---- the audit -----------------------------------------------------------------------
 */

struct fal_audit *
fal_audit_new(void)
{
	struct fal_audit *a = fal_xcalloc(1, sizeof(*a));
	a->told.job = &a->job;
	a->told.link = a->v.link = a->chain.link;
	a->told.evals = &a->v.evals;
	a->told.sums = &a->v.sums;
	return a;
}

void
fal_audit_demand(struct fal_audit *a, unsigned demands)
{
	a->demands = demands;
	a->rules.all_said = (demands & FAL_AUDIT_PARTS) != 0;
}

void
fal_audit_free(struct fal_audit *a)
{
	if (a == NULL)
		return;
	for (size_t i = 0; i < a->f.n_text; i++)
		free(a->f.text[i]);
	free(a->f.text);
	free(a->f.kind);
	for (size_t i = 0; i < a->people.keys; i++) {
		free(a->people.key[i].name);
		free(a->people.key[i].fingerprint);
	}
	free(a->people.key);
	for (size_t i = 0; i < a->people.n; i++) {
		free(a->people.v[i].name);
		fal_intervals_free(&a->people.v[i].seqs);
	}
	free(a->people.v);
	fal_ids_free(&a->people.ids);
	json_decref(a->people.names);
	fal_trace_place_free(&a->place);
	for (uint64_t p = 0; a->part != NULL && p < a->job.grid.parts; p++)
		fal_intervals_free(&a->part[p]);
	free(a->part);
	fal_intervals_free(&a->rounds);
	free(a->rules.slot);
	free(a->rules.push);
	free(a->nonfinite);
	free(a->v.evals.all);
	free(a->waiting);
	free(a);
}

/* ---- who is there --------------------------------------------------------------------
 */

struct person *
fal_audit_person(const struct fal_audit *a, uint64_t id)
{
	const size_t *at = fal_ids_get(&a->people.ids, id);
	return at != NULL ? &a->people.v[*at] : NULL;
}

static void
line_fail(struct fal_trace_line *l, int err)
{
	fal_trace_fail(l, err, "%s", fal_strerror(err));
}

bool
fal_audit_span(struct fal_trace_line *l, struct fal_intervals *s, uint64_t begin,
	       uint64_t end, uint64_t *twice)
{
	const int was = fal_intervals_add(s, begin, end, twice);
	if (was < 0)
		line_fail(l, was);
	return was == 1;
}

static bool
is_here(const struct fal_audit *a, uint64_t id)
{
	const struct person *is = fal_audit_person(a, id);
	return is != NULL && is->here;
}

/* The key of the worker, from 1; 0: unknown. */
static size_t
key_of(const struct fal_audit *a, uint64_t id)
{
	const struct person *is = fal_audit_person(a, id);
	return is != NULL ? is->key : 0;
}

/* The place of a key, and 1; keys of the same name or fingerprint are one. */
static size_t
add_key(struct fal_audit *a, const char *name, const char *fingerprint)
{
	for (size_t i = 0; i < a->people.keys; i++)
		if (strcmp(a->people.key[i].name, name) == 0 ||
		    strcmp(a->people.key[i].fingerprint, fingerprint) == 0)
			return i + 1;
	FAL_XGROW(a->people.key, a->people.key_cap, a->people.keys + 1);
	a->people.key[a->people.keys] =
		(struct person_key){ fal_xstrdup(name), fal_xstrdup(fingerprint), 0 };
	return ++a->people.keys;
}

static bool
is_other_here(const struct fal_audit *a, size_t key)
{
	for (size_t i = 0; i < a->people.n; i++)
		if (a->people.v[i].here && a->people.v[i].key != key)
			return true;
	return false;
}

static void
take_join(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_ev_join *e = &l->is.join;
	struct person is = { .here = true, .joined = l->t, .oldest = a->version };
	size_t last;
	if (e->key != NULL && e->key_fingerprint != NULL)
		is.key = add_key(a, e->key, e->key_fingerprint);
	if (fal_ids_get(&a->people.ids, e->id) != NULL) {
		finding_line(a, l, "worker %u joined before", e->id);
		return;
	}
	if (fal_names_get(&a->people.names, e->worker, &last) && a->people.v[last].here)
		finding_line(a, l, "worker %u joined as %.64s, who is here", e->id,
			     e->worker);
	if (is.key != 0 && a->people.key[is.key - 1].charges >= TWICE &&
	    is_other_here(a, is.key))
		finding_line(a, l, "worker %u joined by a key that was charged twice",
			     e->id);
	FAL_XGROW(a->people.v, a->people.cap, a->people.n + 1);
	is.name = fal_xstrdup(e->worker);
	fal_names_put(&a->people.names, e->worker, a->people.n);
	fal_ids_put(&a->people.ids, e->id, a->people.n);
	a->people.v[a->people.n++] = is;
}

/* Whoever was charged twice must be gone, before anything but a clock line. */
static void
judge_charged(struct fal_audit *a, const struct fal_trace_line *l)
{
	if (a->people.leaves == 0)
		return;
	finding_line(a, l, "worker %u was charged twice, but did not leave",
		     a->people.leaves);
	a->people.leaves = 0;
}

static void
take_charge(struct fal_audit *a, struct fal_trace_line *l)
{
	struct person *is = fal_audit_person(a, l->id);
	a->v.charges++;
	if (is == NULL) {
		finding_line(a, l, "worker %u was charged, but never joined", l->id);
		return;
	}
	if (is->key != 0)
		a->people.key[is->key - 1].charges++;
	if (++is->charges >= TWICE && is->here)
		a->people.leaves = l->id;
}

static void
take_group(struct fal_audit *a, struct fal_trace_line *l)
{
	if (!is_here(a, l->id))
		finding_line(a, l, "group: worker %u is not here", l->id);
}

/* suspect and back take turns, and name the times that their lines have. */
static void
take_late(struct fal_audit *a, struct fal_trace_line *l)
{
	static const double rounding = 1e-3; /* seconds */
	const bool back = l->event == FAL_EV_BACK;
	const double seconds = back ? l->is.back.seconds : l->is.suspect.seconds;
	struct person *is = fal_audit_person(a, l->id);
	const char *what = NULL;
	a->v.suspects += !back;
	if (is == NULL || !is->here)
		what = "is not here";
	else if (is->suspect != back)
		what = back ? "was no suspect" : "was one already";
	else if (!back && seconds > l->t - is->joined + rounding)
		what = "joined later than it was to work";
	else if (back && fabs(seconds - (l->t - is->since)) > rounding)
		what = "was one for another time";
	if (what != NULL)
		finding_line(a, l, "%s: worker %u %s", l->ev, l->id, what);
	if (is != NULL) {
		is->suspect = !back;
		is->since = l->t;
	}
}

/* ---- a worker's two accounts of its work ---------------------------------------------
 */

/* Figures come when a round has ended, and all that are due when the worker leaves or the
 * job is done.  So what they add up to lies, then, between the rounds that have ended and
 * these with those that were open or abandoned.  The clock lines of shared rounds count
 * up by one, up to the last one for whoever is here when the job is done: who has none of
 * that is gone, and its `leave` is missing. */
enum { ALL = (1 << FAL_FIGURES) - 1 };

void
fal_audit_count(struct fal_audit *a, const struct fal_trace_round *r, uint64_t id,
		enum fal_figure what, uint64_t tasks, bool maybe)
{
	struct person *is = fal_audit_person(a, id);
	/* Lines of updates may be late, too, by as many as are under way. */
	const uint64_t early =
		1 + a->rules.rule.slack + (a->rules.is.shared ? 0 : a->people.n);
	if (is == NULL)
		return;
	(maybe || r->end == FAL_END_ABANDONED ? is->maybe : is->sure)[what] += tasks;
	if (!is->here && is->newest + early < r->version)
		fal_finding(&a->f, r, 0, 0,
			    "worker %ju left when version %ju was the newest", id,
			    is->newest);
}

static void
take_clock(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_ev_clock *e = &l->is.clock;
	const uint64_t figure[FAL_FIGURES] = { e->share, e->done,   e->in,
					       e->out,   e->cloned, e->lost };
	const bool gappy = !a->plain || a->accounts.lost;
	struct person *is = fal_audit_person(a, l->id);
	if (a->plain && e->staleness > a->rules.rule.slack)
		finding_line(a, l, "clock: staleness is %ju with a slack of %u",
			     e->staleness, a->rules.rule.slack);
	if (is == NULL || !is->here)
		finding_line(a, l, "clock: worker %u is not here", l->id);
	if (is == NULL)
		return;
	for (size_t i = 0; i < FAL_FIGURES; i++)
		is->told[i] += figure[i];
	/* The first line counts seconds before the join, too. */
	if (is->begun)
		is->spent += e->compute + e->push + e->pull + e->wait;
	is->begun = true;
	const double here = l->t - is->joined;
	/* Worker and coordinator measure by different clocks. */
	if (is->spent > here + 1 + here / 100)
		finding_line(a, l,
			     "clock: worker %u was here for %.3f s, but spent %.3f s",
			     l->id, here, is->spent);
	if (e->round != FAL_TRACE_ABSENT)
		return;
	if (!gappy && is->due != 0 && e->clock != is->due)
		finding_line(a, l,
			     "clock: worker %u tells of clock %ju, but clock %ju is next",
			     l->id, e->clock, is->due);
	is->due = e->clock + 1;
}

/* The figures that must all have been told when the job is done.  Where a step is ordered
 * before its round is complete, claims may come behind it; and an account, behind which
 * another scheme leaves nothing to be told. */
static unsigned
due_figures(const struct fal_audit *a)
{
	if (a->accounts.loose)
		return 0;
	if (a->accounts.ahead && (!a->plain || a->accounts.lost))
		return 1U << FAL_FIGURE_SHARE;
	return a->accounts.ahead ? ALL & ~(1U << FAL_FIGURE_DONE) : ALL;
}

/* The clock lines of the worker have at least the ledger's sums of the figures in `least`
 * and, if `most`, of no figure more than the ledger has. */
static void
judge_told(struct fal_audit *a, const struct fal_trace_line *l, uint32_t id,
	   unsigned least, bool most)
{
	static const char *const names[] = { "share", "done",   "in",
					     "out",   "cloned", "lost" };
	const struct person *is = fal_audit_person(a, id);
	for (size_t i = 0; i < FAL_FIGURES; i++) {
		const uint64_t all = is->sure[i] + is->maybe[i];
		const bool must = (least >> i & 1) != 0;
		if ((!must || is->told[i] >= is->sure[i]) &&
		    (!most || is->told[i] <= all))
			continue;
		finding_line(
			a, l,
			"%s: worker %u: %s is %ju in its clock lines, %ju in the ledger",
			l->ev, id, names[i], is->told[i],
			is->told[i] < all ? is->sure[i] : all);
	}
}

static void
take_leave(struct fal_audit *a, struct fal_trace_line *l)
{
	struct person *is = fal_audit_person(a, l->id);
	if (l->id == a->people.leaves)
		a->people.leaves = 0;
	else
		judge_charged(a, l);
	if (is == NULL || !is->here)
		finding_line(a, l, "worker %u left, but is not here", l->id);
	if (is == NULL)
		return;
	is->here = false;
	is->newest = a->version;
	const unsigned due = due_figures(a);
	if ((a->demands & FAL_AUDIT_CLOCKS) != 0)
		judge_told(a, l, l->id,
			   a->accounts.ahead ? due & 1U << FAL_FIGURE_SHARE : due, false);
}

/* The job is done: every worker has written its last clock line. */
static void
judge_accounts(struct fal_audit *a, const struct fal_trace_line *l)
{
	for (size_t i = 0; i < a->people.ids.n; i++) {
		const uint32_t id = a->people.ids.v[i].id;
		const struct person *is = fal_audit_person(a, id);
		judge_told(a, l, id, is->here ? due_figures(a) : 0, !a->accounts.lost);
		/* All are asked for their last line when the last round is complete: then
		 * its version was told of.  Who came behind that may have come too late.
		 */
		const bool late = is->due == 0 && is->oldest >= a->accounts.ran_on;
		if (is->here && a->plain && !a->accounts.lost &&
		    is->due != a->job.clocks && !late)
			finding_line(a, l, "done: worker %u has no line of clock %ju", id,
				     is->due > 0 ? is->due : a->job.clocks - 1);
	}
}

/* ---- which tasks have ended ----------------------------------------------------------
 */

/* The tasks that part p has in all clocks before `clock`: only the last of an epoch
 * differs from the others. */
static uint64_t
part_before(const struct fal_audit *a, uint32_t p, uint64_t clock)
{
	const uint64_t n = a->job.clocks_per_epoch;
	uint64_t width[2];
	for (uint64_t i = 0; i < 2; i++) {
		const uint64_t of = i * (n - 1);
		width[i] = fal_grid_part(&a->job.grid, of, p + 1) -
			   fal_grid_part(&a->job.grid, of, p);
	}
	return clock / n * ((n - 1) * width[0] + width[1]) + clock % n * width[0];
}

/* The job has no more tasks than can be counted. */
static void
cover_limit(const struct fal_audit *a, struct fal_trace_line *l)
{
	if (a->job.clocks > INT64_MAX / fal_grid_tasks(&a->job.grid, 0))
		line_fail(l, FAL_ELIMIT);
}

/* The tasks of the round have ended.  Had some ended before, *twice being the first of
 * them? */
static bool
cover_add(struct fal_audit *a, struct fal_trace_line *l, const struct fal_trace_round *r,
	  uint64_t *twice)
{
	const struct fal_grid *g = &a->job.grid;
	const uint64_t end_of = r->first + r->tasks;
	bool overlap = false;
	for (uint32_t p = fal_grid_part_of(g, r->clock, (uint32_t)r->first);
	     p < g->parts && fal_grid_part(g, r->clock, p) < end_of; p++) {
		const uint64_t from = fal_grid_part(g, r->clock, p);
		const uint64_t to = fal_grid_part(g, r->clock, p + 1);
		uint64_t base = part_before(a, p, r->clock), at;
		uint64_t begin = r->first > from ? r->first : from;
		uint64_t end = end_of < to ? end_of : to;
		if (begin >= end || !fal_audit_span(l, &a->part[p], base + begin - from,
						    base + end - from, &at))
			continue;
		*twice = overlap ? *twice : at - base + from;
		overlap = true;
	}
	return overlap;
}

/* The clock that has place `at` of part p. */
static uint64_t
clock_at(const struct fal_audit *a, uint32_t p, uint64_t at)
{
	const uint64_t n = a->job.clocks_per_epoch, epoch = part_before(a, p, n);
	const uint64_t clock = n > 1 ? part_before(a, p, 1) : 0, rest = at % epoch;
	const bool last = clock == 0 || rest / clock >= n - 1;
	return at / epoch * n + (last ? n - 1 : rest / clock);
}

/* The first clock that has a task that has not ended, and the first such task; false:
 * there is none. */
static bool
cover_gap(const struct fal_audit *a, uint64_t *clock, uint64_t *task)
{
	bool found = false;
	for (uint32_t p = 0; p < a->job.grid.parts; p++) {
		uint64_t at = fal_intervals_gap(&a->part[p]);
		if (at >= part_before(a, p, a->job.clocks))
			continue;
		uint64_t k = clock_at(a, p, at);
		if (found && k >= *clock)
			continue;
		*clock = k;
		*task = fal_grid_part(&a->job.grid, k, p) + at - part_before(a, p, k);
		found = true;
	}
	return found;
}

/* ---- the job and its scheme ----------------------------------------------------------
 */

/* Another scheme begins when nothing of the one before is under way. */
static void
take_scheme(struct fal_audit *a, struct fal_trace_line *l, const char *text)
{
	struct fal_rule rule;
	if (fal_trace_scheme_read(l, text, &rule) < 0)
		return;
	if (strcmp(text, a->text) == 0)
		return;
	if (a->n_waiting > 0)
		fal_finding(&a->f, &a->waiting[0], 0, 0,
			    "no update before the scheme changes");
	a->n_waiting = 0;
	const struct fal_traits is = fal_rule_traits(&rule);
	a->plain = a->plain && is.shared;
	a->delayed = a->delayed || is.delay > 0;
	a->accounts.ahead = a->accounts.ahead || is.shared;
	a->accounts.loose = a->accounts.loose || (!is.shared && (is.groups || is.moves));
	snprintf(a->text, sizeof(a->text), "%s", text);
	a->rules.rule = rule;
	a->rules.is = is;
	a->rules.base = a->version;
	a->rules.applied = a->rules.newest = 0;
	a->rules.slots = 0;
}

static void
take_policy(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_ev_policy *e = &l->is.policy;
	if (e->version != a->version)
		finding_line(a, l, "policy: version is %ju, not %ju", e->version,
			     a->version);
	if (!a->policy && strcmp(e->scheme, a->text) != 0)
		finding_line(a, l, "policy: the job does not begin with %.64s",
			     e->scheme);
	a->policy = true;
	take_scheme(a, l, e->scheme);
}

/* A copy of the text, "" where there is none. */
#define TELL(to, text) snprintf((to), sizeof(to), "%s", (text) != NULL ? (text) : "")

static void
take_job(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_ev_job *e = &l->is.job;
	a->plain = true;
	a->told.loss = a->told.trained = (double)NAN;
	take_scheme(a, l, e->scheme);
	if (l->err < 0 || fal_trace_job_read(l, &a->job) < 0)
		return;
	a->have_job = true;
	a->group = e->above != NULL && e->above[0] != '\0';
	if (a->group) { /* clocks are another's */
		a->plain = false;
		a->accounts.loose = true;
	}
	TELL(a->told.above, e->above);
	TELL(a->told.hash, e->hash);
	TELL(a->told.model, e->model);
	TELL(a->told.data, e->data);
	TELL(a->told.from, e->from);
	TELL(a->told.name, e->name);
	TELL(a->told.seed, e->seed);
	TELL(a->told.optimizer, e->optimizer);
	cover_limit(a, l);
	a->part = fal_xcalloc(a->job.grid.parts, sizeof(*a->part));
}

/* The same job goes on, perhaps with more epochs, or as another part, with other files.
 */
static void
take_restart(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_ev_restart *e = &l->is.restart;
	const struct {
		const char *name, *is;
		char *told;
	} of[] = { { "hash", e->hash, a->told.hash },
		   { "model", e->model, a->told.model },
		   { "data", e->data, a->told.data },
		   { "from", e->from, a->told.from } };
	const uint32_t epochs = a->job.grid.epochs;
	/* The figures that workers had sent to the coordinator before are lost with it;
	 * shard lines and maps begin again with each incarnation. */
	a->accounts.loose = a->accounts.lost = true;
	a->place.map = 0;
	memset(&a->shards, 0, sizeof(a->shards));
	if (!a->have_job || fal_trace_job_restart(l, &a->job) < 0)
		return;
	a->told.resumed = true;
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		char is[sizeof(a->told.hash)];
		TELL(is, of[i].is);
		if (e->accepted == NULL && !(i == 0 && a->job.grid.epochs > epochs) &&
		    strcmp(is, of[i].told) != 0)
			finding_line(a, l, "restart: %s is of another job", of[i].name);
		memcpy(of[i].told, is, sizeof(is));
	}
	if (e->accepted != NULL) {
		a->v.parts++;
		a->v.part_clock = e->clock;
		TELL(a->v.part, e->accepted);
	}
	cover_limit(a, l);
}

/* ---- shards --------------------------------------------------------------------------
 */

/* Is the map as even as it says? */
static void
judge_even(struct fal_audit *a, const struct fal_trace_line *l)
{
	const struct fal_trace_place *p = &a->place;
	uint32_t b = 0, shard = 0;
	for (uint32_t i = 0; i < p->places; i++) {
		const uint32_t first = b,
			       end = fal_map_first(p->blocks, p->places, i + 1);
		for (; b < end; b++) {
			if (p->shard[b] == shard)
				continue;
			finding_line(a, l,
				     "place: block %u is on shard %u; by the rule blocks "
				     "it is on %u",
				     b, p->shard[b] + 1, shard + 1);
			return;
		}
		shard += b > first;
	}
}

/* Each map has the next number, or that of a later move, and one by the rule `blocks` is
 * even. */
static void
take_place(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_trace_place *p = &a->place;
	const uint64_t next = p->map + 1;
	if (fal_trace_place_read(l, &a->job, &a->place) < 0)
		return;
	const bool moved = strcmp(p->rule, FAL_TRACE_MOVED) == 0;
	/* Moves that never were have numbers, too. */
	if (moved ? p->map < next : p->map != next)
		finding_line(a, l, "place: map %ju, not %ju", p->map, next);
	if (strcmp(p->rule, FAL_TRACE_BLOCKS) == 0)
		judge_even(a, l);
	else if (!moved && strcmp(p->rule, FAL_TRACE_FILE) != 0)
		finding_line(a, l, "place: no rule is called %s", p->rule);
}

/* Shard lines come in sets, one of each shard in order, each set of a later clock;
 * together they have all blocks, each as many as the last place line says. */
static void
take_shard(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_ev_shard *e = &l->is.shard;
	const bool first = a->shards.next == 0, mapped = a->place.map > 0;
	uint64_t placed = 0;
	if (fal_trace_shard_check(l, &a->job) < 0)
		return;
	if (e->shard != a->shards.next + 1)
		finding_line(a, l, "shard: it is of %ju, but %ju is next", e->shard,
			     a->shards.next + 1);
	else if (first ? e->clock < a->shards.over : e->clock + 1 != a->shards.over)
		finding_line(a, l, "shard: clock %ju behind that of clock %ju", e->clock,
			     a->shards.over - 1);
	if (e->version > a->version)
		finding_line(a, l, "shard: version is %ju, but %ju is the newest",
			     e->version, a->version);
	for (uint32_t b = 0; mapped && b < a->place.blocks; b++)
		placed += a->place.shard[b] + 1 == e->shard;
	if (mapped && e->blocks != placed)
		finding_line(a, l, "shard: blocks is %ju, but it has %ju", e->blocks,
			     placed);
	if (e->blame > l->t || e->took > l->t)
		finding_line(a, l, "shard: workers waited longer than the job runs");
	a->shards.over = e->clock + 1;
	a->shards.blocks = first ? e->blocks : a->shards.blocks + e->blocks;
	const bool last =
		mapped ? e->shard >= a->place.shards : a->shards.blocks >= a->job.blocks;
	a->shards.next = last ? 0 : e->shard;
	if (last && a->shards.blocks != a->job.blocks)
		finding_line(a, l, "shard: all of them have %ju blocks, not %ju",
			     a->shards.blocks, a->job.blocks);
}

/* Unlike results of a task, of two keys. */
static void
take_verify(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_ev_word *w = l->is.verify.words.v;
	if (l->is.verify.words.n != 2) {
		fal_trace_fail(l, FAL_EFORMAT, "words: not two");
		return;
	}
	for (size_t i = 0; i < 2; i++)
		if (fal_audit_person(a, w[i].id) == NULL)
			finding_line(a, l, "verify: worker %u never joined", w[i].id);
	const size_t key = key_of(a, w[0].id);
	if (w[0].id == w[1].id || (key != 0 && key == key_of(a, w[1].id)))
		finding_line(a, l, "verify: two words of one key");
	if (strcmp(w[0].hash, w[1].hash) == 0)
		finding_line(a, l, "verify: the words say the same");
	a->v.unlike++;
}

/* ---- tasks without a finite result ---------------------------------------------------
 */

/* The worker must be here, and the job have the task. */
static void
take_nonfinite(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct nonfinite is = { l->is.nonfinite.clock, l->is.nonfinite.task };
	const char *what = NULL;
	if (is.clock >= a->job.clocks ||
	    is.task >= fal_grid_tasks(&a->job.grid, is.clock))
		what = "the job has no such task";
	else if (!is_here(a, l->id))
		what = "it is not here";
	if (what != NULL)
		finding_line(a, l, "%s: worker %u of task %ju of clock %ju: %s", l->ev,
			     l->id, is.task, is.clock, what);
	a->v.nonfinite++;
	if (a->nonfinites == WAITING_MAX) {
		fal_trace_fail(l, FAL_ELIMIT, "more than %d wait for their tasks",
			       WAITING_MAX);
		return;
	}
	FAL_XGROW(a->nonfinite, a->nonfinite_cap, a->nonfinites + 1);
	a->nonfinite[a->nonfinites++] = is;
}

static int
nonfinite_order(const void *a, const void *b)
{
	const struct nonfinite *x = a, *y = b;
	return x->clock != y->clock ? (x->clock > y->clock) - (x->clock < y->clock)
				    : (x->task > y->task) - (x->task < y->task);
}

/* Was the result of the task not finite twice?  They are sorted. */
static bool
is_twice(const struct fal_audit *a, const struct nonfinite *is)
{
	const struct nonfinite *first = a->nonfinite, *at = NULL;
	if (a->nonfinites > 0)
		at = bsearch(is, first, a->nonfinites, sizeof(*is), nonfinite_order);
	return at != NULL &&
	       ((at > first && nonfinite_order(at - 1, is) == 0) ||
		(at + 1 < first + a->nonfinites && nonfinite_order(at + 1, is) == 0));
}

/* The round has ended: what it skipped was not finite twice. */
static void
judge_nonfinite(struct fal_audit *a, struct fal_numbers skipped,
		const struct fal_trace_round *r)
{
	size_t kept = 0;
	if (skipped.n > 0 && a->nonfinites > 0)
		qsort(a->nonfinite, a->nonfinites, sizeof(*a->nonfinite),
		      nonfinite_order);
	for (size_t i = 0; i < skipped.n; i++) {
		const uint64_t *row = skipped.v + 2 * i;
		struct nonfinite is = { .clock = r->clock, .task = row[0] };
		const uint64_t end = row[0] + (row[1] < r->tasks ? row[1] : r->tasks);
		while (is.task < end && is_twice(a, &is))
			is.task++;
		if (is.task < end)
			fal_finding(&a->f, r, is.task, 1,
				    "skipped, but no two results of it were not finite");
	}
	for (size_t i = 0; i < a->nonfinites; i++) {
		const struct nonfinite is = a->nonfinite[i];
		if (is.clock != r->clock || is.task < r->first ||
		    is.task - r->first >= r->tasks || r->end == FAL_END_ABANDONED)
			a->nonfinite[kept++] = is;
	}
	a->nonfinites = kept;
}

/* ---- rounds --------------------------------------------------------------------------
 */

/* Is the round the next one of a plain job, or, if not, could it be?  A later one than
 * the one that is due counts those between as missing. */
static bool
is_due(struct fal_audit *a, struct fal_trace_round *r)
{
	const uint64_t tasks = fal_grid_tasks(&a->job.grid, r->clock);
	if (r->clock < a->due || r->round != r->clock) {
		fal_finding(&a->f, r, 0, 0,
			    r->round != r->clock ? "it is not the round of its clock"
						 : "ledger again, or out of order");
		return false;
	}
	if (r->clock > a->due)
		fal_audit_found(a, "clock %ju: no ledger before that of clock %ju",
				a->due, r->clock);
	if (r->first != 0 || r->tasks != tasks)
		fal_finding(&a->f, r, 0, 0,
			    r->first == 0 ? "tasks is %ju, not %ju"
					  : "first is %ju, not 0",
			    r->first == 0 ? r->tasks : r->first, tasks);
	a->rules.applied += r->clock - a->due;
	a->due = r->clock + 1;
	r->first = 0;
	r->tasks = tasks;
	return true;
}

/* Is the round one that may come now, with tasks that its clock has? */
static bool
may_come(struct fal_audit *a, struct fal_trace_round *r)
{
	if (r->clock >= a->job.clocks) {
		fal_finding(&a->f, r, 0, 0, "ledger: the job has %ju clocks",
			    a->job.clocks);
		return false;
	}
	if (fal_trace_round_is_complete(r) && (r->end == FAL_END_GIVEN) != a->group) {
		fal_finding(&a->f, r, 0, 0,
			    a->group ? "applied, but the versions are made above"
				     : "given, but there is nobody above");
		return false;
	}
	if (a->plain && r->end != FAL_END_ABANDONED)
		return is_due(a, r);
	a->plain = false;
	const uint64_t tasks = fal_grid_tasks(&a->job.grid, r->clock);
	if (r->tasks == 0 || r->first >= tasks || r->tasks > tasks - r->first) {
		fal_finding(&a->f, r, r->first, r->tasks, "the clock has tasks 0-%ju",
			    tasks - 1);
		return false;
	}
	if (a->rules.is.shared && !a->group && r->round < a->last_round)
		fal_finding(&a->f, r, 0, 0, "it ended after round %ju", a->last_round);
	return true;
}

/* No round before had its number, nor, if it is not abandoned, its tasks. */
static void
judge_once(struct fal_audit *a, struct fal_trace_line *l, const struct fal_trace_round *r)
{
	uint64_t twice;
	if (fal_audit_span(l, &a->rounds, r->round, r->round + 1, &twice))
		fal_finding(&a->f, r, 0, 0, "ledger again, or out of order");
	/* Above they may have been asked for again: there the ledger is. */
	if (r->end != FAL_END_ABANDONED && !a->group && cover_add(a, l, r, &twice))
		fal_finding(&a->f, r, twice, 1, "it ended in an earlier round, too");
}

/* The numbers that the job line demands. */
static void
judge_head(struct fal_audit *a, const struct fal_ev_ledger *e, struct fal_trace_round *r)
{
	const uint64_t samples = fal_trace_round_samples(r, e->skipped, &a->job);
	if (r->samples != samples)
		fal_finding(&a->f, r, 0, 0, "samples is %ju, not %ju", r->samples,
			    samples);
	if (r->blocks != a->job.blocks)
		fal_finding(&a->f, r, 0, 0, "blocks is %ju, not %ju", r->blocks,
			    a->job.blocks);
	if (r->owner != 0 && fal_audit_person(a, r->owner) == NULL)
		fal_finding(&a->f, r, 0, 0, "owner: worker %u never joined", r->owner);
	r->samples = samples;
}

/* A fraction of slack: where the tasks of the round begin that ran on the next version.
 * None does in the rule's first clock. */
static void
judge_late(struct fal_audit *a, const struct fal_trace_round *r)
{
	const struct fal_rule *rule = &a->rules.rule;
	const struct fal_grid *g = &a->job.grid;
	uint64_t want = FAL_TRACE_ABSENT;
	if (rule->of > 0 && a->rules.applied > 0)
		want = fal_grid_within(g, r->clock,
				       (uint64_t)fal_grid_samples(g, r->clock) *
					       rule->early / rule->of);
	if (r->late == want)
		return;
	if (want == FAL_TRACE_ABSENT)
		fal_finding(&a->f, r, 0, 0, "late is %ju, but there is no such task",
			    r->late);
	else
		fal_finding(&a->f, r, 0, 0,
			    r->late == FAL_TRACE_ABSENT ? "no late; it is %ju"
							: "late is not %ju",
			    want);
}

/* Blocks that an update, or a change of weights, has left as they were. */
static void
judge_unstepped(struct fal_audit *a, const struct fal_trace_line *l, uint64_t blocks)
{
	if (blocks > a->job.blocks)
		finding_line(a, l, "%ju of %ju blocks were not stepped", blocks,
			     a->job.blocks);
}

static void
take_ledger(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_ev_ledger *e = &l->is.ledger;
	struct fal_trace_round r = fal_trace_round_of(e);
	if (!may_come(a, &r))
		return;
	judge_once(a, l, &r);
	if (l->err < 0)
		return;
	judge_head(a, e, &r);
	judge_unstepped(a, l, e->unstepped);
	a->last_round = r.round;
	if (r.version > a->version)
		fal_finding(&a->f, &r, 0, 0, "version is %ju, but the newest is %ju",
			    r.version, a->version);
	if (!a->group && r.end == FAL_END_APPLIED)
		judge_late(a, &r);
	if (!a->group)
		fal_rules_round(&a->rules, &r, &a->f);
	if (r.end == FAL_END_APPLIED) {
		if (a->n_waiting == FAL_AUDIT_WAITING_MAX) {
			fal_trace_fail(l, FAL_ELIMIT,
				       "round: %zu wait for an update before it",
				       a->n_waiting);
			return;
		}
		FAL_XGROW(a->waiting, a->cap_waiting, a->n_waiting + 1);
		a->waiting[a->n_waiting++] = r;
	}
	judge_nonfinite(a, e->skipped, &r);
	a->v.samples_dropped += r.end == FAL_END_DROPPED ? r.samples : 0;
	a->v.samples_twice += fal_trace_round_duplicates(e, &a->job);
	a->accounts.ran_on = r.version;
	fal_judge_ledger(a, l, &r);
}

/* ---- versions ------------------------------------------------------------------------
 */

/* The round `number` becomes a part of the version: it is the first that waits, or the
 * first of its group. */
static void
take_round(struct fal_audit *a, struct fal_rules_update *u, uint64_t number)
{
	const bool by_group = a->rules.rule.rounds > 0;
	size_t at = 0, kept = 0;
	while (at < a->n_waiting && a->waiting[at].round != number)
		at++;
	if (at == a->n_waiting) {
		fal_audit_found(a,
				"version %ju: round %ju was not applied before, or twice",
				u->version, number);
		return;
	}
	const struct fal_trace_round r = a->waiting[at];
	char name[FAL_TRACE_ROUND_NAME];
	for (size_t i = 0; i < at; i++) {
		if (by_group && a->waiting[i].group != r.group)
			a->waiting[kept++] = a->waiting[i];
		else
			fal_finding(&a->f, &a->waiting[i], 0, 0,
				    "no update before that of %s",
				    fal_trace_round_name(&r, name));
	}
	a->n_waiting -= at + 1;
	memmove(a->waiting + kept, a->waiting + at + 1, a->n_waiting * sizeof(r));
	a->n_waiting += kept;
	u->clock = r.clock > u->clock ? r.clock : u->clock;
	u->tasks += u->last.tasks;
	u->last = r;
	u->samples += r.samples;
	u->local++;
	if (u->at == 0 || (u->line->groups > 0 && r.group != u->group)) {
		u->group = r.group;
		u->model = r.version;
		u->local = 1;
	}
	u->clock_samples = fal_grid_samples(&a->job.grid, r.clock) + r.samples -
			   fal_trace_range_samples(&a->job, r.clock, r.first, r.tasks);
	if (r.samples > 0)
		u->share += (double)r.samples / (double)u->clock_samples;
	fal_stale_add(&a->v.stale, &r, u->version);
	fal_rules_update_round(&a->rules, u, &a->f);
}

/* The hash that the line has of its version, into `out`; false: it has none. */
static bool
get_hash(struct fal_audit *a, struct fal_trace_line *l, const char *hash,
	 char out[static 65])
{
	snprintf(out, 65, "%s", hash != NULL ? hash : "");
	if (hash != NULL && a->job.hashes == 0)
		finding_line(a, l, "it has a hash, which the job has not");
	return hash != NULL;
}

static void
take_update(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_ev_update *e = &l->is.update;
	struct fal_rules_update u = { .line = e, .version = a->version + 1 };
	fal_rules_update(&a->rules, e);
	for (; u.at < e->rounds.n; u.at++)
		take_round(a, &u, e->rounds.v[u.at]);
	if (e->rounds.n == 0)
		fal_audit_found(a, "version %ju is made of no round", u.version);
	fal_rules_update_end(&a->rules, &u, &a->f);
	const struct {
		const char *name;
		uint64_t is, want;
	} of[] = { { "version", e->version, u.version },
		   { "clock", e->clock, u.clock },
		   { "samples", e->samples, u.samples },
		   { "epoch", e->epoch, fal_trace_job_epoch(&a->job, u.clock) } };
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++)
		if (of[i].is != of[i].want)
			fal_audit_found(a, "clock %ju: update: %s is %ju, not %ju",
					e->clock, of[i].name, of[i].is, of[i].want);
	judge_unstepped(a, l, e->unstepped);
	/* One version of so many has a hash, at least. */
	if (!get_hash(a, l, e->hash, a->hash) && a->job.hashes > 0 &&
	    e->version % a->job.hashes == 0)
		fal_audit_found(a, "version %ju: it has no hash", e->version);
	a->told.loss = e->loss;
	/* After a gap, go on from there. */
	a->version = e->version > u.version ? e->version : u.version;
}

/* A version came from above. */
static void
take_version(struct fal_audit *a, struct fal_trace_line *l)
{
	const uint64_t is = l->is.version.version;
	if (!a->group || is < a->version)
		finding_line(a, l,
			     a->group ? "version is %ju, but %ju came before"
				      : "version %ju came from above, where nobody is",
			     is, a->version);
	a->version = a->group && is > a->version ? is : a->version;
}

/* ---- evaluations ---------------------------------------------------------------------
 */

/* Written with all digits that a double has. */
static bool
is_equal(double a, double b)
{
	return fabs(a - b) <= 1e-12;
}

/* What is wrong with the numbers of an evaluation, or with its place; NULL: nothing. */
static const char *
eval_wrong(const struct fal_audit *a, const struct fal_ev_eval *e)
{
	const struct fal_evals *was = &a->v.evals;
	const double right = (double)e->right, total = (double)e->total;
	if (a->job.test > 0 && e->total != a->job.test)
		return "total is not the test samples of the job";
	if (e->right > e->total)
		return "right is more than total";
	if (!is_equal(e->accuracy, e->total > 0 ? right / total : 0))
		return "accuracy is not right / total";
	if (was->lines > 0 && e->version <= was->version)
		return "version is not after that of the last one";
	if (e->epoch > a->job.grid.epochs)
		return "the job has no such epoch";
	if (a->plain &&
	    (e->version == 0 || e->epoch != e->version / a->job.clocks_per_epoch))
		return "version is not of that epoch";
	return NULL;
}

/* Another key has run some test tasks of each key again, or was to. */
static void
judge_keys(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_ev_eval *e = &l->is.eval;
	const uint64_t want = (a->job.test + a->job.grid.task - 1) / a->job.grid.task;
	uint64_t tasks = 0;
	for (size_t i = 0; i < e->keys.n; i++) {
		const struct fal_ev_eval_key *k = &e->keys.v[i];
		if (k->tasks == 0 || k->twice > k->tasks ||
		    k->alone > k->tasks - k->twice) {
			fal_trace_fail(l, FAL_EINVAL, "keys: more than it has");
			return;
		}
		if (k->twice + k->alone == 0)
			finding_line(a, l,
				     "eval: nobody was to confirm what key %.64s said",
				     k->key);
		tasks += k->tasks;
		a->v.evals.twice += k->twice;
		a->v.evals.alone += k->alone;
	}
	a->v.evals.tasks += tasks;
	if (e->keys.v != NULL && tasks != want)
		finding_line(a, l, "eval: %ju test tasks, not %ju", tasks, want);
}

static void
take_eval(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_ev_eval *e = &l->is.eval;
	struct fal_evals *all = &a->v.evals;
	const char *what = eval_wrong(a, e);
	all->plain = a->plain;
	if (what != NULL)
		finding_line(a, l, "eval: %s", what);
	FAL_XGROW(all->all, a->evals_cap, (size_t)all->lines + 1);
	all->all[all->lines] = (struct fal_evaluation){ e->version, e->accuracy };
	/* Evaluations come every so many clocks, and at the end. */
	if (all->lines++ == 0)
		a->first_eval = e->version;
	if (a->plain && !a->delayed && a->odd_eval == 0 && a->first_eval > 0 &&
	    e->version % a->first_eval != 0)
		a->odd_eval = e->version;
	all->version = e->version;
	all->accuracy = e->accuracy;
	all->loss = e->loss;
	judge_keys(a, l);
}

/* The done line has the accuracy of the last evaluation. */
static void
judge_evals(struct fal_audit *a, const struct fal_trace_line *l)
{
	const struct fal_ev_done *e = &l->is.done;
	const struct fal_evals *all = &a->v.evals;
	const bool told = !isnan(e->accuracy);
	if (told != (all->lines > 0) || (told && !is_equal(e->accuracy, all->accuracy)))
		finding_line(a, l, "done: accuracy is not that of the last evaluation");
	if (a->odd_eval != 0 && a->odd_eval != e->version)
		finding_line(a, l, "done: version %ju was evaluated, and %ju at first",
			     a->odd_eval, a->first_eval);
	if (all->version > e->version)
		finding_line(a, l, "done: version %ju was evaluated", all->version);
}

/* ---- the end -------------------------------------------------------------------------
 */

/* The seconds of the result are some of the job's; t has 6 decimals. */
static void
judge_trained(struct fal_audit *a, const struct fal_trace_line *l, double trained)
{
	a->told.trained = trained;
	if (trained > l->t + 2e-6)
		fal_audit_found(a, "%s: trained is %.6f, but it is %.6f", l->ev, trained,
				l->t);
}

static void
take_failed(struct fal_audit *a, struct fal_trace_line *l)
{
	TELL(a->told.failed, l->is.failed.reason);
	judge_trained(a, l, l->is.failed.trained);
}

static void
take_done(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_ev_done *e = &l->is.done;
	if (a->done) {
		fal_trace_fail(l, FAL_EINVAL, "a second done line");
		return;
	}
	a->done = true;
	TELL(a->told.sha256, e->sha256);
	TELL(a->told.journal, e->journal);
	a->told.failed[0] = '\0';
	/* The last version has a hash, and where rounds are shared its line has it, too.
	 */
	if (!a->group) {
		char *is = a->told.model_hash;
		const bool there = get_hash(a, l, e->hash, is);
		const bool both =
			a->hash[0] != '\0' || (a->rules.is.shared && a->version > 0);
		if (a->job.hashes > 0 && !there)
			fal_audit_found(a, "done: it has no hash");
		else if (there && both && strcmp(is, a->hash) != 0)
			fal_audit_found(a,
					"done: hash is %.64s, but version %ju has %.64s",
					is, a->version,
					a->hash[0] != '\0' ? a->hash : "none");
	}
	judge_trained(a, l, e->trained);
	if (!(fabs(e->seconds - l->t) <= 2e-6))
		fal_audit_found(a, "done: seconds is %.6f, but it is %.6f", e->seconds,
				l->t);
	judge_evals(a, l);
	if ((a->demands & FAL_AUDIT_CLOCKS) != 0)
		judge_accounts(a, l);
	if (e->version != a->version)
		fal_audit_found(a, "done: version is %ju, not %ju", e->version,
				a->version);
}

/* Lines are missing here: of what follows nothing can be told. */
static void
take_gap(struct fal_audit *a, struct fal_trace_line *l)
{
	const struct fal_ev_gap *e = &l->is.gap;
	if (e->lines == 0 || e->bytes < e->lines) {
		fal_trace_fail(l, FAL_EINVAL, "%ju lines of %ju bytes", e->lines,
			       e->bytes);
		return;
	}
	a->v.missing_lines += e->lines;
	a->v.missing_bytes += e->bytes;
}

/* A line is itself, and stands behind the one that it was written behind.  The link of a
 * gap is that of the last line which is missing. */
static void
judge_link(struct fal_audit *a, const struct fal_trace_line *l)
{
	const bool holds = fal_chain_take(&a->chain, l->text, l->n);
	if (holds || (a->demands & FAL_AUDIT_CHAIN) == 0 || l->event == FAL_EV_GAP)
		return;
	if (a->chain.link[0] == '\0')
		finding_line(a, l, "it has no link of the chain");
	else
		finding_line(a, l, "it does not chain the line before, or was changed");
}

int
fal_audit_line(void *audit, struct fal_trace_line *l)
{
	static void (*const take[FAL_EVENTS])(struct fal_audit *a,
					      struct fal_trace_line *l) = {
		[FAL_EV_JOB] = take_job,       [FAL_EV_JOIN] = take_join,
		[FAL_EV_LEAVE] = take_leave,   [FAL_EV_POLICY] = take_policy,
		[FAL_EV_LEDGER] = take_ledger, [FAL_EV_UPDATE] = take_update,
		[FAL_EV_DONE] = take_done,     [FAL_EV_CHARGE] = take_charge,
		[FAL_EV_VERIFY] = take_verify, [FAL_EV_EVAL] = take_eval,
		[FAL_EV_SUSPECT] = take_late,  [FAL_EV_BACK] = take_late,
		[FAL_EV_GROUP] = take_group,   [FAL_EV_NONFINITE] = take_nonfinite,
		[FAL_EV_CLOCK] = take_clock,   [FAL_EV_PLACE] = take_place,
		[FAL_EV_SHARD] = take_shard,   [FAL_EV_VERSION] = take_version,
		[FAL_EV_FAILED] = take_failed,
	};
	struct fal_audit *a = audit;
	a->any = true;
	judge_link(a, l);
	if (l->cut) /* only the chain counts */
		return FAL_OK;
	a->v.refused += l->event == FAL_EV_REFUSE;
	if (l->event == FAL_EV_GAP)
		take_gap(a, l);
	else if (l->event == FAL_EV_RESTART)
		take_restart(a, l);
	if (l->event == FAL_EV_GAP || l->err < 0)
		return l->err;
	if (a->v.missing_lines > 0) {
		a->done = a->done || l->event == FAL_EV_DONE;
		a->ended = a->ended || fal_trace_is_last(l);
		return FAL_OK;
	}
	if (l->event != FAL_EV_LEAVE && l->event != FAL_EV_CLOCK)
		judge_charged(a, l);
	if (a->ended)
		finding_line(a, l, "%.32s behind the end", l->ev);
	a->ended = fal_trace_is_last(l);
	/* A line of a worker has the name that it joined with. */
	const struct person *is = l->worker != NULL ? fal_audit_person(a, l->id) : NULL;
	if (l->event != FAL_EV_JOIN && is != NULL && strcmp(is->name, l->worker) != 0)
		finding_line(a, l, "%s: worker %u is %.64s, not %.64s", l->ev, l->id,
			     is->name, l->worker);
	if (take[l->event] != NULL)
		take[l->event](a, l);
	return l->err;
}

const struct fal_audit_told *
fal_audit_told(const struct fal_audit *a)
{
	return &a->told;
}

int
fal_audit_end(struct fal_audit *a, struct fal_audit_verdict *out, struct fal_diag *diag)
{
	uint64_t clock = 0, task = 0;
	const bool whole = a->v.missing_lines == 0;
	if (!a->have_job && whole)
		return fal_diag_set(diag, FAL_ETRUNC, "no job line");
	const bool gap = a->have_job && cover_gap(a, &clock, &task);
	if (a->done && whole && gap && !a->group)
		fal_audit_found(a, "clock %ju: task %ju: never ended", clock, task);
	if (a->done && whole && a->n_waiting > 0)
		fal_finding(&a->f, &a->waiting[0], 0, 0, "no update");
	findings_end(&a->f);
	*out = a->v;
	out->cut = !a->ended && (a->demands & FAL_AUDIT_END) != 0;
	out->above = a->told.above;
	out->ok = a->f.n == 0 && whole && !out->cut;
	out->finished = a->done;
	out->clocks = gap ? clock : a->job.clocks;
	out->of_clocks = a->job.clocks;
	out->findings = a->f.n;
	out->text = (const char *const *)a->f.text;
	out->n_text = a->f.n_text;
	return 0;
}
