/* Learning-rate schedules.
 *
 * Only the coordinator computes a rate, and sends it with the update as a float: the
 * functions of libm differ between machines.
 */
#ifndef FAL_OPTIM_SCHEDULE_H
#define FAL_OPTIM_SCHEDULE_H

#include <stdint.h>

enum fal_schedule_kind {
	FAL_CONSTANT = 0,
	FAL_STEP,  /* lr·gamma^⌊t / every⌋ */
	FAL_COSINE /* min_lr + (lr - min_lr)·(1 + cos(π·t / T)) / 2; min_lr from t = T on
		    */
};

/* t counts the updates after the warm-up, T = total - warmup. */
struct fal_schedule {
	enum fal_schedule_kind kind;
	double lr;
	uint64_t warmup; /* updates; 0: none */
	uint64_t every;  /* step: updates, > 0 */
	double gamma;    /* step */
	uint64_t total;  /* cosine: updates with the warm-up, >= warmup */
	double min_lr;   /* cosine */
};

/* The rate of an update, the first one being 0.  The warm-up is linear: lr·(u + 1) /
 * warmup for update u < warmup, so from lr/warmup to lr (Goyal et al., "Accurate, large
 * minibatch SGD", 2017); then the rule (cosine: Loshchilov and Hutter, "SGDR", ICLR
 * 2017, without restarts). */
double fal_schedule_lr(const struct fal_schedule *s, uint64_t update);

#endif
