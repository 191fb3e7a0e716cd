/* What a program at an end of a channel is told on its command line: its keys, and when
 * to compress.  Key files are read into locked memory and nowhere else.
 */
#ifndef FAL_NET_OPTIONS_H
#define FAL_NET_OPTIONS_H

#include "base/err.h"
#include "net/sendq.h"
#include "sec/keyring.h"

/* Reads the client's key of -k/--key (`option`), or where fal_cli_key looks if that is
 * NULL; it must be one that may do what needs the role `needed`, FAL_ROLE_NONE for any.
 * Free with fal_secret_free.  Errors are those of fal_cli_read_into and
 * fal_client_key_parse, FAL_ENOENT also where there is no key at all, and FAL_EPERM where
 * its role does not do; `diag` names the file and the line, but no secret. */
int fal_client_key_load(const char *option, enum fal_role needed,
			struct fal_client_key **out, struct fal_diag *diag);

/* Reads the keyring `path`.  Free with fal_keyring_free.  Errors are those of
 * fal_cli_read_into and fal_keyring_parse, with a diagnosis as above. */
int fal_keyring_load(const char *path, struct fal_keyring **out, struct fal_diag *diag);

/* "auto", "always" or "never", of --compress; FAL_EINVAL. */
int fal_compress_parse(const char *word, enum fal_compress *out);

#endif
