/* The last clocks of a trace as bands. */
#include "proj/band.h"

#include "base/mem.h"
#include "base/quantile.h"
#include "trace/reader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What of the drawn time may be cut off a part at its begin: lines come a little late. */
#define SLIVER 0.004

/* Replaces *p by a copy of the text. */
static int
set_text(char **p, const char *text)
{
	char *copy = fal_strdup(text);
	if (copy == NULL)
		return FAL_ENOMEM;
	free(*p);
	*p = copy;
	return FAL_OK;
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
		if (FAL_GROW(b->row, b->cap_rows, i + 1) < 0)
			return FAL_ENOMEM;
		b->row[i] = (struct fal_band_row){ .name = fal_strdup(l->worker) };
		if (b->row[i].name == NULL)
			return FAL_ENOMEM;
		b->rows++;
	}
	b->row[i].left = false;
	return fal_ids_put(&b->ids, l->id, i);
}

static int
take_leave(struct fal_band *b, struct fal_trace_line *l)
{
	struct fal_band_row *r = row_of(b, l);
	if (r != NULL) {
		r->left = true;
		r->left_t = l->t;
	}
	return l->err;
}

/* Room for one more at the end of an array that keeps its last `keep` elements. */
static int
slide(void **v, size_t *n, size_t *cap, size_t keep, size_t size)
{
	if (*n == 2 * keep) {
		memmove(*v, (char *)*v + (keep + 1) * size, (keep - 1) * size);
		*n = keep - 1;
	}
	return fal_grow(v, cap, *n + 1, size);
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
	if (slide((void **)&r->part, &r->n, &r->cap, FAL_BAND_LINES, sizeof(p)) < 0)
		return FAL_ENOMEM;
	r->part[r->n++] = p;
	return FAL_OK;
}

static int
take_update(struct fal_band *b, struct fal_trace_line *l)
{
	const struct fal_band_update u = {
		.t = l->t,
		.version = l->is.update.version,
		.clock = l->is.update.clock,
	};
	if (slide((void **)&b->update, &b->updates, &b->cap_updates, FAL_BAND_UPDATES,
		  sizeof(u)) < 0)
		return FAL_ENOMEM;
	b->update[b->updates++] = u;
	return FAL_OK;
}

int
fal_band_line(void *band, struct fal_trace_line *l)
{
	struct fal_band *b = band;
	int err;
	switch (l->event) {
	case FAL_EV_JOB:
		err = set_text(&b->scheme, l->is.job.scheme);
		return err < 0 ? err : set_text(&b->name, l->is.job.name);
	case FAL_EV_POLICY:
		return set_text(&b->scheme, l->is.policy.scheme);
	case FAL_EV_JOIN:
		return take_join(b, l);
	case FAL_EV_LEAVE:
		return take_leave(b, l);
	case FAL_EV_CLOCK:
		return take_clock(b, l);
	case FAL_EV_UPDATE:
		return take_update(b, l);
	default:
		return FAL_OK;
	}
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

/* What of the rows is drawn: `shown`, in order of rows, and `first`. */
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

/* How many of the last parts are judged: those that are drawn, or, of a worker that has
 * few, as many as it takes. */
static size_t
judged(const struct fal_band_row *r)
{
	const size_t drawn = r->n - r->first;
	if (drawn >= FAL_BAND_PERSISTENT || r->n < FAL_BAND_PERSISTENT)
		return drawn;
	return FAL_BAND_PERSISTENT;
}

/* Sets `persistent`; load, verdict and streak have room for each row. */
static int
classes(struct fal_band *b, struct fal_trace_load *load, struct fal_trace_class *verdict,
	size_t *streak)
{
	for (size_t i = 0; i < b->rows; i++)
		b->row[i].persistent = false;
	for (size_t back = 1; back <= FAL_BAND_CLOCKS; back++) {
		for (size_t i = 0; i < b->n_shown; i++) {
			const struct fal_band_row *r = &b->row[b->shown[i]];
			load[i] = back <= judged(r) ? r->part[r->n - back].load
						    : (struct fal_trace_load){ 0 };
		}
		const int err = fal_trace_classify(load, b->n_shown, verdict);
		if (err < 0)
			return err;
		for (size_t i = 0; i < b->n_shown; i++) {
			const bool is = verdict[i].class == FAL_CLASS_STRAGGLER;
			streak[i] = is ? streak[i] + 1 : 0;
			if (streak[i] >= FAL_BAND_PERSISTENT)
				b->row[b->shown[i]].persistent = true;
		}
	}
	return FAL_OK;
}

int
fal_band_end(struct fal_band *b, struct fal_diag *diag)
{
	double *v = fal_calloc(b->rows, sizeof(*v));
	size_t *shown = fal_calloc(b->rows, sizeof(*shown));
	size_t *streak = fal_calloc(b->rows, sizeof(*streak));
	struct fal_trace_load *load = fal_calloc(b->rows, sizeof(*load));
	struct fal_trace_class *verdict = fal_calloc(b->rows, sizeof(*verdict));
	int err = FAL_ENOMEM;
	if (v != NULL && shown != NULL && streak != NULL && load != NULL &&
	    verdict != NULL) {
		free(b->shown);
		b->shown = shown;
		shown = NULL;
		choose_time(b, v);
		choose_rows(b);
		qsort_r(b->shown, b->n_shown, sizeof(*b->shown), by_name, b->row);
		err = b->n_shown > 0 ? classes(b, load, verdict, streak) : FAL_ETRUNC;
	}
	free(v);
	free(shown);
	free(streak);
	free(load);
	free(verdict);
	if (err == FAL_ETRUNC)
		return fal_diag_set(diag, err, "no clock ended");
	return err < 0 ? fal_diag_set(diag, err, "%s", fal_strerror(err)) : FAL_OK;
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
