/* A file of data being read, plain or gzipped, and where its faults go.  For lib/data
 * alone. */
#ifndef FAL_DATA_SOURCE_H
#define FAL_DATA_SOURCE_H

#include "data/array.h"

#include <zlib.h>

struct source {
	gzFile f;
	const char *path;
	struct fal_diag *diag;
	bool cut; /* it ends too early, which is told when all of it is read */
};

/* A path that is no file's, and what messages call it. */
extern const char source_stdin[];

/* FAL_ENOENT, FAL_EIO, with `diag`; as all below.  `path` is kept. */
int source_open(struct source *s, const char *path, struct fal_diag *diag);
void source_close(struct source *s);

/* Exactly n bytes into `p` (NULL: nowhere); FAL_ETRUNC. */
int source_exact(struct source *s, uint8_t *p, uint64_t n);

/* Up to n bytes; how many, 0 at the end, or an error. */
int source_some(struct source *s, uint8_t *p, unsigned n);

/* Derives rows, row_values and row_bytes from type and dimensions, which are judged. */
int source_shape(const struct source *s, const struct fal_array_opts *opts,
		 struct fal_array *a);

/* Then reads the rows that are kept, which begin here; *left bytes of others follow.
 * `a` is to be freed in any case. */
int source_rows(struct source *s, const struct fal_array_opts *opts, struct fal_array *a,
		uint64_t *left);

/* The next byte, which stays the next one; -1: there is none. */
int source_peek(struct source *s);

/* Headers: magic, type and dimensions. */
int source_idx(struct source *s, struct fal_array *a);
int source_npy(struct source *s, struct fal_array *a);

/* The one array of a file: `header` reads type and dimensions, behind which the rows
 * begin and behind them nothing. */
int source_array(const char *path, const struct fal_array_opts *opts,
		 int (*header)(struct source *s, struct fal_array *a),
		 struct fal_array *out, struct fal_diag *diag);

#endif
