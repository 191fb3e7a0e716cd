/* Policies as JSON, falcon-policy(5): parses and writes policies, compares two policies,
 * and warns about rules that need lower learning rates. */
#ifndef FAL_JOB_POLICY_H
#define FAL_JOB_POLICY_H

#include "base/buf.h"
#include "base/err.h"
#include "math/optim.h"
#include "sched/policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAL_POLICY_TEXT_MAX ((size_t)60 << 10) /* bytes of a policy */

/* A text with policies, one after another. */
struct fal_policy_text {
	const char *name; /* stands first in a diagnosis; borrowed */
	unsigned line;    /* of the first byte, from 1 */
	const char *p;    /* n bytes, borrowed */
	size_t n;
};

/* Replaces comments by blanks: in each line the text from # or ; on, outside strings. */
void fal_policy_blank_comments(char *p, size_t n);

/* Parses the JSON object at the begin of `in` and moves `in` past the object and the
 * blanks after the object.  `out` becomes `base` with the object's keys changed; `base`
 * and `out` must differ.  Free `out` with fal_policy_free.  FAL_EFORMAT (no JSON, an
 * unknown key, a wrong type), FAL_EINVAL (a forbidden value), FAL_ELIMIT (a long text),
 * FAL_ENOMEM; `diag` names the place: "policy.json:3: workers.fast.lanes: '[4,1]' is not
 * [MIN,MAX]...". */
int fal_policy_json_get(struct fal_policy_text *in, const struct fal_policy *base,
			struct fal_policy *out, struct fal_diag *diag);

/* As fal_policy_json_get, of an object that jansson has parsed; borrowed.  `diag` names
 * place->name and place->line; the other members of `place` are not read. */
struct json_t;
int fal_policy_json_take(struct json_t *o, const struct fal_policy_text *place,
			 const struct fal_policy *base, struct fal_policy *out,
			 struct fal_diag *diag);

/* Appends the whole policy as an object on one line, without a newline. */
void fal_policy_json_put(const struct fal_policy *p, struct fal_buf *out);

/* A key with different values, in the words of `falcon-sync set`. */
struct fal_policy_change {
	char key[80];
	char from[128], to[128];
	bool model; /* the change may alter the model under the law; else neutral */
};

/* Lists the changes from `a` to `b`: scheme, clones, then workers by name.  Returns their
 * number; the caller frees `*out`. */
size_t fal_policy_changes(const struct fal_policy *a, const struct fal_policy *b,
			  struct fal_policy_change **out);

/* An entry of a journal: a policy, its author and its first clock; owns all members. */
struct fal_policy_entry {
	uint64_t clock, version;
	char *by;
	struct fal_policy policy;
};

/* Parses the line `in`.  Free `out` with fal_policy_entry_free.  Errors of
 * fal_policy_json_get; `diag` names the line. */
int fal_policy_entry_get(const struct fal_policy_text *in, struct fal_policy_entry *out,
			 struct fal_diag *diag);
void fal_policy_entry_free(struct fal_policy_entry *e);

/* ---- late gradients with momentum: the cost of a rule in learning rate ---- */

enum { FAL_STALE_TEXT = 192 };

/* Writes how many times lower stable learning rates may be under the rule, with `workers`
 * workers (0: unknown), than with gradients that are never late: "slack 2 with momentum
 * 0.9: stable learning rates are up to 17 times lower".  If the answer depends on an
 * unknown number of workers, the text names the number assumed.  Returns false, with ""
 * in `out`, if the rule makes no gradient late or the optimiser has no momentum. */
bool fal_stale_warning(const struct fal_rule *rule, const struct fal_optim *optim,
		       uint32_t workers, char out[static FAL_STALE_TEXT]);

#endif
