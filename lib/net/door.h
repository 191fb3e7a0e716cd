/* The local door beside a TCP port: an abstract Unix socket named after the port. Clients
 * of the same user on this machine need not seal their messages there.  The door is
 * another way to the same server, and proves nothing: clients there need the same keys
 * and the same handshake.
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
 * on. -1: another process has the name, or the system has no abstract sockets. */
int fal_door_bind(const struct sockaddr *at);

/* Connects to the door beside a TCP address of this machine: a loopback address or
 * another address of this machine, as a number; or "localhost", here 127.0.0.1.  Also
 * connects to the door beside a port bound to all addresses.  Returns a socket that does
 * not block, for the caller to close. If the system does not list the addresses of this
 * machine, only loopback addresses count.  -1: there is no door, or the door is another
 * user's. */
int fal_door_connect(const struct fal_addr *at);

/* Did a process of the same user make the other end of this Unix socket? */
bool fal_peer_is_same_user(int fd);

/* The name of a process, unique among all processes of all machines: u32 process number,
 * u64 inode of the PID namespace, and the kernel's boot id in 36 bytes, as in /proc. */
#define FAL_PROCESS_BYTES 48

/* The name of this process.  False: the system does not tell. */
bool fal_process_name(uint8_t out[static FAL_PROCESS_BYTES]);
/* Checks the name that a peer gives.  Is `process` the process that made the other end of
 * this Unix socket; does `process` belong to this kernel, our own namespace and our own
 * user; and does `process` still live? */
bool fal_peer_is_process(int fd, const uint8_t process[static FAL_PROCESS_BYTES]);

#endif
