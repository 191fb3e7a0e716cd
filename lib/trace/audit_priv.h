/* Shared by the files of the audit: findings, and the calls from file to file.
 *
 *	audit.c    all lines: workers, tasks that have ended, versions, schemes
 *	ledger.c   one round: was every task of it added exactly once?
 *	schemes.c  the promises of each scheme about its rounds and versions
 */
#ifndef FAL_TRACE_AUDIT_PRIV_H
#define FAL_TRACE_AUDIT_PRIV_H

#include "base/intervals.h"
#include "sched/policy.h"
#include "trace/audit.h"
#include "trace/reader.h"

/* ---- findings: what is wrong, and with which task of which round ---------------------
 */

/* Findings of one kind, which is their format, that are kept as text; further ones are
 * only counted. */
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

/* Adds "clock 7: tasks 3-4: …", or, for a round that is not just a clock, "round 9 of
 * clock 7: …".  `r` NULL: without; count 0: without tasks. */
void fal_finding(struct fal_findings *f, const struct fal_trace_round *r, uint64_t first,
		 uint64_t count, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

/* ---- the audit --------------------------------------------------------------------- */

/* The scheme that holds, and the rounds under it.  {0} is valid before the first one. */
struct fal_rules {
	struct fal_rule rule;
	struct fal_traits is; /* of it */
	bool all_said;        /* FAL_AUDIT_PARTS is demanded */
	uint64_t base;        /* the newest version when the scheme began */
	uint64_t applied;     /* rounds since */
	/* dynsgd by version: the ranks given so far in its open slots. */
	struct fal_slot {
		uint64_t slot, rank;
	} *slot;
	size_t slots, cap;
	uint64_t newest; /* slot */
	/* The pushes of groups in the version that is read, if its scheme has a quorum.
	 */
	struct fal_pushed {
		uint64_t group, samples, rounds;
		double weight; /* of its line; 0: it has none */
	} *push;
	size_t pushes, push_cap;
};

/* Figures of a worker's work, by its clock lines and by the ledger. */
enum fal_figure {
	FAL_FIGURE_SHARE,
	FAL_FIGURE_DONE,
	FAL_FIGURE_IN,
	FAL_FIGURE_OUT,
	FAL_FIGURE_CLONED,
	FAL_FIGURE_LOST,
	FAL_FIGURES
};

/* A worker that joined: its names, and its work by its clock lines and by the ledger. */
struct person {
	size_t key; /* a place in `key`, and 1; 0: the trace does not say */
	uint32_t charges;
	bool here, suspect;
	double joined, since; /* since: when it became a suspect */
	char *name;
	uint64_t oldest, newest; /* the newest version when it joined, and left */
	/* Sums of each figure: in clock lines; in ledger lines those that clock lines
	 * must have by now, and those that they may have. */
	uint64_t told[FAL_FIGURES], sure[FAL_FIGURES], maybe[FAL_FIGURES];
	bool begun;   /* it has had a clock line */
	double spent; /* seconds, told in those behind the first */
	uint64_t due; /* the clock of its next line, if it has had one; or 0 */
	struct fal_intervals seqs; /* of its contributions */
};

struct fal_audit {
	bool any, have_job; /* lines; that of the job */
	unsigned demands;
	struct fal_audit_told told;
	struct fal_chain chain;
	struct fal_trace_job job;
	struct {
		struct fal_ids ids; /* of all that joined: places in `v` */
		json_t *names;      /* of each the last that joined */
		struct person *v;
		size_t n, cap;
		struct person_key {
			char *name, *fingerprint;
			uint32_t charges; /* of its workers */
		} *key;
		size_t keys, key_cap;
		uint32_t leaves; /* was charged twice: the next to go; 0: none */
	} people;
	struct {
		uint64_t ran_on; /* the version that the last round ran on */
		bool loose; /* workers of some rounds may join them when others have told
			     */
		bool lost;  /* the coordinator was restarted: what it was told is */
		bool ahead; /* workers may have told before their round ended */
	} accounts;
	struct fal_trace_place place;
	struct {                 /* shard lines; {0}: none yet in this incarnation */
		uint64_t next;   /* shard that the next line is of; 0: a set begins */
		uint64_t over;   /* behind the clock of the last set */
		uint64_t blocks; /* of this one, so far */
	} shards;
	bool policy; /* there was a policy line */
	/* The tasks that have ended, of each of job.parts: clocks are handed out in order
	 * within a part of the data, so that the tasks form few runs. */
	struct fal_intervals *part;
	struct fal_intervals rounds; /* numbers that have been */
	uint64_t last_round;
	char text[256]; /* of the scheme */
	struct fal_rules rules;
	/* Only shared rounds so far, none abandoned: each is its clock, and `due` next.
	 */
	bool plain;
	bool delayed; /* clocks were over together, or may have been */
	uint64_t due;
	/* Rounds that were applied, in order, and are in no version yet. */
	struct fal_trace_round *waiting;
	size_t n_waiting, cap_waiting;
	uint64_t version;              /* the newest */
	char hash[65];                 /* its hash; "": its line has none */
	uint64_t first_eval, odd_eval; /* versions: of the first evaluation; of one that
					* is no multiple of it, or 0 */
	bool done, ended;              /* ended: or failed */
	struct fal_audit_verdict v;    /* sums so far */
	size_t evals_cap;
	/* Results that were not finite, of tasks that have not ended. */
	struct nonfinite {
		uint64_t clock, task;
	} *nonfinite;
	size_t nonfinites, nonfinite_cap;
	struct fal_findings f;
	bool group; /* the trace is a group's: what it makes becomes a part of a version
		     * above */
};

/* The worker that joined with this id; NULL: none did. */
struct person *fal_audit_person(const struct fal_audit *a, uint64_t id);

/* Adds to the set: were some of these there, *twice being the first?  False, and the line
 * fails, where there are too many runs. */
bool fal_audit_span(struct fal_trace_line *l, struct fal_intervals *s, uint64_t begin,
		    uint64_t end, uint64_t *twice);

/* The worker did so many tasks of the round or, with `maybe`, may have done them: such a
 * worker need not tell of them.  The worker must have been here when the tasks could be
 * granted. */
void fal_audit_count(struct fal_audit *a, const struct fal_trace_round *r, uint64_t id,
		     enum fal_figure what, uint64_t tasks, bool maybe);

/* ---- ledger.c ------------------------------------------------------------------------
 */

/* Limits of one ledger line, so that judging it stays cheap. */
#define FAL_JUDGE_EVENTS_MAX ((size_t)1 << 22) /* sum of all its counts */
#define FAL_JUDGE_CONTRIBS_MAX ((size_t)1 << 16)
#define FAL_JUDGE_TASK_EVENTS_MAX ((size_t)1 << 12) /* that name one task */

/* Judges the line (ev = ledger), and adds to the sums of the audit: all rules for a round
 * that was applied; one that was dropped or abandoned may be incomplete.  The clock of
 * round r has the round's tasks.  Findings are not errors: l->err is FAL_EFORMAT,
 * FAL_ELIMIT or FAL_ENOMEM. */
void fal_judge_ledger(struct fal_audit *a, struct fal_trace_line *l,
		      const struct fal_trace_round *r);

/* ---- schemes.c -----------------------------------------------------------------------
 */

/* Judges a round that has ended. */
void fal_rules_round(struct fal_rules *s, const struct fal_trace_round *r,
		     struct fal_findings *f);

/* An update, and its rounds so far. */
struct fal_rules_update {
	const struct fal_ev_update *line;
	uint64_t version;            /* that it should make */
	uint64_t tasks;              /* of all rounds but `last` */
	size_t at;                   /* the place of `last`, from 0 */
	struct fal_trace_round last; /* the newest of them; tasks 0: none yet */
	/* the first round, of a quorum that of its group: its group, its version; the
	 * place of `last` among the rounds from there on, from 1 */
	uint64_t group, model, local;
	uint64_t
		clock_samples; /* of the clock of `last`, but for those that it skipped */
	uint64_t samples, clock; /* of all rounds; of the newest clock */
	double share;            /* of clocks */
};

/* An update begins; `last` became a part of it; `last` was the last one. */
void fal_rules_update(struct fal_rules *s, const struct fal_ev_update *line);
void fal_rules_update_round(struct fal_rules *s, const struct fal_rules_update *u,
			    struct fal_findings *f);
void fal_rules_update_end(const struct fal_rules *s, const struct fal_rules_update *u,
			  struct fal_findings *f);

#endif
