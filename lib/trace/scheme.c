/* Scheme texts. */
#include "trace/scheme.h"

int
fal_trace_scheme_read(struct fal_trace_line *l, const char *text, struct fal_rule *out)
{
	struct fal_diag why;
	struct fal_rule r;
	if (l->err != 0)
		return l->err;
	int err = fal_rule_parse(text, &r, &why);
	if (err < 0)
		return fal_trace_fail(l, err, "scheme: %s", why.text);
	*out = r;
	return 0;
}
