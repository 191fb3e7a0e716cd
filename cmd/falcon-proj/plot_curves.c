/* The curves of jobs as a picture: two panels a row, against time and against samples. */
#include "gnuplot.h"
#include "plot.h"

#include <math.h>
#include <stdio.h>

enum {
	CURVE_NAME = 40,   /* characters of a trace's name */
	CURVE_TOP = 50,    /* pixels of the title */
	CURVE_LEGEND = 24, /* of a row of the legend */
	CURVE_PANEL = 214, /* of a panel, */
	CURVE_AXIS = 86,   /* of the axis below it, */
	CURVE_LEFT = 90,   /* of that on its left, and */
	CURVE_GAP = 50,    /* between two panels */
	CURVE_RIGHT = 20,
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
		gnuplot_put(g,
			    "set arrow from screen %.5f, screen %.5f rto screen %.5f, 0 "
			    "nohead lw 2 lc rgb '%s'\n",
			    x / GNUPLOT_WIDTH, up, 36.0 / GNUPLOT_WIDTH,
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
	const char *title = p->accuracy ? "test accuracy (%)" : "training loss";
	const char *comma = "plot ";
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
	const double wide = (GNUPLOT_WIDTH - CURVE_LEFT - CURVE_GAP - CURVE_RIGHT) / 2.0;
	double samples = 0, time = 0;
	for (size_t i = 0; i < 2 * p.n; i++) {
		const struct fal_curve_line *l = line_of(&p.curves[i / 2], i % 2 == 1);
		if (l->n > 0)
			time = fmax(time, l->point[l->n - 1].t);
		samples = fmax(samples, p.curves[i / 2].curve->samples);
	}
	const char *unit = unit_of(samples, &p.unit);
	for (size_t i = 0; i < 2 * rows; i++) {
		const double left = CURVE_LEFT + (wide + CURVE_GAP) * (double)(i % 2);
		const double above = top + (CURVE_PANEL + CURVE_AXIS) * (double)(i / 2);
		p.accuracy = i / 2 == 1;
		p.samples = i % 2 == 1;
		gnuplot_area(g, left, left + wide, above, above + CURVE_PANEL);
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
	gnuplot_begin(&g, file,
		      (unsigned)(top + (CURVE_PANEL + CURVE_AXIS) * (accuracy ? 2 : 1)));
	gnuplot_text(&g, GNUPLOT_WIDTH / 2.0, 24, "center font ',18'", "%s",
		     accuracy ? "Training loss and test accuracy" : "Training loss");
	curve_data(&g, curves, n);
	gnuplot_put(&g, "set multiplot\nset border 3\nset tics out\n"
			"set grid ytics lc rgb '#DDDDDD' lt 1\n");
	legend(&g, curves, n, columns);
	panels(&g, (struct panel){ .curves = curves, .n = n }, accuracy ? 2 : 1, top);
	gnuplot_put(&g, "unset multiplot\n");
	return gnuplot_end(&g, diag);
}
