/* The job's three texts as they come in pieces.  Bytes in, bytes out. */
#ifndef FAL_RUN_TEXTS_H
#define FAL_RUN_TEXTS_H

#include "base/buf.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stdint.h>

/* What a coordinator may make a worker keep, in bytes. */
#define FAL_TEXT_JOB_MAX (UINT32_C(1) << 20)
#define FAL_TEXT_MODEL_MAX (UINT32_C(1) << 20)
#define FAL_TEXT_MANIFEST_MAX (UINT32_C(64) << 20)

struct fal_texts {
	struct fal_buf text[FAL_TEXTS];
	uint32_t size[FAL_TEXTS]; /* of each, once whole */
};

/* Begins anew with the sizes of a WELCOME.  FAL_EFORMAT (a size of 0), FAL_ELIMIT. */
int fal_texts_begin(struct fal_texts *t, const struct fal_msg *welcome);

/* Takes a TEXT: 1 when all are whole now, 0 when more is to come; FAL_ESTATE when it is
 * not the next piece, FAL_ENOMEM. */
int fal_texts_add(struct fal_texts *t, const struct fal_msg *text);

bool fal_texts_equal(const struct fal_texts *a, const struct fal_texts *b);
void fal_texts_free(struct fal_texts *t); /* `t` is {0} again */

#endif
