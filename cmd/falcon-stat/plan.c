/* Which clocks are computed anew: what is kept of a run, and a draw of it. */
#include "recompute_priv.h"

#include "base/err.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static struct point *
add_point(struct recompute *r, uint64_t clock)
{
	FAL_XGROW(r->point, r->point_cap, r->points + 1);
	struct point *p = &r->point[r->points++];
	*p = (struct point){ .clock = clock };
	return p;
}

int
plan_find(struct recompute *r)
{
	struct fal_diag diag = { "" };
	uint64_t *clock;
	size_t n;
	int err = fal_snapshot_list(r->folder, &clock, &n, &diag);
	if (err < 0)
		recompute_say(err, &diag);
	for (size_t i = n; i > 0 && err == FAL_OK; i--) {
		struct fal_found f = { .clock = clock[i - 1] };
		struct fal_diag why = { "" };
		int bad = fal_snapshot_read(r->folder, &r->files, &f, &why);
		if (bad == FAL_ENOMEM)
			err = recompute_say(bad, &why);
		else if (bad < 0)
			recompute_found(r, f.clock, "%s", why.text);
		if (bad < 0 || f.clock == 0) {
			fal_snap_manifest_free(&f.is);
			continue;
		}
		*add_point(r, f.clock) =
			(struct point){ f.clock, .found = f, .snapshot = true };
	}
	free(clock);
	return err;
}

void
plan_judge(struct recompute *r)
{
	const struct course *c = &r->course;
	size_t kept = 0;
	for (size_t i = 0; i < r->points; i++) {
		struct point *p = &r->point[i];
		const uint64_t version = p->found.is.image.version;
		const bool there =
			!p->snapshot ||
			(p->clock <= c->clocks &&
			 c->clock[p->clock - 1].version == version && c->mark[i].met);
		if (there) {
			r->point[kept++] = *p;
			continue;
		}
		recompute_found(r, p->clock,
				"the snapshot of clock %ju is not of this trace",
				p->clock);
		fal_snap_manifest_free(&p->found.is);
	}
	r->points = kept;
}

void
plan_ends(struct recompute *r)
{
	const struct course *c = &r->course;
	uint64_t last = 0;
	for (uint64_t i = 0; i < c->clocks && c->sha256[0] != '\0'; i++)
		if (c->clock[i].version == c->version)
			last = i + 1;
	const struct point begin = *add_point(r, 0);
	memmove(r->point + 1, r->point, (r->points - 1) * sizeof(begin));
	r->point[0] = begin;
	/* A snapshot of the same version says more. */
	for (size_t i = 0; i < r->points; i++)
		if (r->point[i].clock == last)
			return;
	add_point(r, last)->last = true;
	for (size_t i = r->points - 1; i > 0 && r->point[i - 1].clock > last; i--) {
		const struct point p = r->point[i];
		r->point[i] = r->point[i - 1];
		r->point[i - 1] = p;
	}
}

/* ---- what is drawn --- */

/* Can the clock be computed anew? */
static enum course_why
why_not(const struct recompute *r, uint64_t clock)
{
	const struct course *c = &r->course;
	const struct course_clock *at = &c->clock[clock];
	const uint64_t before = clock > 0 ? c->clock[clock - 1].version : 0;
	if (clock >= c->clocks || at->why == COURSE_UNTOLD)
		return COURSE_UNTOLD;
	if (at->why != COURSE_MAY)
		return at->why;
	if (at->print == 0 || at->print != r->print)
		return COURSE_MIXED;
	return at->version == before + 1 ? COURSE_MAY : COURSE_UNTOLD;
}

const struct point *
plan_point(const struct recompute *r, uint64_t clock)
{
	for (size_t i = 0; i < r->points; i++)
		if (r->point[i].clock == clock)
			return &r->point[i];
	return NULL;
}

bool
plan_comparable(const struct recompute *r, uint64_t clocks)
{
	return r->course.clock[clocks - 1].hashed || plan_point(r, clocks) != NULL;
}

/* Where computing ends that begins at the point and is to have `n` clocks: at a version
 * that can be compared, within what can be computed, and not behind the next point. */
static uint64_t
end_of(const struct recompute *r, const struct point *p, uint64_t n)
{
	const bool next = p + 1 < r->point + r->points;
	const uint64_t most = next ? p[1].clock : r->course.clocks;
	uint64_t end = p->clock;
	for (uint64_t c = p->clock; c < most && why_not(r, c) == COURSE_MAY; c++) {
		if (!plan_comparable(r, c + 1))
			continue;
		end = c + 1;
		if (end - p->clock >= n)
			break;
	}
	return end;
}

/* Why nothing can be drawn. */
static int
say_why(struct recompute *r)
{
	const struct course *c = &r->course;
	for (size_t i = 0; i < r->points; i++) {
		const uint64_t clock = r->point[i].clock;
		if (r->point[i].last || clock >= c->clocks)
			continue;
		const struct course_clock *at = &c->clock[clock];
		switch (why_not(r, clock)) {
		case COURSE_UNLAWFUL:
			return recompute_cannot(
				r, "%s: the model depends on who computed what",
				at->scheme);
		case COURSE_MIXED:
			if (at->why == COURSE_MIXED)
				return recompute_cannot(
					r, "its workers' numerics are not the same");
			return recompute_cannot(
				r, "its workers' numerics are not this machine's");
		default:
			break;
		}
	}
	return recompute_cannot(r,
				"no version but the first is kept, and none has a hash");
}

int
plan_measure(struct recompute *r, uint64_t n)
{
	for (size_t i = 0; i < r->points; i++) {
		struct point *p = &r->point[i];
		if (p->last)
			continue;
		p->reach = end_of(r, p, n) - p->clock;
		r->out->reach += p->reach;
		r->out->kept += p->reach > 0;
	}
	return r->out->reach > 0 ? FAL_OK : say_why(r);
}

/* A point that was not drawn before, the more likely the farther it reaches. */
static struct point *
draw(struct recompute *r)
{
	uint64_t all = 0;
	for (size_t i = 0; i < r->points; i++)
		all += r->point[i].drawn ? 0 : r->point[i].reach;
	if (all == 0)
		return NULL;
	uint64_t at = fal_rng_u64(&r->rng) % all;
	for (size_t i = 0;; i++) {
		struct point *p = &r->point[i];
		if (p->drawn)
			continue;
		if (at < p->reach)
			return p;
		at -= p->reach;
	}
}

void
plan_draw(struct recompute *r, uint64_t n, uint64_t *total)
{
	struct point *p;
	*total = 0;
	while (*total < n && (p = draw(r)) != NULL) {
		p->drawn = true;
		p->reach = end_of(r, p, n - *total) - p->clock;
		*total += p->reach;
		for (uint64_t i = 0; i < p->reach; i++)
			r->course.clock[p->clock + i].want = true;
	}
}
