/* The names of local doors, and the process at the other end of a door. */
#include "net/door.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

/* The user number that the kernel reports for a user without a number in our namespace.
 */
#define NOBODY 65534
#define BOOT_BYTES 36
#ifndef SO_PEERPIDFD /* Linux 6.5 */
#define SO_PEERPIDFD 77
#endif

_Static_assert(4 + 8 + BOOT_BYTES == FAL_PROCESS_BYTES, "pid, namespace, boot");

union ip_address {
	struct sockaddr sa;
	struct sockaddr_in four;
	struct sockaddr_in6 six;
};

/* Sets the name of the door of this IP and port; returns the length, which counts as a
 * part of an abstract socket's name. */
static socklen_t
door_name(const char *ip, unsigned port, struct sockaddr_un *out)
{
	*out = (struct sockaddr_un){ .sun_family = AF_UNIX };
	const int n = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1,
			       "falcon/%s/%u", ip, port);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int
door_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

int
fal_door_bind(const struct sockaddr *at)
{
	char ip[INET6_ADDRSTRLEN];
	struct sockaddr_un to;
	const int fd = door_socket();
	if (fd < 0 || uv_ip_name(at, ip, sizeof(ip)) < 0)
		goto close_fd;
	/* The port has the same offset in both families. */
	const unsigned port = ntohs(((const struct sockaddr_in *)at)->sin_port);
	const socklen_t n = door_name(ip, port, &to);
	if (bind(fd, (struct sockaddr *)&to, n) == 0)
		return fd;
close_fd:
	if (fd >= 0)
		close(fd);
	return -1;
}

/* Finds the process that made the other end.  False: the process is another user's. */
static bool
peer_of_same_user(int fd, struct ucred *peer)
{
	socklen_t n = sizeof(*peer);
	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, peer, &n) == 0 &&
	       peer->uid == geteuid() && peer->uid != NOBODY;
}

bool
fal_peer_is_same_user(int fd)
{
	struct ucred peer;
	return peer_of_same_user(fd, &peer);
}

/* Does the process that made the other end still live?  If not, another process may have
 * taken over the number of the process, or the process's end of the connection, and may
 * be a relay.  If the kernel cannot tell, the process counts as alive. */
static bool
peer_lives(int fd)
{
	int process;
	socklen_t n = sizeof(process);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &process, &n) < 0)
		return errno == ENOPROTOOPT;
	struct pollfd poll_fd = { .fd = process, .events = POLLIN };
	const bool ended = poll(&poll_fd, 1, 0) != 0;
	close(process);
	return !ended;
}

/* Sets the name of process `pid` of our kernel and namespace. */
static bool
process_name(pid_t pid, uint8_t out[static FAL_PROCESS_BYTES])
{
	struct stat space;
	const uint32_t number = (uint32_t)pid;
	const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	const bool boot = fd >= 0 && read(fd, out + 12, BOOT_BYTES) == BOOT_BYTES;
	if (fd >= 0)
		close(fd);
	if (!boot || pid <= 0 || stat("/proc/self/ns/pid", &space) < 0)
		return false;
	const uint64_t inode = space.st_ino;
	/* Only the two ends of a connection on one machine compare names, so the
	 * machine's own byte order suffices. */
	memcpy(out, &number, 4);
	memcpy(out + 4, &inode, 8);
	return true;
}

bool
fal_process_name(uint8_t out[static FAL_PROCESS_BYTES])
{
	return process_name(getpid(), out);
}

bool
fal_peer_is_process(int fd, const uint8_t process[static FAL_PROCESS_BYTES])
{
	struct ucred peer;
	uint8_t expected[FAL_PROCESS_BYTES];
	return peer_of_same_user(fd, &peer) && process_name(peer.pid, expected) &&
	       peer_lives(fd) && memcmp(process, expected, FAL_PROCESS_BYTES) == 0;
}

static bool
same_ip(const union ip_address *a, const struct sockaddr *other)
{
	const union ip_address *b = (const union ip_address *)(const void *)other;
	if (other == NULL || other->sa_family != a->sa.sa_family)
		return false;
	return a->sa.sa_family == AF_INET6
		       ? IN6_ARE_ADDR_EQUAL(&a->six.sin6_addr, &b->six.sin6_addr)
		       : a->four.sin_addr.s_addr == b->four.sin_addr.s_addr;
}

/* Is the address an address of an interface of this machine? */
static bool
is_interface_address(const union ip_address *a)
{
	struct ifaddrs *all;
	bool own = false;
	if (getifaddrs(&all) < 0)
		return false;
	for (const struct ifaddrs *i = all; i != NULL && !own; i = i->ifa_next)
		own = same_ip(a, i->ifa_addr);
	freeifaddrs(all);
	return own;
}

int
fal_door_connect(const struct fal_addr *at)
{
	const struct addrinfo numeric = { .ai_family = AF_UNSPEC,
					  .ai_socktype = SOCK_STREAM,
					  .ai_flags = AI_NUMERICHOST };
	const bool local = strcmp(at->what, "localhost") == 0;
	struct addrinfo *ai;
	union ip_address addr;
	char own[INET6_ADDRSTRLEN];
	if (at->kind != FAL_ADDR_TCP ||
	    getaddrinfo(local ? "127.0.0.1" : at->what, NULL, &numeric, &ai) != 0)
		return -1;
	memcpy(&addr, ai->ai_addr, ai->ai_addrlen);
	freeaddrinfo(ai);
	/* Every machine has the loopback addresses. */
	const bool is_loopback =
		addr.sa.sa_family == AF_INET6
			? IN6_IS_ADDR_LOOPBACK(&addr.six.sin6_addr)
			: ntohl(addr.four.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	if ((!is_loopback && !is_interface_address(&addr)) ||
	    uv_ip_name(&addr.sa, own, sizeof(own)) < 0)
		return -1;
	/* A server that listens at all of IPv6 listens at all of IPv4, too. */
	const char *const ip[] = { own, "::", "0.0.0.0" };
	const size_t all = addr.sa.sa_family == AF_INET6 ? 2 : 3;
	for (size_t i = 0; i < all; i++) {
		struct sockaddr_un to;
		const socklen_t n = door_name(ip[i], at->port, &to);
		const int fd = door_socket();
		if (fd >= 0 && connect(fd, (struct sockaddr *)&to, n) == 0 &&
		    fal_peer_is_same_user(fd))
			return fd;
		if (fd >= 0)
			close(fd);
	}
	return -1;
}
