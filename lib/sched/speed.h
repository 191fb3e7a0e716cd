/* What is measured, and what is projected from it. */
#ifndef FAL_SCHED_SPEED_H
#define FAL_SCHED_SPEED_H

#include "sched/state.h"

/* Seconds a full task takes on a lane of `w` at `lanes` lanes; a guess if never measured.
 */
double fal_task_s(const struct fal_sched *s, const struct fal_worker *w, uint32_t lanes);
/* What some tasks take of `w`, in full tasks: each its fixed part, the rest by samples.
 */
double fal_size(const struct fal_sched *s, const struct fal_worker *w,
		struct fal_load load);
/* Full tasks per second of `w` at its lanes. */
double fal_rate(const struct fal_sched *s, const struct fal_worker *w, uint32_t lanes);
/* What was known of `w` counts until it is measured itself; lanes that it may not run now
 * say nothing. */
void fal_remember(struct fal_worker *w, const struct fal_history *was);
double fal_eval_s(const struct fal_sched *s, const struct fal_worker *w);
/* Times, by which one speed differs from another. */
#define FAL_JUMP 1.5

/* One more task was claimed, of so many samples, which took `task_s` seconds: it joins
 * the pace before it if that is no other speed, else begins one; where there are too
 * many, the neighbours that differ least become one (Ward).  size: in full tasks. */
void fal_work_ran(struct fal_work *work, double task_s, uint32_t samples, double size);

/* A task of so many samples took `task_s` seconds.  O(1), O(lanes) once for each lane
 * count. */
void fal_measured(struct fal_sched *s, struct fal_worker *w, double task_s,
		  uint32_t samples);
void fal_ewma(double *mean, double x); /* 0 means: no value yet */
/* Something was found out of a worker's fixed part. */
void fal_typical_fixed(struct fal_sched *s, double fixed);
/* A full task that has run for longer than this is late: median + 6·max(MAD, 5 %). */
double fal_late_s(const struct fal_sched *s, const struct fal_worker *w);
/* When `w` will have finished `first`, which it holds first, and `extra` more, pushing
 * included: running tasks end on their lanes, the others follow lane by lane. */
double fal_project(const struct fal_sched *s, const struct fal_worker *w,
		   struct fal_load first, struct fal_load extra, double now);

#endif
