/* Reading a safetensors file, shared by its own two sources only. */
#ifndef FAL_MODEL_SAFETENSORS_PRIV_H
#define FAL_MODEL_SAFETENSORS_PRIV_H

#include "model/safetensors.h"

#include "base/text.h"

#include <jansson.h>

/* A file being read. */
struct reader {
	const char *name;
	struct fal_diag *diag;
	const uint8_t *data;
	uint64_t bytes;   /* of data */
	struct place *at; /* of each tensor of the model, in its order */
};

/* Where a tensor's data are, and what they are. */
struct place {
	uint64_t at[2]; /* begin and end */
	const struct st_float *is;
};

#define FAIL(r, fmt, ...) \
	fal_diag_set((r)->diag, FAL_EFORMAT, "%s: " fmt, (r)->name, __VA_ARGS__)

/* Where the header of a file is; the data follow it in `r`.  FAL_ETRUNC, FAL_ELIMIT. */
int st_find_header(struct reader *r, const void *bytes, size_t n, const char **text,
		   size_t *len);

/* The JSON of `n` bytes at `text`, to be given back by json_decref().  FAL_EFORMAT. */
int st_read_json(const struct reader *r, const char *text, size_t n, json_t **out);

/* A type of floats, and how its values become ours. */
struct st_float {
	const char *name;
	unsigned bytes; /* of each */
	void (*read)(float *to, const uint8_t *from, size_t n);
};
/* NULL: it is none of these. */
const struct st_float *st_float_named(const char *dtype);

/* Where a tensor's data are, both ends of it within the data.  FAL_EFORMAT. */
int st_read_offsets(const struct reader *r, const char *name, const json_t *o,
		    uint64_t at[2]);

/* For qsort of what begins with such a place. */
int st_by_begin(const void *a, const void *b);

#endif
