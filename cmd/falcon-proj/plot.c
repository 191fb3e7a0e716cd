/* Puts the numbers of pictures, and runs gnuplot.
 *
 * Numbers, picture and messages are files in memory: so gnuplot can write while it reads
 * without a deadlock, and an unfinished picture vanishes by itself.
 */
#include "plot.h"

#include "base/fault.h"
#include "base/text.h"
#include "cli/file.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Puts a name as one column.  Puts '?' for control characters, for double quotes, which
 * gnuplot interprets, and for bytes above 0x7f if the name is not UTF-8. */
static void
plot_put_name(struct fal_buf *out, const char *name)
{
	const bool utf8 = fal_text_is_utf8(name);
	for (; *name != '\0'; name++) {
		const unsigned char c = (unsigned char)*name;
		const bool plain =
			c >= ' ' && c != 0x7f && c != '"' && (utf8 || c < 0x80);
		fal_put_u8(out, plain ? c : '?');
	}
}

static void
plot_put_row(struct fal_buf *out, const struct fal_gantt_row *r, size_t row)
{
	for (size_t k = r->first; k < r->n; k++) {
		const struct fal_gantt_part *p = &r->part[k];
		fal_put_fmt(out, "%zu\t%.6f\t%.6f\t%.6f\t%.6f\t%.6f\t", row, p->begin,
			    p->pull, p->compute, p->push, p->wait);
		fal_put_fmt(out, "%ju\t%ju\t%ju\n", p->in, p->out, p->cloned);
	}
}

void
plot_put_bands(struct fal_buf *out, const struct fal_gantt *b)
{
	fal_put_fmt(out, "# job\tscheme\tunit\tbegin\tend\n");
	plot_put_name(out, b->name);
	fal_put_fmt(out, "\t");
	plot_put_name(out, b->scheme);
	fal_put_fmt(out, "\t%s\t%.6f\t%.6f\n", b->own ? "round" : "clock", b->begin,
		    b->end);
	/* Persistent stragglers come first, in both tables: of names, and of parts. */
	for (int table = 0; table < 2; table++) {
		size_t row = 0;
		fal_put_fmt(out, table == 0
					 ? "\n\n# row\tpersistent\tworker\n"
					 : "\n\n# row\tbegin\tpull\tcompute\tpush\twait\t"
					   "in\tout\tcloned\n");
		for (int persistent = 1; persistent >= 0; persistent--) {
			for (size_t i = 0; i < b->n_shown; i++) {
				const struct fal_gantt_row *r = &b->row[b->shown[i]];
				if (r->persistent != (persistent == 1))
					continue;
				if (table == 1) {
					plot_put_row(out, r, row++);
					continue;
				}
				fal_put_fmt(out, "%zu\t%d\t", row++, persistent);
				plot_put_name(out, r->name);
				fal_put_fmt(out, "\n");
			}
		}
	}
	fal_put_fmt(out, "\n\n# time\t%s\n", b->own ? "version" : "clock");
	for (size_t i = 0; i < b->shown_updates; i++) {
		const struct fal_gantt_update *u = &b->update[b->first_update + i];
		fal_put_fmt(out, "%.6f\t%ju\n", u->t, b->own ? u->version : u->clock);
	}
}

void
plot_put_bars(struct fal_buf *out, const struct plot_bar *bars, size_t n)
{
	fal_put_fmt(out, "# row\tscheme\tpredicted\tmeasured\tcompute\tran\tother\n");
	for (size_t i = 0; i < n; i++) {
		fal_put_fmt(out, "%zu\t", i);
		plot_put_name(out, bars[i].name);
		fal_put_fmt(out, "\t%.9g\t%.9g\t%.6f\t%d\t%d\n", bars[i].epoch_s,
			    bars[i].measured_s, bars[i].compute, bars[i].ran,
			    bars[i].other);
	}
}

/* Times count from the beginning of training, so that runs compare. */
static void
plot_put_line(struct fal_buf *out, size_t curve, const char *kind, double began,
	      const struct fal_curve_line *l)
{
	for (size_t k = 0; k < l->n; k++)
		fal_put_fmt(out, "%zu\t%s\t%.9g\t%.9g\t%.9g\n", curve, kind,
			    l->point[k].t - began, l->point[k].samples,
			    l->point[k].value);
}

void
plot_put_curves(struct fal_buf *out, const struct plot_curve *curves, size_t n)
{
	fal_put_fmt(out, "# curve\tname\n");
	for (size_t i = 0; i < n; i++) {
		fal_put_fmt(out, "%zu\t", i);
		plot_put_name(out, curves[i].name);
		fal_put_fmt(out, "\n");
	}
	fal_put_fmt(out, "\n\n# curve\tkind\ttime\tsamples\tvalue\n");
	for (size_t i = 0; i < n; i++) {
		const struct fal_curve *c = curves[i].curve;
		plot_put_line(out, i, "training_loss", c->began, &c->loss);
		plot_put_line(out, i, "test_loss", c->began, &c->test_loss);
		plot_put_line(out, i, "accuracy", c->began, &c->accuracy);
	}
}

/* Returns "svg" or "png", by the end of the file's name; NULL: neither. */
static const char *
plot_format(const char *file)
{
	static const char *const suffix[] = { ".svg", ".png" };
	const size_t n = strlen(file);
	for (size_t i = 0; i < 2; i++)
		if (n > 4 && strcasecmp(file + n - 4, suffix[i]) == 0)
			return suffix[i] + 1;
	return NULL;
}

int
plot_check_format(const char *file, struct fal_diag *diag)
{
	if (plot_format(file) != NULL)
		return FAL_OK;
	return fal_diag_set(diag, FAL_EINVAL, "%s: the name does not end in .svg or .png",
			    file);
}

/* Finds the script beside the installed programs, or in the source tree that has them. */
static int
plot_find_script(char *out, size_t room, const char *kind)
{
	char folder[4096];
	const ssize_t n = readlink("/proc/self/exe", folder, sizeof(folder) - 1);
	folder[n > 0 ? n : 0] = '\0';
	for (char *slash; (slash = strrchr(folder, '/')) != NULL;) {
		*slash = '\0';
		snprintf(out, room, "%s/share/falcon/plots/%s.gp", folder, kind);
		if (access(out, R_OK) == 0)
			return FAL_OK;
		snprintf(out, room, "%s/share/plots/%s.gp", folder, kind);
		if (access(out, R_OK) == 0)
			return FAL_OK;
	}
	return FAL_ENOENT;
}

/* Runs gnuplot on three files; sets the status of waitpid.  Returns 0 or an errno. */
static int
plot_run_gnuplot(const int fd[static 3], char *script, const char *format, int *status)
{
	char numbers[] = "/dev/stdin", form[4];
	snprintf(form, sizeof(form), "%s", format);
	char *argv[] = { "gnuplot", "-d", "-c", script, numbers, form, NULL };
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

/* Makes the last line of gnuplot's messages the diagnosis. */
static int
plot_diagnose_gnuplot(int fd, struct fal_diag *diag)
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

/* Writes gnuplot's picture to the file. */
static int
plot_write_picture(const char *file, int fd, struct fal_diag *diag)
{
	struct stat st;
	if (fstat(fd, &st) < 0 || st.st_size == 0)
		return fal_diag_set(diag, FAL_EIO, "gnuplot: drew nothing");
	void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		return fal_diag_set(diag, FAL_ENOMEM, "%s", strerror(errno));
	const int err = fal_cli_write(file, p, (size_t)st.st_size, 0666, diag);
	munmap(p, (size_t)st.st_size);
	return err;
}

int
plot_draw(const char *file, const char *kind, const struct fal_buf *numbers,
	  struct fal_diag *diag)
{
	int fd[3] = { -1, -1, -1 }, status = 0, e = 0, err;
	char script[4200];
	if (numbers->err < 0)
		return fal_diag_set(diag, numbers->err, "%s: %s", file,
				    fal_strerror(numbers->err));
	if (plot_find_script(script, sizeof(script), kind) < 0)
		return fal_diag_set(diag, FAL_ENOENT,
				    "share/plots/%s.gp is not here: "
				    "make install, or use --tsv",
				    kind);
	for (int i = 0; i < 3 && e == 0; i++) {
		fd[i] = memfd_create("gnuplot", MFD_CLOEXEC);
		e = fd[i] < 0 ? errno : 0;
	}
	if (e == 0 && (fal_cli_write_all(fd[0], numbers->p, numbers->n) < 0 ||
		       lseek(fd[0], 0, SEEK_SET) < 0))
		e = errno;
	if (e == 0)
		e = plot_run_gnuplot(fd, script, plot_format(file), &status);
	if (e == ENOENT)
		err = fal_diag_set(diag, FAL_ENOENT,
				   "gnuplot is not here: apt install gnuplot-nox");
	else if (e != 0)
		err = fal_diag_set(diag, FAL_EIO, "gnuplot: %s", strerror(e));
	else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		err = plot_diagnose_gnuplot(fd[2], diag);
	else
		err = plot_write_picture(file, fd[1], diag);
	for (int i = 0; i < 3; i++)
		if (fd[i] >= 0)
			close(fd[i]);
	return err;
}
