/* The way to the coordinator: the key, one session, its requests. */
#include "cli/cli.h"
#include "net/client.h"
#include "net/conn.h"
#include "sec/secret.h"
#include "sync.h"

int
sync_run(const struct sync_conf *conf, const struct fal_client_ops *ops)
{
	struct fal_client_key *key;
	struct fal_diag diag;
	fal_cli_hide_memory();
	int err = fal_client_key_load(conf->key, ops->role, &key, &diag);
	if (err < 0) {
		fal_cli_err(PROG, "%s", diag.text);
		return fal_cli_exit_file(err);
	}
	int code = fal_client_run(conf->addr, key, ops, &diag);
	if (diag.text[0] != '\0')
		fal_cli_err(PROG, "%s", diag.text);
	fal_secret_free(key);
	return code;
}

void
sync_ask(struct fal_client *client, enum fal_verb verb, const void *args, size_t n)
{
	const struct fal_msg m = { .type = FAL_MSG_CONTROL,
				   .control = { .verb = (uint8_t)verb,
						.args = { args, n } } };
	fal_client_send(client, &m);
	if (verb != FAL_VERB_APPLY && verb != FAL_VERB_CHECKPOINT)
		fal_client_await(client);
}
