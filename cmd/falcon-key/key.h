/* Shared by the commands of falcon-key.  main.c calls keys.c and sign.c, which call
 * file.c. */
#ifndef FALCON_KEY_KEY_H
#define FALCON_KEY_KEY_H

#include "crypto/keyring.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define PROG "falcon-key"

/* ---- file.c: key files on disk, read into locked memory, and created whole or not at
 * all.  Errors are FAL_EIO with errno, unless said otherwise. ---- */

/* A text in locked memory; free `p` with fal_secret_free. */
struct text {
	char *p;
	size_t n;
};

/* Reads `path`, at most FAL_KEYRING_MAX bytes; "-" is standard input.  Refuses a file
 * with a secret that other users can read.  Returns an exit code, after one line on
 * stderr if it is not FAL_EXIT_DONE. */
int file_read(const char *path, struct text *out);

/* Creates the directory `dir` (mode 0700) with `n` files (mode 0600) of these names and
 * NUL-terminated texts: all of it or, after an error, nothing.  FAL_EEXIST: `dir` exists.
 */
int dir_create(const char *dir, const char *const *name, const char *const *text,
	       size_t n);

/* Creates the file `path` with this NUL-terminated text, or nothing.  FAL_EEXIST: `path`
 * exists. */
int file_create(const char *path, const char *text, mode_t mode);

/* Waits until no other falcon-key changes files beside `path`.  Returns a descriptor,
 * which holds the lock until it is closed. */
int file_lock(const char *path);

/* Prints one line on stderr; returns `status`. */
#define fail(status, ...) (fal_cli_err(PROG, __VA_ARGS__), (status))

/* Prints `err` at `object`; returns FAL_EXIT_NO. */
int file_fail(const char *object, int err);

/* ---- commands ---- */

/* The options; NULL: not given. */
struct options {
	const char *keyring, *role, *name, *expires, *key, *coordinator;
	const char *fingerprint; /* of the key to revoke */
	const char *public;      /* the key to add, created elsewhere */
	bool add, shared;
};

/* The commands, with n operands after their name.  Each returns an exit code. */
int cmd_init(const struct options *o, const char *const *arg, size_t n);
int cmd_add(const struct options *o, const char *const *arg, size_t n);
int cmd_new(const struct options *o, const char *const *arg, size_t n);
int cmd_public(const struct options *o, const char *const *arg, size_t n);
int cmd_revoke(const struct options *o, const char *const *arg, size_t n);
int cmd_show(const struct options *o, const char *const *arg, size_t n);
int cmd_pair(const struct options *o, const char *const *arg, size_t n);
int cmd_sign(const struct options *o, const char *const *arg, size_t n);
int cmd_verify(const struct options *o, const char *const *arg, size_t n);

#endif
