/* The words of `set`, KEY=VALUE, as a policy in JSON. */
#ifndef FALCON_SYNC_SET_H
#define FALCON_SYNC_SET_H

#include "base/err.h"

#include <jansson.h>

/* Adds one word to the object `policy`.  FAL_EINVAL with `diag`: no such key, a value
 * that is not allowed, a key that has one already; FAL_ENOMEM. */
int sync_set_word(json_t *policy, const char *word, struct fal_diag *diag);

#endif
