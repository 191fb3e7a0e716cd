/* Scripts for gnuplot, and running it.
 *
 * Script, picture and messages are files in memory: gnuplot may write while it reads
 * without either waiting for the other, and what is half done vanishes by itself.
 */
#include "gnuplot.h"

#include "base/fault.h"
#include "base/text.h"
#include "cli/file.h"

#include <errno.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { SWATCH = 28 }; /* pixels */

/* Fonts in pixels; pngcairo counts points, 3/4 of them. */
static const struct format {
	const char *suffix, *terminal;
} formats[] = {
	{ ".svg", "svg noenhanced background rgb '#FFFFFF' font 'sans-serif,16'" },
	{ ".png", "pngcairo noenhanced background rgb '#FFFFFF' fontscale 0.75 font "
		  "'sans-serif,16'" },
};

static const struct format *
format_of(const char *file)
{
	const size_t n = strlen(file);
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
		const size_t k = strlen(formats[i].suffix);
		if (n > k && strcasecmp(file + n - k, formats[i].suffix) == 0)
			return &formats[i];
	}
	return NULL;
}

int
gnuplot_format(const char *file, struct fal_diag *diag)
{
	if (format_of(file) != NULL)
		return FAL_OK;
	return fal_diag_set(diag, FAL_EINVAL, "%s: not a name in .svg or .png", file);
}

void
gnuplot_begin(struct gnuplot *g, const char *file, unsigned height)
{
	*g = (struct gnuplot){ .file = file, .height = height };
	gnuplot_put(g, "set encoding utf8\nset terminal %s size %d,%u\n",
		    format_of(file)->terminal, GNUPLOT_WIDTH, height);
	gnuplot_put(g, "set border lc rgb '" GNUPLOT_GREY "'\n"
		       "unset key\nset tics textcolor rgb '" GNUPLOT_BLACK
		       "' nomirror scale 0.5\n");
}

void
gnuplot_put(struct gnuplot *g, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	va_start(ap, fmt);
	const int n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(text))
		g->out.err = FAL_ELIMIT;
	else
		fal_put_bytes(&g->out, text, (size_t)n);
}

/* Whether the byte begins a character of UTF-8. */
static bool
begins(char c)
{
	return ((unsigned char)c & 0xc0) != 0x80;
}

size_t
gnuplot_width(const char *text, size_t most)
{
	const bool utf8 = fal_text_is_utf8(text);
	size_t n = 0;
	for (; *text != '\0' && n < most; text++)
		n += !utf8 || begins(*text);
	return n;
}

void
gnuplot_quote(struct gnuplot *g, const char *text, size_t most)
{
	const bool utf8 = fal_text_is_utf8(text);
	const bool whole = gnuplot_width(text, most + 1) <= most;
	size_t n = 0;
	gnuplot_put(g, "'");
	for (; *text != '\0'; text++) {
		n += !utf8 || begins(*text);
		if (!whole && n == most)
			break;
		if ((unsigned char)*text < ' ' || *text == 0x7f ||
		    (!utf8 && (unsigned char)*text > 0x7f))
			gnuplot_put(g, "?");
		else if (*text == '\'')
			gnuplot_put(g, "''"); /* the one escape in single quotes */
		else
			gnuplot_put(g, "%c", *text);
	}
	gnuplot_put(g, whole ? "'" : "…'");
}

void
gnuplot_text(struct gnuplot *g, double x, double y, const char *style, const char *fmt,
	     ...)
{
	char text[256];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	gnuplot_put(g, "set label ");
	gnuplot_quote(g, text, sizeof(text));
	gnuplot_put(g, " at screen %.5f, screen %.5f %s\n", x / GNUPLOT_WIDTH,
		    1 - y / g->height, style);
}

void
gnuplot_area(struct gnuplot *g, double left, double right, double top, double bottom)
{
	gnuplot_put(g,
		    "set lmargin at screen %.5f\nset rmargin at screen %.5f\n"
		    "set tmargin at screen %.5f\nset bmargin at screen %.5f\n",
		    left / GNUPLOT_WIDTH, right / GNUPLOT_WIDTH, 1 - top / g->height,
		    1 - bottom / g->height);
}

void
gnuplot_swatch(struct gnuplot *g, double x, double y, const char *style, const char *text)
{
	gnuplot_put(g,
		    "set object rectangle from screen %.5f, screen %.5f to screen %.5f, "
		    "screen %.5f %s\n",
		    x / GNUPLOT_WIDTH, 1 - (y - 6) / g->height,
		    (x + SWATCH) / GNUPLOT_WIDTH, 1 - (y + 6) / g->height, style);
	gnuplot_text(g, x + SWATCH + 8, y, "left", "%s", text);
}

static int
write_all(int fd, const uint8_t *p, size_t n)
{
	while (n > 0) {
		const ssize_t k = FAL_TRY(WRITE, -1, write(fd, p, n));
		if (k < 0 && errno != EINTR)
			return -1;
		p += k > 0 ? k : 0;
		n -= k > 0 ? (size_t)k : 0;
	}
	return lseek(fd, 0, SEEK_SET) == 0 ? 0 : -1;
}

/* Runs gnuplot on three files; sets the status of waitpid. */
static int
run(const int fd[static 3], int *status)
{
	char *argv[] = { "gnuplot", "-d", NULL };
	posix_spawn_file_actions_t actions;
	pid_t pid;
	int e = posix_spawn_file_actions_init(&actions);
	if (e != 0)
		return e;
	for (int i = 0; i < 3 && e == 0; i++)
		e = posix_spawn_file_actions_adddup2(&actions, fd[i], i);
	if (e == 0)
		e = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (e != 0)
		return e;
	while (waitpid(pid, status, 0) < 0)
		if (errno != EINTR)
			return errno;
	return 0;
}

/* The last line of gnuplot's messages as a diagnosis. */
static int
blame(int fd, struct fal_diag *diag)
{
	char text[512];
	const off_t end = lseek(fd, 0, SEEK_END);
	const off_t from = end < (off_t)sizeof(text) ? 0 : end - (off_t)sizeof(text) + 1;
	const ssize_t got = FAL_TRY(READ, -1, pread(fd, text, sizeof(text) - 1, from));
	char *line = text;
	text[got > 0 ? got : 0] = '\0';
	for (size_t n = strlen(text); n > 0 && strchr(" \n", text[n - 1]) != NULL; n--)
		text[n - 1] = '\0';
	if (strrchr(text, '\n') != NULL)
		line = strrchr(text, '\n') + 1;
	return fal_diag_set(diag, FAL_EIO, "gnuplot: %s",
			    *line != '\0' ? line + strspn(line, " \t") : "failed");
}

/* Makes the file what gnuplot has written. */
static int
keep(const struct gnuplot *g, int fd, struct fal_diag *diag)
{
	struct stat st;
	if (fstat(fd, &st) < 0 || st.st_size == 0)
		return fal_diag_set(diag, FAL_EIO, "gnuplot: drew nothing");
	void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		return fal_diag_set(diag, FAL_ENOMEM, "%s", strerror(errno));
	const int err = fal_cli_write(g->file, p, (size_t)st.st_size, 0666, diag);
	munmap(p, (size_t)st.st_size);
	return err;
}

int
gnuplot_end(struct gnuplot *g, struct fal_diag *diag)
{
	int fd[3] = { -1, -1, -1 }, status = 0, e = 0, err = g->out.err;
	if (err < 0) {
		fal_diag_set(diag, err, "%s: %s", g->file, fal_strerror(err));
		goto free_script;
	}
	for (int i = 0; i < 3 && e == 0; i++) {
		fd[i] = memfd_create("gnuplot", MFD_CLOEXEC);
		e = fd[i] < 0 ? errno : 0;
	}
	if (e == 0 && write_all(fd[0], g->out.p, g->out.n) < 0)
		e = errno;
	if (e == 0)
		e = run(fd, &status);
	if (e == ENOENT)
		err = fal_diag_set(diag, FAL_ENOENT,
				   "gnuplot is not here: apt install gnuplot-nox");
	else if (e != 0)
		err = fal_diag_set(diag, FAL_EIO, "gnuplot: %s", strerror(e));
	else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		err = blame(fd[2], diag);
	else
		err = keep(g, fd[1], diag);
	for (int i = 0; i < 3; i++)
		if (fd[i] >= 0)
			close(fd[i]);
free_script:
	fal_buf_free(&g->out);
	return err;
}
