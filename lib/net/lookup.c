/* Lookups, and the threads that they take. */
#include "net/lookup.h"

#include "base/mem.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the process, as its threads are: what hangs is nobody's any more. */
static atomic_uint lookups;

struct fal_lookup {
	uv_async_t over;
	fal_lookup_fn *found;
	void *arg;
	char port[8];
	pthread_mutex_t lock;
	atomic_uint holders; /* the thread, and the loop */
	bool closing;        /* locked: `over` may not be used any more */
	int status;          /* libuv's; */
	struct addrinfo *all;
	char host[];
};

static void
release(struct fal_lookup *l)
{
	if (atomic_fetch_sub(&l->holders, 1) != 1)
		return;
	if (l->all != NULL)
		freeaddrinfo(l->all);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

/* libuv's name for an error of getaddrinfo. */
static int
status_of(int err)
{
	switch (err) {
	case 0:
		return 0;
	case EAI_AGAIN:
		return UV_EAI_AGAIN;
	case EAI_MEMORY:
		return UV_EAI_MEMORY;
	case EAI_NONAME:
		return UV_EAI_NONAME;
	default:
		return UV_EAI_FAIL;
	}
}

static void *
look_up(void *arg)
{
	struct fal_lookup *l = arg;
	const struct addrinfo hints = { .ai_family = AF_UNSPEC,
					.ai_socktype = SOCK_STREAM };
	struct addrinfo *all = NULL;
	const int err = getaddrinfo(l->host, l->port, &hints, &all);
	atomic_fetch_sub(&lookups, 1);
	pthread_mutex_lock(&l->lock);
	l->status = status_of(err);
	l->all = err == 0 ? all : NULL;
	if (!l->closing)
		uv_async_send(&l->over);
	pthread_mutex_unlock(&l->lock);
	release(l);
	return NULL;
}

static void
on_closed(uv_handle_t *h)
{
	release(h->data);
}

void
fal_lookup_cancel(struct fal_lookup *l)
{
	if (l == NULL)
		return;
	pthread_mutex_lock(&l->lock);
	l->closing = true;
	pthread_mutex_unlock(&l->lock);
	uv_close((uv_handle_t *)&l->over, on_closed);
}

static void
on_over(uv_async_t *h)
{
	struct fal_lookup *l = h->data;
	pthread_mutex_lock(&l->lock);
	struct addrinfo *all = l->all;
	const int status = l->status;
	l->all = NULL;
	pthread_mutex_unlock(&l->lock);
	fal_lookup_cancel(l);
	l->found(l->arg, status, all);
}

static int
start_thread(struct fal_lookup *l)
{
	pthread_t thread;
	if (atomic_fetch_add(&lookups, 1) >= FAL_LOOKUPS_MAX) {
		atomic_fetch_sub(&lookups, 1);
		return UV_EAGAIN;
	}
	const int err = pthread_create(&thread, NULL, look_up, l);
	if (err != 0) {
		atomic_fetch_sub(&lookups, 1);
		return uv_translate_sys_error(err);
	}
	pthread_detach(thread);
	return 0;
}

int
fal_lookup_begin(uv_loop_t *loop, const char *host, uint16_t port, fal_lookup_fn *found,
		 void *arg, struct fal_lookup **out)
{
	const size_t n = strlen(host) + 1;
	struct fal_lookup *l = fal_xcalloc(1, sizeof(*l) + n);
	memcpy(l->host, host, n);
	snprintf(l->port, sizeof(l->port), "%u", port);
	l->found = found;
	l->arg = arg;
	int err = uv_async_init(loop, &l->over, on_over);
	if (err < 0) {
		free(l);
		return err;
	}
	l->over.data = l;
	pthread_mutex_init(&l->lock, NULL);
	atomic_init(&l->holders, 2);
	err = start_thread(l);
	if (err < 0) {
		release(l); /* the thread's */
		fal_lookup_cancel(l);
		return err;
	}
	*out = l;
	return 0;
}
