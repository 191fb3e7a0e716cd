/* Versions for readers on this machine: their values are laid on a shelf, once, and each
 * reader copies them from there.
 *
 * A shelf has FAL_SHELF_SLOTS places, which are used again in turn.  Nobody waits for a
 * reader: it looks afterwards whether the place has been given to another version
 * meanwhile, by the place's generation, and then gets what it missed over its stream.
 */
#ifndef FAL_NET_SHELF_H
#define FAL_NET_SHELF_H

#include "net/record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAL_SHELF_SLOTS 3

struct fal_shelf;      /* opaque: whoever publishes has it */
struct fal_shelf_view; /* opaque: a reader's */

/* Three places of `bytes` each, sealed: readers can neither write nor shorten it.
 * FAL_EIO: not on this system; FAL_ENOMEM. */
int fal_shelf_new(size_t bytes, struct fal_shelf **out);
void fal_shelf_free(struct fal_shelf *s);    /* may be NULL */
int fal_shelf_fd(const struct fal_shelf *s); /* borrowed */
size_t fal_shelf_bytes(const struct fal_shelf *s);

/* The place of a version, from 0: the one that it has, or the one that nobody has taken
 * for longest, of which readers learn that it is another's now. */
uint32_t fal_shelf_take(struct fal_shelf *s, uint64_t version);
/* Has the version its place still? */
bool fal_shelf_has(const struct fal_shelf *s, uint32_t slot, uint64_t version);
/* Lays n bytes at `at` of it (all within; else FAL_ELIMIT), and says where they are. */
int fal_shelf_put(struct fal_shelf *s, uint32_t slot, size_t at, const void *p, size_t n,
		  struct fal_where *out);

/* Maps a shelf whose places have `bytes` each; the descriptor stays the caller's.  Errors
 * as fal_area_map. */
int fal_shelf_see(int fd, size_t bytes, struct fal_shelf_view **out);
void fal_shelf_view_free(struct fal_shelf_view *v); /* may be NULL */
/* Copies what lies there: 1; 0: it is not there any more, and `to` holds anything;
 * FAL_EFORMAT: there is no such place. */
int fal_shelf_read(const struct fal_shelf_view *v, const struct fal_where *w, void *to);

#endif
