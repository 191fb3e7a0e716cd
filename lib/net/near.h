/* The door beside a TCP port: an abstract Unix socket of its name, at which whoever is on
 * this machine, and of the same user, may share memory.  It is one way more to the same
 * server, and proves nothing: keys and handshake are those of the port.
 *
 *     \0falcon/IP/PORT        as bound: 127.0.0.1, ::1, 0.0.0.0, ...
 */
#ifndef FAL_NET_NEAR_H
#define FAL_NET_NEAR_H

#include "net/addr.h"

#include <stdbool.h>

struct sockaddr;

/* Who stands at a door that nobody answers goes to the port after so many milliseconds.
 */
#define FAL_NEAR_MS 5000

/* A socket that has the name of the door beside the bound address `at`, the caller's to
 * listen on; -1: there is none, as the name is another's, or there are no such sockets.
 */
int fal_near_bind(const struct sockaddr *at);

/* Is this the TCP address of a loopback, or another one of this machine, as a number, or
 * "localhost", which is 127.0.0.1 here?  Where the system does not tell what others there
 * are, they are none. */
bool fal_near_is_here(const struct fal_addr *at);

/* A connection to the door beside such an address, or beside the port of all addresses,
 * the caller's to close; it does not block.  -1: there is none, or it is another user's.
 */
int fal_near_reach(const struct fal_addr *at);

/* Was the other end of this Unix socket made by a process of the same user? */
bool fal_near_is_kin(int fd);

#endif
