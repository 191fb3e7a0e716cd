/* Sessions: one for each client that has proved its key. */
#ifndef FALCON_PS_SESSION_H
#define FALCON_PS_SESSION_H

#include "base/buf.h"
#include "base/seldom.h"
#include "broadcast.h"
#include "net/conn.h"
#include "sec/keyring.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct ps_server;

enum {
	PS_SESSIONS_MAX = 256, /* of a key; of a source, where one key is for all */
	PS_ASKS_MAX = 16       /* for chunks, of a session, that wait */
};

struct ps_session {
	struct ps_server *server;
	struct fal_chan *chan;
	struct ps_crowd *crowd;   /* whose it is one of; NULL: not yet */
	struct ps_session *mate;  /* the next one of these */
	uint32_t id;              /* grows */
	struct ps_reader reader;  /* of versions */
	struct ps_member *member; /* it is that of a process of shards; NULL: it is not */
	bool seated;              /* such processes are told of it, */
	bool mapped;              /* and it was told of those that there were */
	uint64_t unseated; /* those that do not know it yet: bits, by their first shard */
	uint8_t *seats;    /* its keys to these; NULL: there are none */
	struct fal_buf hello; /* that came too soon, */
	double held;          /* since then */
	char refused[256];    /* why the coordinator ended it; "": said, or it did not */
	struct ps_ask {
		bool test;
		uint32_t chunk;
	} ask[PS_ASKS_MAX]; /* for chunks, oldest first */
	size_t asks;
	uint64_t had;           /* bytes of chunks */
	bool texts_due;         /* it has said HELLO, and has not got them yet */
	bool asks_only;         /* it has said FOLLOW or CONTROL: it is no worker */
	bool followed;          /* it has said FOLLOW */
	bool live, history_due; /* … with these words, and has not got it yet */
	bool follows;           /* gets trace lines as they come */
	uint64_t pieces;        /* of its trace that may come */
	char worker[64];        /* who is ready in it; "": nobody (who.c) */
	double came;            /* when it was ready first; 0: never */
	bool brought;           /* work, ever */
	struct ps_late {        /* that it is a suspect (who.c) */
		bool said;
		struct fal_seldom seldom;
	} late;
	bool export_due;       /* it asked for a model: */
	uint64_t exports;      /* this version */
	struct fal_buf export; /* a model on its way (control.c) */
	size_t exported;       /* bytes of it that were sent */
};

/* The sessions of a key; where one key is for all who work, those of the same source. */
struct ps_crowd {
	char key[FAL_KEY_FINGERPRINT + 1]; /* its fingerprint */
	char source[64];                   /* "": any */
	struct ps_session *first;
	size_t n;
	struct ps_crowd *next;
};

/* In order of their ids. */
struct ps_sessions {
	struct ps_session **v;
	size_t n, cap;
	uint32_t last_id;
	size_t lookers_on; /* that may not work */
	struct ps_crowd *crowds;
};

struct ps_session *ps_session_find(const struct ps_sessions *s, uint32_t id);
/* A new session, or NULL. */
struct ps_session *ps_session_add(struct ps_sessions *s);
/* It has its channel: it is one of a crowd; `by_source`: of those of its source.  Also
 * when that has changed.  FAL_ENOMEM. */
int ps_session_crowd(struct ps_sessions *s, struct ps_session *session, bool by_source);
/* Forgets and frees it. */
void ps_session_remove(struct ps_sessions *s, struct ps_session *session);

#endif
