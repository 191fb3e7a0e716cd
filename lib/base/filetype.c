/* Magic bytes of files. */
#include "base/filetype.h"

#include <string.h>

#define AT(where, magic) where, magic, sizeof(magic) - 1
#define MAGIC(magic) AT(0, magic)
#define PACKED FAL_FILETYPE_PACKED
#define TEXT FAL_FILETYPE_TEXT

/* The first row that fits counts.  The length at the head of a safetensors file may look
 * like the two bytes of a pickle. */
/* clang-format off */
static const struct fal_filetype kinds[] = {
	{ FAL_FILETYPE_SAFETENSORS, AT(3, "\0\0\0\0\0{"), NULL, "a safetensors file" },
	{ PACKED, MAGIC("\x1f\x8b\x08"), NULL, "gzip-compressed: gunzip it" },
	{ PACKED, MAGIC("\xfd" "7zXZ"), NULL, "xz-compressed: unxz it" },
	{ PACKED, MAGIC("\x28\xb5\x2f\xfd"), NULL, "zstd-compressed: unzstd it" },
	{ PACKED, MAGIC("PK\3\4"), ".npy", "an .npz archive: save each array with numpy.save" },
	{ PACKED, MAGIC("PK\3\4"), "data.pkl", "a PyTorch file: save it as safetensors" },
	{ PACKED, MAGIC("PK\3\4"), "[Content_Types]", "a workbook: save it as CSV" },
	{ PACKED, MAGIC("PK\3\4"), NULL, "a zip archive: unpack it" },
	{ PACKED, AT(257, "ustar"), NULL, "a tar archive: unpack it" },
	{ PACKED, MAGIC("\x80\2"), NULL, "a Python pickle: save it with numpy.save" },
	{ PACKED, MAGIC("\x80\3"), NULL, "a Python pickle: save it with numpy.save" },
	{ PACKED, MAGIC("\x80\4\x95"), NULL, "a Python pickle: save it with numpy.save" },
	{ PACKED, MAGIC("\x80\5\x95"), NULL, "a Python pickle: save it with numpy.save" },
	{ PACKED, MAGIC("version https://git-lfs."), NULL, "a Git LFS pointer: git lfs pull" },
	{ PACKED, MAGIC("\x89HDF\r\n"), NULL, "an HDF5 file: save it with numpy.save" },
	{ PACKED, MAGIC("PAR1\x15"), NULL, "a Parquet file: save it as CSV" },
	{ TEXT, MAGIC("\xff\xfe"), NULL, "UTF-16 text: save it as UTF-8" },
	{ TEXT, MAGIC("\xfe\xff"), NULL, "UTF-16 text: save it as UTF-8" },
	{ TEXT, MAGIC("<!DOCTYPE"), NULL, "a page of HTML" },
	{ TEXT, MAGIC("<!doctype"), NULL, "a page of HTML" },
	{ TEXT, MAGIC("<html"), NULL, "a page of HTML" },
	{ FAL_FILETYPE_NPY, MAGIC("\x93NUMPY"), NULL, "a .npy file" },
	{ FAL_FILETYPE_IDX, MAGIC("\0\0\x08"), NULL, "an IDX file" },
};
/* clang-format on */

const struct fal_filetype *
fal_filetype_of(const void *head, size_t n)
{
	if (n > FAL_FILETYPE_HEAD)
		n = FAL_FILETYPE_HEAD;
	for (const struct fal_filetype *k = kinds; k < kinds + sizeof(kinds) / sizeof(*k);
	     k++)
		if (n >= k->offset + k->n &&
		    memcmp((const char *)head + k->offset, k->magic, k->n) == 0 &&
		    (k->within == NULL ||
		     memmem(head, n, k->within, strlen(k->within)) != NULL))
			return k;
	return NULL;
}

int
fal_filetype_refuse(const char *name, const void *head, size_t n,
		    enum fal_filetype_kind own, struct fal_diag *diag)
{
	const struct fal_filetype *k = fal_filetype_of(head, n);
	return k == NULL || k->kind == own
		       ? FAL_OK
		       : fal_diag_set(diag, FAL_EFORMAT, "%s: is %s", name, k->name);
}
