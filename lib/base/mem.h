/* Checked allocation: products of sizes are tested for overflow.
 *
 * Use fal_x… for sizes and counts that the program chooses: a lack of memory ends the
 * program (fal_out_of_memory).  Use the other functions for sizes and counts that a peer,
 * a job or a file chooses: a lack of memory fails only the request.
 */
#ifndef FAL_BASE_MEM_H
#define FAL_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>

/* n·size zeroed bytes, or NULL.  n or size may be 0: the result is a unique pointer. Free
 * with free(). */
void *fal_calloc(size_t n, size_t size);

/* Resizes `p` (NULL: allocates) to n·size bytes; NULL leaves `p` as it was. */
void *fal_realloc(void *p, size_t n, size_t size);

/* n·size zeroed bytes aligned to 64, for vector code, or NULL.  Free with free(). */
void *fal_calloc_aligned(size_t n, size_t size);

/* n·size bytes at the begin of a page, not zeroed, or NULL.  If they fill a large page,
 * they begin one.  Bytes that are never written take no memory.  Free with free(). */
void *fal_alloc_pages(size_t n, size_t size);

/* Asks the system for large pages, for bytes that are often read or written as a whole:
 * with small pages, the look-up of pages costs as much as the work.  A hint: pages may
 * stay small. */
void fal_large_pages(void *p, size_t bytes);

/* Grows the array `*p` of `*cap` elements of `size` bytes to at least `need` elements,
 * doubling.  Returns 0 or FAL_ENOMEM (then nothing has changed). */
int fal_grow_to(void **p, size_t *cap, size_t need, size_t size);

static inline int
fal_grow(void **p, size_t *cap, size_t need, size_t size)
{
	return need <= *cap ? 0 : fal_grow_to(p, cap, need, size);
}

/* FAL_GROW(array, cap, need): fal_grow with the element size of `array`. */
#define FAL_GROW(array, cap, need) \
	fal_grow((void **)&(array), &(cap), (need), sizeof(*(array)))

/* A copy of the NUL-terminated `s`, or NULL.  Free with free(). */
char *fal_strdup(const char *s);

enum { FAL_EXIT_MEMORY = 71 }; /* sysexits' EX_OSERR */

/* Are n bytes free for a peer, with 1 MiB left for the program itself?  The many small
 * allocations of a session are not checked, so callers ask once, before the session
 * begins.  The test maps n bytes, because malloc(3) may have n bytes when the system has
 * none. */
bool fal_memory_is_free(size_t n);

/* Prints one line on standard error and ends the process with FAL_EXIT_MEMORY. */
__attribute__((noreturn)) void fal_out_of_memory(void);

/* Returns `p`, which another function has allocated; NULL ends the program. */
void *fal_check_alloc(void *p);

/* As fal_calloc, fal_calloc_aligned, fal_strdup, FAL_GROW, asprintf(3); never NULL. */
void *fal_xcalloc(size_t n, size_t size);
void *fal_xcalloc_aligned(size_t n, size_t size);
char *fal_xstrdup(const char *s);
void fal_xgrow(void **p, size_t *cap, size_t need, size_t size);
#define FAL_XGROW(array, cap, need) \
	fal_xgrow((void **)&(array), &(cap), (need), sizeof(*(array)))
char *fal_xprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
