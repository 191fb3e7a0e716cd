/* The types of floats in safetensors files. */
#ifndef FAL_MODEL_SAFETENSORS_PRIV_H
#define FAL_MODEL_SAFETENSORS_PRIV_H

#include <stddef.h>
#include <stdint.h>

/* A type of floats, and how its values become ours. */
struct st_float {
	const char *name;
	unsigned bytes; /* of each */
	void (*read)(float *to, const uint8_t *from, size_t n);
};
/* NULL: it is none of these. */
const struct st_float *st_float_named(const char *dtype);

#endif
