/* Policies as JSON, falcon-policy(5): text in, a checked struct fal_policy out, and what
 * differs between two of them. */
#ifndef FAL_JOB_POLICY_H
#define FAL_JOB_POLICY_H

#include "base/buf.h"
#include "base/err.h"
#include "math/optim.h"
#include "sched/policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAL_POLICY_TEXT_MAX ((size_t)60 << 10) /* bytes of one policy */

/* Text that holds policies, one after the other. */
struct fal_policy_text {
	const char *name; /* stands first in a diagnosis; borrowed */
	unsigned line;    /* of the first byte, from 1 */
	const char *p;    /* n bytes, borrowed */
	size_t n;
};

/* Reads the JSON object at the front of `in`, and moves `in` behind it and the blanks
 * that follow.  `out` is `base` with the keys changed that the object has; `base` and
 * `out` may not be the same.  Free it with fal_policy_free.
 * Errors: FAL_EFORMAT (no JSON, an unknown key, a wrong type), FAL_EINVAL (a value that
 * is not allowed), FAL_ELIMIT (the text is too long), FAL_ENOMEM.  `diag` then names the
 * place: "policy.json:3: workers.fast.lanes: '[4,1]' is not [MIN,MAX]...". */
int fal_policy_json_get(struct fal_policy_text *in, const struct fal_policy *base,
			struct fal_policy *out, struct fal_diag *diag);

/* Appends the whole policy as one object on one line, without a newline. */
void fal_policy_json_put(const struct fal_policy *p, struct fal_buf *out);

/* A key whose value differs, in the words of `falcon-sync set`. */
struct fal_policy_change {
	char key[80];
	char from[128], to[128];
	bool model; /* may alter the model under the law; else neutral */
};

/* The changes from `a` to `b`, by scheme, clones, then workers by name: how many.  `*out`
 * is freed with free(). */
size_t fal_policy_changes(const struct fal_policy *a, const struct fal_policy *b,
			  struct fal_policy_change **out);

/* An entry of a journal: a policy, by whom and from which clock on; all owned. */
struct fal_policy_entry {
	uint64_t clock, version;
	char *by;
	struct fal_policy policy;
};

/* Reads the line that `in` is.  Errors as of fal_policy_json_get; `diag` then names the
 * line.  Free it with fal_policy_entry_free. */
int fal_policy_entry_get(const struct fal_policy_text *in, struct fal_policy_entry *out,
			 struct fal_diag *diag);
void fal_policy_entry_free(struct fal_policy_entry *e);

/* ---- where late gradients meet momentum: what a rule costs in learning rate ---- */

enum { FAL_STALE_TEXT = 192 };

/* Says how many times lower stable learning rates may be under the rule, with `workers`
 * workers (0: not known), than with gradients that are never late: "slack 2 with momentum
 * 0.9: stable learning rates are up to 17 times lower".  If the answer takes a number of
 * workers that is not known, the function supposes one, and says so.  false, and "": the
 * rule makes no gradient late, or the optimiser has no momentum. */
bool fal_stale_warning(const struct fal_rule *rule, const struct fal_optim *optim,
		       uint32_t workers, char out[static FAL_STALE_TEXT]);

#endif
