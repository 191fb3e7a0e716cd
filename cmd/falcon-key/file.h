/* Key files on disk: read into locked memory, and made whole or not at all.  Errors
 * are FAL_EIO with errno, unless said otherwise. */
#ifndef FALCON_KEY_FILE_H
#define FALCON_KEY_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* A text in locked memory; free `p` with fal_secret_free. */
struct text {
	char *p;
	size_t n;
	bool exposed; /* others than its owner may read the file */
};

/* Reads `path`, "-" for standard input.  FAL_ELIMIT beyond FAL_KEYRING_MAX; FAL_ENOMEM.
 */
int file_read(const char *path, struct text *out);

/* Makes the new directory `dir` (mode 0700) with `n` files (mode 0600) of these names and
 * NUL-terminated texts: all of it or, after an error, nothing.  FAL_EEXIST when `dir` is
 * there already. */
int dir_create(const char *dir, const char *const *name, const char *const *text,
	       size_t n);

/* Makes the file `path` with this NUL-terminated text, or nothing.  FAL_EEXIST when
 * something is there already. */
int file_create(const char *path, const char *text, mode_t mode);

/* Waits until no other falcon-key changes files beside `path`; returns a descriptor that
 * holds the lock until it is closed. */
int file_lock(const char *path);

#endif
