/* Pieces of texts. */
#include "run/texts.h"

#include "base/err.h"

#include <string.h>

int
fal_texts_begin(struct fal_texts *t, const struct fal_msg *welcome)
{
	static const uint32_t most[FAL_TEXTS] = {
		[FAL_TEXT_JOB] = FAL_TEXT_JOB_MAX,
		[FAL_TEXT_MODEL] = FAL_TEXT_MODEL_MAX,
		[FAL_TEXT_MANIFEST] = FAL_TEXT_MANIFEST_MAX,
	};
	const uint32_t size[FAL_TEXTS] = {
		[FAL_TEXT_JOB] = welcome->welcome.job_n,
		[FAL_TEXT_MODEL] = welcome->welcome.model_n,
		[FAL_TEXT_MANIFEST] = welcome->welcome.manifest_n,
	};
	for (unsigned i = 0; i < FAL_TEXTS; i++) {
		if (size[i] == 0)
			return FAL_EFORMAT;
		if (size[i] > most[i])
			return FAL_ELIMIT;
	}
	for (unsigned i = 0; i < FAL_TEXTS; i++) {
		fal_buf_clear(&t->text[i]);
		t->size[i] = size[i];
	}
	return FAL_OK;
}

int
fal_texts_add(struct fal_texts *t, const struct fal_msg *m)
{
	if (m->text.which >= FAL_TEXTS)
		return FAL_ESTATE;
	struct fal_buf *b = &t->text[m->text.which];
	if (m->text.bytes.n == 0 || m->text.offset != b->n ||
	    m->text.bytes.n > t->size[m->text.which] - b->n)
		return FAL_ESTATE;
	fal_put_bytes(b, m->text.bytes.p, m->text.bytes.n);
	if (b->err < 0)
		return b->err;
	for (unsigned i = 0; i < FAL_TEXTS; i++)
		if (t->text[i].n < t->size[i])
			return 0;
	return 1;
}

bool
fal_texts_equal(const struct fal_texts *a, const struct fal_texts *b)
{
	for (unsigned i = 0; i < FAL_TEXTS; i++)
		if (a->text[i].n != b->text[i].n ||
		    memcmp(a->text[i].p, b->text[i].p, a->text[i].n) != 0)
			return false;
	return true;
}

void
fal_texts_free(struct fal_texts *t)
{
	for (unsigned i = 0; i < FAL_TEXTS; i++)
		fal_buf_free(&t->text[i]);
	*t = (struct fal_texts){ 0 };
}
