/* What programs with fault points (base/fault.h) have beside their own: this counts
 * calls, and fails one. */
#ifndef FAL_FAULTS
#define FAL_FAULTS
#endif
#include "base/fault.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	STACK = 10,     /* addresses that tell two places from one another */
	SKIP = 1,       /* of our own */
	SEEN = 1 << 16, /* stacks that are told apart, a power of two */
};

static const char *const names[FAL_FAULTS_ALL] = { "malloc", "json",  "read",
						   "write",  "fsync", "rename" };
static const int errors[FAL_FAULTS_ALL] = { ENOMEM, ENOMEM, EIO, ENOSPC, EIO, EIO };

static struct {
	pthread_mutex_t lock;
	enum fal_fault kind;
	uint64_t from, to; /* those of `kind` that fail; 0: none */
	uint64_t count[FAL_FAULTS_ALL];
	int log; /* -1: none */
	uint64_t seen[SEEN];
	size_t stacks;
} faults = { .lock = PTHREAD_MUTEX_INITIALIZER, .log = -1 };

/* Where the linker says that the program begins. */
extern const char __executable_start;

static void
note(enum fal_fault kind, bool fails, void *const *stack, int n)
{
	char line[64 + STACK * 20];
	int at = snprintf(line, sizeof(line), "%s%s %llu", fails ? "!" : "", names[kind],
			  (unsigned long long)faults.count[kind]);
	for (int i = SKIP; i < n; i++)
		at += snprintf(line + at, sizeof(line) - (size_t)at, " %llx",
			       (unsigned long long)((uintptr_t)stack[i] -
						    (uintptr_t)&__executable_start - 1));
	line[at++] = '\n';
	(void)!write(faults.log, line, (size_t)at);
}

/* Is it the first of this kind from there? */
static bool
is_new(enum fal_fault kind, void *const *stack, int n)
{
	uint64_t h = 14695981039346656037u + kind; /* FNV-1a, by addresses */
	for (int i = SKIP; i < n; i++)
		h = (h ^ (uintptr_t)stack[i]) * 1099511628211u;
	h |= h == 0;
	size_t at = (size_t)(h >> 20) % SEEN;
	while (faults.seen[at] != 0 && faults.seen[at] != h)
		at = (at + 1) % SEEN;
	if (faults.seen[at] == h || faults.stacks == SEEN / 2)
		return false;
	faults.seen[at] = h;
	faults.stacks++;
	return true;
}

bool
fal_fault(enum fal_fault kind)
{
	void *stack[STACK];
	const int why = errno;
	pthread_mutex_lock(&faults.lock);
	const uint64_t n = ++faults.count[kind];
	const bool fails = kind == faults.kind && n >= faults.from && n <= faults.to;
	if (faults.log >= 0) {
		const int depth = backtrace(stack, STACK);
		if (is_new(kind, stack, depth) || fails)
			note(kind, fails, stack, depth);
	}
	pthread_mutex_unlock(&faults.lock);
	errno = fails ? errors[kind] : why;
	return fails;
}

/* Before main: what the environment says. */
__attribute__((constructor)) static void
begin(void)
{
	const char *plan = getenv("FALCON_FAULT"), *log = getenv("FALCON_FAULT_LOG");
	unsigned long long n;
	char kind[16], more = '\0';
	if (log != NULL)
		faults.log = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (plan == NULL)
		return;
	if (sscanf(plan, "%15[a-z]:%llu%c", kind, &n, &more) >= 2)
		for (int i = 0; i < FAL_FAULTS_ALL; i++)
			if (strcmp(kind, names[i]) == 0) {
				faults.kind = (enum fal_fault)i;
				faults.from = n;
				faults.to = more == '+' ? UINT64_MAX : n;
				return;
			}
	fprintf(stderr, "FALCON_FAULT: '%s' is not KIND:N\n", plan);
	abort();
}
