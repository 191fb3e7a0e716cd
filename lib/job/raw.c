/* Loads files without a header: text in windows, and CIFAR's records. */
#include "job/set.h"

#include "base/mem.h"
#include "base/text.h"
#include "job/source.h"

#include <stdlib.h>
#include <string.h>

/* Makes a set of n samples of bytes, with memory for the samples. */
static int
make_byte_set(const struct source *s, uint32_t n, const uint32_t shape[static 3],
	      struct fal_set *out)
{
	const uint32_t bytes = shape[0] * shape[1] * shape[2];
	*out = (struct fal_set){ .dtype = FAL_U8,
				 .n = n,
				 .shape = { shape[0], shape[1], shape[2] },
				 .values = bytes,
				 .sample_bytes = bytes,
				 .pixels = fal_calloc(n, bytes),
				 .labels = fal_calloc(n, sizeof(uint32_t)) };
	if (out->pixels != NULL && out->labels != NULL)
		return FAL_OK;
	fal_set_free(out);
	return source_nomem(s);
}

/* Sets `*n` to the number of samples to use of the `have` samples of a file. */
static int
limit_samples(const struct source *s, uint64_t have, const struct fal_set_opts *opts,
	      uint32_t *n)
{
	if (opts->max_samples > have)
		return source_fail(s, FAL_EINVAL, "has %ju sample%s, not %u", have,
				   fal_text_plural(have), opts->max_samples);
	if (opts->max_samples == 0 && have > FAL_SAMPLES_MAX)
		return source_fail(s, FAL_ELIMIT, "more than 2^31 samples");
	*n = opts->max_samples != 0 ? opts->max_samples : (uint32_t)have;
	return FAL_OK;
}

static int
make_windows(const struct source *s, const uint8_t *p, size_t bytes, uint32_t window,
	     const struct fal_set_opts *opts, struct fal_set *out)
{
	const uint32_t shape[3] = { 1, 1, window + 1 };
	uint32_t n;
	if (bytes <= window)
		return source_fail(s, FAL_EFORMAT,
				   "%zu byte%s, not even one window of %u and the next",
				   bytes, fal_text_plural(bytes), window);
	int err = limit_samples(s, (bytes - 1) / window, opts, &n);
	if (err == FAL_OK)
		err = make_byte_set(s, n, shape, out);
	for (size_t i = 0; err == FAL_OK && i < n; i++)
		memcpy(out->pixels + i * shape[2], p + i * window, shape[2]);
	out->classes = FAL_CLASSES_BYTE;
	return err;
}

/* Number of labels in a record, index of the label to take, and its classes. */
static const struct {
	uint8_t labels, label, classes;
} cifars[] = { [FAL_CIFAR10] = { 1, 0, 10 },
	       [FAL_CIFAR100_FINE] = { 2, 1, 100 },
	       [FAL_CIFAR100_COARSE] = { 2, 0, 20 } };

static int
make_images(struct source *s, const uint8_t *p, size_t bytes, enum fal_cifar kind,
	    const struct fal_set_opts *opts, struct fal_set *out)
{
	static const uint32_t shape[3] = { 3, 32, 32 };
	const uint32_t image = shape[0] * shape[1] * shape[2];
	const uint32_t record = image + cifars[kind].labels;
	uint32_t n, limit = cifars[kind].classes;
	if (opts->classes != 0 && opts->classes < limit)
		limit = opts->classes;
	if (bytes == 0 || bytes % record != 0)
		return source_fail(s, FAL_EFORMAT, "not records of %u bytes, but %zu",
				   record, bytes);
	s->kind = NULL; /* the size proves CIFAR: pixels may look like another kind */
	int err = limit_samples(s, bytes / record, opts, &n);
	if (err == FAL_OK)
		err = make_byte_set(s, n, shape, out);
	for (size_t i = 0; err == FAL_OK && i < bytes / record; i++, p += record) {
		const uint8_t label = p[cifars[kind].label];
		if (label >= limit)
			err = source_fail(s, FAL_EFORMAT,
					  "label %u of sample %zu is not below %u", label,
					  i, limit);
		else if (i < n) {
			out->labels[i] = label;
			memcpy(out->pixels + i * image, p + cifars[kind].labels, image);
		}
	}
	out->classes = opts->classes != 0 ? opts->classes : cifars[kind].classes;
	return err;
}

/* Loads windows from the first `keep` bytes of a file; with `window` 0, CIFAR records. */
static int
load_bytes(const char *file, uint32_t window, enum fal_cifar kind, uint64_t keep,
	   const struct fal_set_opts *opts, struct fal_set *out, struct fal_diag *diag)
{
	enum { STEP = 1 << 16 };
	struct fal_set set = { 0 };
	struct source s;
	uint8_t *p = NULL, scrap[4096];
	size_t cap = 0, n = 0;
	int err = source_open(&s, file, diag);
	if (err < 0)
		return err;
	int got = 1;
	while (got > 0 && n < keep) {
		const uint64_t left = keep - n;
		if (FAL_GROW(p, cap, n + STEP) < 0) {
			got = source_nomem(&s);
			break;
		}
		got = source_some(&s, p + n, left < STEP ? (unsigned)left : STEP);
		n += got > 0 ? (size_t)got : 0;
		if (opts->max_bytes != 0 && n > opts->max_bytes)
			got = source_fail(&s, FAL_ELIMIT, "above the limit of %ju bytes",
					  opts->max_bytes);
	}
	while (got > 0) /* the rest must be readable, too */
		got = source_some(&s, scrap, sizeof(scrap));
	err = got < 0 ? got : FAL_OK;
	if (err == FAL_OK)
		err = window > 0 ? make_windows(&s, p, n, window, opts, &set)
				 : make_images(&s, p, n, kind, opts, &set);
	err = source_close(&s, err);
	free(p);
	if (err < 0)
		fal_set_free(&set);
	else
		*out = set;
	return err;
}

int
fal_set_load_text(const char *file, uint32_t window, const struct fal_set_opts *opts,
		  struct fal_set *out, struct fal_diag *diag)
{
	if (window == 0 || window >= FAL_SAMPLE_MAX)
		return fal_diag_set(diag, FAL_EINVAL, "%s: a window of %u", file, window);
	const uint64_t keep = opts->max_samples != 0
				      ? (uint64_t)opts->max_samples * window + 1
				      : UINT64_MAX;
	return load_bytes(file, window, FAL_CIFAR10, keep, opts, out, diag);
}

int
fal_set_load_cifar(const char *file, enum fal_cifar kind, const struct fal_set_opts *opts,
		   struct fal_set *out, struct fal_diag *diag)
{
	return load_bytes(file, 0, kind, UINT64_MAX, opts, out, diag);
}
