/* twin: what the data plane of a job is held against, by plain sockets: nothing is
 * sealed, packed, checked or told.  For bench_plane.sh.
 *
 * twin limits BYTES: "memcpy S stream S ping S", seconds: copying so many bytes from
 * memory to memory; sending them by one TCP stream of this machine; a message of 64 bytes
 * there and back.  Each is a median.
 *
 * twin clock FLOATS WORKERS CLOCKS: "clock S cpu S", seconds of a median clock, and CPU
 * time of the server's process in all: each worker, a process, pushes so many floats; the
 * server adds them up as they come, steps once by momentum, and sends the parameters to
 * all.
 *
 * twin duplex FLOATS WORKERS CLOCKS: the same with both directions at once: the server
 * steps what has come from all workers, and sends that while the rest comes.
 *
 * twin write FLOATS READERS CLOCKS: the same of a server that sends parameters to all,
 * and hears a byte of each when it has them.
 *
 * twin spent FILE COMMAND...: runs it; FILE has "rss BYTES cpu S faults N" at its end.  A
 * TERM is passed on. */
#include "bench.h"

#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS_MAX = 64, SAMPLES_MAX = 4096, PIECE = 512 << 10 };

static int
compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double
median(double *v, size_t n)
{
	qsort(v, n, sizeof(*v), compare);
	return v[(n - 1) / 2];
}

static void *
need(size_t n)
{
	void *p = aligned_alloc(64, (n + 63) / 64 * 64);
	if (p == NULL)
		errx(1, "out of memory");
	memset(p, 0, n);
	return p;
}

/* ---- sockets ----------------------------------------------------------------------- */

static int
new_listener(struct sockaddr_in *at)
{
	socklen_t n = sizeof(*at);
	const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	*at = (struct sockaddr_in){ .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	if (fd < 0 || bind(fd, (struct sockaddr *)at, n) < 0 ||
	    listen(fd, WORKERS_MAX) < 0 || getsockname(fd, (struct sockaddr *)at, &n) < 0)
		err(1, "listen");
	return fd;
}

static void
no_delay(int fd)
{
	const int on = 1;
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0)
		err(1, "TCP_NODELAY");
}

static int
dial(const struct sockaddr_in *at)
{
	const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (const struct sockaddr *)at, sizeof(*at)) < 0)
		err(1, "connect");
	no_delay(fd);
	return fd;
}

static int
answer(int listener)
{
	const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0)
		err(1, "accept");
	no_delay(fd);
	return fd;
}

static void
put_all(int fd, const void *p, size_t n)
{
	for (const char *at = p; n > 0;) {
		const ssize_t got = write(fd, at, n < PIECE ? n : PIECE);
		if (got < 0)
			err(1, "write");
		at += got;
		n -= (size_t)got;
	}
}

static void
get_all(int fd, void *p, size_t n)
{
	for (char *at = p; n > 0;) {
		const ssize_t got = read(fd, at, n < PIECE ? n : PIECE);
		if (got < 0)
			err(1, "read");
		if (got == 0)
			errx(1, "the other end is gone");
		at += got;
		n -= (size_t)got;
	}
}

/* A process that does not outlive this one; 0: it is that. */
static pid_t
child(void)
{
	const pid_t parent = getpid(), pid = fork();
	if (pid < 0)
		err(1, "fork");
	if (pid == 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent))
		_exit(1);
	return pid;
}

static void
reap(int n)
{
	for (int status; n > 0; n--)
		if (wait(&status) < 0 || status != 0)
			errx(1, "a worker of plain sockets failed");
}

/* ---- limits ------------------------------------------------------------------------ */

static double
copying(size_t n)
{
	enum { TURNS = 5 };
	double took[TURNS];
	char *from = need(n), *to = need(n);
	for (int i = 0; i < TURNS; i++) {
		const double begun = now();
		memcpy(to, from, n);
		/* So that it is not left out. */
		__asm__ volatile("" : : "r"(to) : "memory");
		took[i] = now() - begun;
	}
	free(from);
	free(to);
	return median(took, TURNS);
}

/* Of each turn until the last byte has come and one has gone back. */
static double
streaming(size_t n)
{
	enum { TURNS = 5 };
	struct sockaddr_in at;
	const int listener = new_listener(&at);
	char *bytes = need(n), done = 0;
	if (child() == 0) {
		const int fd = dial(&at);
		for (int i = 0; i < TURNS; i++) {
			get_all(fd, bytes, n);
			put_all(fd, &done, 1);
		}
		_exit(0);
	}
	const int fd = answer(listener);
	double took[TURNS];
	for (int i = 0; i < TURNS; i++) {
		const double begun = now();
		put_all(fd, bytes, n);
		get_all(fd, &done, 1);
		took[i] = now() - begun;
	}
	reap(1);
	close(fd);
	close(listener);
	free(bytes);
	return median(took, TURNS);
}

static double
pinging(void)
{
	enum { TURNS = 2000, BYTES = 64 };
	static double took[TURNS];
	struct sockaddr_in at;
	const int listener = new_listener(&at);
	char bytes[BYTES] = { 0 };
	if (child() == 0) {
		const int fd = dial(&at);
		for (int i = 0; i < TURNS; i++) {
			get_all(fd, bytes, BYTES);
			put_all(fd, bytes, BYTES);
		}
		_exit(0);
	}
	const int fd = answer(listener);
	for (int i = 0; i < TURNS; i++) {
		const double begun = now();
		put_all(fd, bytes, BYTES);
		get_all(fd, bytes, BYTES);
		took[i] = now() - begun;
	}
	reap(1);
	close(fd);
	close(listener);
	return median(took, TURNS);
}

/* ---- a clock ----------------------------------------------------------------------- */

struct peer {
	int fd;
	size_t got, sent;         /* bytes of this clock */
	char rest[sizeof(float)]; /* of a float */
	size_t rest_n;
};

struct server {
	size_t n; /* floats */
	uint32_t workers;
	float *params, *slots, *sum;
	struct peer peer[WORKERS_MAX];
	struct pollfd poll[WORKERS_MAX];
	char piece[PIECE + sizeof(float)] __attribute__((aligned(64)));
};

/* What has come of a gradient, added where it belongs; a float that is not whole waits.
 */
static void
take(struct server *s, struct peer *p)
{
	const size_t left = s->n * sizeof(float) - p->got;
	memcpy(s->piece, p->rest, p->rest_n);
	const ssize_t came =
		recv(p->fd, s->piece + p->rest_n, left < PIECE ? left : PIECE, 0);
	if (came <= 0)
		errx(1, "a worker is gone");
	const size_t n = p->rest_n + (size_t)came, whole = n / sizeof(float);
	const float *from = (const float *)(const void *)s->piece;
	float *to = s->sum + (p->got - p->rest_n) / sizeof(float);
	for (size_t i = 0; i < whole; i++)
		to[i] += from[i];
	p->rest_n = n % sizeof(float);
	memcpy(p->rest, s->piece + n - p->rest_n, p->rest_n);
	p->got += (size_t)came;
}

/* Floats from `from` to before `to`. */
static void
step(struct server *s, size_t from, size_t to)
{
	const float by = 1e-6f / (float)s->workers;
	for (size_t i = from; i < to; i++) {
		s->slots[i] = 0.9f * s->slots[i] + s->sum[i];
		s->params[i] -= by * s->slots[i];
		s->sum[i] = 0;
	}
}

/* Sends what is stepped: so many bytes. */
static void
give(struct server *s, struct peer *p, size_t stepped)
{
	const size_t left = stepped - p->sent;
	const ssize_t got = send(p->fd, (const char *)s->params + p->sent,
				 left < PIECE ? left : PIECE, MSG_DONTWAIT);
	if (got < 0 && errno != EAGAIN)
		err(1, "send");
	p->sent += got > 0 ? (size_t)got : 0;
}

/* Until all workers have sent all, and been sent all: the one after the other, or, as a
 * duplex, what is stepped at once. */
static void
exchange(struct server *s, bool duplex)
{
	const size_t all = s->n * sizeof(float);
	/* Readers push nothing: there is nothing to step. */
	size_t stepped = s->peer[0].got == all ? all : 0, least;
	do {
		for (uint32_t i = 0; i < s->workers; i++) {
			const struct peer *p = &s->peer[i];
			const short events = (short)((p->got < all ? POLLIN : 0) |
						     (p->sent < stepped ? POLLOUT : 0));
			s->poll[i] = (struct pollfd){ .fd = events != 0 ? p->fd : -1,
						      .events = events };
		}
		if (poll(s->poll, s->workers, -1) < 0)
			err(1, "poll");
		size_t come = all;
		for (uint32_t i = 0; i < s->workers; i++) {
			struct peer *p = &s->peer[i];
			if (s->poll[i].fd >= 0 && s->poll[i].revents & POLLOUT)
				give(s, p, stepped);
			if (s->poll[i].fd >= 0 && s->poll[i].revents & ~POLLOUT)
				take(s, p);
			come = p->got < come ? p->got : come;
		}
		come -= come % sizeof(float);
		/* Pieces of a size that is worth a step. */
		if (stepped < all &&
		    (come == all || (duplex && come >= stepped + PIECE))) {
			step(s, stepped / sizeof(float), come / sizeof(float));
			stepped = come;
		}
		least = all;
		for (uint32_t i = 0; i < s->workers; i++)
			least = s->peer[i].sent < least ? s->peer[i].sent : least;
	} while (least < all);
}

/* Sends and reads n bytes at once. */
static void
swap_all(int fd, const char *out, char *in, size_t n)
{
	size_t sent = 0, got = 0;
	while (sent < n || got < n) {
		struct pollfd p = { .fd = fd,
				    .events = (short)((sent < n ? POLLOUT : 0) |
						      (got < n ? POLLIN : 0)) };
		if (poll(&p, 1, -1) < 0)
			err(1, "poll");
		if (p.revents & POLLOUT) {
			const size_t left = n - sent;
			const ssize_t k = send(fd, out + sent,
					       left < PIECE ? left : PIECE, MSG_DONTWAIT);
			if (k < 0 && errno != EAGAIN)
				err(1, "send");
			sent += k > 0 ? (size_t)k : 0;
		}
		if (p.revents & ~POLLOUT) {
			const size_t left = n - got;
			const ssize_t k = recv(fd, in + got, left < PIECE ? left : PIECE,
					       MSG_DONTWAIT);
			if (k == 0 || (k < 0 && errno != EAGAIN))
				errx(1, "the other end is gone");
			got += k > 0 ? (size_t)k : 0;
		}
	}
}

static void __attribute__((noreturn))
work(const struct sockaddr_in *at, size_t n, int clocks, bool duplex)
{
	const int fd = dial(at);
	float *grad = need(n * sizeof(float)), *params = need(n * sizeof(float));
	for (size_t i = 0; i < n; i++)
		grad[i] = (float)i * 1e-9f;
	for (int c = 0; c < clocks; c++) {
		if (duplex) {
			swap_all(fd, (const char *)grad, (char *)params,
				 n * sizeof(float));
			continue;
		}
		put_all(fd, grad, n * sizeof(float));
		get_all(fd, params, n * sizeof(float));
	}
	_exit(0);
}

static void __attribute__((noreturn))
read_all(const struct sockaddr_in *at, size_t n, int clocks)
{
	const int fd = dial(at);
	float *params = need(n * sizeof(float));
	const char done = 0;
	for (int c = 0; c < clocks; c++) {
		get_all(fd, params, n * sizeof(float));
		put_all(fd, &done, 1);
	}
	_exit(0);
}

static double
cpu(int who)
{
	struct rusage u;
	getrusage(who, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

enum mode { CLOCK, DUPLEX, WRITE };

/* A clock of the server's, be it for workers or for readers, which push nothing. */
static void
turn(struct server *s, enum mode mode)
{
	char done;
	for (uint32_t i = 0; i < s->workers; i++) {
		s->peer[i].got = mode == WRITE ? s->n * sizeof(float) : 0;
		s->peer[i].sent = 0;
	}
	exchange(s, mode == DUPLEX);
	for (uint32_t i = 0; mode == WRITE && i < s->workers; i++)
		get_all(s->peer[i].fd, &done, 1);
}

static void
clock_of(size_t n, uint32_t workers, int clocks, enum mode mode)
{
	static double took[SAMPLES_MAX];
	static struct server s;
	struct sockaddr_in at;
	const int listener = new_listener(&at);
	if (workers == 0 || workers > WORKERS_MAX || clocks < 1 || clocks > SAMPLES_MAX)
		errx(2, "1 to %d workers, 1 to %d clocks", WORKERS_MAX, SAMPLES_MAX);
	s.n = n;
	s.workers = workers;
	s.params = need(n * sizeof(float));
	s.slots = need(n * sizeof(float));
	s.sum = need(n * sizeof(float));
	for (uint32_t i = 0; i < workers; i++)
		if (child() == 0) {
			if (mode == WRITE)
				read_all(&at, n, clocks);
			work(&at, n, clocks, mode == DUPLEX);
		}
	for (uint32_t i = 0; i < workers; i++)
		s.peer[i].fd = answer(listener);
	const double cpu_begun = cpu(RUSAGE_SELF);
	for (int c = 0; c < clocks; c++) {
		const double begun = now();
		turn(&s, mode);
		took[c] = now() - begun;
	}
	const double used = cpu(RUSAGE_SELF) - cpu_begun;
	reap((int)workers);
	figure(median(took, (size_t)clocks), "s", "clock");
	figure(used / clocks, "s", "cpu");
}

/* ---- another program --------------------------------------------------------------- */

static volatile sig_atomic_t told;
static volatile pid_t whom;

static void
on_term(int number)
{
	told = 1;
	if (whom > 0)
		kill(whom, number);
}

static int
spent(const char *file, char **command)
{
	struct sigaction term = { .sa_handler = on_term };
	struct rusage u;
	int status;
	sigaction(SIGTERM, &term, NULL);
	const pid_t pid = child();
	if (pid == 0) {
		signal(SIGTERM, SIG_DFL);
		execvp(command[0], command);
		err(127, "%s", command[0]);
	}
	whom = pid;
	if (told)
		kill(pid, SIGTERM);
	while (wait4(pid, &status, 0, &u) < 0)
		if (errno != EINTR)
			err(1, "wait");
	FILE *f = fopen(file, "w");
	if (f == NULL ||
	    fprintf(f, "%ld %.6f %ld\n", u.ru_maxrss * 1024, cpu(RUSAGE_CHILDREN),
		    u.ru_minflt) < 0 ||
	    fclose(f) != 0)
		err(1, "%s", file);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int
main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "limits") == 0) {
		const size_t n = strtoull(argv[2], NULL, 10);
		figure(copying(n), "s", "memcpy");
		figure(streaming(n), "s", "stream");
		figure(pinging(), "s", "ping");
	} else if (argc == 5 &&
		   (strcmp(argv[1], "clock") == 0 || strcmp(argv[1], "duplex") == 0 ||
		    strcmp(argv[1], "write") == 0)) {
		clock_of(strtoull(argv[2], NULL, 10),
			 (uint32_t)strtoul(argv[3], NULL, 10), atoi(argv[4]),
			 argv[1][0] == 'c'   ? CLOCK
			 : argv[1][0] == 'd' ? DUPLEX
					     : WRITE);
	} else if (argc >= 4 && strcmp(argv[1], "spent") == 0) {
		return spent(argv[2], argv + 3);
	} else {
		errx(2, "usage: twin limits BYTES | clock|duplex FLOATS WORKERS "
			"CLOCKS | write FLOATS READERS CLOCKS | "
			"spent FILE COMMAND...");
	}
	return 0;
}
