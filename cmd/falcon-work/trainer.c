/* A trainer's process, the memory that is shared with it, and what is said between it and
 * its lane. */
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

static const uint64_t hello_ns = 120 * S,
		      say_ns = 10 * S;      /* for a hello; till a warning */
static const uint64_t unknown_ns = 300 * S; /* allowed for the first task of a kind */
static const uint64_t least_ns = 1 * S;     /* allowed for any task */
static const uint64_t least_pause = 100 * MS, most_pause = 30 * S;
static const uint64_t exit_ns = 2 * S;
static const uint64_t any_id = UINT64_MAX; /* no task has it */

enum { HISTORY = 16 };
enum { STDERR_LINE = 900 }; /* bytes; more are another line */
enum { MOST_FAILS = 2 };    /* as after an error of a GPU, which only a start mends */
enum { MOST_READS = 16 };   /* after the end: the rest may be endless */
enum { SH_NOT_RUN = 126, SH_NOT_FOUND = 127 }; /* as POSIX has them */

/* Memory that is shared with the trainer: falcon-gradient(7), "MEMORY".  Each start has a
 * set of its own, so that a process left running by a former start writes where nobody
 * reads. */
enum { AREA_PARAMS, AREA_GRADS, AREA_SAMPLES, AREAS };

/* A memfd that is a safetensors file. */
struct area {
	int fd; /* -1: there is none */
	struct fal_grad_area shape;
	uint8_t *map; /* NULL: not mapped yet */
};

/* The descriptors of the trainer, from the standard ones on; behind the errors its
 * memory. */
enum { FD_IN, FD_OUT, FD_ERR, FD_AREAS, FD_PARAMS = FD_AREAS + AREAS, FD_GRADS, FDS };

/* The pipes: our ends, which do not block. */
enum { PIPE_IN, PIPE_OUT, PIPE_ERR, PIPE_PARAMS, PIPE_GRADS, PIPES };

struct process {
	pid_t pid; /* also its group's; 0: none */
	int end[PIPES];
};

static const struct process no_process = { 0, { -1, -1, -1, -1, -1 } };

/* Bytes on their way to a descriptor that does not block. */
struct outgoing {
	struct fal_buf b;
	size_t sent;
};

/* How far a start has come.  ENDED: there is no process. */
enum stage { ENDED, STARTED, GREETED, TOLD };

struct trainer {
	struct trainer_conf conf;
	int wake; /* eventfd: trainer_cancel and trainer_quit wake the owner */

	/* Any thread reads and writes these. */
	_Atomic uint64_t unwanted; /* the id of the task that was cancelled last */
	_Atomic uint64_t answers;
	_Atomic pid_t pid; /* 0: there is no process */
	atomic_bool quit, failed;
	pthread_mutex_t mutex;
	struct fal_diag trouble; /* under the mutex: what went wrong last */

	/* Answers and CPU time, as trainer_steps saw them last. */
	uint64_t seen, ticks;

	/* A thread of its own starts the process, passes on what it says on standard
	 * error, and kills it: Linux kills a process with the thread that started it. */
	pthread_t keeper;
	int stop;    /* eventfd: end() wakes the keeper */
	sem_t begun; /* the keeper has set `error` and `proc` */
	int error;   /* errno, where the process could not be started */
	struct process proc;
	struct fal_buf err;   /* the beginning of a line */
	struct fal_diag last; /* the last line of this start */

	/* The owner alone reads and writes all below. */
	struct fal_diag why; /* why it has failed */
	struct fal_grad_hello hello;
	bool greeted;                  /* `hello` is that of the first start */
	const struct trainer_job *job; /* NULL: none */
	uint64_t starts, started;      /* how many starts, when the last one was */
	uint64_t restart, pause;       /* when the next one is due; ns */
	unsigned mute;                 /* starts in a row without a hello */
	uint64_t history[TRAINER_KINDS][HISTORY], known[TRAINER_KINDS];

	/* State of this start. */
	enum stage stage;
	int pidfd;
	uint64_t kill_at; /* once its standard input is closed */
	struct area area[AREAS];
	struct outgoing lines, params;
	struct fal_buf in;          /* output that is not parsed yet */
	bool late;                  /* "no hello yet" was said */
	bool useful;                /* it has done a task */
	bool gone;                  /* the process, or a stream of it, has ended */
	const char *closed;         /* which stream that was */
	unsigned fails;             /* tasks in a row that it answered by fail */
	struct fal_diag why_failed; /* the last of these; "": the last task was none */
	bool blamed, hopeless;      /* end_blamed() is to end it; for good */
	struct fal_diag blame;
	uint64_t serial, edition; /* of the parameters in memory */
	uint8_t head[8];          /* length of the frame on the gradients' pipe */
	uint64_t frame, frames;   /* bytes of the frame that have come, and all */
};

/* --- shared memory ------------------------------------------------------------------ */

static void *
area_data(const struct area *a)
{
	return a->map + a->shape.data;
}

/* Gives the memfd room for a safetensors header without its length, and for so many bytes
 * of data, and maps it.  Nobody can change the size from then on.  FAL_EIO: or it was
 * tampered with; FAL_ENOMEM. */
static int
area_map(struct area *a, const struct fal_buf *header, uint64_t data, bool read_only)
{
	enum { ALIGN = 64 };
	a->shape.data = (8 + header->n + ALIGN - 1) / ALIGN * ALIGN;
	a->shape.bytes = a->shape.data + data;
	/* A page that the system comes to lack would kill whoever writes there first, */
	if (FAL_TRY(WRITE, -1, fallocate(a->fd, 0, 0, (off_t)a->shape.bytes)) < 0)
		return FAL_ENOMEM;
	/* … and shrunk by whom it is shared with, it would kill us. */
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
	/* Kernels that do not know it leave the trainer to its manners. */
	if (read_only)
		(void)fcntl(a->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
	return fcntl(a->fd, F_ADD_SEALS, F_SEAL_SEAL) < 0 ? FAL_EIO : FAL_OK;
}

static void
area_close(struct area *a)
{
	if (a->map != NULL)
		munmap(a->map, a->shape.bytes);
	if (a->fd >= 0)
		close(a->fd);
	*a = (struct area){ .fd = -1 };
}

/* --- the process -------------------------------------------------------------------- */

/* Whether a variable is one that it is not to have: where our keys are, or of a trainer
 * above us. */
static bool
is_ours(const char *var, const char *key)
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

/* Ends with NULL; free with free_environment. */
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
		if (!is_ours(environ[i], conf->key))
			*at++ = fal_xstrdup(environ[i]);
	for (size_t i = 0; i < m; i++)
		*at++ = fal_xprintf("FALCON_%s=%u", more[i].name, more[i].value);
	return v;
}

static void
free_environment(char **v)
{
	for (char **at = v; *at != NULL; at++)
		free(*at);
	free(v);
}

/* In the child: nothing but system calls from here on. */
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
	/* First they go above all those that they become. */
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

/* Closes our ends. */
static void
process_close(struct process *s)
{
	close_all(s->end, PIPES);
	*s = no_process;
}

/* Starts it in a group of its own; it is killed when the calling thread ends.  FAL_EIO
 * (errno). */
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
			setpgid(s.pid, s.pid); /* whoever comes first */
		free_environment(env);
	}
	const int why = errno;
	close_all(theirs, PIPES);
	if (err < 0)
		process_close(&s);
	errno = why;
	*out = s;
	return err;
}

/* Whether it has ended by itself; then `status` is as of waitpid, and it is still to be
 * killed, as is whoever it left in its group. */
static bool
process_ended(const struct process *s, int *status)
{
	siginfo_t info = { 0 };
	if (waitid(P_PID, (id_t)s->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 ||
	    info.si_pid == 0)
		return false;
	*status = info.si_code == CLD_EXITED ? info.si_status << 8 : info.si_status;
	return true;
}

/* Kills the group, and reaps the process. */
static void
process_kill(const struct process *s)
{
	/* Before it is reaped, so that the number is still its group's. */
	kill(-s->pid, SIGKILL);
	while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* CPU time of it, in hundredths of a second; 0: not known. */
static uint64_t
process_ticks(pid_t pid)
{
	clockid_t clock;
	struct timespec t;
	if (pid == 0 || clock_getcpuclockid(pid, &clock) != 0 ||
	    clock_gettime(clock, &t) < 0)
		return 0;
	return (uint64_t)t.tv_sec * 100 + (uint64_t)t.tv_nsec / 10000000;
}

/* --- blame -------------------------------------------------------------------------- */

/* Notes the first error of this start, for end_blamed; hopeless: the trainer is not to
 * start again. */
static void __attribute__((format(printf, 3, 4)))
blame(struct trainer *t, bool hopeless, const char *fmt, ...)
{
	va_list ap;
	if (t->blamed)
		return;
	t->blamed = true;
	t->hopeless = hopeless;
	va_start(ap, fmt);
	vsnprintf(t->blame.text, sizeof(t->blame.text), fmt, ap);
	va_end(ap);
}

/* The trainer wrote this to standard output: often a banner, which is for standard error.
 */
static void
blame_output(struct trainer *t, const char *why, const char *p, size_t n)
{
	const size_t most = 60;
	struct fal_diag said;
	fal_diag_set(&said, 0, "%.*s", (int)(n > most ? fal_text_cut(p, most) : n), p);
	blame(t, false, "on its standard output: %s: '%s'", why, said.text);
}

static const char *
before_hello(const struct trainer *t)
{
	return t->stage >= GREETED ? "" : " before it said hello";
}

/* The process ended by itself.  A command that the shell cannot start now will not start
 * the next time. */
static void
blame_end(struct trainer *t)
{
	int status;
	if (!process_ended(&t->proc, &status))
		blame(t, false, "it closed %s%s", t->closed, before_hello(t));
	else if (t->starts == 1 && t->stage < GREETED && WIFEXITED(status) &&
		 (WEXITSTATUS(status) == SH_NOT_FOUND ||
		  WEXITSTATUS(status) == SH_NOT_RUN))
		blame(t, true, "it cannot be started: the shell exited with status %d",
		      WEXITSTATUS(status));
	else if (WIFSIGNALED(status))
		blame(t, false, "it was ended by signal %d%s", WTERMSIG(status),
		      before_hello(t));
	else
		blame(t, false, "it exited with status %d%s", WEXITSTATUS(status),
		      before_hello(t));
}

static void
set_trouble(struct trainer *t, const char *what, const char *last)
{
	pthread_mutex_lock(&t->mutex);
	fal_diag_set(&t->trouble, 0, "%.300s%s%.180s", what,
		     last[0] != '\0' ? "; it said last: " : "", last);
	pthread_mutex_unlock(&t->mutex);
}

/* --- standard error, in the keeper's thread ----------------------------------------- */

/* Appends to `b` up to 64 KiB that the descriptor has.  0: end of file; -1: nothing. */
static ssize_t
read_some(int fd, struct fal_buf *b)
{
	uint8_t some[65536];
	const ssize_t n = read(fd, some, sizeof(some));
	if (n > 0)
		fal_put_bytes(b, some, (size_t)n);
	return n;
}

static void
log_line(struct trainer *t, const char *p, size_t n)
{
	char line[STDERR_LINE + 1];
	memcpy(line, p, n);
	line[n] = '\0';
	fal_text_plain(line, sizeof(line), line);
	fal_cli_err(PROG, "trainer %u: %s", t->conf.number, line);
	if (line[strspn(line, " ")] != '\0')
		fal_diag_set(&t->last, 0, "%.180s", line);
}

/* Logs the lines of standard error; `rest`: the last one, too, though it has no end. */
static void
log_lines(struct trainer *t, bool rest)
{
	size_t at = 0;
	/* A NUL would end a text: it becomes what other controls do. */
	for (size_t i = 0; i < t->err.n; i++)
		if (t->err.p[i] == '\0')
			t->err.p[i] = '?';
	while (at < t->err.n) {
		const char *p = (const char *)t->err.p + at;
		const size_t left = t->err.n - at;
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
		else if (left > STDERR_LINE) /* it looks one byte behind */
			n = fal_text_cut(p, STDERR_LINE);
		log_line(t, p, n);
		at += n + (nl != NULL) +
		      (nl == cr && nl != NULL && n + 1 < left && nl[1] == '\n');
	}
	if (at > 0)
		memmove(t->err.p, t->err.p + at, t->err.n - at);
	t->err.n -= at;
}

static void *
keeper_main(void *arg)
{
	struct trainer *t = arg;
	t->error = process_start(t, &t->proc) < 0 ? errno : 0;
	const bool runs = t->error == 0;
	struct pollfd p[] = { { t->proc.end[PIPE_ERR], POLLIN, 0 },
			      { t->stop, POLLIN, 0 } };
	uint64_t stops;
	sem_post(&t->begun);
	while (runs && p[1].revents == 0) {
		if (poll(p, 2, -1) <= 0 || p[0].revents == 0)
			continue;
		/* A trainer may close standard error, or redirect it, and live on. */
		if (read_some(p[0].fd, &t->err) == 0)
			p[0].fd = -1;
		log_lines(t, p[0].fd < 0);
	}
	if (!runs)
		return NULL;
	(void)!read(t->stop, &stops, sizeof(stops));
	process_kill(&t->proc);
	for (int i = 0; i < MOST_READS && p[0].fd >= 0 && read_some(p[0].fd, &t->err) > 0;
	     i++)
		log_lines(t, false);
	log_lines(t, true);
	process_close(&t->proc);
	return NULL;
}

/* --- starts and ends ---------------------------------------------------------------- */

/* Kills the process group, and frees the memory. */
static void
end(struct trainer *t)
{
	const uint64_t one = 1;
	if (t->stage != ENDED) {
		(void)!write(t->stop, &one, sizeof(one));
		pthread_join(t->keeper, NULL);
	}
	t->pid = 0;
	if (t->pidfd >= 0)
		close(t->pidfd);
	t->pidfd = -1;
	for (int i = 0; i < AREAS; i++)
		area_close(&t->area[i]);
	fal_buf_clear(&t->lines.b);
	fal_buf_clear(&t->params.b);
	fal_buf_clear(&t->in);
	fal_buf_clear(&t->err);
	t->lines.sent = t->params.sent = 0;
	t->stage = ENDED;
	t->gone = false;
}

static void
start(struct trainer *t)
{
	static const char *const name[] = { "falcon-params", "falcon-grads",
					    "falcon-samples" };
	t->starts++;
	t->started = uv_hrtime();
	t->late = t->useful = false;
	t->closed = "its standard output";
	t->fails = 0;
	t->serial = t->edition = t->frame = t->frames = 0;
	t->last.text[0] = t->why_failed.text[0] = '\0';
	for (int i = 0; i < AREAS; i++) {
		t->area[i].fd = memfd_create(name[i], MFD_CLOEXEC | MFD_ALLOW_SEALING);
		if (t->area[i].fd < 0) {
			blame(t, false, "memory to share: %s", strerror(errno));
			return;
		}
	}
	int why = pthread_create(&t->keeper, NULL, keeper_main, t);
	if (why == 0) {
		while (sem_wait(&t->begun) < 0)
			;
		why = t->error;
		if (why != 0)
			pthread_join(t->keeper, NULL);
	}
	if (why != 0) {
		blame(t, false, "it cannot be started: %s", strerror(why));
		return;
	}
	t->stage = STARTED;
	t->pid = t->proc.pid;
	t->pidfd = (int)syscall(SYS_pidfd_open, t->proc.pid, 0);
	fal_grad_put_hello(&t->lines.b, t->conf.worker, t->conf.number);
}

static void
give_up(struct trainer *t, const char *why)
{
	fal_diag_set(&t->why, FAL_EPERM, "%s: %s", t->conf.command, why);
	if (t->greeted)
		fal_cli_err(PROG, "trainer %u: %s; it is given up", t->conf.number, why);
	t->failed = true;
}

/* Ends a blamed process.  The trainer starts again after a pause, or is given up. */
static void
end_blamed(struct trainer *t)
{
	const struct fal_diag why = t->blame;
	const bool heard = t->stage >= GREETED;
	struct fal_diag all;
	end(t); /* its last line on standard error may say the reason */
	set_trouble(t, why.text,
		    t->why_failed.text[0] != '\0' ? t->why_failed.text : t->last.text);
	t->blamed = false;
	t->mute = heard ? 0 : t->mute + 1;
	if (t->hopeless || t->conf.mute == 0) {
		give_up(t, why.text);
	} else if (t->mute >= t->conf.mute) {
		fal_diag_set(&all, FAL_EPERM, "%s; %u starts in a row without a hello",
			     why.text, t->mute);
		give_up(t, all.text);
	} else {
		fal_cli_err(PROG, "trainer %u: %s; it starts again", t->conf.number,
			    why.text);
		t->pause = t->useful                   ? least_pause
			   : 2 * t->pause < most_pause ? 2 * t->pause
						       : most_pause;
		t->restart = uv_hrtime() + t->pause;
	}
}

/* --- bytes -------------------------------------------------------------------------- */

static bool
waits(const struct outgoing *o)
{
	return o->sent < o->b.n;
}

/* Writes as much as the pipe takes; poll_events finds a trainer that closed its end. */
static void
push(struct outgoing *o, int fd)
{
	if (!waits(o) || fd < 0)
		return;
	const ssize_t n = write(fd, o->b.p + o->sent, o->b.n - o->sent);
	if (n > 0)
		o->sent += (size_t)n;
	if (!waits(o)) {
		fal_buf_clear(&o->b);
		o->sent = 0;
	}
}

/* Reads from standard output: once, or, of a process that has `ended`, the rest.  True:
 * end of file. */
static bool
read_output(struct trainer *t, bool ended)
{
	ssize_t n = read_some(t->proc.end[PIPE_OUT], &t->in);
	for (int i = 0; i < MOST_READS && ended && n > 0; i++)
		n = read_some(t->proc.end[PIPE_OUT], &t->in);
	return n == 0;
}

/* Reads as much of a gradient as the pipe has.  True: end of file. */
static bool
read_gradient(struct trainer *t)
{
	const size_t head = sizeof(t->head);
	uint8_t *to = t->head + t->frame;
	uint64_t want = head - t->frame;
	if (t->frame >= head) {
		to = (uint8_t *)area_data(&t->area[AREA_GRADS]) + t->frame - head;
		want = t->frames - t->frame;
	}
	const ssize_t n = read(t->proc.end[PIPE_GRADS], to, want);
	if (n <= 0)
		return n == 0;
	t->frame += (uint64_t)n;
	if (t->frame == head) {
		struct fal_rd r = fal_rd_init(t->head, head);
		const uint64_t said = fal_get_u64(&r), bytes = t->frames - head;
		if (said != bytes)
			blame(t, false,
			      "its gradient has %" PRIu64 " bytes, not %" PRIu64, said,
			      bytes);
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

/* Waits for bytes, the end of the process or another thread's wake-up, and reads and
 * writes.  False: none of these came before `until` (uv_hrtime). */
static bool
poll_events(struct trainer *t, uint64_t until)
{
	const int *end = t->proc.end;
	struct pollfd p[EVENTS] = {
		[ON_WAKE] = { t->wake, POLLIN, 0 },
		[ON_END] = { t->pidfd, POLLIN, 0 },
		[ON_OUT] = { end[PIPE_OUT], POLLIN, 0 },
		[ON_GRADS] = { t->frame < t->frames ? end[PIPE_GRADS] : -1, POLLIN, 0 },
		[ON_IN] = { waits(&t->lines) ? end[PIPE_IN] : -1, POLLOUT, 0 },
		[ON_PARAMS] = { waits(&t->params) ? end[PIPE_PARAMS] : -1, POLLOUT, 0 },
	};
	uint64_t wakes;
	bool eof = false;
	const int n = poll(p, EVENTS, timeout_ms(until));
	if (p[ON_WAKE].revents != 0)
		(void)!read(t->wake, &wakes, sizeof(wakes));
	if (p[ON_GRADS].revents != 0 && read_gradient(t))
		t->closed = "the pipe of its gradients", eof = true;
	/* The trainer has closed its end. */
	if ((p[ON_IN].revents & POLLERR) != 0)
		t->closed = "its standard input", eof = true;
	if ((p[ON_PARAMS].revents & POLLERR) != 0)
		t->closed = "the pipe of its parameters", eof = true;
	if ((p[ON_OUT].revents | p[ON_END].revents) != 0)
		eof = read_output(t, p[ON_END].revents != 0) || eof;
	push(&t->lines, end[PIPE_IN]);
	push(&t->params, end[PIPE_PARAMS]);
	if (eof && p[ON_END].revents == 0) {
		(void)poll(&p[ON_END], 1, 200); /* a moment for its status */
		(void)read_output(t, true);     /* its last word */
	}
	t->gone = eof || p[ON_END].revents != 0;
	return n != 0 || uv_hrtime() < until;
}

/* --- words -------------------------------------------------------------------------- */

/* Was the task of this id cancelled, or are all refused? */
static bool
is_unwanted(const struct trainer *t, uint64_t id)
{
	return t->quit || t->failed || t->unwanted == id;
}

/* Sleeps until uv_hrtime() is `until`; false: the task of this id is not wanted. */
static bool
sleep_until(struct trainer *t, uint64_t until, uint64_t id)
{
	struct pollfd p = { t->wake, POLLIN, 0 };
	uint64_t wakes;
	while (!is_unwanted(t, id) && uv_hrtime() < until)
		if (poll(&p, 1, timeout_ms(until)) > 0)
			(void)!read(t->wake, &wakes, sizeof(wakes));
	return !is_unwanted(t, id);
}

/* Takes the next word from `in`.  False: there is none, or the trainer is blamed for it.
 */
static bool
next_word(struct trainer *t, struct fal_grad_word *w)
{
	const char *p = (const char *)t->in.p;
	const char *nl = t->in.n > 0 ? memchr(p, '\n', t->in.n) : NULL;
	struct fal_diag why;
	if (nl == NULL && t->in.n > FAL_GRAD_LINE_MAX)
		blame_output(t, "a line of more than 65536 bytes", p, t->in.n);
	if (nl == NULL || t->blamed)
		return false;
	const size_t n = (size_t)(nl - p);
	const int err = fal_grad_get(p, n, w, &why);
	if (err == FAL_EVERSION)
		blame(t, true, "its hello: %s", why.text);
	else if (err < 0)
		blame_output(t, why.text, p, n);
	else if (w->op == FAL_GRAD_REFUSE)
		blame(t, true, "it refuses: %s", w->why);
	memmove(t->in.p, t->in.p + n + 1, t->in.n - n - 1);
	t->in.n -= n + 1;
	return !t->blamed;
}

/* Waits for the next word.  False: the trainer is blamed, the task of this id is not
 * wanted, or none came before `until`. */
static bool
await_word(struct trainer *t, uint64_t id, uint64_t until, struct fal_grad_word *w)
{
	while (!next_word(t, w)) {
		if (!t->blamed && t->gone)
			blame_end(t);
		if (t->blamed || is_unwanted(t, id) || !poll_events(t, until))
			return false;
	}
	return true;
}

/* The word answers nothing that the trainer was asked. */
static void
blame_word(struct trainer *t, const struct fal_grad_word *w)
{
	if (w->op == FAL_GRAD_HELLO)
		blame(t, false, "it says hello again");
	else
		blame(t, false, "it answers task %" PRIu64 ", which it does not have",
		      w->id);
}

static void
await_hello(struct trainer *t, uint64_t id)
{
	struct fal_grad_word w;
	const bool said =
		await_word(t, id, t->started + (t->late ? hello_ns : say_ns), &w);
	if (said && w.op != FAL_GRAD_HELLO) {
		blame(t, false, "it answers before it was asked");
	} else if (said && t->greeted && !fal_grad_alike(&t->hello, &w.hello)) {
		blame(t, true, "its hello is not that of its first start");
	} else if (said) {
		t->hello = w.hello;
		t->greeted = true;
		t->stage = GREETED;
	} else if (t->blamed || is_unwanted(t, id)) {
		return;
	} else if (t->late) {
		blame(t, false, "no hello within %d s", (int)(hello_ns / S));
	} else {
		t->late = true;
		fal_cli_err(PROG, "trainer %u: no hello yet", t->conf.number);
	}
}

static void
tell_job(struct trainer *t)
{
	const struct trainer_job *j = t->job;
	struct fal_grad_job line = j->job;
	int err = area_map(&t->area[AREA_PARAMS], &j->params, j->params_bytes, true);
	if (err == FAL_OK)
		err = area_map(&t->area[AREA_GRADS], &j->params, j->params_bytes, false);
	if (err == FAL_OK && t->hello.samples)
		err = area_map(&t->area[AREA_SAMPLES], &j->samples, j->samples_bytes,
			       true);
	if (err < 0) {
		blame(t, false, "memory to share: %s", fal_strerror(err));
		return;
	}
	line.params = t->area[AREA_PARAMS].shape;
	line.grads = t->area[AREA_GRADS].shape;
	line.samples = t->area[AREA_SAMPLES].shape;
	fal_grad_put_job(&t->lines.b, &line);
	t->stage = TOLD;
}

/* Brings the trainer to this stage, GREETED or TOLD.  False: the task of this id is not
 * wanted, or the trainer was given up. */
static bool
make_ready(struct trainer *t, uint64_t id, enum stage stage)
{
	struct fal_grad_word w;
	while (!is_unwanted(t, id)) {
		if (t->blamed) {
			end_blamed(t);
		} else if (t->stage == ENDED) {
			if (sleep_until(t, t->restart, id))
				start(t);
		} else if (t->stage == STARTED) {
			await_hello(t, id);
		} else if (stage == GREETED) {
			return true;
		} else if (t->stage == GREETED) {
			tell_job(t);
		} else if (await_word(t, id, 0, &w)) { /* it may have ended meanwhile */
			blame_word(t, &w);
		} else if (!t->blamed) {
			return !is_unwanted(t, id);
		}
	}
	return false;
}

/* --- tasks -------------------------------------------------------------------------- */

/* How long a task of this kind may take: much longer than any of the last ones. */
static uint64_t
allowed(const struct trainer *t, unsigned kind)
{
	uint64_t longest = 0;
	for (int i = 0; i < HISTORY; i++)
		if (t->history[kind][i] > longest)
			longest = t->history[kind][i];
	return t->known[kind] == 0 ? unknown_ns : least_ns + 8 * longest;
}

/* Puts the area's file, behind its length, into the pipe of parameters. */
static void
put_file(struct trainer *t, const struct area *a)
{
	fal_put_u64(&t->params.b, a->shape.bytes);
	fal_put_bytes(&t->params.b, a->map, a->shape.bytes);
}

static void
send_task(struct trainer *t, const struct trainer_task *task)
{
	const bool pipes = t->hello.pipes;
	const struct area *params = &t->area[AREA_PARAMS],
			  *samples = &t->area[AREA_SAMPLES];
	struct fal_grad_task line = task->line;
	if (t->serial != task->serial) {
		fal_model_pack(t->job->model, task->params, area_data(params));
		t->serial = task->serial;
		t->edition++;
		if (pipes) {
			fal_grad_put_params(&t->lines.b, line.version);
			put_file(t, params);
		}
	}
	line.edition = t->edition;
	line.params = params->shape.data;
	line.grads = t->area[AREA_GRADS].shape.data;
	line.samples = samples->shape.data;
	fal_grad_put_task(&t->lines.b, &line);
	if (pipes && t->hello.samples)
		put_file(t, samples);
	t->frame = 0;
	t->frames = pipes && !line.eval ? sizeof(t->head) + t->job->params_bytes : 0;
	t->why_failed.text[0] = '\0';
	push(&t->lines, t->proc.end[PIPE_IN]);
	push(&t->params, t->proc.end[PIPE_PARAMS]);
}

/* Waits for the answer to the task; `*cancels`: the trainer was told to cancel the task.
 * False: there will be no answer. */
static bool
await_answer(struct trainer *t, uint64_t id, uint64_t until, struct fal_grad_word *w,
	     bool *cancels)
{
	bool said = false;
	while (!said && !t->blamed && !t->quit) {
		said = await_word(t, *cancels ? any_id : id, until, w);
		if (said || t->blamed || t->quit)
			continue;
		if (*cancels || !is_unwanted(t, id)) {
			blame(t, false, "no answer in time");
		} else {
			*cancels = true;
			fal_grad_put_cancel(&t->lines.b, id);
		}
	}
	if (said && (w->op == FAL_GRAD_HELLO || w->id != id))
		blame_word(t, w);
	else if (said && w->op == FAL_GRAD_CANCELLED && !*cancels)
		blame(t, false, "it cancelled task %" PRIu64 " by itself", id);
	else if (said && w->op != FAL_GRAD_DONE && t->frame > 0)
		blame(t, false, "it sent a gradient for a task that has none");
	/* The gradient may still be coming by a pipe. */
	while (said && w->op == FAL_GRAD_DONE && !t->blamed && t->frame < t->frames) {
		if (t->quit)
			return false;
		if (t->gone)
			blame_end(t);
		else if (!poll_events(t, until))
			blame(t, false, "no answer in time");
	}
	return said && !t->blamed;
}

uint64_t
trainer_start(struct trainer *t, uint64_t id)
{
	return make_ready(t, id, TOLD) ? t->starts : 0;
}

void *
trainer_samples(const struct trainer *t)
{
	assert(t->stage == TOLD);
	return t->hello.samples ? area_data(&t->area[AREA_SAMPLES]) : NULL;
}

const float *
trainer_grads(const struct trainer *t)
{
	assert(t->stage == TOLD);
	return area_data(&t->area[AREA_GRADS]);
}

void
trainer_do(struct trainer *t, const struct trainer_task *task, struct trainer_made *out)
{
	const uint64_t id = task->line.id;
	struct fal_grad_word w;
	bool cancels = false;
	*out = (struct trainer_made){ .end = TRAINER_CANCELLED };
	assert(t->stage == TOLD);
	if (is_unwanted(t, id))
		return;
	send_task(t, task);
	const uint64_t begun = uv_hrtime(), until = begun + allowed(t, task->kind);
	const bool answered = await_answer(t, id, until, &w, &cancels);
	out->ns = uv_hrtime() - begun;
	if (answered) {
		t->answers++;
		out->loss = w.loss;
		out->right = w.right;
	}
	if (answered && w.op == FAL_GRAD_DONE) {
		t->history[task->kind][t->known[task->kind]++ % HISTORY] = out->ns;
		t->useful = true;
	}
	if (answered && !cancels && w.op == FAL_GRAD_DONE) {
		t->fails = 0;
	} else if (answered && !cancels) {
		fal_cli_err(PROG, "trainer %u: a task failed: %s", t->conf.number, w.why);
		set_trouble(t, w.why, "");
		fal_diag_set(&t->why_failed, 0, "%s", w.why);
		if (++t->fails == MOST_FAILS)
			blame(t, false, "it failed at %d tasks in a row", MOST_FAILS);
	}
	out->end = cancels || t->quit      ? TRAINER_CANCELLED
		   : !answered             ? TRAINER_LOST
		   : w.op == FAL_GRAD_FAIL ? TRAINER_FAILED
					   : TRAINER_MADE;
	if (t->blamed)
		end_blamed(t);
}

bool
trainer_pause(struct trainer *t, uint64_t id, uint64_t ns)
{
	return sleep_until(t, uv_hrtime() + ns, id);
}

void
trainer_fault(struct trainer *t, const char *why)
{
	blame(t, false, "%s", why);
	end_blamed(t);
}

void
trainer_begin(struct trainer *t, const struct trainer_job *job)
{
	t->job = job;
}

void
trainer_forget(struct trainer *t)
{
	t->job = NULL;
	if (t->stage == TOLD && !t->quit)
		end(t);
}

int
trainer_greet(struct trainer *t, struct fal_grad_hello *out, struct fal_diag *diag)
{
	const bool ready = make_ready(t, any_id, GREETED);
	*out = t->hello;
	if (!ready)
		*diag = t->why;
	return ready ? FAL_OK : FAL_EPERM;
}

/* --- from other threads ------------------------------------------------------------- */

static void
wake(struct trainer *t)
{
	const uint64_t one = 1;
	(void)!write(t->wake, &one, sizeof(one));
}

void
trainer_cancel(struct trainer *t, uint64_t id)
{
	t->unwanted = id;
	wake(t);
}

void
trainer_quit(struct trainer *t)
{
	t->quit = true;
	wake(t);
}

bool
trainer_failed(const struct trainer *t)
{
	return t->failed;
}

void
trainer_trouble(struct trainer *t, struct fal_diag *out)
{
	pthread_mutex_lock(&t->mutex);
	*out = t->trouble;
	pthread_mutex_unlock(&t->mutex);
}

uint64_t
trainer_steps(struct trainer *t)
{
	const uint64_t answers = t->answers;
	if (answers == t->seen) /* answers tell as well that it works */
		t->ticks = process_ticks(t->pid);
	t->seen = answers;
	return answers + t->ticks;
}

/* --- its beginning and its end ------------------------------------------------------ */

int
trainer_new(const struct trainer_conf *conf, struct trainer **out)
{
	struct trainer *t = fal_xcalloc(1, sizeof(*t));
	t->conf = *conf;
	t->pidfd = -1;
	t->pause = least_pause / 2;
	for (int i = 0; i < AREAS; i++)
		t->area[i].fd = -1;
	t->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	t->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&t->mutex, NULL);
	sem_init(&t->begun, 0, 0);
	if (t->wake < 0 || t->stop < 0) {
		trainer_free(t);
		return FAL_EIO;
	}
	start(t);
	push(&t->lines, t->proc.end[PIPE_IN]);
	*out = t;
	return FAL_OK;
}

void
trainer_close_input(struct trainer *t)
{
	int *input = &t->proc.end[PIPE_IN];
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
	while (t->stage != ENDED && !t->gone && poll_events(t, t->kill_at))
		fal_buf_clear(&t->in); /* nobody hears it any more */
	end(t);
	if (t->wake >= 0)
		close(t->wake);
	if (t->stop >= 0)
		close(t->stop);
	sem_destroy(&t->begun);
	pthread_mutex_destroy(&t->mutex);
	fal_buf_free(&t->lines.b);
	fal_buf_free(&t->params.b);
	fal_buf_free(&t->in);
	fal_buf_free(&t->err);
	free(t);
}
