/* Shared by the files of falcon-sync. */
#ifndef FALCON_SYNC_SYNC_H
#define FALCON_SYNC_SYNC_H

#include "net/client.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROG "falcon-sync"

/* Prints one line on stderr; returns `status`. */
#define fail(status, ...) (fal_cli_err(PROG, __VA_ARGS__), (status))

struct sync_conf {
	const struct fal_addr *addr;
	const char *key; /* file; NULL: the default of fal_cli_key_path */
};

struct sync_change {
	bool dry_run;       /* change nothing, print the effect */
	bool allow_model;   /* allow keys that may alter the model */
	bool json;          /* print the answers unchanged */
	uint64_t min_dwell; /* clocks that must pass before a key changes again */
};

/* All commands return an exit code, after one line on stderr if it is not FAL_EXIT_DONE.
 */

/* set: sends the `n` texts KEY=VALUE as one change. */
int sync_set(const struct sync_conf *conf, const struct sync_change *o,
	     const char *const *arg, size_t n);
/* apply FILE: sends its policies, and checks all of them before the first is sent. */
int sync_apply(const struct sync_conf *conf, const struct sync_change *o,
	       const char *path);
/* apply -: sends the policy of each line of stdin as it comes, until the end of stdin or
 * of the job. */
int sync_apply_stdin(const struct sync_conf *conf, const struct sync_change *o);

int sync_watch(const struct sync_conf *conf);
int sync_export(const struct sync_conf *conf, const char *path);
/* drain: `which` is the name of a worker, or a shard: "shard:N" or its address. */
int sync_drain(const struct sync_conf *conf, const char *which);
/* Sends a verb that has no arguments.  SHOW: prints the answer, as a table or unchanged.
 * CHECKPOINT: waits so many seconds for the snapshot; FAL_EXIT_TEMPFAIL: none came. */
int sync_order(const struct sync_conf *conf, enum fal_verb verb, bool json,
	       uint64_t seconds);

/* Loads a key of client->role, and runs the client to conf->addr.  Returns an exit code;
 * has printed its own errors, not those of callbacks. */
int sync_run(const struct sync_conf *conf, struct fal_client_conf *client);
/* Ends the client at once with this exit code; returns FAL_OK, for on_msg. */
int sync_end(struct fal_client *client, int code);
/* Sends a CONTROL with `n` bytes of JSON, borrowed.  The answer has the usual deadline,
 * except to FAL_VERB_APPLY and FAL_VERB_CHECKPOINT, which may wait for a boundary or a
 * disk.  An error ends the session. */
void sync_ask(struct fal_client *client, enum fal_verb verb, const void *args, size_t n);

/* Prints a refusal, after `place` ("policy.json:3") unless that is NULL; returns the exit
 * code for its status. */
int sync_refused(const struct fal_msg *m, const char *place);
/* Prints that an answer is malformed; returns FAL_EXIT_NO. */
int sync_bad_answer(void);
/* Parses an answer; NULL: it is no JSON.  Ends the program if memory is short. */
json_t *sync_json(const struct fal_tail *t);
/* Returns the error of fal_json_unpack.  Ends the program if memory is short. */
int sync_unpacked(int err);

/* Adds one argument of `set`, KEY=VALUE, to the policy in JSON.  FAL_EINVAL with `diag`:
 * an unknown key, a bad value, a repeated key. */
int sync_set_word(json_t *policy, const char *word, struct fal_diag *diag);

#endif
