/* Checked allocation: products of sizes are tested for overflow.
 *
 * The functions fal_x… are for sizes and counts of the program's own: they never fail, as
 * a lack of memory ends the program (fal_out_of_memory).  The others are for sizes and
 * counts of a peer, a job or a file: a lack of memory fails only the request.
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

/* n·size bytes, not zeroed, that begin a page, a large page if they fill one, or NULL.
 * Bytes that are never written take no memory.  Free with free(). */
void *fal_alloc_pages(size_t n, size_t size);

/* Asks for large pages within these bytes, which are read and written as a whole and
 * often: the look-up of small pages costs as much as the work.  A hint: pages may stay
 * small. */
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

/* Are n bytes free for a peer, with 1 MiB left for the program itself?  For a session,
 * whose many small allocations are not checked, the question is asked once, before it
 * begins.  The answer is by a mapping: malloc(3) may have n bytes where no more can be
 * mapped. */
bool fal_memory_is_free(size_t n);

/* Prints one line on standard error and ends the process with FAL_EXIT_MEMORY. */
__attribute__((noreturn)) void fal_out_of_memory(void);

/* Returns `p`, an allocation by other functions; NULL ends the program. */
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
