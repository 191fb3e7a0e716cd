/* Error texts. */
#include "base/err.h"

#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>

const char *
fal_strerror(int err)
{
	switch ((enum fal_err)err) {
	case FAL_OK:
		return "success";
	case FAL_ENOMEM:
		return "out of memory";
	case FAL_EINVAL:
		return "invalid value";
	case FAL_EFORMAT:
		return "malformed data";
	case FAL_ETRUNC:
		return "truncated data";
	case FAL_ELIMIT:
		return "limit exceeded";
	case FAL_EAUTH:
		return "authentication failed";
	case FAL_EPERM:
		return "not permitted";
	case FAL_EVERSION:
		return "protocol version not supported";
	case FAL_ESTATE:
		return "unexpected message";
	case FAL_EFENCED:
		return "contribution is fenced";
	case FAL_ENOENT:
		return "not found";
	case FAL_EIO:
		return "input/output error";
	case FAL_EEXIST:
		return "already exists";
	case FAL_ENONFINITE:
		return "not a finite number";
	}
	return "unknown error";
}

int
fal_diag_set(struct fal_diag *diag, int err, const char *fmt, ...)
{
	if (diag == NULL)
		return err;
	char text[sizeof(diag->text) + 1]; /* shows whether it is cut in a character */
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fal_text_plain(diag->text, sizeof(diag->text), text);
	return err;
}
