/* fork, exec and what lies between them. */
#include "spawn.h"

#include "base/buf.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Its descriptors, from the standard ones on. */
enum { IN, OUT, ERR, PARAMS, GRADS, SAMPLES, PARAMS_PIPE, GRADS_PIPE, ALL };

extern char **environ;

/* --- environment -------------------------------------------------------------------- */

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

/* Texts one after the other, and pointers to them; freed by free_environment. */
struct environment {
	struct fal_buf text;
	char **v;
};

static void
free_environment(struct environment *e)
{
	fal_buf_free(&e->text);
	free(e->v);
}

static int
make_environment(const struct spawn_conf *conf, struct environment *e)
{
	size_t n = 0;
	for (char **v = environ; *v != NULL; v++)
		if (!is_ours(*v, conf->key)) {
			fal_put_fmt(&e->text, "%s%c", *v, 0);
			n++;
		}
	const struct {
		const char *name;
		uint32_t value;
	} more[] = { { "LANE", conf->lane },         { "PARAMS_FD", PARAMS },
		     { "GRADS_FD", GRADS },          { "SAMPLES_FD", SAMPLES },
		     { "PARAMS_PIPE", PARAMS_PIPE }, { "GRADS_PIPE", GRADS_PIPE } };
	const size_t m = sizeof(more) / sizeof(more[0]);
	for (size_t i = 0; i < m; i++)
		fal_put_fmt(&e->text, "FALCON_%s=%u%c", more[i].name, more[i].value, 0);
	e->v = fal_calloc(n + m + 1, sizeof(*e->v));
	if (e->text.err < 0 || e->v == NULL)
		return FAL_ENOMEM;
	char *p = (char *)e->text.p;
	for (size_t i = 0; i < n + m; i++, p += strlen(p) + 1)
		e->v[i] = p;
	return FAL_OK;
}

/* --- the process -------------------------------------------------------------------- */

/* In the child: nothing but system calls from here on. */
static void
become(const char *command, char **env, const int fd[static ALL], pid_t parent)
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
	/* They are all above those that they become. */
	for (int i = 0; i < ALL; i++)
		if (dup2(fd[i], i) < 0)
			_exit(127);
	if (close_range(ALL, ~0U, 0) < 0)
		for (int i = ALL; i < sysconf(_SC_OPEN_MAX); i++)
			close(i);
	execve("/bin/sh", argv, env);
	_exit(127);
}

static void
close_all(int *fd, int n)
{
	for (int i = 0; i < n; i++)
		if (fd[i] >= 0)
			close(fd[i]);
}

/* `fd` moved above all that a child uses; it is closed in any case. */
static int
lift(int fd)
{
	const int up = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, ALL);
	const int why = errno;
	if (fd >= 0)
		close(fd);
	errno = why;
	return up;
}

/* theirs[i] and our end of it; `to_them`: they read. */
static int
make_pipe(bool to_them, int *theirs, int *ours)
{
	int p[2];
	if (pipe2(p, O_CLOEXEC) < 0)
		return FAL_EIO;
	*theirs = lift(p[to_them ? 0 : 1]);
	*ours = p[to_them ? 1 : 0];
	if (*theirs < 0 || fcntl(*ours, F_SETFL, O_NONBLOCK) < 0)
		return FAL_EIO;
	return FAL_OK;
}

static int
make_fds(const struct spawn_conf *conf, struct spawned *s, int fd[static ALL])
{
	int err = make_pipe(true, &fd[IN], &s->in);
	if (err == FAL_OK)
		err = make_pipe(false, &fd[OUT], &s->out);
	if (err == FAL_OK)
		err = make_pipe(false, &fd[ERR], &s->err);
	if (err == FAL_OK)
		err = make_pipe(true, &fd[PARAMS_PIPE], &s->params);
	if (err == FAL_OK)
		err = make_pipe(false, &fd[GRADS_PIPE], &s->grads);
	for (int i = 0; i < SPAWN_SHARED && err == FAL_OK; i++) {
		fd[PARAMS + i] = fcntl(conf->fd[i], F_DUPFD_CLOEXEC, ALL);
		err = fd[PARAMS + i] < 0 ? FAL_EIO : FAL_OK;
	}
	return err;
}

void
spawn_close(struct spawned *s)
{
	int fd[] = { s->in, s->out, s->err, s->params, s->grads };
	close_all(fd, 5);
	*s = (struct spawned){ 0, -1, -1, -1, -1, -1 };
}

int
spawn(const struct spawn_conf *conf, struct spawned *out)
{
	struct environment env = { 0 };
	struct spawned s = { 0, -1, -1, -1, -1, -1 };
	const pid_t parent = getpid();
	int fd[ALL] = { -1, -1, -1, -1, -1, -1, -1, -1 };
	int err = make_environment(conf, &env);
	if (err == FAL_OK)
		err = make_fds(conf, &s, fd);
	if (err == FAL_OK) {
		s.pid = fork();
		if (s.pid == 0)
			become(conf->command, env.v, fd, parent);
		err = s.pid < 0 ? FAL_EIO : FAL_OK;
	}
	if (err == FAL_OK)
		setpgid(s.pid, s.pid); /* whoever comes first */
	const int why = errno;
	close_all(fd, ALL);
	free_environment(&env);
	if (err < 0)
		spawn_close(&s);
	errno = why;
	*out = s;
	return err;
}

bool
spawn_ended(const struct spawned *s, int *status)
{
	siginfo_t info = { 0 };
	if (waitid(P_PID, (id_t)s->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 ||
	    info.si_pid == 0)
		return false;
	*status = info.si_code == CLD_EXITED ? info.si_status << 8 : info.si_status;
	return true;
}

void
spawn_kill(const struct spawned *s)
{
	/* Before it is reaped, so that the number is still its group's. */
	kill(-s->pid, SIGKILL);
	while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
		;
}

uint64_t
spawn_ticks(pid_t pid)
{
	char path[40], text[512];
	unsigned long long user, sys;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	FILE *f = pid > 0 ? fopen(path, "re") : NULL;
	if (f == NULL)
		return 0;
	text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
	fclose(f);
	const char *p = strrchr(text, ')'); /* of its name, which may hold anything */
	if (p == NULL ||
	    sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user,
		   &sys) != 2)
		return 0;
	return user + sys;
}
