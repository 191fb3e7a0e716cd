/* The peak memory of a program: estimated before the program begins, logged, and compared
 * with --max-memory, its control groups and ulimit. */
#ifndef FAL_CLI_NEED_H
#define FAL_CLI_NEED_H

#include "base/err.h"
#include "cli/cli.h"

#include <stdbool.h>
#include <stdint.h>

/* In MiB, as in log lines: rounded up. */
static inline uint64_t
fal_memory_mib(uint64_t bytes)
{
	return (bytes + (1 << 20) - 1) >> 20;
}

/* Compares a need of so many bytes with --max-memory (`most`, 0: any) and the limit of
 * the control groups: FAL_ELIMIT if the need is more, with both in `why`: "needs 9 bytes,
 * --max-memory allows 7".  Maps the missing part for a moment, with `reserved` bytes that
 * are hardly used and the stacks of libuv's threads: FAL_ENOMEM if that fails, with
 * `why`. */
int fal_memory_check(uint64_t need, uint64_t reserved, uint64_t most,
		     struct fal_diag *why);

/* Prepares a program's memory, before the program allocates: freed large blocks go back
 * to the system, so that an estimate equals the memory in use.  Returns the bytes of the
 * program itself: its memory now, and the part of its code, libraries and small blocks
 * that comes when it runs. */
uint64_t fal_memory_prepare(void);

/* The bytes of a running program: its memory now, and `yet` bytes still to come. */
uint64_t fal_memory_now(uint64_t yet);

/* The memory now beyond `program`: the input that was read. */
uint64_t fal_memory_of_input(uint64_t program);

/* Applies --max-memory, of `most` bytes, to a program whose memory grows with its input,
 * by an amount not known before.  `program` is the program's need without input.  Logs
 * the need, and limits the memory of the process (setrlimit(2), RLIMIT_DATA).  `dials`:
 * the program will have libuv's threads, whose stacks count, though they are hardly used.
 * Returns -1, also without the option, or an exit code: the need is too much, or the
 * option is no size. */
int fal_memory_apply_limit(const struct fal_cli *cli, uint64_t program, uint64_t most,
			   bool dials);

#endif
