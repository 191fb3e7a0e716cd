/* falcon-ps: the options and files of a run, and the server's state.
 *
 *	main          options and files; a job that begins, goes on, and is over
 *	loop          the event loop: begin, timers, signals, end
 *	sessions      those who are served: sessions, and their messages
 *	broadcast     versions, encoded once for all
 *	controllers   what falcon-sync asks for
 *	observers     followers of the trace
 *	status_log    what stderr says of the job
 *	snapshots, best_checkpoint, result, trace_file, state_dir
 *	              what is on disk
 *	cache         chunks of the data, as they travel
 *	image_queue   images of shards on their way
 *	shard_pool    shards of other processes
 *	shard_server  such a process
 *	upstream      the coordinator above
 *	memory        how much memory that takes
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

/* ---- memory.c: what the coordinator needs of memory --- */

/* The inputs of ps_need. */
struct ps_need_of {
	uint64_t program; /* bytes of it, fal_need_program */
	const struct fal_files *job;
	const struct fal_rule *rule; /* that holds, or would */
	uint64_t workers;
	uint32_t shards;
	bool mixed; /* as for ps_encoded_most */
};

/* Bytes of the coordinator while `far` other processes have a shard each: at the job's
 * begin, or with their images on the way for a snapshot and the parameters for an
 * evaluation, whichever is more.  At most what it needs with all shards in this process,
 * which is `far` 0. */
uint64_t ps_need(const struct ps_need_of *of, uint32_t far);

/* The inputs of ps_need_part, the bytes of a shard process that has joined. */
struct ps_need_part_of {
	uint64_t program;
	const struct fal_shard_set_conf *shard_set; /* of its part of the model */
	const struct fal_rule *rule;
	uint64_t workers;
	uint32_t versions; /* that are kept, or as many as the rule has */
	bool mixed;        /* as for ps_encoded_most */
};

uint64_t ps_need_part(const struct ps_need_part_of *of);

/* ---- cache.c: chunks of the data as they travel, cut into CHUNK messages, each
 * compressed; those that were asked for last are kept, so that many who ask cost one
 * reading and one compression --- */

enum { PS_CACHE_MAX = 64 << 20 }; /* bytes; the newest one is kept in any case */

struct ps_packed {
	bool test; /* of the test set */
	uint32_t chunk;
	struct fal_buf bytes; /* of each message: u32 their number, then they */
	uint64_t used;        /* when: grows */
};

/* {0} but for `most` is empty and valid. */
struct ps_cache {
	size_t most;
	size_t bytes; /* kept */
	struct ps_packed *v;
	size_t n, cap;
	uint64_t uses, made;
	struct fal_zip *zip;
};

/* The messages of chunk `i` (< part->chunks) of `set`, which is the test set or not, in
 * *out: borrowed until the next call.  FAL_ENOMEM, or as fal_chunk_get. */
int ps_cache_get(struct ps_cache *c, const struct fal_part *part,
		 const struct fal_set *set, bool test, uint32_t i,
		 const struct fal_buf **out);
void ps_cache_free(struct ps_cache *c);

/* ---- image_queue.c: images of shards on their way to another process, one behind the
 * other; and one that comes --- */

struct queued_image {
	struct fal_shard_codec_of of;
	struct fal_image image;
	bool begun;
	struct fal_shard_codec_at at;
};

/* {0} is empty. */
struct image_queue {
	struct queued_image *v;
	size_t n, cap;
};

/* Adds an image, and takes it. */
void image_queue_add(struct image_queue *q, const struct queued_image *image);
/* Adds a piece for shard `to` of the job, and takes its image. */
void image_queue_add_piece(struct image_queue *q, uint32_t to,
			   struct fal_shard_set_piece *piece);

/* Sends as much as the channel has room for, and closes a channel that fails.  `left`
 * (may be NULL) may take an image that was sent. */
void image_queue_send(struct image_queue *q, uint32_t incarnation, struct fal_chan *chan,
		      void (*left)(void *arg, struct queued_image *image), void *arg);

/* Drops the pieces of an aborted move.  A piece that is partly sent stays, as a copy, as
 * what it borrows may change from now on.  FAL_ENOMEM: it was not copied. */
int image_queue_abort(struct image_queue *q);

void image_queue_clear(struct image_queue *q);
void image_queue_free(struct image_queue *q);

/* An image on its way in.  {0}: none is. */
struct image_intake {
	bool any;
	struct fal_shard_codec_of of;
	struct fal_image image;
	struct fal_shard_codec_at at;
};

/* An IMAGE begins one, where none is on its way, of at most so many blocks.  1: it has no
 * arrays, and is whole, as image_intake_add has it; 0; errors as of
 * fal_shard_codec_image_get.
 */
int image_intake_begin(struct image_intake *in, const struct fal_msg *m, uint32_t blocks);
/* BYTES of it.  1: it is whole: `image` is the caller's to free; 0; FAL_ESTATE: none is
 * on its way; FAL_EFORMAT. */
int image_intake_add(struct image_intake *in, const struct fal_msg *m);

/* ---- best_checkpoint.c: the model of the best evaluation so far, a file of the state
 * folder (falcon-ps(1), FILES) --- */

/* The best model's evaluation, as its file records it. */
struct ps_best_is {
	bool there;
	uint64_t clock;        /* clocks that were over with it */
	double accuracy, loss; /* loss: NAN: not known */
	char sha256[65];       /* of the file */
};

struct ps_best {
	uv_work_t work;
	struct fal_buf now, next; /* files: that is being written; that is to be */
	struct ps_best_is is;     /* the best one, written or not */
	uint64_t seen;            /* clock of the last evaluation that was looked at */
	bool busy;                /* one is being written; ps_after_event follows */
	int err;                  /* of writing; and that it was said */
	struct fal_ratelimit none;
	struct fal_diag diag;
};

/* Reads the file `path`, which may be missing.  FAL_EFORMAT, FAL_EIO, FAL_ENOMEM. */
int ps_best_read(const char *path, struct ps_best_is *out, struct fal_diag *diag);

/* After an event: was there an evaluation, and is it the best one? */
void ps_best_event(struct ps_server *s, const struct fal_coord_status *now);
void ps_best_free(struct ps_best *b);

/* ---- upstream.c: with --upstream, the coordinator above, of which this one is a worker
 * (design.md, D50); lib/server has what passes between that and what is here --- */

struct above; /* opaque */

/* Dials it at once; what is here is ready when enough members are. */
struct above *above_new(struct ps_server *s);
void above_free(struct above *a); /* when the loop has ended; may be NULL */

/* After an event: what is to be done goes down and up. */
void above_event(struct above *a);
/* The server ends; it is not waited for any more. */
void above_close(struct above *a);
void above_kill(struct above *a);

/* Adds to an order the data that the coordinator does not have: parameters, or room for a
 * sum.  FAL_ENOMEM. */
int above_order(struct above *a, struct fal_shard_order *o);
/* Callbacks of fal_coord_ops; `arg` is the server. */
void above_claimed(void *arg, const struct fal_coord_claimed *is);
void above_given(void *arg, uint64_t round);
void above_evaluated(void *arg, const struct fal_msg *m);

/* ---- a run: its options, files and descriptors --- */

struct ps_options {
	const char *listen, *state, *trace, *keyring, *compress, *from, *join, *key,
		*upstream, *scheme;
	uint64_t ready_fd, min_workers, max_memory, shards, min_shards, rate_limit,
		threads;
	struct fal_opt_list set, accept;
	bool check, exit_when_done, json, restart, standby, seal_all;
};

/* Addresses to listen at, or that were bound. */
struct ps_addrs {
	struct fal_addr v[FAL_ADDRS_MAX];
	size_t n;
};

/* The state that outlives an incarnation: the process hears a signal between two
 * incarnations, and a peer that dials then waits for the next one.  Zero at first. */
struct ps_host {
	uv_loop_t loop;
	uv_signal_t heard[3];
	struct fal_listen *listen; /* NULL: not yet, or not any more */
	bool signalled;            /* to stop, ever */
};

/* Closes the libuv handle, unless that is under way. */
static inline void
ps_close(void *handle)
{
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

/* The outcome of an incarnation. */
struct ps_outcome {
	struct fal_coord_status status;
	char sha256[65];         /* of the model that was kept; "": none was */
	char hash[65];           /* of its version (trace/chain.h) */
	uint64_t clock;          /* whose parameters these are */
	const float *average;    /* of the weights, to be kept; NULL: none */
	char average_sha256[65]; /* of what was kept of it */
	struct ps_best_is best;  /* if such a file is kept */
	double seconds;          /* from the first clock to the last update; before
				  * this start from the first worker on */
	bool stopped;            /* before the job was done, */
	bool signalled;          /* by a signal; */
	uint32_t again; /* shards were lost, of so many processes: it is to go on; 0: not
			 */
	bool above;     /* the coordinator above has ended it, with this exit code */
	int code;
	struct ps_addrs bound; /* where it listened */
	bool kept;             /* a snapshot of where it was is there */
	struct fal_diag
		why; /* an error of our own: status.failed is then set; "": none */
};

/* A run of falcon-ps. */
struct ps_run {
	struct ps_options opt;
	struct ps_host host;
	uint64_t program;            /* bytes of it */
	struct fal_threads *threads; /* NULL: only the one of the loop */
	struct fal_files job;
	struct ps_need_of need;
	struct ps_state state;
	struct ps_record record;
	struct ps_addrs listen;
	struct fal_keyring *keys;    /* replaced at SIGHUP */
	struct fal_addr coordinator; /* with --join or --upstream, */
	struct fal_client_key *key;  /* and the key to it */
	struct fal_retry retry;      /* of it, of all incarnations */
	const char *path;            /* the job's file */
	bool several; /* members of a group server had several numerics, ever */
	uint8_t instance[FAL_INSTANCE]; /* of this process, for the coordinator above */
	enum fal_compress compress;
	char *best;                /* path of the best model; NULL: it is not kept; */
	struct ps_best_is best_is; /* … what it holds */
	struct ps_place model, average, result; /* where they will be */
	struct fal_found found;                 /* that the job goes on from, if there, */
	struct fal_coord_trace before;          /* with its trace so far */
	char accepted[16];                      /* kinds of files that are others since */
	double worked;                          /* seconds, before this start */
	struct ps_account *ends; /* of keys of shards, for all incarnations */
	uint32_t had;  /* processes with shards, of which some were lost just now; 0: none
			*/
	int snapshots; /* folder that gets them; -1: there are none */
	struct ps_outcome out; /* of this incarnation */
};

/* main.c */

/* Says what went wrong.  The exit code for it. */
int ps_run_say(const struct fal_diag *diag, int err);
/* May records of this machine's workers go unsealed, as far as options go? */
static inline bool
ps_may_unseal(const struct ps_options *o)
{
	return !o->seal_all && o->rate_limit == 0;
}

/* May workers come from elsewhere, by TCP? */
bool ps_has_port(const struct ps_addrs *listen);

/* shard_server.c: shards for the job of another coordinator.  An exit code. */
int ps_run_join(struct ps_run *r);

/* result.c */

/* Room for what is written at the end, so that no full disk or want of descriptors loses
 * it. */
int ps_result_reserve(struct ps_run *r, struct fal_diag *diag);
/* Called once, when the job is done, or has failed and a version is there to be kept:
 * keeps the parameters (borrowed), and r->out says as what.  0, or an error with its
 * diagnosis: the job then counts as failed. */
int ps_result_keep(struct ps_run *r, const float *params, struct fal_diag *diag);
/* Called next, if that went well, when the trace has its last line: keeps and tells the
 * result, and the job is done. */
int ps_result_tell(struct ps_run *r, struct fal_diag *diag);
/* Prints the result as it was kept, now or in a run before: then its files have to be
 * what it says.  An exit code. */
int ps_result_print(const struct ps_run *r, const struct fal_buf *json);

/* ---- sessions --- */

/* The cost of a key's sessions, so that they cannot cost the job its time.  An account is
 * of a key, or, where one key is for all, of a key and a source.  Time is an argument. */
enum {
	PS_ACCOUNTS = 1024,    /* that are told apart */
	PS_COMINGS = 256,      /* at once; */
	PS_COMING_S = 10,      /* … then one in so many seconds */
	PS_AGAIN_S = 1 << 20,  /* bytes a second of data that were had already, */
	PS_AGAIN_MAX = 2 << 20 /* … and at once: a chunk, at least */
};

/* Zero: nobody came yet. */
struct ps_account {
	char key[FAL_KEY_FINGERPRINT + 1]; /* its fingerprint; "": the place is free */
	char source[64];                   /* "": any */
	double at;                         /* when the rest was true */
	double comings;                    /* of PS_COMINGS, used up */
	double again;                      /* bytes, of PS_AGAIN_MAX, used up */
};

/* The account; a new one takes over, as it is, the place of the one with least used up:
 * so all together are limited, however many there are. */
struct ps_account *ps_account_find(struct ps_account v[static PS_ACCOUNTS],
				   const char *key, const char *source, double now);

/* The cost of a look at the job, where a worker's coming costs 1. */
#define PS_LOOK 0.1

/* The cost to a key whose lost shard process has ended an incarnation: so 16 at once,
 * then one in 160 s. */
#define PS_END 16

/* Is so much left? */
bool ps_account_has(const struct ps_account *a, double cost);
/* A session comes; false: too many did, and it is to come back later. */
bool ps_account_comes(struct ps_account *a, double cost);
/* A worker's has gone, and is not to count: it stayed and worked. */
void ps_account_forgive(struct ps_account *a);

/* n ≤ FAL_CHUNK_BYTES of data are wanted again; false: not yet. */
bool ps_account_again(struct ps_account *a, size_t n);

enum {
	PS_SESSIONS_MAX = 256, /* of a key; of a source, where one key is for all */
	PS_ASKS_MAX = 16       /* for chunks, of a session, that wait */
};

struct ps_session {
	struct ps_server *server;
	struct fal_chan *chan;
	uint32_t id;              /* grows */
	struct ps_reader reader;  /* of versions */
	struct ps_member *member; /* it is that of a process of shards; NULL: it is not */
	bool seated;              /* such processes are told of it, */
	bool mapped;              /* and it was told of those that there were */
	uint64_t unseated; /* those that do not know it yet: bits, by their first shard */
	uint8_t *seats;    /* its keys to these; NULL: there are none */
	struct fal_buf hello; /* that came too soon, */
	double held;          /* since then */
	char refused[256];    /* why the coordinator ended it; "": said, or it did not */
	struct ps_ask {
		bool test;
		uint32_t chunk;
	} ask[PS_ASKS_MAX]; /* for chunks, oldest first */
	size_t asks;
	uint64_t had;           /* bytes of chunks */
	bool texts_due;         /* it has said HELLO, and has not got them yet */
	bool asks_only;         /* it has said FOLLOW or CONTROL: it is no worker */
	bool followed;          /* it has said FOLLOW */
	bool live, history_due; /* … with these words, and has not got it yet */
	bool follows;           /* gets trace lines as they come */
	char worker[64];        /* who is ready in it; "": nobody */
	double came;            /* when it was ready first; 0: never */
	bool brought;           /* work, ever */
	struct ps_late {        /* that it is a suspect */
		bool said;
		struct fal_ratelimit seldom;
	} late;
	bool export_due;       /* it asked for a model: */
	uint64_t exports;      /* this version */
	struct fal_buf export; /* a model on its way */
	size_t exported;       /* bytes of it that were sent */
};

/* In order of their ids. */
struct ps_sessions {
	struct ps_session **v;
	size_t n, cap;
	uint32_t last_id;
};

/* ---- controllers (falcon-protocol(7), CONTROL) --- */

/* {.journal.fd = -1} is valid. */
struct ps_control {
	struct ps_journal journal;
	uint64_t lines;         /* of it */
	struct fal_policy last; /* of the journal, or that of the job */
	struct ps_since {
		uint64_t clock;        /* since when it holds */
		char by[FAL_MSG_NAME]; /* who made it: "job", or a key */
	} since, before;               /* that of the last line before c->later */
	struct ps_dwell {              /* when a key was changed last */
		char key[80];
		uint64_t clock;
	} *dwell;
	size_t n, cap;
	struct ps_later { /* changes that are to hold again, in order */
		struct fal_policy policy;
		struct ps_since since;
		struct fal_chain before; /* of the journal's lines before it */
	} *later;
	size_t laters, later_cap;
	uint64_t from; /* lines of the journal before the first of these */
	uint32_t asks; /* session that waits for its change; 0: none */
	uint64_t ticket;
	struct fal_buf report; /* its answer */
};

/* ---- snapshots.c: when snapshots are taken, and what is in them --- */

struct ps_keep {
	uv_work_t work;
	struct fal_snapshot now; /* that is being written, */
	struct ps_slot {         /* whose its images are, in the order of blocks */
		uint32_t shard, count;
		size_t values;
	} slot[FAL_SHARDS_MAX];
	bool busy;                 /* if any is; */
	uint32_t missing;          /* images of it that are on their way */
	bool again;                /* then another one, at once */
	bool soon;                 /* one is wanted as soon as there can be one */
	uint32_t asks;             /* session that waits for the next one; 0: none */
	bool any;                  /* this start has made one */
	bool good;                 /* the last one is there, */
	uint64_t clock;            /* of so many clocks, */
	uint64_t last;             /* (those of the last one that is there, if any) */
	double at;                 /* since then */
	struct fal_ratelimit none; /* that one was not made */
};

/* A callback of fal_coord_ops; `arg` is the server. */
void ps_keep_marked(void *arg, const struct fal_coord_past *past);
/* The image of a shard that is elsewhere, taken; without arrays: it has none. */
void ps_keep_image(struct ps_server *s, uint32_t shard, struct fal_image *image);
/* After an event: is one due, or wanted? */
void ps_keep_event(struct ps_server *s, uint64_t clock);
/* Takes a snapshot at once, for a session, which gets its answer when the snapshot is
 * there. */
void ps_keep_ask(struct ps_server *s, struct ps_session *session);
/* The job is done, after so many clocks: what more epochs would go on from.  False: not
 * before what is being written is; ps_after_event follows. */
bool ps_keep_end(struct ps_server *s, uint64_t clock);
/* The server ends: one more, of what there is.  False: there can be none, or it was
 * taken; true: as soon as what is on its way to the next version, or of it, is there, and
 * then ps_keep_soon is false. */
bool ps_keep_last(struct ps_server *s);
bool ps_keep_soon(const struct ps_server *s);
/* Is there one, of this start or that which it went on from? */
bool ps_keep_any(const struct ps_server *s);

/* ---- shard_pool.c: shards of other processes, as the coordinator's process knows them
 * (falcon-protocol(7), SHARDS) --- */

/* A process. */
struct ps_member {
	struct ps_session *session;
	bool standby;
	uint32_t shards; /* that it is good for */
	char address[FAL_MSG_WHY];
	uint8_t public[FAL_KEY_BYTES];
	uint32_t first, count;     /* its shards; 0: it has no numbers yet */
	bool placed;               /* it has what it was given with them */
	bool late;                 /* that was nothing: the job was under way */
	bool idle;                 /* there is no block to spare for it */
	bool full;                 /* it cannot have more blocks than it has */
	bool drained;              /* it is to have no block any more */
	struct image_queue images; /* what it is to be, and has not got yet */
	struct ps_served served;   /* as it says */
	struct ps_asked {          /* whether it lives */
		double at;         /* since when it owes something; 0: nothing */
		bool is;           /* an answer, to this: */
		uint64_t stamp;
		uint64_t taken; /* of what was sent to it, in bytes */
		struct fal_window took;
	} asked;
	struct fal_shard_codec post; /* a SAY that is on its way */
	char odd[FAL_MSG_WHY];
	struct image_intake coming;
};

struct ps_fleet {
	struct ps_member **v; /* in the order in which they joined */
	size_t n, cap;
	uint32_t wanted;        /* processes that the placement waits for; */
	uv_timer_t grace;       /* after it, for no more than the least */
	uv_timer_t ask;         /* whether they live; */
	double asked;           /* when it was last */
	bool cut;               /* each block has its shard: */
	struct fal_map map, to; /* that holds; that shards were told of, else none */
	bool tight;             /* it was said that there is no memory for a move */
	uint32_t own;           /* shards of this process: the first numbers */
	uint32_t places;        /* that its rule knew: some may have got none */
	struct ps_drain {
		bool own;      /* this process is to have no block any more */
		bool any;      /* somebody is to have none, who has some */
		bool refused;  /* who should have more instead cannot */
		uint32_t asks; /* session that waits for that; 0: none */
		char by[FAL_MSG_NAME];
	} drain;
	/* The last message of a shard of another process, and whether the coordinator is
	 * still to fetch it. */
	struct fal_shard_say said;
	uint32_t said_by;
	bool unheard;
};

/* The coordinator's shards, whichever process has them: a member of fal_coord_ops; `arg`
 * is the server. */
extern const struct fal_coord_shards ps_fleet_ops;

/* Makes the timer, before anything else; closes it. */
void ps_fleet_init(struct ps_server *s);
void ps_fleet_close(struct ps_server *s);
void ps_fleet_free(struct ps_fleet *f);

/* Cuts the model, now, or when enough processes are here; ps_begin follows when all know
 * their part.  0, or an error with s->diag. */
int ps_fleet_place(struct ps_server *s);
/* Processes that it waits for; that do not know yet what they have from the job's begin
 * on. */
uint32_t ps_fleet_waits(const struct ps_server *s);
uint32_t ps_fleet_unplaced(const struct ps_server *s);

/* A message of a session that may be one of shards.  0, or why it must end, in `why`. */
int ps_fleet_msg(struct ps_server *s, struct ps_session *session, const struct fal_msg *m,
		 struct fal_diag *why);
/* There is room in the session. */
void ps_fleet_more(struct ps_session *session);
/* Have processes of its key ended so many incarnations that it is to come back later? */
bool ps_fleet_spent(const struct ps_server *s, const struct ps_session *session);
void ps_fleet_gone(struct ps_server *s, struct ps_session *session, const char *why);

/* After an event: whoever has joined a job that is under way gets blocks, and whoever is
 * to be drained loses them, as soon as that can be. */
void ps_fleet_moves(struct ps_server *s);
/* Aborts a move that is under way: in the midst of a move no version can be marked. */
void ps_fleet_move_abort(struct ps_server *s);
/* Are blocks on their way?  To whom, with commas between. */
bool ps_fleet_moving(const struct ps_server *s, struct fal_diag *to);
/* A callback of fal_coord_ops; `arg` is the server. */
void ps_fleet_moved(void *arg, const struct fal_map *map, int err);
/* The process that has this shard ("shard:2"), or listens there, is to have no block any
 * more, and ends then; this one goes on.  The session gets its answer when it is done.
 * FAL_ENOENT, FAL_ESTATE with `why`: there is no such process, or nobody beside it. */
int ps_fleet_drain(struct ps_server *s, const struct ps_session *session,
		   const char *which, struct fal_diag *why);
/* The job is over, or the server ends: whoever waits for a drain is told so. */
void ps_fleet_drain_over(struct ps_server *s);

/* A worker is to have the job's texts: when all processes know it, and it knows where
 * they are. */
void ps_fleet_admit(struct ps_server *s, struct ps_session *session);
/* Messages to the shard processes leave before messages that others are sent from now
 * on. */
void ps_fleet_offer(struct ps_server *s);
/* As fal_coord_ops.model, to them. */
void ps_fleet_publish(struct ps_server *s, uint32_t peer,
		      const struct fal_coord_model *m);

/* All parameters of a version; NULL, and *coming says whether they are on their way: then
 * ps_after_event follows. */
const float *ps_fleet_params(struct ps_server *s, uint64_t version, bool *coming);
/* The images of a marked version are wanted: ps_keep_image gets them. */
void ps_fleet_fetch_marked(struct ps_server *s, uint64_t version);

/* Tells them all that the job is over. */
void ps_fleet_end(struct ps_server *s, enum fal_msg_type type, const char *why);

/* ---- the server --- */

enum {
	PS_PIECE = 60 << 10, /* bytes of a text, chunk or trace in one message */
	PS_OFFENDERS = 64    /* keys that are told apart in what is said of them */
};

/* What sessions of one key were ended for, and when that was told. */
struct ps_offender {
	char key[FAL_NAME_MAX + 1];
	char why[256];
	uint64_t n; /* since it was told last */
	double told;
};

struct ps_server {
	struct ps_run *run;
	const struct fal_files *job;   /* the run's, */
	const struct fal_found *found; /* that it goes on from; NULL: it begins; */
	struct ps_outcome *out;        /* and what it comes to */
	struct fal_diag *diag;
	uv_loop_t *loop;
	uv_timer_t wake, flush, leave, end;
	struct fal_listen *listen; /* the host's; NULL: it takes nobody any more */
	struct fal_link link;      /* of all that it sends, with --rate-limit */
	uint64_t busy;             /* of that */
	struct ps_sessions sessions;
	uint32_t work_keys; /* that there are for all who work */
	uint32_t room; /* sessions that there are descriptors for; half for lookers-on */
	struct fal_coord *coord;
	struct fal_shard_set *shard_set; /* its shards */
	struct above *above; /* the coordinator whose job it is; NULL: it is its own */
	struct ps_wants wants;
	struct ps_fleet fleet;
	struct fal_ticket_in tickets;
	struct ps_cache cache;
	struct ps_account accounts[PS_ACCOUNTS];
	bool crowded; /* somebody waits as much is queued for others of its key */
	const struct fal_policy *policy; /* that the job begins, or goes on with */
	const char *policy_by;
	struct ps_control control;
	struct ps_keep keep;
	struct ps_best best;
	struct fal_progress progress;
	struct ps_show { /* how far it is */
		char loss[32], accuracy[32];
		uint64_t epoch; /* the last one that was told */
		double next;    /* when another one may be */
	} show;
	struct fal_refusals strangers;
	struct ps_offender offender[PS_OFFENDERS];
	struct ps_who {              /* status_log.c */
		double lines, at;    /* lines that may be said; since when */
		uint64_t came, went; /* not said */
		double worked;       /* when work came last, or the server began */
		double moved;        /* the same, or when somebody came */
		double longest;      /* between two pieces of it */
		double looked;       /* when it was looked whether there is any */
		double said, pause;  /* that it waits: when; how long till again */
		struct ps_seen {     /* those who were ready, the last of them */
			char name[64], key[64]; /* the worker's, that of its key */
		} *seen;
		size_t n_seen, cap_seen;
		struct fal_ratelimit unlike;    /* results of two keys */
		struct fal_ratelimit unstepped; /* blocks */
	} who;
	uint64_t measured; /* clock of the last measurement of compression */
	double began;      /* the first clock; 0: not yet */
	uint32_t sized;    /* workers, when the cost of sizes was said last */
	bool refused;      /* the coordinator did so: some session's `refused` is set */
	bool saved;        /* the job is over and its model saved */
	bool leaving;      /* by a signal, when the last snapshot is taken, */
	uint64_t reached;  /* of so many clocks at least */
	bool near;         /* all workers so far were on this machine */
	bool stopping;
	int broken; /* what out->why is about: the coordinator is not asked any more */
	int err;    /* first error that ends the server */
};

/* Seconds of the monotonic clock. */
static inline double
ps_now(void)
{
	return (double)uv_hrtime() * 1e-9;
}

/* loop.c */

/* Serves the job until it is done (and, without --exit-when-done, until a signal), as
 * r->out says.  0, or an error with its diagnosis. */
int ps_serve(struct ps_run *r, struct fal_diag *diag);
/* After the last incarnation. */
void ps_host_close(struct ps_host *h);

/* An error of our own: the job has failed, and its newest version is the result; once it
 * was over, the server ends. */
void ps_fail(struct ps_server *s, int err, const char *what);
/* It cannot begin, as s->diag says. */
void ps_abandon(struct ps_server *s, int err);
/* Shards are lost, of so many processes that had some: the job goes on in a new
 * incarnation. */
void ps_again(struct ps_server *s, uint32_t had);
/* The coordinator above has ended it, or cannot be reached: the server ends with this
 * exit code.  Its connection is lost: it goes on in a new incarnation. */
void ps_above_end(struct ps_server *s, int code, const char *why);
void ps_above_lost(struct ps_server *s);
/* It was drained there, and has left: the server ends, and whoever is here looks for
 * another one. */
void ps_above_left(struct ps_server *s);
/* After whatever happened: is it over, and when must the scheduler be woken? */
void ps_after_event(struct ps_server *s);

/* Is there memory for this rule (NULL: the rule in force) with so many workers more than
 * there are, and `more` bytes?  Returns what fal_need_allowed returns. */
int ps_affords(struct ps_server *s, const struct fal_rule *rule, uint32_t workers,
	       uint64_t more, struct fal_diag *why);

/* All blocks have their shards: the job begins, or goes on.  0, or an error with its
 * diagnosis. */
int ps_begin(struct ps_server *s);

/* sessions.c */

struct ps_session *ps_session_find(const struct ps_sessions *s, uint32_t id);

/* Of fal_coord_ops; `arg` is the server. */
void ps_send(void *arg, uint32_t peer, const struct fal_buf *msg);
void ps_send_model(void *arg, uint32_t peer, const struct fal_coord_model *model);
/* What was wanted and has been made since leaves. */
void ps_publish_wanted(struct ps_server *s);
void ps_close_peer(void *arg, uint32_t peer, const char *why);
/* Says of whom the coordinator ended the sessions: not before it is through. */
void ps_tell_refused(struct ps_server *s);
/* Sends the workers a message of this type, DONE, LATER or REFUSE, with the reason. */
void ps_tell_all(struct ps_server *s, enum fal_msg_type type, const char *why);
/* Of fal_listen_ops; `arg` is the server. */
void ps_accept(void *arg, struct fal_chan *c, const char *name, enum fal_role role);
void ps_unwelcome(void *arg, struct fal_chan *c, const char *why);
/* The session is over at once, for this reason: whoever it is does not hear of it. */
void ps_lose(struct ps_session *session, const char *why);
/* Who has waited for shards as long as a HELLO may wait is to come back later. */
void ps_put_off_held(struct ps_server *s);
/* The coordinator is there: it hears of the sessions that are, and what they said. */
void ps_accept_again(struct ps_server *s);

/* status_log.c */

/* A line on stderr, behind the job's name. */
void ps_log(const struct ps_run *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Of fal_coord_ops; `arg` is the server. */
void ps_came(void *arg, uint32_t peer, const char *name, const char *key);
void ps_went(void *arg, uint32_t peer, const char *name, const char *why);
void ps_odd(void *arg, const char *const name[2], const char *const kernels[2]);
void ps_unlike(void *arg, const struct fal_coord_unlike *is);
void ps_unstepped(void *arg, const struct fal_coord_unstepped *is);
void ps_late(void *arg, uint32_t peer, const char *name,
	     const struct fal_coord_late *late);
/* Whether a worker of this name was here, or may come: it is the name of a key to work
 * with, under which nobody of another name came.  If somebody did, false, and *instead is
 * his name; else that is NULL. */
bool ps_knows(const struct ps_server *s, const char *name, const char **instead);
/* The session brought work: the job moves. */
void ps_moved(struct ps_server *s, struct ps_session *session);
/* A session of this key is ended for what it did: stderr and trace say so, of each key
 * once in FAL_REFUSALS_S. */
void ps_log_refused(struct ps_server *s, const char *key, const char *why);
/* A client came no further than the handshake (fal_listen_ops.on_refused): stderr alone
 * says so, and how many did. */
void ps_log_stranger(void *arg, const char *source, const char *why);
/* Says what is due by now of all these; `over`: all that was not said yet. */
void ps_tell_refusals(struct ps_server *s, bool over);
/* Says what sizes cost, at first and when there are twice as many workers. */
void ps_tell_sizes(struct ps_server *s, uint32_t workers);
/* Says, now and again, whom the job waits for, since when, and what to type. */
void ps_tell_waiting(struct ps_server *s);

/* All of a text. */
void ps_send_text(struct ps_session *session, enum fal_text which,
		  const struct fal_buf *text);
/* There may be room: more of what the session asked for; of what all did. */
void ps_more(struct ps_server *s, struct ps_session *session);
void ps_more_all(struct ps_server *s);
/* Are more bytes queued for this session, with all others of its key, than may be? */
bool ps_too_much(const struct ps_session *session);
/* The keyring was read: sets work_keys. */
void ps_count_keys(struct ps_server *s);

/* observers.c */

/* A line of the trace: kept, and sent to all who follow.  `arg`: the server. */
void ps_trace(void *arg, const char *line, size_t n);
/* Sends what a follower gets first, what time it is and, to who wants it live, what
 * follows. */
void ps_follow(struct ps_server *s, struct ps_session *session);
/* Nothing more comes in it: a follower is told so, and the channel closes behind what was
 * sent. */
void ps_bid_farewell(struct ps_session *session);

/* controllers.c */

/* Reads the journal `path` (taken); without a journal the job's policy `job` holds.  Then
 * c->last is the policy that the job begins with; or, if the job goes on from a snapshot
 * (else `was` is NULL), the policy that held at the snapshot, with c->later to come
 * again.  FAL_EINVAL: the snapshot was taken with another journal; else errors as of
 * ps_journal_open. */
int ps_control_open(struct ps_control *c, char *path, const struct fal_policy *job,
		    const struct fal_snap_manifest *was, struct fal_diag *diag);
/* Other `kinds` of files are gone on with from this clock on: a line of the journal, if
 * there is none yet, which repeats its last policy.  FAL_EIO, FAL_ENOMEM. */
int ps_control_accept(struct ps_control *c, const char *kinds, uint64_t clock,
		      uint64_t version);
/* How much of the journal is in force while so many of c->later wait: for a manifest. */
void ps_control_reach(const struct ps_control *c, size_t agains,
		      struct fal_snap_manifest *out);
void ps_control_close(struct ps_control *c);

/* A CONTROL message of a session that may send it. */
void ps_control_msg(struct ps_server *s, struct ps_session *session,
		    const struct fal_msg *m);

/* The session is over: a change of its that waits is given up. */
void ps_control_gone(struct ps_server *s, const struct ps_session *session);

/* The session has asked for what takes a while: what that waits for; then, once, why it
 * cannot be, or (`why` NULL) this text. */
void ps_control_waits(struct ps_session *session, const char *what);
void ps_control_answer(struct ps_session *session, const char *why, const char *text);

/* For struct fal_coord_ops; `arg` is the server. */
int ps_control_journal(void *arg, const struct fal_policy *p, uint64_t clock,
		       uint64_t version, const char *by);
void ps_control_changed(void *arg, uint64_t ticket, uint64_t clock, int err);

/* Copies that were asked for, of what is here by now. */
void ps_control_export(struct ps_server *s);
/* The socket has taken what was sent: the next pieces of an export follow. */
void ps_control_more(struct ps_session *session);

#endif
