/* The table of what lines of a trace have, by place. */
#include "trace/fields.h"

#include <assert.h>

static const struct row {
	const char *name;
	enum fal_field_kind kind;
} table[] = {
#define ROW(constant, name, kind) { name, FAL_FIELD_##kind },
	FAL_FIELDS(ROW)
#undef ROW
};

static const struct row *
row_of(enum fal_field f)
{
	assert((unsigned)f < FAL_FIELD_COUNT);
	return &table[f];
}

const char *
fal_field_name(enum fal_field f)
{
	return row_of(f)->name;
}

enum fal_field_kind
fal_field_kind(enum fal_field f)
{
	return row_of(f)->kind;
}
