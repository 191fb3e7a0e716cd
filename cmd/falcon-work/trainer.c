/* A trainer's process, the memory shared with the process, and the messages between
 * process and lane. */
#include "trainer.h"

#include "base/fault.h"
#include "base/mem.h"
#include "base/text.h"
#include "work.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#ifndef F_SEAL_FUTURE_WRITE /* Linux 5.1 */
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define MS UINT64_C(1000000)
#define S (1000 * MS)

static const uint64_t hello_ns = 120 * S; /* for a hello; then the start fails */
static const uint64_t warn_ns = 10 * S;   /* for a hello; then a warning is logged */
static const uint64_t first_limit_ns = 300 * S; /* limit of the first task of a kind */
static const uint64_t least_limit_ns = 1 * S;   /* limit of any task */
static const uint64_t least_pause = 100 * MS, most_pause = 30 * S;
static const uint64_t exit_ns = 2 * S;
static const uint64_t any_id = UINT64_MAX; /* no task has this id */

enum { HISTORY = 16 };
enum { STDERR_LINE = 900 }; /* bytes; a longer line is logged as several */
enum { MOST_FAILS = 2 };    /* failed tasks in a row, then a new start: GPU errors stay */
enum { MOST_READS = 16 };   /* after the end: the rest of the output may be endless */
enum { SH_NOT_RUN = 126, SH_NOT_FOUND = 127 }; /* exit statuses of POSIX shells */

/* Memory that is shared with the trainer: falcon-gradient(7), "MEMORY".  Each start has
 * areas of its own, so that a process left over from an earlier start writes only to
 * memory that nobody reads.
 */
enum { AREA_PARAMS, AREA_GRADS, AREA_SAMPLES, AREAS };
enum { AREA_ALIGN = 64 };

/* A memfd with the contents of a safetensors file. */
struct area {
	int fd; /* -1: none */
	struct fal_grad_area shape;
	uint8_t *map; /* NULL: not mapped */
};

/* The trainer's descriptors: standard input, output and error, its memory, its pipes. */
enum { FD_IN, FD_OUT, FD_ERR, FD_AREAS, FD_PARAMS = FD_AREAS + AREAS, FD_GRADS, FDS };

/* The pipes.  Our ends do not block. */
enum { PIPE_IN, PIPE_OUT, PIPE_ERR, PIPE_PARAMS, PIPE_GRADS, PIPES };

struct process {
	pid_t pid; /* also its group's id; 0: no process */
	int end[PIPES];
};

static const struct process no_process = { 0, { -1, -1, -1, -1, -1 } };

/* Bytes on their way to a descriptor that does not block. */
struct outgoing {
	struct fal_buf b;
	size_t sent;
};

/* How far a start has come. */
enum stage {
	ENDED, /* there is no process */
	STARTED,
	GREETED, /* the process has said hello */
	HAS_JOB
};

/* The thread that starts the process, logs the process's standard error, and kills the
 * process.  Linux kills a child process at the end of the thread that started it
 * (PR_SET_PDEATHSIG). */
struct keeper {
	pthread_t thread;
	int stop_fd;   /* eventfd: trainer_end_process wakes the thread */
	sem_t started; /* the thread has set `error` and `process` */
	int error;     /* errno: the process could not be started; 0: it runs */
	struct process process;
	struct fal_buf err;        /* standard error after the last complete line */
	struct fal_diag last_line; /* in this start */
};

/* State of one start. */
struct start {
	bool warned; /* about a late hello */
	bool did_task;
	const char *closed;         /* the stream that has ended */
	unsigned fails;             /* tasks in a row that the trainer answered with
				     * `fail` */
	struct fal_diag fail;       /* the last `fail`; "": the last task succeeded */
	uint64_t serial, edition;   /* identify the parameters in memory */
	uint8_t head[8];            /* length of the frame on the gradients' pipe */
	uint64_t frame, frame_size; /* bytes of the frame: received, in all */
	uint64_t grads;             /* where the gradient begins in its area */
};

struct trainer {
	struct trainer_conf conf;
	int wake_fd; /* eventfd: trainer_cancel and trainer_quit wake the owner */

	/* Any thread reads and writes these. */
	_Atomic uint64_t cancelled_id[TRAINER_RESULTS]; /* cancelled last, by area */
	_Atomic uint64_t answers;
	_Atomic pid_t pid; /* 0: no process */
	atomic_bool quits, is_given_up;
	pthread_mutex_t mutex;
	struct fal_diag last_error; /* under the mutex */
	/* Held while gradients are read, and while their memory goes. */
	pthread_mutex_t grads_mutex;

	/* Answers and CPU time at the last call of trainer_progress. */
	uint64_t seen_answers, ticks;

	struct keeper keeper;

	/* The owner alone reads and writes all below. */
	struct fal_diag end_reason;  /* why the trainer was given up */
	struct fal_grad_hello hello; /* the first hello */
	bool has_hello;
	const struct trainer_job *job; /* NULL: none */
	uint64_t starts, started_at;   /* number of starts, time of the last one */
	uint64_t restart_at, pause; /* time of the next start, and the pause before; ns */
	unsigned silent_starts;     /* in a row, without a hello */
	uint64_t history[TRAINER_KINDS][HISTORY], known[TRAINER_KINDS]; /* ns of tasks */

	/* The process of this start. */
	enum stage stage;
	int pidfd;
	uint64_t kill_at; /* time of the kill, after standard input closed */
	struct area area[AREAS];
	struct outgoing lines, params;
	struct fal_buf in; /* output that is not parsed yet */
	bool has_ended;    /* the process or one of its streams */
	bool is_blamed;    /* has an error, for trainer_end_blamed */
	bool is_hopeless;  /* no further start would help */
	struct fal_diag blame;
	struct start start;
};

/* --- shared memory ------------------------------------------------------------------ */

static void *
area_data(const struct area *a)
{
	return a->map + a->shape.data;
}

/* The bytes of a gradient with those that align the next one. */
static uint64_t
grads_room(const struct trainer_job *job)
{
	return (job->params_bytes + AREA_ALIGN - 1) / AREA_ALIGN * AREA_ALIGN;
}

/* The byte of the memory at which the gradients of this area begin. */
static uint64_t
grads_offset(const struct trainer *t, unsigned area)
{
	return t->area[AREA_GRADS].shape.data + area * grads_room(t->job);
}

/* Gives the memfd room for a safetensors header (without the header's length) and for so
 * many bytes of data, and maps the memfd.  The size is final from then on.  FAL_EIO, also
 * if somebody tampered with the memfd; FAL_ENOMEM. */
static int
area_map(struct area *a, const struct fal_buf *header, uint64_t data, bool read_only)
{
	a->shape.data = (8 + header->n + AREA_ALIGN - 1) / AREA_ALIGN * AREA_ALIGN;
	a->shape.bytes = a->shape.data + data;
	/* Takes all pages now: a page for which the system has no memory would kill the
	 * first writer. */
	if (FAL_TRY(WRITE, -1, fallocate(a->fd, 0, 0, (off_t)a->shape.bytes)) < 0)
		return FAL_ENOMEM;
	/* Fixes the size: a file that the trainer shrinks would kill us. */
	if (fcntl(a->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
		return FAL_EIO;
	void *map = FAL_TRY(MALLOC, MAP_FAILED,
			    mmap(NULL, a->shape.bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
				 a->fd, 0));
	if (map == MAP_FAILED)
		return FAL_ENOMEM;
	a->map = map;
	const uint64_t n = a->shape.data - 8;
	for (unsigned k = 0; k < 8; k++)
		a->map[k] = (uint8_t)(n >> k * 8);
	memcpy(a->map + 8, header->p, header->n);
	memset(a->map + 8 + header->n, ' ', n - header->n);
	/* On kernels without this seal a trainer could write here, against the rules. */
	if (read_only)
		(void)fcntl(a->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
	return fcntl(a->fd, F_ADD_SEALS, F_SEAL_SEAL) < 0 ? FAL_EIO : FAL_OK;
}

/* --- the process -------------------------------------------------------------------- */

/* Is this variable withheld from the trainer?  Variables that name our keys are
 * withheld, and those for a trainer, which are set if a trainer started us. */
static bool
is_withheld(const char *var, const char *key)
{
	static const char *const names[] = {
		"FALCON_KEY=",        "CREDENTIALS_DIRECTORY=", "NOTIFY_SOCKET=",
		"FALCON_LANE=",       "FALCON_PARAMS_FD=",      "FALCON_GRADS_FD=",
		"FALCON_SAMPLES_FD=", "FALCON_PARAMS_PIPE=",    "FALCON_GRADS_PIPE="
	};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strncmp(var, names[i], strlen(names[i])) == 0)
			return true;
	const char *value = strchr(var, '=');
	return key != NULL && value != NULL && strcmp(value + 1, key) == 0;
}

/* The environment of the trainer; ends with NULL. */
static char **
make_environment(const struct trainer_conf *conf)
{
	const struct {
		const char *name;
		uint32_t value;
	} more[] = { { "LANE", conf->number },
		     { "PARAMS_FD", FD_AREAS + AREA_PARAMS },
		     { "GRADS_FD", FD_AREAS + AREA_GRADS },
		     { "SAMPLES_FD", FD_AREAS + AREA_SAMPLES },
		     { "PARAMS_PIPE", FD_PARAMS },
		     { "GRADS_PIPE", FD_GRADS } };
	const size_t m = sizeof(more) / sizeof(more[0]);
	size_t n = 0;
	while (environ[n] != NULL)
		n++;
	char **v = fal_xcalloc(n + m + 1, sizeof(*v)), **at = v;
	for (size_t i = 0; i < n; i++)
		if (!is_withheld(environ[i], conf->key))
			*at++ = fal_xstrdup(environ[i]);
	for (size_t i = 0; i < m; i++)
		*at++ = fal_xprintf("FALCON_%s=%u", more[i].name, more[i].value);
	return v;
}

/* In the child: only system calls from here on. */
static void
process_become(const char *command, char **env, int fd[static FDS], pid_t parent)
{
	char *const argv[] = { (char *)"sh", (char *)"-c", (char *)command, NULL };
	sigset_t none;
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127);
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	/* First all descriptors go above the numbers that they are to have. */
	for (int i = 0; i < FDS; i++)
		if ((fd[i] = fcntl(fd[i], F_DUPFD, FDS)) < 0)
			_exit(127);
	for (int i = 0; i < FDS; i++)
		if (dup2(fd[i], i) < 0)
			_exit(127);
	if (close_range(FDS, ~0U, 0) < 0)
		for (int i = FDS; i < sysconf(_SC_OPEN_MAX); i++)
			close(i);
	execve("/bin/sh", argv, env);
	_exit(127);
}

static void
close_all(const int *fd, int n)
{
	for (int i = 0; i < n; i++)
		if (fd[i] >= 0)
			close(fd[i]);
}

/* Closes our ends of the pipes. */
static void
process_close(struct process *s)
{
	close_all(s->end, PIPES);
	*s = no_process;
}

/* Starts the process in a group of its own; the end of the calling thread kills the
 * process.  FAL_EIO (errno). */
static int
process_start(const struct trainer *t, struct process *out)
{
	static const struct {
		int theirs;
		bool to_them;
	} pipes[PIPES] = { [PIPE_IN] = { FD_IN, true },
			   [PIPE_OUT] = { FD_OUT, false },
			   [PIPE_ERR] = { FD_ERR, false },
			   [PIPE_PARAMS] = { FD_PARAMS, true },
			   [PIPE_GRADS] = { FD_GRADS, false } };
	struct process s = no_process;
	const pid_t parent = getpid();
	int fd[FDS], theirs[PIPES] = { -1, -1, -1, -1, -1 }, err = FAL_OK;
	for (int i = 0; i < AREAS; i++)
		fd[FD_AREAS + i] = t->area[i].fd;
	for (int i = 0; i < PIPES && err == FAL_OK; i++) {
		const bool to_them = pipes[i].to_them;
		int p[2];
		if (pipe2(p, O_CLOEXEC) < 0) {
			err = FAL_EIO;
			break;
		}
		fd[pipes[i].theirs] = theirs[i] = p[to_them ? 0 : 1];
		s.end[i] = p[to_them ? 1 : 0];
		err = fcntl(s.end[i], F_SETFL, O_NONBLOCK) < 0 ? FAL_EIO : FAL_OK;
	}
	if (err == FAL_OK) {
		char **env = make_environment(&t->conf);
		s.pid = fork();
		if (s.pid == 0)
			process_become(t->conf.command, env, fd, parent);
		err = s.pid < 0 ? FAL_EIO : FAL_OK;
		if (err == FAL_OK)
			setpgid(s.pid, s.pid); /* parent or child, whichever is first */
		for (char **at = env; *at != NULL; at++)
			free(*at);
		free(env);
	}
	const int why = errno;
	close_all(theirs, PIPES);
	if (err < 0)
		process_close(&s);
	errno = why;
	*out = s;
	return err;
}

/* --- blame -------------------------------------------------------------------------- */

/* Notes the first error of this start, for trainer_end_blamed; is_hopeless: the trainer
 * is not started again. */
static void __attribute__((format(printf, 3, 4)))
trainer_blame(struct trainer *t, bool hopeless, const char *fmt, ...)
{
	va_list ap;
	if (t->is_blamed)
		return;
	t->is_blamed = true;
	t->is_hopeless = hopeless;
	va_start(ap, fmt);
	vsnprintf(t->blame.text, sizeof(t->blame.text), fmt, ap);
	va_end(ap);
}

/* Blames the trainer for a text on standard output: often a banner, which belongs on
 * standard error. */
static void
blame_output(struct trainer *t, const char *why, const char *p, size_t n)
{
	const size_t most = 60;
	struct fal_diag said;
	fal_diag_set(&said, 0, "%.*s", (int)(n > most ? fal_text_cut(p, most) : n), p);
	trainer_blame(t, false, "on its standard output: %s: '%s'", why, said.text);
}

/* Blames a process that ended by itself.  A command that the shell cannot start now will
 * not start the next time either. */
static void
blame_end(struct trainer *t)
{
	const char *when = t->stage >= GREETED ? "" : " before it said hello";
	const id_t pid = (id_t)t->keeper.process.pid;
	siginfo_t info = { 0 };
	/* WNOWAIT keeps the group's id valid: the group, which may have other members, is
	 * still to be killed. */
	const bool ended = waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
			   info.si_pid != 0;
	const int status = info.si_status;
	if (!ended)
		trainer_blame(t, false, "it closed %s%s", t->start.closed, when);
	else if (info.si_code != CLD_EXITED)
		trainer_blame(t, false, "it was ended by signal %d%s", status, when);
	else if (t->starts == 1 && t->stage < GREETED &&
		 (status == SH_NOT_FOUND || status == SH_NOT_RUN))
		trainer_blame(t, true,
			      "it cannot be started: the shell exited with status %d",
			      status);
	else
		trainer_blame(t, false, "it exited with status %d%s", status, when);
}

static void
set_last_error(struct trainer *t, const char *what, const char *last)
{
	pthread_mutex_lock(&t->mutex);
	fal_diag_set(&t->last_error, 0, "%.300s%s%.180s", what,
		     last[0] != '\0' ? "; it said last: " : "", last);
	pthread_mutex_unlock(&t->mutex);
}

/* --- standard error, in the keeper's thread ----------------------------------------- */

/* Appends to `b` up to 64 KiB from the descriptor.  0: end of file; -1: no bytes. */
static ssize_t
read_some(int fd, struct fal_buf *b)
{
	uint8_t some[65536];
	const ssize_t n = read(fd, some, sizeof(some));
	if (n > 0)
		fal_put_bytes(b, some, (size_t)n);
	return n;
}

/* Logs the lines of standard error; `rest`: also a last line without an end. */
static void
stderr_log(struct trainer *t, bool rest)
{
	char line[STDERR_LINE + 1];
	size_t at = 0;
	/* A NUL would end a text: '?' replaces it, as it replaces other controls. */
	for (size_t i = 0; i < t->keeper.err.n; i++)
		if (t->keeper.err.p[i] == '\0')
			t->keeper.err.p[i] = '?';
	while (at < t->keeper.err.n) {
		const char *p = (const char *)t->keeper.err.p + at;
		const size_t left = t->keeper.err.n - at;
		const size_t most = left <= STDERR_LINE ? left : STDERR_LINE + 1;
		const char *nl = memchr(p, '\n', most);
		const char *cr = memchr(p, '\r', nl != NULL ? (size_t)(nl - p) : most);
		if (cr != NULL && (cr + 1 < p + left || rest))
			nl = cr;
		if (nl == NULL && left <= STDERR_LINE && !rest)
			break;
		size_t n = left;
		if (nl != NULL)
			n = (size_t)(nl - p);
		else if (left > STDERR_LINE) /* fal_text_cut reads one byte beyond */
			n = fal_text_cut(p, STDERR_LINE);
		memcpy(line, p, n);
		line[n] = '\0';
		fal_text_plain(line, sizeof(line), line);
		fal_cli_err(PROG, "trainer %u: %s", t->conf.number, line);
		if (line[strspn(line, " ")] != '\0')
			fal_diag_set(&t->keeper.last_line, 0, "%.180s", line);
		at += n + (nl != NULL) +
		      (nl == cr && nl != NULL && n + 1 < left && nl[1] == '\n');
	}
	if (at > 0)
		memmove(t->keeper.err.p, t->keeper.err.p + at, t->keeper.err.n - at);
	t->keeper.err.n -= at;
}

static void *
keeper_main(void *arg)
{
	struct trainer *t = arg;
	struct keeper *k = &t->keeper;
	k->error = process_start(t, &k->process) < 0 ? errno : 0;
	const bool runs = k->error == 0;
	const pid_t pid = k->process.pid;
	struct pollfd p[] = { { k->process.end[PIPE_ERR], POLLIN, 0 },
			      { k->stop_fd, POLLIN, 0 } };
	uint64_t stops;
	sem_post(&k->started);
	while (runs && p[1].revents == 0) {
		if (poll(p, 2, -1) <= 0 || p[0].revents == 0)
			continue;
		/* A trainer may close standard error, or redirect it, and live on. */
		if (read_some(p[0].fd, &k->err) == 0)
			p[0].fd = -1;
		stderr_log(t, p[0].fd < 0);
	}
	if (!runs)
		return NULL;
	(void)!read(k->stop_fd, &stops, sizeof(stops));
	kill(-pid, SIGKILL); /* before reaping, while the id is still this group's */
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	for (int i = 0; i < MOST_READS && p[0].fd >= 0 && read_some(p[0].fd, &k->err) > 0;
	     i++)
		stderr_log(t, false);
	stderr_log(t, true);
	process_close(&k->process);
	return NULL;
}

/* --- starts and ends ---------------------------------------------------------------- */

/* Kills the process group, and frees the memory. */
static void
trainer_end_process(struct trainer *t)
{
	const uint64_t one = 1;
	if (t->stage != ENDED) {
		(void)!write(t->keeper.stop_fd, &one, sizeof(one));
		pthread_join(t->keeper.thread, NULL);
	}
	t->pid = 0;
	if (t->pidfd >= 0)
		close(t->pidfd);
	t->pidfd = -1;
	pthread_mutex_lock(&t->grads_mutex);
	for (int i = 0; i < AREAS; i++) {
		struct area *a = &t->area[i];
		if (a->map != NULL)
			munmap(a->map, a->shape.bytes);
		if (a->fd >= 0)
			close(a->fd);
		*a = (struct area){ .fd = -1 };
	}
	pthread_mutex_unlock(&t->grads_mutex);
	fal_buf_clear(&t->lines.b);
	fal_buf_clear(&t->params.b);
	fal_buf_clear(&t->in);
	fal_buf_clear(&t->keeper.err);
	t->lines.sent = t->params.sent = 0;
	t->stage = ENDED;
	t->has_ended = false;
}

static void
trainer_start_process(struct trainer *t)
{
	static const char *const name[] = { "falcon-params", "falcon-grads",
					    "falcon-samples" };
	struct keeper *k = &t->keeper;
	t->starts++;
	t->started_at = uv_hrtime();
	t->start = (struct start){ .closed = "its standard output" };
	k->last_line.text[0] = '\0';
	for (int i = 0; i < AREAS; i++) {
		t->area[i].fd = memfd_create(name[i], MFD_CLOEXEC | MFD_ALLOW_SEALING);
		if (t->area[i].fd < 0) {
			trainer_blame(t, false, "memory to share: %s", strerror(errno));
			return;
		}
	}
	int why = pthread_create(&k->thread, NULL, keeper_main, t);
	if (why == 0) {
		while (sem_wait(&k->started) < 0)
			;
		why = k->error;
		if (why != 0)
			pthread_join(k->thread, NULL);
	}
	if (why != 0) {
		trainer_blame(t, false, "it cannot be started: %s", strerror(why));
		return;
	}
	t->stage = STARTED;
	t->pid = k->process.pid;
	t->pidfd = (int)syscall(SYS_pidfd_open, k->process.pid, 0);
	fal_grad_put_hello(&t->lines.b, t->conf.worker, t->conf.number);
}

static void
trainer_give_up(struct trainer *t, const char *why)
{
	fal_diag_set(&t->end_reason, FAL_EPERM, "%s: %s", t->conf.command, why);
	if (t->has_hello)
		fal_cli_err(PROG, "trainer %u: %s; it is given up", t->conf.number, why);
	t->is_given_up = true;
}

/* Ends a blamed process.  The trainer is started again after a pause, or given up. */
static void
trainer_end_blamed(struct trainer *t)
{
	const struct fal_diag why = t->blame;
	const bool said_hello = t->stage >= GREETED;
	const unsigned most = t->conf.max_silent_starts;
	struct fal_diag all;
	trainer_end_process(t); /* the last line on standard error may give the reason */
	set_last_error(t, why.text,
		       t->start.fail.text[0] != '\0' ? t->start.fail.text
						     : t->keeper.last_line.text);
	t->is_blamed = false;
	t->silent_starts = said_hello ? 0 : t->silent_starts + 1;
	if (t->is_hopeless || most == 0) {
		trainer_give_up(t, why.text);
	} else if (t->silent_starts >= most) {
		fal_diag_set(&all, FAL_EPERM, "%s; %u starts in a row without a hello",
			     why.text, t->silent_starts);
		trainer_give_up(t, all.text);
	} else {
		fal_cli_err(PROG, "trainer %u: %s; it starts again", t->conf.number,
			    why.text);
		t->pause = t->start.did_task           ? least_pause
			   : 2 * t->pause < most_pause ? 2 * t->pause
						       : most_pause;
		t->restart_at = uv_hrtime() + t->pause;
	}
}

/* --- bytes -------------------------------------------------------------------------- */

static bool
has_bytes(const struct outgoing *o)
{
	return o->sent < o->b.n;
}

/* Writes as much as the pipe takes; trainer_poll finds a trainer that closed its end. */
static void
outgoing_write(struct outgoing *o, int fd)
{
	if (!has_bytes(o) || fd < 0)
		return;
	const ssize_t n = write(fd, o->b.p + o->sent, o->b.n - o->sent);
	if (n > 0)
		o->sent += (size_t)n;
	if (!has_bytes(o)) {
		fal_buf_clear(&o->b);
		o->sent = 0;
	}
}

/* Reads from standard output: once, or, if the process `has_ended`, the rest.  True: end
 * of file. */
static bool
read_output(struct trainer *t, bool has_ended)
{
	const int fd = t->keeper.process.end[PIPE_OUT];
	ssize_t n = read_some(fd, &t->in);
	for (int i = 0; i < MOST_READS && has_ended && n > 0; i++)
		n = read_some(fd, &t->in);
	return n == 0;
}

/* Reads as much of a gradient as the pipe has.  True: end of file. */
static bool
read_gradient(struct trainer *t)
{
	struct start *s = &t->start;
	const size_t head = sizeof(s->head);
	uint8_t *to = s->head + s->frame;
	uint64_t want = head - s->frame;
	if (s->frame >= head) {
		to = t->area[AREA_GRADS].map + s->grads + s->frame - head;
		want = s->frame_size - s->frame;
	}
	const ssize_t n = read(t->keeper.process.end[PIPE_GRADS], to, want);
	if (n <= 0)
		return n == 0;
	s->frame += (uint64_t)n;
	if (s->frame == head) {
		struct fal_rd r = fal_rd_init(s->head, head);
		const uint64_t said = fal_get_u64(&r), bytes = s->frame_size - head;
		if (said != bytes)
			trainer_blame(t, false,
				      "its gradient has %" PRIu64 " bytes, not %" PRIu64,
				      said, bytes);
	}
	return false;
}

static int
timeout_ms(uint64_t until)
{
	const uint64_t now = uv_hrtime();
	if (until <= now)
		return 0;
	const uint64_t ms = (until - now) / MS + 1;
	return ms < 3600000 ? (int)ms : 3600000;
}

enum { ON_WAKE, ON_END, ON_OUT, ON_GRADS, ON_IN, ON_PARAMS, EVENTS };

/* Waits for bytes, the end of the process or another thread's wake-up; then reads and
 * writes. False: the time `until` (uv_hrtime) came first. */
static bool
trainer_poll(struct trainer *t, uint64_t until)
{
	const int *end = t->keeper.process.end;
	const bool reads_gradient = t->start.frame < t->start.frame_size;
	struct pollfd p[EVENTS] = {
		[ON_WAKE] = { t->wake_fd, POLLIN, 0 },
		[ON_END] = { t->pidfd, POLLIN, 0 },
		[ON_OUT] = { end[PIPE_OUT], POLLIN, 0 },
		[ON_GRADS] = { reads_gradient ? end[PIPE_GRADS] : -1, POLLIN, 0 },
		[ON_IN] = { has_bytes(&t->lines) ? end[PIPE_IN] : -1, POLLOUT, 0 },
		[ON_PARAMS] = { has_bytes(&t->params) ? end[PIPE_PARAMS] : -1, POLLOUT,
				0 },
	};
	uint64_t wakes;
	bool eof = false;
	const int n = poll(p, EVENTS, timeout_ms(until));
	if (p[ON_WAKE].revents != 0)
		(void)!read(t->wake_fd, &wakes, sizeof(wakes));
	if (p[ON_GRADS].revents != 0 && read_gradient(t))
		t->start.closed = "the pipe of its gradients", eof = true;
	/* POLLERR: the trainer has closed its end. */
	if ((p[ON_IN].revents & POLLERR) != 0)
		t->start.closed = "its standard input", eof = true;
	if ((p[ON_PARAMS].revents & POLLERR) != 0)
		t->start.closed = "the pipe of its parameters", eof = true;
	if ((p[ON_OUT].revents | p[ON_END].revents) != 0)
		eof = read_output(t, p[ON_END].revents != 0) || eof;
	outgoing_write(&t->lines, end[PIPE_IN]);
	outgoing_write(&t->params, end[PIPE_PARAMS]);
	if (eof && p[ON_END].revents == 0) {
		(void)poll(&p[ON_END], 1, 200); /* ms for its exit status to come */
		(void)read_output(t, true);     /* its last messages */
	}
	t->has_ended = eof || p[ON_END].revents != 0;
	return n != 0 || uv_hrtime() < until;
}

/* --- messages ----------------------------------------------------------------------- */

/* Was the task of this id cancelled, or are all tasks refused? */
static bool
is_unwanted(const struct trainer *t, uint64_t id)
{
	return t->quits || t->is_given_up || t->cancelled_id[0] == id ||
	       t->cancelled_id[1] == id;
}

bool
trainer_pause(struct trainer *t, uint64_t id, uint64_t until)
{
	struct pollfd p = { t->wake_fd, POLLIN, 0 };
	uint64_t wakes;
	while (!is_unwanted(t, id) && uv_hrtime() < until)
		if (poll(&p, 1, timeout_ms(until)) > 0)
			(void)!read(t->wake_fd, &wakes, sizeof(wakes));
	return !is_unwanted(t, id);
}

/* Takes the next message from `in`.  False: there is no message, or the trainer is blamed
 * for the message.
 */
static bool
next_message(struct trainer *t, struct fal_grad_message *w)
{
	const char *p = (const char *)t->in.p;
	const char *nl = t->in.n > 0 ? memchr(p, '\n', t->in.n) : NULL;
	struct fal_diag why;
	if (nl == NULL && t->in.n > FAL_GRAD_LINE_MAX)
		blame_output(t, "a line of more than 65536 bytes", p, t->in.n);
	if (nl == NULL || t->is_blamed)
		return false;
	const size_t n = (size_t)(nl - p);
	const int err = fal_grad_parse(p, n, w, &why);
	if (err == FAL_EVERSION)
		trainer_blame(t, true, "its hello: %s", why.text);
	else if (err < 0)
		blame_output(t, why.text, p, n);
	else if (w->op == FAL_GRAD_REFUSE)
		trainer_blame(t, true, "it refuses: %s", w->why);
	memmove(t->in.p, t->in.p + n + 1, t->in.n - n - 1);
	t->in.n -= n + 1;
	return !t->is_blamed;
}

/* Waits for the next message.  False: the trainer is blamed, the task of this id is not
 * wanted, or the time `until` came first. */
static bool
await_message(struct trainer *t, uint64_t id, uint64_t until, struct fal_grad_message *w)
{
	while (!next_message(t, w)) {
		if (!t->is_blamed && t->has_ended)
			blame_end(t);
		if (t->is_blamed || is_unwanted(t, id) || !trainer_poll(t, until))
			return false;
	}
	return true;
}

/* Blames the trainer for a message that answers no request. */
static void
blame_message(struct trainer *t, const struct fal_grad_message *w)
{
	if (w->op == FAL_GRAD_HELLO)
		trainer_blame(t, false, "it says hello again");
	else
		trainer_blame(t, false,
			      "it answers task %" PRIu64 ", which it does not have",
			      w->id);
}

static void
await_hello(struct trainer *t, uint64_t id)
{
	struct fal_grad_message w;
	const uint64_t limit = t->start.warned ? hello_ns : warn_ns;
	const bool said = await_message(t, id, t->started_at + limit, &w);
	if (said && w.op != FAL_GRAD_HELLO) {
		trainer_blame(t, false, "it answers before it was asked");
	} else if (said && t->has_hello && !fal_grad_hello_equal(&t->hello, &w.hello)) {
		trainer_blame(t, true, "its hello is not that of its first start");
	} else if (said) {
		t->hello = w.hello;
		t->has_hello = true;
		t->stage = GREETED;
	} else if (t->is_blamed || is_unwanted(t, id)) {
		return;
	} else if (t->start.warned) {
		trainer_blame(t, false, "no hello within %d s", (int)(hello_ns / S));
	} else {
		t->start.warned = true;
		fal_cli_err(PROG, "trainer %u: no hello yet", t->conf.number);
	}
}

static void
send_job(struct trainer *t)
{
	const struct trainer_job *j = t->job;
	struct fal_grad_job line = j->job;
	int err = area_map(&t->area[AREA_PARAMS], &j->params, j->params_bytes, true);
	if (err == FAL_OK)
		err = area_map(&t->area[AREA_GRADS], &j->params,
			       grads_room(j) * TRAINER_RESULTS, false);
	if (err == FAL_OK && t->hello.samples)
		err = area_map(&t->area[AREA_SAMPLES], &j->samples, j->samples_bytes,
			       true);
	if (err < 0) {
		trainer_blame(t, false, "memory to share: %s", fal_strerror(err));
		return;
	}
	line.params = t->area[AREA_PARAMS].shape;
	line.grads = t->area[AREA_GRADS].shape;
	line.samples = t->area[AREA_SAMPLES].shape;
	fal_grad_put_job(&t->lines.b, &line);
	t->stage = HAS_JOB;
}

/* Brings the trainer to this stage, GREETED or HAS_JOB.  False: the task of this id is
 * not wanted, or the trainer was given up. */
static bool
trainer_reach(struct trainer *t, uint64_t id, enum stage stage)
{
	struct fal_grad_message w;
	while (!is_unwanted(t, id)) {
		if (t->is_blamed) {
			trainer_end_blamed(t);
		} else if (t->stage == ENDED) {
			if (trainer_pause(t, id, t->restart_at))
				trainer_start_process(t);
		} else if (t->stage == STARTED) {
			await_hello(t, id);
		} else if (stage == GREETED) {
			return true;
		} else if (t->stage == GREETED) {
			send_job(t);
		} else if (await_message(t, id, 0, &w)) { /* notes an end meanwhile */
			blame_message(t, &w);
		} else if (!t->is_blamed) {
			return !is_unwanted(t, id);
		}
	}
	return false;
}

/* --- tasks -------------------------------------------------------------------------- */

/* Returns the time limit of a task of this kind: much longer than each of the last tasks
 * took. */
static uint64_t
task_limit_ns(const struct trainer *t, unsigned kind)
{
	uint64_t longest = 0;
	for (int i = 0; i < HISTORY; i++)
		if (t->history[kind][i] > longest)
			longest = t->history[kind][i];
	return t->known[kind] == 0 ? first_limit_ns : least_limit_ns + 8 * longest;
}

/* Puts the area's file, after its length, into the pipe of parameters. */
static void
put_area_file(struct trainer *t, const struct area *a)
{
	fal_put_u64(&t->params.b, a->shape.bytes);
	fal_put_bytes(&t->params.b, a->map, a->shape.bytes);
}

static void
send_task(struct trainer *t, const struct trainer_task *task)
{
	struct start *s = &t->start;
	const bool pipes = t->hello.pipes;
	const struct area *params = &t->area[AREA_PARAMS],
			  *samples = &t->area[AREA_SAMPLES];
	struct fal_grad_task line = task->line;
	if (s->serial != task->serial) {
		fal_model_pack(t->job->model, task->params, area_data(params));
		s->serial = task->serial;
		s->edition++;
		if (pipes) {
			fal_grad_put_params(&t->lines.b, line.version);
			put_area_file(t, params);
		}
	}
	line.edition = s->edition;
	line.params = params->shape.data;
	line.grads = s->grads = grads_offset(t, task->area);
	line.samples = samples->shape.data;
	fal_grad_put_task(&t->lines.b, &line);
	if (pipes && t->hello.samples)
		put_area_file(t, samples);
	s->frame = 0;
	s->frame_size = pipes && !line.eval ? sizeof(s->head) + t->job->params_bytes : 0;
	s->fail.text[0] = '\0';
	outgoing_write(&t->lines, t->keeper.process.end[PIPE_IN]);
	outgoing_write(&t->params, t->keeper.process.end[PIPE_PARAMS]);
}

/* Waits for the answer to the task; `*cancels`: the trainer has been told to cancel the
 * task.  False: there will be no answer. */
static bool
await_answer(struct trainer *t, uint64_t id, uint64_t until, struct fal_grad_message *w,
	     bool *cancels)
{
	const struct start *s = &t->start;
	bool said = false;
	while (!said && !t->is_blamed && !t->quits) {
		said = await_message(t, *cancels ? any_id : id, until, w);
		if (said || t->is_blamed || t->quits)
			continue;
		if (*cancels || !is_unwanted(t, id)) {
			trainer_blame(t, false, "no answer in time");
		} else {
			*cancels = true;
			fal_grad_put_cancel(&t->lines.b, id);
		}
	}
	if (said && (w->op == FAL_GRAD_HELLO || w->id != id))
		blame_message(t, w);
	else if (said && w->op == FAL_GRAD_CANCELLED && !*cancels)
		trainer_blame(t, false, "it cancelled task %" PRIu64 " by itself", id);
	else if (said && w->n_metrics > 0 && w->n_metrics != t->job->job.metrics.n)
		trainer_blame(t, false, "it has %u metric%s, but the job %u",
			      w->n_metrics, fal_text_plural(w->n_metrics),
			      t->job->job.metrics.n);
	else if (said && w->op != FAL_GRAD_DONE && s->frame > 0)
		trainer_blame(t, false, "it sent a gradient for a task that has none");
	/* The gradient may still be coming by a pipe. */
	while (said && w->op == FAL_GRAD_DONE && !t->is_blamed &&
	       s->frame < s->frame_size) {
		if (t->quits)
			return false;
		if (t->has_ended)
			blame_end(t);
		else if (!trainer_poll(t, until))
			trainer_blame(t, false, "no answer in time");
	}
	return said && !t->is_blamed;
}

uint64_t
trainer_prepare(struct trainer *t, uint64_t id)
{
	return trainer_reach(t, id, HAS_JOB) ? t->starts : 0;
}

void *
trainer_samples(const struct trainer *t)
{
	assert(t->stage == HAS_JOB);
	return t->hello.samples ? area_data(&t->area[AREA_SAMPLES]) : NULL;
}

const float *
trainer_hold_grads(struct trainer *t, unsigned area)
{
	assert(t->stage == HAS_JOB);
	pthread_mutex_lock(&t->grads_mutex);
	return (const float *)(t->area[AREA_GRADS].map + grads_offset(t, area));
}

void
trainer_release_grads(struct trainer *t)
{
	pthread_mutex_unlock(&t->grads_mutex);
}

void
trainer_compute(struct trainer *t, const struct trainer_task *task,
		struct trainer_result *out)
{
	const uint64_t id = task->line.id;
	struct fal_grad_message w;
	bool cancels = false;
	*out = (struct trainer_result){ .end = TRAINER_CANCELLED };
	assert(t->stage == HAS_JOB);
	if (is_unwanted(t, id))
		return;
	send_task(t, task);
	const uint64_t begun = uv_hrtime(), until = begun + task_limit_ns(t, task->kind);
	const bool answered = await_answer(t, id, until, &w, &cancels);
	out->ns = uv_hrtime() - begun;
	if (answered) {
		t->answers++;
		out->loss = w.loss;
		out->right = w.right;
		out->metrics = w.metrics;
	}
	if (answered && w.op == FAL_GRAD_DONE) {
		t->history[task->kind][t->known[task->kind]++ % HISTORY] = out->ns;
		t->start.did_task = true;
	}
	if (answered && !cancels && w.op == FAL_GRAD_DONE) {
		t->start.fails = 0;
	} else if (answered && !cancels) {
		fal_cli_err(PROG, "trainer %u: a task failed: %s", t->conf.number, w.why);
		set_last_error(t, w.why, "");
		fal_diag_set(&t->start.fail, 0, "%s", w.why);
		if (++t->start.fails == MOST_FAILS)
			trainer_blame(t, false, "it failed at %d tasks in a row",
				      MOST_FAILS);
	}
	out->end = cancels || t->quits     ? TRAINER_CANCELLED
		   : !answered             ? TRAINER_LOST
		   : w.op == FAL_GRAD_FAIL ? TRAINER_FAILED
					   : TRAINER_DONE;
	if (t->is_blamed)
		trainer_end_blamed(t);
}

void
trainer_restart(struct trainer *t, const char *why)
{
	if (t->stage != HAS_JOB)
		return;
	trainer_blame(t, false, "%s", why);
	trainer_end_blamed(t);
}

void
trainer_set_job(struct trainer *t, const struct trainer_job *job)
{
	t->job = job;
}

void
trainer_clear_job(struct trainer *t)
{
	t->job = NULL;
	if (t->stage == HAS_JOB && !t->quits)
		trainer_end_process(t);
}

int
trainer_wait_hello(struct trainer *t, struct fal_grad_hello *out, struct fal_diag *diag)
{
	const bool ready = trainer_reach(t, any_id, GREETED);
	*out = t->hello;
	if (!ready)
		*diag = t->end_reason;
	return ready ? FAL_OK : FAL_EPERM;
}

/* --- from other threads ------------------------------------------------------------- */

static void
wake_owner(struct trainer *t)
{
	const uint64_t one = 1;
	(void)!write(t->wake_fd, &one, sizeof(one));
}

void
trainer_cancel(struct trainer *t, unsigned area, uint64_t id)
{
	t->cancelled_id[area] = id;
	wake_owner(t);
}

void
trainer_quit(struct trainer *t)
{
	t->quits = true;
	wake_owner(t);
}

bool
trainer_is_given_up(const struct trainer *t)
{
	return t->is_given_up;
}

void
trainer_last_error(struct trainer *t, struct fal_diag *out)
{
	pthread_mutex_lock(&t->mutex);
	*out = t->last_error;
	pthread_mutex_unlock(&t->mutex);
}

uint64_t
trainer_progress(struct trainer *t)
{
	const uint64_t answers = t->answers;
	const pid_t pid = t->pid;
	clockid_t clock;
	struct timespec cpu;
	if (answers == t->seen_answers) { /* else new answers show progress */
		const bool known = pid != 0 && clock_getcpuclockid(pid, &clock) == 0 &&
				   clock_gettime(clock, &cpu) == 0;
		t->ticks = known ? (uint64_t)cpu.tv_sec * 100 +
					   (uint64_t)cpu.tv_nsec / 10000000
				 : 0;
	}
	t->seen_answers = answers;
	return answers + t->ticks;
}

/* --- creation and end ------------------------------------------------------ */

int
trainer_new(const struct trainer_conf *conf, struct trainer **out)
{
	struct trainer *t = fal_xcalloc(1, sizeof(*t));
	t->conf = *conf;
	t->pidfd = -1;
	t->pause = least_pause / 2;
	for (int i = 0; i < AREAS; i++)
		t->area[i].fd = -1;
	t->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	t->keeper.stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&t->mutex, NULL);
	pthread_mutex_init(&t->grads_mutex, NULL);
	sem_init(&t->keeper.started, 0, 0);
	if (t->wake_fd < 0 || t->keeper.stop_fd < 0) {
		trainer_free(t);
		return FAL_EIO;
	}
	trainer_start_process(t);
	outgoing_write(&t->lines, t->keeper.process.end[PIPE_IN]);
	*out = t;
	return FAL_OK;
}

void
trainer_close_input(struct trainer *t)
{
	int *input = &t->keeper.process.end[PIPE_IN];
	if (t->stage == ENDED || *input < 0)
		return;
	close(*input);
	*input = -1;
	t->kill_at = uv_hrtime() + exit_ns;
}

void
trainer_free(struct trainer *t)
{
	if (t == NULL)
		return;
	trainer_close_input(t);
	while (t->stage != ENDED && !t->has_ended && trainer_poll(t, t->kill_at))
		fal_buf_clear(&t->in); /* no longer wanted */
	trainer_end_process(t);
	if (t->wake_fd >= 0)
		close(t->wake_fd);
	if (t->keeper.stop_fd >= 0)
		close(t->keeper.stop_fd);
	sem_destroy(&t->keeper.started);
	pthread_mutex_destroy(&t->mutex);
	pthread_mutex_destroy(&t->grads_mutex);
	fal_buf_free(&t->lines.b);
	fal_buf_free(&t->params.b);
	fal_buf_free(&t->in);
	fal_buf_free(&t->keeper.err);
	free(t);
}
