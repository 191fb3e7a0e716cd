/* Doors beside ports: who finds them, who stands there in vain, and that nothing follows
 * from a door behind which somebody else is. */
#include "../drawn.h"
#include "net/door.h"
#include "test_net.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#define OTHER 54321 /* a user that this is not */

/* Listens at these addresses, as a list, with doors. */
static bool
listens(struct world *w, const char *list)
{
	struct fal_addr at[FAL_ADDRS_MAX];
	const struct fal_listen_ops ops = { w, on_accept, on_refused, NULL };
	struct fal_listen_opt opt = { .addr = at,
				      .keyring = w->kr,
				      .chan.unseals = true };
	assert_int_equal(fal_addrs_parse(list, at, FAL_ADDRS_MAX, &opt.addrs, NULL), 0);
	fal_listen_close(w->l);
	w->l = NULL;
	return fal_listen_start(&w->loop, &opt, &ops, &w->l, NULL) == 0;
}

static void
begin_with_doors(struct world *w, const char *list)
{
	begin(w, (struct fal_listen_opt){ 0 });
	assert_true(listens(w, list));
}

/* The port of the i-th address. */
static unsigned
port(const struct world *w, size_t i)
{
	struct fal_addr at[FAL_ADDRS_MAX];
	assert_true(fal_listen_addrs(w->l, at) > i);
	return at[i].port;
}

/* Dials the door beside an address: is there one? */
static bool
dials(struct world *w, int i, struct fal_addr at, int psk)
{
	const struct fal_client_key key = client_key("lab", psk, 1);
	const struct fal_chan_ops ops = ops_of(&w->client[i]);
	const struct fal_chan_opt opt = { 0 };
	int err = fal_dial_door(&w->loop, &at, &key, &opt, &ops, &w->client[i].c);
	if (err != FAL_ENOENT)
		assert_int_equal(err, 0);
	return err == 0;
}

/* By this door the server is reached. */
static void
leads_there(struct world *w, struct fal_addr at)
{
	w->accepted = 0;
	memset(w->server, 0, sizeof(w->server));
	memset(w->client, 0, sizeof(w->client));
	if (!dials(w, 0, at, 2))
		fail_msg("no door beside %s:%u", at.what, at.port);
	assert_true(fal_chan_is_by_door(w->client[0].c));
	SEND(&w->client[0], 'h');
	UNTIL(w, w->server[0].msgs == 1);
	assert_int_equal(w->client[0].opened, 1);
	assert_string_equal(fal_chan_source(w->server[0].c), "unix");
	fal_chan_close(w->client[0].c);
	UNTIL(w, w->client[0].closed == 1 && w->server[0].closed == 1);
}

/* A wrong key: nothing is said of it there. */
static void
refusals_are_of_the_port(void **state)
{
	struct world w;
	(void)state;
	begin_with_doors(&w, "127.0.0.1:0");
	assert_true(dials(&w, 0, addr("127.0.0.1:%u", port(&w, 0)), 3));
	UNTIL(&w, w.client[0].closed == 1);
	assert_int_equal(w.client[0].opened + w.refusals + w.accepted, 0);
	const struct fal_addr at = addr("127.0.0.1:%u", port(&w, 0));
	dial_as(&w, 1, &at, client_key("lab", 3, 1), (struct fal_chan_opt){ 0 });
	UNTIL(&w, w.client[1].closed == 1 && w.refusals == 1);
	assert_string_equal(w.source, "127.0.0.1");
	end(&w);
}

/* An address that has no machine. */
static const char nowhere[] = "240.0.0.1";

static void
doors_are_found(void **state)
{
	struct world w;
	(void)state;
	begin_with_doors(&w, "127.0.0.1:0,127.0.0.2:0");
	const unsigned one = port(&w, 0), two = port(&w, 1);
	leads_there(&w, addr("127.0.0.1:%u", one));
	leads_there(&w, addr("localhost:%u", one));
	leads_there(&w, addr("127.0.0.2:%u", two));
	if (one != two) {
		assert_false(dials(&w, 0, addr("127.0.0.1:%u", two), 2));
		assert_false(dials(&w, 0, addr("127.0.0.2:%u", one), 2));
	}
	assert_false(dials(&w, 0, addr("unix:%s/s", w.dir), 2));
	assert_false(dials(&w, 0, addr("a.name:%u", one), 2));
	end(&w);
}

/* Whoever listens everywhere is found by any address of this machine, and by no other. */
static void
all_addresses_lead_there(void **state)
{
	static const char *const every[] = { "0.0.0.0:0", "[::]:0" };
	struct world w;
	struct ifaddrs *all;
	(void)state;
	for (int six = 0; six < 2; six++) {
		begin(&w, (struct fal_listen_opt){ 0 });
		if (!listens(&w, every[six])) {
			print_message("# no %s here\n", every[six]);
			end(&w);
			continue;
		}
		leads_there(&w, addr("127.0.0.1:%u", port(&w, 0)));
		leads_there(&w, addr("127.0.0.77:%u", port(&w, 0)));
		if (six)
			leads_there(&w, addr("[::1]:%u", port(&w, 0)));
		assert_false(dials(&w, 0, addr("%s:%u", nowhere, port(&w, 0)), 2));
		const bool told = getifaddrs(&all) == 0;
		for (const struct ifaddrs *i = told ? all : NULL; i; i = i->ifa_next) {
			char ip[INET6_ADDRSTRLEN];
			if (i->ifa_addr == NULL || i->ifa_addr->sa_family != AF_INET ||
			    uv_ip_name(i->ifa_addr, ip, sizeof(ip)) < 0)
				continue;
			leads_there(&w, addr("%s:%u", ip, port(&w, 0)));
		}
		if (told)
			freeifaddrs(all);
		end(&w);
	}
}

/* The name is that of the documents, to its last byte. */
static socklen_t
name_of(unsigned at, struct sockaddr_un *out)
{
	*out = (struct sockaddr_un){ .sun_family = AF_UNIX };
	const int n = snprintf(out->sun_path + 1, 60, "falcon/127.0.0.1/%u", at);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int
knock(unsigned at)
{
	struct sockaddr_un to;
	const socklen_t n = name_of(at, &to);
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(fd, (struct sockaddr *)&to, n) == 0)
		return fd;
	close(fd);
	return -1;
}

/* They close with their listener, at once, and may open again. */
static void
doors_close(void **state)
{
	struct world w;
	struct fal_addr at[FAL_ADDRS_MAX];
	char list[200];
	(void)state;
	begin_with_doors(&w, "127.0.0.1:0,127.0.0.1:0");
	assert_int_equal(fal_listen_addrs(w.l, at), 2);
	snprintf(list, sizeof(list), "%s", fal_listen_addr_text(w.l));
	for (int i = 0; i < 3; i++) {
		const int fd = knock(at[1].port);
		assert_true(fd >= 0);
		close(fd);
		assert_true(listens(&w, list)); /* the handles of before still close */
		leads_there(&w, at[i % 2]);
	}
	fal_listen_close(w.l);
	w.l = NULL;
	assert_false(dials(&w, 0, at[0], 2));
	assert_int_equal(knock(at[1].port), -1);
	/* Whoever does not want them has none. */
	listen_at(&w, at[0], (struct fal_listen_opt){ 0 });
	assert_false(dials(&w, 0, at[0], 2));
	end(&w);
}

/* --- others behind the door --- */

/* Whoever has taken its name: one that closes when it has heard something, as a server
 * does that does not know the key; one that says something else; one that hangs. */
enum squatter { LEAVES, BABBLES, HANGS, SQUATTERS };

static struct {
	uv_pipe_t door, client;
	enum squatter is;
	uint8_t room[1024];
} squat;

static void
on_squat_alloc(uv_handle_t *h, size_t hint, uv_buf_t *buf)
{
	(void)h;
	(void)hint;
	*buf = uv_buf_init((char *)squat.room, sizeof(squat.room));
}

static void
on_squat_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
	(void)buf;
	if (uv_is_closing((uv_handle_t *)s))
		return;
	if (n < 0 || squat.is == LEAVES)
		uv_close((uv_handle_t *)s, NULL);
	else if (n > 0 && squat.is == BABBLES) {
		uv_buf_t what = uv_buf_init((char *)squat.room, (unsigned)n);
		(void)uv_try_write(s, &what, 1);
	}
}

static void
on_squat_connection(uv_stream_t *s, int status)
{
	assert_int_equal(status, 0);
	uv_pipe_init(s->loop, &squat.client, 0);
	assert_int_equal(uv_accept(s, (uv_stream_t *)&squat.client), 0);
	uv_read_start((uv_stream_t *)&squat.client, on_squat_alloc, on_squat_read);
}

static void
a_door_proves_nothing(void **state)
{
	struct fal_rng rng = fal_rng_init(drawn_seed(85), FAL_RNG_TEST, 0);
	struct world w;
	(void)state;
	for (int i = 0; i < SQUATTERS; i++) {
		squat.is = (enum squatter)i;
		begin(&w, (struct fal_listen_opt){ 0 });
		const unsigned at = port(&w, 0);
		struct sockaddr_in in = { .sin_family = AF_INET,
					  .sin_port = htons((uint16_t)at),
					  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		const int fd = fal_door_bind((struct sockaddr *)&in);
		assert_true(fd >= 0);
		uv_pipe_init(&w.loop, &squat.door, 0);
		assert_int_equal(uv_pipe_open(&squat.door, fd), 0);
		assert_int_equal(uv_listen((uv_stream_t *)&squat.door, 1,
					   on_squat_connection),
				 0);
		const struct fal_addr to = addr("127.0.0.1:%u", at);
		const int psk = 2 + (int)fal_rng_below(&rng, 2);
		assert_true(dials(&w, 0, to, psk));
		UNTIL(&w, w.client[0].closed == 1);
		assert_int_equal(w.client[0].opened, 0);
		assert_true(w.client[0].err < 0);
		/* A server that listens there does so without a door. */
		fal_listen_close(w.l);
		listen_at(&w, to, (struct fal_listen_opt){ .chan.unseals = true });
		dial(&w, 1);
		UNTIL(&w, w.client[1].opened == 1);
		assert_false(fal_chan_is_by_door(w.client[1].c));
		uv_close((uv_handle_t *)&squat.door, NULL);
		if (!uv_is_closing((uv_handle_t *)&squat.client))
			uv_close((uv_handle_t *)&squat.client, NULL);
		end(&w);
	}
}

/* --- other users --- */

/* Another user, who may live as long as it does something. */
static pid_t
other_user(void)
{
	const pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		alarm(60);
		if (setuid(OTHER) < 0)
			_exit(2);
	}
	return pid;
}

static void
came_to(pid_t pid, int want)
{
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), want);
}

/* It stands at the door, or behind it, and has said so; or it may not be another user. */
static bool
is_there(pid_t pid, int tell[2])
{
	char byte;
	close(tell[1]);
	const ssize_t got = read(tell[0], &byte, 1);
	close(tell[0]);
	if (got != 1)
		came_to(pid, 2);
	return got == 1;
}

static void
other_users_are_shown_out(void **state)
{
	struct world w;
	int tell[2];
	char byte;
	(void)state;
	if (geteuid() != 0)
		skip();
	begin_with_doors(&w, "127.0.0.1:0");
	assert_int_equal(pipe(tell), 0);
	const pid_t pid = other_user();
	if (pid == 0) {
		const int fd = knock(port(&w, 0));
		if (fd < 0 || write(tell[1], "k", 1) != 1)
			_exit(3);
		_exit(read(fd, &byte, 1) == 0 ? 0 : 4);
	}
	const bool there = is_there(pid, tell);
	for (int i = 0; i < 3; i++)
		uv_run(&w.loop, UV_RUN_NOWAIT);
	if (there)
		came_to(pid, 0);
	assert_int_equal(w.accepted + w.refusals, 0);
	leads_there(&w, addr("127.0.0.1:%u", port(&w, 0)));
	end(&w);
	if (!there)
		skip();
}

static void
doors_of_others_are_none(void **state)
{
	struct world w;
	int tell[2], go[2];
	char byte;
	(void)state;
	if (geteuid() != 0)
		skip();
	begin(&w, (struct fal_listen_opt){ 0 });
	assert_int_equal(pipe(tell) + pipe(go), 0);
	const pid_t pid = other_user();
	if (pid == 0) {
		struct sockaddr_un at;
		const socklen_t n = name_of(port(&w, 0), &at);
		const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
		if (bind(fd, (struct sockaddr *)&at, n) < 0 || listen(fd, 5) < 0 ||
		    write(tell[1], "l", 1) != 1)
			_exit(3);
		close(go[1]);
		_exit(read(go[0], &byte, 1) == 0 ? 0 : 4);
	}
	const bool there = is_there(pid, tell);
	const bool found = dials(&w, 0, addr("127.0.0.1:%u", port(&w, 0)), 2);
	close(go[1]);
	close(go[0]);
	if (there)
		came_to(pid, 0);
	assert_false(found);
	end(&w);
	if (!there)
		skip();
}

/* Does the kernel tell, as Linux does since 6.5, whether the other end's process ended?
 */
static bool
knows_who_ended(int fd)
{
	const int peer_pidfd = 77;
	int process;
	socklen_t n = sizeof(process);
	const bool is = getsockopt(fd, SOL_SOCKET, peer_pidfd, &process, &n) == 0;
	if (is)
		close(process);
	return is;
}

/* A process that made a connection, left it to another one and ended is not taken for one
 * that has its number later. */
static void
numbers_are_used_again(void **state)
{
	struct sockaddr_un at;
	const socklen_t n = name_of((unsigned)getpid(), &at);
	const int l = socket(AF_UNIX, SOCK_STREAM, 0);
	uint8_t process[FAL_PROCESS_BYTES];
	int tell[2], stay[2];
	char byte;
	(void)state;
	assert_int_equal(pipe(tell) + pipe(stay), 0);
	assert_int_equal(bind(l, (struct sockaddr *)&at, n) + listen(l, 1), 0);
	const pid_t pid = fork();
	if (pid == 0) {
		const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
		close(tell[1]);
		close(stay[1]);
		if (connect(fd, (struct sockaddr *)&at, n) < 0)
			_exit(3);
		if (fork() != 0) /* the connection outlives who made it */
			_exit(read(tell[0], &byte, 1) == 0 ? 0 : 4);
		_exit(read(stay[0], &byte, 1) == 0 ? 0 : 4);
	}
	const int fd = accept(l, NULL, NULL);
	const uint32_t number = (uint32_t)pid;
	assert_true(fal_process_name(process));
	assert_false(fal_peer_is_process(fd, process));
	memcpy(process, &number, sizeof(number));
	assert_true(fal_peer_is_process(fd, process));
	const bool knows = knows_who_ended(fd);
	close(tell[1]);
	came_to(pid, 0);
	const bool is = fal_peer_is_process(fd, process);
	close(stay[1]);
	assert_int_equal(read(fd, &byte, 1), 0);
	close(tell[0]);
	close(stay[0]);
	close(fd);
	close(l);
	assert_false(is && knows);
	if (!knows) /* Linux before 6.5 cannot tell */
		skip();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(doors_are_found),
		cmocka_unit_test(refusals_are_of_the_port),
		cmocka_unit_test(all_addresses_lead_there),
		cmocka_unit_test(doors_close),
		cmocka_unit_test(a_door_proves_nothing),
		cmocka_unit_test(other_users_are_shown_out),
		cmocka_unit_test(doors_of_others_are_none),
		cmocka_unit_test(numbers_are_used_again),
	};
	signal(SIGPIPE, SIG_IGN);
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
