/* A stock of fresh keys, for whoever needs one many times a second: locked memory and the
 * kernel's random bytes are had a batch at a time, as each costs system calls.
 *
 * One thread at a time.
 */
#ifndef FAL_SEC_STOCK_H
#define FAL_SEC_STOCK_H

#include <stdint.h>

struct fal_stock; /* opaque */

/* Memory for keys is taken with the first one. */
struct fal_stock *fal_stock_new(void);
/* All keys were given back; may be NULL. */
void fal_stock_free(struct fal_stock *s);

/* A key of FAL_KEY_BYTES random bytes that nobody had before, in locked memory. */
const uint8_t *fal_stock_take(struct fal_stock *s);
/* Wipes it; may be NULL. */
void fal_stock_give(struct fal_stock *s, const uint8_t *key);

#endif
