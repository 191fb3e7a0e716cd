/* Items, files of machines, and whether they go together. */
#include "emul/emul.h"

#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"
#include "cli/file.h"
#include "job/ini.h"
#include "job/job.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SPEC_FILE_MAX ((size_t)1 << 20) /* bytes */
#define FRACTION_MIN 1e-6
#define FRACTION_MAX 1e6
#define TIME_MIN 1e-6 /* seconds */
#define TIME_MAX 1e6
#define CORES_MAX 1024
#define WORKERS_MAX 65535

/* A SPEC on its way. */
struct reader {
	struct fal_emul *e;
	const struct fal_spec_host *host;
	const char *file;            /* SPEC's, or NULL */
	char *trace, *record;        /* paths, or NULL */
	double crash_every;          /* seconds; 0: not given */
	unsigned given;              /* items, in this scope: a file, a section, … */
	bool patterns[FAL_PATTERNS]; /* the same */
	struct fal_diag *diag;
	/* of a file */
	uint32_t machines, index; /* index 0: this one is not there yet */
	bool mine;
};

/* --- values ---------------------------------------------------------------------- */

#define refuse(r, ...) fal_diag_set((r)->diag, FAL_EINVAL, __VA_ARGS__)

/* "0.25" or "1/4". */
static int
parse_speed(struct reader *r, char *value)
{
	double above, below = 1;
	char *slash = strchr(value, '/');
	if (slash != NULL) {
		*slash = '\0';
		if (fal_parse_double(slash + 1, FRACTION_MIN, FRACTION_MAX, &below) < 0)
			return FAL_EFORMAT;
	}
	if (fal_parse_double(value, FRACTION_MIN, FRACTION_MAX, &above) < 0)
		return FAL_EFORMAT;
	r->e->speed = above / below;
	return FAL_OK;
}

static int
parse_cores(struct reader *r, char *value)
{
	uint64_t cores;
	if (fal_parse_u64(value, 1, CORES_MAX, &cores) < 0)
		return FAL_EFORMAT;
	r->e->cores = (uint32_t)cores;
	return FAL_OK;
}

/* "3/8". */
static int
parse_worker(struct reader *r, char *value)
{
	uint64_t index, count;
	char *slash = strchr(value, '/');
	if (slash == NULL)
		return FAL_EFORMAT;
	*slash = '\0';
	if (fal_parse_u64(slash + 1, 1, WORKERS_MAX, &count) < 0 ||
	    fal_parse_u64(value, 1, count, &index) < 0)
		return FAL_EFORMAT;
	r->e->machine.index = (uint32_t)index;
	r->e->machine.count = (uint32_t)count;
	return FAL_OK;
}

static int
parse_ns(const char *value, uint64_t *out)
{
	double seconds;
	if (fal_parse_double(value, TIME_MIN, TIME_MAX, &seconds) < 0)
		return FAL_EFORMAT;
	*out = (uint64_t)(seconds * 1e9);
	return FAL_OK;
}

/* A path, which in a file is seen from its folder. */
static int
parse_path(const struct reader *r, const char *value, char **out)
{
	free(*out);
	*out = r->file != NULL ? fal_job_path(r->file, value) : fal_xstrdup(value);
	return *value == '\0' ? FAL_EFORMAT : FAL_OK;
}

static int
parse_bandwidth(struct reader *r, char *value)
{
	uint64_t bytes;
	if (fal_parse_size(value, &bytes) < 0 || bytes == 0)
		return FAL_EFORMAT;
	r->e->bandwidth = (double)bytes;
	return FAL_OK;
}

/* "10:3". */
static int
parse_freeze(struct reader *r, char *value)
{
	char *colon = strchr(value, ':');
	if (colon == NULL)
		return FAL_EFORMAT;
	*colon = '\0';
	const int err = parse_ns(colon + 1, &r->e->freeze_for_ns);
	return err < 0 ? err : parse_ns(value, &r->e->freeze_ns);
}

/* --- items ----------------------------------------------------------------------- */

/* The way to read an item: as a type, or by a function of its own. */
enum item_type { OWN, NUMBER, COUNT, SECONDS, PATH };

struct item {
	const char *key;
	enum item_type type;
	void *to;        /* double, uint64_t, uint64_t of nanoseconds, char * */
	double min, max; /* of numbers and counts */
	const char *want;
	int (*parse)(struct reader *r, char *value); /* changes `value` */
};

static int
parse_item(struct reader *r, const struct item *i, char *value)
{
	switch (i->type) {
	case NUMBER:
		return fal_parse_double(value, i->min, i->max, i->to);
	case COUNT:
		return fal_parse_u64(value, (uint64_t)i->min,
				     i->max < 0x1p64 ? (uint64_t)i->max : UINT64_MAX,
				     i->to);
	case SECONDS:
		return parse_ns(value, i->to);
	case PATH:
		return parse_path(r, value, i->to);
	default:
		return i->parse(r, value);
	}
}

static int
take_pattern(struct reader *r, char *value)
{
	enum fal_pattern_kind kind;
	struct fal_pattern p;
	struct fal_diag why;
	if (fal_pattern_parse(value, &kind, &p, &why) < 0)
		return refuse(r, "pattern: %s", why.text);
	if (r->patterns[kind])
		return refuse(r, "pattern %s is given twice", fal_pattern_name(kind));
	r->patterns[kind] = true;
	r->e->pattern[kind] = p;
	return FAL_OK;
}

/* One item; of those of this scope, none comes twice.  Changes `value`. */
static int
take(struct reader *r, const char *key, char *value)
{
	struct fal_emul *e = r->e;
	const struct item items[] = {
		{ "rate", NUMBER, &e->rate, 1e-6, 1e12, "a number of samples a second",
		  NULL },
		{ "speed", OWN, NULL, 0, 0, "a fraction such as 0.25 or 1/4",
		  parse_speed },
		{ "cores", OWN, NULL, 0, 0, "1 to 1024", parse_cores },
		{ "seed", COUNT, &e->machine.seed, 0, 0x1p64, "a number", NULL },
		{ "worker", OWN, NULL, 0, 0, "I/M, worker I of M", parse_worker },
		{ "clock", COUNT, &e->clock, 1, 1e9, "a number of samples", NULL },
		{ "t0", SECONDS, &e->machine.t0_ns, 0, 0, "a number of seconds", NULL },
		{ "trace", PATH, &r->trace, 0, 0, "a file", NULL },
		{ "record", PATH, &r->record, 0, 0, "a file", NULL },
		{ "latency", SECONDS, &e->latency_ns, 0, 0, "a number of seconds", NULL },
		{ "bandwidth", OWN, NULL, 0, 0, "a number of bytes a second",
		  parse_bandwidth },
		{ "crash", SECONDS, &e->crash_ns, 0, 0, "a number of seconds", NULL },
		{ "crash-every", NUMBER, &r->crash_every, TIME_MIN, TIME_MAX,
		  "a number of seconds", NULL },
		{ "flip", NUMBER, &e->flip, 0, 1, "0 to 1", NULL },
		{ "freeze", OWN, NULL, 0, 0, "AT:FOR, in seconds", parse_freeze },
	};
	struct fal_diag bad;
	if (strcmp(key, "pattern") == 0)
		return take_pattern(r, value);
	for (unsigned i = 0; i < sizeof(items) / sizeof(items[0]); i++) {
		if (strcmp(key, items[i].key) != 0)
			continue;
		if (r->given & 1u << i)
			return refuse(r, "%s is given twice", key);
		r->given |= 1u << i;
		/* Made before, as parsing cuts the value. */
		fal_diag_set(&bad, 0, "%s: '%s' is not %s", key, FAL_QUOTE(value),
			     items[i].want);
		if (parse_item(r, &items[i], value) < 0)
			return refuse(r, "%s", bad.text);
		return FAL_OK;
	}
	return refuse(r, "'%s' is not an item of falcon-emulate(5)", FAL_QUOTE(key));
}

/* What follows overrides what was there. */
static void
new_scope(struct reader *r)
{
	r->given = 0;
	memset(r->patterns, 0, sizeof(r->patterns));
}

/* KEY=VALUE[,KEY=VALUE...]; changes `list`. */
static int
take_list(struct reader *r, char *list)
{
	int err = FAL_OK;
	new_scope(r);
	while (list != NULL && err == FAL_OK) {
		char *item = strsep(&list, ","), *value = strchr(item, '=');
		if (value == NULL)
			return fal_diag_set(r->diag, FAL_EFORMAT, "'%s' is not KEY=VALUE",
					    FAL_QUOTE(item));
		*value++ = '\0';
		err = take(r, item, value);
	}
	return err;
}

/* --- files ----------------------------------------------------------------------- */

/* "[w1 w2]": the machines of a section. */
static int
take_header(struct reader *r, const char *names, unsigned line)
{
	char *copy = fal_xstrdup(names);
	int err = FAL_OK;
	r->mine = false;
	for (char *rest = copy; rest != NULL && err == FAL_OK;) {
		const char *name = strsep(&rest, " \t");
		if (*name == '\0')
			continue;
		r->machines++;
		if (strcmp(name, r->host->name) != 0)
			continue;
		if (r->index != 0)
			err = refuse(r, "%s:%u: machine '%s' for the second time",
				     r->file, line, name);
		r->mine = true;
		r->index = r->machines;
	}
	free(copy);
	new_scope(r);
	return err;
}

/* Of what stands before all sections, and of this machine's own. */
static int
on_entry(void *user, const char *section, const char *key, const char *value,
	 unsigned line)
{
	struct reader *r = user;
	struct fal_diag why;
	(void)section; /* cut short by inih */
	if (key == NULL)
		return take_header(r, section, line);
	if (r->machines > 0 && !r->mine)
		return FAL_OK;
	char *copy = fal_xstrdup(value);
	struct fal_diag *out = r->diag;
	r->diag = &why;
	int err = take(r, key, copy);
	r->diag = out;
	free(copy);
	return err < 0 ? fal_diag_set(out, err, "%s:%u: %s", r->file, line, why.text)
		       : FAL_OK;
}

/* The file's own numbering of its machines is their worker=, if they have none. */
static int
take_file(struct reader *r)
{
	struct fal_buf text = { 0 };
	int err = fal_cli_read(r->file, SPEC_FILE_MAX, &text, r->diag);
	if (err < 0)
		return err;
	err = fal_ini_read(r->file, (const char *)text.p, text.n, on_entry, r, r->diag);
	fal_buf_free(&text);
	if (err == FAL_OK && r->machines > WORKERS_MAX)
		err = fal_diag_set(r->diag, FAL_ELIMIT, "%s: more than %d machines",
				   r->file, WORKERS_MAX);
	if (err == FAL_OK && r->machines > 0 && r->index == 0)
		err = fal_diag_set(r->diag, FAL_ENOENT, "%s: no machine '%s'", r->file,
				   r->host->name);
	if (err == FAL_OK && r->e->machine.count == 0) {
		r->e->machine.index = r->index;
		r->e->machine.count = r->machines;
	}
	/* From here on a path is as the shell sees it. */
	r->file = NULL;
	return err;
}

/* --- as a whole ------------------------------------------------------------------ */

/* Whether what was given goes together. */
static int
check(const struct reader *r)
{
	const struct fal_emul *e = r->e;
	if (e->rate == 0)
		return refuse(r, "rate=SAMPLES_PER_SECOND is missing");
	if (e->crash_ns != 0 && r->crash_every != 0)
		return refuse(r, "crash and crash-every: one of them");
	for (unsigned i = 0; i < FAL_PATTERNS; i++) {
		const enum fal_pattern_kind kind = (enum fal_pattern_kind)i;
		if (!e->pattern[i].on || e->machine.count > 0)
			continue;
		if (fal_pattern_needs_worker(kind, &e->pattern[i]))
			return refuse(r, "pattern %s needs worker=I/M",
				      fal_pattern_name(kind));
		if (fal_pattern_is_clocked(kind) && e->clock == 0)
			return refuse(r, "pattern %s needs worker=I/M or clock=SAMPLES",
				      fal_pattern_name(kind));
	}
	return FAL_OK;
}

/* What follows from all of it: what was not given, and the machine's own speed. */
static void
conclude(struct reader *r)
{
	struct fal_emul *e = r->e;
	const struct fal_machine *m = &e->machine;
	double u[4];
	if (e->speed == 0)
		e->speed = 1;
	if (e->cores == 0)
		e->cores = r->host->cores;
	for (unsigned i = 0; i < FAL_PATTERNS; i++)
		if (e->pattern[i].on)
			e->speed *= fal_pattern_share((enum fal_pattern_kind)i,
						      &e->pattern[i], m);
	if (r->crash_every == 0)
		return;
	fal_emul_draw(m, FAL_PATTERNS, 0, u);
	e->crash_ns = 1 + (uint64_t)(-1e9 * r->crash_every * log(u[0]));
}

/* All of SPEC; changes `spec`. */
static int
read_all(struct reader *r, char *spec)
{
	int err = FAL_OK;
	if (*spec == '@') {
		r->file = strsep(&spec, ",") + 1;
		err = take_file(r);
	}
	if (err == FAL_OK && spec != NULL)
		err = take_list(r, spec);
	if (err == FAL_OK)
		err = check(r);
	if (err < 0)
		return err;
	conclude(r);
	if (r->trace != NULL)
		err = fal_speeds_read(r->trace, &r->e->trace, r->diag);
	if (err < 0 || r->record == NULL)
		return err;
	r->e->record = fopen(r->record, "we");
	if (r->e->record == NULL)
		return fal_diag_set(r->diag, FAL_EIO, "%s: %s", r->record,
				    strerror(errno));
	/* A crash is not to cut it. */
	setvbuf(r->e->record, NULL, _IOLBF, 0);
	return FAL_OK;
}

int
fal_spec_read(const char *spec, const struct fal_spec_host *host, struct fal_emul **out,
	      struct fal_diag *diag)
{
	struct reader r = { .host = host, .diag = diag };
	char *copy = fal_xstrdup(spec);
	r.e = fal_xcalloc(1, sizeof(*r.e));
	const int err = read_all(&r, copy);
	free(copy);
	free(r.trace);
	free(r.record);
	if (err < 0)
		fal_spec_free(r.e);
	else
		*out = r.e;
	return err;
}

int
fal_spec_free(struct fal_emul *e)
{
	int err = FAL_OK;
	if (e == NULL)
		return FAL_OK;
	fal_speeds_free(&e->trace);
	if (e->record != NULL) {
		const bool bad = ferror(e->record) != 0;
		err = fclose(e->record) != 0 || bad ? FAL_EIO : FAL_OK;
	}
	free(e);
	return err;
}
