/* Changes of policy, as the trace has them and as the journal has them. */
#include "journal.h"

#include "base/mem.h"
#include "base/text.h"
#include "job/policy.h"
#include "trace/chain.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

void
stat_policies_free(struct stat_policies *s)
{
	for (size_t i = 0; i < s->n; i++) {
		free(s->v[i].by);
		free(s->v[i].text);
	}
	free(s->v);
	*s = (struct stat_policies){ 0 };
}

/* One more, of which `o` is all or nothing but the scheme; FAL_EFORMAT, FAL_EINVAL: it is
 * none. */
static int
add(struct stat_policies *s, uint64_t clock, const char *by, const json_t *o)
{
	const struct fal_policy none = { 0 };
	struct fal_policy policy;
	struct fal_buf whole = { 0 };
	if (FAL_GROW(s->v, s->cap, s->n + 1) < 0)
		return FAL_ENOMEM;
	char *text = json_dumps(o, JSON_COMPACT | JSON_ENCODE_ANY);
	if (text == NULL)
		return FAL_ENOMEM;
	struct fal_policy_text in = { "policy", 1, text, strlen(text) };
	int err = fal_policy_json_get(&in, &none, &policy, NULL);
	free(text);
	if (err < 0)
		return err;
	fal_policy_json_put(&policy, &whole);
	fal_policy_free(&policy);
	fal_put_u8(&whole, '\0');
	char *who = fal_strdup(by);
	if (whole.err < 0 || who == NULL) {
		fal_buf_free(&whole);
		free(who);
		return FAL_ENOMEM;
	}
	s->v[s->n++] = (struct stat_policy){ clock, who, (char *)whole.p };
	return FAL_OK;
}

static bool
same(const struct stat_policy *a, const struct stat_policy *b)
{
	return strcmp(a->by, b->by) == 0 && strcmp(a->text, b->text) == 0;
}

/* Takes the last one away where it says again what the one before it said. */
static void
forget_again(struct stat_policies *s)
{
	if (s->n < 2 || !same(&s->v[s->n - 2], &s->v[s->n - 1]))
		return;
	s->n--;
	free(s->v[s->n].by);
	free(s->v[s->n].text);
}

int
stat_policies_line(struct stat_policies *s, struct fal_trace_line *l)
{
	if (strcmp(l->ev, "restart") == 0)
		s->resumed = true;
	if (strcmp(l->ev, "policy") != 0)
		return FAL_OK;
	const uint64_t clock = fal_trace_get_u64(l, l->o, FAL_F_CLOCK, FAL_TRACE_NUM_MAX);
	/* Elsewhere it is a number. */
	const char *by = json_string_value(fal_trace_at(l->o, FAL_F_BY));
	const char *scheme = fal_trace_get_str(l, l->o, FAL_F_SCHEME);
	if (l->err < 0)
		return l->err;
	if (by == NULL)
		by = "";
	const json_t *all = fal_trace_at(l->o, FAL_F_POLICY);
	json_t *o = all == NULL ? json_pack("{s:s}", "scheme", scheme) : NULL;
	if (all == NULL && o == NULL)
		return FAL_ENOMEM;
	int err = add(s, clock, by, all != NULL ? all : o);
	json_decref(o);
	if (err == FAL_EFORMAT || err == FAL_EINVAL || err == FAL_ELIMIT)
		return fal_diag_set(&l->diag, l->err = err, "%llu: policy: is none",
				    (unsigned long long)l->number);
	if (err == FAL_OK && s->resumed)
		forget_again(s);
	s->resumed = false;
	return err;
}

/* The line of a journal; FAL_EFORMAT, FAL_EINVAL: it is none. */
static int
read_line(struct stat_policies *s, const char *p, size_t n)
{
	json_int_t clock, version, seconds;
	const char *by, *link;
	json_t *v;
	json_error_t at;
	json_t *o = json_loadb(p, n, JSON_REJECT_DUPLICATES, &at);
	if (o == NULL && at.text[0] == '\0')
		return FAL_ENOMEM;
	int err = FAL_EFORMAT;
	if (json_unpack_ex(o, &at, JSON_STRICT, "{s:I, s:I, s:s, s:I, s:o, s:s}", "clock",
			   &clock, "version", &version, "by", &by, "time", &seconds,
			   "policy", &v, "h", &link) == 0 &&
	    clock >= 0 && version >= 0)
		err = add(s, (uint64_t)clock, by, v);
	json_decref(o);
	return err;
}

/* All whole lines; a last one without its newline is none, as falcon-policy(5) says.
 * FAL_EINVAL: something else is wrong, and was found. */
static int
read_journal(struct stat_policies *s, const struct fal_buf *text, struct fal_audit *a)
{
	struct fal_chain chain = { 0 };
	const char *p = (const char *)text->p, *end = p + text->n, *nl;
	int err = FAL_OK;
	while (err == FAL_OK && p < end &&
	       (nl = memchr(p, '\n', (size_t)(end - p))) != NULL) {
		err = read_line(s, p, (size_t)(nl - p));
		if (err == FAL_OK && !fal_chain_take(&chain, p, (size_t)(nl - p))) {
			fal_audit_found(a,
					"policy.jsonl: line %zu does not chain the line "
					"before, or was changed",
					s->n);
			return FAL_EINVAL;
		}
		p = nl + 1;
	}
	if (err < 0 && err != FAL_ENOMEM) {
		fal_audit_found(a, "policy.jsonl: line %zu is none", s->n + 1);
		err = FAL_EINVAL;
	}
	return err;
}

/* What the trace begins with is the job's policy, or the one that a job which was begun
 * again found last: what stands before that is of the runs before. */
static void
compare(const struct stat_policies *trace, const struct stat_policies *journal, bool done,
	struct fal_audit *a)
{
	const struct stat_policy *first = &trace->v[0];
	const bool fresh = trace->n == 0 || strcmp(first->by, "job") == 0;
	const size_t changes = trace->n > 0 ? trace->n - 1 : 0;
	size_t from = 0;
	if (!fresh) {
		/* The last one by which all that follows is what the trace has. */
		from = journal->n > changes ? journal->n - changes : 0;
		while (!done && from > 1 && !same(&journal->v[from - 1], first))
			from--;
		if (from == 0 || !same(&journal->v[from - 1], first)) {
			fal_audit_found(a,
					"policy.jsonl: has not the policy that the trace "
					"begins with, and then %zu change%s",
					changes, fal_text_s(changes));
			return;
		}
	}
	for (size_t i = 0; i < changes; i++) {
		const struct stat_policy *is = &trace->v[i + 1];
		if (from + i < journal->n && journal->v[from + i].clock == is->clock &&
		    same(&journal->v[from + i], is))
			continue;
		fal_audit_found(a,
				"policy.jsonl: line %zu is not the trace's change by "
				"'%.64s' from clock %" PRIu64 " on",
				from + i + 1, is->by, is->clock);
		return;
	}
	if (done && journal->n > from + changes)
		fal_audit_found(a,
				"policy.jsonl: line %zu is a change that the trace has "
				"not",
				from + changes + 1);
}

int
stat_journal_audit(const struct stat_policies *trace, const struct fal_buf *text,
		   bool done, struct fal_audit *a)
{
	struct stat_policies journal = { 0 };
	int err = read_journal(&journal, text, a);
	if (err == FAL_OK)
		compare(trace, &journal, done, a);
	stat_policies_free(&journal);
	return err == FAL_ENOMEM ? err : FAL_OK;
}
