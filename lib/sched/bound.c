/* Bounds of a clock. */
#include "sched/bound.h"

#include <math.h>
#include <stdbool.h>

/* Number of halvings; the result is exact to a billionth of a task's time. */
enum { HALVINGS = 30 };

double
fal_bound_capacity(const struct fal_bound_lanes *v, size_t n, double tasks)
{
	double rate = 0;
	for (size_t i = 0; i < n; i++)
		rate += (double)v[i].lanes / v[i].task_s;
	return rate > 0 ? tasks / rate : 0;
}

static const double near = 1e-9; /* tolerance, in tasks */

/* Can the tasks end within t seconds, if each lane runs small tasks after its full ones?
 */
static bool
bound_fits_tail(const struct fal_bound_lanes *v, size_t n, double t, double tasks,
		const struct fal_bound_tail *tail)
{
	double full = 0, small = 0;
	for (size_t i = 0; i < n; i++) {
		const double of_lane = t / v[i].task_s * (1 + near);
		const double whole = floor(of_lane);
		const double one = fal_bound_task_size(v[i].fixed, tail->unit);
		full += v[i].lanes * whole;
		small += v[i].lanes * floor((of_lane - whole) / one) * tail->unit;
	}
	return full + fmin(small, tail->tasks) >= tasks * (1 - near);
}

/* Can the tasks end within t seconds?  A short task is the last task of its lane. */
static bool
bound_fits_full(const struct fal_bound_lanes *v, size_t n, double t, double tasks)
{
	const double full = floor(tasks * (1 + near)), rest = tasks - full;
	double sum = 0;
	bool fits = rest <= near * tasks;
	for (size_t i = 0; i < n; i++) {
		const double of_lane = t / v[i].task_s * (1 + near);
		const double whole = floor(of_lane);
		sum += (double)v[i].lanes * whole;
		fits |= of_lane - whole >= fal_bound_task_size(v[i].fixed, rest);
	}
	return sum > full + 0.5 || (sum > full - 0.5 && fits);
}

static bool
bound_fits(const struct fal_bound_lanes *v, size_t n, double t, double tasks,
	   const struct fal_bound_tail *tail)
{
	return tail != NULL && tail->unit < 1 ? bound_fits_tail(v, n, t, tasks, tail)
					      : bound_fits_full(v, n, t, tasks);
}

double
fal_bound_whole_tasks(const struct fal_bound_lanes *v, size_t n, double tasks,
		      const struct fal_bound_tail *tail)
{
	double low = fal_bound_capacity(v, n, tasks), longest = 0;
	if (n == 0 || bound_fits(v, n, low, tasks, tail))
		return low;
	for (size_t i = 0; i < n; i++)
		longest = v[i].task_s > longest ? v[i].task_s : longest;
	double high = low + longest;
	for (int i = 0; i < HALVINGS; i++) {
		const double mid = (low + high) / 2;
		if (bound_fits(v, n, mid, tasks, tail))
			high = mid;
		else
			low = mid;
	}
	return high;
}

double
fal_bound_batch_saving(const struct fal_bound_lanes *v, size_t n, double tasks,
		       const struct fal_bound_tail *tail)
{
	const double t = fal_bound_capacity(v, n, tasks);
	/* The number of tasks in place of one full task. */
	const double more =
		tail != NULL ? 1 + tail->tasks / tasks * (1 / tail->unit - 1) : 1;
	double rate = 0, saved = 0;
	for (size_t i = 0; i < n; i++) {
		const double own = (double)v[i].lanes / v[i].task_s;
		const double of_lane = t / v[i].task_s; /* tasks */
		if (isnan(v[i].fixed))
			continue;
		rate += own;
		if (of_lane > 1)
			saved += own * v[i].fixed * (more - 1 / of_lane);
	}
	return rate > 0 ? saved / rate : (double)NAN;
}

double
fal_bound_fixed(double task, double task_s, double large, double large_s)
{
	if (!(task > 0 && task_s > 0 && large > task && large_s > 0))
		return (double)NAN;
	const double sample_s = (large_s - task_s) / (large - task);
	return fmin(fmax(1 - sample_s * task / task_s, 0), 1);
}

double
fal_bound_task_size(double fixed, double ratio)
{
	return isnan(fixed) ? ratio : fixed + (1 - fixed) * ratio;
}

void
fal_bound_sizes(const struct fal_bound_lanes *v, size_t n, double tasks,
		const struct fal_bound_tail *tail, double *whole, double *small)
{
	const double split = fal_bound_capacity(v, n, tasks);
	const double all = fal_bound_whole_tasks(v, n, tasks, tail);
	*whole = all > 0 ? 1 - split / all : 0;
	*small = fal_bound_batch_saving(v, n, tasks, tail) * (1 - *whole);
}
