/* A worker whose pushes lie about values, as $FALCON_LIE says: linked into a test build
 * of falcon-work with -Wl,--wrap=fal_sum_pack. */
#include "base/err.h"
#include "wire/bfp.h"

#include <stdlib.h>
#include <string.h>

int __real_fal_sum_pack(const struct fal_sum *s, uint32_t block, int8_t exponent,
			const uint64_t *checksum, struct fal_buf *out);
int __wrap_fal_sum_pack(const struct fal_sum *s, uint32_t block, int8_t exponent,
			const uint64_t *checksum, struct fal_buf *out);

static const struct lie {
	const char *name;
	int64_t value; /* in each place; -1: what is so */
	int needed;    /* 0: the most that the format has for this exponent */
} lies[] = {
	{ "large", INT64_C(1) << 61, FAL_EXP_MAX },
	{ "zeros", 0, FAL_EXP_MAX },
	{ "room", (INT64_C(1) << 62) - 1, 0 },
	{ "freeze", 0, 0 },
	{ "needed", -1, 0 },
};

int
__wrap_fal_sum_pack(const struct fal_sum *s, uint32_t block, int8_t exponent,
		    const uint64_t *checksum, struct fal_buf *out)
{
	const char *name = getenv("FALCON_LIE");
	const struct lie *lie = lies;
	while (name == NULL || strcmp(lie->name, name) != 0)
		if (name == NULL || ++lie == lies + sizeof(lies) / sizeof(lies[0]))
			abort();
	int64_t v[FAL_BLOCK];
	uint64_t bound = fal_sum_bound(s, block);
	fal_sum_load(s, block, v);
	for (uint32_t i = 0; i < FAL_BLOCK && lie->value >= 0; i++)
		v[i] = lie->value;
	if (lie->value >= 0)
		bound = (uint64_t)lie->value;
	const int needed = lie->needed != 0 ? lie->needed : exponent + FAL_BFP_HEADROOM;
	struct fal_sum *lied = fal_sum_new(fal_sum_len(s));
	int err = lied != NULL ? fal_sum_store(lied, block, v, bound, (int8_t)needed)
			       : FAL_ENOMEM;
	if (err == FAL_OK)
		err = __real_fal_sum_pack(lied, block, exponent, checksum, out);
	fal_sum_free(lied);
	return err;
}
