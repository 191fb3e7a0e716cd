/* More lanes than cores. */
#ifndef FAL_BASE_OVERSUBSCRIPTION_H
#define FAL_BASE_OVERSUBSCRIPTION_H

#include <stdint.h>

/* The factor by which `lanes` lanes on `cores` > 0 cores are slower than one lane alone:
 * lanes beyond the cores share them. */
static inline double
fal_oversubscription(uint32_t lanes, uint32_t cores)
{
	return lanes > cores ? (double)lanes / cores : 1;
}

#endif
