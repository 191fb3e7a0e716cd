/* Members of a trace's lines, read by the text of falcon-trace(5) and not by the table of
 * lib/trace: a second reader, which the product's own is held against.  A member that is
 * missing or of another type is the line's error; then 0 or "" is returned. */
#ifndef TOLD_H
#define TOLD_H

#include "trace/reader.h"

static inline bool
told_has(const json_t *o, const char *key)
{
	return json_object_get(o, key) != NULL;
}

static inline uint64_t
told_u64(struct fal_trace_line *l, const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);
	if (!json_is_integer(v) || json_integer_value(v) < 0)
		fal_trace_fail(l, FAL_EFORMAT, "%s: not a whole number", key);
	return l->err == 0 ? (uint64_t)json_integer_value(v) : 0;
}

static inline double
told_f64(struct fal_trace_line *l, const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);
	if (!json_is_number(v))
		fal_trace_fail(l, FAL_EFORMAT, "%s: not a number", key);
	return json_number_value(v);
}

static inline const char *
told_str(struct fal_trace_line *l, const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);
	if (!json_is_string(v))
		fal_trace_fail(l, FAL_EFORMAT, "%s: not a string", key);
	return l->err == 0 ? json_string_value(v) : "";
}

static inline size_t
told_len(struct fal_trace_line *l, const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);
	if (!json_is_array(v))
		fal_trace_fail(l, FAL_EFORMAT, "%s: not an array", key);
	return json_array_size(v);
}

/* An array of `width` whole numbers. */
static inline void
told_numbers(struct fal_trace_line *l, const json_t *v, const char *key, size_t width,
	     uint64_t *row)
{
	if (!json_is_array(v) || json_array_size(v) != width)
		fal_trace_fail(l, FAL_EFORMAT, "%s: not %zu numbers", key, width);
	for (size_t i = 0; i < width; i++)
		row[i] = (uint64_t)json_integer_value(json_array_get(v, i));
}

static inline void
told_row(struct fal_trace_line *l, const json_t *o, const char *key, size_t i,
	 size_t width, uint64_t *row)
{
	told_numbers(l, json_array_get(json_object_get(o, key), i), key, width, row);
}

static inline void
told_tuple(struct fal_trace_line *l, const json_t *o, const char *key, size_t width,
	   uint64_t *row)
{
	told_numbers(l, json_object_get(o, key), key, width, row);
}

#endif
