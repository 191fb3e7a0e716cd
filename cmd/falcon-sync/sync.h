/* What the files of falcon-sync share. */
#ifndef FALCON_SYNC_SYNC_H
#define FALCON_SYNC_SYNC_H

#include "net/client.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROG "falcon-sync"

/* Prints one line on stderr; returns `status`. */
#define say(status, ...) (fal_cli_err(PROG, __VA_ARGS__), (status))

struct sync_conf {
	const struct fal_addr *addr;
	const char *key; /* file; NULL: where fal_cli_key looks */
};

struct sync_change {
	bool dry_run;       /* nothing is changed, only said */
	bool allow_model;   /* also keys that may alter the model */
	bool json;          /* print the answers as they are */
	uint64_t min_dwell; /* clocks that a key stays as it was set last */
};

/* All return an exit code, after one line on stderr if it is not FAL_EXIT_DONE. */

/* set: the `n` texts KEY=VALUE as one change. */
int sync_set(const struct sync_conf *conf, const struct sync_change *o,
	     const char *const *arg, size_t n);
/* apply FILE: its policies, all judged before the first is sent. */
int sync_apply(const struct sync_conf *conf, const struct sync_change *o,
	       const char *path);
/* apply -: a policy a line, each as it comes, until the end of stdin or of the job. */
int sync_apply_stdin(const struct sync_conf *conf, const struct sync_change *o);

int sync_show(const struct sync_conf *conf, bool json);
int sync_watch(const struct sync_conf *conf);
int sync_export(const struct sync_conf *conf, const char *path);
/* A worker, by its name; or a shard, "shard:N", or by where it listens. */
int sync_drain(const struct sync_conf *conf, const char *which);
/* A verb without arguments whose answer says nothing but whether it was done. */
int sync_order(const struct sync_conf *conf, enum fal_verb verb);
/* The answer to which says first what it waits for, and comes within so many seconds;
 * else that is said, and the code is FAL_EXIT_TEMPFAIL. */
int sync_checkpoint(const struct sync_conf *conf, uint64_t seconds);

/* Loads a key that may do what ops->role says, and runs the session; returns an exit
 * code.  What went wrong here, not in a callback, has been said on stderr. */
int sync_run(const struct sync_conf *conf, const struct fal_client_ops *ops);
/* Sends a CONTROL with `n` bytes of JSON, borrowed.  Its answer is due at once, but that
 * to FAL_VERB_APPLY and FAL_VERB_CHECKPOINT, which may wait for a boundary or a disk.  An
 * error ends the session. */
void sync_ask(struct fal_client *client, enum fal_verb verb, const void *args, size_t n);

/* Says why the answer is no, after `place` ("policy.json:3") unless it is NULL; the exit
 * code of its status. */
int sync_refused(const struct fal_msg *m, const char *place);
/* Says that an answer is not what was asked for; FAL_EXIT_NO. */
int sync_bad_answer(void);
/* An answer's JSON; NULL: it is none.  A lack of memory ends the program, as it does of
 * what fal_json_unpack returned. */
json_t *sync_json(const struct fal_tail *t);
int sync_unpacked(int err);

/* Adds one word of `set`, KEY=VALUE, to the policy in JSON.  FAL_EINVAL with `diag`: no
 * such key, a value that is not allowed, a key that has one already. */
int sync_set_word(json_t *policy, const char *word, struct fal_diag *diag);

#endif
