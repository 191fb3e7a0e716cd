/* Rules, the traits of each scheme, and policies.
 *
 * A rule is a scheme with its parameters, as in job files and policies:
 * NAME[:N][,KEY=VALUE...] (falcon-policy(5)).  The scheme's own file gives the words
 * their meaning.  A policy is the rule of a job and the settings of single workers:
 * falcon-sync changes a policy, falcon-proj proposes one; as JSON a policy is
 * falcon-policy(5). */
#ifndef FAL_SCHED_POLICY_H
#define FAL_SCHED_POLICY_H

#include "base/buf.h"
#include "base/err.h"
#include "sched/grid.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fal_scheme_id {
	FAL_BSP,
	FAL_ASP,
	FAL_SSP,
	FAL_EPSP,
	FAL_FLEXRR,
	FAL_SYNCOPT,
	FAL_CONSGD,
	FAL_DYNSGD,
	FAL_WBSP,
	FAL_GROUPS,
	FAL_RENNALA,
	FAL_RINGMASTER,
	FAL_SCHEMES
};

enum { FAL_SLACK_MAX = 64, FAL_SLACK_OF_MAX = 4096, FAL_LOCAL_STEPS_MAX = 1024 };

/* Fields that a scheme does not use are 0.  Defaults are those of falcon-policy(5). */
struct fal_rule {
	enum fal_scheme_id scheme;
	bool by_speed;      /* bsp: shares=speed, in proportion to it, instead of equal */
	uint32_t slack;     /* s: ssp, flexrr, consgd, dynsgd (3; flexrr 1), epsp (0) */
	uint32_t early, of; /* epsp:p/q, with a slack of 1: p and q, in lowest terms; 0,
			       0: no fraction */
	uint32_t backups;   /* b: syncopt; FAL_BACKUPS_AUTO: max(1, 5 % of the workers,
			       rounded) */
	uint32_t groups;    /* G: groups; 0: progressive */
	uint32_t most;      /* groups, progressive: most groups (g_max) */
	uint32_t window;    /* groups, progressive: central updates between decisions */
	bool delta;         /* groups: mode=delta */
	uint32_t rounds;    /* groups, mode=delta: a group's rounds between pushes (h) */
	uint32_t quorum; /* groups: a version waits for so many pushes; 0: each makes one
			  */
	double grace;    /* and then so many seconds for others */
	double outer, momentum; /* with both: the rate and momentum of the outer step */
	uint32_t helpers;       /* flexrr: helpers of a worker, its next ones in a ring */
	bool half;              /* flexrr: steal=half, the finisher takes half */
	double lambda;          /* consgd; 0: 1/M */
	bool by_updates;        /* dynsgd: staleness=updates instead of version */
	bool overlap; /* wbsp: the next local step begins before the push is done */
	bool slowest; /* wbsp: publish=slowest, the slowest has pushed, instead of all */
	uint32_t batch;     /* B: rennala: so many tasks make an update; 0: a clock's */
	uint32_t threshold; /* R: ringmaster: a gradient so many updates old is dropped;
			       0: as many as there are workers */
	uint32_t cap;       /* wbsp: most local steps between two publications */
	uint32_t steps;     /* local steps of a worker's clock: the delta schemes */
};

#define FAL_BACKUPS_AUTO UINT32_MAX

/* Reads `text`: names, keys and words are lower case, keys stand in any order, each at
 * most once, nothing is left empty.  A number may be left out, or be its word: `auto` of
 * syncopt and ringmaster, `clock` of rennala, `progressive` of groups; `max` and `window`
 * belong to progressive groups, `rounds` to mode=delta, `grace` to a quorum, `outer` and
 * `momentum` to both. FAL_EINVAL with `diag`: the fault, and the value. */
int fal_rule_parse(const char *text, struct fal_rule *out, struct fal_diag *diag);

/* Appends the text of a rule: the number always (but "epsp" for epsp:0), then the keys
 * that are not at their default.  "epsp:2", "dynsgd:3", "groups:progressive,max=8". Equal
 * rules give equal texts, and each text parses to its rule. */
void fal_rule_put(const struct fal_rule *r, struct fal_buf *out);

/* Writes the same text with its NUL; returns `out`. */
enum { FAL_RULE_TEXT = 256 };
const char *fal_rule_text(const struct fal_rule *r, char out[static FAL_RULE_TEXT]);

bool fal_rule_equal(const struct fal_rule *a, const struct fal_rule *b);

/* Do workers, or groups, step weights of their own between the updates of the model, to
 * which they send changes of weights? */
bool fal_rule_has_local_steps(const struct fal_rule *r);

/* Do both rules give the same model, bit by bit, under the law?  bsp and epsp:0, ssp:0,
 * flexrr:0 do; every other rule does only with itself. */
bool fal_rule_same_model(const struct fal_rule *a, const struct fal_rule *b);

/* ---- traits ---- */

/* The facts of a rule for code outside of the scheme's own file: a caller that asks
 * whether rounds are shared, gradients late or weights changed asks here, and names no
 * scheme. */
struct fal_traits {
	/* The owner of a round; exactly one is true. */
	bool shared; /* all workers: a clock is a round */
	bool groups; /* a group of workers */
	bool own;    /* one worker */

	bool delta;    /* rounds bring changes of weights by local steps, not gradients */
	bool local;    /* weights are stepped between updates: by workers, or on a line */
	bool mixed;    /* the tasks of a round may be computed on several versions */
	bool moves;    /* tasks move to other workers by measured speeds */
	bool by_speed; /* shares are in proportion to speed */
	bool waits;    /* a worker may have to wait for others */
	bool bounded;  /* no worker is more than `slack` clocks ahead of the slowest */
	bool waves; /* a clock's rounds, of one worker each, are collected and applied as
		       one update */

	bool law;   /* the model is the same whichever worker computes a task */
	bool ahead; /* an update may be ordered before its tasks are complete */
	bool alone; /* each round, or quorum of rounds, is an update of its own, between
		       updates of others */
	bool overlaps;  /* a worker's next round begins while its last one is pushed */
	bool collects;  /* a version may be made of several rounds */
	bool fresh;     /* a version is made of rounds on the version before it only */
	bool counted;   /* an update is a whole step, whatever part of a clock it has */
	bool ranked;    /* rounds count by the order in which they reach their slot */
	bool slacks;    /* the slack is a number of versions: */
	uint32_t delay; /* versions by which each update is late, on purpose; with a
			   fraction of slack only its early tasks are */
};

struct fal_traits fal_rule_traits(const struct fal_rule *r);

/* The clock's first task that is not early.  Under epsp:p/q tasks before it are computed
 * on the version before that of the others, unless the clock is the first one of the
 * rule. UINT32_MAX: all tasks are computed on one version. */
uint32_t fal_rule_first_late_task(const struct fal_rule *r, const struct fal_grid *g,
				  uint64_t clock);
/* FAL_EINVAL with `diag`: a fraction of slack without a task; the message names the least
 * fraction with one. */
int fal_rule_check_grid(const struct fal_rule *r, const struct fal_grid *g,
			struct fal_diag *diag);

/* "bsp"; static. */
const char *fal_scheme_name(enum fal_scheme_id id);

/* ---- policies ---- */

enum { FAL_SITE = 64 }; /* bytes of a site's name, with the NUL */

/* The settings of all live sessions of a worker's name. */
struct fal_policy_worker {
	char *name;
	uint32_t lanes_min, lanes_max; /* bounds; 0: the worker's own */
	double share;                  /* weight of its first share; < 0: as projected */
	bool excluded;                 /* gets no tasks */
	bool admitted;                 /* in a patch: ends an exclusion */
	char site[FAL_SITE];           /* its location; "": unknown */
};

/* {0} with a rule is valid.  The holder owns it: fal_policy_free. */
struct fal_policy {
	struct fal_rule rule;
	bool no_clones;
	struct fal_policy_worker *worker; /* sorted by name */
	size_t workers, worker_cap;
};

void fal_policy_free(struct fal_policy *p); /* `p` is {0} again */
struct fal_policy fal_policy_copy(const struct fal_policy *p);
/* The entry of this name, or NULL. */
const struct fal_policy_worker *fal_policy_find(const struct fal_policy *p,
						const char *name);
/* The entry of this name, made if there is none; borrowed until the next call that
 * changes the policy. */
struct fal_policy_worker *fal_policy_entry(struct fal_policy *p, const char *name);
/* Removes the entries without a setting. */
void fal_policy_tidy(struct fal_policy *p);

#endif
