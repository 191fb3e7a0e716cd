/* What a value of a sample is: the types of arrays in files and in chunks. */
#ifndef FAL_DATA_DTYPE_H
#define FAL_DATA_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The numbers are those of a manifest (falcon-data(7)). */
enum fal_dtype {
	FAL_U8 = 0,
	FAL_I8,
	FAL_U16,
	FAL_I16,
	FAL_U32,
	FAL_I32,
	FAL_I64,
	FAL_F32,
	FAL_ABSENT, /* samples have no bytes: others have them, by index */
	FAL_DTYPES,
	FAL_F64 = FAL_DTYPES /* in files alone: what is kept of it is F32 */
};

/* Its name in safetensors ("F32"), which is also ours; static. */
const char *fal_dtype_name(enum fal_dtype t);

/* Bytes of a value. */
size_t fal_dtype_size(enum fal_dtype t);

/* By name ("F32"), or by what .npy files say ("<f4"); false: there is none. */
bool fal_dtype_of(const char *name, bool npy, enum fal_dtype *out);

/* Is it of whole numbers? */
static inline bool
fal_dtype_is_whole(enum fal_dtype t)
{
	return t < FAL_F32;
}

/* The value at `p`, little-endian and not aligned, of a type of whole numbers; and of
 * any but ABSENT, rounded to float. */
int64_t fal_dtype_whole(enum fal_dtype t, const uint8_t *p);
float fal_dtype_float(enum fal_dtype t, const uint8_t *p);

#endif
