/* The parts of a trace that falcon-proj draws: its last clocks as bands; loss and
 * accuracy, thinned. */
#include "proj/picture.h"

#include "base/mem.h"
#include "base/quantile.h"
#include "trace/reader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- bands ----------------------------------------------------------------------- */

/* The share of the drawn time that may be cut off a part at its begin: lines come a
 * little late. */
#define SLIVER 0.004

/* Replaces *p by a copy of the text. */
static void
set_text(char **p, const char *text)
{
	free(*p);
	*p = fal_xstrdup(text);
}

/* The row of the line's id; NULL with the error set. */
static struct fal_band_row *
row_of(struct fal_band *b, struct fal_trace_line *l)
{
	const size_t *row = fal_ids_get(&b->ids, l->id);
	if (row == NULL)
		fal_trace_fail(l, FAL_EINVAL, "id: %u never joined", l->id);
	return row != NULL ? &b->row[*row] : NULL;
}

/* The row that a newcomer of this name continues, or a new one. */
static int
take_join(struct fal_band *b, struct fal_trace_line *l)
{
	size_t i = 0;
	if (fal_ids_get(&b->ids, l->id) != NULL)
		return fal_trace_fail(l, FAL_EINVAL, "id: %u joined before", l->id);
	while (i < b->rows && (!b->row[i].left || strcmp(b->row[i].name, l->worker) != 0))
		i++;
	if (i == FAL_BAND_WORKERS_MAX)
		return fal_trace_fail(l, FAL_ELIMIT, "more than %d workers",
				      FAL_BAND_WORKERS_MAX);
	if (i == b->rows) {
		FAL_XGROW(b->row, b->cap_rows, i + 1);
		b->row[b->rows++] =
			(struct fal_band_row){ .name = fal_xstrdup(l->worker) };
	}
	b->row[i].left = false;
	fal_ids_put(&b->ids, l->id, i);
	return 0;
}

/* Room for one more at the end of an array that keeps its last `keep` elements. */
static void
slide(void **v, size_t *n, size_t *cap, size_t keep, size_t size)
{
	if (*n == 2 * keep) {
		memmove(*v, (char *)*v + (keep + 1) * size, (keep - 1) * size);
		*n = keep - 1;
	}
	fal_xgrow(v, cap, *n + 1, size);
}

static int
take_clock(struct fal_band *b, struct fal_trace_line *l)
{
	const struct fal_ev_clock *e = &l->is.clock;
	struct fal_band_row *r = row_of(b, l);
	const double all = e->pull + e->compute + e->push + e->wait;
	const uint64_t ran = e->done + e->lost;
	if (r == NULL || !(all > 0)) /* of a worker that was not asked any more */
		return l->err;
	struct fal_band_part p = {
		.begin = fmax(0, l->t - all),
		.end = l->t,
		.pull = e->pull,
		.compute = e->compute,
		.push = e->push,
		.wait = e->wait,
		.in = e->in,
		.out = e->out,
		.cloned = e->cloned,
		.own = e->round != FAL_TRACE_ABSENT,
		.load = { .clocks = 1,
			  .tasks = e->lanes > 0 ? ran : 0,
			  .push = e->push,
			  .pull = e->pull,
			  .latency = fal_trace_clock_latency(e, false) },
	};
	if (e->lanes > 0) {
		p.load.lane_s = (double)ran * e->task_s / (double)e->lanes;
		p.load.size = (double)e->samples;
	}
	r->cut = r->cut || r->n == 2 * FAL_BAND_LINES;
	slide((void **)&r->part, &r->n, &r->cap, FAL_BAND_LINES, sizeof(p));
	r->part[r->n++] = p;
	return FAL_OK;
}

static void
take_update(struct fal_band *b, struct fal_trace_line *l)
{
	const struct fal_band_update u = {
		.t = l->t,
		.version = l->is.update.version,
		.clock = l->is.update.clock,
	};
	slide((void **)&b->update, &b->updates, &b->cap_updates, FAL_BAND_UPDATES,
	      sizeof(u));
	b->update[b->updates++] = u;
}

int
fal_band_line(void *band, struct fal_trace_line *l)
{
	struct fal_band *b = band;
	struct fal_band_row *r;
	switch (l->event) {
	case FAL_EV_JOB:
		set_text(&b->scheme, l->is.job.scheme);
		set_text(&b->name, l->is.job.name);
		break;
	case FAL_EV_POLICY:
		set_text(&b->scheme, l->is.policy.scheme);
		break;
	case FAL_EV_JOIN:
		return take_join(b, l);
	case FAL_EV_LEAVE:
		if ((r = row_of(b, l)) != NULL) {
			r->left = true;
			r->left_t = l->t;
		}
		break;
	case FAL_EV_CLOCK:
		return take_clock(b, l);
	case FAL_EV_UPDATE:
		take_update(b, l);
		break;
	default:
		break;
	}
	return l->err;
}

/* Sets begin and end; `v` has room for a number of each row. */
static void
choose_time(struct fal_band *b, double *v)
{
	size_t n = 0;
	const double newest = b->updates > 0 ? b->update[b->updates - 1].t : 0;
	double known = 0;
	b->end = 0;
	for (size_t i = 0; i < b->rows; i++) {
		const struct fal_band_row *r = &b->row[i];
		if (r->n == 0 || (r->left && r->left_t < newest))
			continue;
		const size_t back = r->n < FAL_BAND_CLOCKS ? r->n : FAL_BAND_CLOCKS;
		v[n++] = r->part[r->n - back].begin;
		b->end = fmax(b->end, r->part[r->n - 1].end);
		if (r->cut)
			known = fmax(known, r->part[0].begin);
	}
	b->begin = n > 0 ? fmax(fal_quantile(v, n, 0.5), known) : b->end;
}

/* Chooses the drawn part of the rows: `shown`, in order of rows, and `first`. */
static void
choose_rows(struct fal_band *b)
{
	const double least = b->begin + SLIVER * (b->end - b->begin);
	b->n_shown = 0;
	b->own = false;
	for (size_t i = 0; i < b->rows; i++) {
		struct fal_band_row *r = &b->row[i];
		r->first = 0;
		while (r->first < r->n && r->part[r->first].end <= least)
			r->first++;
		if (r->first == r->n)
			continue;
		b->end = fmax(b->end, r->part[r->n - 1].end);
		b->own = b->own || r->part[r->n - 1].own;
		b->shown[b->n_shown++] = i;
	}
	size_t i = 0;
	while (i < b->updates && b->update[i].t < b->begin)
		i++;
	b->first_update = i;
	while (i < b->updates && b->update[i].t <= b->end)
		i++;
	b->shown_updates = i - b->first_update;
}

static int
by_name(const void *a, const void *b, void *rows)
{
	const struct fal_band_row *row = rows;
	const size_t *x = a, *y = b;
	const int order = strverscmp(row[*x].name, row[*y].name);
	return order != 0 ? order : (*x > *y) - (*x < *y);
}

/* Returns the number of last parts to judge: the drawn ones or, for a worker with few of
 * these, as many as a verdict takes. */
static size_t
judged(const struct fal_band_row *r)
{
	const size_t drawn = r->n - r->first;
	if (drawn >= FAL_BAND_PERSISTENT || r->n < FAL_BAND_PERSISTENT)
		return drawn;
	return FAL_BAND_PERSISTENT;
}

/* Sets `persistent`. */
static void
classes(struct fal_band *b)
{
	struct fal_trace_load *load = fal_xcalloc(b->n_shown, sizeof(*load));
	struct fal_trace_class *verdict = fal_xcalloc(b->n_shown, sizeof(*verdict));
	size_t *streak = fal_xcalloc(b->n_shown, sizeof(*streak));
	for (size_t i = 0; i < b->rows; i++)
		b->row[i].persistent = false;
	for (size_t back = 1; back <= FAL_BAND_CLOCKS; back++) {
		for (size_t i = 0; i < b->n_shown; i++) {
			const struct fal_band_row *r = &b->row[b->shown[i]];
			load[i] = back <= judged(r) ? r->part[r->n - back].load
						    : (struct fal_trace_load){ 0 };
		}
		fal_trace_classify(load, b->n_shown, verdict);
		for (size_t i = 0; i < b->n_shown; i++) {
			const bool is = verdict[i].class == FAL_CLASS_STRAGGLER;
			streak[i] = is ? streak[i] + 1 : 0;
			if (streak[i] >= FAL_BAND_PERSISTENT)
				b->row[b->shown[i]].persistent = true;
		}
	}
	free(load);
	free(verdict);
	free(streak);
}

int
fal_band_end(struct fal_band *b, struct fal_diag *diag)
{
	double *v = fal_xcalloc(b->rows, sizeof(*v));
	choose_time(b, v);
	free(v);
	free(b->shown);
	b->shown = fal_xcalloc(b->rows, sizeof(*b->shown));
	choose_rows(b);
	qsort_r(b->shown, b->n_shown, sizeof(*b->shown), by_name, b->row);
	if (b->n_shown == 0)
		return fal_diag_set(diag, FAL_ETRUNC, "no clock ended");
	classes(b);
	return FAL_OK;
}

void
fal_band_free(struct fal_band *b)
{
	for (size_t i = 0; i < b->rows; i++) {
		free(b->row[i].name);
		free(b->row[i].part);
	}
	free(b->row);
	free(b->update);
	free(b->shown);
	fal_ids_free(&b->ids);
	free(b->name);
	free(b->scheme);
	*b = (struct fal_band){ 0 };
}

/* ---- curves ---------------------------------------------------------------------- */

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

static void
add_point(struct fal_curve_line *c, struct fal_curve_point p)
{
	if (c->each == 0)
		c->each = c->in_last = 1;
	if (c->in_last < c->each) {
		struct fal_curve_point *last = &c->point[c->n - 1];
		*last = merge(*last, c->in_last++, p, 1);
		return;
	}
	if (c->n == FAL_CURVE_POINTS) { /* pairs become their means */
		for (size_t i = 0; i < c->n / 2; i++)
			c->point[i] = merge(c->point[2 * i], 1, c->point[2 * i + 1], 1);
		c->n /= 2;
		c->each *= 2;
	}
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
			add_point(&c->loss,
				  (struct fal_curve_point){ l->t, c->samples, u->loss });
	} else if (l->event == FAL_EV_EVAL) {
		const struct fal_curve_version *v =
			&c->version[e->version % FAL_CURVE_VERSIONS];
		const double samples = v->version == e->version ? v->samples : c->samples;
		add_point(&c->accuracy,
			  (struct fal_curve_point){ l->t, samples, e->accuracy });
	}
	return FAL_OK;
}
