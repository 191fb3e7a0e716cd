/* More lanes than cores. */
#ifndef FAL_BASE_OVERSUBSCRIPTION_H
#define FAL_BASE_OVERSUBSCRIPTION_H

#include <stdint.h>

/* How many times slower a lane is at `lanes` lanes on `cores` > 0 cores than alone: lanes
 * beyond the cores share them. */
static inline double
fal_oversubscription(uint32_t lanes, uint32_t cores)
{
	return lanes > cores ? (double)lanes / cores : 1;
}

#endif
