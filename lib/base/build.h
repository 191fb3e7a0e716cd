/* The build of Falcon. */
#ifndef FAL_BASE_BUILD_H
#define FAL_BASE_BUILD_H

#define FAL_BUILD_MAX 63 /* bytes of its text */

/* The version of this build ("0.1.0"); static. */
const char *fal_build(void);

#endif
