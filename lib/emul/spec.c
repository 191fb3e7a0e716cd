/* Parses SPEC: items, files of machines, and the checks of all items together. */
#include "emul/emul.h"

#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"
#include "cli/file.h"
#include "job/ini.h"
#include "job/job.h"

#include <assert.h>
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

/* A SPEC being parsed. */
struct spec_parser {
	struct fal_emul *e;
	const struct fal_spec_host *host;
	const char *file;     /* the file being read, or NULL */
	char *trace, *record; /* paths, or NULL */
	double crash_every;   /* seconds; 0: not given */
	/* Items and patterns seen in this scope: the file's head, a section, the list. */
	unsigned seen_items;
	bool seen_patterns[FAL_PATTERNS];
	struct fal_diag *diag;
	/* Machines in the file so far, and this machine's number; 0: not found yet. */
	uint32_t machines, index;
	bool is_own_section;
};

/* --- values ---------------------------------------------------------------------- */

#define REFUSE(r, ...) fal_diag_set((r)->diag, FAL_EINVAL, __VA_ARGS__)

static int
parse_ns(const char *value, uint64_t *out)
{
	double seconds;
	if (fal_parse_double(value, TIME_MIN, TIME_MAX, &seconds) < 0)
		return FAL_EFORMAT;
	*out = (uint64_t)(seconds * 1e9);
	return FAL_OK;
}

enum item_type {
	NUMBER,   /* double */
	COUNT,    /* uint64_t */
	CORES,    /* uint32_t */
	FRACTION, /* double: "0.25" or "1/4" */
	BYTES,    /* double, from a size */
	SECONDS,  /* uint64_t, in ns */
	PATH,     /* char *; in a file relative to that file's folder */
	WORKER,   /* struct fal_machine: "3/8" */
	FREEZE    /* struct fal_emul: "10:3" */
};

struct item {
	const char *key;
	enum item_type type;
	void *to;
	double min, max; /* of numbers and counts */
	const char *want;
};

/* Parses the value of an item; changes `value`. */
static int
parse_item_value(struct spec_parser *r, const struct item *i, char *value)
{
	struct fal_machine *m = i->to;
	struct fal_emul *e = i->to;
	uint64_t n, count;
	double x, divisor = 1;
	const char *first;
	switch (i->type) {
	case NUMBER:
		return fal_parse_double(value, i->min, i->max, i->to);
	case COUNT:
		return fal_parse_u64(value, (uint64_t)i->min,
				     i->max < 0x1p64 ? (uint64_t)i->max : UINT64_MAX,
				     i->to);
	case CORES:
		if (fal_parse_u64(value, 1, CORES_MAX, &n) < 0)
			return FAL_EFORMAT;
		*(uint32_t *)i->to = (uint32_t)n;
		return FAL_OK;
	case FRACTION:
		first = strsep(&value, "/");
		if ((value != NULL &&
		     fal_parse_double(value, FRACTION_MIN, FRACTION_MAX, &divisor) < 0) ||
		    fal_parse_double(first, FRACTION_MIN, FRACTION_MAX, &x) < 0)
			return FAL_EFORMAT;
		*(double *)i->to = x / divisor;
		return FAL_OK;
	case BYTES:
		if (fal_parse_size(value, &n) < 0 || n == 0)
			return FAL_EFORMAT;
		*(double *)i->to = (double)n;
		return FAL_OK;
	case SECONDS:
		return parse_ns(value, i->to);
	case PATH:
		free(*(char **)i->to);
		*(char **)i->to = r->file != NULL ? fal_job_path(r->file, value)
						  : fal_xstrdup(value);
		return *value == '\0' ? FAL_EFORMAT : FAL_OK;
	case WORKER:
		first = strsep(&value, "/");
		if (value == NULL || fal_parse_u64(value, 1, WORKERS_MAX, &count) < 0 ||
		    fal_parse_u64(first, 1, count, &n) < 0)
			return FAL_EFORMAT;
		m->index = (uint32_t)n;
		m->count = (uint32_t)count;
		return FAL_OK;
	case FREEZE:
		first = strsep(&value, ":");
		if (value == NULL || parse_ns(value, &e->freeze_for_ns) < 0)
			return FAL_EFORMAT;
		return parse_ns(first, &e->freeze_ns);
	}
	assert(0 && "a type of item");
	return FAL_EFORMAT;
}

/* Parses one item, which may stand once in a scope; changes `value`. */
static int
parse_item(struct spec_parser *r, const char *key, char *value)
{
	struct fal_emul *e = r->e;
	const struct item items[] = {
		{ "rate", NUMBER, &e->rate, 1e-6, 1e12, "a number of samples a second" },
		{ "speed", FRACTION, &e->speed, 0, 0, "a fraction such as 0.25 or 1/4" },
		{ "cores", CORES, &e->cores, 0, 0, "1 to 1024" },
		{ "seed", COUNT, &e->machine.seed, 0, 0x1p64, "a number" },
		{ "worker", WORKER, &e->machine, 0, 0, "I/M, worker I of M" },
		{ "clock", COUNT, &e->clock, 1, 1e9, "a number of samples" },
		{ "t0", SECONDS, &e->machine.t0_ns, 0, 0, "a number of seconds" },
		{ "trace", PATH, &r->trace, 0, 0, "a file" },
		{ "record", PATH, &r->record, 0, 0, "a file" },
		{ "latency", SECONDS, &e->latency_ns, 0, 0, "a number of seconds" },
		{ "bandwidth", BYTES, &e->bandwidth, 0, 0, "a number of bytes a second" },
		{ "crash", SECONDS, &e->crash_ns, 0, 0, "a number of seconds" },
		{ "crash-every", NUMBER, &r->crash_every, TIME_MIN, TIME_MAX,
		  "a number of seconds" },
		{ "flip", NUMBER, &e->flip, 0, 1, "0 to 1" },
		{ "freeze", FREEZE, e, 0, 0, "AT:FOR, in seconds" },
	};
	struct fal_diag bad;
	if (strcmp(key, "pattern") == 0) {
		enum fal_pattern_kind kind;
		struct fal_pattern p;
		if (fal_pattern_parse(value, &kind, &p, &bad) < 0)
			return REFUSE(r, "pattern: %s", bad.text);
		if (r->seen_patterns[kind])
			return REFUSE(r, "pattern %s is given twice",
				      fal_pattern_name(kind));
		r->seen_patterns[kind] = true;
		e->pattern[kind] = p;
		return FAL_OK;
	}
	for (unsigned i = 0; i < sizeof(items) / sizeof(items[0]); i++) {
		if (strcmp(key, items[i].key) != 0)
			continue;
		if (r->seen_items & 1u << i)
			return REFUSE(r, "%s is given twice", key);
		r->seen_items |= 1u << i;
		/* Parsing cuts the value, so the message is made first. */
		fal_diag_set(&bad, 0, "%s: '%s' is not %s", key, FAL_QUOTE(value),
			     items[i].want);
		return parse_item_value(r, &items[i], value) < 0
			       ? REFUSE(r, "%s", bad.text)
			       : FAL_OK;
	}
	return REFUSE(r, "'%s' is not an item of falcon-emulate(5)", FAL_QUOTE(key));
}

/* Items of a new scope override items of earlier scopes. */
static void
begin_scope(struct spec_parser *r)
{
	r->seen_items = 0;
	memset(r->seen_patterns, 0, sizeof(r->seen_patterns));
}

/* --- files ----------------------------------------------------------------------- */

/* Parses the entries before the first section and in this machine's section. */
static int
on_spec_entry(void *user, const char *section, const char *key, const char *value,
	      unsigned line)
{
	struct spec_parser *r = user;
	struct fal_diag why;
	int err = FAL_OK;
	if (key == NULL) { /* "[w1 w2]", the machines of a section */
		char *copy = fal_xstrdup(section);
		r->is_own_section = false;
		for (char *rest = copy; rest != NULL && err == FAL_OK;) {
			const char *name = strsep(&rest, " \t");
			if (*name == '\0')
				continue;
			r->machines++;
			if (strcmp(name, r->host->name) != 0)
				continue;
			if (r->index != 0)
				err = REFUSE(r, "%s:%u: machine '%s' for the second time",
					     r->file, line, name);
			r->is_own_section = true;
			r->index = r->machines;
		}
		free(copy);
		begin_scope(r);
		return err;
	}
	if (r->machines > 0 && !r->is_own_section)
		return FAL_OK;
	char *copy = fal_xstrdup(value);
	struct fal_diag *out = r->diag;
	r->diag = &why;
	err = parse_item(r, key, copy);
	r->diag = out;
	free(copy);
	return err < 0 ? fal_diag_set(out, err, "%s:%u: %s", r->file, line, why.text)
		       : FAL_OK;
}

/* Reads the file of machines.  A machine without worker= gets its number in the file. */
static int
read_machines(struct spec_parser *r)
{
	struct fal_buf text = { 0 };
	struct fal_problems first = { .diag = r->diag };
	int err = fal_cli_read(r->file, SPEC_FILE_MAX, &text, r->diag);
	if (err < 0)
		return err;
	err = fal_ini_read(r->file, (const char *)text.p, text.n, on_spec_entry, r,
			   &first);
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
	/* Paths after the file are relative to the working directory. */
	r->file = NULL;
	return err;
}

/* --- all items ------------------------------------------------------------------- */

/* Checks the demands of items on each other. */
static int
check_items(const struct spec_parser *r)
{
	const struct fal_emul *e = r->e;
	if (e->rate == 0)
		return REFUSE(r, "rate=SAMPLES_PER_SECOND is missing");
	if (e->crash_ns != 0 && r->crash_every != 0)
		return REFUSE(r, "crash and crash-every exclude each other");
	for (unsigned i = 0; i < FAL_PATTERNS; i++) {
		const enum fal_pattern_kind kind = (enum fal_pattern_kind)i;
		if (!e->pattern[i].on || e->machine.count > 0)
			continue;
		if (fal_pattern_needs_worker(kind, &e->pattern[i]))
			return REFUSE(r, "pattern %s needs worker=I/M",
				      fal_pattern_name(kind));
		if (fal_pattern_is_clocked(kind) && e->clock == 0)
			return REFUSE(r, "pattern %s needs worker=I/M or clock=SAMPLES",
				      fal_pattern_name(kind));
	}
	return FAL_OK;
}

/* Parses all of SPEC and opens its files; changes `spec`. */
static int
parse_spec(struct spec_parser *r, char *spec)
{
	struct fal_emul *e = r->e;
	int err = FAL_OK;
	if (*spec == '@') {
		r->file = strsep(&spec, ",") + 1;
		err = read_machines(r);
	}
	/* KEY=VALUE[,KEY=VALUE...] */
	begin_scope(r);
	while (spec != NULL && err == FAL_OK) {
		char *item = strsep(&spec, ","), *value = strchr(item, '=');
		if (value == NULL)
			return fal_diag_set(r->diag, FAL_EFORMAT, "'%s' is not KEY=VALUE",
					    FAL_QUOTE(item));
		*value++ = '\0';
		err = parse_item(r, item, value);
	}
	if (err == FAL_OK)
		err = check_items(r);
	if (err < 0)
		return err;
	/* The defaults, the machine's own speed, and the time of its crash. */
	if (e->speed == 0)
		e->speed = 1;
	if (e->cores == 0)
		e->cores = r->host->cores;
	for (unsigned i = 0; i < FAL_PATTERNS; i++)
		if (e->pattern[i].on)
			e->speed *= fal_pattern_share((enum fal_pattern_kind)i,
						      &e->pattern[i], &e->machine);
	if (r->crash_every != 0) {
		double u[4];
		fal_emul_draw(&e->machine, FAL_PATTERNS, 0, u);
		e->crash_ns = 1 + (uint64_t)(-1e9 * r->crash_every * log(u[0]));
	}
	if (r->trace != NULL)
		err = fal_speeds_read(r->trace, &e->trace, r->diag);
	if (err < 0 || r->record == NULL)
		return err;
	e->record = fopen(r->record, "we");
	if (e->record == NULL)
		return fal_diag_set(r->diag, FAL_EIO, "%s: %s", r->record,
				    strerror(errno));
	/* A crash must not cut the record. */
	setvbuf(e->record, NULL, _IOLBF, 0);
	return FAL_OK;
}

int
fal_spec_read(const char *spec, const struct fal_spec_host *host, struct fal_emul **out,
	      struct fal_diag *diag)
{
	struct spec_parser r = { .host = host, .diag = diag };
	char *copy = fal_xstrdup(spec);
	r.e = fal_xcalloc(1, sizeof(*r.e));
	const int err = parse_spec(&r, copy);
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
