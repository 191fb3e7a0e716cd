/* Lines of traces for tests that say only what matters to them: the members that
 * falcon-trace(5) demands beside are added, with values that give no finding.  A member
 * that is null is left out. */
#ifndef WHOLE_H
#define WHOLE_H

#include "base/buf.h"
#include "trace/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Members of the lines so far. */
static struct {
	json_int_t batch, task, samples, per_epoch, epochs, version;
} whole_job;

static json_int_t
whole_get(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

static json_int_t
whole_ceil(json_int_t a, json_int_t b)
{
	return b > 0 ? (a + b - 1) / b : 0;
}

/* The samples of the tasks of a clock line: those of mean ones of its clock. */
static json_int_t
whole_samples(const json_t *o)
{
	const json_int_t ran = whole_get(o, "done") + whole_get(o, "lost");
	const json_int_t per = whole_job.per_epoch > 0 ? whole_job.per_epoch : 1;
	json_int_t left =
		whole_job.samples - whole_get(o, "clock") % per * whole_job.batch;
	left = left < whole_job.batch ? left : whole_job.batch;
	const json_int_t tasks = whole_ceil(left, whole_job.task);
	return tasks > 0 ? ran * left / tasks : ran;
}

static json_t *
whole_value(const json_t *o, enum fal_event ev, const struct fal_member *m)
{
	if (ev == FAL_EV_LEDGER && strcmp(m->name, "round") == 0)
		return json_integer(whole_get(o, "clock"));
	if (ev == FAL_EV_UPDATE && strcmp(m->name, "rounds") == 0)
		return json_pack("[I]", whole_get(o, "clock"));
	if (ev == FAL_EV_CLOCK && strcmp(m->name, "samples") == 0)
		return json_integer(whole_samples(o));
	if (ev == FAL_EV_POLICY && strcmp(m->name, "version") == 0)
		return json_integer(whole_job.version);
	if (ev == FAL_EV_RESTART && strcmp(m->name, "epochs") == 0)
		return json_integer(whole_job.epochs);
	if (ev == FAL_EV_JOB && strcmp(m->name, "shards") == 0)
		return json_integer(1);
	switch (m->kind) {
	case FAL_M_WHOLE:
	case FAL_M_ID:
	case FAL_M_REAL:
	case FAL_M_LOSS:
	case FAL_M_SECONDS:
		return json_integer(0);
	case FAL_M_TEXT:
		return json_string("");
	case FAL_M_WORD:
		return json_stringn(m->words, strcspn(m->words, " "));
	case FAL_M_TUPLE:
		return json_pack("[i,i]", 1, 1);
	default:
		return json_array();
	}
}

/* Paces without samples have those of mean tasks. */
static void
whole_paces(json_t *o)
{
	const json_int_t ran = whole_get(o, "done") + whole_get(o, "lost");
	json_int_t tasks = 0, before = 0;
	json_t *row;
	size_t i;
	json_array_foreach(json_object_get(o, "paces"), i, row)
	{
		if (json_array_size(row) != 2 || ran == 0)
			continue;
		tasks += json_integer_value(json_array_get(row, 0));
		const json_int_t all = tasks * whole_get(o, "samples") / ran;
		json_array_append_new(row, json_integer(all - before));
		before = all;
	}
}

static void
whole_add(json_t *o, enum fal_event ev)
{
	const struct fal_schema *s = fal_event_schema(ev);
	for (size_t i = 0; i < s->members; i++) {
		const struct fal_member *m = &s->member[i];
		if (m->when == FAL_MUST && json_object_get(o, m->name) == NULL)
			json_object_set_new(o, m->name, whole_value(o, ev, m));
		if (m->kind != FAL_M_LOSS && json_is_null(json_object_get(o, m->name)))
			json_object_del(o, m->name);
	}
	if (ev == FAL_EV_CLOCK)
		whole_paces(o);
	if (ev == FAL_EV_JOB) {
		whole_job.epochs = whole_get(o, "epochs");
		whole_job.batch = whole_get(o, "batch");
		whole_job.task = whole_get(o, "task");
		whole_job.samples = whole_get(o, "samples");
		whole_job.per_epoch = whole_get(o, "clocks_per_epoch");
		whole_job.version = 0;
	}
	if (ev == FAL_EV_UPDATE || ev == FAL_EV_VERSION)
		whole_job.version = whole_get(o, "version");
}

/* The lines, completed; what is no line of an event stays as it is. */
static struct fal_buf
whole_lines(const char *text, size_t n)
{
	struct fal_buf out = { 0 };
	while (n > 0) {
		const char *end = memchr(text, '\n', n);
		const size_t k = end != NULL ? (size_t)(end - text) : n;
		json_t *o = end != NULL
				    ? json_loadb(text, k, JSON_REJECT_DUPLICATES, NULL)
				    : NULL;
		const char *ev = json_string_value(json_object_get(o, "ev"));
		const enum fal_event is = ev != NULL ? fal_event_find(ev) : FAL_EV_OTHER;
		if (is != FAL_EV_OTHER) {
			whole_add(o, is);
			char *line = json_dumps(o, JSON_COMPACT);
			fal_put_bytes(&out, line, strlen(line));
			free(line);
		} else {
			fal_put_bytes(&out, text, k);
		}
		json_decref(o);
		if (end != NULL)
			fal_put_u8(&out, '\n');
		n -= k + (end != NULL);
		text += k + (end != NULL);
	}
	return out;
}

static inline int
whole_feed(struct fal_trace_reader *r, const void *p, size_t n, struct fal_diag *diag)
{
	struct fal_buf lines = whole_lines(p, n);
	const int err = fal_trace_feed(r, lines.p, lines.n, diag);
	fal_buf_free(&lines);
	return err;
}

#endif
