/* Loss and accuracy of a trace, thinned. */
#include "proj/curve.h"

#include <math.h>

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

int
fal_curve_line(void *curve, struct fal_trace_line *l)
{
	const struct fal_ev_update *u = &l->is.update;
	const struct fal_ev_eval *e = &l->is.eval;
	struct fal_curve *c = curve;
	if (l->event == FAL_EV_UPDATE) {
		c->samples += (double)u->samples;
		c->version[u->version % FAL_CURVE_VERSIONS] =
			(struct fal_curve_version){ u->version, c->samples };
		if (!isnan(u->loss))
			add(&c->loss,
			    (struct fal_curve_point){ l->t, c->samples, u->loss });
	} else if (l->event == FAL_EV_EVAL) {
		const struct fal_curve_version *v =
			&c->version[e->version % FAL_CURVE_VERSIONS];
		const double samples = v->version == e->version ? v->samples : c->samples;
		add(&c->accuracy, (struct fal_curve_point){ l->t, samples, e->accuracy });
	}
	return FAL_OK;
}
