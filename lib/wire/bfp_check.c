/* Which records honest tasks can have made.
 *
 * A value g of a task is below 2^room quanta, and `needed` is the least k with max|g| <=
 * 2^k; so, d being needed - e in powers of two of a quantum, the task's largest integer M
 * has 2^(d-1) <= M <= 2^d, half a quantum rounding to 0; with d above room M is the
 * largest that has room.  A sum of T tasks has no such lower end, as they may cancel out;
 * its upper one is T times that.  A record's bound, by base and width, is less than
 * thrice its largest value: for sums that is near enough, and costs nothing.  Exponents
 * that were clamped prove nothing at their end. */
#include "wire/bfp.h"

#include "base/err.h"
#include "wire/bfp_kern.h"

/* A record's bound is less than so many times its largest value. */
enum { SLACK = 3 };

/* `needed` in quanta, as a power of two. */
static int
power(const struct fal_bfp_rec *rec)
{
	return rec->needed - rec->exponent + FAL_BFP_P - 1;
}

/* The largest and the smallest that the largest integer of a task can be. */
static uint64_t
most(const struct fal_bfp_rec *rec, unsigned room)
{
	const int d = power(rec);
	if (rec->needed == FAL_EXP_NONE || d < 0)
		return 0;
	return (uint64_t)1 << (rec->needed < FAL_EXP_MAX && d < (int)room ? (unsigned)d
									  : room);
}

static uint64_t
least(const struct fal_bfp_rec *rec, unsigned room)
{
	const int d = power(rec);
	if (rec->needed == FAL_EXP_NONE || rec->needed == FAL_EXP_MIN || d < 0)
		return 0;
	if (d > (int)room)
		return (uint64_t)fal_bfp_largest(room);
	return d > 0 ? (uint64_t)1 << (d - 1) : 1;
}

/* The largest magnitude in it. */
static uint64_t
largest(const struct fal_bfp_rec *rec)
{
	int64_t min, max;
	if (fal_bfp_rec_bound(rec) <= INT32_MAX) {
		int32_t v[FAL_BLOCK];
		fal_bfp_unpack((uint32_t *)v, (const fal_u32_any *)rec->packed,
			       (uint32_t)rec->base, rec->len, rec->width);
		fal_bfp_range_narrow(v, rec->len, &min, &max);
	} else {
		int64_t v[FAL_BLOCK];
		fal_bfp_rec_load(rec, v);
		fal_bfp_range_wide(v, rec->len, &min, &max);
	}
	return (uint64_t)(max > -min ? max : -min);
}

int
fal_bfp_rec_check(const struct fal_bfp_rec *rec, uint32_t tasks, unsigned room)
{
	const uint64_t bound = fal_bfp_rec_bound(rec);
	if (bound > SLACK * ((uint64_t)tasks << room))
		return FAL_ELIMIT;
	if (bound == 0 && rec->needed != FAL_EXP_NONE && power(rec) > (int)room)
		return FAL_EINVAL;
	if (tasks > 1)
		return bound > SLACK * tasks * most(rec, room) ? FAL_EINVAL : FAL_OK;
	const uint64_t is = bound > 0 ? largest(rec) : 0;
	return is > most(rec, room) || is < least(rec, room) ? FAL_EINVAL : FAL_OK;
}

int
fal_bfp_rec_check_delta(const struct fal_bfp_rec *rec)
{
	const int8_t e = rec->needed != FAL_EXP_NONE ? rec->needed : FAL_EXP_MIN;
	if (rec->exponent != e)
		return FAL_EINVAL;
	return fal_bfp_rec_check(rec, 1, FAL_BFP_ROOM_DELTA);
}
