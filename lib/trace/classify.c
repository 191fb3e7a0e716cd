/* Classes of workers by the time that an equal share would take them. */
#include "trace/classify.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/quantile.h"

#include <stdlib.h>

/* The parts of a projected time, in the order of enum fal_cause, and their sum. */
enum { COMPUTE, PUSH, PULL, LATENCY, SUM, PARTS };

static void
parts_of(const struct fal_trace_load *w, double share, double idle,
	 double parts[static PARTS])
{
	parts[COMPUTE] = w->size > 0 ? share * w->lane_s / w->size : idle;
	parts[PUSH] = w->push / (double)w->clocks;
	parts[PULL] = w->pull / (double)w->clocks;
	parts[LATENCY] = w->latency / (double)w->clocks;
	parts[SUM] = parts[COMPUTE] + parts[PUSH] + parts[PULL] + parts[LATENCY];
}

static struct fal_trace_class
class_of(const double parts[static PARTS], const double med[static PARTS])
{
	struct fal_trace_class c = { .class = FAL_CLASS_STEADY, .projected = parts[SUM] };
	double sign = 1;
	if (parts[SUM] > med[SUM] * (1 + FAL_CLASS_TOLERANCE)) {
		c.class = FAL_CLASS_STRAGGLER;
	} else if (parts[SUM] < med[SUM] * (1 - FAL_CLASS_TOLERANCE)) {
		c.class = FAL_CLASS_PIONEER;
		sign = -1;
	} else {
		return c;
	}
	int worst = COMPUTE;
	for (int p = PUSH; p <= LATENCY; p++)
		if (sign * (parts[p] - med[p]) > sign * (parts[worst] - med[worst]))
			worst = p;
	c.cause = (enum fal_cause)(FAL_CAUSE_COMPUTE + worst);
	return c;
}

static int
ran(const struct fal_trace_load *w)
{
	return w->size > 0 && w->clocks > 0;
}

int
fal_trace_classify(const struct fal_trace_load *loads, size_t n,
		   struct fal_trace_class *out)
{
	double *v = fal_calloc(n, sizeof(*v)), med[PARTS] = { 0 }, parts[PARTS];
	double size = 0, clocks = 0;
	if (v == NULL)
		return FAL_ENOMEM;
	for (size_t i = 0; i < n; i++) {
		size += ran(&loads[i]) ? loads[i].size : 0;
		clocks += ran(&loads[i]) ? (double)loads[i].clocks : 0;
	}
	double share = clocks > 0 ? size / clocks : 0;
	for (int p = 0; p < PARTS; p++) {
		size_t k = 0;
		for (size_t i = 0; i < n; i++) {
			if (!ran(&loads[i]))
				continue;
			parts_of(&loads[i], share, 0, parts);
			v[k++] = parts[p];
		}
		med[p] = k > 0 ? fal_quantile(v, k, 0.5) : 0;
	}
	for (size_t i = 0; i < n; i++) {
		out[i] = (struct fal_trace_class){ 0 };
		if (loads[i].clocks == 0 || !(med[SUM] > 0))
			continue;
		parts_of(&loads[i], share, med[COMPUTE], parts);
		const struct fal_trace_class c = class_of(parts, med);
		if (ran(&loads[i]) || c.class == FAL_CLASS_STRAGGLER)
			out[i] = c;
	}
	free(v);
	return 0;
}

const char *
fal_class_name(enum fal_class c)
{
	static const char *const name[] = { "-", "steady", "straggler", "pioneer",
					    "stalls" };
	return name[c];
}

const char *
fal_cause_name(enum fal_cause c)
{
	static const char *const name[] = { "-", "compute", "push", "pull", "latency" };
	return name[c];
}
