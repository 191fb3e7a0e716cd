/* The floats of safetensors files. */
#include "model/safetensors_priv.h"

#include <math.h>
#include <string.h>

static void
read_f32(float *to, const uint8_t *from, size_t n)
{
	memcpy(to, from, n * sizeof(*to));
}

static uint16_t
get_u16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

/* The upper half of a float. */
static void
read_bf16(float *to, const uint8_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const uint32_t bits = (uint32_t)get_u16(from + 2 * i) << 16;
		memcpy(&to[i], &bits, sizeof(bits));
	}
}

/* IEEE 754 binary16: a sign, 5 bits of exponent, 10 of fraction. */
static void
read_f16(float *to, const uint8_t *from, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const uint16_t h = get_u16(from + 2 * i);
		const int exponent = h >> 10 & 31, fraction = h & 1023;
		const float size =
			exponent == 31  ? (fraction == 0 ? INFINITY : NAN)
			: exponent == 0 ? ldexpf((float)fraction, -24)
					: ldexpf((float)(fraction + 1024), exponent - 25);
		to[i] = h >> 15 != 0 ? -size : size;
	}
}

const struct st_float *
st_float_named(const char *dtype)
{
	static const struct st_float types[] = {
		{ "F32", 4, read_f32 },
		{ "F16", 2, read_f16 },
		{ "BF16", 2, read_bf16 },
	};
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (strcmp(dtype, types[i].name) == 0)
			return &types[i];
	return NULL;
}
