/* Loss and accuracy of a trace, thinned. */
#include "proj/curve.h"

#include "trace/clocks.h"

#include <string.h>

static double
mean(double a, double n, double b, double m)
{
	return a + (b - a) * m / (n + m);
}

/* The mean of two points, over n and m values. */
static struct fal_curve_point
merge(struct fal_curve_point a, uint64_t n, struct fal_curve_point b, uint64_t m)
{
	const double x = (double)n, y = (double)m;
	return (struct fal_curve_point){ .t = mean(a.t, x, b.t, y),
					 .samples = mean(a.samples, x, b.samples, y),
					 .value = mean(a.value, x, b.value, y) };
}

/* Halves the points of a full line: pairs become their means. */
static void
halve(struct fal_curve_line *c)
{
	for (size_t i = 0; i < c->n / 2; i++)
		c->point[i] = merge(c->point[2 * i], 1, c->point[2 * i + 1], 1);
	c->n /= 2;
	c->each *= 2;
}

static void
add(struct fal_curve_line *c, struct fal_curve_point p)
{
	if (c->each == 0)
		c->each = c->in_last = 1;
	if (c->in_last < c->each) {
		struct fal_curve_point *last = &c->point[c->n - 1];
		*last = merge(*last, c->in_last++, p, 1);
		return;
	}
	if (c->n == FAL_CURVE_POINTS)
		halve(c);
	c->point[c->n++] = p;
	c->in_last = 1;
}

static int
take_update(struct fal_curve *c, struct fal_trace_line *l)
{
	const uint64_t version =
		fal_trace_get_u64(l, l->o, FAL_F_VERSION, FAL_TRACE_NUM_MAX);
	const uint64_t samples =
		fal_trace_get_u64(l, l->o, FAL_F_SAMPLES, FAL_TRACE_SAMPLES_MAX);
	const bool finite = !json_is_null(fal_trace_at(l->o, FAL_F_LOSS));
	const double loss = finite ? fal_trace_get_f64(l, l->o, FAL_F_LOSS) : 0;
	if (l->err != 0)
		return l->err;
	c->samples += (double)samples;
	c->version[version % FAL_CURVE_VERSIONS] =
		(struct fal_curve_version){ version, c->samples };
	if (finite)
		add(&c->loss, (struct fal_curve_point){ l->t, c->samples, loss });
	return FAL_OK;
}

static int
take_eval(struct fal_curve *c, struct fal_trace_line *l)
{
	const uint64_t version =
		fal_trace_get_u64(l, l->o, FAL_F_VERSION, FAL_TRACE_NUM_MAX);
	const double accuracy = fal_trace_get_f64(l, l->o, FAL_F_ACCURACY);
	if (l->err != 0)
		return l->err;
	const struct fal_curve_version *v = &c->version[version % FAL_CURVE_VERSIONS];
	const double samples = v->version == version ? v->samples : c->samples;
	add(&c->accuracy, (struct fal_curve_point){ l->t, samples, accuracy });
	return FAL_OK;
}

int
fal_curve_line(void *curve, struct fal_trace_line *l)
{
	struct fal_curve *c = curve;
	if (strcmp(l->ev, "update") == 0)
		return take_update(c, l);
	return strcmp(l->ev, "eval") == 0 ? take_eval(c, l) : FAL_OK;
}
