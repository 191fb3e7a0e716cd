/* Pairs of IDX files as data sets. */
#include "data/set.h"

#include "data/idx.h"

#include <stdlib.h>

/* Do the two arrays make one set? */
static int
check_pair(const struct fal_idx *img, const char *images, const struct fal_idx *lab,
	   const char *labels, struct fal_diag *diag)
{
	if (img->ndim < 2)
		return fal_diag_set(diag, FAL_EFORMAT,
				    "%s: one dimension only: labels, not samples?",
				    images);
	if (lab->ndim != 1)
		return fal_diag_set(diag, FAL_EFORMAT,
				    "%s: %u dimensions: samples, not labels?", labels,
				    lab->ndim);
	if (img->dim[0] != lab->dim[0])
		return fal_diag_set(diag, FAL_EFORMAT,
				    "%s: %u labels for the %u samples of %s", labels,
				    lab->dim[0], img->dim[0], images);
	if (img->row_bytes > FAL_SAMPLE_MAX)
		return fal_diag_set(diag, FAL_ELIMIT,
				    "%s: a sample of %zu bytes is above the limit of %d",
				    images, img->row_bytes, FAL_SAMPLE_MAX);
	return FAL_OK;
}

/* The number of classes: as asked, or as found. */
static int
check_labels(const struct fal_idx *lab, const char *labels, uint32_t asked,
	     uint32_t *classes, struct fal_diag *diag)
{
	uint32_t limit = asked != 0 ? asked : FAL_CLASSES_MAX, found = 0;
	for (uint32_t i = 0; i < lab->rows; i++) {
		if (lab->data[i] >= limit)
			return fal_diag_set(diag, FAL_EFORMAT,
					    "%s: label %u of sample %u is not below %u",
					    labels, lab->data[i], i, limit);
		if (lab->data[i] >= found)
			found = lab->data[i] + 1u;
	}
	*classes = asked != 0 ? asked : found;
	return FAL_OK;
}

int
fal_set_load_idx(const char *images, const char *labels, const struct fal_set_opts *opts,
		 struct fal_set *out, struct fal_diag *diag)
{
	const struct fal_idx_opts keep = { opts->max_samples, opts->max_bytes };
	struct fal_idx img = { 0 }, lab = { 0 };
	uint32_t classes = 0;

	if (opts->classes > FAL_CLASSES_MAX)
		return fal_diag_set(diag, FAL_EINVAL, "%s: %u classes are more than %d",
				    labels, opts->classes, FAL_CLASSES_MAX);
	int err = fal_idx_read(labels, &keep, &lab, diag);
	if (err == FAL_OK)
		err = fal_idx_read(images, &keep, &img, diag);
	if (err == FAL_OK)
		err = check_pair(&img, images, &lab, labels, diag);
	if (err == FAL_OK)
		err = check_labels(&lab, labels, opts->classes, &classes, diag);
	if (err < 0) {
		fal_idx_free(&img);
		fal_idx_free(&lab);
		return err;
	}
	*out = (struct fal_set){
		.n = img.rows,
		.classes = classes,
		.sample_bytes = (uint32_t)img.row_bytes,
		.pixels = img.data,
		.labels = lab.data,
	};
	for (unsigned i = 0; i < 3; i++) {
		/* The last dimensions of the file, with ones in front. */
		unsigned skip = FAL_IDX_DIMS - img.ndim;
		out->shape[i] = i < skip ? 1 : img.dim[i - skip + 1];
	}
	return FAL_OK;
}

void
fal_set_free(struct fal_set *set)
{
	free(set->pixels);
	free(set->labels);
	*set = (struct fal_set){ 0 };
}
