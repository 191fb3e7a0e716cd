/* Strict parsing of numbers: the text has nothing but the number, no spaces and no
 * needless sign, and the number is within bounds.  Results are set only on success. */
#ifndef FAL_BASE_PARSE_H
#define FAL_BASE_PARSE_H

#include <stddef.h>
#include <stdint.h>

/* Decimal digits only, min ≤ value ≤ max; FAL_EFORMAT or FAL_ELIMIT. */
int fal_parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *out);

/* "MIN:MAX", or one number for both; least ≤ *min ≤ *max ≤ most.  Errors as above. */
int fal_parse_range(const char *s, uint32_t least, uint32_t most, uint32_t *min,
		    uint32_t *max);

/* A finite decimal number, locale-independent, min ≤ value ≤ max; no hex, no nan. */
int fal_parse_double(const char *s, double min, double max, double *out);

/* Bytes: digits with an optional K, M, G or T (powers of 1024). */
int fal_parse_size(const char *s, uint64_t *out);

/* Lower-case hex of n bytes; `out` has room for 2n + 1. */
void fal_hex(const uint8_t *p, size_t n, char *out);

/* Parses exactly n bytes of such hex; FAL_EFORMAT. */
int fal_unhex(const char *s, size_t n, uint8_t *out);

#endif
