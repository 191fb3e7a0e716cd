/* The what-if bars as a picture. */
#include "gnuplot.h"
#include "plot.h"

#include <math.h>
#include <stdio.h>

enum {
	BAR_NAME = 24,   /* characters of a scheme's name */
	BAR_TOP = 86,    /* pixels above the bars: title, legend */
	BAR_BOTTOM = 64, /* and below: axis */
	BAR_PITCH = 44,
	BAR_TEXT = 330 /* pixels that the text beside the longest bar may take */
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
	gnuplot_put(g, "set label '%s, %.0f %% compute%s' at %.9g, %g %s\n",
		    seconds(b->epoch_s, s), 100 * b->compute,
		    b->other ? ", another model" : "", b->epoch_s,
		    (double)row - (two ? 0.22 : 0), place);
	if (!two)
		return;
	const double off = 100 * (b->epoch_s / b->measured_s - 1);
	gnuplot_put(g, "set label 'measured %s, error %+.1f %%' at %.9g, %g %s\n",
		    seconds(b->measured_s, s), off, b->measured_s, (double)row + 0.22,
		    place);
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
	gnuplot_put(&g, "plot $predicted using 1:2:(0):1:2:3 with "
			"boxxyerror " PREDICTED);
	if (measured)
		gnuplot_put(&g,
			    ", $measured using 1:2:(0):1:2:3 with boxxyerror " MEASURED);
	gnuplot_put(&g, "\n");
	return gnuplot_end(&g, diag);
}
