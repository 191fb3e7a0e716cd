/* The faults of --emulate: a crash, and a time in which no message is answered. */
#ifndef WORK_FAULT_H
#define WORK_FAULT_H

#include "emul/emul.h"

#include <uv.h>

struct fault; /* opaque */

/* `e` is kept.  FAL_ENOMEM. */
int fault_new(uv_loop_t *loop, const struct fal_emul *e, struct fault **out);

/* Memory goes when the loop has run once more; may be NULL. */
void fault_free(struct fault *f);

/* A task has begun: what is to happen some time after the first one is now on its way.
 * May be called again.  NULL: nothing. */
void fault_begin(struct fault *f);

#endif
