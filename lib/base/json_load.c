/* jansson with watched allocations. */
#include "base/json_load.h"

#include "base/err.h"
#include "base/fault.h"

#include <stdbool.h>
#include <stdlib.h>

static _Thread_local struct {
	bool failed;  /* an allocation has failed */
	void *spare;  /* for the first allocation that fails, if large enough */
	size_t bytes; /* the spare's size */
} memory;

static void *
watched_alloc(size_t n)
{
	void *p = FAL_TRY(JSON, NULL, malloc(n));
	if (p == NULL && !memory.failed && n <= memory.bytes) {
		p = memory.spare;
		memory.spare = NULL;
		memory.failed = true;
	}
	memory.failed |= p == NULL;
	return p;
}

/* Runs before main, because jansson must free its memory as it was allocated. */
__attribute__((constructor)) static void
json_load_begin(void)
{
	json_set_alloc_funcs(watched_alloc, free);
}

struct text {
	const char *p;
	size_t n;
};

/* Passes the text byte by byte, and ends the text after a failed allocation. */
static size_t
next_byte(void *to, size_t room, void *from)
{
	struct text *t = from;
	if (memory.failed || t->n == 0 || room == 0)
		return 0;
	*(char *)to = *t->p++;
	t->n--;
	return 1;
}

/* When an allocation for the text of a token fails, jansson reads beyond its buffer or
 * asserts.  So the first failed allocation gets the spare, and then the text ends.  Such
 * a buffer is at most twice as long as the text. */
json_t *
fal_json_load(const void *p, size_t n, size_t flags, json_error_t *why)
{
	struct text t = { p, n };
	memory.failed = false;
	memory.bytes = 2 * n + 64;
	memory.spare = FAL_TRY(JSON, NULL, malloc(memory.bytes));
	memory.failed = memory.spare == NULL;
	json_t *o = memory.failed ? NULL : json_load_callback(next_byte, &t, flags, why);
	if (memory.failed) {
		json_decref(o);
		o = NULL;
		why->text[0] = '\0';
	}
	free(memory.spare);
	memory.spare = NULL;
	memory.bytes = 0;
	return o;
}

int
fal_json_unpack(json_t *o, json_error_t *why, size_t flags, const char *fmt, ...)
{
	va_list values;
	va_start(values, fmt);
	memory.failed = false;
	const int bad = json_vunpack_ex(o, why, flags, fmt, values);
	va_end(values);
	return memory.failed ? FAL_ENOMEM : bad < 0 ? FAL_EFORMAT : FAL_OK;
}
