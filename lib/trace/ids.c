/* Sorted ids. */
#include "trace/ids.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/sorted.h"

#include <stdlib.h>
#include <string.h>

/* The first place that is not below `id`. */
static size_t
place(const struct fal_ids *ids, uint32_t id)
{
	return fal_sorted_place(ids->v, ids->n, sizeof(*ids->v), id);
}

size_t *
fal_ids_get(const struct fal_ids *ids, uint32_t id)
{
	size_t at = place(ids, id);
	return at < ids->n && ids->v[at].id == id ? &ids->v[at].value : NULL;
}

int
fal_ids_put(struct fal_ids *ids, uint32_t id, size_t value)
{
	if (FAL_GROW(ids->v, ids->cap, ids->n + 1) < 0)
		return FAL_ENOMEM;
	size_t at = place(ids, id);
	memmove(&ids->v[at + 1], &ids->v[at], (ids->n - at) * sizeof(*ids->v));
	ids->v[at] = (struct fal_id){ .id = id, .value = value };
	ids->n++;
	return 0;
}

bool
fal_names_get(json_t *const *names, const char *name, size_t *out)
{
	const json_t *v = json_object_get(*names, name);
	*out = (size_t)json_integer_value(v);
	return v != NULL;
}

int
fal_names_put(json_t **names, const char *name, size_t value)
{
	if (*names == NULL)
		*names = json_object();
	return json_object_set_new(*names, name, json_integer((json_int_t)value)) < 0
		       ? FAL_ENOMEM
		       : FAL_OK;
}

void
fal_ids_free(struct fal_ids *ids)
{
	free(ids->v);
	*ids = (struct fal_ids){ 0 };
}
