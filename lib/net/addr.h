/* Addresses, in the form that every program takes:
 *
 *     HOST:PORT        a name or an IPv4 address
 *     [V6]:PORT        an IPv6 address
 *     unix:PATH        a Unix socket
 *     exec:COMMAND     /bin/sh -c COMMAND; its stdin and stdout are the stream
 *
 * Text in, text out; dial.c and listen.c resolve names.
 */
#ifndef FAL_NET_ADDR_H
#define FAL_NET_ADDR_H

#include "base/buf.h"
#include "base/err.h"

#include <stdint.h>

#define FAL_ADDR_MAX 1024                 /* bytes of an address with its NUL */
#define FAL_ADDRS_MAX 8                   /* addresses of a list */
#define FAL_ADDR_UNIX_MAX 108             /* bytes of a Unix socket's path with its NUL */
#define FAL_ADDR_HOST_MAX 256             /* bytes of a host with its NUL */
#define FAL_ADDR_DEFAULT_HOST "127.0.0.1" /* a coordinator's default */
#define FAL_ADDR_DEFAULT_PORT "7000"

enum fal_addr_kind { FAL_ADDR_TCP, FAL_ADDR_UNIX, FAL_ADDR_EXEC };

struct fal_addr {
	enum fal_addr_kind kind;
	uint16_t port;           /* for FAL_ADDR_TCP; 0: any, for listening only */
	char what[FAL_ADDR_MAX]; /* host without brackets, path or command */
	/* The host for %h in a command; `port` is the port for %p.  "": the defaults. */
	char host[FAL_ADDR_HOST_MAX];
};

/* Reads an address.  A host consists of letters, digits, '.', '-' and '_', in brackets
 * also of ':' and '%', and does not begin with '-'.  FAL_EFORMAT, FAL_ELIMIT; `diag` (may
 * be NULL) says what is wrong. */
int fal_addr_parse(const char *s, struct fal_addr *out, struct fal_diag *diag);

/* Reads a list of at most `cap` addresses, separated by commas; a command extends to the
 * end of the list.  *n: their number.  Errors as above; FAL_ELIMIT also for too many. */
int fal_addrs_parse(const char *s, struct fal_addr *out, size_t cap, size_t *n,
		    struct fal_diag *diag);

/* Writes the address as text that fal_addr_parse reads. */
void fal_addr_format(const struct fal_addr *a, char out[static FAL_ADDR_MAX + 16]);

/* Is this text an address of all interfaces of a machine? */
bool fal_addr_is_any(const char *text);

/* Makes the address that reaches the TCP address `to` by the same command. */
void fal_addr_via_command(const struct fal_addr *command, const struct fal_addr *to,
			  struct fal_addr *out);

/* Appends the command of an exec address with a NUL.  %h and %p become the host and port
 * to reach, as seen from the far end, by default a coordinator's; %% becomes a percent
 * sign. */
void fal_addr_command(const struct fal_addr *a, struct fal_buf *out);

#endif
