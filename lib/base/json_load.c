/* jansson, and whether it had its memory. */
#include "base/json_load.h"

#include "base/err.h"
#include "base/fault.h"

#include <stdbool.h>
#include <stdlib.h>

static _Thread_local struct {
	bool lacked;  /* an allocation failed since this was false */
	void *spare;  /* for the first that does, if it is not larger */
	size_t bytes; /* of the spare */
} is;

static void *
alloc(size_t n)
{
	void *p = FAL_TRY(JSON, NULL, malloc(n));
	if (p == NULL && !is.lacked && n <= is.bytes) {
		p = is.spare;
		is.spare = NULL;
		is.lacked = true;
	}
	is.lacked |= p == NULL;
	return p;
}

/* Before main: what jansson has is freed as it was allocated. */
__attribute__((constructor)) static void
begin(void)
{
	json_set_alloc_funcs(alloc, free);
}

/* What was made, if it is whole. */
static json_t *
whole(json_t *o)
{
	if (!is.lacked)
		return o;
	json_decref(o);
	return NULL;
}

struct text {
	const char *p;
	size_t n;
};

/* A byte of it at a time: none once an allocation failed. */
static size_t
give(void *to, size_t room, void *from)
{
	struct text *t = from;
	if (is.lacked || t->n == 0 || room == 0)
		return 0;
	*(char *)to = *t->p++;
	t->n--;
	return 1;
}

/* The text of a token is what jansson cannot do without: it reads behind its end, or
 * asserts, if a byte of it is lost.  There the spare stands in, and nothing follows; such
 * a buffer is at most twice what it has. */
json_t *
fal_json_load(const void *p, size_t n, size_t flags, json_error_t *why)
{
	struct text t = { p, n };
	is.lacked = false;
	is.bytes = 2 * n + 64;
	is.spare = FAL_TRY(JSON, NULL, malloc(is.bytes));
	is.lacked = is.spare == NULL;
	json_t *o = is.lacked ? NULL : whole(json_load_callback(give, &t, flags, why));
	if (is.lacked)
		why->text[0] = '\0';
	free(is.spare);
	is.spare = NULL;
	is.bytes = 0;
	return o;
}

int
fal_json_unpack(json_t *o, json_error_t *why, size_t flags, const char *fmt, ...)
{
	va_list values;
	va_start(values, fmt);
	is.lacked = false;
	const int bad = json_vunpack_ex(o, why, flags, fmt, values);
	va_end(values);
	return is.lacked ? FAL_ENOMEM : bad < 0 ? FAL_EFORMAT : FAL_OK;
}
