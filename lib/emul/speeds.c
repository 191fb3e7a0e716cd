/* Files of recorded speeds. */
#include "emul/speeds.h"

#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"
#include "cli/file.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TRACE_FILE_MAX ((size_t)64 << 20) /* bytes */
#define TRACE_S_MAX 1e8
#define TRACE_SPEED_MAX 1e6

/* "SECONDS SPEED" or "SECONDS loop", without its end and comment; NULL or what is wrong
 * with `*bad`. */
static const char *
parse_line(struct fal_speeds *s, char *line, const char **bad)
{
	char *rest = line;
	const char *time = strsep(&rest, " \t"), *what = rest;
	double seconds, speed;
	*bad = time;
	if (fal_parse_double(time, 0, TRACE_S_MAX, &seconds) < 0)
		return "is not a number of seconds";
	const uint64_t t = (uint64_t)llround(seconds * 1e9);
	if (s->loop != 0)
		return "stands behind a loop";
	if (s->n == 0 ? t != 0 : t <= s->v[s->n - 1].t)
		return s->n == 0 ? "is not 0, where a trace begins"
				 : "is not later than the line before";
	*bad = what != NULL ? what + strspn(what, " \t") : "";
	if (s->n > 0 && strcmp(*bad, "loop") == 0) {
		s->loop = t;
		return NULL;
	}
	if (fal_parse_double(*bad, 0, TRACE_SPEED_MAX, &speed) < 0)
		return "is not a speed";
	if (FAL_GROW(s->v, s->cap, s->n + 1) < 0)
		return fal_strerror(FAL_ENOMEM);
	s->v[s->n++] = (struct fal_speeds_line){ t, speed };
	return NULL;
}

/* Cuts a comment and the blanks at both ends. */
static char *
trim(char *line)
{
	line[strcspn(line, "#")] = '\0';
	line += strspn(line, " \t");
	for (size_t n = strlen(line); n > 0 && strchr(" \t\r", line[n - 1]) != NULL; n--)
		line[n - 1] = '\0';
	return line;
}

static int
parse(const char *path, char *text, struct fal_speeds *s, struct fal_diag *diag)
{
	unsigned number = 0;
	for (char *rest = text; rest != NULL;) {
		char *line = trim(strsep(&rest, "\n"));
		const char *bad, *why = NULL;
		number++;
		if (*line != '\0')
			why = parse_line(s, line, &bad);
		if (why != NULL)
			return fal_diag_set(diag, FAL_EFORMAT, "%s:%u: '%s' %s", path,
					    number, FAL_QUOTE(bad), why);
	}
	if (s->n == 0)
		return fal_diag_set(diag, FAL_EFORMAT, "%s: no line with a speed", path);
	return FAL_OK;
}

int
fal_speeds_read(const char *path, struct fal_speeds *out, struct fal_diag *diag)
{
	struct fal_buf text = { 0 };
	struct fal_speeds s = { 0 };
	int err = fal_cli_read(path, TRACE_FILE_MAX, &text, diag);
	if (err < 0)
		return err;
	if (text.n > 0 && memchr(text.p, '\0', text.n) != NULL)
		err = fal_diag_set(diag, FAL_EFORMAT, "%s: not a text", path);
	fal_put_u8(&text, '\0');
	if (err == FAL_OK && text.err < 0)
		err = fal_diag_set(diag, text.err, "%s: %s", path,
				   fal_strerror(text.err));
	if (err == FAL_OK)
		err = parse(path, (char *)text.p, &s, diag);
	fal_buf_free(&text);
	if (err < 0)
		fal_speeds_free(&s);
	else
		*out = s;
	return err;
}

void
fal_speeds_free(struct fal_speeds *s)
{
	free(s->v);
	*s = (struct fal_speeds){ 0 };
}

struct fal_speed
fal_speeds_at(const struct fal_speeds *s, uint64_t t)
{
	const uint64_t base = s->loop != 0 ? t / s->loop * s->loop : 0, at = t - base;
	size_t low = 0, high = s->n; /* the line that holds is in low … high-1 */
	while (high - low > 1) {
		const size_t mid = low + (high - low) / 2;
		if (s->v[mid].t <= at)
			low = mid;
		else
			high = mid;
	}
	uint64_t until = UINT64_MAX;
	if (low + 1 < s->n)
		until = base + s->v[low + 1].t;
	else if (s->loop != 0)
		until = base + s->loop;
	return (struct fal_speed){ s->v[low].speed, until };
}

void
fal_speeds_write(FILE *f, uint64_t t, double speed)
{
	fprintf(f, "%" PRIu64 ".%09" PRIu64 " %.9g\n", t / 1000000000, t % 1000000000,
		speed);
}
