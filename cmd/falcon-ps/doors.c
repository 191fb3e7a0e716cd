/* Listening at several addresses. */
#include "doors.h"

#include <string.h>

bool
ps_addrs_unix(const struct ps_addrs *a)
{
	for (size_t i = 0; i < a->n; i++)
		if (a->v[i].kind == FAL_ADDR_UNIX)
			return true;
	return false;
}

int
ps_doors_open(struct ps_doors *d, uv_loop_t *loop, const struct ps_addrs *at,
	      const struct fal_listen_opt *opt, const struct fal_listen_ops *ops,
	      struct fal_diag *diag)
{
	struct fal_listen_opt each = *opt;
	const unsigned share = opt->half_open / (unsigned)at->n;
	int err = FAL_OK;
	each.half_open = share > 0 ? share : 1;
	for (size_t i = 0; i < at->n && err == FAL_OK; i++) {
		each.addr = &at->v[i];
		err = fal_listen_start(loop, &each, ops, &d->v[i], diag);
		d->n += err == FAL_OK;
	}
	if (err < 0)
		ps_doors_close(d);
	return err;
}

int
ps_doors_text(const struct ps_doors *d, struct fal_buf *out)
{
	for (size_t i = 0; i < d->n; i++)
		fal_put_fmt(out, "%s%s", i > 0 ? "," : "", fal_listen_text(d->v[i]));
	fal_put_u8(out, '\0');
	return out->err;
}

void
ps_doors_at(const struct ps_doors *d, struct ps_addrs *out)
{
	out->n = d->n;
	for (size_t i = 0; i < d->n; i++)
		(void)fal_addr_parse(fal_listen_text(d->v[i]), &out->v[i], NULL);
}

void
ps_doors_keyring(struct ps_doors *d, const struct fal_keyring *keyring)
{
	for (size_t i = 0; i < d->n; i++)
		fal_listen_keyring(d->v[i], keyring);
}

void
ps_doors_close(struct ps_doors *d)
{
	const struct ps_doors was = *d;
	d->n = 0;
	for (size_t i = 0; i < was.n; i++)
		fal_listen_close(was.v[i]);
}
