/* Writes the lines of falcon-trace(5), with the members of fields.h.
 *
 * Pure: it knows what a line says, not whose state that is.
 * Each call replaces the contents of `b` by one line without its newline.  `t` is in
 * seconds since the job began.
 */
#ifndef FAL_TRACE_WRITER_H
#define FAL_TRACE_WRITER_H

#include "base/buf.h"
#include "optim/optim.h"
#include "sched/grid.h"
#include "sched/ledger.h"
#include "sched/rule.h"
#include "sched/sched.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whose line it is. */
struct fal_line_who {
	const char *name;
	uint32_t id;
};

/* The coordinator above, of whose job this one is a worker. */
struct fal_line_above {
	const char *address;
	const char *key, *key_fingerprint; /* by which it is one */
};

/* The job.  All borrowed, as below. */
struct fal_line_job {
	const char *name, *hash;
	const char *model, *data; /* hashes of their texts, or NULL */
	const char *from; /* SHA-256 of weights of elsewhere; NULL: it draws its own */
	uint64_t seed;
	struct fal_grid grid;
	uint32_t test, blocks, shards;
	size_t params;
	const struct fal_rule *rule; /* that it begins with */
	bool sums;                   /* audit = sums */
	uint32_t hashes;             /* one version of so many is hashed */
	bool skips;                  /* nonfinite = skip */
	const char *numerics;
	const struct fal_optim *optim;
	uint32_t incarnation;
	const struct fal_line_above *above; /* NULL: there is none */
};

/* Where the blocks are.  All borrowed. */
struct fal_line_place {
	uint64_t map;          /* its number */
	const char *rule;      /* that made it */
	const char *by;        /* who wanted blocks to move; NULL: nobody, as none has */
	double took;           /* seconds of the move */
	uint32_t shards;       /* of this incarnation, each with a block, */
	uint32_t places;       /* of so many that the rule knew; 0: all of them */
	const uint32_t *shard; /* of each block, from 0 */
	uint32_t blocks;
};

/* A worker that is ready. */
struct fal_line_join {
	struct fal_line_who who;
	const char *key, *key_fingerprint;
	uint32_t lanes_min, lanes_max, cores;
	const uint8_t *fingerprint; /* FAL_FINGERPRINT bytes */
	const char *build;          /* of its program; "": not told */
	const char *kernels;        /* that compute its tasks; the same */
	/* Its probe: of a task, and of `large` samples as one; 0: none. */
	uint64_t task_ns, large_ns;
	uint32_t large;
};

/* When a worker did what for a round, in µs of the trace's time. */
struct fal_line_spans {
	bool known;
	uint64_t pull[2], compute[2], push[2]; /* from, to */
	/* ns, of a task that had begun, and of pushing what was being made */
	uint64_t waited, streamed;
};

/* What a worker did in a round. */
struct fal_line_clock {
	struct fal_line_who who;
	uint64_t clock, round;
	bool own; /* the round is its own */
	uint32_t lanes;
	const struct fal_work *work;
	struct fal_line_spans spans;
	struct { /* where its time went, in ns */
		uint64_t compute, push, pull, wait, push_all, pull_all, late;
	} spent;
	double rtt;      /* seconds of a round trip to it; 0: not known */
	uint64_t tx, rx; /* bytes since its last line */
};

/* A shard, since its last line in this incarnation. */
struct fal_line_shard {
	uint32_t shard;             /* from 0 */
	uint64_t clock, version;    /* the newest of an update, of which all is told */
	const char *name, *address; /* whose it is, and where; NULL: the coordinator's */
	uint32_t blocks;
	uint64_t rx, tx;
	double service, queue;
	double took;  /* seconds until workers had all of its part of a version; NAN */
	double blame; /* in which they did nothing but wait for it */
};

/* A worker has not kept its deadline, or is back. */
struct fal_line_late {
	struct fal_line_who who;
	const char *why;  /* a few words */
	const char *owes; /* "task", "push" or "eval"; NULL: it is back */
	double seconds;   /* for which it owes that; for which it was a suspect */
};

/* A contribution that said to have needed more than others have shown. */
struct fal_line_check {
	uint64_t round;
	struct fal_cid id;
	uint32_t block;
	int needed, shown,
		exponent;     /* of the round's version; FAL_EXP_NONE: it has none */
	uint32_t by;          /* the worker that was asked; 0: nobody */
	const int8_t *counts; /* by block: what it counts as; NULL: as it said */
	uint32_t blocks;
	const char *verdict, *why; /* `why` may be NULL */
};

/* Unlike results of a task: of the claim, and of the key that computed it once more. */
struct fal_line_verify {
	uint64_t round, clock;
	uint32_t task;
	struct fal_cid id;
	struct {
		struct fal_line_who who;
		const uint8_t *hash; /* FAL_CLAIM_HASH bytes */
	} word[2];
};

/* An evaluation, and whose words make it. */
struct fal_line_eval {
	double t;
	uint64_t version, epoch, right, total;
	double loss;
	struct fal_line_eval_key {
		const char *name; /* of the key */
		uint32_t tasks;   /* that it evaluated */
		uint32_t twice;   /* of these, those that another key did, too */
		uint32_t alone; /* those that another one was to do, but none was there */
	} *key;
	size_t keys;
};

/* Blocks of a round that are made once more, because of a contribution. */
struct fal_line_again {
	struct fal_cid id;
	uint32_t blocks;
	const char *why;
};

/* What holds from this line on.  All borrowed. */
struct fal_line_policy {
	uint64_t clock;     /* the next to be opened */
	uint64_t version;   /* that it begins at */
	const char *scheme; /* canonical, as fal_rule_put writes it */
	const char *by;     /* "job", or the name of the key that changed it */
	const char *policy; /* JSON of falcon-policy(5); NULL: nothing but the scheme */
	size_t policy_n;    /* bytes of it */
};

/* Tasks of a round that were granted on this version. */
struct fal_granted_on {
	uint64_t round, version;
	uint32_t worker, first, count;
};

enum fal_round_end {
	FAL_ROUND_APPLIED,
	FAL_ROUND_DROPPED,
	FAL_ROUND_ABANDONED,
	FAL_ROUND_GIVEN
};

/* A round that has ended.  Its ledger has its tasks first … first+count-1. */
struct fal_line_ledger {
	double t;
	uint64_t round, clock;
	uint64_t version; /* that it ran on; the base of its local steps */
	uint32_t first, samples, blocks;
	enum fal_round_end end;
	double came;         /* when the last block of it came; 0: none did */
	const char *why;     /* dropped, abandoned: a few words, static */
	bool hashed;         /* it is known what each task gave */
	bool delta;          /* changes of weights, not gradients */
	double weight;       /* of a delta */
	uint32_t among;      /* workers of whom the weight is a share; 0: it is none */
	double divisor;      /* samples, of a round that stepped a line; 0: it did not */
	double lr;           /* of its steps: a delta's, or that of a line; 0: none */
	uint32_t steps;      /* of a delta */
	enum fal_start base; /* of a delta, what its steps began from */
	uint64_t since;      /* with FAL_START_REBASE */
	/* on which versions its tasks were granted, where it may have several; of all
	 * rounds */
	const struct fal_granted_on *on;
	size_t ons;
	uint32_t owner; /* worker id; 0: shared by all, or a group's */
	uint32_t group; /* from 1; 0: none */
	uint32_t local; /* rounds since its line took over `version`; 0: no line */
	/* staleness under its three names; of an applied round */
	uint64_t clocks;  /* its worker before the slowest */
	uint64_t updates; /* between `version` and the one that it is applied to */
	uint32_t rank;    /* of arrival in its slot, from 1; 0: no slots */
	uint64_t slot; /* dynsgd: its number in its worker's rounds, if it has a rank */
	bool sums;     /* audit = sums */
	/* checksums under `seed`: of the sum, and of what each contribution has added, by
	 * its place in the ledger; of those behind, 0 */
	uint64_t seed, added;
	const uint64_t *sum;
	size_t n_sums;
};

/* A round that was collected for an update. */
struct fal_collected {
	uint64_t round;
	uint32_t line;          /* that it stepped; 0: none */
	uint64_t loss, samples; /* of its tasks; loss modulo 2^64 */
	bool unknown;           /* the loss of one */
	uint64_t clock;
	bool own; /* of one worker or group, counted when it ended: health.c */
};

/* The line of a group, pushed. */
struct fal_line_push {
	uint32_t group;
	double weight;  /* what it has changed counts by */
	uint32_t among; /* workers of whom that is a share; 0: of samples */
};

/* A new version. */
struct fal_line_update {
	double t;
	uint64_t version; /* the new one */
	uint64_t clock;   /* the newest data clock in it */
	uint64_t epoch;   /* of this clock, from 1 */
	/* that it is made of, in the order of their ledger lines */
	const struct fal_collected *round;
	size_t rounds;
	const struct fal_line_push *push;
	size_t pushes;
	uint32_t groups; /* that there were, of whom a quorum has pushed; 0: none */
	double outer, momentum; /* of its outer step; 0: none */
	double divisor; /* samples that gradients were divided by; 0: there were none */
	uint32_t samples;
	double loss, lr;
	double norm; /* of the mean gradient; 0: none that may be clipped */
	/* FAL_HASH_BYTES, of the version and of its exponents; NULL: not of this one */
	const uint8_t *hash, *exponents;
	double made[2]; /* when the first shard had made its part, or some of it had left
			   before, and when the last one had made its own; {0}: there is
			   one, and nothing has */
};

/* A task that makes no finite result, says the worker. */
struct fal_line_doubt {
	struct fal_line_who who;
	uint64_t round, clock;
	uint32_t task;
	uint64_t first_sample; /* a place in the order of the epoch */
};

/* The job is done. */
struct fal_line_done {
	double t;
	uint64_t version;
	/* hex: of the model's file; of the version.  NULL: they are kept above */
	const char *sha256, *hash;
	const char *journal; /* the last link of the policy journal; "": it has no line */
	double accuracy;     /* of the last evaluation; negative: there was none */
	double trained;      /* seconds, as the result has them */
};

/* Lines that are not there, and the hash of what they were. */
struct fal_line_gap {
	const char *t; /* of the last of them, as it was written */
	uint64_t lines, bytes;
	const char *blake2b; /* hex */
	const char *link;    /* of the last of them (chain.h) */
};

/* A job goes on. */
struct fal_line_restart {
	const char *hash; /* of the job, which may have more epochs by now */
	const char *model, *data, *from; /* as of the job line */
	const char *accepted; /* kinds of files that are others; NULL, "": none */
	uint64_t epochs;
	double t;
	uint32_t incarnation;
	uint64_t clock, version; /* the next clock, the newest version */
	uint64_t until;          /* clocks that were over before */
	uint64_t lines;          /* that count of those before this one */
	uint64_t torn;           /* bytes at its end that were cut off */
};

void fal_line_job(struct fal_buf *b, const struct fal_line_job *d);
void fal_line_place(struct fal_buf *b, double t, const struct fal_line_place *d);
void fal_line_shard(struct fal_buf *b, double t, const struct fal_line_shard *d);
void fal_line_restart(struct fal_buf *b, const struct fal_line_restart *d);
void fal_line_policy(struct fal_buf *b, double t, const struct fal_line_policy *d);
/* `why` is "paused", "policy", "resumed" or "stopped"; `by` the name of a key. */
void fal_line_hold(struct fal_buf *b, double t, const char *why, const char *by);
void fal_line_join(struct fal_buf *b, double t, const struct fal_line_join *d);
/* It is a group server, with so many workers of its own. */
void fal_line_group(struct fal_buf *b, double t, struct fal_line_who who,
		    uint32_t members, uint32_t lanes);
/* `fell`: it was lost with what it had in hand. */
void fal_line_leave(struct fal_buf *b, double t, struct fal_line_who who, const char *why,
		    bool fell);
void fal_line_clock(struct fal_buf *b, double t, const struct fal_line_clock *d);
void fal_line_ledger(struct fal_buf *b, const struct fal_line_ledger *d,
		     const struct fal_ledger *l);
void fal_line_update(struct fal_buf *b, const struct fal_line_update *d);
/* A version came from above. */
void fal_line_newer(struct fal_buf *b, double t, uint64_t version);
void fal_line_eval(struct fal_buf *b, const struct fal_line_eval *d);
/* `suspect` or `back`. */
void fal_line_late(struct fal_buf *b, double t, const struct fal_line_late *d);
void fal_line_charge(struct fal_buf *b, double t, struct fal_line_who who,
		     const char *why);
void fal_line_refuse(struct fal_buf *b, double t, const char *key, const char *why,
		     uint64_t count);
/* `why` has the name of the worker whose trainer can do nothing for the job. */
void fal_line_trainer(struct fal_buf *b, double t, const char *key, const char *why);
void fal_line_nonfinite(struct fal_buf *b, double t, const struct fal_line_doubt *d);
/* seconds: in which another key's word is waited for. */
void fal_line_alone(struct fal_buf *b, double t, const struct fal_line_doubt *d,
		    double seconds);
/* Nobody of another key is here who could say whether the job has diverged.  seconds: in
 * which one is waited for; 0: no longer. */
struct fal_line_diverged {
	struct fal_line_who who;
	uint64_t clock;
	const char *why;
	double seconds;
};
void fal_line_diverged(struct fal_buf *b, double t, const struct fal_line_diverged *d);
void fal_line_check(struct fal_buf *b, double t, const struct fal_line_check *d);
void fal_line_verify(struct fal_buf *b, double t, const struct fal_line_verify *d);
void fal_line_again(struct fal_buf *b, double t, const struct fal_round_info *r,
		    const struct fal_line_again *d);
void fal_line_gap(struct fal_buf *b, const struct fal_line_gap *d);
/* `link`: of the last line before (chain.h). */
void fal_line_now(struct fal_buf *b, double t, const char *link);
void fal_line_done(struct fal_buf *b, const struct fal_line_done *d);
void fal_line_failed(struct fal_buf *b, double t, uint64_t version, double trained,
		     const char *why);

#endif
