/* Memory that two programs of this machine share: made and sealed by one, mapped by the
 * other, which gets its descriptor over a unix socket.  Neither can make it shorter. */
#ifndef FAL_NET_AREA_H
#define FAL_NET_AREA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAL_AREA_HEAD 4096 /* bytes before the others, for what both ends must know */

struct fal_area {
	uint8_t *p; /* FAL_AREA_HEAD bytes, then `bytes`; a page begins at both */
	size_t bytes;
	int fd; /* of whoever made it; else -1 */
};

/* Makes one, of zeros, whose memory is there from the start: nobody who writes finds that
 * there is none.  read_only: nobody else may write.  FAL_EIO: not on this system;
 * FAL_ENOMEM. */
int fal_area_make(size_t bytes, bool read_only, struct fal_area *out);
/* Maps what another one has made; the descriptor stays the caller's.  FAL_EINVAL: it is
 * shorter than told, or could become so, or is not sealed as it should be; FAL_ENOMEM. */
int fal_area_map(int fd, size_t bytes, bool read_only, struct fal_area *out);
void fal_area_free(struct fal_area *a);

#endif
