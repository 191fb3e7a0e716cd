/* The version, in one object. */
#include "base/build.h"

_Static_assert(sizeof(FAL_VERSION) <= FAL_BUILD_MAX + 1, "it fits");

const char *
fal_build(void)
{
	return FAL_VERSION;
}
