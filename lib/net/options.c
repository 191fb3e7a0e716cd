/* Keys and words of the command line. */
#include "net/options.h"

#include "cli/cli.h"
#include "cli/file.h"
#include "sec/secret.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The file, in locked memory, if that can be had; free with fal_secret_free.  Of a
 * regular file no more is taken than its size, as little may be locked. */
static int
read_secret(const char *path, char **out, size_t *n, struct fal_diag *diag)
{
	struct stat st;
	const bool sized = stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
			   st.st_size < (off_t)FAL_KEYRING_MAX;
	const size_t most = sized ? (size_t)st.st_size + 4096 : FAL_KEYRING_MAX;
	char *text = fal_secret_alloc(most);
	if (text == NULL)
		return fal_diag_set(diag, FAL_ENOMEM, "%s: out of memory", path);
	if (!fal_secret_locked(text, most))
		fal_cli_err(program_invocation_short_name,
			    "keys are not in locked memory, and may be written to swap: "
			    "see ulimit -l");
	int err = fal_cli_read_into(path, text, most, n, diag);
	if (err == FAL_OK)
		*out = text;
	else
		fal_secret_free(text);
	return err;
}

int
fal_client_key_load(const char *option, enum fal_role needed, struct fal_client_key **out,
		    struct fal_diag *diag)
{
	struct fal_client_key *key = NULL;
	char *text, *path = fal_cli_key(option);
	size_t n;
	if (path == NULL)
		return fal_diag_set(diag, FAL_ENOENT, "no key: give --key FILE");
	int err = read_secret(path, &text, &n, diag);
	if (err == FAL_OK) {
		err = fal_client_key_parse(text, n, path, &key, diag);
		fal_secret_free(text);
	}
	if (err == FAL_OK && needed != FAL_ROLE_NONE &&
	    !fal_role_may(key->role, needed)) {
		err = fal_diag_set(diag, FAL_EPERM, "%s: a key of role %s may not %s",
				   path, fal_role_name(key->role), fal_role_name(needed));
		fal_secret_free(key);
	}
	if (err == FAL_OK)
		*out = key;
	free(path);
	return err;
}

int
fal_keyring_load(const char *path, struct fal_keyring **out, struct fal_diag *diag)
{
	char *text;
	size_t n;
	int err = read_secret(path, &text, &n, diag);
	if (err < 0)
		return err;
	err = fal_keyring_parse(text, n, path, out, diag);
	fal_secret_free(text);
	return err;
}

int
fal_compress_parse(const char *word, enum fal_compress *out)
{
	static const char *const words[] = { [FAL_COMPRESS_NEVER] = "never",
					     [FAL_COMPRESS_ALWAYS] = "always",
					     [FAL_COMPRESS_AUTO] = "auto" };
	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(word, words[i]) == 0) {
			*out = (enum fal_compress)i;
			return FAL_OK;
		}
	return FAL_EINVAL;
}
