/* The versions that a run has kept; the draw of clocks to compute anew; mismatches. */
#include "recompute_priv.h"

#include "base/err.h"
#include "base/mem.h"
#include "cli/cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- outcomes ---- */

int
recompute_cannot_judge(struct recompute *r, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(r->out->cannot, sizeof(r->out->cannot), fmt, ap);
	va_end(ap);
	return FAL_ESTATE;
}

void
recompute_mismatch(struct recompute *r, const struct stat_mismatch *m)
{
	if (r->out->mismatches++ < STAT_MISMATCHES)
		r->out->mismatch[r->out->mismatches - 1] = *m;
}

void
recompute_add_mismatch(struct recompute *r, uint64_t clock, const char *fmt, ...)
{
	struct stat_mismatch m = { .clock = clock };
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(m.what, sizeof(m.what), fmt, ap);
	va_end(ap);
	recompute_mismatch(r, &m);
}

int
recompute_print_error(int err, const struct fal_diag *diag)
{
	fal_cli_err(PROG, "%s", diag->text[0] != '\0' ? diag->text : fal_strerror(err));
	return err;
}

/* ---- anchors ---- */

/* Adds an anchor in the order of clocks. */
static struct anchor *
plan_add_anchor(struct recompute *r, uint64_t clock)
{
	FAL_XGROW(r->anchor, r->anchor_cap, r->anchors + 1);
	size_t at = r->anchors++;
	for (; at > 0 && r->anchor[at - 1].clock > clock; at--)
		r->anchor[at] = r->anchor[at - 1];
	r->anchor[at] = (struct anchor){ .clock = clock };
	return &r->anchor[at];
}

int
plan_list_snapshots(struct recompute *r)
{
	struct fal_diag diag = { "" };
	uint64_t *clock;
	size_t n;
	int err = fal_snapshot_list(r->folder, &clock, &n, &diag);
	if (err < 0)
		recompute_print_error(err, &diag);
	for (size_t i = n; i > 0 && err == FAL_OK; i--) {
		struct fal_snapshot_found f = { .clock = clock[i - 1] };
		struct fal_diag why = { "" };
		int bad = fal_snapshot_read(r->folder, &r->files, &f, &why);
		if (bad == FAL_ENOMEM)
			err = recompute_print_error(bad, &why);
		else if (bad < 0)
			recompute_add_mismatch(r, f.clock, "%s", why.text);
		if (bad < 0 || f.clock == 0) {
			fal_snap_manifest_free(&f.is);
			continue;
		}
		*plan_add_anchor(r, f.clock) =
			(struct anchor){ f.clock, .found = f, .is_snapshot = true };
	}
	free(clock);
	return err;
}

void
plan_drop_foreign(struct recompute *r)
{
	const struct course *c = &r->course;
	size_t kept = 0;
	for (size_t i = 0; i < r->anchors; i++) {
		struct anchor *p = &r->anchor[i];
		const uint64_t version = p->found.is.image.version;
		const bool is_own =
			!p->is_snapshot ||
			(p->clock <= c->clocks &&
			 c->clock[p->clock - 1].version == version && c->mark[i].is_met);
		if (is_own) {
			r->anchor[kept++] = *p;
			continue;
		}
		recompute_add_mismatch(r, p->clock,
				       "the snapshot of clock %ju is not of this trace",
				       p->clock);
		fal_snap_manifest_free(&p->found.is);
	}
	r->anchors = kept;
}

void
plan_add_ends(struct recompute *r)
{
	const struct course *c = &r->course;
	uint64_t last = 0;
	for (uint64_t i = 0; i < c->clocks && c->sha256[0] != '\0'; i++)
		if (c->clock[i].version == c->version)
			last = i + 1;
	plan_add_anchor(r, 0);
	/* A snapshot of the same version has the model, too. */
	for (size_t i = 0; i < r->anchors; i++)
		if (r->anchor[i].clock == last)
			return;
	plan_add_anchor(r, last)->is_model = true;
}

/* ---- the draw ---- */

/* Returns the reason why the clock cannot be computed anew here, or COURSE_COMPUTABLE. */
static enum course_status
clock_status(const struct recompute *r, uint64_t clock)
{
	const struct course *c = &r->course;
	const struct course_clock *at = &c->clock[clock];
	const uint64_t before = clock > 0 ? c->clock[clock - 1].version : 0;
	if (at->why != COURSE_COMPUTABLE)
		return at->why;
	if (at->fingerprint == 0 || at->fingerprint != r->fingerprint)
		return COURSE_MIXED;
	return at->version == before + 1 ? COURSE_COMPUTABLE : COURSE_UNKNOWN;
}

const struct anchor *
plan_anchor(const struct recompute *r, uint64_t clock)
{
	for (size_t i = 0; i < r->anchors; i++)
		if (r->anchor[i].clock == clock)
			return &r->anchor[i];
	return NULL;
}

bool
plan_is_comparable(const struct recompute *r, uint64_t clocks)
{
	return r->course.clock[clocks - 1].has_hash || plan_anchor(r, clocks) != NULL;
}

/* Returns the clock where a computation of `n` clocks from the anchor ends: at a version
 * that can be compared, before any clock that cannot be computed, and not behind the next
 * anchor. */
static uint64_t
anchor_end(const struct recompute *r, const struct anchor *p, uint64_t n)
{
	const bool next = p + 1 < r->anchor + r->anchors;
	const uint64_t most = next ? p[1].clock : r->course.clocks;
	uint64_t end = p->clock;
	for (uint64_t c = p->clock; c < most && clock_status(r, c) == COURSE_COMPUTABLE;
	     c++) {
		if (!plan_is_comparable(r, c + 1))
			continue;
		end = c + 1;
		if (end - p->clock >= n)
			break;
	}
	return end;
}

int
plan_measure(struct recompute *r, uint64_t n)
{
	for (size_t i = 0; i < r->anchors; i++) {
		struct anchor *p = &r->anchor[i];
		if (p->is_model)
			continue;
		p->reach = anchor_end(r, p, n) - p->clock;
		r->out->reach += p->reach;
		r->out->kept += p->reach > 0;
	}
	if (r->out->reach > 0)
		return FAL_OK;
	/* Notes why no clock can be drawn. */
	for (size_t i = 0; i < r->anchors; i++) {
		const uint64_t clock = r->anchor[i].clock;
		if (r->anchor[i].is_model || clock >= r->course.clocks)
			continue;
		const struct course_clock *at = &r->course.clock[clock];
		switch (clock_status(r, clock)) {
		case COURSE_UNLAWFUL:
			return recompute_cannot_judge(
				r, "%s: the model depends on who computed what",
				at->scheme);
		case COURSE_MIXED:
			if (at->why == COURSE_MIXED)
				return recompute_cannot_judge(
					r, "its workers' numerics are not the same");
			return recompute_cannot_judge(
				r, "its workers' numerics are not this machine's");
		default:
			break;
		}
	}
	return recompute_cannot_judge(
		r, "no version but the first is kept, and none has a hash");
}

void
plan_draw(struct recompute *r, uint64_t n, uint64_t *total)
{
	*total = 0;
	while (*total < n) {
		/* Draws an anchor that was not drawn before, with a probability in
		 * proportion to its reach. */
		uint64_t all = 0;
		for (size_t i = 0; i < r->anchors; i++)
			all += r->anchor[i].is_drawn ? 0 : r->anchor[i].reach;
		if (all == 0)
			return;
		uint64_t at = fal_rng_u64(&r->rng) % all;
		struct anchor *p = r->anchor;
		for (;; p++) { /* ends, as at < all */
			if (p->is_drawn)
				continue;
			if (at < p->reach)
				break;
			at -= p->reach;
		}
		p->is_drawn = true;
		p->reach = anchor_end(r, p, n - *total) - p->clock;
		*total += p->reach;
		for (uint64_t i = 0; i < p->reach; i++)
			r->course.clock[p->clock + i].is_wanted = true;
	}
}
