/* What all commands share: options through popt, exit codes, one-line errors.
 *
 * lib/cli is the one library that talks to a person; still nothing in it exits.  Options
 * are one table; values are parsed strictly (popt's own numbers take 0x10 and -5), and
 * an option given twice is refused unless it is a list.
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

/* What an option sets; `to` of struct fal_opt points to it.  Left alone where the option
 * is not given, so defaults stand there before. */
enum fal_opt_kind {
	FAL_OPT_FLAG,   /* bool: true; takes no value */
	FAL_OPT_TEXT,   /* const char *: lives as long as the struct fal_cli */
	FAL_OPT_U64,    /* uint64_t: decimal */
	FAL_OPT_SIZE,   /* uint64_t: bytes, K M G T allowed */
	FAL_OPT_NUMBER, /* double: finite */
	FAL_OPT_LIST    /* struct fal_opt_list: each time one more text */
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

/* A command's conventions and the result of reading its command line.  The first seven
 * fields are the caller's, kept until fal_cli_free(). */
struct fal_cli {
	const char *prog; /* "falcon-ps" */
	const char *args; /* operands in --help, such as "JOB" */
	const struct fal_opt *opts;
	size_t n_opts;
	size_t min_args, max_args;
	unsigned descriptors; /* open files that it is to have, at least; 0: as others */
	uint64_t schema;      /* of its messages, for --version; 0: none is shown */

	const char **arg; /* the operands; live until fal_cli_free() */
	size_t n_args;
	struct fal_cli_state *state; /* private */
};

#define FAL_CLI_DESCRIPTORS 24 /* of most programs */

/* Reads the command line, before anything is opened; from then on a file that comes to
 * its limit is as a full disk, and ends no program.  Returns -1 to go on, or an
 * exit code: FAL_EXIT_DONE after --help or --version (to stdout), FAL_EXIT_USAGE after
 * one line on stderr, FAL_EXIT_NO where too few files may be open.  --help and --version
 * are added to the options.  Call fal_cli_free() in each case. */
int fal_cli_parse(struct fal_cli *cli, int argc, char **argv);

/* Whether option `name` is given, after fal_cli_parse. */
bool fal_cli_given(const struct fal_cli *cli, const char *name);

/* Judges option `name`, a U64 or SIZE, after fal_cli_parse: -1 to go on if it is not
 * given or min ≤ value ≤ max, else FAL_EXIT_USAGE after one line on stderr.  So 0 is
 * refused where it stands for "not given". */
int fal_cli_range(const struct fal_cli *cli, const char *name, uint64_t min,
		  uint64_t max);

/* Frees what fal_cli_parse made, the lists' arrays too. */
void fal_cli_free(struct fal_cli *cli);

/* "prog: what\n" on stderr, without the text of any key; on a terminal broken between
 * words where it is wider.  Not where nobody reads it: it does not wait for that. */
void fal_cli_err(const char *prog, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* The same; returns FAL_EXIT_USAGE. */
int fal_cli_usage(const char *prog, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Text for a person, on stdout; on a terminal as above. */
void fal_cli_print(const struct fal_buf *text);

/* The exit code for an error of the library: FAL_EXIT_USAGE for bad input, _TEMPFAIL for
 * the wrong moment, _NOPERM for what is not permitted, else _NO. */
int fal_cli_exit(int err);

/* The same for a file that the command line names and that could not be read: what is
 * wrong with it is bad input, one that is locked away is FAL_EXIT_NOPERM. */
int fal_cli_exit_file(int err);

/* For programs that hold keys, before these are read: from now on there is no core dump
 * of this process, and no other process of its user can read its memory (prctl(2),
 * PR_SET_DUMPABLE; getrlimit(2), RLIMIT_CORE). */
void fal_cli_hide_memory(void);

/* Flushes stdout; FAL_EXIT_NO with a line on stderr when what was written did not get
 * there (a full disk), else `code`. */
int fal_cli_finish(const char *prog, int code);

/* Whether `f` is a terminal that takes colours: NO_COLOR (https://no-color.org) unset or
 * empty, TERM not "dumb". */
bool fal_cli_colour(FILE *f);

#endif
