/* delay: what comes in by a cable comes so much later, as if the cable were long: for
 * hosts that are network namespaces, where the kernel has no netem.  It is told of what
 * has arrived, which belongs to no socket any more: at the sender it would hold up the
 * socket itself.  cable.bash lays such cables.
 *
 * delay QUEUE MS: holds each packet of the NFQUEUE of this number for MS milliseconds,
 * which may have a fraction, and says "ready" on stdout when it has begun.  It ends by a
 * signal; what it then holds is lost.  Packets keep their order. */
#include <err.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <arpa/inet.h>
#include <libnetfilter_queue/libnetfilter_queue.h>
#include <linux/netfilter.h>

/* What waits: ids, and the nanosecond at which each may go on.  More than the queue holds
 * never waits. */
enum { ROOM = 1 << 16, BUFFER = 8 << 20 };

static uint32_t id[ROOM];
static int64_t due[ROOM];
static unsigned first, end;
static int64_t held_for;

static int64_t
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int
on_packet(struct nfq_q_handle *queue, struct nfgenmsg *msg, struct nfq_data *data,
	  void *arg)
{
	const struct nfqnl_msg_packet_hdr *head = nfq_get_msg_packet_hdr(data);

	(void)queue;
	(void)msg;
	(void)arg;
	if (head == NULL || end - first == ROOM)
		return 0;
	id[end % ROOM] = ntohl(head->packet_id);
	due[end % ROOM] = now() + held_for;
	end++;
	return 0;
}

/* All that is due goes on by one verdict. */
static void
let_go(struct nfq_q_handle *queue)
{
	int64_t t = now();
	unsigned last = first;

	while (last != end && due[last % ROOM] <= t)
		last++;
	if (last == first)
		return;
	if (nfq_set_verdict_batch(queue, id[(last - 1) % ROOM], NF_ACCEPT) < 0)
		err(1, "verdict");
	first = last;
}

/* Until something comes, or is due. */
static void
wait_for(int fd)
{
	struct pollfd on = { .fd = fd, .events = POLLIN };
	int64_t left = first == end ? 0 : due[first % ROOM] - now();
	struct timespec at_most;

	left = left > 0 ? left : 0;
	at_most = (struct timespec){ left / 1000000000, left % 1000000000 };
	if (ppoll(&on, 1, first == end ? NULL : &at_most, NULL) < 0 && errno != EINTR)
		err(1, "poll");
}

static struct nfq_q_handle *
open_queue(struct nfq_handle *h, uint16_t number)
{
	struct nfq_q_handle *queue = nfq_create_queue(h, number, on_packet, NULL);

	/* Heads alone, and large packets whole.  One too many is not lost. */
	if (queue == NULL || nfq_set_mode(queue, NFQNL_COPY_META, 0) < 0 ||
	    nfq_set_queue_maxlen(queue, ROOM) < 0 ||
	    nfq_set_queue_flags(queue, NFQA_CFG_F_GSO | NFQA_CFG_F_FAIL_OPEN,
				NFQA_CFG_F_GSO | NFQA_CFG_F_FAIL_OPEN) < 0)
		err(1, "NFQUEUE %u", number);
	nfnl_rcvbufsiz(nfq_nfnlh(h), BUFFER);
	return queue;
}

/* VALUE, at most MOST, or a usage error. */
static double
number(const char *value, double most)
{
	char *rest;
	double n = strtod(value, &rest);

	if (*value == '\0' || *rest != '\0' || !(n >= 0 && n <= most))
		errx(2, "'%s': not a number from 0 to %.0f", value, most);
	return n;
}

int
main(int argc, char **argv)
{
	_Alignas(8) static char packets[1 << 16];
	const struct sched_param soon = { .sched_priority = 10 };
	struct nfq_q_handle *queue;
	struct nfq_handle *h;
	ssize_t n;

	if (argc != 3)
		errx(2, "usage: delay QUEUE MS");
	held_for = (int64_t)(number(argv[2], 10000) * 1e6);
	h = nfq_open();
	if (h == NULL)
		err(1, "NFQUEUE");
	queue = open_queue(h, (uint16_t)number(argv[1], 65535));
	/* The time is that of the line, and not of whoever else computes here. */
	(void)sched_setscheduler(0, SCHED_FIFO, &soon);
	puts("ready");
	fflush(stdout);
	for (;;) {
		wait_for(nfq_fd(h));
		while ((n = recv(nfq_fd(h), packets, sizeof(packets), MSG_DONTWAIT)) > 0)
			nfq_handle_packet(h, packets, (int)n);
		if (n < 0 && errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
			err(1, "NFQUEUE");
		let_go(queue);
	}
}
