/* The job's three texts as they come in pieces.  Bytes in, bytes out. */
#ifndef WORK_TEXTS_H
#define WORK_TEXTS_H

#include "base/buf.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stdint.h>

/* What a coordinator may make a worker keep, in bytes. */
#define TEXTS_JOB_MAX (UINT32_C(1) << 20)
#define TEXTS_MODEL_MAX (UINT32_C(1) << 20)
#define TEXTS_MANIFEST_MAX (UINT32_C(64) << 20)

struct texts {
	struct fal_buf text[FAL_TEXTS];
	uint32_t size[FAL_TEXTS]; /* of each, once whole */
};

/* Begins anew with the sizes of a WELCOME.  FAL_EFORMAT (a size of 0), FAL_ELIMIT. */
int texts_begin(struct texts *t, const struct fal_msg *welcome);

/* Takes a TEXT: 1 when all are whole now, 0 when more is to come; FAL_ESTATE when it is
 * not the next piece, FAL_ENOMEM. */
int texts_add(struct texts *t, const struct fal_msg *text);

bool texts_equal(const struct texts *a, const struct texts *b);
void texts_free(struct texts *t); /* `t` is {0} again */

#endif
