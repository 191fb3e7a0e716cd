/* peak FILE COMMAND...: runs it, and writes the most memory that it had, in KiB, to FILE.
 * Exits as it does, passes SIGTERM on, and takes it along when killed. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t child;

static void
on_term(int sig)
{
	kill(child, sig);
}

int
main(int argc, char **argv)
{
	struct rusage used;
	int status;
	if (argc < 3)
		return 2;
	child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execvp(argv[2], argv + 2);
		perror(argv[2]);
		_exit(127);
	}
	/* Not SA_RESTART: wait4 is called again below. */
	sigaction(SIGTERM, &(struct sigaction){ .sa_handler = on_term }, NULL);
	while (wait4(child, &status, 0, &used) < 0)
		;
	FILE *f = fopen(argv[1], "w");
	if (f == NULL || fprintf(f, "%ld\n", used.ru_maxrss) < 0 || fclose(f) != 0)
		return 2;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
