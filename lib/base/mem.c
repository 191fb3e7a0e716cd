/* Checked allocation. */
#include "base/mem.h"

#include "base/err.h"
#include "base/fault.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, LARGE = 2 << 20 }; /* bytes; of x86-64 and of most others */

void *
fal_calloc(size_t n, size_t size)
{
	if (n == 0 || size == 0)
		n = size = 1;
	return FAL_TRY(MALLOC, NULL, calloc(n, size));
}

void *
fal_realloc(void *p, size_t n, size_t size)
{
	size_t bytes;
	if (__builtin_mul_overflow(n, size, &bytes))
		return NULL;
	return FAL_TRY(MALLOC, NULL, realloc(p, bytes != 0 ? bytes : 1));
}

/* Allocates at least n·size bytes, a multiple of `unit`; *bytes: their number. */
static void *
alloc_aligned(size_t n, size_t size, size_t unit, size_t *bytes)
{
	if (__builtin_mul_overflow(n, size, bytes) || *bytes > SIZE_MAX - unit)
		return NULL;
	*bytes = (*bytes + unit - 1) & ~(unit - 1);
	return FAL_TRY(MALLOC, NULL, aligned_alloc(unit, *bytes != 0 ? *bytes : unit));
}

void *
fal_calloc_aligned(size_t n, size_t size)
{
	size_t bytes;
	void *p = alloc_aligned(n, size, 64, &bytes);
	if (p != NULL)
		memset(p, 0, bytes);
	return p;
}

void *
fal_alloc_pages(size_t n, size_t size)
{
	size_t bytes;
	const bool large = size != 0 && n >= LARGE / size;
	return alloc_aligned(n, size, large ? LARGE : PAGE, &bytes);
}

void
fal_large_pages(void *p, size_t bytes)
{
	uint8_t *at = p;
	const size_t before = -(uintptr_t)at & (LARGE - 1);
	if (bytes >= before + LARGE)
		(void)madvise(at + before, (bytes - before) & ~((size_t)LARGE - 1),
			      MADV_HUGEPAGE);
}

int
fal_grow_to(void **p, size_t *cap, size_t need, size_t size)
{
	size_t want = *cap < 8 ? 8 : *cap;
	while (want < need)
		if (__builtin_mul_overflow(want, (size_t)2, &want))
			return FAL_ENOMEM;
	void *q = fal_realloc(*p, want, size);
	if (q == NULL)
		return FAL_ENOMEM;
	*p = q;
	*cap = want;
	return FAL_OK;
}

char *
fal_strdup(const char *s)
{
	size_t n = strlen(s) + 1;
	char *copy = fal_calloc(n, 1);
	if (copy != NULL)
		memcpy(copy, s, n);
	return copy;
}

bool
fal_memory_is_free(size_t n)
{
	const size_t all = n + ((size_t)1 << 20);
	void *p = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);
	if (p == MAP_FAILED)
		return false;
	munmap(p, all);
	return true;
}

void
fal_out_of_memory(void)
{
	fprintf(stderr, "%s: out of memory\n", program_invocation_short_name);
	_exit(FAL_EXIT_MEMORY);
}

void *
fal_check_alloc(void *p)
{
	if (p == NULL)
		fal_out_of_memory();
	return p;
}

void *
fal_xcalloc(size_t n, size_t size)
{
	return fal_check_alloc(fal_calloc(n, size));
}

void *
fal_xcalloc_aligned(size_t n, size_t size)
{
	return fal_check_alloc(fal_calloc_aligned(n, size));
}

char *
fal_xstrdup(const char *s)
{
	return fal_check_alloc(fal_strdup(s));
}

void
fal_xgrow(void **p, size_t *cap, size_t need, size_t size)
{
	if (fal_grow(p, cap, need, size) < 0)
		fal_out_of_memory();
}

char *
fal_xprintf(const char *fmt, ...)
{
	va_list ap;
	char *text;
	va_start(ap, fmt);
	const int n = FAL_TRY(MALLOC, -1, vasprintf(&text, fmt, ap));
	va_end(ap);
	if (n < 0)
		fal_out_of_memory();
	return text;
}
