/* What the commands of falcon-key share. */
#ifndef FALCON_KEY_KEY_H
#define FALCON_KEY_KEY_H

#include "file.h"
#include "sec/keyring.h"

#include <stdbool.h>
#include <stddef.h>

#define PROG "falcon-key"

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
