/* falcon-stat --watch: a live screen of a job.
 *
 * One thread reads lines; the other one draws and takes keys, so that a slow or lost
 * coordinator never holds up the keys.  This file owns the terminal's state while the
 * screen is shown, and puts it back. */
#include "stat.h"

#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/file.h"
#include "cli/progress.h"
#include "proj/picture.h"

#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>
#include <uv.h>

enum {
	DRAW_MS = 500,   /* between two screens */
	DUMB_MS = 10000, /* … on a terminal without a cursor */
	PAUSE_MS = 1000, /* between two readings of a file, or two sessions */
	EVENTS = 64,     /* kept */
	OTHERS = 13,     /* lines beside workers, with a few events */
	LABEL = 15,      /* characters before a curve, */
	VALUE = 10,      /* … and of its last value */
	WORKER = 72,     /* characters of a row without bar and long name */
	BAR_LEAST = 20,  /* characters of a bar */
	BAR_MOST = 48
};

struct watch {
	const struct stat_source *src;
	uv_mutex_t lock; /* for all below; recursive */
	struct fal_summary sum;
	struct fal_curve curve;
	char policy[512], event[EVENTS][256]; /* events: a ring */
	size_t events;
	bool is_fresh;            /* the next line is the first one of its reading */
	uint64_t arrived;         /* when the last line was written, by uv_hrtime */
	const char *hint;         /* the last line */
	bool plain, colour, utf8; /* plain: a terminal without a cursor */
};

static volatile sig_atomic_t is_ended;

static void
on_signal(int signum)
{
	is_ended = signum;
}

/* ---- lines ------------------------------------------------------------------------- */

static int
on_watched_line(void *arg, struct fal_trace_line *l)
{
	const uint64_t usual = 1ULL << FAL_EV_JOB | 1ULL << FAL_EV_CLOCK |
			       1ULL << FAL_EV_UPDATE | 1ULL << FAL_EV_EVAL |
			       1ULL << FAL_EV_LEDGER | 1ULL << FAL_EV_SHARD |
			       1ULL << FAL_EV_NOW | 1ULL << FAL_EV_VERSION;
	static const char *const reason[] = { "why", "reason", "scheme" };
	const char *why = NULL, *by = json_string_value(json_object_get(l->o, "by"));
	struct watch *w = arg;
	for (size_t i = 0; i < 3 && why == NULL; i++)
		why = json_string_value(json_object_get(l->o, reason[i]));
	uv_mutex_lock(&w->lock);
	if (w->is_fresh) { /* forgets the reading before */
		fal_summary_free(&w->sum);
		memset(&w->curve, 0, sizeof(w->curve));
		w->events = 0;
		w->is_fresh = false;
		w->policy[0] = '\0';
		w->hint = "q quits";
	}
	/* Keeps an event in the words of falcon-trace(5): name, worker, reason, author.
	 */
	if ((usual >> l->event & 1) == 0 && (l->event != FAL_EV_PLACE || by != NULL)) {
		char *text = w->event[w->events++ % EVENTS];
		snprintf(text, sizeof(w->event[0]), "%8.1f s %s %s%s%s%s%s", l->t, l->ev,
			 l->worker != NULL ? l->worker : "",
			 l->worker != NULL && why != NULL ? ": " : "",
			 why != NULL ? why : "", by != NULL ? " by " : "",
			 by != NULL ? by : "");
		fal_text_plain(text, sizeof(w->event[0]), text);
	}
	if (l->event == FAL_EV_POLICY) { /* with the settings of workers */
		snprintf(w->policy, sizeof(w->policy), "%.*s", (int)l->is.policy.policy.n,
			 l->is.policy.policy.n > 0 ? l->is.policy.policy.p : "");
		fal_text_plain(w->policy, sizeof(w->policy), w->policy);
	}
	(void)fal_curve_line(&w->curve, l);
	const int err = fal_summary_line(&w->sum, l);
	w->arrived = uv_hrtime();
	uv_mutex_unlock(&w->lock);
	return err;
}

/* Reads a file whenever it has grown, or a job until its connection ends, and so on until
 * the job is over.  A reading of a file is shown as a whole. */
static void
read_lines(void *arg)
{
	struct watch *w = arg;
	const bool live = w->src->live;
	struct stat is = { 0 };
	for (bool over = false; !over;) {
		const uint64_t began = uv_hrtime();
		const off_t size = is.st_size;
		if (!live)
			uv_mutex_lock(&w->lock);
		w->is_fresh = live || stat(w->src->name, &is) < 0 || is.st_size != size;
		if (w->is_fresh)
			(void)stat_source_read(w->src, STAT_READ_ON, on_watched_line, w);
		const double age = difftime(time(NULL), is.st_mtime);
		if (live)
			uv_mutex_lock(&w->lock);
		else
			w->arrived = uv_hrtime() - (uint64_t)fmax(1e9 * age, 0);
		over = w->sum.done || w->sum.failed != NULL;
		if (live && !over)
			w->hint = "no connection: trying again; q quits";
		uv_mutex_unlock(&w->lock);
		/* The pause after a file is four times as long as its reading took. */
		usleep(PAUSE_MS * 1000 +
		       (useconds_t)(live ? 0 : (uv_hrtime() - began) / 250));
	}
}

/* ---- the screen -------------------------------------------------------------------- */

/* Puts a row for each worker, at most `room` rows: first the workers in trouble, last the
 * workers that have left. */
static void
put_watched_workers(struct fal_buf *out, const struct watch *w, size_t room,
		    size_t columns)
{
	const struct fal_summary *s = &w->sum;
	struct fal_table t = { .shorten = 12,
			       .width = columns,
			       .drops = "SAMPLES/S FALLS LANES OUT IN SHARE CAUSE" };
	static const char *const sgr[] = { "\033[32m", "\033[34m", "\033[36m",
					   "\033[90m" };
	const double width = fmax(fmin((double)columns - WORKER, BAR_MOST), BAR_LEAST);
	size_t rows = 0;
	stat_table_head(&t, "WORKER CLASS CAUSE LANES SHARE IN OUT FALLS SAMPLES/S TIME");
	for (size_t k = 0; k < 3 * s->n_worker; k++) {
		const struct fal_summary_worker *of = &s->worker[k % s->n_worker];
		const bool slow = of->verdict.class == FAL_CLASS_STRAGGLER;
		const bool in_trouble = slow || of->suspicion.holds || of->silent;
		const size_t place = of->left ? 2 : !in_trouble;
		if (place != k / s->n_worker || rows++ >= room)
			continue;
		fal_table_row(&t, "%s\t%s\t%s\t%ju\t%ju\t%ju\t%ju\t%ju\t%.1f",
			      PLAIN(of->name), fal_summary_class(of),
			      stat_worker_cause(of), of->lanes, of->share, of->tasks.in,
			      of->tasks.out, of->falls.n,
			      stat_worker_rates(of).samples_s);
		/* The worker's recent time as a bar: */
		const struct fal_summary_spent *r = &of->recent;
		const double part[] = { r->compute, r->push, r->pull, r->wait };
		const double all = fmax(part[0] + part[1] + part[2] + part[3], 1e-9);
		char bar[BAR_MOST + 4 * 8] = "";
		size_t from = 0, n = 0;
		double sum = 0;
		for (size_t i = 0; i < 4; i++) {
			sum += part[i];
			const size_t to = (size_t)lround(width * sum / all);
			if (w->colour)
				n = (size_t)(stpcpy(bar + n, sgr[i]) - bar);
			for (; from < to; from++)
				bar[n++] = "#><."[i];
		}
		fal_table_add(&t, "%.*s%s", (int)n, bar, w->colour ? "\033[0m" : "");
	}
	fal_table_text(&t, out);
	if (rows > room)
		fal_put_fmt(out, "and %zu more; ", rows - room);
	fal_put_fmt(out, "time: # compute, > push, < pull, . wait\n");
}

static void
put_curve(struct fal_buf *out, const char *label, const struct fal_curve_line *c,
	  size_t width, bool utf8)
{
	double v[FAL_CURVE_POINTS];
	for (size_t i = 0; i < c->n; i++)
		v[i] = c->point[i].value;
	fal_put_fmt(out, c->n > 0 ? "%-*s%-*.4f" : "%-*s", LABEL, label, VALUE,
		    c->n > 0 ? v[c->n - 1] : 0);
	fal_sparkline_text(v, c->n, width, utf8, out);
	fal_put_u8(out, '\n');
}

/* Puts the screen's lines, all but the last one. */
static void
put_screen(struct fal_buf *out, const struct watch *w, size_t rows, size_t columns)
{
	const struct fal_summary *s = &w->sum;
	const size_t width = columns > LABEL + VALUE ? columns - LABEL - VALUE : 1;
	const uint64_t per = s->job.clocks_per_epoch, of = s->job.clocks;
	const double left = (double)(of - s->clocks) / fmax(s->rate.clocks, 1e-6);
	const unsigned sec = (unsigned)fmin(left, 1e9);
	char state[48] = "";
	if (s->done || s->failed != NULL)
		snprintf(state, sizeof(state), "%s", s->done ? "done" : "failed");
	else if (s->stalled > 0)
		snprintf(state, sizeof(state), "stalled for %.0f s", s->stalled);
	else if (s->rate.clocks > 0)
		snprintf(state, sizeof(state), "%u:%02u:%02u left", sec / 3600,
			 sec / 60 % 60, sec % 60);
	fal_put_fmt(out, "%s: epoch %ju of %ju, clock %ju of %ju, %s\n", PLAIN(s->name),
		    s->clocks / per + (s->clocks < of), of / per, s->clocks, of, state);
	put_watched_workers(out, w, rows > OTHERS ? rows - OTHERS : 1, columns);
	put_curve(out, "training loss", &w->curve.loss, width, w->utf8);
	put_curve(out, "test loss", &w->curve.test_loss, width, w->utf8);
	put_curve(out, "accuracy", &w->curve.accuracy, width, w->utf8);
	stat_metrics(out, s);
	fal_put_fmt(out, "%-*s%.1f samples/s of %.1f\n", LABEL, "capacity used",
		    s->rate.samples, s->rate.capacity);
	fal_put_fmt(out, "%-*s%s %s\n", LABEL, "policy", PLAIN(s->scheme), w->policy);
	size_t room = rows - 1, n = w->events < EVENTS ? w->events : EVENTS;
	for (size_t k = 0; k < out->n && room > 0; k++)
		room -= out->p[k] == '\n';
	for (n = n < room ? n : room; n > 0; n--)
		fal_put_fmt(out, "%s\n", w->event[(w->events - n) % EVENTS]);
}

static void
watch_draw(struct watch *w)
{
	struct winsize size = { 0 };
	struct fal_buf text = { 0 }, out = { 0 };
	struct fal_diag diag;
	ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
	const size_t rows = size.ws_row > 1 ? size.ws_row : 24;
	uv_mutex_lock(&w->lock);
	const double last = w->sum.seconds;
	if (!w->sum.done && w->sum.failed == NULL) /* time goes on without a line */
		w->sum.seconds += 1e-9 * (double)(uv_hrtime() - w->arrived);
	if (fal_summary_end(&w->sum, &diag) == FAL_OK)
		put_screen(&text, w, rows, fal_cli_width(stdout));
	w->sum.seconds = last;
	fal_put_u8(&text, '\0');
	fal_put_fmt(&out, "%s", w->plain ? "\n" : "\033[H");
	const char *end, *at = (const char *)text.p;
	for (size_t i = 1; i < rows && (end = strchr(at, '\n')) != NULL;
	     i++, at = end + 1)
		fal_put_fmt(&out, "%.*s%s\n", (int)(end - at), at,
			    w->plain ? "" : "\033[K");
	if (!w->plain)
		fal_put_fmt(&out, "\033[J\033[%zuH", rows);
	fal_put_fmt(&out, "%s", w->hint);
	(void)fal_cli_write_all(STDOUT_FILENO, out.p, out.n);
	uv_mutex_unlock(&w->lock);
	fal_buf_free(&text);
	fal_buf_free(&out);
}

/* Another screen, without a cursor, which cuts lines; and the screen before. */
static const char open_screen[] = "\033[?1049h\033[?25l\033[?7l";
static const char close_screen[] = "\033[?7h\033[?25h\033[?1049l";

int
stat_watch(const struct stat_source *src)
{
	static struct watch w = { .is_fresh = true }; /* large */
	const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");
	struct termios before, raw;
	uv_thread_t reader;
	if (!isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &before) < 0)
		return fal_cli_usage(PROG, "--watch needs a terminal");
	w.src = src;
	w.plain = term == NULL || *term == '\0' || strcmp(term, "dumb") == 0;
	w.colour = !w.plain && (no_colour == NULL || *no_colour == '\0');
	setlocale(LC_CTYPE, "");
	w.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
	if (uv_mutex_init_recursive(&w.lock) < 0)
		fal_out_of_memory();
	/* An error in the first reading is reported as in the other modes, because the
	 * screen is not open yet. */
	const int code = stat_source_read(src, STAT_READ, on_watched_line, &w);
	if (code != FAL_EXIT_DONE)
		return code;
	signal(SIGTERM, on_signal);
	signal(SIGHUP, on_signal);
	raw = before;
	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG);
	tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
	if (!w.plain)
		fal_cli_write_all(STDOUT_FILENO, open_screen, strlen(open_screen));
	dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
	if (uv_thread_create(&reader, read_lines, &w) < 0)
		fal_out_of_memory();
	/* Draws until q or ^C is pressed, or the terminal is gone. */
	struct pollfd keys = { .fd = STDIN_FILENO, .events = POLLIN };
	ssize_t n = 1;
	for (char key = ' '; is_ended == 0 && n > 0 && strchr("q\3", key) == NULL;) {
		watch_draw(&w);
		if (poll(&keys, 1, w.plain ? DUMB_MS : DRAW_MS) > 0)
			n = read(STDIN_FILENO, &key, 1);
	}
	if (!w.plain)
		fal_cli_write_all(STDOUT_FILENO, close_screen, strlen(close_screen));
	tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
	_exit(FAL_EXIT_DONE); /* with the reader, wherever it is */
}
