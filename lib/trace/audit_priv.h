/* Shared by the files of the audit.  Calls go downwards:
 *
 *	audit.c     all lines: workers, tasks that have ended, versions
 *	ledger.c    one round: every task must have been added exactly once
 *	schemes.c   the promises of each scheme about its rounds and versions
 *	findings.c  findings, and the sums of a worker's work
 */
#ifndef FAL_TRACE_AUDIT_PRIV_H
#define FAL_TRACE_AUDIT_PRIV_H

#include "base/intervals.h"
#include "sched/policy.h"
#include "trace/audit.h"
#include "trace/reader.h"

/* ---- findings.c ----------------------------------------------------------------------
 */

/* The most findings of one kind that are kept as text; further findings are only counted.
 * Findings of one kind have the same format. */
#define FAL_FINDINGS_KIND_MAX 20

/* {0} is empty and valid. */
struct fal_findings {
	uint64_t n; /* all of them */
	char **text;
	size_t n_text, cap;
	struct fal_findings_kind {
		const char *fmt;
		uint64_t n;  /* all of them */
		size_t last; /* the place in `text` of the last one */
	} *kind;
	size_t kinds, kind_cap;
};

/* Adds "clock 7: tasks 3-4: …", or "round 9 of clock 7: …" if the round's number is not
 * its clock's.  `r` NULL: the text has no round; count 0: the text has no tasks. */
void fal_finding(struct fal_findings *f, const struct fal_trace_round *r, uint64_t first,
		 uint64_t count, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* Adds "line 12: …". */
void fal_finding_of_line(struct fal_findings *f, const struct fal_trace_line *l,
			 const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Adds the number of further findings to the last text of each kind.  To be called
 * once. */
void fal_findings_end(struct fal_findings *f);

/* The figures of a worker's work, by its clock lines and by the ledger. */
enum fal_figure {
	FAL_FIGURE_SHARE,
	FAL_FIGURE_DONE,
	FAL_FIGURE_IN,
	FAL_FIGURE_OUT,
	FAL_FIGURE_CLONED,
	FAL_FIGURE_LOST,
	FAL_FIGURES
};

/* A worker that joined. */
struct audit_worker {
	size_t key; /* its number in `key`, from 1; 0: the trace does not say */
	uint32_t charges;
	bool is_here, is_suspect;
	double joined_at, suspect_since;
	char *name;
	uint64_t joined_version, left_version; /* the newest version at that time */
	/* Sums of each figure.  reported: in clock lines.  certain: in ledger lines, work
	 * that clock lines must have reported by now.  possible: in ledger lines, work
	 * that clock lines may have reported. */
	uint64_t reported[FAL_FIGURES], certain[FAL_FIGURES], possible[FAL_FIGURES];
	bool has_reported;         /* it has a clock line */
	double spent;              /* seconds, in its clock lines but the first */
	uint64_t next_clock;       /* of its next clock line; 0: it has no line */
	struct fal_intervals seqs; /* of its contributions */
};

/* Returns the worker that joined with this id; NULL: none did. */
struct audit_worker *fal_audit_worker(const struct fal_audit *a, uint64_t id);

/* Counts so many tasks of the round as the worker's work; `possible`: as work that the
 * worker may have done and need not report.  It is a finding if the worker was not here
 * when the tasks could be granted. */
void fal_audit_add_figure(struct fal_audit *a, const struct fal_trace_round *r,
			  uint64_t id, enum fal_figure figure, uint64_t tasks,
			  bool possible);

/* Adds a range to the set.  Returns whether the set had a part of the range before;
 * *twice is then the first number of that part.  If the set has too many runs, returns
 * false, and the line fails. */
bool fal_audit_add_range(struct fal_trace_line *l, struct fal_intervals *s,
			 uint64_t begin, uint64_t end, uint64_t *twice);

/* ---- audit.c ------------------------------------------------------------------------
 */

/* The scheme in force, and the rounds under this scheme.  {0} is valid before the first
 * scheme. */
struct fal_rules {
	struct fal_rule rule;
	struct fal_traits traits; /* of the rule */
	bool wants_divisors;      /* FAL_AUDIT_PARTS is demanded */
	uint64_t base_version;    /* the newest version when the scheme began */
	uint64_t applied;         /* rounds applied since then */
	/* dynsgd by version: the ranks given so far in its open slots. */
	struct fal_slot {
		uint64_t slot, rank;
	} *slot;
	size_t slots, cap;
	uint64_t newest_slot;
	/* If the scheme has a quorum: the groups' pushes in the version being read.
	 */
	struct fal_pushed {
		uint64_t group, samples, rounds;
		double weight; /* of its branch; 0: not given */
	} *push;
	size_t pushes, push_cap;
};

struct fal_audit {
	bool has_job;
	unsigned demands;
	struct fal_audit_facts facts;
	struct fal_chain chain;
	struct fal_trace_job job;
	struct {
		struct fal_ids ids; /* of all that joined: places in `v` */
		json_t *names;      /* by name: the last worker that joined */
		struct audit_worker *v;
		size_t n, cap;
		struct audit_key {
			char *name, *fingerprint;
			uint32_t charges; /* of its workers */
		} *key;
		size_t keys, key_cap;
		uint32_t must_leave; /* id of a worker with two charges: the next worker
				      * to leave; 0: none */
	} workers;
	struct {
		uint64_t last_base;    /* the version that the last round ran on */
		bool has_late_joins;   /* workers may join a round after others have
					  reported it */
		bool was_restarted;    /* reports to the old coordinator are lost */
		bool has_early_claims; /* workers may have reported before their round
					  ended */
	} accounts;
	struct fal_trace_place place;
	struct {                 /* shard lines; {0}: none yet in this incarnation */
		uint64_t next;   /* shards so far in a set; 0: a set begins */
		uint64_t over;   /* the clock of the last set, and 1 */
		uint64_t blocks; /* of this set, so far */
	} shards;
	bool has_policy; /* there was a policy line */
	/* The tasks that have ended, for each part of the data (job.parts).  The
	 * scheduler hands clocks out in order within a part of the data, so the tasks
	 * form few runs. */
	struct fal_intervals *ended_tasks;
	struct fal_intervals round_numbers; /* so far */
	uint64_t last_round;
	char scheme[256];
	struct fal_rules rules;
	/* All rounds so far were shared, and no round was abandoned.  So each round's
	 * number is its clock's, and next_clock comes next. */
	bool rounds_are_clocks;
	bool has_delay; /* several clocks may have ended together */
	uint64_t next_clock;
	/* Rounds that were applied, in order, and are in no version yet. */
	struct fal_trace_round *waiting;
	size_t n_waiting, cap_waiting;
	uint64_t version;      /* the newest */
	char version_hash[65]; /* hash; "": its line has none */
	/* first_eval: the version of the first evaluation.  stray_eval: an evaluated
	 * version that is no multiple of first_eval, or 0. */
	uint64_t first_eval, stray_eval;
	bool done, ended;                 /* ended: done, or failed */
	struct fal_audit_verdict verdict; /* sums so far */
	size_t evals_cap;
	/* Results that were not finite, of tasks that have not ended. */
	struct nonfinite {
		uint64_t clock, task;
	} *nonfinite;
	size_t nonfinites, nonfinite_cap;
	struct fal_findings findings;
	bool is_group; /* the trace of a group server: its rounds become parts of versions
			  of the coordinator above */
};

/* ---- ledger.c ------------------------------------------------------------------------
 */

/* Limits of one ledger line, so that judging a line stays cheap. */
#define FAL_JUDGE_EVENTS_MAX ((size_t)1 << 22) /* sum of all its counts */
#define FAL_JUDGE_CONTRIBS_MAX ((size_t)1 << 16)
#define FAL_JUDGE_TASK_EVENTS_MAX ((size_t)1 << 12) /* that name one task */

/* Judges a ledger line, and adds to the sums of the audit.  All rules hold for a round
 * that was applied; a round that was dropped or abandoned may be incomplete.  The tasks
 * must be tasks of the clock of round `r`.  Findings are not errors: l->err is
 * FAL_EFORMAT, FAL_ELIMIT or FAL_ENOMEM. */
void fal_judge_ledger(struct fal_audit *a, struct fal_trace_line *l,
		      const struct fal_trace_round *r);

/* ---- schemes.c -----------------------------------------------------------------------
 */

/* Judges a round that has ended. */
void fal_rules_judge_round(struct fal_rules *s, const struct fal_trace_round *r,
			   struct fal_findings *f);

/* An update line, and the update's rounds so far. */
struct fal_rules_update {
	const struct fal_ev_update *line;
	uint64_t version;            /* the next one */
	uint64_t tasks;              /* of all rounds but `last` */
	size_t at;                   /* the place of `last`, from 0 */
	struct fal_trace_round last; /* the newest round; tasks 0: none yet */
	/* group, base_version: of the first round; with a quorum, of the first round of
	 * the group of `last`.  local: the place of `last` counted from that round, from
	 * 1. */
	uint64_t group, base_version, local;
	/* Samples of the clock of `last`, without those that `last` skipped. */
	uint64_t clock_samples;
	uint64_t samples, clock; /* of all rounds; of the newest clock */
	double share;            /* of clocks */
};

/* fal_rules_begin_update begins an update; fal_rules_judge_update_round judges the
 * update's newest round, u->last; fal_rules_end_update judges the whole update. */
void fal_rules_begin_update(struct fal_rules *s, const struct fal_ev_update *line);
void fal_rules_judge_update_round(struct fal_rules *s, const struct fal_rules_update *u,
				  struct fal_findings *f);
void fal_rules_end_update(const struct fal_rules *s, const struct fal_rules_update *u,
			  struct fal_findings *f);

#endif
