/* The what-if bars and the curves of jobs as pictures. */
#include "plot.h"

#include "gnuplot.h"

#include <math.h>
#include <stdio.h>

int
plot_format(const char *file, struct fal_diag *diag)
{
	return gnuplot_format(file, diag);
}

/* ---- bars ------------------------------------------------------------------------- */

enum {
	BAR_NAME = 24,   /* characters of a scheme's name */
	BAR_TOP = 86,    /* pixels above the bars: title, legend */
	BAR_BOTTOM = 64, /* and below: axis */
	BAR_PITCH = 44,
	BAR_TEXT = 290 /* pixels that the text beside the longest bar may take */
};

#define PREDICTED "fs solid 1 border lc rgb '" GNUPLOT_BLACK "' fc rgb '" GNUPLOT_SKY "'"
#define MEASURED \
	"fs pattern 5 border lc rgb '" GNUPLOT_BLACK "' fc rgb '" GNUPLOT_VERMILION "'"

/* Two bars share the row of a scheme that was measured too. */
static void
bar_rows(struct gnuplot *g, const struct plot_bar *bars, size_t n)
{
	gnuplot_put(g, "$predicted << EOD\n");
	for (size_t i = 0; i < n; i++)
		gnuplot_put(g, "%.9g %g %g\n", bars[i].epoch_s,
			    (double)i - (bars[i].measured_s > 0 ? 0.44 : 0.34),
			    (double)i + (bars[i].measured_s > 0 ? 0 : 0.34));
	gnuplot_put(g, "EOD\n$measured << EOD\n");
	for (size_t i = 0; i < n; i++)
		if (bars[i].measured_s > 0)
			gnuplot_put(g, "%.9g %zu %g\n", bars[i].measured_s, i,
				    (double)i + 0.44);
	gnuplot_put(g, "EOD\n");
}

/* Seconds with three digits; `s` is above 0. */
static const char *
seconds(double s, char out[static 32])
{
	const double decimals = fmin(6, fmax(0, 2 - floor(log10(s))));
	snprintf(out, 32, "%.*f s", (int)decimals, s);
	return out;
}

static void
bar_text(struct gnuplot *g, const struct plot_bar *b, size_t row)
{
	static const char place[] = "left offset character 0.7, 0 font ',14'";
	const bool two = b->measured_s > 0;
	char s[32];
	gnuplot_put(g, "set label '%s, %.0f %% compute' at %.9g, %g %s\n",
		    seconds(b->epoch_s, s), 100 * b->compute, b->epoch_s,
		    (double)row - (two ? 0.22 : 0), place);
	if (!two)
		return;
	const double off = 100 * (b->epoch_s / b->measured_s - 1);
	gnuplot_put(g,
		    "set label 'measured %s: predicted %.1f %% too %s' at %.9g, %g %s\n",
		    seconds(b->measured_s, s), fabs(off), off < 0 ? "little" : "much",
		    b->measured_s, (double)row + 0.22, place);
}

static void
bar_texts(struct gnuplot *g, const struct plot_bar *bars, size_t n, double left)
{
	for (size_t i = 0; i < n; i++) {
		gnuplot_put(g, "set label ");
		gnuplot_quote(g, bars[i].name, BAR_NAME);
		gnuplot_put(g, "%s at screen %.5f, first %zu right\n",
			    bars[i].ran ? ".' (ran)'" : "", (left - 8) / GNUPLOT_WIDTH,
			    i);
		bar_text(g, &bars[i], i);
	}
}

int
plot_bars(const char *file, const char *title, const struct plot_bar *bars, size_t n,
	  struct fal_diag *diag)
{
	struct gnuplot g;
	double most = 0, left = 0;
	bool measured = false;
	int err = gnuplot_format(file, diag);
	if (err < 0)
		return err;
	for (size_t i = 0; i < n; i++) {
		const size_t k = gnuplot_width(bars[i].name, BAR_NAME);
		most = fmax(most, fmax(bars[i].epoch_s, bars[i].measured_s));
		left = fmax(left, (double)(k + (bars[i].ran ? 6 : 0)));
		measured = measured || bars[i].measured_s > 0;
	}
	left = 20 + GNUPLOT_CHAR * left;
	const double wide = GNUPLOT_WIDTH - 20 - left;
	gnuplot_begin(&g, file, (unsigned)(BAR_TOP + BAR_BOTTOM + BAR_PITCH * n));
	gnuplot_area(&g, left, left + wide, BAR_TOP, g.height - BAR_BOTTOM);
	gnuplot_put(&g, "set label ");
	gnuplot_quote(&g, title, 80);
	gnuplot_put(&g, " at screen 0.5, screen %.5f center font ',18'\n",
		    1 - 24.0 / g.height);
	gnuplot_swatch(&g, left, 56, PREDICTED, "predicted");
	if (measured)
		gnuplot_swatch(&g, left + 130, 56, MEASURED, "measured");
	/* An xlabel of its own might go missing: gnuplot leaves out what it thinks too
	 * low. */
	gnuplot_text(&g, left + wide / 2, g.height - 14, "center", "time per epoch (s)");
	bar_rows(&g, bars, n);
	bar_texts(&g, bars, n, left);
	gnuplot_put(&g,
		    "set xrange [0:%.9g]\nset yrange [%.1f:-0.5]\nunset ytics\n"
		    "set border 1\nset xtics out\n",
		    most * wide / (wide - BAR_TEXT), (double)n - 0.5);
	gnuplot_put(&g, "unset key\nplot $predicted using 1:2:(0):1:2:3 with "
			"boxxyerror " PREDICTED);
	if (measured)
		gnuplot_put(&g,
			    ", $measured using 1:2:(0):1:2:3 with boxxyerror " MEASURED);
	gnuplot_put(&g, "\n");
	return gnuplot_end(&g, diag);
}

/* ---- curves ----------------------------------------------------------------------- */

enum {
	CURVE_NAME = 40,   /* characters of a trace's name */
	CURVE_TOP = 50,    /* pixels of the title */
	CURVE_LEGEND = 24, /* of a row of the legend */
	CURVE_PANEL = 300, /* of a panel with its axis */
	CURVE_LEFT = 90,
	CURVE_MARKS = 8 /* marks on a curve, which tell it where colours do not */
};

static const char *const colours[] = { GNUPLOT_BLUE,   GNUPLOT_VERMILION, GNUPLOT_GREEN,
				       GNUPLOT_PURPLE, GNUPLOT_ORANGE,    GNUPLOT_SKY,
				       GNUPLOT_BLACK };
enum { COLOURS = sizeof(colours) / sizeof(colours[0]) };

/* A panel: one of the lines of all curves, against time or samples. */
struct panel {
	const struct plot_curve *curves;
	size_t n;
	bool accuracy, samples;
	double unit; /* samples of one step of the axis */
};

static const struct fal_curve_line *
line_of(const struct plot_curve *c, bool accuracy)
{
	return accuracy ? &c->curve->accuracy : &c->curve->loss;
}

static void
curve_data(struct gnuplot *g, const struct plot_curve *curves, size_t n)
{
	for (size_t i = 0; i < 2 * n; i++) {
		const struct fal_curve_line *l = line_of(&curves[i / 2], i % 2 == 1);
		gnuplot_put(g, "$line%zu << EOD\n", i);
		for (size_t k = 0; k < l->n; k++)
			gnuplot_put(g, "%.9g %.9g %.9g\n", l->point[k].t,
				    l->point[k].samples, l->point[k].value);
		gnuplot_put(g, "EOD\n");
	}
}

/* How curve `i` is drawn. */
static const char *
style_of(size_t i, char out[static 64])
{
	snprintf(out, 64, "lc rgb '%s' lw 2 pt %zu ps 0.8", colours[i % COLOURS],
		 4 + i % 10);
	return out;
}

/* The names of the curves, so many in a row. */
static void
legend(struct gnuplot *g, const struct plot_curve *curves, size_t n, size_t columns)
{
	const double wide = (GNUPLOT_WIDTH - 40.0) / (double)columns;
	for (size_t i = 0; i < n; i++) {
		const double x = 20 + wide * (double)(i % columns);
		const double y = CURVE_TOP + CURVE_LEGEND * (double)(i / columns);
		const double up = 1 - (y + 6) / g->height;
		char style[64];
		gnuplot_put(
			g,
			"set arrow from screen %.5f, screen %.5f to screen %.5f, screen "
			"%.5f nohead lw 2 lc rgb '%s'\n",
			x / GNUPLOT_WIDTH, up, (x + 36) / GNUPLOT_WIDTH, up,
			colours[i % COLOURS]);
		gnuplot_put(g, "set label '' at screen %.5f, screen %.5f point %s\n",
			    (x + 18) / GNUPLOT_WIDTH, up, style_of(i, style));
		gnuplot_put(g, "set label ");
		gnuplot_quote(g, curves[i].name, CURVE_NAME);
		gnuplot_put(g, " at screen %.5f, screen %.5f left\n",
			    (x + 44) / GNUPLOT_WIDTH, up);
	}
}

static void
panel(struct gnuplot *g, const struct panel *p)
{
	const char *comma = "plot ",
		   *title = p->accuracy ? "test accuracy (%)" : "training loss";
	gnuplot_put(g, "set ylabel '%s'\nset yrange [%s]\n", p->samples ? "" : title,
		    p->accuracy ? "*:*<100" : "*:*");
	for (size_t i = 0; i < p->n; i++) {
		const struct fal_curve_line *l = line_of(&p->curves[i], p->accuracy);
		char style[64];
		if (l->n == 0)
			continue;
		gnuplot_put(
			g, "%s$line%zu using ($%d/%g):($3*%d) with linespoints %s pi %zu",
			comma, 2 * i + (p->accuracy ? 1 : 0), p->samples ? 2 : 1,
			p->samples ? p->unit : 1, p->accuracy ? 100 : 1,
			style_of(i, style), l->n / CURVE_MARKS + 1);
		comma = ", ";
	}
	/* The texts and the legend are of the whole picture: once is enough. */
	gnuplot_put(g, "\nunset label\nunset arrow\n");
}

static const char *
unit_of(double samples, double *unit)
{
	*unit = samples >= 2e6 ? 1e6 : samples >= 2e3 ? 1e3 : 1;
	return samples >= 2e6   ? "samples (millions)"
	       : samples >= 2e3 ? "samples (thousands)"
				: "samples";
}

/* The panels, two in a row, time on the left. */
static void
panels(struct gnuplot *g, struct panel p, size_t rows, double top)
{
	const double wide = (GNUPLOT_WIDTH - CURVE_LEFT - 20 - 50) / 2.0;
	double samples = 0, time = 0;
	for (size_t i = 0; i < 2 * p.n; i++) {
		const struct fal_curve_line *l = line_of(&p.curves[i / 2], i % 2 == 1);
		if (l->n > 0)
			time = fmax(time, l->point[l->n - 1].t);
		samples = fmax(samples, p.curves[i / 2].curve->samples);
	}
	const char *unit = unit_of(samples, &p.unit);
	for (size_t i = 0; i < 2 * rows; i++) {
		const double left = CURVE_LEFT + (wide + 50) * (double)(i % 2);
		const double above = top + CURVE_PANEL * (double)(i / 2);
		p.accuracy = i / 2 == 1;
		p.samples = i % 2 == 1;
		gnuplot_area(g, left, left + wide, above, above + CURVE_PANEL - 86);
		gnuplot_put(g, "set xlabel '%s'\nset xrange [0:%.9g]\n",
			    p.samples ? unit : "time (s)",
			    p.samples ? samples / p.unit : time);
		panel(g, &p);
	}
}

int
plot_curves(const char *file, const struct plot_curve *curves, size_t n,
	    struct fal_diag *diag)
{
	struct gnuplot g;
	size_t longest = 0;
	bool loss = false, accuracy = false;
	int err = gnuplot_format(file, diag);
	if (err < 0)
		return err;
	for (size_t i = 0; i < n; i++) {
		const size_t k = gnuplot_width(curves[i].name, CURVE_NAME);
		longest = k > longest ? k : longest;
		loss = loss || curves[i].curve->loss.n > 0;
		accuracy = accuracy || curves[i].curve->accuracy.n > 0;
	}
	if (!loss)
		return fal_diag_set(diag, FAL_ETRUNC, "no update has a loss");
	size_t columns = (GNUPLOT_WIDTH - 40) / (GNUPLOT_CHAR * longest + 60);
	columns = columns < 1 ? 1 : columns;
	const size_t rows = (n + columns - 1) / columns;
	const double top = CURVE_TOP + CURVE_LEGEND * (double)rows + 10;
	gnuplot_begin(&g, file, (unsigned)(top + CURVE_PANEL * (accuracy ? 2 : 1)));
	gnuplot_text(&g, GNUPLOT_WIDTH / 2.0, 24, "center font ',18'", "%s",
		     accuracy ? "Training loss and test accuracy" : "Training loss");
	curve_data(&g, curves, n);
	gnuplot_put(
		&g,
		"set multiplot\nunset key\nset border 3\nset tics out\nset grid ytics "
		"lc rgb '#DDDDDD' lt 1\n");
	legend(&g, curves, n, columns);
	panels(&g, (struct panel){ .curves = curves, .n = n }, accuracy ? 2 : 1, top);
	gnuplot_put(&g, "unset multiplot\n");
	return gnuplot_end(&g, diag);
}
