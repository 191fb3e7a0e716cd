/* Whole files: bounded reads, atomic writes, the place of the key file. */
#ifndef FAL_CLI_FILE_H
#define FAL_CLI_FILE_H

#include "base/buf.h"
#include "base/err.h"

#include <stddef.h>
#include <sys/types.h>

/* The name of an input file in messages. */
const char *fal_cli_file_name(const char *path);

/* The file of the trace `name`: if `name` is a run's folder, trace.jsonl in it.  Free
 * with free(). */
char *fal_cli_trace_path(const char *name);

/* Appends the whole of `path` to `out`, at most `limit` bytes, without a byte order mark
 * at its beginning; "-" is stdin.  Errors, each with a diagnosis that names the path:
 * FAL_ENOENT, FAL_EPERM, FAL_EIO (errno is set), FAL_ELIMIT, FAL_ENOMEM; FAL_EFORMAT for
 * a file that holds a key, which a parser might quote (fal_text_has_key), and for a file
 * that is compressed or no text in UTF-8 (base/filetype.h). */
int fal_cli_read(const char *path, size_t limit, struct fal_buf *out,
		 struct fal_diag *diag);

/* Passes the bytes of `path` to feed(arg, p, n) as they come, without delay from a pipe;
 * "-" is stdin.  Another result of `feed` than FAL_OK ends the reading, and is returned.
 * Errors as of fal_cli_read, but for FAL_ELIMIT. */
int fal_cli_feed(const char *path, int (*feed)(void *arg, const void *p, size_t n),
		 void *arg, struct fal_diag *diag);

/* Passes the whole file to `first`, then to `then`.  A file that is not regular cannot be
 * read twice: only `then` gets it. */
struct fal_cli_pass {
	int (*feed)(void *arg, const void *p, size_t n);
	void *arg;
};
int fal_cli_feed_twice(const char *path, struct fal_cli_pass first,
		       struct fal_cli_pass then, struct fal_diag *diag);

/* Reads the whole of `path` into the `cap` bytes at `to`; `*n`: their number.  No copy
 * remains elsewhere in memory: for secrets.  A file with keys that others can read is
 * refused, with the chmod to type, as FAL_EPERM; a file of another owner may be open to
 * its group.  Other errors as of fal_cli_feed, FAL_ELIMIT beyond `cap`. */
int fal_cli_read_into(const char *path, void *to, size_t cap, size_t *n,
		      struct fal_diag *diag);

/* Writes all of the n bytes.  0, or -1 with errno set. */
int fal_cli_write_all(int fd, const void *p, size_t n);

/* Makes `path` hold exactly these bytes, or leaves it unchanged: writes a temporary file
 * beside it, syncs, renames it over `path`, and syncs the folder.  `mode` is the mode of
 * a new file, within the umask; an existing file keeps the part of its mode that `mode`
 * has. A symbolic link stays, and leads to the new file; a file that is not regular
 * stays, too.
 * "-" writes to stdout directly.
 *
 * Errors with a diagnosis: FAL_ENOENT, FAL_EPERM, FAL_EIO (errno is set), FAL_ENOMEM; if
 * only the sync of the folder fails, the new file is in place. */
int fal_cli_write(const char *path, const void *p, size_t n, mode_t mode,
		  struct fal_diag *diag);

/* Rewrites an existing file, which keeps its mode and its owner: so root may add to a
 * daemon's file.  A failed sync of the folder is no error: the caller would take back
 * what belongs to the renamed file. */
int fal_cli_rewrite(const char *path, const void *p, size_t n, struct fal_diag *diag);

/* The path of the key: `option` (of -k/--key) if not NULL, else $FALCON_KEY, else the
 * first existing file of $XDG_CONFIG_HOME/falcon/key ($HOME/.config without that
 * variable) and /etc/falcon/key.  Free with free().  NULL: there is none. */
char *fal_cli_key_path(const char *option);

#endif
