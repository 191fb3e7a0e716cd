/* Scheme texts. */
#include "trace/scheme.h"

#include "base/parse.h"

#include <stdio.h>
#include <string.h>

/* The most clocks of slack, so that no text asks for what cannot be. */
#define SLACK_MAX ((uint64_t)1 << 20)

static const struct known {
	const char *name;
	enum fal_trace_scheme_id id;
	bool has_slack;
	uint64_t slack; /* without :N */
	bool delta;
} schemes[] = {
	{ "bsp", FAL_TRACE_EPSP, false, 0, false },
	{ "epsp", FAL_TRACE_EPSP, true, 0, false },
	{ "asp", FAL_TRACE_ASP, false, 0, false },
	{ "ssp", FAL_TRACE_SSP, true, 3, false },
	{ "flexrr", FAL_TRACE_FLEXRR, true, 1, false },
	{ "syncopt", FAL_TRACE_SYNCOPT, false, 0, false },
	{ "consgd", FAL_TRACE_CONSGD, true, 3, true },
	{ "dynsgd", FAL_TRACE_DYNSGD, true, 3, true },
	{ "wbsp", FAL_TRACE_WBSP, false, 0, true },
	{ "groups", FAL_TRACE_GROUPS, false, 0, false },
};

/* One KEY=VALUE. */
static int
read_key(const char *word, struct fal_trace_scheme *s)
{
	static const char lambda[] = "lambda=";
	static const char rounds[] = "rounds=";
	if (strcmp(word, "staleness=updates") == 0)
		s->by_updates = true;
	if (strcmp(word, "mode=delta") == 0 && s->local == 0)
		s->local = 1;
	if (strncmp(word, rounds, sizeof(rounds) - 1) == 0)
		return fal_parse_u64(word + sizeof(rounds) - 1, 1, SLACK_MAX, &s->local);
	if (strncmp(word, lambda, sizeof(lambda) - 1) == 0)
		return fal_parse_double(word + sizeof(lambda) - 1, 0, 1, &s->lambda);
	return 0;
}

/* The words of `text`, which is cut at its commas: the first is NAME[:N]. */
static int
read_words(char *text, struct fal_trace_scheme *out)
{
	char *rest = strchr(text, ','), *number;
	if (rest != NULL)
		*rest++ = '\0';
	number = strchr(text, ':');
	if (number != NULL)
		*number++ = '\0';
	const struct known *k = schemes, *end = k + sizeof(schemes) / sizeof(schemes[0]);
	while (k < end && strcmp(k->name, text) != 0)
		k++;
	if (k == end)
		return FAL_EINVAL;
	*out = (struct fal_trace_scheme){ .id = k->id,
					  .slack = k->slack,
					  .delta = k->delta };
	int err = 0;
	if (k->has_slack && number != NULL)
		err = fal_parse_u64(number, 0, SLACK_MAX, &out->slack);
	while (err == 0 && rest != NULL) {
		char *word = rest;
		rest = strchr(word, ',');
		if (rest != NULL)
			*rest++ = '\0';
		err = read_key(word, out);
	}
	/* Without slack the rounds of a clock, all on one version, make one update: so do
	 * syncopt's, without a backup. */
	if (out->slack == 0 && (k->id == FAL_TRACE_SSP || k->id == FAL_TRACE_FLEXRR))
		out->id = FAL_TRACE_SYNCOPT;
	return err;
}

int
fal_trace_scheme_read(struct fal_trace_line *l, const char *text,
		      struct fal_trace_scheme *out)
{
	struct fal_trace_scheme s;
	char words[256];
	if (l->err != 0)
		return l->err;
	int n = snprintf(words, sizeof(words), "%s", text);
	if ((size_t)n >= sizeof(words) || read_words(words, &s) < 0)
		return fal_trace_fail(l, FAL_EINVAL, "scheme: '%.40s' is not a scheme",
				      text);
	*out = s;
	return 0;
}
