/* A data file that is read from front to end, plain or gzipped, and its diagnosis.  For
 * lib/job alone. */
#ifndef FAL_JOB_SOURCE_H
#define FAL_JOB_SOURCE_H

#include "job/set.h"

#include <zlib.h>

struct source {
	int fd;
	const char *path;
	struct fal_diag *diag;
	enum fal_filetype_kind own;      /* kind that the reader wants; NONE: no magic */
	const struct fal_filetype *kind; /* kind of the file; NULL: unknown */
	z_stream z;            /* its input is the part of `in` that is not used yet */
	uint8_t *in;           /* bytes read from the file */
	uint64_t bytes_read;   /* from the file */
	uint64_t member_start; /* of the current gzip member, in bytes of the file */
	bool at_end, is_gzip, in_member;
	/* The first bytes of the content, and the number of them handed out. */
	uint8_t head[FAL_FILETYPE_HEAD];
	unsigned head_n, head_used;
};

/* The path that stands for the standard input, and its name in messages. */
extern const char source_stdin[];

/* Opens the file and reads the first bytes.  `path` is kept.  FAL_ENOENT, FAL_EIO,
 * FAL_ENOMEM, errors of source_some, FAL_EFORMAT (a kind that no reader takes), with
 * `diag`. */
int source_open(struct source *s, const char *path, struct fal_diag *diag);

/* Closes the file and returns `err`, the result of reading.  If `err` is due to a file of
 * another kind than the reader's own, the diagnosis names that kind instead. */
int source_close(struct source *s, int err);

/* Sets the diagnosis "FILE: fault" and returns `err`. */
#define source_fail(s, err, fmt, ...) \
	fal_diag_set((s)->diag, (err), "%s: " fmt, (s)->path, ##__VA_ARGS__)
/* Sets the diagnosis of FAL_ENOMEM and returns FAL_ENOMEM. */
int source_nomem(const struct source *s);

/* Reads exactly n bytes into `p` (NULL: skips n bytes).  FAL_ETRUNC, errors of
 * source_some. */
int source_exact(struct source *s, uint8_t *p, uint64_t n);

/* Reads up to n bytes; returns their number, 0 at the end, or FAL_EIO, FAL_EFORMAT,
 * FAL_ETRUNC, FAL_ENOMEM, with the diagnosis. */
int source_some(struct source *s, uint8_t *p, unsigned n);

#endif
