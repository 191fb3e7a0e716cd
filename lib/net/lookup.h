/* The addresses of a name, looked up in a thread of its own: a resolver cannot be
 * interrupted, so one that hangs is left behind, and neither who asked nor the end of the
 * program waits for it.
 */
#ifndef FAL_NET_LOOKUP_H
#define FAL_NET_LOOKUP_H

#include <netdb.h>
#include <stdint.h>
#include <uv.h>

#define FAL_LOOKUPS_MAX 8 /* of a process at once, those left behind included */

struct fal_lookup; /* opaque */

/* 0 and what was found, the receiver's to freeaddrinfo; or libuv's error. */
typedef void fal_lookup_fn(void *arg, int status, struct addrinfo *all);

/* Begins; `found` is called once, from the loop, which ends the lookup.  `host` is
 * copied.  libuv's errors; UV_EAGAIN: too many hang. */
int fal_lookup_begin(uv_loop_t *loop, const char *host, uint16_t port,
		     fal_lookup_fn *found, void *arg, struct fal_lookup **out);

/* Ends it: nothing is called any more.  NULL is let be. */
void fal_lookup_cancel(struct fal_lookup *l);

#endif
