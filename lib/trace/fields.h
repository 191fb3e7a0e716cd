/* The members of the lines of falcon-trace(5): what each is called and what it holds.
 *
 * The one table of them: the writer and every reader name a member by its place here, and
 * assert that they agree about what it holds.  A name that holds different things in
 * different lines has a row for each.
 */
#ifndef FAL_TRACE_FIELDS_H
#define FAL_TRACE_FIELDS_H

/* What a member holds. */
enum fal_field_kind {
	FAL_FIELD_WHOLE,    /* a whole number from 0 to 2^53 */
	FAL_FIELD_EXPONENT, /* a whole number that may be negative */
	FAL_FIELD_REAL,     /* a number; null where it is not finite */
	FAL_FIELD_SECONDS,  /* seconds */
	FAL_FIELD_FLAG,     /* true, or not there */
	FAL_FIELD_TEXT,
	FAL_FIELD_TUPLE, /* an array of so many whole numbers */
	FAL_FIELD_LIST,  /* an array of anything else */
	FAL_FIELD_OBJECT
};

/* F(constant, name, kind) */
#define FAL_FIELDS(F)                                  \
	/* of all lines */                             \
	F(T, "t", SECONDS)                             \
	F(EV, "ev", TEXT)                              \
	/* whose line it is, and why */                \
	F(WORKER, "worker", TEXT)                      \
	F(ID, "id", WHOLE)                             \
	F(KEY, "key", TEXT)                            \
	F(KEY_FINGERPRINT, "key_fingerprint", TEXT)    \
	F(BY_NAME, "by", TEXT)                         \
	F(WHY, "why", TEXT)                            \
	F(REASON, "reason", TEXT)                      \
	F(OWES, "owes", TEXT)                          \
	F(SECONDS, "seconds", SECONDS)                 \
	F(TRAINED, "trained", SECONDS)                 \
	F(COUNT, "count", WHOLE)                       \
	/* job, policy */                              \
	F(NAME, "name", TEXT)                          \
	F(HASH, "hash", TEXT)                          \
	F(MODEL, "model", TEXT)                        \
	F(DATA, "data", TEXT)                          \
	F(SEED, "seed", TEXT)                          \
	F(FROM, "from", TEXT)                          \
	F(EPOCHS, "epochs", WHOLE)                     \
	F(BATCH, "batch", WHOLE)                       \
	F(TASK, "task", WHOLE)                         \
	F(PARTS, "parts", WHOLE)                       \
	F(SAMPLES, "samples", WHOLE)                   \
	F(TEST, "test", WHOLE)                         \
	F(PARAMS, "params", WHOLE)                     \
	F(BLOCKS, "blocks", WHOLE)                     \
	F(SHARDS, "shards", WHOLE)                     \
	F(CLOCKS_PER_EPOCH, "clocks_per_epoch", WHOLE) \
	F(CLOCKS, "clocks", WHOLE)                     \
	F(SCHEME, "scheme", TEXT)                      \
	F(AUDIT, "audit", TEXT)                        \
	F(HASH_EVERY, "hashes", WHOLE)                 \
	F(NUMERICS, "numerics", TEXT)                  \
	F(NONFINITE, "nonfinite", TEXT)                \
	F(OPTIMIZER, "optimizer", TEXT)                \
	F(MOMENTUM, "momentum", REAL)                  \
	F(BETA1, "beta1", REAL)                        \
	F(INCARNATION, "incarnation", WHOLE)           \
	F(ABOVE, "above", TEXT)                        \
	F(POLICY, "policy", OBJECT)                    \
	/* job, join */                                \
	F(PROGRAM, "version", TEXT)                    \
	/* join, clock */                              \
	F(LANES_RANGE, "lanes", TUPLE)                 \
	F(CORES, "cores", WHOLE)                       \
	F(FINGERPRINT, "fingerprint", TEXT)            \
	F(KERNELS, "kernels", TEXT)                    \
	F(TASK_S, "task_s", SECONDS)                   \
	F(LARGE, "large", WHOLE)                       \
	F(LARGE_S, "large_s", SECONDS)                 \
	F(MEMBERS, "members", WHOLE)                   \
	F(FELL, "fell", FLAG)                          \
	F(CLOCK, "clock", WHOLE)                       \
	F(ROUND, "round", WHOLE)                       \
	F(LANES, "lanes", WHOLE)                       \
	F(SHARE, "share", WHOLE)                       \
	F(DONE, "done", WHOLE)                         \
	F(IN, "in", WHOLE)                             \
	F(OUT, "out", WHOLE)                           \
	F(CLONED, "cloned", WHOLE)                     \
	F(LOST, "lost", WHOLE)                         \
	F(COMPUTE, "compute", SECONDS)                 \
	F(PUSH, "push", SECONDS)                       \
	F(PULL, "pull", SECONDS)                       \
	F(WAIT, "wait", SECONDS)                       \
	F(PUSH_ALL, "push_all", SECONDS)               \
	F(PULL_ALL, "pull_all", SECONDS)               \
	F(LATE, "late", SECONDS)                       \
	F(RTT, "rtt", SECONDS)                         \
	F(SPANS, "spans", LIST)                        \
	F(WAITED, "waited", SECONDS)                   \
	F(STREAMED, "streamed", SECONDS)               \
	F(PACES, "paces", LIST)                        \
	F(CUT, "cut", WHOLE)                           \
	F(CUT_S, "cut_s", SECONDS)                     \
	F(STALENESS, "staleness", WHOLE)               \
	F(TX, "tx", WHOLE)                             \
	F(RX, "rx", WHOLE)                             \
	/* ledger */                                   \
	F(FIRST, "first", WHOLE)                       \
	F(TASKS, "tasks", WHOLE)                       \
	F(VERSION, "version", WHOLE)                   \
	F(KIND, "kind", TEXT)                          \
	F(OWNER, "owner", WHOLE)                       \
	F(GROUP, "group", WHOLE)                       \
	F(LOCAL, "local", WHOLE)                       \
	F(END, "end", TEXT)                            \
	F(WEIGHT, "weight", REAL)                      \
	F(AMONG, "among", WHOLE)                       \
	F(DIVISOR, "divisor", REAL)                    \
	F(STEPS, "steps", WHOLE)                       \
	F(BASE, "base", TEXT)                          \
	F(SINCE, "since", WHOLE)                       \
	F(LR, "lr", REAL)                              \
	F(STALE, "stale", OBJECT)                      \
	F(UPDATES, "updates", WHOLE)                   \
	F(RANK, "rank", WHOLE)                         \
	F(SLOT, "slot", WHOLE)                         \
	F(GRANT, "grant", LIST)                        \
	F(MOVE, "move", LIST)                          \
	F(CLONE, "clone", LIST)                        \
	F(REGRANT, "regrant", LIST)                    \
	F(LOST_LIST, "lost", LIST)                     \
	F(SKIPPED, "skipped", LIST)                    \
	F(VERIFIED, "verified", TUPLE)                 \
	F(CONTRIB, "contrib", LIST)                    \
	F(CAME, "came", SECONDS)                       \
	F(C, "c", TUPLE)                               \
	F(TASK_LIST, "tasks", LIST)                    \
	F(HASHES, "hashes", LIST)                      \
	F(FILLS, "fills", TUPLE)                       \
	F(FENCED, "fenced", FLAG)                      \
	F(ON, "on", LIST)                              \
	F(SUM, "sum", TEXT)                            \
	F(ADDED, "added", TEXT)                        \
	/* update, eval */                             \
	F(ROUNDS, "rounds", LIST)                      \
	F(PUSHES, "pushes", LIST)                      \
	F(GROUPS, "groups", WHOLE)                     \
	F(OUTER, "outer", LIST)                        \
	F(LOSS, "loss", REAL)                          \
	F(NORM, "norm", REAL)                          \
	F(EXPONENTS, "exponents", TEXT)                \
	F(EPOCH, "epoch", WHOLE)                       \
	F(MADE, "made", SECONDS)                       \
	F(MADE_ALL, "made_all", SECONDS)               \
	F(RIGHT, "right", WHOLE)                       \
	F(TOTAL, "total", WHOLE)                       \
	F(JOURNAL, "journal", TEXT)                    \
	F(ACCURACY, "accuracy", REAL)                  \
	F(KEYS, "keys", LIST)                          \
	F(TWICE, "twice", WHOLE)                       \
	F(ALONE, "alone", WHOLE)                       \
	/* nonfinite, check, again */                  \
	F(FIRST_SAMPLE, "first_sample", WHOLE)         \
	F(BLOCK, "block", WHOLE)                       \
	F(NEEDED, "needed", EXPONENT)                  \
	F(SHOWN, "shown", EXPONENT)                    \
	F(EXPONENT, "exponent", EXPONENT)              \
	F(BY, "by", WHOLE)                             \
	F(BOUND, "bound", LIST)                        \
	F(VERDICT, "verdict", TEXT)                    \
	F(WORDS, "words", LIST)                        \
	/* place */                                    \
	F(MAP, "map", WHOLE)                           \
	F(RULE, "rule", TEXT)                          \
	F(PLACES, "places", WHOLE)                     \
	F(RUNS, "runs", LIST)                          \
	/* shard */                                    \
	F(SHARD, "shard", WHOLE)                       \
	F(ADDRESS, "address", TEXT)                    \
	F(SERVICE, "service", SECONDS)                 \
	F(QUEUE, "queue", SECONDS)                     \
	F(TOOK, "took", SECONDS)                       \
	F(BLAME, "blame", SECONDS)                     \
	/* restart */                                  \
	F(UNTIL, "until", WHOLE)                       \
	F(TORN, "torn", WHOLE)                         \
	F(ACCEPTED, "accepted", TEXT)                  \
	/* gap, done */                                \
	F(LINES, "lines", WHOLE)                       \
	F(BYTES, "bytes", WHOLE)                       \
	F(BLAKE2B, "blake2b", TEXT)                    \
	F(LINK, "h", TEXT)                             \
	F(SHA256, "sha256", TEXT)

enum fal_field {
#define FAL_FIELD_ROW(constant, name, kind) FAL_F_##constant,
	FAL_FIELDS(FAL_FIELD_ROW)
#undef FAL_FIELD_ROW
		FAL_FIELD_COUNT
};

/* What it is called; static. */
const char *fal_field_name(enum fal_field f);
enum fal_field_kind fal_field_kind(enum fal_field f);

#endif
