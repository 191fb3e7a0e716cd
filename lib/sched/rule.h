/* A rule: a scheme with its parameters, as it is written in job files and policies:
 * NAME[:N][,KEY=VALUE...] (falcon-policy(5)).
 *
 * Owns: the words and their checks.  What they mean stands in the scheme's own file.
 */
#ifndef FAL_SCHED_RULE_H
#define FAL_SCHED_RULE_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
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
	FAL_SCHEMES
};

enum { FAL_SLACK_MAX = 64, FAL_LOCAL_STEPS_MAX = 1024 };

/* Fields that a scheme does not use are 0.  Defaults are those of falcon-policy(5). */
struct fal_rule {
	enum fal_scheme_id scheme;
	uint32_t slack;   /* s: ssp, flexrr, consgd, dynsgd (3; flexrr 1), epsp (0) */
	uint32_t backups; /* b: syncopt; FAL_BACKUPS_AUTO: max(1, 5 % of the workers,
			     rounded) */
	uint32_t groups;  /* G: groups; 0: progressive */
	uint32_t most;    /* groups, progressive: most groups (g_max) */
	uint32_t window;  /* groups, progressive: central updates between decisions */
	bool delta;       /* groups: mode=delta */
	uint32_t rounds;  /* groups, mode=delta: a group's rounds between pushes (h) */
	uint32_t quorum;  /* groups: a version waits for so many pushes; 0: each makes one
			   */
	double grace;     /* and then so many seconds for others */
	double outer, momentum; /* with both: the rate and momentum of the outer step */
	uint32_t helpers;       /* flexrr: helpers of a worker, its next ones in a ring */
	bool half;              /* flexrr: steal=half, the finisher takes half */
	double lambda;          /* consgd; 0: 1/M */
	bool by_updates;        /* dynsgd: staleness=updates instead of version */
	bool overlap; /* wbsp: the next local step begins before the push is done */
	bool slowest; /* wbsp: publish=slowest, the slowest has pushed, instead of all */
	uint32_t cap; /* wbsp: most local steps between two publications */
	uint32_t steps; /* local steps of a worker's clock: the delta schemes */
};

#define FAL_BACKUPS_AUTO UINT32_MAX

/* Reads `text`: names, keys and words are lower case, keys stand in any order, each at
 * most once, nothing is left empty.  A number may be left out, or be its word: `auto` of
 * syncopt, `progressive` of groups; `max` and `window` belong to progressive groups,
 * `rounds` to mode=delta, `grace` to a quorum, `outer` and `momentum` to both.
 * FAL_EINVAL with `diag`: what is wrong, and the value. */
int fal_rule_parse(const char *text, struct fal_rule *out, struct fal_diag *diag);

/* Appends the text of a rule: the number always (but "epsp" for epsp:0), then the keys
 * that are not at their default.  "epsp:2", "dynsgd:3", "groups:progressive,max=8". Equal
 * rules give equal texts, and each text parses to its rule. */
void fal_rule_put(const struct fal_rule *r, struct fal_buf *out);

/* The same text with its NUL; returns `out`. */
enum { FAL_RULE_TEXT = 256 };
const char *fal_rule_text(const struct fal_rule *r, char out[static FAL_RULE_TEXT]);

bool fal_rule_eq(const struct fal_rule *a, const struct fal_rule *b);

/* Are weights stepped by workers, or by groups, between the updates of the model, to
 * which only their changes come? */
bool fal_rule_local(const struct fal_rule *r);

/* True when two rules give the same model, bit by bit, under the law: bsp and epsp:0,
 * ssp:0, flexrr:0 are one; every other rule is only itself. */
bool fal_rule_same_model(const struct fal_rule *a, const struct fal_rule *b);

#endif
