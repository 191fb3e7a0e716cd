/* Writing and reading policy journals. */
#include "run/journal.h"

#include "base/json.h"
#include "job/policy.h"

#include <string.h>

void
fal_journal_put(const struct fal_journal_line *l, int64_t time, struct fal_chain *chain,
		struct fal_buf *out)
{
	struct fal_buf line = { 0 };
	fal_json_open(&line, '{');
	fal_json_member_u64(&line, "clock", l->clock);
	fal_json_member_u64(&line, "version", l->version);
	fal_json_member_str(&line, "by", l->by);
	fal_json_key(&line, "time");
	fal_json_i64(&line, time);
	fal_json_key(&line, "policy");
	fal_policy_json_put(l->policy, &line);
	fal_json_close(&line, '}');
	if (line.err == FAL_OK)
		fal_chain_put(chain, (char *)line.p, line.n, out);
	else
		out->err = line.err;
	fal_buf_free(&line);
}

static int
read_line(const struct fal_journal_reading *r, const char *p, size_t n,
	  struct fal_diag *diag)
{
	const struct fal_policy_text in = { r->name, r->line, p, n };
	struct fal_policy_entry is;
	int err = fal_policy_entry_get(&in, &is, diag);
	if (err < 0)
		return err;
	const struct fal_journal_line l = { is.clock, is.version, is.by, &is.policy };
	err = r->on_line(r->arg, &l);
	fal_policy_entry_free(&is);
	return err;
}

int
fal_journal_refuse(struct fal_journal_reading *r, struct fal_diag *diag)
{
	r->unchained = true;
	return fal_diag_set(diag, FAL_EINVAL,
			    "%s:%u: it does not chain the line before, or was changed",
			    r->name, r->line);
}

int
fal_journal_read(struct fal_journal_reading *r, const struct fal_buf *text,
		 struct fal_diag *diag)
{
	const char *p = (const char *)text->p, *end = p + text->n, *nl;
	int err = FAL_OK;
	while (err == FAL_OK && p < end &&
	       (nl = memchr(p, '\n', (size_t)(end - p))) != NULL) {
		r->line++;
		err = read_line(r, p, (size_t)(nl - p), diag);
		if (err == FAL_OK && !fal_chain_take(r->chain, p, (size_t)(nl - p)))
			err = fal_journal_refuse(r, diag);
		r->whole += err == FAL_OK ? (size_t)(nl + 1 - p) : 0;
		p = nl + 1;
	}
	return err;
}
