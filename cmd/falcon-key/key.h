/* What the commands of falcon-key share. */
#ifndef FALCON_KEY_KEY_H
#define FALCON_KEY_KEY_H

#include "crypto/keyring.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define PROG "falcon-key"

/* ---- key files on disk: read into locked memory, and made whole or not at all.  Errors
 * are FAL_EIO with errno, unless said otherwise. ---- */

/* A text in locked memory; free `p` with fal_secret_free. */
struct text {
	char *p;
	size_t n;
	bool exposed; /* others than its owner may read the file */
};

/* Reads `path`, "-" for standard input.  FAL_ELIMIT beyond FAL_KEYRING_MAX. */
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

/* ---- commands ---- */

/* What a command is asked for; NULL: not given. */
struct options {
	const char *keyring, *role, *name, *expires, *key, *coordinator;
	const char *fingerprint; /* of the key to be revoked */
	const char *public;      /* the key to be added, made elsewhere */
	bool add, shared;
};

/* One line on stderr; returns `status`. */
#define say(status, ...) (fal_cli_err(PROG, __VA_ARGS__), (status))

/* The same for `err` at `object`; a file that is too large is a bad file. */
int fail(const char *object, int err);

/* Reads a file of secrets, unless others can, too.  An exit code. */
int read_keys(const char *path, struct text *text);

/* The commands, with n operands behind their name; an exit code. */
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
