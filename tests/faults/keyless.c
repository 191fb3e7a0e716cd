/* A coordinator that admits workers with a key of zero bytes: linked into a test build of
 * falcon-ps with -Wl,--wrap=fal_msg_put.  The process of shards must name the message. */
#include "wire/msg.h"

#include <string.h>

void __real_fal_msg_put(struct fal_buf *out, const struct fal_msg *m);
void __wrap_fal_msg_put(struct fal_buf *out, const struct fal_msg *m);

void
__wrap_fal_msg_put(struct fal_buf *out, const struct fal_msg *m)
{
	struct fal_msg is = *m;
	if (m->type == FAL_MSG_ADMIT)
		memset(is.admit.psk, 0, sizeof(is.admit.psk));
	__real_fal_msg_put(out, &is);
}
