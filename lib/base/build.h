/* Which build of Falcon this is. */
#ifndef FAL_BASE_BUILD_H
#define FAL_BASE_BUILD_H

#define FAL_BUILD_MAX 63 /* bytes of its text */

/* The version that it was built as ("0.1.0"); static. */
const char *fal_build(void);

#endif
