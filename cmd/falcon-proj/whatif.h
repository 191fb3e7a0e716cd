/* What the two files of --what-if share: whatif.c finds it, whatif_print.c says it. */
#ifndef FALCON_PROJ_WHATIF_H
#define FALCON_PROJ_WHATIF_H

#include "job/stale.h"
#include "proj.h"
#include "proj/predict.h"
#include "proj/shards.h"

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
enum whatif_kind { WHATIF_ADD, WHATIF_REMOVE, WHATIF_SIZE, WHATIF_SHARDS };

/* What one change is worth under the policy that ran, all else being as it was. */
struct whatif_change {
	enum whatif_kind kind;
	char what[80]; /* the worker, or "task = 16" */
	bool other;    /* it alters the model of what ran */
	double by_s;   /* seconds per epoch that it adds */
};

/* The blocks on other shards, placed by a rule or by psld. */
struct whatif_place {
	const char *name; /* of the rule */
	struct fal_shards_plan plan;
	double epoch_s; /* under the policy that ran, all else being as it was */
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
	struct fal_shards shards; /* n 0: as they are */
	struct whatif_place place[FAL_PLACE_RULES + 1];
	size_t places;
};

/* The shards that --shards and --without ask for.  -1 to go on, or an exit code, having
 * said what is wrong. */
int whatif_shards(const struct proj_opt *o, struct whatif *w);
/* Costs `c` on them, with our own even placement.  FAL_ENOMEM. */
int whatif_on_shards(const struct whatif *w, const struct fal_shards *s,
		     struct fal_cost *c);
/* A row for each placement, and what each shard that is taken away is worth.  FAL_ENOMEM.
 */
int whatif_places(const struct proj_opt *o, struct whatif *w);
/* Seconds per epoch of the policy that ran with such costs; negative: FAL_ENOMEM. */
double whatif_epoch(const struct proj_job *job, const struct fal_cost *cost);

/* As text; and as one JSON object. */
void whatif_text(const struct proj_opt *o, const struct whatif *w, struct fal_buf *out);
void whatif_json(const struct whatif *w, struct fal_buf *out);

#endif
