/* A map from worker ids to a number, kept sorted: ids mostly come ascending. */
#ifndef FAL_TRACE_IDS_H
#define FAL_TRACE_IDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fal_id {
	uint32_t id;
	size_t value;
};

/* A map from names to numbers, NULL at first and freed by json_decref: the number of
 * `name`; and another one for it, 0 or FAL_ENOMEM. */
bool fal_names_get(json_t *const *names, const char *name, size_t *out);
int fal_names_put(json_t **names, const char *name, size_t value);

/* {0} is empty and valid. */
struct fal_ids {
	struct fal_id *v;
	size_t n, cap;
};

/* The value of `id`, borrowed until the next put, or NULL. */
size_t *fal_ids_get(const struct fal_ids *ids, uint32_t id);
/* Adds an id that is not there.  Returns 0 or FAL_ENOMEM. */
int fal_ids_put(struct fal_ids *ids, uint32_t id, size_t value);
void fal_ids_free(struct fal_ids *ids);

#endif
