/* What the sessions of a key have cost, so that they cannot cost the job its time: of a
 * key, or, where one key is for all, of a key and a source.  Time is an argument.
 */
#ifndef FALCON_PS_ACCOUNT_H
#define FALCON_PS_ACCOUNT_H

#include "sec/keyring.h"

#include <stdbool.h>
#include <stddef.h>

enum {
	PS_ACCOUNTS = 1024,    /* that are told apart */
	PS_COMINGS = 256,      /* at once; */
	PS_COMING_S = 10,      /* … then one in so many seconds */
	PS_AGAIN_S = 1 << 20,  /* bytes a second of data that were had already, */
	PS_AGAIN_MAX = 2 << 20 /* … and at once: a chunk, at least */
};

/* Zero: nobody came yet. */
struct ps_account {
	char key[FAL_KEY_FINGERPRINT + 1]; /* its fingerprint; "": the place is free */
	char source[64];                   /* "": any */
	double at;                         /* when the rest was true */
	double comings;                    /* of PS_COMINGS, used up */
	double again;                      /* bytes, of PS_AGAIN_MAX, used up */
};

/* The account; a new one takes over, as it is, the place of the one with least used up:
 * so all together are limited, however many there are. */
struct ps_account *ps_account_find(struct ps_account v[static PS_ACCOUNTS],
				   const char *key, const char *source, double now);

/* What a look at the job costs of a worker's coming, which costs 1. */
#define PS_LOOK 0.1

/* What it costs a key that an incarnation ended with one of its processes of shards: so
 * 16 at once, then one in 160 s. */
#define PS_END 16

/* Is so much left? */
bool ps_account_has(const struct ps_account *a, double cost);
/* A session comes; false: too many did, and it is to come back later. */
bool ps_account_comes(struct ps_account *a, double cost);
/* A worker's has gone, and is not to count: it stayed and worked. */
void ps_account_forgive(struct ps_account *a);

/* n ≤ FAL_CHUNK_BYTES of data are wanted again; false: not yet. */
bool ps_account_again(struct ps_account *a, size_t n);

#endif
