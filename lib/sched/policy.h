/* Rules, traits of schemes, and policies.
 *
 * A rule is a scheme with its parameters, as in job files and policies:
 * NAME[:N][,KEY=VALUE...] (falcon-policy(5)).  The comments in each scheme's own file
 * explain its parameters.  Traits are facts about a rule, for code that must not name
 * schemes.  A policy is the rule of a job and the settings of single workers.
 * falcon-sync changes a policy; falcon-proj proposes a policy; falcon-policy(5) has the
 * JSON form. */
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

enum { FAL_SLACK_MAX = 64, FAL_LOCAL_STEPS_MAX = 1024 };

/* Fields that a scheme does not use are 0.  Defaults are those of falcon-policy(5). */
struct fal_rule {
	enum fal_scheme_id scheme;
	/* bsp: shares=speed: shares are in proportion to speed, instead of equal */
	bool by_speed;
	uint32_t slack; /* s: ssp, consgd, dynsgd (default 3), flexrr (1), epsp (0) */
	/* epsp:p/q: p and q in lowest terms, and slack is 1; 0, 0: the slack is no
	 * fraction */
	uint32_t slack_p, slack_q;
	uint32_t backups;    /* b: syncopt; FAL_BACKUPS_AUTO: max(1, 5 % of the workers,
				rounded) */
	uint32_t groups;     /* G: groups; 0: progressive */
	uint32_t max_groups; /* groups, progressive: the most groups (g_max) */
	/* groups, progressive: updates of the model between decisions */
	uint32_t window;
	bool delta;      /* groups: mode=delta */
	uint32_t rounds; /* groups, mode=delta: a group's rounds between pushes (h) */
	/* groups: a version waits for so many pushes; 0: each push makes a version */
	uint32_t quorum;
	/* with a quorum: the version then waits so many seconds for other pushes */
	double grace;
	/* groups with delta and a quorum: rate and momentum of the outer step */
	double outer_rate, momentum;
	/* flexrr: helpers of each worker, the next workers in a ring */
	uint32_t helpers;
	/* flexrr: steal=half: a worker that has finished takes half of another's rest */
	bool steals_half;
	double lambda;   /* consgd: λ; 0: 1/M, with M workers */
	bool by_updates; /* dynsgd: staleness=updates instead of version */
	/* wbsp: overlap=yes: the next local step begins before the push is done */
	bool overlap;
	/* wbsp: publish=slowest: publish when the slowest worker has pushed, instead of
	 * all workers */
	bool slowest;
	/* B: rennala: so many tasks make an update; 0: as many as a clock has */
	uint32_t batch;
	/* R: ringmaster: a gradient that is R updates old is dropped; 0: R is the number
	 * of workers */
	uint32_t threshold;
	uint32_t cap;   /* wbsp: the most local steps between two pulls */
	uint32_t steps; /* schemes with delta: local steps in a clock of a worker */
};

#define FAL_BACKUPS_AUTO UINT32_MAX

/* Reads `text`.  Names, keys and words are lower case.  Keys stand in any order, each at
 * most once, and none has an empty value.  A number may be left out, or be a word: `auto`
 * of syncopt and ringmaster, `clock` of rennala, `progressive` of groups; `max` and
 * `window` belong to progressive groups, `rounds` to mode=delta, `grace` to a quorum,
 * `outer` and `momentum` to mode=delta with a quorum.  FAL_EINVAL with `diag`: the fault,
 * and the value. */
int fal_rule_parse(const char *text, struct fal_rule *out, struct fal_diag *diag);

/* Appends the text of a rule: the number always (but "epsp" for epsp:0), then the keys
 * that are not at their default.  "epsp:2", "dynsgd:3", "groups:progressive,max=8". Equal
 * rules give equal texts, and each text parses to its rule. */
void fal_rule_put(const struct fal_rule *r, struct fal_buf *out);

/* Writes the same text with its NUL; returns `out`. */
enum { FAL_RULE_TEXT = 256 };
const char *fal_rule_text(const struct fal_rule *r, char out[static FAL_RULE_TEXT]);

bool fal_rule_equal(const struct fal_rule *a, const struct fal_rule *b);

/* Do workers or groups step weights of their own between updates, and push changes of
 * weights? */
bool fal_rule_has_local_steps(const struct fal_rule *r);

/* Do both rules give the same model, bit by bit, whichever worker computes a task?  bsp,
 * epsp:0, ssp:0 and flexrr:0 all give the same model.  Any other rule gives the same
 * model only as an equal rule. */
bool fal_rule_same_model(const struct fal_rule *a, const struct fal_rule *b);

/* ---- traits ---- */

/* Facts about a rule, for code outside of the scheme's own file.  Such code asks for
 * traits and names no scheme. */
struct fal_traits {
	/* The owner of a round; exactly one is true. */
	bool shared; /* all workers: a clock is a round */
	bool groups; /* a group of workers */
	bool own;    /* one worker */

	/* rounds bring changes of weights, made by local steps, and no gradients */
	bool delta;
	bool local;    /* workers, or groups on branches, step weights between updates */
	bool mixed;    /* the tasks of a round may be computed on several versions */
	bool moves;    /* tasks move to other workers by measured speeds */
	bool by_speed; /* shares are in proportion to speed */
	bool waits;    /* a worker may have to wait for others */
	bool bounded;  /* no worker is more than `slack` clocks ahead of the slowest */
	/* each round has one worker, and all rounds of a clock together are one update */
	bool waves;

	bool law;   /* the model is the same whichever worker computes a task */
	bool ahead; /* an update may be ordered before its rounds are complete */
	/* each round, or each quorum of rounds, is an update of its own, between updates
	 * of other workers */
	bool alone;
	/* the next round of a worker begins while the worker pushes the last one */
	bool overlaps;
	bool collects; /* several rounds may make one version */
	bool fresh;    /* a version is made of rounds on the version before it only */
	/* an update is a whole step, whatever part of a clock the update has */
	bool counted;
	/* the weight of a round depends on its place in the order of arrival at its
	 * slot */
	bool ranked;
	bool slacks; /* the slack counts versions, not clocks */
	/* by how many versions each update is late, on purpose; with a fraction of slack
	 * only the early tasks of an update are late */
	uint32_t delay;
};

struct fal_traits fal_rule_traits(const struct fal_rule *r);

/* The clock's first task that is not early.  Under epsp:p/q the early tasks are computed
 * on the version before that of the late tasks; the first clock of the rule has no early
 * tasks.  UINT32_MAX: all tasks are computed on one version. */
uint32_t fal_rule_first_late_task(const struct fal_rule *r, const struct fal_grid *g,
				  uint64_t clock);
/* FAL_EINVAL with `diag`: the fraction of slack is too small for one early task; the
 * message names the least fraction that has one. */
int fal_rule_check_grid(const struct fal_rule *r, const struct fal_grid *g,
			struct fal_diag *diag);

/* "bsp"; static. */
const char *fal_scheme_name(enum fal_scheme_id id);

/* ---- policies ---- */

enum { FAL_SITE = 64 }; /* bytes of a site's name, with the NUL */

/* The settings of all live sessions of a worker's name. */
struct fal_policy_worker {
	char *name;
	/* bounds of the number of lanes; 0: the worker's own bounds */
	uint32_t lanes_min, lanes_max;
	/* its share of a clock, as a multiple of an equal share; < 0: as projected */
	double share;
	bool excluded;       /* gets no tasks */
	bool admitted;       /* in a patch of a policy: ends an exclusion */
	char site[FAL_SITE]; /* its location; "": unknown */
};

/* {0} with a rule is a valid policy.  The owner frees a policy by fal_policy_free. */
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
/* The entry of this name; makes the entry if there is none.  Borrowed until the next call
 * that changes the policy. */
struct fal_policy_worker *fal_policy_entry(struct fal_policy *p, const char *name);
/* Removes the entries without a setting. */
void fal_policy_tidy(struct fal_policy *p);

#endif
