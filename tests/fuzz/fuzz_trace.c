/* Any bytes through the audit, the summary and the fit, as falcon-stat reads a file:
 * twice, for what a restart took back.  No crash, no leak, no failed assertion.  A first
 * byte other than '{' and '(', with which a zstd frame begins, puts a valid job line
 * before the rest, so that the lines behind it are reached, and a policy line of the
 * scheme that the byte chooses. */
#include "proj/fit.h"
#include "trace/audit.h"
#include "trace/summary.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static const char head[] =
	"{\"t\":0,\"ev\":\"job\",\"name\":\"j\",\"hash\":\"aa\",\"incarnation\":0,"
	"\"seed\":\"1\",\"params\":17000,\"shards\":1,\"hashes\":1,\"numerics\":\"fast\","
	"\"optimizer\":\"sgd\",\"version\":\"1\","
	"\"epochs\":2,\"batch\":64,\"task\":8,\"test\":9,\"nonfinite\":\"skip\","
	"\"samples\":96,\"blocks\":5,\"clocks_per_epoch\":2,\"clocks\":4,"
	"\"scheme\":\"bsp\",\"audit\":\"claims\"}\n"
	"{\"t\":0.1,\"ev\":\"join\",\"worker\":\"a\",\"id\":1,\"lanes\":[1,2],\"cores\":"
	"4,"
	"\"fingerprint\":\"f\"}\n"
	"{\"t\":0.1,\"ev\":\"join\",\"worker\":\"b\",\"id\":2,\"lanes\":[1,2],\"cores\":"
	"4,"
	"\"fingerprint\":\"f\"}\n";

static const char *const policy[] = {
#define POLICY(scheme)                                                                \
	"{\"t\":0.2,\"ev\":\"policy\",\"clock\":0,\"version\":0,\"scheme\":\"" scheme \
	"\",\"by\":\"job\"}\n"
	POLICY("bsp"),       POLICY("epsp:2"),
	POLICY("asp"),       POLICY("ssp:1"),
	POLICY("syncopt:1"), POLICY("consgd:1,lambda=0.5"),
	POLICY("dynsgd"),    POLICY("dynsgd:2,staleness=updates"),
	POLICY("wbsp"),      POLICY("groups:2,mode=delta"),
};

/* Hands the bytes to `pass`, behind the lines that the first one asks for. */
static int
hand(int (*pass)(void *arg, const void *p, size_t n), void *arg, const uint8_t *p,
     size_t n)
{
	int err = 0;
	if (n > 0 && p[0] != '{' && p[0] != '(') {
		const char *rule = policy[p[0] % (sizeof(policy) / sizeof(policy[0]))];
		err = pass(arg, head, sizeof(head) - 1);
		if (err == 0)
			err = pass(arg, rule, strlen(rule));
		p++;
		n--;
	}
	return err == 0 ? pass(arg, p, n) : err;
}

static int
take(void *reader, const void *p, size_t n)
{
	struct fal_diag diag;
	return fal_trace_feed(reader, p, n, &diag);
}

typedef int on_line(void *arg, struct fal_trace_line *l);

static int
feed(on_line *line, bool cut, void *arg, const uint8_t *p, size_t n)
{
	struct fal_diag diag;
	struct fal_trace_reader *r = fal_trace_reader_new(line, arg);
	if (cut)
		fal_trace_reader_deliver_cut(r);
	int err = hand(fal_trace_find_restarts, r, p, n);
	if (err == 0)
		err = hand(take, r, p, n);
	if (err == 0)
		err = fal_trace_end(r, &diag);
	fal_trace_reader_free(r);
	return err;
}

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct fal_diag diag;
	struct fal_audit_verdict v;
	struct fal_audit *a = fal_audit_new();
	fal_audit_demand(a, FAL_AUDIT_CHAIN | FAL_AUDIT_CLOCKS | FAL_AUDIT_END |
				    FAL_AUDIT_PARTS);
	if (feed(fal_audit_line, true, a, p, n) == 0)
		fal_audit_end(a, &v, &diag);
	fal_audit_free(a);

	struct fal_summary s = { 0 };
	if (feed(fal_summary_line, false, &s, p, n) == 0)
		fal_summary_end(&s, &diag);
	fal_summary_free(&s);

	struct fal_fit *f = fal_fit_new();
	struct fal_cost cost;
	struct fal_fit_run run;
	if (f == NULL)
		abort();
	feed(fal_fit_line, false, f, p, n); /* what came before an error counts */
	if (fal_fit_end(f, &cost, &run, &diag) == 0)
		fal_cost_free(&cost);
	fal_fit_free(f);
	return 0;
}
