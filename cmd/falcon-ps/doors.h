/* Where falcon-ps listens: at one address, or at several. */
#ifndef FALCON_PS_DOORS_H
#define FALCON_PS_DOORS_H

#include "net/listen.h"

#include <uv.h>

/* As many as falcon-work takes. */
enum { PS_DOORS = 8 };

/* Addresses to listen at, or that are listened at; the first is the one to name. */
struct ps_addrs {
	struct fal_addr v[PS_DOORS];
	size_t n;
};

/* Is any of them a unix socket? */
bool ps_addrs_unix(const struct ps_addrs *a);

struct ps_doors {
	struct fal_listen *v[PS_DOORS]; /* the first `n` */
	size_t n;                       /* 0: closed, or not open yet */
};

/* Opens one at each address; `opt` is of each of them, but for its address, and they
 * share its half_open.  All or none; as fal_listen_start. */
int ps_doors_open(struct ps_doors *d, uv_loop_t *loop, const struct ps_addrs *at,
		  const struct fal_listen_opt *opt, const struct fal_listen_ops *ops,
		  struct fal_diag *diag);

/* Where they are, with a NUL: a list of addresses, as falcon-work takes it.  FAL_ENOMEM.
 */
int ps_doors_text(const struct ps_doors *d, struct fal_buf *out);

/* The same, to open them there again. */
void ps_doors_at(const struct ps_doors *d, struct ps_addrs *out);

/* Another keyring: as fal_listen_keyring, and they may be closed meanwhile. */
void ps_doors_keyring(struct ps_doors *d, const struct fal_keyring *keyring);

void ps_doors_close(struct ps_doors *d);

#endif
