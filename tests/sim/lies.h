/* What liars bring about. */
#ifndef LIES_H
#define LIES_H

#include "cluster.h"

/* Does the trace (n bytes) say that a liar's word was believed, as it stands or bounded?
 */
bool liar_believed(const struct plan *p, const char *trace, size_t n);

#endif
