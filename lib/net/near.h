/* The door beside a TCP port: an abstract Unix socket of its name, at which whoever is on
 * this machine, and of the same user, need not seal.  It is one way more to the same
 * server, and proves nothing: keys and handshake are those of the port.
 *
 *     \0falcon/IP/PORT        as bound: 127.0.0.1, ::1, 0.0.0.0, ...
 */
#ifndef FAL_NET_NEAR_H
#define FAL_NET_NEAR_H

#include "net/addr.h"

#include <stdbool.h>
#include <stdint.h>

struct sockaddr;

/* Who stands at a door that nobody answers goes to the port after so many milliseconds.
 */
#define FAL_NEAR_MS 5000

/* A socket that has the name of the door beside the bound address `at`, the caller's to
 * listen on; -1: there is none, as the name is another's, or there are no such sockets.
 */
int fal_near_bind(const struct sockaddr *at);

/* A connection to the door beside the TCP address of a loopback, or another one of this
 * machine, as a number, or "localhost", which is 127.0.0.1 here, or beside the port of
 * all addresses, the caller's to close; it does not block.  Where the system does not
 * tell what other addresses are here, there are none.  -1: there is no door, or it is
 * another user's. */
int fal_near_reach(const struct fal_addr *at);

/* Was the other end of this Unix socket made by a process of the same user? */
bool fal_near_is_kin(int fd);

/* A process among all of all machines: u32 number, u64 inode of its namespace of
 * processes, and the boot of its kernel in 36 bytes, as /proc has them. */
#define FAL_PROCESS_BYTES 48

/* This process; false: the system does not tell. */
bool fal_near_self(uint8_t out[static FAL_PROCESS_BYTES]);
/* Is `process`, which a peer says to be, the one that made the other end of this Unix
 * socket, of this kernel, our own namespace and our own user, and is it still here? */
bool fal_near_is(int fd, const uint8_t process[static FAL_PROCESS_BYTES]);

#endif
