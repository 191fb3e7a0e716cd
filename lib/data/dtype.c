/* Types of values, by one table. */
#include "data/dtype.h"

#include <assert.h>
#include <string.h>

static const struct {
	char name[5], npy[4];
	uint8_t size;
} types[FAL_F64 + 1] = {
	[FAL_U8] = { "U8", "|u1", 1 },   [FAL_I8] = { "I8", "|i1", 1 },
	[FAL_U16] = { "U16", "<u2", 2 }, [FAL_I16] = { "I16", "<i2", 2 },
	[FAL_U32] = { "U32", "<u4", 4 }, [FAL_I32] = { "I32", "<i4", 4 },
	[FAL_I64] = { "I64", "<i8", 8 }, [FAL_F32] = { "F32", "<f4", 4 },
	[FAL_F64] = { "F64", "<f8", 8 },
};

_Static_assert((int)FAL_ABSENT + 1 == (int)FAL_F64, "ABSENT is given up for F64's place");

const char *
fal_dtype_name(enum fal_dtype t)
{
	return t == FAL_ABSENT ? "none" : types[t].name;
}

size_t
fal_dtype_size(enum fal_dtype t)
{
	return types[t].size;
}

bool
fal_dtype_of(const char *name, bool npy, enum fal_dtype *out)
{
	unsigned i = 0;
	while (i <= FAL_F64 && (types[i].size == 0 ||
				strcmp(npy ? types[i].npy : types[i].name, name) != 0))
		i++;
	if (i <= FAL_F64)
		*out = (enum fal_dtype)i;
	return i <= FAL_F64;
}

#define LOAD(type, p)                         \
	({                                    \
		type v_;                      \
		memcpy(&v_, (p), sizeof(v_)); \
		v_;                           \
	})

int64_t
fal_dtype_whole(enum fal_dtype t, const uint8_t *p)
{
	switch (t) {
	case FAL_U8:
		return *p;
	case FAL_I8:
		return LOAD(int8_t, p);
	case FAL_U16:
		return LOAD(uint16_t, p);
	case FAL_I16:
		return LOAD(int16_t, p);
	case FAL_U32:
		return LOAD(uint32_t, p);
	case FAL_I32:
		return LOAD(int32_t, p);
	default:
		assert(t == FAL_I64);
		return LOAD(int64_t, p);
	}
}

float
fal_dtype_float(enum fal_dtype t, const uint8_t *p)
{
	if (t == FAL_F32)
		return LOAD(float, p);
	if (t == FAL_F64)
		return (float)LOAD(double, p);
	return (float)fal_dtype_whole(t, p);
}
