/* What the two files of --what-if share: whatif.c finds it, whatif_print.c says it. */
#ifndef FALCON_PROJ_WHATIF_H
#define FALCON_PROJ_WHATIF_H

#include "job/stale.h"
#include "proj.h"
#include "proj/what_if.h"

/* A prediction; ok is false where the policy cannot go on. */
struct whatif_row {
	struct fal_buf name; /* of the rule */
	bool ok, ran;
	bool other; /* it alters the model of what ran */
	/* Where momentum meets late gradients, "" else. */
	char warning[FAL_STALE_TEXT];
	double epoch_s;
	struct fal_play play;
};

/* A worker more, a worker less, or another size. */
enum whatif_kind { WHATIF_ADD, WHATIF_REMOVE, WHATIF_SIZE };

/* What one change is worth under the policy that ran, all else being as it was. */
struct whatif_change {
	enum whatif_kind kind;
	char what[80]; /* the worker, or "task = 16" */
	bool other;    /* it alters the model of what ran */
	double by_s;   /* seconds per epoch that it adds */
};

/* The whole answer. */
struct whatif {
	const struct proj_job *job; /* borrowed */
	struct fal_play backtest;   /* what ran, on the machines that there were */
	double predicted;           /* seconds per epoch of that */
	struct fal_cost cost;       /* with all changes */
	double whole, small;        /* fal_cost_sizes of that */
	struct whatif_row *row;
	size_t rows;
	struct whatif_change *change;
	size_t changes;
};

/* As text; and as one JSON object. */
void whatif_text(const struct proj_opt *o, const struct whatif *w, struct fal_buf *out);
void whatif_json(const struct whatif *w, struct fal_buf *out);

#endif
