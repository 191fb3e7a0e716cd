/* The type of a file by its first bytes: one table for all readers. */
#ifndef FAL_BASE_FILETYPE_H
#define FAL_BASE_FILETYPE_H

#include "base/err.h"

#include <stddef.h>

enum { FAL_FILETYPE_HEAD = 512 }; /* first bytes that tell all types */

struct fal_filetype {
	enum fal_filetype_kind {
		FAL_FILETYPE_NONE,
		FAL_FILETYPE_PACKED, /* no reader takes such a file */
		FAL_FILETYPE_TEXT,   /* only the format `text` takes such a text */
		FAL_FILETYPE_NPY,
		FAL_FILETYPE_IDX,
		FAL_FILETYPE_SAFETENSORS
	} kind;
	unsigned offset;   /* of `magic` */
	const char *magic; /* n bytes */
	size_t n;
	const char *within; /* text that the first bytes must contain, too; NULL: none */
	const char *name;   /* "a zip archive: unpack it"; for "FILE: is %s" */
};

/* The type of a file that begins with the `n` bytes at `head`; NULL: not in the table.
 * Static. */
const struct fal_filetype *fal_filetype_of(const void *head, size_t n);

/* FAL_EFORMAT with `diag`: the file `name`, which begins with `head`, has another type
 * than `own`, the reader's type; else 0. */
int fal_filetype_refuse(const char *name, const void *head, size_t n,
			enum fal_filetype_kind own, struct fal_diag *diag);

#endif
