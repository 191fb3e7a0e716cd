/* What the two files of --what-if share: whatif.c finds it, whatif_print.c says it. */
#ifndef FALCON_PROJ_WHATIF_H
#define FALCON_PROJ_WHATIF_H

#include "proj.h"
#include "proj/predict.h"

/* A prediction; ok is false where the policy cannot go on. */
struct whatif_row {
	struct fal_buf name; /* of the rule */
	bool ok, ran;
	double epoch_s;
	struct fal_play play;
};

/* The lines above the table: the job, the backtest (seconds per epoch `predicted` for
 * what ran), the coordinator and what sizes cost on the machines of `cost`. */
void whatif_head(const struct proj_opt *o, const struct proj_job *job,
		 const struct fal_cost *cost, double predicted, struct fal_buf *out);

/* The table; `rate`: samples a second of what ran, as predicted. */
void whatif_rows(const struct whatif_row *r, size_t n, double rate, struct fal_buf *out);

/* All of it as one object. */
void whatif_json(const struct proj_job *job, const struct fal_cost *cost,
		 const struct whatif_row *r, size_t n, double predicted,
		 struct fal_buf *out);

#endif
