/* What must happen sometimes, in some of the clusters, or else nothing was tested of it.
 * Some is noticed as it happens, most is read from the trace. */
#ifndef SEEN_H
#define SEEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum seen {
	SEEN_FENCE, /* a contribution was fenced, and its worker told */
	SEEN_TWO_RUNS,
	SEEN_PRECLAIMED_FENCE, /* … that was claimed when it was granted */
	SEEN_FENCE_IN_PUSH,    /* … while it was being pushed */
	SEEN_IN_TIME,          /* a push came that must count */
	SEEN_EPOCH,            /* an epoch's loss was told, and is known */
	SEEN_CRASH_IN_PUSH,    /* a worker died while it pushed */
	SEEN_LATE_PUSH,        /* a push came of a contribution that is fenced */
	SEEN_DRAIN_IN_CLONE,   /* a worker leaves while it runs what another one runs, too
				*/
	SEEN_PRECLAIMED,       /* a result that was claimed ahead */
	SEEN_FIRM,             /* … where tasks move */
	SEEN_BEGUN,            /* a task began before its version was here, */
	SEEN_BEGUN_WAITS,      /* … and waited for it */
	SEEN_REJOIN,           /* a process opened a second session */
	SEEN_SUMS,             /* a worker had as much memory as it may have, */
	SEEN_GROWN,            /* … or asked for more */
	SEEN_QUEUED,           /* a task waited for its lane */
	SEEN_HANG,             /* a worker hung, and answered */
	SEEN_NONFINITE,        /* a gradient came out so, once */
	SEEN_LIE,              /* a message lied */
	SEEN_REFUSED,          /* a liar's session was ended */
	SEEN_FLIP,             /* a task came out with a bit wrong, */
	SEEN_ESCAPED,          /* … and that is in the model */
	/* Where there are group servers: */
	SEEN_GROUP,          /* one was ready, */
	SEEN_GROUP_EMPTY,    /* … and lost its last member; */
	SEEN_GROUP_LEFT,     /* it left, with what was made in it; */
	SEEN_GROUP_HUNG,     /* a member of it hung, and answered; */
	SEEN_GROUP_DIED,     /* it died with members at work, */
	SEEN_GROUP_AGAIN,    /* … and came back; */
	SEEN_GROUP_PARTED,   /* its coordinator above died */
	SEEN_GROUP_CUT,      /* its link was cut, or it was frozen, while it had work */
	SEEN_GROUP_UNWANTED, /* work under way below was called off above */
	/* Where shards are elsewhere: */
	SEEN_EARLY_PUSH,       /* a push came before the word that opens its round */
	SEEN_EARLY_PUBLISHED,  /* a shard spoke of a version before the coordinator */
	SEEN_FENCE_AFTER_PUSH, /* … of what is fenced, before the fence */
	SEEN_FENCED,           /* a fence was waited for */
	SEEN_APART,            /* shards were a version apart, */
	SEEN_CRASH_APART,      /* … and then a worker died */
	SEEN_AHEAD,            /* the end of a round was ordered before it was complete */
	SEEN_MADE_AHEAD,       /* … and then a version was made without another word */
	SEEN_HALF_MADE,        /* a shard has made some blocks of a version, */
	SEEN_HALF_CRASH,       /* … and then a worker died, */
	SEEN_HALF_FENCE,       /* … or a contribution was fenced, */
	SEEN_HALF_READ,        /* … or a worker was sent a version before it */
	SEEN_HALF_RESTART,     /* … or all began again */
	SEEN_EARLY,            /* some of a version left while the rest was made, */
	SEEN_EARLY_CRASH,      /* … and then a worker died, */
	SEEN_EARLY_FENCE,      /* … or a contribution was fenced, */
	SEEN_EARLY_FILL,       /* … or somebody was to fill one, */
	SEEN_EARLY_RESTART,    /* … or all began again; */
	SEEN_EARLY_BEGUN,      /* a task began with what came of it */
	/* What was fenced is of a round that another shard has stepped, and nobody has
	 * its version any more. */
	SEEN_OVERWRITTEN,
	SEEN_FETCHED,        /* a worker was sent such a version once more, to fill */
	SEEN_STALL,          /* a shard stood still for a while */
	SEEN_LINK_LOST,      /* its link was lost, with orders under way */
	SEEN_TWICE,          /* what was sent again had come already */
	SEEN_RESTART,        /* the coordinator began again, */
	SEEN_RESTART_BEHIND, /* … from a mark that clocks were behind, */
	SEEN_RESTART_NEW,    /* … or from the job's own beginning, */
	SEEN_RESTART_NONE,   /* … as there never was a mark, */
	SEEN_RESTART_EVAL,   /* … in an evaluation, */
	SEEN_RESTART_POLICY, /* … with policies to hold again, */
	SEEN_RESTART_CUT,    /* … with other shards */
	SEEN_RESTART_TORN,   /* a line of the trace was torn */
	SEEN_MARK_LOST,      /* a mark was not on disk yet */
	SEEN_DISK_OLDER,     /* an older snapshot was gone on from, as newer ones are
			      * damaged, */
	SEEN_DISK_NONE,      /* … or version 0, as all are, */
	SEEN_DISK_REFUSED,   /* … or as the journal lacks what the snapshot is behind */
	SEEN_JOURNAL_TORN,   /* a line of it was torn, */
	SEEN_CHANGE_LOST,    /* … or it lost one that had held */
	SEEN_OLDER,          /* a message of an older incarnation was refused, */
	SEEN_OLDER_PUSH,     /* … or a push, by its ticket, */
	SEEN_OLDER_AT_SHARD, /* … at a shard, when it had left long before */
	SEEN_SHARD_DIED,     /* one of several died, with pushes under way to others */
	SEEN_PLACED,         /* blocks have moved, */
	SEEN_PLACED_JOIN,    /* … to a shard that had none, */
	SEEN_PLACED_DRAIN,   /* … or all that one had; */
	SEEN_PLACED_FAR,     /* where shards are elsewhere; */
	SEEN_PLACED_LATE,    /* then what was pushed by a map of before came, */
	SEEN_PLACED_EARLY,   /* … or by the next one, before the shard knew that it holds;
			      */
	SEEN_PLACED_RESTART, /* or all began again in the midst of it; */
	SEEN_PLACED_STAY,    /* or a shard died that was to have its first; */
	SEEN_PLACED_REFUSED, /* or one that could not have more; */
	SEEN_PLACED_PSLD,    /* or as workers waited for the other shards; */
	SEEN_PLACED_LINES,   /* … with models that are stepped by themselves, */
	SEEN_PLACED_SLOTS,   /* … or what slots have contributed, */
	SEEN_PLACED_HELD,    /* … or a version that is evaluated, */
	SEEN_PLACED_OLDS,    /* … or versions before the newest */
	/* in the trace: */
	SEEN_TRACED,
	SEEN_FILL = SEEN_TRACED, /* what was fenced was filled */
	SEEN_MOVE,
	SEEN_CLONE,
	SEEN_LOST,
	SEEN_REGRANT,
	SEEN_SKIPPED,
	SEEN_NO_STEP, /* all of an update was */
	SEEN_ABANDONED,
	SEEN_DROPPED,
	SEEN_VERIFIED,
	SEEN_UNLIKE,
	SEEN_UNSTEPPED, /* a change of weights was too large for some blocks */
	SEEN_CHARGED,
	SEEN_NO_ANSWER, /* a suspect that did not answer, */
	SEEN_NO_WORK,   /* … that did, but stood still, or sent nothing, */
	SEEN_TOO_LONG,  /* … or went on for too long */
	SEEN_BACK,      /* one that worked again */
	SEEN_ALONE,     /* … or was needed */
	SEEN_POLICY,    /* another scheme held from then on */
	SEEN_ON,        /* a round ran on several versions */
	SEEN_LOCAL,
	SEEN_REBASE,
	SEEN_RANK,
	SEEN_LINE,
	SEEN
};

/* Adds what the trace (n bytes) has of it. */
void seen_trace(const char *trace, size_t n, uint64_t seen[static SEEN]);

/* Prints them; false: something never happened. */
bool seen_all(const uint64_t seen[static SEEN]);

#endif
