/* The pictures of falcon-proj, by the real gnuplot: well-formed, with all names and
 * numbers in them; and what is left when it fails. */
#include "../../cmd/falcon-proj/plot.h"
#include "cli/file.h"
#include "whole.h"

#include <math.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>

/* A worker's name with all that means something to gnuplot or XML; a double quote, which
 * a table cannot have, is a question mark. */
#define WILD "a_b@c^{}'`%g<&\""
#define WILD_XML "a_b@c^{}'`%g&lt;&amp;?"

enum { ROWS = 64, WIDTH = 900 }; /* of share/plots/bands.gp */

static char folder[] = "/tmp/test_plot.XXXXXX";

static const char *
in_folder(const char *name)
{
	static char path[256];
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

/* Files in the folder. */
static int
files(void)
{
	DIR *d = opendir(folder);
	int n = 0;
	assert_non_null(d);
	for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d))
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

/* Reads and removes it; free it. */
static char *
take(const char *path)
{
	struct fal_buf b = { 0 };
	struct fal_diag diag;
	if (fal_cli_read(path, 1 << 24, &b, &diag) < 0)
		fail_msg("%s", diag.text);
	fal_put_u8(&b, 0);
	assert_int_equal(unlink(path), 0);
	return (char *)b.p;
}

static void
has(const char *svg, const char *text)
{
	if (strstr(svg, text) == NULL)
		fail_msg("not in the picture: %s", text);
}

/* Every element ends, in the right order, and nothing stands where it must be escaped. */
static void
well_formed(const char *svg)
{
	char open[64][16];
	size_t depth = 0;
	assert_memory_equal(svg, "<?xml", 5);
	for (const char *p = strchr(svg, '<'); p != NULL; p = strchr(p, '<')) {
		const char *end =
			strncmp(p, "<!--", 4) == 0 ? strstr(p, "-->") : strchr(p, '>');
		assert_non_null(end);
		const char *name = p + 1 + (p[1] == '/');
		const int n = (int)strcspn(name, " \t\n/>");
		if (p[1] == '/') {
			assert_true(depth > 0);
			if (strncmp(open[--depth], name, (size_t)n) != 0 ||
			    open[depth][n] != '\0')
				fail_msg("<%s> is ended by </%.*s>", open[depth], n,
					 name);
		} else if (p[1] != '?' && p[1] != '!' && end[-1] != '/') {
			assert_true(depth < 64 && n < 16);
			snprintf(open[depth++], sizeof(open[0]), "%.*s", n, name);
		}
		p = end;
	}
	assert_int_equal(depth, 0);
	for (const char *p = strchr(svg, '&'); p != NULL; p = strchr(p + 1, '&'))
		if (p[1 + strspn(p + 1, "#abcdefghijklmnopqrstuvwxyz0123456789")] != ';')
			fail_msg("a bare &: %.20s", p);
}

/* Draws these numbers, and frees them. */
static int
draw(const char *name, const char *kind, struct fal_buf *numbers, struct fal_diag *diag)
{
	const int err = plot_draw(in_folder(name), kind, numbers, diag);
	fal_buf_free(numbers);
	return err;
}

static int
draw_bands(const char *name, const struct fal_gantt *b, struct fal_diag *diag)
{
	struct fal_buf numbers = { 0 };
	plot_put_bands(&numbers, b);
	return draw(name, "bands", &numbers, diag);
}

static int
draw_bars(const char *name, const struct plot_bar *bars, size_t n, struct fal_diag *diag)
{
	struct fal_buf numbers = { 0 };
	plot_put_bars(&numbers, bars, n);
	return draw(name, "bars", &numbers, diag);
}

static int
draw_curves(const char *name, const struct plot_curve *curves, struct fal_diag *diag)
{
	struct fal_buf numbers = { 0 };
	plot_put_curves(&numbers, curves, 2);
	return draw(name, "curves", &numbers, diag);
}

/* `n` workers, 5 clocks of a second. */
static void
make_bands(struct fal_gantt *b, unsigned n)
{
	struct fal_buf s = { 0 };
	fal_put_fmt(&s,
		    "{\"t\":0,\"ev\":\"job\",\"name\":\"it's\",\"scheme\":\"epsp\"}\n");
	for (unsigned i = 0; i < n; i++)
		fal_put_fmt(&s,
			    "{\"t\":0,\"ev\":\"join\",\"worker\":\"%s%u\",\"id\":%u}\n",
			    i == 0 ? "a_b@c^{}'`%g<&\\\"" : "host", i, i);
	for (unsigned c = 0; c < 5; c++) {
		fal_put_fmt(&s,
			    "{\"t\":%u,\"ev\":\"update\",\"version\":%u,\"clock\":%u}\n",
			    c + 1, c + 701, c + 700);
		for (unsigned i = 0; i < n; i++)
			fal_put_fmt(&s,
				    "{\"t\":%u,\"ev\":\"clock\",\"id\":%u,\"lanes\":1,"
				    "\"done\":8,\"in\":3,\"out\":17,\"cloned\":5,"
				    "\"lost\":0,\"compute\":0.7,\"push\":0.1,\"pull\":"
				    "0.1,\"wait\":0.1,\"task_s\":%u}\n",
				    c + 1, i, i % 3 == 1 ? 4 : 1);
	}
	struct fal_trace_reader *r = fal_trace_reader_new(fal_gantt_line, b);
	struct fal_diag diag = { "" };
	if (whole_feed(r, s.p, s.n, &diag) < 0 || fal_gantt_end(b, &diag) < 0)
		fail_msg("%s", diag.text);
	fal_trace_reader_free(r);
	fal_buf_free(&s);
}

static void
test_bands(void **state)
{
	(void)state;
	struct fal_gantt b = { 0 };
	struct fal_diag diag = { "" };
	make_bands(&b, 3);
	if (draw_bands("a.svg", &b, &diag) != 0)
		fail_msg("%s", diag.text);
	assert_int_equal(files(), 1);
	char *svg = take(in_folder("a.svg"));
	well_formed(svg);
	static const char *const texts[] = { "it's (epsp)", "3 workers", WILD_XML "0",
					     "host1 *",     "host2<",    ">700<",
					     ">704<",       "pull",      "compute",
					     "push",        "wait",      ">+3×5−17<",
					     "time (s)" };
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		has(svg, texts[i]);
	free(svg);
	/* By its bytes a PNG, of the promised width. */
	assert_int_equal(draw_bands("a.PNG", &b, &diag), 0);
	uint8_t png[24];
	int fd = open(in_folder("a.PNG"), O_RDONLY);
	assert_int_equal(read(fd, png, sizeof(png)), sizeof(png));
	close(fd);
	unlink(in_folder("a.PNG"));
	assert_memory_equal(png, "\x89PNG\r\n\x1a\n", 8);
	assert_int_equal(png[18] << 8 | png[19], WIDTH);
	fal_gantt_free(&b);
}

static size_t
count(const char *svg, const char *text)
{
	size_t n = 0;
	for (const char *p = strstr(svg, text); p != NULL; p = strstr(p + 1, text))
		n++;
	return n;
}

/* More workers than there are rows: stragglers are the first. */
static void
test_many(void **state)
{
	(void)state;
	struct fal_gantt b = { 0 };
	struct fal_diag diag = { "" };
	make_bands(&b, 1000);
	assert_int_equal(draw_bands("a.svg", &b, &diag), 0);
	char *svg = take(in_folder("a.svg"));
	assert_int_equal(count(svg, ">host"), ROWS);
	assert_int_equal(count(svg, " *<"), ROWS);
	has(svg, "64 of 1000 workers");
	free(svg);
	/* A few are all there. */
	for (size_t i = 0; i < b.rows; i++)
		b.row[i].persistent = b.row[i].persistent && i < 30;
	assert_int_equal(draw_bands("a.svg", &b, &diag), 0);
	svg = take(in_folder("a.svg"));
	assert_int_equal(count(svg, ">host"), ROWS - 1);
	has(svg, WILD_XML "0");
	assert_int_equal(count(svg, " *<"), 10);
	free(svg);
	fal_gantt_free(&b);
}

static void
test_bars(void **state)
{
	(void)state;
	static const struct plot_bar bars[] = {
		{ .name = "bsp", .epoch_s = 31.24, .compute = 0.52 },
		{ .name = "epsp",
		  .epoch_s = 9,
		  .measured_s = 10,
		  .compute = 0.93,
		  .ran = true },
		{ .name = WILD, .epoch_s = 1234, .compute = 1 },
	};
	struct fal_diag diag = { "" };
	if (draw_bars("b.svg", bars, 3, &diag) != 0)
		fail_msg("%s", diag.text);
	char *svg = take(in_folder("b.svg"));
	well_formed(svg);
	static const char *const texts[] = {
		">bsp<",
		">epsp (ran)<",
		WILD_XML,
		"31.2 s, 52 % compute",
		"9.00 s, 93 % compute",
		"1234 s, 100 % compute",
		"measured 10.0 s, error -10.0 %",
		"time per epoch (s)",
		">predicted<",
		">measured<",
	};
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		has(svg, texts[i]);
	free(svg);
	/* Without a backtest nothing is said of one. */
	assert_int_equal(draw_bars("b.svg", bars, 1, &diag), 0);
	svg = take(in_folder("b.svg"));
	assert_null(strstr(svg, "measured"));
	free(svg);
}

static void
test_curves(void **state)
{
	(void)state;
	struct fal_curve *c = calloc(2, sizeof(*c));
	const struct plot_curve curves[] = { { WILD, &c[0] },
					     { "bytes \xff of no text", &c[1] } };
	struct fal_diag diag = { "" };
	for (size_t i = 0; i < 20; i++)
		c[0].loss.point[i] = (struct fal_curve_point){ (double)i, 1e5 * (double)i,
							       2.5 / (double)(i + 1) };
	c[0].loss.n = 20;
	c[0].samples = 1.9e6;
	assert_int_equal(draw_curves("c.svg", curves, &diag), 0);
	char *svg = take(in_folder("c.svg"));
	well_formed(svg);
	has(svg, WILD_XML);
	has(svg, ">bytes ? of no text<");
	has(svg, "samples (thousands)");
	has(svg, "Training loss");
	assert_null(strstr(svg, "accuracy"));
	free(svg);
	c[1].accuracy = c[0].loss;
	for (size_t i = 0; i < 20; i++)
		c[1].accuracy.point[i].value /= 4;
	assert_int_equal(draw_curves("c.svg", curves, &diag), 0);
	svg = take(in_folder("c.svg"));
	well_formed(svg);
	has(svg, "test accuracy (%)");
	/* gnuplot leaves out a text that it finds no room for. */
	assert_int_equal(count(svg, ">time (s)<"), 2);
	assert_int_equal(count(svg, ">samples (thousands)<"), 2);
	free(svg);
	free(c);
}

/* What it says when it cannot; a picture that was there stays as it was. */
static void
test_fails(void **state)
{
	(void)state;
	const struct plot_bar bar = { .name = "bsp", .epoch_s = 1 };
	struct fal_diag diag = { "" };
	char *path = strdup(getenv("PATH")), *fake = strdup(in_folder("gnuplot"));
	assert_int_equal(plot_check_format("x.pdf", &diag), FAL_EINVAL);
	assert_string_equal(diag.text, "x.pdf: the name does not end in .svg or .png");
	assert_int_equal(plot_check_format(".svg", NULL), FAL_EINVAL);
	assert_int_equal(draw_bars("no/x.svg", &bar, 1, &diag), FAL_ENOENT);
	has(diag.text, "/no/x.svg: No such file or directory");
	setenv("PATH", folder, 1);
	assert_int_equal(draw_bars("x.svg", &bar, 1, &diag), FAL_ENOENT);
	assert_string_equal(diag.text, "gnuplot is not here: apt install gnuplot-nox");
	assert_int_equal(files(), 0);
	static const char script[] = "#!/bin/sh\necho half\necho ' why' >&2\nexit 3\n";
	assert_int_equal(fal_cli_write(fake, script, sizeof(script) - 1, 0755, &diag), 0);
	assert_int_equal(fal_cli_write(in_folder("x.svg"), "old", 3, 0644, &diag), 0);
	assert_int_equal(draw_bars("x.svg", &bar, 1, &diag), FAL_EIO);
	assert_string_equal(diag.text, "gnuplot: why");
	char *old = take(in_folder("x.svg"));
	assert_string_equal(old, "old");
	static const char silent[] = "#!/bin/sh\n";
	assert_int_equal(fal_cli_write(fake, silent, sizeof(silent) - 1, 0755, &diag), 0);
	assert_int_equal(draw_bars("x.svg", &bar, 1, &diag), FAL_EIO);
	assert_string_equal(diag.text, "gnuplot: drew nothing");
	assert_int_equal(unlink(fake), 0);
	assert_int_equal(files(), 0);
	setenv("PATH", path, 1);
	free(old);
	free(fake);
	free(path);
}

static int
make_folder(void **state)
{
	(void)state;
	return mkdtemp(folder) != NULL ? 0 : -1;
}

static int
remove_folder(void **state)
{
	(void)state;
	return rmdir(folder);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bands), cmocka_unit_test(test_many),
		cmocka_unit_test(test_bars),  cmocka_unit_test(test_curves),
		cmocka_unit_test(test_fails),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
