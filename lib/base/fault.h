/* Fault points: FAL_TRY wraps every call that the system may refuse, because memory is
 * short or because a disk is broken or full.  In a build with FAL_FAULTS (make
 * MODE=fault) the environment selects the call that fails (tests/fault.c); in other
 * builds FAL_TRY is the bare call.
 *
 *	FALCON_FAULT=KIND:N     the N-th call of its kind fails, and no other
 *	FALCON_FAULT=KIND:N+    the N-th and all later calls fail
 *	FALCON_FAULT_LOG=FILE   gets a line "KIND N ADDRESS…" for the first call of each
 *	                        stack, and a line with a `!` before it for each failure
 *
 * KIND is malloc, json (jansson allocates memory, base/json_load.h), read, write, fsync
 * or rename; addr2line(1) takes an ADDRESS.
 */
#ifndef FAL_BASE_FAULT_H
#define FAL_BASE_FAULT_H

enum fal_fault {
	FAL_FAULT_MALLOC, /* ENOMEM */
	FAL_FAULT_JSON,   /* ENOMEM */
	FAL_FAULT_READ,   /* EIO */
	FAL_FAULT_WRITE,  /* ENOSPC; also calls that allocate room in a file */
	FAL_FAULT_FSYNC,  /* EIO */
	FAL_FAULT_RENAME, /* EIO */
	FAL_FAULTS_ALL
};

/* FAL_TRY(KIND, failed, call): the value of `call`, or `failed` with errno set. */
#ifdef FAL_FAULTS
#include <stdbool.h>
bool fal_fault(enum fal_fault kind);
#define FAL_TRY(kind, failed, call) (fal_fault(FAL_FAULT_##kind) ? (failed) : (call))
#else
#define FAL_TRY(kind, failed, call) (call)
#endif

#endif
