/* falcon-ps: the options and files of a run, and the server's state.
 *
 * Each file calls only files that stand before it in this list:
 *
 *	broadcast, cache, image_queue, memory, state_dir, trace_file, policy_log
 *	              objects that know nothing of the server
 *	server        log lines, failures, and the check of memory
 *	upstream      the connection of a group server to its coordinator
 *	sessions      sessions, their limits, and the messages that they are sent
 *	shard_pool    shards of other processes
 *	snapshots, best_checkpoint, status_log, result
 *	controllers   the verbs of falcon-sync
 *	dispatch      the messages of sessions, each to the file that handles it
 *	loop          the event loop: begin, timers, signals, end
 *	shard_server  a process of shards for the job of another coordinator
 *	main          options and files; a job that begins, resumes, or is over
 *
 * A file that has news for a later file of the list records the news in struct ps_server,
 * or calls a function of struct ps_events, which loop.c fills in.
 */
#ifndef FALCON_PS_SERVER_H
#define FALCON_PS_SERVER_H

#include "base/ratelimit.h"
#include "broadcast.h"
#include "cli/cli.h"
#include "cli/need.h"
#include "cli/progress.h"
#include "crypto/keyring.h"
#include "job/chunk.h"
#include "net/addr.h"
#include "net/client.h"
#include "net/listen.h"
#include "net/refusals.h"
#include "run/snapshot.h"
#include "run/threads.h"
#include "sched/window_stats.h"
#include "server/coord.h"
#include "server/shard_codec.h"
#include "server/shard_set.h"
#include "state_dir.h"
#include "trace_file.h"
#include "wire/zip.h"

#include <uv.h>

struct ps_server;
struct ps_session;
struct ps_member; /* of shard_pool.c: a process of shards */

/* ---- memory.c: estimates of the memory that a process needs --- */

/* The inputs of ps_estimate_memory. */
struct ps_memory_inputs {
	uint64_t program; /* bytes of the program, fal_memory_prepare */
	const struct fal_files *job;
	const struct fal_rule *rule; /* in force, or proposed */
	uint64_t workers;
	uint32_t shards; /* of this process */
	bool is_mixed;   /* as for ps_max_encodings */
};

/* Returns the bytes that the coordinator needs while `far` other processes have a shard
 * each: the larger of its need at the job's begin, and its need while images for a
 * snapshot and parameters for an evaluation are on their way.  With `far` > 0 the result
 * never exceeds the result for `far` 0, when all shards are in this process. */
uint64_t ps_estimate_memory(const struct ps_memory_inputs *in, uint32_t far);

/* The inputs of ps_estimate_shard_memory. */
struct ps_shard_memory_inputs {
	uint64_t program;
	const struct fal_shard_set_conf
		*shard_set; /* configuration for the process's part of the model */
	const struct fal_rule *rule;
	uint64_t workers;
	/* number of versions to keep; if the rule needs more versions, its number
	 * counts */
	uint32_t versions;
	bool is_mixed; /* as for ps_max_encodings */
};

/* Returns the bytes that a shard process needs. */
uint64_t ps_estimate_shard_memory(const struct ps_shard_memory_inputs *in);

/* ---- cache.c: chunks of the data, cut into CHUNK messages and compressed.  The cache
 * keeps the chunks that were requested last, so that many readers of a chunk cost one
 * reading and one compression --- */

enum { PS_CACHE_MAX = 64 << 20 }; /* bytes; the newest chunk is kept in any case */

/* Zero except for `limit` is empty and valid. */
struct ps_cache {
	size_t limit; /* the most that `bytes` may be */
	size_t bytes; /* bytes kept now */
	struct ps_cached_chunk *v;
	size_t n, cap;
	uint64_t uses, made; /* uses: requests so far; made: chunks compressed so far */
	struct fal_zip *zip;
};

/* Sets *out to the messages of chunk `i` (< part->chunks) of `set`; `is_test`: `set` is
 * the test set.  *out is borrowed until the next call.  FAL_ENOMEM, or as
 * fal_chunk_get. */
int ps_cache_get(struct ps_cache *c, const struct fal_part *part,
		 const struct fal_set *set, bool is_test, uint32_t i,
		 const struct fal_buf **out);
void ps_cache_free(struct ps_cache *c);

/* ---- image_queue.c: a queue of shard images to send to another process; and the image
 * that is being received from that process --- */

struct queued_image {
	struct fal_shard_codec_of of;
	struct fal_image image;
	bool has_begun; /* its IMAGE message was sent */
	struct fal_shard_codec_at at;
};

/* {0} is empty. */
struct image_queue {
	struct queued_image *v;
	size_t n, cap;
};

/* Appends an image, whose memory the queue takes. */
void image_queue_add(struct image_queue *q, const struct queued_image *image);
/* Appends a piece for shard `to` of the job; the queue takes the piece's image. */
void image_queue_add_piece(struct image_queue *q, uint32_t to,
			   struct fal_shard_set_piece *piece);

/* Sends as much as the channel has room for; closes the channel if sending fails.
 * `on_sent` (may be NULL) is called for each image that was sent, and may take the
 * image. */
void image_queue_send(struct image_queue *q, uint32_t incarnation, struct fal_chan *chan,
		      void (*on_sent)(void *arg, struct queued_image *image), void *arg);

/* Drops the pieces of an aborted move.  A partly sent piece stays as a copy, because the
 * arrays that the piece borrows may change from now on.  FAL_ENOMEM: the copy failed. */
int image_queue_abort(struct image_queue *q);

void image_queue_clear(struct image_queue *q);
void image_queue_free(struct image_queue *q);

/* An image that is being received.  {0}: there is none. */
struct image_intake {
	bool is_active;
	struct fal_shard_codec_of of;
	struct fal_image image;
	struct fal_shard_codec_at at;
};

/* Begins to receive an image of at most `blocks` blocks, with the image's IMAGE message;
 * no other image may be under way.  Returns 1 if the image has no arrays and so is
 * complete, as image_intake_add; 0 if BYTES follow; else an error of
 * fal_shard_codec_image_get. */
int image_intake_begin(struct image_intake *in, const struct fal_msg *m, uint32_t blocks);
/* Adds a BYTES message.  Returns 1 if the image is complete: the caller then frees
 * in->image; 0 if more BYTES follow.  FAL_ESTATE: no image is on its way; FAL_EFORMAT. */
int image_intake_add(struct image_intake *in, const struct fal_msg *m);

/* ---- policy_log.c: the policy journal, and the clock from which each policy holds ---
 */

/* Since when a policy holds, and the key that set it. */
struct ps_policy_origin {
	uint64_t clock;        /* the first clock under the policy */
	char by[FAL_MSG_NAME]; /* "job", or the name of the key that set the policy */
};

/* {.journal.fd = -1} is valid. */
struct ps_policy_log {
	struct ps_journal journal;
	uint64_t lines; /* of the journal */
	/* the policy of the journal's last line; the job's policy if there are no
	 * lines */
	struct fal_policy last;
	struct ps_policy_origin origin; /* of `last` */
	/* for each key, the clock of its last change of policy */
	struct ps_key_change {
		char key[80];
		uint64_t clock;
	} *changes;
	size_t n_changes, changes_cap;
	/* For a job that resumes: `resumed_lines` lines of the journal were in force at
	 * the snapshot, the last of them since resumed_origin.  The policies of later
	 * lines come into force again at their clocks. */
	uint64_t resumed_lines;
	struct ps_policy_origin resumed_origin;
	struct ps_replayed_policy {
		struct fal_policy policy;
		struct ps_policy_origin origin;
		/* hash chain over the journal's lines before this one */
		struct fal_chain before;
	} *replayed;
	size_t n_replayed, replayed_cap;
	/* The policy that the coordinator begins with; borrowed.  loop.c sets this member
	 * and the next. */
	const struct fal_policy *initial;
	const char *initial_by;
};

/* Reads the journal `path` (taken).  If the journal has no lines, the job's policy `job`
 * holds.  A new job begins with log->last.  A job that resumes from a snapshot (`was`,
 * else NULL) begins with the snapshot's policy, and log->replayed are the later policies.
 * FAL_EINVAL: the snapshot was taken with another journal; else errors of
 * ps_journal_open. */
int ps_policy_log_open(struct ps_policy_log *log, char *path,
		       const struct fal_policy *job, const struct fal_snap_manifest *was,
		       struct fal_diag *diag);
/* Notes in the journal that the job resumes at `clock` with changed files of these
 * `kinds`.  The note is a line that repeats the last policy; if an earlier start has
 * written that line, nothing is written.  FAL_EIO, FAL_ENOMEM. */
int ps_policy_log_accept_files(struct ps_policy_log *log, const char *kinds,
			       uint64_t clock, uint64_t version);
/* Appends a change of policy, and returns once the line is on disk.  FAL_EIO,
 * FAL_ENOMEM. */
int ps_policy_log_add(struct ps_policy_log *log, const struct fal_journal_line *l);
/* Writes into a manifest how many lines of the journal are in force, while the last
 * `waiting` policies of log->replayed do not hold again yet. */
void ps_policy_log_describe(const struct ps_policy_log *log, size_t waiting,
			    struct fal_snap_manifest *out);
/* Returns the origin of the policy in force, for the same `waiting`. */
const struct ps_policy_origin *ps_policy_log_origin(const struct ps_policy_log *log,
						    size_t waiting);
void ps_policy_log_close(struct ps_policy_log *log);

/* ---- best_checkpoint.c: the model of the best evaluation so far, a file of the state
 * folder (falcon-ps(1), FILES) --- */

/* The evaluation of the best model, as the file records it. */
struct ps_best_model {
	bool exists;
	uint64_t clock;        /* clocks that had ended */
	double accuracy, loss; /* loss: NAN if unknown */
	char sha256[65];       /* of the file */
};

struct ps_best_checkpoint {
	uv_work_t work;
	/* writing: contents of the file being written; waiting: contents of the next
	 * file */
	struct fal_buf writing, waiting;
	/* clock of the last evaluation that ps_best_checkpoint_update has examined */
	uint64_t judged_clock;
	bool is_writing; /* after_event follows the end of writing */
	int err;         /* error of the last write; 0: none */
	struct fal_diag diag;
	struct fal_ratelimit failures; /* of log lines about failed writes */
};

/* Reads the evaluation that the file `path` records; the file may be missing.
 * FAL_EFORMAT, FAL_EIO, FAL_ENOMEM, with a diagnosis. */
int ps_best_model_read(const char *path, struct ps_best_model *out,
		       struct fal_diag *diag);

/* Keeps the model of the newest evaluation, if that is the best one so far. */
void ps_best_checkpoint_update(struct ps_server *s, const struct fal_coord_figures *now);
void ps_best_checkpoint_free(struct ps_best_checkpoint *b);

/* ---- upstream.c: with --upstream, this server is one worker of another coordinator
 * (design.md, D50); lib/server translates between the two levels --- */

struct ps_upstream; /* opaque */

/* Dials the coordinator.  READY is sent when enough members are here. */
struct ps_upstream *ps_upstream_new(struct ps_server *s);
/* Frees `u` after the loop's end; may be NULL. */
void ps_upstream_free(struct ps_upstream *u);

/* Exchanges tasks and results between the two levels, after an event. */
void ps_upstream_work(struct ps_upstream *u);
/* ps_upstream_close ends the connection once all sent messages have left;
 * ps_upstream_kill ends the connection at once. */
void ps_upstream_close(struct ps_upstream *u);
void ps_upstream_kill(struct ps_upstream *u);

/* Adds to an order the data that the coordinator does not have: parameters, or room for a
 * sum.  FAL_ENOMEM. */
int ps_upstream_fill_order(struct ps_upstream *u, struct fal_shard_order *o);
/* Callbacks of fal_coord_ops; `arg` is the server. */
void ps_upstream_on_claimed(void *arg, const struct fal_coord_counted_claim *is);
void ps_upstream_on_given(void *arg, uint64_t round);
void ps_upstream_on_evaluated(void *arg, const struct fal_msg *m);

/* ---- a run: its options, files and descriptors --- */

struct ps_options {
	const char *listen, *state, *trace, *keyring, *compress, *from, *join, *key,
		*upstream, *scheme;
	uint64_t ready_fd, min_workers, max_memory, shards, min_shards, rate_limit,
		threads;
	struct fal_opt_list set, accept;
	bool check, exit_when_done, json, restart, standby, seal_all;
};

/* Addresses to listen at, or addresses that were bound. */
struct ps_addrs {
	struct fal_addr v[FAL_ADDRS_MAX];
	size_t n;
};

/* The state that outlives an incarnation.  Between two incarnations the process still
 * handles signals, and the listener keeps peers waiting.  {0} is valid. */
struct ps_host {
	uv_loop_t loop;
	uv_signal_t heard[3];
	struct fal_listen *listen; /* NULL: not yet, or closed */
	bool was_signalled;        /* a signal to stop has come */
};

/* Closes the libuv handle, unless a close is under way. */
static inline void
ps_close_handle(void *handle)
{
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

/* The outcome of an incarnation. */
struct ps_outcome {
	struct fal_coord_status status;
	char sha256[65]; /* of the model's file; "": none was written */
	char hash[65];   /* of its version (trace/chain.h) */
	/* number of clocks that were over with the model's parameters */
	uint64_t clock;
	const float *average;    /* of the weights, for its file; NULL: none */
	char average_sha256[65]; /* SHA-256 of the average's file */
	double seconds;          /* of training, over all starts */
	bool stopped;            /* the server ended before the job was done */
	bool was_signalled;      /* stopped by a signal */
	/* 0: no process with shards was lost.  Else another incarnation follows, and
	 * this is the number of processes that had shards. */
	uint32_t lost_processes;
	bool ended_upstream; /* the coordinator of --upstream ended this server */
	int code;            /* the exit code if ended_upstream */
	struct ps_addrs bound;
	/* there is a snapshot of the clock at which the server stopped */
	bool has_snapshot;
	struct fal_diag why; /* our own error, with status.failed; "": none */
};

/* A run of falcon-ps. */
struct ps_run {
	struct ps_options opt;
	struct ps_host host;
	uint64_t program;            /* bytes of the program */
	struct fal_threads *threads; /* NULL: the loop's thread does all work */
	struct fal_files job;
	struct ps_memory_inputs memory;
	struct ps_state state;
	struct ps_trace_file trace;
	struct ps_addrs listen;
	struct fal_keyring *keys;    /* SIGHUP replaces it */
	struct fal_addr coordinator; /* with --join or --upstream */
	struct fal_client_key *key;  /* to the coordinator */
	/* the retries of the connection, over all incarnations */
	struct fal_retry retry;
	const char *path;    /* of the job's file */
	bool members_differ; /* the group's members ever differed in numerics */
	uint8_t instance[FAL_INSTANCE]; /* of this process, for the coordinator */
	enum fal_compress compress;
	/* path for the best model; NULL: the best model is not kept */
	char *best_path;
	/* the best model that was written, or is about to be */
	struct ps_best_model best;
	struct ps_result_file model, average, result;
	struct fal_snapshot_found found;     /* the snapshot to resume from, if any */
	struct fal_coord_trace trace_before; /* of earlier starts */
	char accepted[16];                   /* kinds of files changed since the
					      * snapshot */
	double seconds_before;               /* of training, before this start */
	/* Accounts of the keys whose processes ended incarnations, over all
	 * incarnations. */
	struct ps_account *restart_accounts;
	uint32_t lost_processes; /* as in the outcome of the incarnation before */
	/* descriptor of the snapshots' folder; -1: no snapshots are taken */
	int snapshots;
	struct ps_outcome out; /* of this incarnation */
};

/* Do the options allow unsealed records for workers on this machine? */
static inline bool
ps_allows_unsealed(const struct ps_options *o)
{
	return !o->seal_all && o->rate_limit == 0;
}

/* ---- result.c --- */

/* Takes descriptors and disk space for the files of the result, so that neither a full
 * disk nor a lack of descriptors loses the result.  FAL_EEXIST, FAL_EIO with a
 * diagnosis. */
int ps_result_reserve(struct ps_run *r, struct fal_diag *diag);
/* Writes the parameters (borrowed) and the average, and sets the hashes in r->out. Called
 * once, when the job is done, or has failed and a version is there.  An error, with its
 * diagnosis, fails the job. */
int ps_result_write_models(struct ps_run *r, const float *params, struct fal_diag *diag);
/* Writes result.json, which makes the job done, and prints the result.  Called after
 * ps_result_write_models, when the trace has its last line. */
int ps_result_write(struct ps_run *r, struct fal_diag *diag);
/* Prints the result `json`.  If `json` is r->state.result, the result of an earlier run,
 * the files must have the hashes that `json` names.  Returns an exit code. */
int ps_result_print(const struct ps_run *r, const struct fal_buf *json);

/* ---- sessions.c: accounts --- */

/* Each key has an account, which limits the cost of the key's sessions, so that sessions
 * cannot take the job's time.  If one key is for all workers, each source has an account
 * of its own.  Time is an argument. */
enum {
	/* the most keys or sources with an account of their own */
	PS_ACCOUNTS = 1024,
	PS_ARRIVALS_MAX = 256,     /* sessions at once; */
	PS_ARRIVAL_S = 10,         /* … then one in so many seconds */
	PS_REREAD_PER_S = 1 << 20, /* bytes a second of data sent a second time, */
	PS_REREAD_MAX = 2 << 20    /* … and at once: at least a chunk */
};

/* Token buckets.  {0}: unused. */
struct ps_account {
	char key[FAL_KEY_FINGERPRINT + 1]; /* its fingerprint; "": unused */
	char source[64];                   /* "": any */
	double updated_at;
	double arrivals; /* used up at updated_at, of PS_ARRIVALS_MAX */
	double reread;   /* bytes used up at updated_at, of PS_REREAD_MAX */
};

/* Returns the account, aged to `now`.  If no account of this key and source exists, they
 * get the least used account, with its use so far.  So all keys together are limited,
 * however many keys there are. */
struct ps_account *ps_account_find(struct ps_account v[static PS_ACCOUNTS],
				   const char *key, const char *source, double now);

/* The cost of an observer's session, where a worker's session costs 1. */
#define PS_OBSERVER_COST 0.1

/* The cost of a lost shard process that has ended an incarnation: the key may cause 16
 * such ends at once, then one in 160 s. */
#define PS_RESTART_COST 16

/* May the account still be charged `cost`? */
bool ps_account_affords(const struct ps_account *a, double cost);
/* Charges the cost of a session.  Returns false, and charges nothing, if too little is
 * left: the session has to come back later. */
bool ps_account_charge(struct ps_account *a, double cost);
/* Takes back the charge for a worker's session that stayed and worked. */
void ps_account_refund(struct ps_account *a);
/* Charges n ≤ FAL_CHUNK_BYTES bytes of data that are sent a second time.  Returns false,
 * and charges nothing, if too little is left for now. */
bool ps_account_charge_reread(struct ps_account *a, size_t n);

/* ---- sessions.c: sessions --- */

enum {
	PS_PIECE = 60 << 10,   /* bytes of a text, chunk or trace in one message */
	PS_SESSIONS_MAX = 256, /* of a key; of a source, where one key is for all */
	PS_REQUESTS_MAX = 16   /* for chunks, that wait in a session */
};

struct ps_session {
	struct ps_server *server;
	struct fal_chan *chan;
	uint32_t id;             /* grows */
	struct ps_reader reader; /* of versions */
	/* why the coordinator has ended the session, until this is logged; "": not
	 * ended */
	char end_reason[256];
	/* the session has sent FOLLOW, CONTROL or JOIN, so it is not a worker's */
	bool is_client;

	/* A worker's session. */
	char worker[64];     /* name of its ready worker; "": none */
	double ready_at;     /* when the worker first was ready; 0: never */
	bool has_worked;     /* has brought results */
	bool texts_due;      /* sent HELLO, and waits for the job's texts */
	struct ps_lateness { /* log lines about missed deadlines */
		bool was_logged;
		struct fal_ratelimit limit;
	} lateness;
	struct ps_chunk_request {
		bool is_test;
		uint32_t chunk;
	} request[PS_REQUESTS_MAX]; /* oldest first */
	size_t n_requests;
	uint64_t chunk_bytes; /* of chunks that were sent */
	/* a HELLO that came before the coordinator was made */
	struct fal_buf held_hello;
	double held_since;

	struct ps_member *member; /* the shard process of this session; NULL: none */
	struct ps_admission {     /* of a worker to the shard processes */
		bool is_open;     /* the processes get to know the worker */
		bool has_map;     /* the worker knows the first processes */
		uint64_t pending; /* bits of processes that do not know the worker yet */
		uint8_t *keys;    /* to those processes; NULL: none */
	} admission;
	struct ps_follow { /* an observer */
		bool was_requested;
		bool is_live;     /* the observer also wants future lines */
		bool history_due; /* the observer still waits for the lines so far */
		bool is_active;   /* the observer gets each new line */
	} follow;
	struct ps_export {   /* of a model, to a controller */
		bool is_due; /* the version is not copied yet */
		uint64_t version;
		struct fal_buf file;
		size_t sent; /* bytes of `file` */
	} export;
};

struct ps_sessions {
	struct ps_session **v; /* by id */
	size_t n, cap;
	uint32_t last_id;
	uint32_t max;         /* allowed by descriptors; observers get half */
	uint32_t worker_keys; /* keys for workers in the keyring */
	bool has_waiting;     /* a session waits for queues of its key's sessions */
	bool has_ended;       /* some session has an end_reason */
	struct ps_account account[PS_ACCOUNTS];
};

struct ps_session *ps_find_session(const struct ps_sessions *s, uint32_t id);
struct ps_account *ps_session_account(struct ps_session *session);
/* Frees a session whose channel is gone. */
void ps_remove_session(struct ps_session *session);
/* Counts the keyring's keys for workers, after each reading of the keyring. */
void ps_count_worker_keys(struct ps_server *s);

/* Sends all of a text. */
void ps_send_text(struct ps_session *session, enum fal_text which,
		  const struct fal_buf *text);
/* ps_send_pending sends texts, history and chunks that the session requested, as far as
 * the session has room.  ps_send_all_pending does so for all sessions. */
void ps_send_pending(struct ps_session *session);
void ps_send_all_pending(struct ps_server *s);
/* Sends the wanted versions that are made by now. */
void ps_publish_versions(struct ps_server *s);
/* Sends the workers DONE, LATER or REFUSE, with the reason. */
void ps_send_to_workers(struct ps_server *s, enum fal_msg_type type, const char *why);
/* Callbacks of fal_coord_ops; `arg` is the server. */
void ps_send_to_peer(void *arg, uint32_t peer, const struct fal_buf *msg);
void ps_close_peer(void *arg, uint32_t peer, const char *why);
/* Keeps a line of the trace, and sends the line to all followers. */
void ps_on_trace_line(void *arg, const char *line, size_t n);

/* Answer a controller's request.  ps_reply_wait says that the request waits for `what`.
 * Then ps_reply_result says once why the request failed, or (`why` NULL) the result. */
void ps_reply(struct ps_session *session, int status, bool more, const void *p, size_t n);
void ps_reply_text(struct ps_session *session, int status, const char *text);
void ps_reply_wait(struct ps_session *session, const char *what);
void ps_reply_result(struct ps_session *session, const char *why, const char *result);

enum ps_end_reason {
	/* the session did something forbidden; if its program is another build, the
	 * message says so */
	PS_END_REFUSED,
	PS_END_LIMIT, /* the session's key has too many sessions */
	PS_END_KEY,   /* the session's key is no longer valid */
	PS_END_LATER  /* the session may come back after a while */
};

/* Ends a session: sends REFUSE or LATER with `why`, logs `why`, and closes the channel
 * after the message.  The coordinator forgets the session at once, or, with
 * PS_END_LATER, when the channel is gone. */
void ps_end_session(struct ps_session *session, enum ps_end_reason reason,
		    const char *why);
/* Returns true if there is no room for a new session, and then ends that session: with
 * PS_END_LIMIT if the key has too many sessions, with PS_END_LATER if no descriptor is
 * left.  Observers leave half of the descriptors to workers. */
bool ps_end_if_full(struct ps_session *session);
/* Ends a session that has received all its data; a follower gets TRACE_END. */
void ps_finish_session(struct ps_session *session);
/* Tells the coordinator that the session is gone. */
void ps_tell_session_gone(struct ps_session *session, const char *why);
/* Logs why the coordinator has ended sessions.  Not called within its callbacks. */
void ps_log_session_ends(struct ps_server *s);

/* The log lines about refused clients, of each key at pauses that double. */
enum { PS_REFUSED_KEYS = 64 }; /* keys that are told apart */

struct ps_refusals {
	struct fal_refusals handshakes; /* clients without a session */
	struct ps_refused_key {
		char name[FAL_NAME_MAX + 1];
		char why[256];
		uint64_t n; /* refusals since the last line */
		struct fal_ratelimit limit;
	} key[PS_REFUSED_KEYS];
};

/* Logs that a handshake failed (fal_listen_ops.on_refused); `arg` is the server. */
void ps_log_failed_handshake(void *arg, const char *source, const char *why);
/* Logs the refusals that are due by now; `is_over`: all of them. */
void ps_log_refusals(struct ps_server *s, bool is_over);

/* ---- shard_pool.c: the coordinator's view of shards in other processes
 * (falcon-protocol(7), SHARDS) --- */

struct ps_shard_pool {
	struct ps_member *own; /* this process, whose shards have the first numbers */
	struct ps_member **v;  /* the other processes, in the order of their JOINs */
	size_t n, cap;
	uint32_t wanted;  /* number of processes that the placement waits for; */
	uv_timer_t grace; /* when it ends, --min-shards are enough */
	uv_timer_t ping_timer;
	double pinged_at;
	bool has_map;            /* each block has its shard */
	struct fal_map map;      /* in force */
	struct fal_map next_map; /* of the move under way, else no shards */
	bool memory_was_logged;  /* the log has a line that memory lacks for a move */
	uint32_t rule_shards;    /* places of the rule; some may have no block */
	struct ps_pool_drain_state {
		bool is_active; /* a drain is under way */
		/* a process that was to get blocks has refused them */
		bool was_refused;
		uint32_t requester; /* session that waits for the drain; 0: none */
		char by[FAL_MSG_NAME];
	} drain;
};

/* The coordinator's shards, in any process: a member of fal_coord_ops; `arg` is the
 * server. */
extern const struct fal_coord_shards ps_pool_ops;

/* ps_pool_init makes the timers, before all other calls; ps_pool_close closes the
 * timers. */
void ps_pool_init(struct ps_server *s);
void ps_pool_close(struct ps_server *s);
void ps_pool_free(struct ps_shard_pool *p);

/* Places the blocks on the shards of this process and of all that have joined.  An error,
 * with s->diag, ends the server. */
int ps_pool_place(struct ps_server *s);
/* ps_pool_count_missing returns the number of processes that the placement still waits
 * for.  ps_pool_count_unplaced returns the number of processes that have not received all
 * of their blocks of the job's begin yet. */
uint32_t ps_pool_count_missing(const struct ps_server *s);
uint32_t ps_pool_count_unplaced(const struct ps_server *s);

/* Handles a message of a shard process.  An error, with `why`, ends the session. */
int ps_pool_handle_msg(struct ps_server *s, struct ps_session *session,
		       const struct fal_msg *m, struct fal_diag *why);
/* Sends the queued images to the session's process, as far as the channel has room. */
void ps_pool_send_images(struct ps_session *session);
/* Have processes of the session's key caused too many restarts of the job? */
bool ps_pool_exceeds_restarts(const struct ps_session *session);
/* Forgets a session that is gone, a worker's or a shard process's.  If blocks are lost
 * with the session, sets s->end.lost_processes, which causes a restart. */
void ps_pool_remove_session(struct ps_session *session, const char *why);

/* After an event: gives shard numbers to processes that joined a running job.  Then
 * begins a move, if a move can begin: to give new processes blocks, to drain processes,
 * or to balance. */
void ps_pool_plan_moves(struct ps_server *s);
/* Aborts the move under way: no version can be marked for a snapshot during a move. */
void ps_pool_abort_move(struct ps_server *s);
/* Are blocks on their way?  Lists in `to` the shards that get the blocks. */
bool ps_pool_describe_move(const struct ps_server *s, struct fal_diag *to);
/* A callback of fal_coord_ops; `arg` is the server. */
void ps_pool_on_moved(void *arg, const struct fal_map *map, int err);
/* Drains the process that has a shard ("shard:2") or listens at an address: other
 * processes get the blocks, then the drained process ends; this process runs on.  The
 * session gets an answer when the drain is done.  With `why`: FAL_ENOENT, there is no
 * such process; FAL_ESTATE, there is no other process. */
int ps_pool_drain(struct ps_server *s, const struct ps_session *session,
		  const char *which, struct fal_diag *why);
/* Answers the request for a drain that will not end, because the job is over or the
 * server ends. */
void ps_pool_cancel_drain(struct ps_server *s);

/* Announces a worker to all processes.  When all processes know the worker, the worker
 * gets the job's texts, and the addresses of the processes. */
void ps_pool_admit_worker(struct ps_server *s, struct ps_session *session);
/* Sends waiting messages to processes, before messages to other sessions. */
void ps_pool_flush(struct ps_server *s);
/* Asks the processes to send a worker their parts of a version, as fal_coord_ops.model.
 */
void ps_pool_publish(struct ps_server *s, uint32_t peer,
		     const struct fal_coord_publication *m);

/* Returns all parameters of a version.  NULL: *is_coming says whether they are on their
 * way; after_event follows their arrival. */
const float *ps_pool_get_params(struct ps_server *s, uint64_t version, bool *is_coming);
/* Asks the processes for their images of a marked version; ps_events.on_image gets
 * them. */
void ps_pool_fetch_marked(struct ps_server *s, uint64_t version);

/* Ends all processes' sessions with a message of this type and the reason. */
void ps_pool_end(struct ps_server *s, enum fal_msg_type type, const char *why);

/* ---- snapshots.c: when snapshots are taken, and their content --- */

struct ps_snapshots {
	uv_work_t work;
	struct fal_snapshot current; /* under way */
	struct ps_image_slot {       /* the shard of each image, in order of blocks */
		uint32_t shard, count;
		size_t values;
	} slot[FAL_SHARDS_MAX];
	bool is_busy;                  /* a snapshot is under way */
	uint32_t missing;              /* the snapshot's images that are on their way */
	bool is_repeated;              /* another snapshot follows at once */
	bool is_due;                   /* wanted as soon as a version can be marked */
	uint32_t requester;            /* session that waits for the next one; 0: none */
	bool has_taken;                /* a snapshot was taken since this start */
	bool last_is_good;             /* the last snapshot that was begun is on disk */
	uint64_t clock;                /* clock of the snapshot that began last */
	double at;                     /* time when that snapshot began */
	uint64_t good_clock;           /* clock of the last snapshot on disk */
	struct fal_ratelimit failures; /* of log lines about failed ones */
};

/* A callback of fal_coord_ops: a version is marked; `arg` is the server. */
void ps_snapshots_on_marked(void *arg, const struct fal_coord_checkpoint *past);
/* Adds the image of a shard elsewhere, and takes the image.  An image without arrays says
 * that the shard has no image. */
void ps_snapshots_add_image(struct ps_server *s, uint32_t shard, struct fal_image *image);
/* After an event: takes the snapshot that is due. */
void ps_snapshots_schedule(struct ps_server *s, uint64_t clock);
/* Takes a snapshot at once, for a controller's session, which gets an answer when the
 * snapshot is there. */
void ps_snapshots_request(struct ps_server *s, struct ps_session *session);
/* Takes the snapshot of a job that is done, from which a job of more epochs resumes.
 * Returns false while another one is being written; after_event follows. */
bool ps_snapshots_finish(struct ps_server *s, uint64_t clock);
/* Takes the last snapshot, before the server ends.  Returns false if no snapshot is
 * possible or the snapshot is taken already; else ps_snapshots_is_pending returns false
 * once the snapshot is taken. */
bool ps_snapshots_take_last(struct ps_server *s);
bool ps_snapshots_is_pending(const struct ps_server *s);
/* Is there a snapshot: one of this start, or the snapshot that the job resumed from? */
bool ps_snapshots_has_any(const struct ps_server *s);

/* ---- status_log.c: log lines about workers, and about what the job waits for --- */

struct ps_status_log {
	double tokens, tokens_at;      /* lines that may be logged, at time tokens_at */
	uint64_t joined, left;         /* not logged */
	double worked_at;              /* when work came last, or the server began */
	double active_at;              /* the same, or when a worker came last */
	double longest_pause;          /* between two results */
	double checked_at;             /* when this process last checked for work */
	struct fal_ratelimit waiting;  /* {0}: not logged since work last came */
	struct ps_known_worker *known; /* the last workers that were ready */
	size_t n_known, known_cap;
	uint32_t sized_workers; /* workers in the last line about task sizes */
	struct fal_ratelimit sizes;
	struct fal_ratelimit unlike_results;
	struct fal_ratelimit unstepped_blocks;
};

/* Callbacks of fal_coord_ops; `arg` is the server. */
void ps_status_on_joined(void *arg, uint32_t peer, const char *name, const char *key);
void ps_status_on_left(void *arg, uint32_t peer, const char *name, const char *why);
void ps_status_on_unlike_kernels(void *arg, const char *const name[2],
				 const char *const kernels[2]);
void ps_status_on_unlike_results(void *arg, const struct fal_coord_mismatch *is);
void ps_status_on_unstepped(void *arg, const struct fal_coord_skipped_blocks *is);
void ps_status_on_late(void *arg, uint32_t peer, const char *name,
		       const struct fal_coord_suspect *late);
/* Was a worker of this name here, or may a worker of this name come?  Such a worker may
 * come if a key for workers has this name.  But if a worker of another name has come
 * under that key, returns false and sets *instead to that other name; else *instead is
 * NULL. */
bool ps_knows_worker(const struct ps_server *s, const char *name, const char **instead);
/* Notes that the session brought work. */
void ps_status_note_work(struct ps_server *s, struct ps_session *session);
/* If workers have joined, logs how much time is lost because tasks are whole, and
 * because tasks are small. */
void ps_log_task_sizes(struct ps_server *s, uint32_t workers);
/* Logs, after growing pauses, the event that the job waits for, since when, and the
 * command to type. */
void ps_log_waiting(struct ps_server *s);

/* ---- controllers.c (falcon-protocol(7), CONTROL) --- */

struct ps_controllers {
	uint32_t requester;    /* session that waits for its change of policy; 0: none */
	uint64_t ticket;       /* of that change */
	struct fal_buf report; /* the answer, without the clock */
};

/* Handles a CONTROL message of a session that may send it. */
void ps_controllers_handle_msg(struct ps_server *s, struct ps_session *session,
			       const struct fal_msg *m);
/* Gives up the change that a session waits for, as the session is gone. */
void ps_controllers_remove_session(struct ps_server *s, const struct ps_session *session);

/* Callbacks of fal_coord_ops; `arg` is the server. */
int ps_controllers_on_journal(void *arg, const struct fal_policy *p, uint64_t clock,
			      uint64_t version, const char *by);
void ps_controllers_on_changed(void *arg, uint64_t ticket, uint64_t clock, int err);

/* Copies the model for each waiting export whose parameters are here by now. */
void ps_controllers_export(struct ps_server *s);
/* Sends the next pieces of an export, after the socket has taken the last pieces. */
void ps_controllers_send_export(struct ps_session *session);

/* ---- the server --- */

/* Functions of loop.c that other files call after an event; loop.c fills the struct in at
 * first. */
struct ps_events {
	/* Does all work that may follow from an event.  Each callback of libuv, or of a
	 * channel, calls after_event last if the callback has changed some state. */
	void (*after_event)(struct ps_server *s);
	/* A shard elsewhere has sent the image of a marked version, which may be taken.
	 */
	void (*on_image)(struct ps_server *s, uint32_t shard, struct fal_image *image);
};

struct ps_timers {
	uv_timer_t wake;  /* for the scheduler */
	uv_timer_t flush; /* twice a second, for log, trace and limits */
	uv_timer_t leave; /* longest time for the last snapshot */
	uv_timer_t end;   /* longest time for sessions to take the last message */
};

enum ps_upstream_end {
	PS_UPSTREAM_OPEN,
	/* the coordinator ended the connection, or there was an error: the server
	 * ends */
	PS_UPSTREAM_ENDED,
	PS_UPSTREAM_LOST, /* the connection was lost: another incarnation follows */
	PS_UPSTREAM_LEFT  /* the coordinator drained us: the server ends */
};

/* The end of the server.  Other files record the causes; loop.c acts on them in
 * after_event. */
struct ps_end {
	/* an error of this program: the job has failed, see out->why */
	int broken;
	int err;                 /* error that ends the server, see s->diag */
	uint32_t lost_processes; /* as in struct ps_outcome */
	enum ps_upstream_end upstream;
	int upstream_code; /* PS_UPSTREAM_ENDED: the exit code, */
	struct fal_diag upstream_why;
	bool is_saved;    /* the job is over, and its model is written */
	bool is_leaving;  /* after a signal: a last snapshot, then the end */
	uint64_t reached; /* the clock at the signal */
	bool is_stopping; /* no new sessions; the others end */
};

/* The progress of the job, as stderr shows it. */
struct ps_progress {
	struct fal_progress bar; /* on a terminal */
	char epochs[48], loss[40], accuracy[32];
	uint64_t epoch; /* the last epoch that was logged */
	double next_at; /* when the next epoch may be logged */
	/* time when enough workers for the first clock were here; 0: not yet */
	double began_at;
	uint64_t zip_clock; /* clock of the last measurement of compression */
};

struct ps_server {
	struct ps_run *run;
	const struct fal_files *job; /* the run's */
	const struct fal_snapshot_found
		*resumed; /* the snapshot from which the job resumes; NULL: none */
	struct ps_outcome *out;
	struct fal_diag *diag;
	uv_loop_t *loop;
	struct ps_events events;
	struct ps_timers timers;
	struct fal_listen *listen; /* the host's; NULL: closed to new sessions */
	struct ps_rate {           /* with --rate-limit */
		struct fal_link link;
		uint64_t busy;
	} rate;
	struct ps_sessions sessions;
	struct ps_refusals refusals;
	struct fal_coord *coord; /* NULL: the job waits for its shards */
	struct fal_shard_set *shard_set;
	struct fal_ticket_scope tickets;
	struct ps_upstream *upstream; /* NULL: without --upstream */
	struct ps_broadcast broadcast;
	struct ps_shard_pool pool;
	struct ps_cache cache;
	struct ps_policy_log policy;
	struct ps_controllers controllers;
	struct ps_snapshots snapshots;
	struct ps_best_checkpoint best;
	struct ps_progress progress;
	struct ps_status_log status;
	struct ps_end end;
	bool workers_are_local; /* all workers so far were on this machine */
};

/* Seconds of the monotonic clock. */
static inline double
ps_now(void)
{
	return (double)uv_hrtime() * 1e-9;
}

/* ---- server.c --- */

/* Logs a line that begins with the job's name. */
#define ps_log(r, fmt, ...) \
	fal_cli_err(PROG, "%s: " fmt, (r)->job.job.name, ##__VA_ARGS__)
/* Logs an error.  Returns the exit code for it. */
int ps_report_error(const struct fal_diag *diag, int err);
/* Can workers come from other machines, by TCP? */
bool ps_listens_on_tcp(const struct ps_addrs *listen);

/* Records our own error, and wakes the loop up.  The job has then failed, and the job's
 * newest version is the result; if the job is over already, the server ends.  Ignores
 * FAL_OK, all errors after the first error that ends the server, and all errors of a
 * stopping server. */
void ps_fail(struct ps_server *s, int err, const char *what);

/* Is there memory for this rule (NULL: the rule in force), for `workers` more workers,
 * and for `more` bytes?  Returns what fal_memory_check returns. */
int ps_check_memory(struct ps_server *s, const struct fal_rule *rule, uint32_t workers,
		    uint64_t more, struct fal_diag *why);

/* ---- dispatch.c --- */

/* Callbacks of fal_listen_ops; `arg` is the server. */
void ps_on_accept(void *arg, struct fal_chan *c, const char *name, enum fal_role role);
void ps_on_key_removed(void *arg, struct fal_chan *c, const char *why);
/* Sends LATER to workers whose HELLO has waited for shards as long as allowed. */
void ps_expire_held_hellos(struct ps_server *s);
/* Called when the coordinator is made: opens the present sessions at the coordinator,
 * and passes on the HELLOs that were held back. */
void ps_introduce_sessions(struct ps_server *s);

/* ---- loop.c --- */

/* Serves the job until it is done (and, without --exit-when-done, until a signal), and
 * sets r->out.  Returns an error, with its diagnosis, if the server could not go on. */
int ps_serve(struct ps_run *r, struct fal_diag *diag);
/* Closes the host, after the last incarnation. */
void ps_host_close(struct ps_host *h);

/* ---- shard_server.c --- */

/* Serves shards for the job of another coordinator.  Returns an exit code. */
int ps_run_shard_server(struct ps_run *r);

#endif
