/* A file of data being read, plain or gzipped, and where its faults go.  For lib/job
 * alone. */
#ifndef FAL_JOB_SOURCE_H
#define FAL_JOB_SOURCE_H

#include "job/set.h"

#include <zlib.h>

struct source {
	int fd;
	const char *path;
	struct fal_diag *diag;
	enum fal_filetype_is own;        /* of the reader; NONE: a format without magic */
	const struct fal_filetype *kind; /* of the file; NULL: not known */
	z_stream z;      /* its input is what was read of the file and not used yet */
	uint8_t *in;     /* memory of that */
	uint64_t read;   /* bytes of the file */
	uint64_t member; /* where the member began that is read */
	bool at_end, zipped, inside;       /* of the file; a gzip file; within a member */
	const struct fal_array_opts *opts; /* of arrays alone, as the next two */
	uint64_t before, behind;
	/* The first bytes of the content, and how many of them were handed out. */
	uint8_t head[FAL_FILETYPE_HEAD];
	unsigned head_n, head_at;
};

/* A path that is no file's, and what messages call it. */
extern const char source_stdin[];

/* Reads the first bytes.  FAL_ENOENT, FAL_EIO, FAL_ENOMEM, errors of source_some, and
 * FAL_EFORMAT for a kind that no reader takes, with `diag`; as all below.  `path` is
 * kept. */
int source_open(struct source *s, const char *path, struct fal_diag *diag);

/* Returns `err`, that of reading; of a file of another kind than the reader's own the
 * diagnosis is that instead. */
int source_close(struct source *s, int err);

/* Sets the diagnosis "FILE: what" and returns `err`; source_nomem: that of FAL_ENOMEM. */
int source_fail(const struct source *s, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int source_nomem(const struct source *s);

/* Exactly n bytes into `p` (NULL: nowhere); FAL_ETRUNC. */
int source_exact(struct source *s, uint8_t *p, uint64_t n);

/* Up to n bytes; how many, 0 at the end, or an error. */
int source_some(struct source *s, uint8_t *p, unsigned n);

/* The header of a .npy file: magic, type and dimensions. */
int source_npy(struct source *s, struct fal_array *a);

#endif
