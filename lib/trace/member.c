/* Members of a line, onto a buffer. */
#include "trace/member.h"

#include "base/json.h"

#include <assert.h>
#include <inttypes.h>

void
fal_member_begin(struct fal_buf *b, double t, const char *ev)
{
	fal_buf_clear(b);
	fal_put_fmt(b, "{\"%s\":%.6f,\"%s\":\"%s\"", fal_field_name(FAL_F_T),
		    t < 0 ? 0 : t, fal_field_name(FAL_F_EV), ev);
}

void
fal_member_key(struct fal_buf *b, enum fal_field f, enum fal_field_kind kind)
{
	assert(fal_field_kind(f) == kind);
	fal_json_key(b, fal_field_name(f));
}

void
fal_member_hex64(struct fal_buf *b, enum fal_field f, uint64_t value)
{
	fal_member_key(b, f, FAL_FIELD_TEXT);
	fal_put_fmt(b, "\"%016" PRIx64 "\"", value);
}

void
fal_member_str(struct fal_buf *b, enum fal_field f, const char *value)
{
	if (value == NULL)
		return;
	fal_member_key(b, f, FAL_FIELD_TEXT);
	fal_json_str(b, value);
}

void
fal_member_num(struct fal_buf *b, enum fal_field f, uint64_t value)
{
	fal_member_key(b, f, FAL_FIELD_WHOLE);
	fal_json_u64(b, value);
}

void
fal_member_exponent(struct fal_buf *b, enum fal_field f, int value)
{
	fal_member_key(b, f, FAL_FIELD_EXPONENT);
	fal_json_i64(b, value);
}

void
fal_member_real(struct fal_buf *b, enum fal_field f, double value)
{
	fal_member_key(b, f, FAL_FIELD_REAL);
	fal_json_num(b, value);
}

void
fal_member_seconds(struct fal_buf *b, enum fal_field f, double value)
{
	fal_member_key(b, f, FAL_FIELD_SECONDS);
	fal_json_fixed(b, value, 6);
}

void
fal_member_ns(struct fal_buf *b, enum fal_field f, uint64_t value)
{
	fal_member_seconds(b, f, (double)value * 1e-9);
}

void
fal_member_pair(struct fal_buf *b, enum fal_field f, uint32_t one, uint32_t two)
{
	const uint64_t v[] = { one, two };
	fal_member_key(b, f, FAL_FIELD_TUPLE);
	fal_member_row(b, 2, v);
}

void
fal_member_list(struct fal_buf *b, enum fal_field f)
{
	fal_member_key(b, f, FAL_FIELD_LIST);
	fal_json_open(b, '[');
}

void
fal_member_row(struct fal_buf *b, uint32_t n, const uint64_t *v)
{
	fal_json_open(b, '[');
	for (uint32_t i = 0; i < n; i++)
		fal_json_u64(b, v[i]);
	fal_json_close(b, ']');
}

void
fal_member_end(struct fal_buf *b)
{
	fal_json_close(b, '}');
}

void
fal_member_who(struct fal_buf *b, struct fal_line_who w)
{
	fal_member_str(b, FAL_F_WORKER, w.name);
	fal_member_num(b, FAL_F_ID, w.id);
}
