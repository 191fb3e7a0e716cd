/* The messages of falcon-protocol(7). One table says what each message contains and who
 * may send the message; writing and reading follow the table.  The schema is a hash of
 * the table, so the names of the members below are a part of the protocol.
 *
 * No I/O. The variable part of a read message (`tail`) is borrowed from the input. */
#ifndef FAL_WIRE_MSG_H
#define FAL_WIRE_MSG_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* The protocol's version, which both ends must share.  A test builds programs with
 * another version. */
#ifndef FAL_PROTO_MAJOR
#define FAL_PROTO_MAJOR 9
#define FAL_PROTO_MINOR 0
#endif

enum {
	FAL_MSG_NAME = 64,    /* bytes of a name with its NUL */
	FAL_MSG_WHY = 256,    /* bytes of a reason with its NUL */
	FAL_MSG_MAX = 65536,  /* bytes of a message */
	FAL_MODEL_BLOCKS = 3, /* most blocks in one MODEL message */
	FAL_SHARDS_MAX = 64,  /* shards of a job */
	FAL_MODEL_HEAD = 24,  /* bytes of a MODEL message before its exponents */
	FAL_MODEL_AD = 44,    /* bytes that fal_msg_model_ad writes */
	FAL_FINGERPRINT = 16, /* bytes */
	FAL_INSTANCE = 16,    /* bytes */
	FAL_DATA_HASH = 32,   /* bytes */
	FAL_MAC = 32,         /* bytes */
	FAL_TASK_HASH = 16,   /* bytes */
	FAL_TICKET_KEY = 64,  /* bytes */
	FAL_MSG_HEAD = 128    /* bytes before the tail of a message, at most */
};

/* Why a worker leaves: it was asked to, or its work has ended; its weights are not finite
 * any more; its trainer can do nothing for the job. */
enum fal_leave { FAL_LEAVE_ASKED, FAL_LEAVE_NONFINITE, FAL_LEAVE_TRAINER };

#define FAL_MSG_NS_MAX (UINT64_C(1) << 58) /* most ns of any time: 9 years */

enum fal_msg_type {
	/* from a worker */
	FAL_MSG_HELLO = 1,
	FAL_MSG_READY = 2,
	FAL_MSG_CLAIM = 3,
	FAL_MSG_PUSH = 4,
	FAL_MSG_WORKED = 5,
	FAL_MSG_CHUNK_GET = 6,
	FAL_MSG_EVALUATED = 7,
	FAL_MSG_LEAVE = 8,
	FAL_MSG_PONG = 9,
	FAL_MSG_CHECKED = 10,
	FAL_MSG_SEAL = 11,
	FAL_MSG_ATTACH = 12, /* to a shard */
	FAL_MSG_CAPACITY = 13,
	/* from an observer */
	FAL_MSG_FOLLOW = 16,
	/* from a controller */
	FAL_MSG_CONTROL = 24,
	/* from the coordinator */
	FAL_MSG_WELCOME = 32,
	FAL_MSG_TEXT = 33,
	FAL_MSG_VERSION = 34,
	FAL_MSG_MODEL = 35,
	FAL_MSG_GRANT = 36,
	FAL_MSG_REVOKE = 37,
	FAL_MSG_VERDICT = 38,
	FAL_MSG_LANES = 39,
	FAL_MSG_FENCE = 40,
	FAL_MSG_CHUNK = 41,
	FAL_MSG_EVAL = 42,
	FAL_MSG_PING = 43,
	FAL_MSG_DONE = 44,
	FAL_MSG_REFUSE = 45,
	FAL_MSG_ACCOUNT = 46,
	FAL_MSG_DRAIN = 47,
	FAL_MSG_TRACE = 48,
	FAL_MSG_TRACE_END = 49,
	FAL_MSG_REPLY = 50,
	FAL_MSG_LATER = 51,
	FAL_MSG_TICKET = 52,
	FAL_MSG_MAP = 54,
	FAL_MSG_BLOCKS = 55,
	/* from a shard, to a worker */
	FAL_MSG_PUBLISHED = 53,
	/* from shards of another process to the coordinator; IMAGE and BYTES go both ways
	 */
	FAL_MSG_JOIN = 64,
	FAL_MSG_PLACED = 65,
	FAL_MSG_ADMITTED = 66,
	FAL_MSG_REPORT = 67,
	FAL_MSG_IMAGE = 68,
	FAL_MSG_BYTES = 69,
	FAL_MSG_SERVED = 70,
	/* from the coordinator to them */
	FAL_MSG_PLACE = 80,
	FAL_MSG_ORDER = 81,
	FAL_MSG_ADMIT = 82,
	FAL_MSG_DISMISS = 83,
	FAL_MSG_PUBLISH = 84,
	FAL_MSG_FETCH = 85
};

enum fal_sender {
	FAL_FROM_WORKER,
	FAL_FROM_OBSERVER,
	FAL_FROM_CONTROLLER,
	FAL_FROM_COORDINATOR,
	FAL_FROM_SHARD
};

/* The text of which a TEXT message is a piece. */
enum fal_text { FAL_TEXT_JOB, FAL_TEXT_MODEL, FAL_TEXT_MANIFEST, FAL_TEXTS };

/* The content of a contribution: gradients, or the change of weights by local steps. */
enum fal_kind {
	FAL_KIND_GRAD = 1,
	FAL_KIND_DELTA = 2,
	FAL_KIND_CHECK = 3 /* no contribution: only the hashes of the gradients */
};

/* The start of the local steps of a delta round. */
enum fal_base {
	FAL_BASE_VERSION, /* the version */
	FAL_BASE_LOCAL,   /* the worker's own weights, as its last round left them */
	FAL_BASE_REBASE   /* the version, plus missing steps of the worker */
};

/* The request of a CONTROL. */
enum fal_verb {
	FAL_VERB_SHOW = 1,
	FAL_VERB_APPLY = 2,
	FAL_VERB_DRAIN = 3,
	FAL_VERB_PAUSE = 4,
	FAL_VERB_RESUME = 5,
	FAL_VERB_EXPORT = 6,
	FAL_VERB_STOP = 7,
	FAL_VERB_CHECKPOINT = 8
};

/* Flags of an ORDER. */
enum {
	FAL_WIRE_CLIPPED = 1,
	FAL_WIRE_AHEAD = 2,
	FAL_WIRE_MARK = 4,
	FAL_WIRE_HASH = 8,
	FAL_WIRE_MIXED = 16
};
/* Flags of a REPORT. */
enum {
	FAL_WIRE_WHOLE = 1,
	FAL_WIRE_LEAVES = 2, /* the tail has leaves */
	FAL_WIRE_ODD = 4     /* the job cannot go on */
};

/* The content of an IMAGE. */
enum fal_fetch {
	FAL_FETCH_MARKED = 1, /* all of a marked version */
	FAL_FETCH_PARAMS = 2, /* the parameters of a version, and the average */
	FAL_FETCH_PIECE = 3   /* a piece of a move; never fetched */
};

struct fal_tail {
	const uint8_t *p;
	size_t n;
};

/* The coordinator's statement about a closed contribution, and its MAC (server/ticket.h).
 */
struct fal_msg_ticket {
	uint64_t round;
	uint32_t worker, seq; /* the contribution */
	uint32_t tasks;       /* in the contribution */
	uint32_t fills_worker, fills_seq;
	/* of the round: */
	uint64_t version;
	uint32_t of;   /* number of its tasks */
	uint8_t kind;  /* enum fal_kind */
	uint8_t mixed; /* 1: its tasks compute on several versions */
	uint8_t mac[FAL_MAC];
};

struct fal_msg {
	uint16_t type; /* enum fal_msg_type */
	uint32_t incarnation;
	union {
		struct {
			uint64_t schema; /* fal_msg_schema of its build */
			char name[FAL_MSG_NAME];
			char version[FAL_MSG_NAME]; /* of its program */
			uint32_t lanes_min, lanes_max, cores;
			uint8_t instance[FAL_INSTANCE]; /* of the process */
			uint8_t group;                  /* 1: it is a group server */
		} hello;
		struct {
			uint8_t fingerprint[FAL_FINGERPRINT];
			uint64_t task_ns; /* measured at one lane; 0: not measured */
			/* samples of a larger batch, and its ns; 0, 0: not measured */
			uint32_t large;
			uint64_t large_ns;
			uint8_t data[FAL_DATA_HASH]; /* of own data; 0: not said */
			char kernels[FAL_MSG_NAME];  /* description; "": not said */
		} ready;
		struct {
			uint64_t round;
			uint32_t task;
			uint32_t seq;                     /* contribution */
			uint32_t fills_worker, fills_seq; /* 0, 0: fills nothing */
			uint64_t version;                 /* computed on this version */
			uint64_t task_ns;
			int64_t loss; /* base/loss.h */
			uint8_t nonfinite;
			uint8_t last; /* 1: this claim closes the contribution */
			uint8_t hash[FAL_TASK_HASH]; /* worker/agent.h */
			struct fal_tail metrics;     /* F64 each, by job.metrics */
		} claim;
		struct {
			struct fal_msg_ticket ticket;
			uint32_t epoch; /* of the block map */
			struct fal_tail records;
		} push;
		struct {
			uint64_t round;
			uint32_t seq;
		} seal;
		struct { /* of a group server */
			uint32_t members, lanes;
			uint64_t task_ns; /* of a lane; 0: not known */
		} capacity;
		struct fal_msg_ticket ticket;
		struct {               /* times since the last ACCOUNT, in ns */
			uint64_t mark; /* of the ACCOUNT that is answered */
			uint64_t compute, push, pull, wait, push_all, pull_all, late;
			struct fal_tail waits; /* wire/shard_wait.h */
		} worked;
		struct {
			uint8_t test; /* 0: training set, 1: test set */
			uint32_t chunk;
		} chunk_get;
		struct {
			uint64_t version;
			uint32_t task, right, samples;
			int64_t loss;
			uint64_t task_ns;
			struct fal_tail metrics; /* as in CLAIM */
		} evaluated;
		struct { /* the result of a task of kind CHECK */
			uint64_t round;
			uint32_t task;
			uint8_t nonfinite;
			uint8_t hash[FAL_TASK_HASH];
		} checked;
		struct {
			char why[FAL_MSG_WHY];
			uint8_t cause; /* enum fal_leave */
		} leave;
		struct {
			char why[FAL_MSG_WHY];
		} done, drain, later;
		struct {
			char why[FAL_MSG_WHY];
			uint8_t key; /* 1: the client's key is no longer valid */
		} refuse;
		struct {
			uint64_t stamp;
			uint64_t steps; /* pong: progress of the lanes, in any unit */
		} ping, pong;
		struct {
			uint8_t live; /* 1: go on after the history */
		} follow;
		struct {
			uint64_t clock;                      /* the next one to open */
			uint32_t job_n, model_n, manifest_n; /* bytes of the texts */
			uint32_t epoch;                      /* of the block map */
		} welcome;
		struct {
			uint8_t which; /* enum fal_text */
			uint32_t offset;
			struct fal_tail bytes;
		} text;
		struct { /* a version will come */
			uint64_t version;
			uint64_t oldest; /* nothing older will be computed on */
			uint8_t keep;    /* 1: keep the version for evaluation, too */
		} version;
		struct { /* a shard's part of a version */
			uint64_t version;
			uint32_t order; /* number of its VERSION in the session, from 1 */
			uint32_t shard; /* from 1 */
			uint32_t first, blocks; /* its range */
			uint64_t publication;   /* of the shared records */
			uint8_t key[32];        /* content key of the shared records */
		} published;
		struct {
			uint64_t version;
			uint32_t first, blocks;
			struct fal_tail data; /* i8 exponents, then the values */
			bool placed; /* the values are at their place already, not in
				      * `data`; never on the wire */
		} model;
		struct {
			uint64_t round;
			uint64_t clock;        /* of the tasks: selects the samples */
			uint64_t version;      /* to compute on; a delta's base */
			uint64_t exponents;    /* the version that has the exponents */
			uint32_t first, count; /* tasks */
			uint32_t fills_worker, fills_seq;
			uint32_t seq; /* contribution for which the tasks are claimed
				       * already, TICKET follows; 0: none */
			uint8_t kind; /* enum fal_kind */
			/* of a delta round, granted to one worker as a whole: */
			uint8_t base;      /* enum fal_base */
			uint64_t since;    /* REBASE: its last round in the version */
			uint32_t from, of; /* the round's first task, and the number of
					    * its tasks; of preclaimed tasks: `of` is the
					    * number of tasks of the contribution,
					    * including other GRANTs */
			uint32_t steps;    /* local steps to cut the tasks into */
			float lr;          /* of the local steps */
		} grant;
		struct {
			uint64_t round;
			uint32_t first, count;
			uint8_t check; /* 1: tasks granted as FAL_KIND_CHECK */
		} revoke;
		struct {
			uint64_t round;
			uint32_t task, seq;
			uint8_t won;
		} verdict;
		struct {
			uint32_t lanes;
		} lanes;
		struct {
			uint64_t round;
			uint32_t seq;
		} fence;
		struct {
			uint64_t mark;
		} account;
		struct {
			uint8_t test;
			uint32_t chunk, offset, total;
			struct fal_tail bytes;
		} chunk;
		struct {
			uint64_t version;
			uint32_t first, count;
		} eval;
		struct {
			struct fal_tail lines;
		} trace;
		struct {
			uint8_t verb;         /* enum fal_verb */
			struct fal_tail args; /* JSON, or nothing */
		} control;
		struct {                       /* a process of shards, and its address */
			uint32_t first, count; /* its shards, from 1 */
			char address[FAL_MSG_WHY];
			char name[FAL_MSG_NAME]; /* name of the key for this process, */
			uint8_t psk[32];         /* the key, */
			uint8_t public[32];      /* and the process's public key */
		} map;
		struct { /* the block map for all later pushes */
			uint32_t epoch;
			struct fal_tail of; /* of each shard: u32 first, u32 count */
		} blocks;
		struct {
			uint32_t epoch;
		} placed;
		struct {
			uint64_t schema;            /* as in HELLO */
			char version[FAL_MSG_NAME]; /* of its program */
			char address[FAL_MSG_WHY];  /* for workers */
			uint8_t public[32];
			uint32_t shards; /* capacity, in shards */
			uint8_t standby; /* 1: use only if there are too few others */
			uint8_t instance[FAL_INSTANCE];
		} join;
		struct {
			uint32_t epoch;
			uint32_t of;             /* shards of the job */
			uint32_t first, count;   /* the numbers of these shards, from 0 */
			uint32_t tasks;          /* the most of a clock */
			uint32_t job_n, model_n; /* bytes of the texts that follow */
			uint8_t key[FAL_TICKET_KEY]; /* key of tickets */
			struct fal_tail map;         /* wire/block_map.h */
		} place;
		struct {
			uint32_t session;
			uint8_t psk[32];
		} admit;
		struct {
			uint32_t session;
		} admitted, dismiss;
		struct { /* sends a version to a session; as struct fal_coord_publication
			  */
			uint32_t session, order;
			uint64_t version, newest, oldest, from;
			uint8_t keep;
			struct fal_tail named; /* u64 each */
		} publish;
		struct {
			uint8_t what; /* enum fal_fetch */
			uint64_t version;
		} fetch;
		struct { /* struct fal_image_head, and its arrays */
			uint8_t what;
			uint32_t shard; /* of the process, or, a piece's, of the job */
			uint32_t epoch, first, blocks; /* of a piece; else 0 */
			uint64_t version, steps;
			uint32_t olds, lines, slots;
			uint8_t holds;
			uint64_t held;
			struct fal_tail arrays; /* of each: name, u8 floats, u64 bytes */
		} image;
		struct {                         /* load of its shards since PLACE */
			uint64_t service, queue; /* ns */
			struct fal_tail bytes;   /* of each shard: u64 rx, u64 tx */
		} served;
		struct { /* content of an image's arrays, in order */
			uint32_t shard;
			struct fal_tail bytes;
		} bytes;
		struct { /* struct fal_shard_order */
			uint8_t kind;
			uint64_t round, version;
			struct {
				uint64_t version;
				uint32_t tasks;
				uint8_t kind;
			} facts;
			uint32_t worker, seq, fills_worker, fills_seq;
			uint8_t end;
			double weight, divisor, squares, momentum, share, in;
			float lr;
			uint64_t slot, below;
			uint32_t line, versions;
			uint8_t flags; /* FAL_WIRE_… */
			/* of MIGRATE_BEGIN: u32 first, u32 count of each shard; its epoch
			 * is in `version` */
			struct fal_tail map;
		} order;
		struct {                /* struct fal_shard_report */
			uint32_t shard; /* of the job, from 0 */
			uint8_t kind;
			uint64_t round, version;
			uint32_t worker, seq;
			uint32_t blocks, beyond, first;
			uint8_t most;
			uint32_t broughts, rank;
			uint64_t added;
			uint32_t err; /* -enum fal_err */
			char odd[FAL_MSG_WHY];
			uint8_t flags, more;
			struct fal_tail rest; /* arrays, by kind */
		} report;
		struct {
			uint8_t status; /* exit status: 0 done, 1 the answer is no, 2 bad
					 */
			uint8_t more;   /* 1: another REPLY follows */
			struct fal_tail bytes;
		} reply;
	};
};

/* Appends a message: u16 type, u16 0, u32 incarnation, its fields in table order, its
 * tail.  In all calls here a lack of memory ends the program. */
void fal_msg_put(struct fal_buf *out, const struct fal_msg *m);

/* Reads one message of exactly n bytes.  Tails are borrowed from `p`. Returns 0;
 * FAL_ETRUNC; FAL_EFORMAT, also for unknown types and trailing bytes; FAL_ELIMIT. */
int fal_msg_get(const uint8_t *p, size_t n, struct fal_msg *m);

/* Returns the message's name ("CLAIM"), or "?"; static. */
const char *fal_msg_name(uint16_t type);

/* Returns true if `sender` may send messages of this type. */
bool fal_msg_may_send(uint16_t type, enum fal_sender sender);

/* Returns a hash of the protocol's version and of the message table: name, number, sender
 * and fields of each message. */
uint64_t fal_msg_schema(void);

/* Checks the schema of a HELLO or JOIN. FAL_EVERSION: another build has another schema;
 * `diag` names both. */
int fal_msg_judge_schema(uint64_t schema, struct fal_diag *diag);

/* Some blocks of a version.  params, exps: the parameters and exponents of these blocks;
 * values: the number of values from the first of these blocks to the end of the version.
 */
struct fal_model_part {
	uint64_t version;
	uint32_t first, blocks;
	const float *params;
	size_t values;
	const int8_t *exps;
};
/* Returns the number of MODEL messages for `blocks` blocks. */
uint32_t fal_msg_models(uint32_t blocks);
/* Returns the number of blocks in MODEL message `index` of a version of `blocks` blocks.
 * The message begins with block index · FAL_MODEL_BLOCKS. */
uint32_t fal_msg_model_blocks(uint32_t blocks, uint32_t index);
/* Appends the MODEL message of a part without the values, which must follow; sets *values
 * to the values. */
void fal_msg_put_model_head(struct fal_buf *out, uint32_t incarnation,
			    const struct fal_model_part *part, struct fal_tail *values);

/* Writes the additional data of a published version's shared records, on which all
 * readers must agree: BLAKE2b-256 of the job's text, u32 incarnation, u64 version. */
void fal_msg_model_ad(const uint8_t job_hash[static 32], uint32_t incarnation,
		      uint64_t version, uint8_t out[static FAL_MODEL_AD]);

#endif
