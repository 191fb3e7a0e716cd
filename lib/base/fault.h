/* Fault points: every call that the system may refuse, for want of memory or for a broken
 * or full disk, is made through FAL_TRY; in a build with FAL_FAULTS (make MODE=fault) the
 * environment says which one fails (tests/fault.c).  Elsewhere nothing is left of it.
 *
 *	FALCON_FAULT=KIND:N     the N-th of its kind fails, and no other
 *	FALCON_FAULT=KIND:N+    it and all that follow
 *	FALCON_FAULT_LOG=FILE   gets a line "KIND N ADDRESS…" for the first call of each
 *	                        stack, and the same with a `!` before it for what fails
 *
 * KIND is malloc, json (an allocation of jansson's, base/json_load.h), read, write, fsync
 * or rename; an ADDRESS is as addr2line(1) takes it.
 */
#ifndef FAL_BASE_FAULT_H
#define FAL_BASE_FAULT_H

enum fal_fault {
	FAL_FAULT_MALLOC, /* ENOMEM */
	FAL_FAULT_JSON,   /* the same */
	FAL_FAULT_READ,   /* EIO */
	FAL_FAULT_WRITE,  /* ENOSPC; what makes room in a file, too */
	FAL_FAULT_FSYNC,  /* EIO */
	FAL_FAULT_RENAME, /* EIO */
	FAL_FAULTS_ALL
};

/* FAL_TRY(KIND, failed, call): `call`, or instead of it `failed` with errno set. */
#ifdef FAL_FAULTS
#include <stdbool.h>
bool fal_fault(enum fal_fault kind);
#define FAL_TRY(kind, failed, call) (fal_fault(FAL_FAULT_##kind) ? (failed) : (call))
#else
#define FAL_TRY(kind, failed, call) (call)
#endif

#endif
