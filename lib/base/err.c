/* Error texts. */
#include "base/err.h"

#include "base/buf.h"
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>

const char *
fal_strerror(int err)
{
	static const char *const texts[] = {
		[-FAL_OK] = "success",
		[-FAL_ENOMEM] = "out of memory",
		[-FAL_EINVAL] = "invalid value",
		[-FAL_EFORMAT] = "malformed data",
		[-FAL_ETRUNC] = "truncated data",
		[-FAL_ELIMIT] = "limit exceeded",
		[-FAL_EAUTH] = "authentication failed",
		[-FAL_EPERM] = "not permitted",
		[-FAL_EVERSION] = "protocol version not supported",
		[-FAL_ESTATE] = "unexpected message",
		[-FAL_EFENCED] = "contribution is fenced",
		[-FAL_ENOENT] = "not found",
		[-FAL_EIO] = "input/output error",
		[-FAL_EEXIST] = "already exists",
		[-FAL_ENONFINITE] = "not a finite number",
	};
	const int last = (int)(sizeof(texts) / sizeof(texts[0]));
	return err <= 0 && err > -last ? texts[-err] : "unknown error";
}

int
fal_diag_set(struct fal_diag *diag, int err, const char *fmt, ...)
{
	if (diag == NULL)
		return err;
	char text[sizeof(diag->text) + 1]; /* shows a cut inside a character, too */
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fal_text_plain(diag->text, sizeof(diag->text), text);
	return err;
}

int
fal_problems_add(struct fal_problems *p, int err, const char *text)
{
	if (p->n++ == 0)
		fal_diag_set(p->diag, 0, "%s", text);
	else if (p->more != NULL)
		fal_put_fmt(p->more, "%s\n", text);
	if (p->n == 1 || err == FAL_EFORMAT)
		p->err = err;
	return p->more == NULL || p->n == FAL_PROBLEMS_MAX ? err : FAL_OK;
}
