/* The local door beside a TCP port: an abstract Unix socket of its name, at which clients
 * on this machine, and of the same user, need not seal.  The door is another way to the
 * same server, and proves nothing: keys and handshake are those of the port.
 *
 *     \0falcon/IP/PORT        as bound: 127.0.0.1, ::1, 0.0.0.0, ...
 */
#ifndef FAL_NET_DOOR_H
#define FAL_NET_DOOR_H

#include "net/addr.h"

#include <stdbool.h>
#include <stdint.h>

struct sockaddr;

/* Milliseconds for the answer at a door; then the client goes to the port. */
#define FAL_DOOR_MS 5000

/* Makes the socket of the door beside the bound address `at`, for the caller to listen
 * on. -1: another process has the name, or the system has no such sockets. */
int fal_door_bind(const struct sockaddr *at);

/* Connects to the door beside a TCP address of this machine: a loopback address or
 * another of its addresses, as a number, or "localhost", which is 127.0.0.1 here; or to
 * the door beside the port of all addresses.  Returns a socket that does not block, for
 * the caller to close. Where the system does not tell its addresses, only loopback
 * addresses count.  -1: there is no door, or the door is another user's. */
int fal_door_connect(const struct fal_addr *at);

/* Did a process of the same user make the other end of this Unix socket? */
bool fal_peer_is_same_user(int fd);

/* The name of a process among all processes of all machines: u32 number, u64 inode of its
 * PID namespace, and the boot id of its kernel in 36 bytes, as /proc has them. */
#define FAL_PROCESS_BYTES 48

/* The name of this process.  False: the system does not tell. */
bool fal_process_name(uint8_t out[static FAL_PROCESS_BYTES]);
/* Is `process`, as a peer says, the process that made the other end of this Unix socket,
 * of this kernel, our own namespace and our own user, and does it still live? */
bool fal_peer_is_process(int fd, const uint8_t process[static FAL_PROCESS_BYTES]);

#endif
