/* Inside falcon-stat's recompute: what is shared by
 *
 *	recompute.c  what is read and computed, and what is wrong with it
 *	plan.c       which versions are kept, and which of them are drawn */
#ifndef FALCON_STAT_RECOMPUTE_PRIV_H
#define FALCON_STAT_RECOMPUTE_PRIV_H

#include "base/rng.h"
#include "cli/progress.h"
#include "course.h"
#include "recompute.h"
#include "run/replay.h"

#include <stdbool.h>
#include <stdint.h>

/* A version that is kept: so many clocks are in it. */
struct point {
	uint64_t clock;
	struct fal_found found; /* of a snapshot */
	bool snapshot, last;    /* last: only the model is, to end with */
	uint64_t reach;         /* clocks behind it that can be drawn */
	bool drawn;
};

struct recompute {
	const struct stat_source *src;
	const struct stat_recompute *how;
	struct stat_recomputed *out;
	struct course course;
	struct fal_files files;
	struct fal_anew *anew;
	uint64_t clock; /* that is computed; by task of it: */
	struct fal_anew_task *task;
	uint8_t *skips;
	uint64_t *seed;
	size_t print; /* of this machine's numerics in the course, or 0 */
	int folder;
	struct point *point; /* by clock */
	size_t points, point_cap;
	struct fal_rng rng;
	struct fal_progress progress;
};

/* The answer is that there is none: FAL_ESTATE. */
int recompute_cannot(struct recompute *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Something is wrong, which is no contribution's fault. */
void recompute_found(struct recompute *r, uint64_t clock, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The error, having said what it is. */
int recompute_say(int err, const struct fal_diag *diag);

/* plan.c */

/* The snapshots that are what they say; the others are found. */
int plan_find(struct recompute *r);
/* Once the course was read: those that are of another trace are found, too, and gone. */
void plan_judge(struct recompute *r);
/* Version 0, which the job says, and the model. */
void plan_ends(struct recompute *r);
/* How far a draw of `n` clocks may reach.  As recompute_cannot, if nowhere. */
int plan_measure(struct recompute *r, uint64_t n);
/* Draws until there are `n` clocks, of which each point then has so many. */
void plan_draw(struct recompute *r, uint64_t n, uint64_t *total);
/* The point at a clock, or NULL. */
const struct point *plan_point(const struct recompute *r, uint64_t clock);
/* Is there anything that the version after so many clocks can be held against? */
bool plan_comparable(const struct recompute *r, uint64_t clocks);

#endif
