/* The schema of falcon-trace(5): the lines, the members of each, the values of a member,
 * and the condition for its presence.
 *
 * This one table yields the structs, the writer, the reader with its checks of syntax and
 * range, and the check of the man page.  Rules between members or lines are elsewhere:
 * reader.h, audit.h.
 */
#ifndef FAL_TRACE_SCHEMA_H
#define FAL_TRACE_SCHEMA_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The largest whole number of a trace, 2^53: any JSON reader represents it exactly. */
#define FAL_TRACE_NUM_MAX ((uint64_t)1 << 53)
/* Limits for readers, so that no trace makes its reader allocate without bound. */
#define FAL_TRACE_TASKS_MAX ((uint64_t)1 << 20)      /* of one clock */
#define FAL_TRACE_BLOCKS_MAX ((uint64_t)1 << 32)     /* of one model */
#define FAL_TRACE_SHARDS_MAX ((uint64_t)64)          /* of the parameters */
#define FAL_TRACE_PARTS_MAX ((uint64_t)1 << 16)      /* of the data */
#define FAL_TRACE_SAMPLES_MAX ((uint64_t)UINT32_MAX) /* of one epoch */
#define FAL_TRACE_SECONDS_MAX 1e9                    /* 30 years */

/* The value of an absent OPT member that is a whole number. */
#define FAL_TRACE_ABSENT UINT64_MAX

/* Rows of whole numbers, one after the other: row i of width w begins at v[w * i]. */
struct fal_numbers {
	const uint64_t *v;
	size_t n; /* rows; v NULL and n 0: absent, or empty */
};

/* Rows of numbers. */
struct fal_reals {
	const double *v;
	size_t n;
};

struct fal_strings {
	const char *const *v;
	size_t n;
};

/* 64 bits, written as 16 hexadecimal digits. */
struct fal_hex64 {
	bool is; /* the member is present */
	uint64_t v;
};

/* A JSON value as text. */
struct fal_json_text {
	const char *p; /* NULL: absent */
	size_t n;
};

/* Kinds of members, their C type and their argument:
 *
 *	WHOLE(max)     whole number from 0 to max
 *	ID             worker's id, a whole number of 32 bits
 *	REAL           number
 *	LOSS           number, or null: NAN
 *	SECONDS        from 0 to FAL_TRACE_SECONDS_MAX, written with 6 decimals
 *	FLAG           true, or absent
 *	TEXT           string
 *	WORD(words)    one of the words; the struct has its place, from 0
 *	HEX(digits)    lower-case hexadecimal digits in a string
 *	WORD64         16 of them
 *	TUPLE(n)       array of n whole numbers of 32 bits
 *	ROWS(width)    array of arrays of `width` whole numbers; 0: array of numbers
 *	REALS(width)   the same of numbers
 *	HEXES(digits)  array of HEX
 *	LIST(record)   array of objects
 *	OBJECT(record) object
 *	JSON           anything
 *
 * The presence of a member:
 *
 *	MUST  always
 *	MAY   unless it is 0, NULL, empty, false, the first word
 *	OPT   unless it is FAL_TRACE_ABSENT or NAN
 *
 * M(kind, member, when, argument) */

/* The worker of a line. */
#define FAL_OF_WORKER(M) M(TEXT, worker, MUST, 0) M(ID, id, MUST, 0)

#define FAL_LINE_job(M)                                         \
	M(TEXT, name, MUST, 0)                                  \
	M(TEXT, hash, MUST, 0)                                  \
	M(TEXT, model, MAY, 0)                                  \
	M(TEXT, data, MAY, 0)                                   \
	M(TEXT, from, MAY, 0)                                   \
	M(TEXT, seed, MUST, 0)                                  \
	M(WHOLE, epochs, MUST, UINT32_MAX)                      \
	M(WHOLE, batch, MUST, FAL_TRACE_SAMPLES_MAX)            \
	M(WHOLE, task, MUST, FAL_TRACE_SAMPLES_MAX)             \
	M(REAL, tail, MAY, 0)                                   \
	M(WHOLE, tail_task, MAY, FAL_TRACE_SAMPLES_MAX)         \
	M(WHOLE, parts, MAY, FAL_TRACE_PARTS_MAX)               \
	M(WHOLE, samples, MUST, FAL_TRACE_SAMPLES_MAX)          \
	M(WHOLE, test, MUST, FAL_TRACE_SAMPLES_MAX)             \
	M(WHOLE, params, MUST, FAL_TRACE_NUM_MAX)               \
	M(WHOLE, blocks, MUST, FAL_TRACE_BLOCKS_MAX)            \
	M(WHOLE, shards, MUST, FAL_TRACE_SHARDS_MAX)            \
	M(WHOLE, clocks_per_epoch, MUST, FAL_TRACE_SAMPLES_MAX) \
	M(WHOLE, clocks, MUST, FAL_TRACE_NUM_MAX)               \
	M(TEXT, scheme, MUST, 0)                                \
	M(WORD, audit, MUST, "claims sums")                     \
	M(WHOLE, hashes, MUST, FAL_TRACE_NUM_MAX)               \
	M(TEXT, numerics, MUST, 0)                              \
	M(WORD, nonfinite, MAY, "stop skip")                    \
	M(TEXT, optimizer, MUST, 0)                             \
	M(REAL, momentum, MAY, 0)                               \
	M(WORD, momentum_per, MAY, "worker server")             \
	M(REAL, beta1, OPT, 0)                                  \
	M(WHOLE, incarnation, MUST, UINT32_MAX)                 \
	M(TEXT, above, MAY, 0)                                  \
	M(TEXT, key, MAY, 0)                                    \
	M(TEXT, key_fingerprint, MAY, 0)                        \
	M(TEXT, version, MUST, 0)

#define FAL_LINE_place(M)                            \
	M(WHOLE, map, MUST, FAL_TRACE_NUM_MAX)       \
	M(TEXT, rule, MUST, 0)                       \
	M(TEXT, by, MAY, 0)                          \
	M(SECONDS, took, OPT, 0)                     \
	M(WHOLE, shards, MUST, FAL_TRACE_SHARDS_MAX) \
	M(WHOLE, places, MAY, FAL_TRACE_SHARDS_MAX)  \
	M(ROWS, runs, MUST, 3)

#define FAL_LINE_shard(M)                           \
	M(WHOLE, shard, MUST, FAL_TRACE_SHARDS_MAX) \
	M(WHOLE, clock, MUST, FAL_TRACE_NUM_MAX)    \
	M(WHOLE, version, MUST, FAL_TRACE_NUM_MAX)  \
	M(TEXT, by, MAY, 0)                         \
	M(TEXT, address, MAY, 0)                    \
	M(WHOLE, blocks, MUST, FAL_TRACE_NUM_MAX)   \
	M(WHOLE, rx, MUST, FAL_TRACE_NUM_MAX)       \
	M(WHOLE, tx, MUST, FAL_TRACE_NUM_MAX)       \
	M(SECONDS, service, MUST, 0)                \
	M(SECONDS, queue, MUST, 0)                  \
	M(SECONDS, took, OPT, 0)                    \
	M(SECONDS, blame, MUST, 0)

#define FAL_LINE_restart(M)                        \
	M(WHOLE, incarnation, MUST, UINT32_MAX)    \
	M(WHOLE, clock, MUST, FAL_TRACE_NUM_MAX)   \
	M(WHOLE, version, MUST, FAL_TRACE_NUM_MAX) \
	M(WHOLE, until, MUST, FAL_TRACE_NUM_MAX)   \
	M(WHOLE, lines, MUST, FAL_TRACE_NUM_MAX)   \
	M(WHOLE, torn, MUST, FAL_TRACE_NUM_MAX)    \
	M(TEXT, hash, MUST, 0)                     \
	M(TEXT, model, MAY, 0)                     \
	M(TEXT, data, MAY, 0)                      \
	M(TEXT, from, MAY, 0)                      \
	M(TEXT, accepted, MAY, 0)                  \
	M(WHOLE, epochs, MUST, UINT32_MAX)

#define FAL_LINE_policy(M)                         \
	M(WHOLE, clock, MUST, FAL_TRACE_NUM_MAX)   \
	M(TEXT, scheme, MUST, 0)                   \
	M(TEXT, by, MUST, 0)                       \
	M(WHOLE, version, MUST, FAL_TRACE_NUM_MAX) \
	M(JSON, policy, MAY, 0)

#define FAL_LINE_hold(M)      \
	M(TEXT, why, MUST, 0) \
	M(TEXT, by, MUST, 0)

#define FAL_LINE_join(M)                            \
	FAL_OF_WORKER(M)                            \
	M(TEXT, key, MAY, 0)                        \
	M(TEXT, key_fingerprint, MAY, 0)            \
	M(TUPLE, lanes, MUST, 2)                    \
	M(WHOLE, cores, MUST, UINT32_MAX)           \
	M(TEXT, fingerprint, MUST, 0)               \
	M(TEXT, version, MAY, 0)                    \
	M(TEXT, kernels, MAY, 0)                    \
	M(SECONDS, task_s, MAY, 0)                  \
	M(WHOLE, large, MAY, FAL_TRACE_SAMPLES_MAX) \
	M(SECONDS, large_s, OPT, 0)

#define FAL_LINE_group(M)                   \
	FAL_OF_WORKER(M)                    \
	M(WHOLE, members, MUST, UINT32_MAX) \
	M(WHOLE, lanes, MUST, UINT32_MAX)

#define FAL_LINE_leave(M)        \
	FAL_OF_WORKER(M)         \
	M(TEXT, reason, MUST, 0) \
	M(FLAG, fell, MAY, 0)    \
	M(FLAG, momentum, MAY, 0)

#define FAL_LINE_clock(M)                            \
	M(WHOLE, clock, MUST, FAL_TRACE_NUM_MAX)     \
	M(WHOLE, round, OPT, FAL_TRACE_NUM_MAX)      \
	FAL_OF_WORKER(M)                             \
	M(WHOLE, lanes, MUST, UINT32_MAX)            \
	M(WHOLE, share, MUST, FAL_TRACE_TASKS_MAX)   \
	M(WHOLE, done, MUST, FAL_TRACE_TASKS_MAX)    \
	M(WHOLE, in, MUST, FAL_TRACE_TASKS_MAX)      \
	M(WHOLE, out, MUST, FAL_TRACE_TASKS_MAX)     \
	M(WHOLE, cloned, MUST, FAL_TRACE_TASKS_MAX)  \
	M(WHOLE, lost, MUST, FAL_TRACE_TASKS_MAX)    \
	M(SECONDS, compute, MUST, 0)                 \
	M(SECONDS, push, MUST, 0)                    \
	M(SECONDS, pull, MUST, 0)                    \
	M(SECONDS, wait, MUST, 0)                    \
	M(SECONDS, push_all, MUST, 0)                \
	M(SECONDS, pull_all, MUST, 0)                \
	M(SECONDS, late, MUST, 0)                    \
	M(SECONDS, rtt, MAY, 0)                      \
	M(WHOLE, samples, MUST, FAL_TRACE_NUM_MAX)   \
	M(SECONDS, task_s, MUST, 0)                  \
	M(ROWS, paces, MAY, 3)                       \
	M(WHOLE, cut, MAY, FAL_TRACE_TASKS_MAX)      \
	M(SECONDS, cut_s, OPT, 0)                    \
	M(WHOLE, staleness, MUST, FAL_TRACE_NUM_MAX) \
	M(WHOLE, tx, MUST, FAL_TRACE_NUM_MAX)        \
	M(WHOLE, rx, MUST, FAL_TRACE_NUM_MAX)

#define FAL_LINE_stale(M)                          \
	M(WHOLE, clocks, MUST, FAL_TRACE_NUM_MAX)  \
	M(WHOLE, updates, MUST, FAL_TRACE_NUM_MAX) \
	M(WHOLE, rank, MAY, FAL_TRACE_NUM_MAX)

#define FAL_LINE_contrib(M)                          \
	M(TUPLE, c, MUST, 2)                         \
	M(ROWS, tasks, MUST, 2)                      \
	M(HEXES, hashes, MAY, 32)                    \
	M(WHOLE, blocks, MUST, FAL_TRACE_BLOCKS_MAX) \
	M(TUPLE, fills, MAY, 2)                      \
	M(FLAG, fenced, MAY, 0)                      \
	M(WORD64, sum, MAY, 0)

#define FAL_LINE_ledger(M)                                    \
	M(WHOLE, round, MUST, FAL_TRACE_NUM_MAX)              \
	M(WHOLE, clock, MUST, FAL_TRACE_NUM_MAX)              \
	M(WHOLE, first, MUST, FAL_TRACE_NUM_MAX)              \
	M(WHOLE, tasks, MUST, FAL_TRACE_NUM_MAX)              \
	M(WHOLE, samples, MUST, FAL_TRACE_NUM_MAX)            \
	M(WHOLE, version, MUST, FAL_TRACE_NUM_MAX)            \
	M(WHOLE, late, OPT, FAL_TRACE_NUM_MAX)                \
	M(WHOLE, blocks, MUST, FAL_TRACE_NUM_MAX)             \
	M(WORD, kind, MUST, "grad delta")                     \
	M(WHOLE, owner, MAY, UINT32_MAX)                      \
	M(WHOLE, group, MAY, UINT32_MAX)                      \
	M(WHOLE, local, MAY, FAL_TRACE_NUM_MAX)               \
	M(WORD, end, MUST, "applied dropped abandoned given") \
	M(TEXT, why, MAY, 0)                                  \
	M(REAL, weight, OPT, 0)                               \
	M(WHOLE, among, MAY, UINT32_MAX)                      \
	M(REAL, divisor, MAY, 0)                              \
	M(WHOLE, steps, MAY, UINT32_MAX)                      \
	M(TEXT, base, MAY, 0)                                 \
	M(WHOLE, since, OPT, FAL_TRACE_NUM_MAX)               \
	M(REAL, lr, MAY, 0)                                   \
	M(OBJECT, stale, MAY, stale)                          \
	M(WHOLE, slot, OPT, FAL_TRACE_NUM_MAX)                \
	M(ROWS, grant, MUST, 3)                               \
	M(ROWS, move, MUST, 4)                                \
	M(ROWS, clone, MUST, 3)                               \
	M(ROWS, regrant, MUST, 3)                             \
	M(ROWS, lost, MUST, 3)                                \
	M(ROWS, skipped, MAY, 2)                              \
	M(WHOLE, unstepped, MAY, FAL_TRACE_BLOCKS_MAX)        \
	M(TUPLE, verified, MAY, 3)                            \
	M(LIST, contrib, MUST, contrib)                       \
	M(ROWS, on, MAY, 4)                                   \
	M(WORD64, seed, MAY, 0)                               \
	M(WORD64, added, MAY, 0)

/* A metric of the job: Σ over samples; null: not known. */
#define FAL_LINE_metric(M)     \
	M(TEXT, name, MUST, 0) \
	M(LOSS, sum, MUST, 0)

#define FAL_LINE_update(M)                             \
	M(WHOLE, version, MUST, FAL_TRACE_NUM_MAX)     \
	M(WHOLE, clock, MUST, FAL_TRACE_NUM_MAX)       \
	M(ROWS, rounds, MUST, 0)                       \
	M(WHOLE, groups, MAY, UINT32_MAX)              \
	M(REAL, weight, MAY, 0)                        \
	M(WHOLE, among, OPT, UINT32_MAX)               \
	M(REALS, pushes, MAY, 2)                       \
	M(REALS, outer, MAY, 0)                        \
	M(REAL, divisor, MAY, 0)                       \
	M(WHOLE, samples, MUST, FAL_TRACE_SAMPLES_MAX) \
	M(LOSS, loss, MUST, 0)                         \
	M(LIST, metrics, MAY, metric)                  \
	M(REAL, lr, MUST, 0)                           \
	M(REAL, norm, MAY, 0)                          \
	M(WHOLE, unstepped, MAY, FAL_TRACE_BLOCKS_MAX) \
	M(WHOLE, epoch, MUST, FAL_TRACE_NUM_MAX)       \
	M(HEX, hash, MAY, 64)                          \
	M(HEX, exponents, MAY, 64)

#define FAL_LINE_version(M) M(WHOLE, version, MUST, FAL_TRACE_NUM_MAX)

#define FAL_LINE_eval_key(M)                     \
	M(TEXT, key, MUST, 0)                    \
	M(WHOLE, tasks, MUST, FAL_TRACE_NUM_MAX) \
	M(WHOLE, twice, MUST, FAL_TRACE_NUM_MAX) \
	M(WHOLE, alone, MUST, FAL_TRACE_NUM_MAX)

#define FAL_LINE_eval(M)                           \
	M(WHOLE, version, MUST, FAL_TRACE_NUM_MAX) \
	M(WHOLE, epoch, MUST, FAL_TRACE_NUM_MAX)   \
	M(WHOLE, right, MUST, FAL_TRACE_NUM_MAX)   \
	M(WHOLE, total, MUST, FAL_TRACE_NUM_MAX)   \
	M(LOSS, loss, MUST, 0)                     \
	M(REAL, accuracy, MUST, 0)                 \
	M(LIST, metrics, MAY, metric)              \
	M(LIST, keys, MAY, eval_key)

#define FAL_LINE_suspect(M)    \
	FAL_OF_WORKER(M)       \
	M(TEXT, owes, MUST, 0) \
	M(TEXT, why, MUST, 0)  \
	M(SECONDS, seconds, MUST, 0)

#define FAL_LINE_back(M)      \
	FAL_OF_WORKER(M)      \
	M(TEXT, why, MUST, 0) \
	M(SECONDS, seconds, MUST, 0)

#define FAL_LINE_charge(M) \
	FAL_OF_WORKER(M)   \
	M(TEXT, why, MUST, 0)

#define FAL_LINE_refuse(M)    \
	M(TEXT, key, MUST, 0) \
	M(TEXT, why, MUST, 0) \
	M(WHOLE, count, MUST, FAL_TRACE_NUM_MAX)

#define FAL_LINE_trainer(M)   \
	M(TEXT, key, MUST, 0) \
	M(TEXT, why, MUST, 0)

#define FAL_LINE_nonfinite(M)                    \
	M(WHOLE, round, MUST, FAL_TRACE_NUM_MAX) \
	M(WHOLE, clock, MUST, FAL_TRACE_NUM_MAX) \
	M(WHOLE, task, MUST, FAL_TRACE_NUM_MAX)  \
	FAL_OF_WORKER(M)                         \
	M(WHOLE, first_sample, MUST, FAL_TRACE_NUM_MAX)

#define FAL_LINE_word(M) \
	FAL_OF_WORKER(M) \
	M(HEX, hash, MUST, 32)

#define FAL_LINE_verify(M)                       \
	M(WHOLE, round, MUST, FAL_TRACE_NUM_MAX) \
	M(WHOLE, clock, MUST, FAL_TRACE_NUM_MAX) \
	M(WHOLE, task, MUST, FAL_TRACE_NUM_MAX)  \
	M(TUPLE, c, MUST, 2)                     \
	M(LIST, words, MUST, word)

#define FAL_LINE_gap(M)                          \
	M(WHOLE, lines, MUST, FAL_TRACE_NUM_MAX) \
	M(WHOLE, bytes, MUST, FAL_TRACE_NUM_MAX) \
	M(TEXT, blake2b, MUST, 0)                \
	M(TEXT, h, MAY, 0)

#define FAL_LINE_now(M) M(TEXT, h, MUST, 0)

#define FAL_LINE_done(M)                           \
	M(WHOLE, version, MUST, FAL_TRACE_NUM_MAX) \
	M(TEXT, sha256, MAY, 0)                    \
	M(HEX, hash, MAY, 64)                      \
	M(TEXT, journal, MAY, 0)                   \
	M(REAL, seconds, MUST, 0)                  \
	M(SECONDS, trained, MUST, 0)               \
	M(REAL, accuracy, OPT, 0)                  \
	M(WHOLE, clocks, MAY, FAL_TRACE_NUM_MAX)

#define FAL_LINE_failed(M)                         \
	M(WHOLE, version, MUST, FAL_TRACE_NUM_MAX) \
	M(SECONDS, trained, MUST, 0)               \
	M(TEXT, reason, MUST, 0)

/* Objects inside lines, before the lines that have them. */
#define FAL_TRACE_OBJECTS(E) \
	E(STALE, stale)      \
	E(CONTRIB, contrib) E(KEY, eval_key) E(WORD, word) E(METRIC, metric)

/* E(constant, event) */
#define FAL_TRACE_EVENTS(E)     \
	E(JOB, job)             \
	E(PLACE, place)         \
	E(SHARD, shard)         \
	E(RESTART, restart)     \
	E(POLICY, policy)       \
	E(HOLD, hold)           \
	E(JOIN, join)           \
	E(GROUP, group)         \
	E(LEAVE, leave)         \
	E(CLOCK, clock)         \
	E(LEDGER, ledger)       \
	E(UPDATE, update)       \
	E(VERSION, version)     \
	E(EVAL, eval)           \
	E(SUSPECT, suspect)     \
	E(BACK, back)           \
	E(CHARGE, charge)       \
	E(REFUSE, refuse)       \
	E(TRAINER, trainer)     \
	E(NONFINITE, nonfinite) \
	E(VERIFY, verify)       \
	E(GAP, gap)             \
	E(NOW, now)             \
	E(DONE, done)           \
	E(FAILED, failed)

#define FAL_T_WHOLE(arg) uint64_t
#define FAL_T_ID(arg) uint32_t
#define FAL_T_REAL(arg) double
#define FAL_T_LOSS(arg) double
#define FAL_T_SECONDS(arg) double
#define FAL_T_FLAG(arg) bool
#define FAL_T_TEXT(arg) const char *
#define FAL_T_WORD(arg) uint32_t
#define FAL_T_HEX(arg) const char *
#define FAL_T_WORD64(arg) struct fal_hex64
#define FAL_T_TUPLE(arg) struct fal_numbers
#define FAL_T_ROWS(arg) struct fal_numbers
#define FAL_T_REALS(arg) struct fal_reals
#define FAL_T_HEXES(arg) struct fal_strings
#define FAL_T_LIST(arg)                       \
	struct {                              \
		const struct fal_ev_##arg *v; \
		size_t n;                     \
	}
/* The common layout of TUPLE, ROWS, REALS, HEXES and LIST. */
struct fal_trace_list {
	const void *v;
	size_t n;
};
#define FAL_T_OBJECT(arg) const struct fal_ev_##arg *
#define FAL_T_JSON(arg) struct fal_json_text

#define FAL_MEMBER(kind, name, when, arg) FAL_T_##kind(arg) name;
#define FAL_STRUCT(constant, event)          \
	struct fal_ev_##event {              \
		FAL_LINE_##event(FAL_MEMBER) \
	};
FAL_TRACE_OBJECTS(FAL_STRUCT)
FAL_TRACE_EVENTS(FAL_STRUCT)
#undef FAL_STRUCT
#undef FAL_MEMBER

enum fal_event {
	FAL_EV_OTHER, /* an event not in the table: readers skip it */
#define FAL_EVENT(constant, event) FAL_EV_##constant,
	FAL_TRACE_EVENTS(FAL_EVENT)
#undef FAL_EVENT
		FAL_EVENTS
};

/* The places of WORD members' words. */
enum fal_trace_end {
	FAL_END_APPLIED,
	FAL_END_DROPPED,
	FAL_END_ABANDONED,
	FAL_END_FORWARDED
};
enum { FAL_TRACE_GRAD, FAL_TRACE_DELTA };
enum { FAL_AUDIT_CLAIMS, FAL_AUDIT_SUMS };

/* A row of the table. */
struct fal_member {
	const char *name;
	enum fal_member_kind {
		FAL_M_WHOLE,
		FAL_M_ID,
		FAL_M_REAL,
		FAL_M_LOSS,
		FAL_M_SECONDS,
		FAL_M_FLAG,
		FAL_M_TEXT,
		FAL_M_WORD,
		FAL_M_HEX,
		FAL_M_WORD64,
		FAL_M_TUPLE,
		FAL_M_ROWS,
		FAL_M_REALS,
		FAL_M_HEXES,
		FAL_M_LIST,
		FAL_M_OBJECT,
		FAL_M_JSON
	} kind;
	enum fal_member_when { FAL_MUST, FAL_MAY, FAL_OPT } when;
	size_t at;                            /* offset in its struct */
	uint64_t arg;                         /* max, width, digits or n */
	const char *words;                    /* of a WORD */
	const struct fal_schema *(*of)(void); /* of a LIST or OBJECT: its record */
};

struct fal_schema {
	const char *name; /* of the event */
	size_t size;      /* of its struct, in bytes */
	const struct fal_member *member;
	size_t members;
};

/* Returns the schema of the event's lines, static; `ev` must not be FAL_EV_OTHER. */
const struct fal_schema *fal_event_schema(enum fal_event ev);
/* Returns the event of this name, or FAL_EV_OTHER. */
enum fal_event fal_event_find(const char *name);

/* Replaces the contents of `b` by the line, without its newline and link.  `t`: seconds
 * since the job began; `line`: the event's struct.  The error is b->err. */
void fal_trace_put(struct fal_buf *b, double t, enum fal_event ev, const void *line);

#endif
