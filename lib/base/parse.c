/* Strict numbers. */
#include "base/parse.h"

#include "base/err.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Parses the digits of `s` up to `*end`; FAL_EFORMAT: there are none. */
static int
parse_digits(const char *s, const char **end, uint64_t *out)
{
	uint64_t v = 0;
	if (!isdigit((unsigned char)*s))
		return FAL_EFORMAT;
	for (; isdigit((unsigned char)*s); s++)
		if (__builtin_mul_overflow(v, (uint64_t)10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
			return FAL_ELIMIT;
	*end = s;
	*out = v;
	return FAL_OK;
}

int
fal_parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *out)
{
	const char *end;
	uint64_t v;
	int err = parse_digits(s, &end, &v);
	if (err < 0)
		return err;
	if (*end != '\0')
		return FAL_EFORMAT;
	if (v < min || v > max)
		return FAL_ELIMIT;
	*out = v;
	return FAL_OK;
}

int
fal_parse_range(const char *s, uint32_t least, uint32_t most, uint32_t *min,
		uint32_t *max)
{
	const char *end;
	uint64_t low, high = 0;
	int err = parse_digits(s, &end, &low);
	if (err == FAL_OK)
		err = low < least ? FAL_ELIMIT
				  : fal_parse_u64(*end == ':' ? end + 1 : s, low, most,
						  &high);
	if (err < 0)
		return err;
	*min = (uint32_t)low;
	*max = (uint32_t)high;
	return FAL_OK;
}

int
fal_parse_double(const char *s, double min, double max, double *out)
{
	if (*s == '\0' || strspn(s, "+-.0123456789eE") != strlen(s))
		return FAL_EFORMAT;
	char *end;
	errno = 0;
	/* The programs never call setlocale, so strtod reads the C locale. */
	double v = strtod(s, &end);
	if (*end != '\0')
		return FAL_EFORMAT;
	if (!isfinite(v) || v < min || v > max)
		return FAL_ELIMIT;
	*out = v;
	return FAL_OK;
}

int
fal_parse_size(const char *s, uint64_t *out)
{
	const char *end;
	uint64_t v;
	int err = parse_digits(s, &end, &v);
	if (err < 0)
		return err;
	static const char units[] = "KMGT";
	const char *unit = *end != '\0' ? strchr(units, *end) : NULL;
	unsigned shift = 0;
	if (unit != NULL) {
		shift = 10 * (unsigned)(unit - units + 1);
		end++;
	}
	if (*end != '\0')
		return FAL_EFORMAT;
	if (v > UINT64_MAX >> shift)
		return FAL_ELIMIT;
	*out = v << shift;
	return FAL_OK;
}

void
fal_hex(const uint8_t *p, size_t n, char *out)
{
	static const char digits[] = "0123456789abcdef";
	for (size_t i = 0; i < n; i++) {
		out[2 * i] = digits[p[i] >> 4];
		out[2 * i + 1] = digits[p[i] & 15];
	}
	out[2 * n] = '\0';
}

int
fal_unhex(const char *s, size_t n, uint8_t *out)
{
	static const char digits[] = "0123456789abcdef";
	if (strlen(s) != 2 * n || strspn(s, digits) != 2 * n)
		return FAL_EFORMAT;
	for (size_t i = 0; i < n; i++)
		out[i] = (uint8_t)((strchr(digits, s[2 * i]) - digits) * 16 +
				   (strchr(digits, s[2 * i + 1]) - digits));
	return FAL_OK;
}
