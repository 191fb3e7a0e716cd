/* A safetensors file without its integers. */
#include "model/safetensors_priv.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* A tensor of a file that is copied. */
struct piece {
	uint64_t at[2];
	const char *name;
	json_t *o;
};

static bool
is_integer(const json_t *o)
{
	static const char *const dtypes[] = { "I8",  "I16", "I32", "I64", "U8",
					      "U16", "U32", "U64", "BOOL" };
	const char *dtype = json_string_value(json_object_get(o, "dtype"));
	for (size_t i = 0; dtype != NULL && i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
		if (strcmp(dtype, dtypes[i]) == 0)
			return true;
	return false;
}

/* All tensors, in the order of the data, which they cover. */
static int
read_pieces(struct reader *r, json_t *o, struct piece *piece, uint32_t *n)
{
	for (void *i = json_object_iter(o); i != NULL; i = json_object_iter_next(o, i)) {
		struct piece *p = &piece[*n];
		*p = (struct piece){ .name = json_object_iter_key(i),
				     .o = json_object_iter_value(i) };
		if (strcmp(p->name, "__metadata__") == 0)
			continue;
		int err = st_read_offsets(r, p->name, p->o, p->at);
		if (err < 0)
			return err;
		++*n;
	}
	qsort(piece, *n, sizeof(*piece), st_by_begin);
	uint64_t end = 0;
	uint32_t k = 0;
	while (k < *n && piece[k].at[0] == end && piece[k].at[1] >= end)
		end = piece[k++].at[1];
	if (k < *n || end != r->bytes)
		return FAIL(r, "tensors overlap or leave a gap at byte %llu of the data",
			    (unsigned long long)end);
	return FAL_OK;
}

/* The header of the pieces that are kept, then their data. */
static int
put_pieces(const struct reader *r, json_t *o, const struct piece *piece, uint32_t n,
	   struct fal_buf *out)
{
	uint64_t at = 0;
	for (uint32_t i = 0; i < n; i++) {
		const uint64_t len = piece[i].at[1] - piece[i].at[0];
		if (json_object_set_new(piece[i].o, "data_offsets",
					json_pack("[I, I]", (json_int_t)at,
						  (json_int_t)(at + len))) != 0)
			return FAL_ENOMEM;
		at += len;
	}
	char *text = json_dumps(o, JSON_COMPACT);
	if (text == NULL)
		return FAL_ENOMEM;
	fal_put_u64(out, strlen(text));
	fal_put_bytes(out, text, strlen(text));
	free(text);
	for (uint32_t i = 0; i < n; i++)
		fal_put_bytes(out, r->data + piece[i].at[0],
			      piece[i].at[1] - piece[i].at[0]);
	return out->err;
}

int
fal_safetensors_strip(const char *name, const struct fal_buf *bytes,
		      bool (*left)(const void *arg, const char *tensor), const void *arg,
		      struct fal_buf *out, struct fal_diag *diag)
{
	struct reader r = { .name = name, .diag = diag };
	const char *text;
	json_t *o;
	size_t len;
	uint32_t n = 0, kept = 0;
	int err = st_find_header(&r, bytes->p, bytes->n, &text, &len);
	if (err == 0)
		err = st_read_json(&r, text, len, &o);
	if (err < 0)
		return err;
	struct piece *piece = fal_calloc(json_object_size(o) + 1, sizeof(*piece));
	err = piece != NULL ? read_pieces(&r, o, piece, &n) : FAL_ENOMEM;
	for (uint32_t i = 0; i < n && err == 0; i++)
		if (is_integer(piece[i].o) && left(arg, piece[i].name))
			json_object_del(o, piece[i].name);
		else
			piece[kept++] = piece[i];
	if (err == 0)
		err = put_pieces(&r, o, piece, kept, out);
	free(piece);
	json_decref(o);
	return err == FAL_ENOMEM ? fal_diag_set(diag, err, "%s: out of memory", name)
				 : err;
}
