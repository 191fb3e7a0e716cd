/* .npy files: magic, version, length of the header, a Python dictionary of three keys,
 * the array (numpy.lib.format, "Format Version 1.0" to "3.0"). */
#include "job/source.h"

#include "base/buf.h"
#include "base/text.h"

#include <stdbool.h>
#include <string.h>

enum { HEADER_MAX = 1 << 14, DESCR_MAX = 16 };

/* The header being read. */
struct cursor {
	const struct source *s;
	const char *p;            /* NUL behind it */
	bool descr, order, shape; /* keys that were there */
};

static int
bad(const struct cursor *c, const char *what)
{
	return source_fail(c->s, FAL_EFORMAT, "header: %s at '%s'", what,
			   FAL_QUOTE(c->p));
}

static void
blanks(struct cursor *c)
{
	c->p += strspn(c->p, " \t\n");
}

/* Whether the text is next, which is then behind. */
static bool
next_is(struct cursor *c, const char *text)
{
	blanks(c);
	const size_t n = strlen(text);
	if (strncmp(c->p, text, n) != 0)
		return false;
	c->p += n;
	return true;
}

/* A string in quotes of either kind, without escapes. */
static int
get_string(struct cursor *c, char out[static DESCR_MAX])
{
	blanks(c);
	const char quote = *c->p;
	const char *end = quote == '\'' || quote == '"' ? strchr(c->p + 1, quote) : NULL;
	if (end == NULL || end - c->p > DESCR_MAX)
		return bad(c, "not a short string");
	const size_t n = (size_t)(end - c->p) - 1;
	memcpy(out, c->p + 1, n);
	out[n] = '\0';
	c->p = end + 1;
	return FAL_OK;
}

static int
get_descr(struct cursor *c, struct fal_array *a)
{
	char descr[DESCR_MAX];
	c->descr = true;
	blanks(c);
	if (*c->p == '[')
		return source_fail(c->s, FAL_EFORMAT,
				   "an array of structures, not of numbers");
	int err = get_string(c, descr);
	if (err == FAL_OK && descr[0] == '>')
		return source_fail(c->s, FAL_EFORMAT,
				   "type '%s' is big-endian: save it with .astype('<%s')",
				   descr, descr + 1);
	if (err == FAL_OK && !fal_dtype_of(descr, true, &a->dtype))
		return source_fail(
			c->s, FAL_EFORMAT,
			"type '%s' is not one of |u1 |i1 <u2 <i2 <u4 <i4 <i8 <f4 <f8",
			FAL_QUOTE(descr));
	return err;
}

static int
get_order(struct cursor *c)
{
	c->order = true;
	if (next_is(c, "False"))
		return FAL_OK;
	if (!next_is(c, "True"))
		return bad(c, "not True or False");
	return source_fail(c->s, FAL_EFORMAT,
			   "Fortran order: save it with numpy.ascontiguousarray");
}

/* A decimal number; what is too large stays too large. */
static int
get_dim(struct cursor *c, uint32_t *out)
{
	blanks(c);
	uint64_t v = 0;
	const char *p = c->p;
	for (; *p >= '0' && *p <= '9'; p++)
		v = v > UINT32_MAX ? v : v * 10 + (uint64_t)(*p - '0');
	if (p == c->p)
		return bad(c, "not a dimension");
	c->p = p;
	*out = v > UINT32_MAX ? UINT32_MAX : (uint32_t)v;
	return FAL_OK;
}

static int
get_shape(struct cursor *c, struct fal_array *a)
{
	int err = FAL_OK;
	c->shape = true;
	if (!next_is(c, "("))
		return bad(c, "not a shape");
	while (!next_is(c, ")")) {
		if (a->ndim == FAL_ARRAY_DIMS)
			return source_fail(c->s, FAL_EFORMAT, "more than %d dimensions",
					   FAL_ARRAY_DIMS);
		if ((err = get_dim(c, &a->dim[a->ndim++])) < 0)
			return err;
		if (!next_is(c, ",") && *c->p != ')')
			return bad(c, "not a shape");
	}
	if (a->ndim == 0)
		return source_fail(c->s, FAL_EFORMAT, "a single value, not an array");
	return FAL_OK;
}

static int
get_entry(struct cursor *c, struct fal_array *a)
{
	char key[DESCR_MAX];
	int err = get_string(c, key);
	if (err < 0)
		return err;
	if (!next_is(c, ":"))
		return bad(c, "no ':' behind a key");
	if (strcmp(key, "descr") == 0 && !c->descr)
		return get_descr(c, a);
	if (strcmp(key, "fortran_order") == 0 && !c->order)
		return get_order(c);
	if (strcmp(key, "shape") == 0 && !c->shape)
		return get_shape(c, a);
	return source_fail(c->s, FAL_EFORMAT, "header: unknown or second key '%s'",
			   FAL_QUOTE(key));
}

static int
get_header(struct cursor *c, struct fal_array *a)
{
	int err = FAL_OK;
	if (!next_is(c, "{"))
		return bad(c, "not a dictionary");
	while (err == FAL_OK && !next_is(c, "}")) {
		err = get_entry(c, a);
		if (err == FAL_OK && !next_is(c, ",") && *c->p != '}')
			err = bad(c, "no ',' behind a value");
	}
	blanks(c);
	if (err == FAL_OK && *c->p != '\0')
		err = bad(c, "more than a dictionary");
	if (err == FAL_OK && !(c->descr && c->order && c->shape))
		err = source_fail(c->s, FAL_EFORMAT, "header without %s",
				  !c->descr   ? "descr"
				  : !c->order ? "fortran_order"
					      : "shape");
	return err;
}

int
source_npy(struct source *s, struct fal_array *a)
{
	static const uint8_t magic[] = { 0x93, 'N', 'U', 'M', 'P', 'Y' };
	uint8_t head[8], len[4] = { 0 };
	char text[HEADER_MAX + 1];
	int err = source_exact(s, head, sizeof(head));
	if (err < 0)
		return err;
	if (memcmp(head, magic, sizeof(magic)) != 0)
		return source_fail(s, FAL_EFORMAT, "not a .npy file");
	if (head[6] < 1 || head[6] > 3 || head[7] != 0)
		return source_fail(s, FAL_EVERSION,
				   "version %u.%u of .npy, not 1.0 to 3.0", head[6],
				   head[7]);
	if ((err = source_exact(s, len, head[6] == 1 ? 2 : 4)) < 0)
		return err;
	struct fal_rd r = fal_rd_init(len, sizeof(len));
	const uint32_t n = fal_get_u32(&r);
	if (n > HEADER_MAX)
		return source_fail(s, FAL_ELIMIT, "a header of %u bytes is too long", n);
	if ((err = source_exact(s, (uint8_t *)text, n)) < 0)
		return err;
	text[n] = '\0';
	if (strlen(text) != n)
		return source_fail(s, FAL_EFORMAT, "a NUL in the header");
	struct cursor c = { .s = s, .p = text };
	return get_header(&c, a);
}
