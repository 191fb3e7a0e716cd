/* IDX files. */
#include "data/source.h"

enum { IDX_U8 = 0x08 };

int
source_idx(struct source *s, struct fal_array *a)
{
	uint8_t magic[4], d[4];
	int err = source_exact(s, magic, sizeof(magic));
	if (err < 0)
		return err;
	if (magic[0] != 0 || magic[1] != 0)
		return fal_diag_set(s->diag, FAL_EFORMAT, "%s: not an IDX file", s->path);
	if (magic[2] != IDX_U8)
		return fal_diag_set(s->diag, FAL_EFORMAT,
				    "%s: IDX type 0x%02x is not supported, only 0x08 "
				    "(unsigned byte)",
				    s->path, magic[2]);
	if (magic[3] < 1 || magic[3] > FAL_ARRAY_DIMS)
		return fal_diag_set(s->diag, FAL_EFORMAT,
				    "%s: %u dimensions, not 1 to %d", s->path, magic[3],
				    FAL_ARRAY_DIMS);
	a->dtype = FAL_U8;
	a->ndim = magic[3];
	for (unsigned i = 0; i < a->ndim; i++) {
		if ((err = source_exact(s, d, sizeof(d))) < 0)
			return err;
		a->dim[i] = (uint32_t)d[0] << 24 | (uint32_t)d[1] << 16 |
			    (uint32_t)d[2] << 8 | d[3];
	}
	return FAL_OK;
}
