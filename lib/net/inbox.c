/* Bytes that were read. */
#include "net/inbox.h"

#include "base/err.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct fal_inbox {
	uint8_t *p;
	size_t cap, from, to; /* from … to is there */
};

struct fal_inbox *
fal_inbox_new(size_t cap)
{
	struct fal_inbox *in = fal_calloc(1, sizeof(*in));
	if (in == NULL || fal_inbox_grow(in, cap) < 0) {
		free(in);
		return NULL;
	}
	return in;
}

void
fal_inbox_free(struct fal_inbox *in)
{
	if (in == NULL)
		return;
	free(in->p);
	free(in);
}

int
fal_inbox_grow(struct fal_inbox *in, size_t cap)
{
	assert(cap >= in->to);
	uint8_t *p = fal_realloc(in->p, cap, 1);
	if (p == NULL)
		return FAL_ENOMEM;
	in->p = p;
	in->cap = cap;
	return FAL_OK;
}

uint8_t *
fal_inbox_room(struct fal_inbox *in, size_t *n)
{
	memmove(in->p, in->p + in->from, in->to - in->from);
	in->to -= in->from;
	in->from = 0;
	*n = in->cap - in->to;
	return in->p + in->to;
}

void
fal_inbox_put(struct fal_inbox *in, size_t n)
{
	assert(n <= in->cap - in->to);
	in->to += n;
}

uint8_t *
fal_inbox_bytes(const struct fal_inbox *in, size_t *n)
{
	*n = in->to - in->from;
	return in->p + in->from;
}

void
fal_inbox_used(struct fal_inbox *in, size_t n)
{
	assert(n <= in->to - in->from);
	in->from += n;
}

size_t
fal_inbox_left(const struct fal_inbox *in)
{
	return in->to - in->from;
}

bool
fal_inbox_full(const struct fal_inbox *in)
{
	return in->to - in->from == in->cap;
}
