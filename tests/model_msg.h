/* A MODEL message in one piece; the product sends the values from where they are. */
#ifndef FAL_TESTS_MODEL_MSG_H
#define FAL_TESTS_MODEL_MSG_H

#include "wire/msg.h"

static inline void
put_model_msg(struct fal_buf *out, uint32_t incarnation,
	      const struct fal_model_part *part)
{
	struct fal_tail values;
	fal_msg_put_model_head(out, incarnation, part, &values);
	fal_put_bytes(out, values.p, values.n);
}

#endif
