/* The memory that a program needs at its peak: estimated before it begins, said, and
 * compared with --max-memory, its control groups and ulimit. */
#ifndef FAL_CLI_NEED_H
#define FAL_CLI_NEED_H

#include "base/err.h"
#include "cli/cli.h"

#include <stdbool.h>
#include <stdint.h>

/* In MiB, as it is said: rounded up. */
static inline uint64_t
fal_need_mib(uint64_t bytes)
{
	return (bytes + (1 << 20) - 1) >> 20;
}

/* Is a need of so many bytes within --max-memory (`most`, 0: any) and what the control
 * groups allow?  FAL_ELIMIT says both in `why`: "needs 9 bytes, --max-memory allows 7".
 * And can what is not there yet be mapped, with `reserved` bytes that are hardly used and
 * the stacks of libuv's threads?  FAL_ENOMEM, with `why`. */
int fal_need_allowed(uint64_t need, uint64_t reserved, uint64_t most,
		     struct fal_diag *why);

/* Begins a program, before it allocates anything: large blocks go back to the system when
 * they are freed, so that what is counted is what there is.  The bytes of the program
 * itself: what it has now, and what of its code, its libraries and their small things
 * comes when it runs. */
uint64_t fal_need_program(void);

/* The same of one that has begun: what it has now, and `yet` bytes that have not come. */
uint64_t fal_need_begun(uint64_t yet);

/* What the process has now beyond what is in use of `program`: what was read. */
uint64_t fal_need_read(uint64_t program);

/* --max-memory, of `most` bytes, of a program whose memory grows with what it reads,
 * which nobody knows before; `program` is what it needs besides.  Where the option is not
 * given nothing is said nor held: -1.  Else it says the need, and -1: from now on the
 * process is out of memory beyond it (setrlimit(2), RLIMIT_DATA); or what is too much, or
 * no size: an exit code.  `dials`: it will have the threads of that, whose stacks count,
 * though they hardly take anything. */
int fal_need_hold(const struct fal_cli *cli, uint64_t program, uint64_t most, bool dials);

#endif
