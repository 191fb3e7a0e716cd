/* The table of schema.h, as arrays. */
#include "trace/schema.h"

#include <assert.h>
#include <string.h>

#define ARG_WHOLE(x) .arg = (x)
#define ARG_ID(x) .arg = UINT32_MAX
#define ARG_REAL(x) .arg = (x)
#define ARG_LOSS(x) .arg = (x)
#define ARG_SECONDS(x) .arg = (x)
#define ARG_FLAG(x) .arg = (x)
#define ARG_TEXT(x) .arg = (x)
#define ARG_WORD(x) .words = (x)
#define ARG_HEX(x) .arg = (x)
#define ARG_WORD64(x) .arg = 16
#define ARG_TUPLE(x) .arg = (x)
#define ARG_ROWS(x) .arg = (x)
#define ARG_REALS(x) .arg = (x)
#define ARG_HEXES(x) .arg = (x)
#define ARG_LIST(x) .of = record_##x
#define ARG_OBJECT(x) .of = record_##x
#define ARG_JSON(x) .arg = (x)

#define ROW(kind, name, when, x) \
	{ #name, FAL_M_##kind, FAL_##when, offsetof(record, name), ARG_##kind(x) },

#define RECORD(constant, event)                                                    \
	static const struct fal_schema *record_##event(void)                       \
	{                                                                          \
		typedef struct fal_ev_##event record;                              \
		static const struct fal_member rows[] = { FAL_LINE_##event(ROW) }; \
		static const struct fal_schema schema = {                          \
			#event, sizeof(record), rows, sizeof(rows) / sizeof(*rows) \
		};                                                                 \
		return &schema;                                                    \
	}
FAL_TRACE_OBJECTS(RECORD)
FAL_TRACE_EVENTS(RECORD)

static const struct fal_schema *(*const records[])(void) = { NULL,
#define EVENT(constant, event) record_##event,
							     FAL_TRACE_EVENTS(EVENT)
#undef EVENT
};

const struct fal_schema *
fal_event_schema(enum fal_event ev)
{
	assert(ev > FAL_EV_OTHER && ev < FAL_EVENTS);
	return records[ev]();
}

enum fal_event
fal_event_find(const char *name)
{
	enum fal_event ev = 1;
	while (ev < FAL_EVENTS && strcmp(records[ev]()->name, name) != 0)
		ev++;
	return ev < FAL_EVENTS ? ev : FAL_EV_OTHER;
}
