/* The pictures of falcon-proj: the last clocks of a trace as a Gantt chart; the curves of
 * loss and accuracy, thinned. */
#include "proj/picture.h"

#include "base/mem.h"
#include "base/quantile.h"
#include "trace/reader.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Gantt chart ----------------------------------------------------------------- */

/* The chart leaves out a part that ends in this first share of the drawn time: lines come
 * a little late. */
#define SLIVER 0.004

/* Replaces *p by a copy of the text. */
static void
gantt_set_text(char **p, const char *text)
{
	free(*p);
	*p = fal_xstrdup(text);
}

/* Returns the row of the line's worker; NULL with the line's error. */
static struct fal_gantt_row *
gantt_row(struct fal_gantt *b, struct fal_trace_line *l)
{
	const size_t *row = fal_ids_get(&b->ids, l->id);
	if (row == NULL)
		fal_trace_fail(l, FAL_EINVAL, "id: %u never joined", l->id);
	return row != NULL ? &b->row[*row] : NULL;
}

/* Makes room for one element at the end of an array that keeps at least its last `keep`
 * elements. */
static void
array_slide(void **v, size_t *n, size_t *cap, size_t keep, size_t size)
{
	if (*n == 2 * keep) {
		memmove(*v, (char *)*v + (keep + 1) * size, (keep - 1) * size);
		*n = keep - 1;
	}
	fal_xgrow(v, cap, *n + 1, size);
}

static int
gantt_take_clock(struct fal_gantt *b, struct fal_trace_line *l)
{
	const struct fal_ev_clock *e = &l->is.clock;
	struct fal_gantt_row *r = gantt_row(b, l);
	const double all = e->pull + e->compute + e->push + e->wait;
	const uint64_t ran = e->done + e->lost;
	if (r == NULL || !(all > 0)) /* no time has passed */
		return l->err;
	struct fal_gantt_part p = {
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
	r->cut = r->cut || r->n == 2 * FAL_GANTT_LINES;
	array_slide((void **)&r->part, &r->n, &r->cap, FAL_GANTT_LINES, sizeof(p));
	r->part[r->n++] = p;
	return FAL_OK;
}

int
fal_gantt_line(void *band, struct fal_trace_line *l)
{
	struct fal_gantt *b = band;
	struct fal_gantt_row *r;
	size_t i = 0;
	switch (l->event) {
	case FAL_EV_JOB:
		gantt_set_text(&b->scheme, l->is.job.scheme);
		gantt_set_text(&b->name, l->is.job.name);
		break;
	case FAL_EV_POLICY:
		gantt_set_text(&b->scheme, l->is.policy.scheme);
		break;
	case FAL_EV_JOIN:
		if (fal_ids_get(&b->ids, l->id) != NULL)
			return fal_trace_fail(l, FAL_EINVAL, "id: %u joined before",
					      l->id);
		/* A new session continues the row of its name if the row's session has
		 * left. */
		while (i < b->rows &&
		       (!b->row[i].left || strcmp(b->row[i].name, l->worker) != 0))
			i++;
		if (i == FAL_GANTT_WORKERS_MAX)
			return fal_trace_fail(l, FAL_ELIMIT, "more than %d workers",
					      FAL_GANTT_WORKERS_MAX);
		if (i == b->rows) {
			FAL_XGROW(b->row, b->cap_rows, i + 1);
			b->row[b->rows++] =
				(struct fal_gantt_row){ .name = fal_xstrdup(l->worker) };
		}
		b->row[i].left = false;
		fal_ids_put(&b->ids, l->id, i);
		return FAL_OK;
	case FAL_EV_LEAVE:
		if ((r = gantt_row(b, l)) != NULL) {
			r->left = true;
			r->left_t = l->t;
		}
		break;
	case FAL_EV_CLOCK:
		return gantt_take_clock(b, l);
	case FAL_EV_UPDATE:
		array_slide((void **)&b->update, &b->updates, &b->cap_updates,
			    FAL_GANTT_UPDATES, sizeof(*b->update));
		b->update[b->updates++] =
			(struct fal_gantt_update){ l->t, l->is.update.version,
						   l->is.update.clock };
		break;
	default:
		break;
	}
	return l->err;
}

static int
row_name_order(const void *a, const void *b, void *rows)
{
	const struct fal_gantt_row *row = rows;
	const size_t *x = a, *y = b;
	const int order = strverscmp(row[*x].name, row[*y].name);
	return order != 0 ? order : (*x > *y) - (*x < *y);
}

/* Finds the persistent stragglers. */
static void
gantt_find_persistent(struct fal_gantt *b)
{
	struct fal_trace_load *load = fal_xcalloc(b->n_shown, sizeof(*load));
	struct fal_trace_class *verdict = fal_xcalloc(b->n_shown, sizeof(*verdict));
	size_t *streak = fal_xcalloc(b->n_shown, sizeof(*streak));
	for (size_t i = 0; i < b->rows; i++)
		b->row[i].persistent = false;
	for (size_t back = 1; back <= FAL_GANTT_CLOCKS; back++) {
		for (size_t i = 0; i < b->n_shown; i++) {
			const struct fal_gantt_row *r = &b->row[b->shown[i]];
			const size_t drawn = r->n - r->first;
			/* Also classifies parts before the drawn ones if a verdict needs
			 * more parts. */
			const bool counts =
				back <= drawn || (back <= FAL_GANTT_PERSISTENT &&
						  r->n >= FAL_GANTT_PERSISTENT);
			load[i] = counts ? r->part[r->n - back].load
					 : (struct fal_trace_load){ 0 };
		}
		fal_trace_classify(load, b->n_shown, verdict);
		for (size_t i = 0; i < b->n_shown; i++) {
			const bool is_slow = verdict[i].class == FAL_CLASS_STRAGGLER;
			streak[i] = is_slow ? streak[i] + 1 : 0;
			if (streak[i] >= FAL_GANTT_PERSISTENT)
				b->row[b->shown[i]].persistent = true;
		}
	}
	free(load);
	free(verdict);
	free(streak);
}

int
fal_gantt_end(struct fal_gantt *b, struct fal_diag *diag)
{
	/* The drawn time. */
	double *v = fal_xcalloc(b->rows, sizeof(*v));
	size_t n = 0;
	const double newest = b->updates > 0 ? b->update[b->updates - 1].t : 0;
	double known = 0;
	b->end = 0;
	for (size_t i = 0; i < b->rows; i++) {
		const struct fal_gantt_row *r = &b->row[i];
		if (r->n == 0 || (r->left && r->left_t < newest))
			continue;
		const size_t back = r->n < FAL_GANTT_CLOCKS ? r->n : FAL_GANTT_CLOCKS;
		v[n++] = r->part[r->n - back].begin;
		b->end = fmax(b->end, r->part[r->n - 1].end);
		if (r->cut)
			known = fmax(known, r->part[0].begin);
	}
	b->begin = n > 0 ? fmax(fal_quantile(v, n, 0.5), known) : b->end;
	free(v);
	/* The drawn rows, in the order of `row`, their first parts, and the updates. */
	const double least = b->begin + SLIVER * (b->end - b->begin);
	free(b->shown);
	b->shown = fal_xcalloc(b->rows, sizeof(*b->shown));
	b->n_shown = 0;
	b->own = false;
	for (size_t i = 0; i < b->rows; i++) {
		struct fal_gantt_row *r = &b->row[i];
		r->first = 0;
		while (r->first < r->n && r->part[r->first].end <= least)
			r->first++;
		if (r->first == r->n)
			continue;
		b->end = fmax(b->end, r->part[r->n - 1].end);
		b->own = b->own || r->part[r->n - 1].own;
		b->shown[b->n_shown++] = i;
	}
	size_t at = 0;
	while (at < b->updates && b->update[at].t < b->begin)
		at++;
	b->first_update = at;
	while (at < b->updates && b->update[at].t <= b->end)
		at++;
	b->shown_updates = at - b->first_update;
	qsort_r(b->shown, b->n_shown, sizeof(*b->shown), row_name_order, b->row);
	if (b->n_shown == 0)
		return fal_diag_set(diag, FAL_ETRUNC, "no clock ended");
	gantt_find_persistent(b);
	return FAL_OK;
}

void
fal_gantt_free(struct fal_gantt *b)
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
	*b = (struct fal_gantt){ 0 };
}

/* ---- curves ---------------------------------------------------------------------- */

/* Returns the mean of points a of n and b of m values. */
static struct fal_curve_point
point_merge(struct fal_curve_point a, uint64_t n, struct fal_curve_point b, uint64_t m)
{
	const double x = (double)n, y = (double)m;
	a.t += (b.t - a.t) * y / (x + y);
	a.samples += (b.samples - a.samples) * y / (x + y);
	a.value += (b.value - a.value) * y / (x + y);
	return a;
}

static void
curve_add_point(struct fal_curve_line *c, struct fal_curve_point p)
{
	if (c->each == 0)
		c->each = c->in_last = 1;
	if (c->in_last < c->each) {
		struct fal_curve_point *last = &c->point[c->n - 1];
		*last = point_merge(*last, c->in_last++, p, 1);
		return;
	}
	if (c->n == FAL_CURVE_POINTS) { /* each pair of points becomes their mean */
		for (size_t i = 0; i < c->n / 2; i++)
			c->point[i] =
				point_merge(c->point[2 * i], 1, c->point[2 * i + 1], 1);
		c->n /= 2;
		c->each *= 2;
	}
	assert(c->n < FAL_CURVE_POINTS);
	c->point[c->n++] = p;
	c->in_last = 1;
}

int
fal_curve_line(void *curve, struct fal_trace_line *l)
{
	const struct fal_ev_update *u = &l->is.update;
	const struct fal_ev_eval *e = &l->is.eval;
	struct fal_curve *c = curve;
	if (l->event == FAL_EV_CLOCK && l->is.clock.clock == 0) {
		const struct fal_ev_clock *w = &l->is.clock;
		const double first = l->t - w->compute - w->push - w->pull - w->wait;
		c->began = c->began > 0 ? fmin(c->began, first) : fmax(first, 0);
	} else if (l->event == FAL_EV_UPDATE) {
		c->samples += (double)u->samples;
		c->version[u->version % FAL_CURVE_VERSIONS] =
			(struct fal_curve_version){ u->version, c->samples };
		if (!isnan(u->loss))
			curve_add_point(&c->loss, (struct fal_curve_point){
							  l->t, c->samples, u->loss });
	} else if (l->event == FAL_EV_EVAL) {
		const struct fal_curve_version *v =
			&c->version[e->version % FAL_CURVE_VERSIONS];
		const double samples = v->version == e->version ? v->samples : c->samples;
		curve_add_point(&c->accuracy,
				(struct fal_curve_point){ l->t, samples, e->accuracy });
		if (!isnan(e->loss))
			curve_add_point(&c->test_loss, (struct fal_curve_point){
							       l->t, samples, e->loss });
	}
	return FAL_OK;
}
