/* The conventions of all commands: options through popt, exit codes, one-line errors.
 *
 * lib/cli is the one library that prints; still no function in it exits.  Options are one
 * table; values are parsed strictly (popt's own numbers take 0x10 and -5), and an option
 * given twice is refused unless it is a list.
 */
#ifndef FAL_CLI_CLI_H
#define FAL_CLI_CLI_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum fal_exit {
	FAL_EXIT_DONE = 0,
	FAL_EXIT_NO = 1,        /* failed, or "the answer is no" */
	FAL_EXIT_USAGE = 2,     /* usage, or a bad input file */
	FAL_EXIT_TEMPFAIL = 75, /* try again later; sysexits' EX_TEMPFAIL */
	FAL_EXIT_NOPERM = 77    /* not permitted; sysexits' EX_NOPERM */
};

/* The kinds of options, by the variable that `to` of struct fal_opt points to.  The
 * variable keeps its default where the option is not given. */
enum fal_opt_kind {
	FAL_OPT_FLAG,   /* bool: true; takes no value */
	FAL_OPT_TEXT,   /* const char *: lives as long as the struct fal_cli */
	FAL_OPT_U64,    /* uint64_t: decimal */
	FAL_OPT_SIZE,   /* uint64_t: bytes, K M G T allowed */
	FAL_OPT_NUMBER, /* double: finite */
	FAL_OPT_LIST    /* struct fal_opt_list: each use adds a text */
};

struct fal_opt_list {
	const char **v; /* owned by the struct fal_cli, like its texts */
	size_t n;
};

struct fal_opt {
	const char *name; /* long name, without "--" */
	char letter;      /* 0: none */
	enum fal_opt_kind kind;
	void *to;
	const char *help;
	const char *value; /* word for the value in --help; NULL for a flag */
};

/* A command's conventions and the result of parsing its command line.  The caller sets
 * the fields before `arg`, kept until fal_cli_free(). */
struct fal_cli {
	const char *prog; /* "falcon-ps" */
	const char *args; /* operands in --help, such as "JOB" */
	const struct fal_opt *opts;
	size_t n_opts;
	size_t min_args, max_args;
	unsigned descriptors; /* open files that the command needs; 0: as most do */
	uint64_t schema;      /* schema of its messages, for --version; 0: none */

	const char **arg; /* the operands; live until fal_cli_free() */
	size_t n_args;
	struct fal_cli_state *state; /* private */
};

#define FAL_CLI_DESCRIPTORS 24 /* enough for most programs */

/* Parses the command line, before any file is opened; from then on a file size limit is
 * an error as of a full disk, and ends no program.  Returns -1 to go on, or an exit code:
 * FAL_EXIT_DONE after --help or --version (to stdout), FAL_EXIT_USAGE after one line on
 * stderr, FAL_EXIT_NO if too few files may be open.  --help and --version are added to
 * the options.  The caller calls fal_cli_free() in each case. */
int fal_cli_parse(struct fal_cli *cli, int argc, char **argv);

/* Is option `name` given?  After fal_cli_parse. */
bool fal_cli_is_given(const struct fal_cli *cli, const char *name);

/* Checks option `name`, a U64 or SIZE, after fal_cli_parse: -1 to go on if the option is
 * not given or min ≤ value ≤ max, else FAL_EXIT_USAGE after one line on stderr.  So 0 is
 * refused as a value where it means "not given". */
int fal_cli_range(const struct fal_cli *cli, const char *name, uint64_t min,
		  uint64_t max);

/* Frees the results of fal_cli_parse, with the arrays of lists. */
void fal_cli_free(struct fal_cli *cli);

/* Prints "prog: text\n" on stderr, with the text of keys hidden, and folded between words
 * on a narrow terminal.  The line is dropped, and counted, if stderr takes no line for a
 * second. */
void fal_cli_err(const char *prog, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* As fal_cli_err; returns FAL_EXIT_USAGE. */
int fal_cli_usage(const char *prog, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Prints text for a person on stdout, folded on a terminal. */
void fal_cli_print(const struct fal_buf *text);

/* The exit code for an error of the library: FAL_EXIT_USAGE for bad input, _TEMPFAIL for
 * the wrong moment, _NOPERM for an operation that is not permitted, else _NO. */
int fal_cli_exit_code(int err);

/* The exit code for a file of the command line that could not be read: a faulty or
 * missing file is bad input; a file without permission is FAL_EXIT_NOPERM. */
int fal_cli_file_exit_code(int err);

/* For programs that hold keys, before the keys are read: from then on the process leaves
 * no core dump, and no other process of its user can read its memory (prctl(2),
 * PR_SET_DUMPABLE; getrlimit(2), RLIMIT_CORE). */
void fal_cli_hide_memory(void);

/* Flushes stdout.  FAL_EXIT_NO, with a line on stderr: the output is incomplete (a full
 * disk); else `code`. */
int fal_cli_finish(const char *prog, int code);

/* Writes `out` to stdout and empties it: as it is, or as text for a person.  Returns
 * `code`, or FAL_EXIT_NO after a line on stderr. */
int fal_cli_output(const char *prog, struct fal_buf *out, bool as_is, int code);

#endif
