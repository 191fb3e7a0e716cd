/* Whole files: bounded reads, atomic writes, the key file's place. */
#ifndef FAL_CLI_FILE_H
#define FAL_CLI_FILE_H

#include "base/buf.h"
#include "base/err.h"

#include <stddef.h>
#include <sys/types.h>

/* What messages call a file that is read. */
const char *fal_cli_file(const char *path);

/* Appends the whole of `path` to `out`, without a byte order mark at its beginning; "-"
 * is stdin.  At most `limit` bytes.
 * Errors, each with a diagnosis that names the path: FAL_ENOENT, FAL_EPERM, FAL_EIO
 * (errno is set), FAL_ELIMIT, FAL_ENOMEM; FAL_EFORMAT for what holds a key, which no
 * parser is to see that might quote it (fal_text_has_key), and for what is packed or no
 * text in UTF-8 (base/filetype.h). */
int fal_cli_read(const char *path, size_t limit, struct fal_buf *out,
		 struct fal_diag *diag);

/* Hands the bytes of `path` to feed(arg, p, n) as they come, from a pipe at once; "-" is
 * stdin.  Ends early when that returns other than FAL_OK, with what it returned.
 * Errors as above, but for FAL_ELIMIT. */
int fal_cli_feed(const char *path, int (*feed)(void *arg, const void *p, size_t n),
		 void *arg, struct fal_diag *diag);

/* The same to two, one after the other: `first` gets all of it before `then` gets any.
 * What is no regular file cannot be read twice: `then` alone gets it. */
struct fal_cli_pass {
	int (*feed)(void *arg, const void *p, size_t n);
	void *arg;
};
int fal_cli_feed_twice(const char *path, struct fal_cli_pass first,
		       struct fal_cli_pass then, struct fal_diag *diag);

/* The whole of `path` into the `cap` bytes at `to`; `*n` is how many there were.  No copy
 * remains elsewhere in memory: for secrets.  A file with keys that others can read is
 * refused, with the chmod to type, as FAL_EPERM; one that is not ours may be open to its
 * group.  Else
 * errors as of fal_cli_feed, FAL_ELIMIT beyond `cap`. */
int fal_cli_read_into(const char *path, void *to, size_t cap, size_t *n,
		      struct fal_diag *diag);

/* Writes all of the n bytes.  0, or -1 with errno set. */
int fal_cli_put(int fd, const void *p, size_t n);

/* Makes `path` hold exactly these bytes, or leaves it as it was: a temporary file beside
 * it is written, synced and renamed over it, then the folder is synced.  `mode` is that
 * of a new file, but for what the umask does not allow; an old one keeps what it has of
 * it.  A link stays, and leads to the new one; what is there and is no regular file
 * stays, too.  "-" writes to stdout, plainly.
 *
 * Errors with a diagnosis: FAL_ENOENT, FAL_EPERM, FAL_EIO (errno is set), FAL_ENOMEM;
 * where the folder alone could not be synced the new file is there, whole. */
int fal_cli_write(const char *path, const void *p, size_t n, mode_t mode,
		  struct fal_diag *diag);

/* The same for a file that is there, which keeps its mode and its owner, too: root may
 * add to what is a daemon's.  What is renamed is done, though its folder cannot be
 * synced: who hears that it failed would take back what belongs to it. */
int fal_cli_rewrite(const char *path, const void *p, size_t n, struct fal_diag *diag);

/* Where the key is: `option` (of -k/--key) if not NULL, then $FALCON_KEY, then the first
 * that exists of $XDG_CONFIG_HOME/falcon/key ($HOME/.config without that variable) and
 * /etc/falcon/key.  Free with free().  NULL: none. */
char *fal_cli_key(const char *option);

#endif
