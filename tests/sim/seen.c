/* What has happened. */
#include "seen.h"

#include <stdio.h>
#include <string.h>

/* Its name, and what a line of the trace has in it. */
static const struct {
	const char *name, *text;
} what[SEEN] = {
	[SEEN_FENCE] = { "fence", NULL },
	[SEEN_TWO_RUNS] = { "contribution of large and small tasks granted", NULL },
	[SEEN_PRECLAIMED_FENCE] = { "fence of what was claimed ahead", NULL },
	[SEEN_FENCE_IN_PUSH] = { "fence in mid-push", NULL },
	[SEEN_IN_TIME] = { "push in time", NULL },
	[SEEN_EPOCH] = { "loss of an epoch", NULL },
	[SEEN_CRASH_IN_PUSH] = { "crash in mid-push", NULL },
	[SEEN_LATE_PUSH] = { "late push of what is fenced", NULL },
	[SEEN_DRAIN_IN_CLONE] = { "drain in a clone", NULL },
	[SEEN_PRECLAIMED] = { "result that was claimed ahead", NULL },
	[SEEN_FIRM] = { "result that was claimed ahead where tasks move", NULL },
	[SEEN_GROUP] = { "group server ready", NULL },
	[SEEN_GROUP_EMPTY] = { "group server without members", NULL },
	[SEEN_GROUP_LEFT] = { "group server that left", NULL },
	[SEEN_GROUP_HUNG] = { "group server's member that hung", NULL },
	[SEEN_GROUP_DIED] = { "group server's death", NULL },
	[SEEN_GROUP_AGAIN] = { "group server's return", NULL },
	[SEEN_GROUP_PARTED] = { "group server's coordinator gone", NULL },
	[SEEN_GROUP_CUT] = { "group server's cut", NULL },
	[SEEN_GROUP_UNWANTED] = { "work of a group called off", NULL },
	[SEEN_BEGUN] = { "task that began before its version was here", NULL },
	[SEEN_BEGUN_WAITS] = { "task that waited for the rest of it", NULL },
	[SEEN_REJOIN] = { "rejoin", NULL },
	[SEEN_HANG] = { "hung and answering", NULL },
	[SEEN_NONFINITE] = { "gradient that is not finite", NULL },
	[SEEN_LIE] = { "lie", NULL },
	[SEEN_REFUSED] = { "liar refused", NULL },
	[SEEN_FLIP] = { "bit that was flipped", NULL },
	[SEEN_ESCAPED] = { "flip in the model", NULL },
	[SEEN_EARLY_PUSH] = { "push before its round is open", NULL },
	[SEEN_EARLY_PUBLISHED] = { "part of a version before the word about it", NULL },
	[SEEN_FENCE_AFTER_PUSH] = { "fence after the push that it is about", NULL },
	[SEEN_FENCED] = { "fence waited for", NULL },
	[SEEN_APART] = { "shards a version apart", NULL },
	[SEEN_CRASH_APART] = { "crash between two shards' steps", NULL },
	[SEEN_AHEAD] = { "end ordered ahead", NULL },
	[SEEN_MADE_AHEAD] = { "version made ahead", NULL },
	[SEEN_HALF_MADE] = { "version made in part", NULL },
	[SEEN_HALF_CRASH] = { "crash while a version is made in part", NULL },
	[SEEN_HALF_FENCE] = { "fence while a version is made in part", NULL },
	[SEEN_HALF_READ] = { "version sent while the next one is made in part", NULL },
	[SEEN_HALF_RESTART] = { "restart while a version is made in part", NULL },
	[SEEN_EARLY] = { "version on its way while it is made", NULL },
	[SEEN_EARLY_CRASH] = { "crash while a version that is made is on its way", NULL },
	[SEEN_EARLY_FENCE] = { "fence while a version that is made is on its way", NULL },
	[SEEN_EARLY_FILL] = { "fill while a version that is made is on its way", NULL },
	[SEEN_EARLY_RESTART] = { "restart while a version that is made is on its way",
				 NULL },
	[SEEN_EARLY_BEGUN] = { "task that began with such a version", NULL },
	[SEEN_OVERWRITTEN] = { "fence of what nobody has the version for", NULL },
	[SEEN_FETCHED] = { "version fetched again", NULL },
	[SEEN_STALL] = { "shard that stalls", NULL },
	[SEEN_LINK_LOST] = { "link lost with orders under way", NULL },
	[SEEN_TWICE] = { "sent again, and dropped", NULL },
	[SEEN_RESTART] = { "restart", NULL },
	[SEEN_RESTART_BEHIND] = { "restart behind a mark", NULL },
	[SEEN_RESTART_NEW] = { "restart from the beginning", NULL },
	[SEEN_RESTART_NONE] = { "restart without any mark", NULL },
	[SEEN_RESTART_EVAL] = { "restart in an evaluation", NULL },
	[SEEN_RESTART_POLICY] = { "restart with policies to hold again", NULL },
	[SEEN_RESTART_CUT] = { "restart with another number of shards", NULL },
	[SEEN_RESTART_TORN] = { "line torn by a restart", NULL },
	[SEEN_MARK_LOST] = { "mark that was not kept yet", NULL },
	[SEEN_DISK_OLDER] = { "restart from an older snapshot", NULL },
	[SEEN_DISK_NONE] = { "restart without a snapshot that is whole", NULL },
	[SEEN_DISK_REFUSED] = { "restart refused for its journal", NULL },
	[SEEN_JOURNAL_TORN] = { "journal torn by a crash", NULL },
	[SEEN_CHANGE_LOST] = { "change of policy lost by a crash", NULL },
	[SEEN_OLDER] = { "message of an older incarnation", NULL },
	[SEEN_OLDER_PUSH] = { "ticket of an older incarnation", NULL },
	[SEEN_OLDER_AT_SHARD] = { "push of an older incarnation at a shard", NULL },
	[SEEN_SUMS] = { "worker with all the memory that it may have", NULL },
	[SEEN_GROWN] = { "worker that asked for more", NULL },
	[SEEN_QUEUED] = { "task that waited for its lane", NULL },
	[SEEN_SHARD_DIED] = { "shard that died alone", NULL },
	[SEEN_PLACED] = { "blocks moved", NULL },
	[SEEN_PLACED_JOIN] = { "blocks moved to a shard without any", NULL },
	[SEEN_PLACED_DRAIN] = { "all blocks of a shard moved", NULL },
	[SEEN_PLACED_FAR] = { "blocks moved elsewhere", NULL },
	[SEEN_PLACED_LATE] = { "push by a map of before", NULL },
	[SEEN_PLACED_EARLY] = { "push by a map that is not taken yet", NULL },
	[SEEN_PLACED_RESTART] = { "restart in a move", NULL },
	[SEEN_PLACED_STAY] = { "move that never was", NULL },
	[SEEN_PLACED_REFUSED] = { "shard that cannot have more", NULL },
	[SEEN_PLACED_PSLD] = { "blocks moved by what was waited for", NULL },
	[SEEN_PLACED_LINES] = { "line that moved", NULL },
	[SEEN_PLACED_SLOTS] = { "slot that moved", NULL },
	[SEEN_PLACED_HELD] = { "held version that moved", NULL },
	[SEEN_PLACED_OLDS] = { "older version that moved", NULL },
	[SEEN_FILL] = { "fill after fence", "\"fills\":[" },
	[SEEN_MOVE] = { "move", "\"move\":[[" },
	[SEEN_CLONE] = { "clone", "\"clone\":[[" },
	[SEEN_LOST] = { "claim lost", "\"lost\":[[" },
	[SEEN_REGRANT] = { "grant again", "\"regrant\":[[" },
	[SEEN_SKIPPED] = { "task skipped", "\"skipped\":[[" },
	[SEEN_NO_STEP] = { "update of no sample", "\"loss\":null" },
	[SEEN_ABANDONED] = { "round abandoned", "\"end\":\"abandoned\"" },
	[SEEN_DROPPED] = { "round dropped", "\"end\":\"dropped\"" },
	[SEEN_VERIFIED] = { "round with verified claims", "\"verified\":[" },
	[SEEN_UNLIKE] = { "unlike results", "\"ev\":\"verify\"" },
	[SEEN_UNSTEPPED] = { "blocks left as they were", "\"unstepped\":" },
	[SEEN_CHARGED] = { "worker charged", "\"ev\":\"charge\"" },
	[SEEN_NO_ANSWER] = { "suspect without an answer", "\"why\":\"it does not" },
	[SEEN_NO_WORK] = { "suspect that answered", "\"why\":\"its lanes stand still" },
	[SEEN_TOO_LONG] = { "suspect that went on", "\"why\":\"it takes too long" },
	[SEEN_BACK] = { "suspect that came back", "\"why\":\"its work came" },
	[SEEN_ALONE] = { "suspect that was needed", "\"why\":\"nobody else is left" },
	[SEEN_POLICY] = { "another scheme", "\"why\":\"policy\"" },
	[SEEN_ON] = { "round on several versions", "\"on\":[[" },
	[SEEN_LOCAL] = { "own weights", "\"base\":\"local\"" },
	[SEEN_REBASE] = { "own steps kept", "\"base\":\"rebase\"" },
	[SEEN_RANK] = { "second of a slot", "\"rank\":2" },
	[SEEN_LINE] = { "second round of a line", "\"local\":2" },
};

static uint64_t
count(const char *trace, size_t n, const char *text)
{
	const size_t len = strlen(text);
	uint64_t found = 0;
	for (const char *at = trace;
	     (at = memmem(at, n - (size_t)(at - trace), text, len)) != NULL; at += len)
		found++;
	return found;
}

void
seen_trace(const char *trace, size_t n, uint64_t seen[static SEEN])
{
	for (int i = SEEN_TRACED; i < SEEN; i++)
		if (what[i].text != NULL)
			seen[i] += count(trace, n, what[i].text);
}

bool
seen_all(const uint64_t seen[static SEEN])
{
	bool all = true;
	for (int i = 0; i < SEEN; i++) {
		printf("# %llu %s\n", (unsigned long long)seen[i], what[i].name);
		all = all && seen[i] > 0;
	}
	return all;
}
