/* The straggler projection as a picture: a band for each worker along time. */
#include "base/text.h"
#include "gnuplot.h"
#include "plot.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
	NAME_MOST = 16, /* characters of a worker's name */
	TOP = 114,      /* pixels above the bands: title, legend, numbers of clocks */
	BOTTOM = 126,   /* and below: axis and notes */
	RIGHT = 20,
	RULED = 24 /* updates that get a line through the bands; more are ticks */
};

/* The parts, in the order in which they are drawn, dark and light by turns. */
enum { PULL, COMPUTE, PUSH, WAIT, PARTS };
static const struct {
	const char *name, *style;
} parts[PARTS] = {
	[PULL] = { "pull", "fs solid 1 noborder fc rgb '" GNUPLOT_VERMILION "'" },
	[COMPUTE] = { "compute",
		      "fs solid 1 border lc rgb '#FFFFFF' fc rgb '" GNUPLOT_SKY "'" },
	[PUSH] = { "push", "fs solid 1 noborder fc rgb '" GNUPLOT_BLACK "'" },
	[WAIT] = { "wait", "fs solid 1 border lc rgb '#AAAAAA' fc rgb '#FFFFFF'" },
};

/* The layout, in pixels. */
struct bands {
	struct gnuplot g;
	const struct fal_band *b;
	const struct fal_band_row *row[PLOT_ROWS]; /* that are drawn */
	size_t rows;
	double left, pitch, per_s;
};

/* Whether number i of n is one of the `most` that stand evenly among them. */
static bool
is_picked(size_t i, size_t n, size_t most)
{
	return n <= most || i * most / n != (i + 1) * most / n;
}

/* Chooses the rows. */
static void
pick(struct bands *p)
{
	const struct fal_band *b = p->b;
	size_t all[2] = { 0 }, most[2], at[2] = { 0 }; /* others, persistent stragglers */
	for (size_t i = 0; i < b->n_shown; i++)
		all[b->row[b->shown[i]].persistent]++;
	most[1] = b->n_shown <= PLOT_ROWS  ? all[1]
		  : all[1] < PLOT_ROWS / 2 ? all[1]
					   : PLOT_ROWS / 2;
	most[0] = PLOT_ROWS - most[1];
	for (size_t i = 0; i < b->n_shown; i++) {
		const struct fal_band_row *r = &b->row[b->shown[i]];
		const bool kind = r->persistent;
		if (is_picked(at[kind]++, all[kind], most[kind]))
			p->row[p->rows++] = r;
	}
}

static void
lay_out(struct bands *p, const char *file)
{
	const struct fal_band *b = p->b;
	size_t widest = 0;
	for (size_t i = 0; i < p->rows; i++) {
		const size_t n = gnuplot_width(p->row[i]->name, NAME_MOST);
		widest = n > widest ? n : widest;
	}
	/* The mark of a straggler, and "version" above the names. */
	p->left = 20 + GNUPLOT_CHAR * (double)(widest + 2 > 7 ? widest + 2 : 7);
	p->pitch = p->rows <= 8 ? 44 : p->rows <= 16 ? 32 : p->rows <= 40 ? 20 : 17;
	p->per_s = (GNUPLOT_WIDTH - RIGHT - p->left) / (b->end - b->begin);
	gnuplot_begin(&p->g, file, (unsigned)(TOP + BOTTOM + p->pitch * (double)p->rows));
	gnuplot_area(&p->g, p->left, GNUPLOT_WIDTH - RIGHT, TOP, p->g.height - BOTTOM);
}

static bool
is_ruled(const struct fal_band *b)
{
	return b->shown_updates <= RULED;
}

static void
heading(struct bands *p)
{
	const struct fal_band *b = p->b;
	struct gnuplot *g = &p->g;
	gnuplot_put(g, "set label ");
	gnuplot_quote(g, b->name, 24);
	gnuplot_put(g, ".' ('.");
	gnuplot_quote(g, b->scheme, 24);
	gnuplot_put(g, ".'): where the time of ");
	if (p->rows < b->n_shown)
		gnuplot_put(g, "%zu of ", p->rows);
	gnuplot_put(g, "%zu worker%s went'", b->n_shown, fal_text_s(b->n_shown));
	gnuplot_put(g, " at screen 0.5, screen %.5f center font ',18'\n",
		    1 - 24.0 / g->height);
	for (int k = 0; k < PARTS; k++)
		gnuplot_swatch(g, p->left + 130 * k, 56, parts[k].style, parts[k].name);
	gnuplot_text(g, GNUPLOT_WIDTH / 2.0, g->height - BOTTOM + 56, "center",
		     "time (s)");
	gnuplot_text(g, 12, g->height - 42, "left font ',14'",
		     "The parts are sums of each %s, drawn in the order of the legend.%s",
		     b->own ? "round" : "clock",
		     is_ruled(b) ? "  Dashed: a new version." : "  Ticks: new versions.");
	gnuplot_text(g, 12, g->height - 20, "left font ',14'",
		     "+ −: tasks moved to it, away from it; ×: clones it ran (where "
		     "there is room).  "
		     "*: a straggler %d times in a row.",
		     FAL_BAND_PERSISTENT);
}

static void
names(struct bands *p)
{
	for (size_t i = 0; i < p->rows; i++) {
		const struct fal_band_row *r = p->row[i];
		gnuplot_put(&p->g, "set label ");
		gnuplot_quote(&p->g, r->name, NAME_MOST);
		gnuplot_put(&p->g,
			    "%s at screen %.5f, first %zu right font ',%d' textcolor rgb "
			    "'%s'\n",
			    r->persistent ? ".' *'" : "", (p->left - 8) / GNUPLOT_WIDTH,
			    i, p->pitch < 20 ? GNUPLOT_SMALL : GNUPLOT_FONT,
			    r->persistent ? GNUPLOT_VERMILION : GNUPLOT_BLACK);
	}
}

/* A line through the bands, or a tick above them, where a version was made. */
static void
rule(struct bands *p, double t)
{
	const bool ruled = is_ruled(p->b);
	gnuplot_put(&p->g,
		    "set arrow from %.6f, graph %s to %.6f, graph 1 nohead front "
		    "lc rgb '" GNUPLOT_BLACK "' %s\n",
		    t, ruled ? "0" : "1.02", t, ruled ? "dt 3" : "");
}

/* The versions above the bands, each with its number where it was made; where rounds are
 * shared, with that of the clock that ends there, in the midst of this. */
static void
updates(struct bands *p)
{
	const struct fal_band *b = p->b;
	double taken = p->left, since = b->begin; /* taken: by text, up to this pixel */
	for (size_t i = 0; i < b->shown_updates; i++) {
		const struct fal_band_update *u = &b->update[b->first_update + i];
		const double t = b->own ? u->t : (since + u->t) / 2;
		const double x = p->left + (t - b->begin) * p->per_s;
		char text[24];
		const int n = snprintf(text, sizeof(text), "%" PRIu64,
				       b->own ? u->version : u->clock);
		const double half = n * GNUPLOT_CHAR / 2.0;
		rule(p, u->t);
		since = u->t;
		if (x - half < taken || x + half > GNUPLOT_WIDTH)
			continue;
		gnuplot_text(&p->g, x, TOP - 20, "center font ',14'", "%s", text);
		taken = x + half + GNUPLOT_CHAR;
	}
	gnuplot_text(&p->g, p->left - 8, TOP - 20, "right font ',14'", "%s",
		     b->own ? "version" : "clock");
}

static void
mark(struct bands *p, double t, double y, const char *text)
{
	gnuplot_put(&p->g, "set label '%s' at %.6f, %.3f center front font ',%d'\n", text,
		    t, y, GNUPLOT_SMALL);
}

/* The moved and cloned tasks of a part, where there is room for them: in tall bands the
 * comers above the goers. */
static void
draw_moved(struct bands *p, size_t row, const struct fal_band_part *part)
{
	char come[64] = "", go[32] = "", all[96];
	if (part->in > 0)
		snprintf(come, sizeof(come), "+%" PRIu64, part->in);
	if (part->cloned > 0)
		snprintf(come + strlen(come), sizeof(come) - strlen(come), "×%" PRIu64,
			 part->cloned);
	if (part->out > 0)
		snprintf(go, sizeof(go), "−%" PRIu64, part->out);
	snprintf(all, sizeof(all), "%s%s", come, go);
	const bool stacked = p->pitch >= 40 && *come != '\0' && *go != '\0';
	/* Where the ground is light: on compute, or on wait if that is longer. */
	double from = part->begin + part->pull, to = from + part->compute;
	if (part->wait > part->compute) {
		from = to + part->push;
		to = part->end;
	}
	from = from > p->b->begin ? from : p->b->begin;
	const double room = (to - from) * p->per_s, t = (from + to) / 2;
	const char *widest = stacked ? come : all;
	/* The signs are wider than most characters. */
	if ((double)(gnuplot_width(widest, sizeof(all)) * (GNUPLOT_CHAR + 1)) > room)
		return;
	if (!stacked && *all != '\0') {
		mark(p, t, (double)row, all);
	} else if (stacked) {
		mark(p, t, (double)row - 0.18, come);
		mark(p, t, (double)row + 0.2, go);
	}
}

/* Where the parts of kind `kind` are: begin, end, row; true if there are any. */
static bool
boxes(struct bands *p, int kind)
{
	bool any = false;
	gnuplot_put(&p->g, "$%s << EOD\n", parts[kind].name);
	for (size_t i = 0; i < p->rows; i++) {
		const struct fal_band_row *r = p->row[i];
		for (size_t k = r->first; k < r->n; k++) {
			const struct fal_band_part *part = &r->part[k];
			const double s[PARTS] = { part->pull, part->compute, part->push,
						  part->wait };
			double from = part->begin;
			for (int j = 0; j < kind; j++)
				from += s[j];
			double to = from + s[kind];
			from = from > p->b->begin ? from : p->b->begin;
			if (to <= from)
				continue;
			gnuplot_put(&p->g, "%.6f %.6f %zu\n", from, to, i);
			any = true;
		}
	}
	gnuplot_put(&p->g, "EOD\n");
	return any;
}

static void
plot(struct bands *p)
{
	bool any[PARTS];
	const double half = 0.4; /* of a band, of the way to the next */
	for (int k = 0; k < PARTS; k++)
		any[k] = boxes(p, k);
	gnuplot_put(&p->g,
		    "set xrange [%.6f:%.6f]\nset yrange [%.1f:-0.5]\nunset ytics\n"
		    "set border 1\nset xtics out\n",
		    p->b->begin, p->b->end, (double)p->rows - 0.5);
	const char *comma = "plot ";
	/* Those with borders first: these are not to cover a short part. */
	static const int order[PARTS] = { WAIT, COMPUTE, PUSH, PULL };
	for (int i = 0; i < PARTS; i++) {
		const int k = order[i];
		if (!any[k])
			continue;
		gnuplot_put(&p->g,
			    "%s$%s using 1:3:1:2:($3-%g):($3+%g) with boxxyerror %s",
			    comma, parts[k].name, half, half, parts[k].style);
		comma = ", ";
	}
	gnuplot_put(&p->g, "\n");
}

int
plot_bands(const char *file, const struct fal_band *b, struct fal_diag *diag)
{
	struct bands p = { .b = b };
	int err = gnuplot_format(file, diag);
	if (err < 0)
		return err;
	if (!(b->end > b->begin))
		return fal_diag_set(diag, FAL_ETRUNC, "no time has passed");
	pick(&p);
	lay_out(&p, file);
	heading(&p);
	names(&p);
	updates(&p);
	for (size_t i = 0; i < p.rows; i++) {
		const struct fal_band_row *r = p.row[i];
		for (size_t k = r->first; k < r->n; k++)
			draw_moved(&p, i, &r->part[k]);
	}
	plot(&p);
	return gnuplot_end(&p.g, diag);
}
