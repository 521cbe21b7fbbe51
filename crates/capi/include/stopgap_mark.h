/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * stopgap_mark(name): marks this moment in what stopgap records of this thread: the end of a frame, the begin of a request.
 *
 * The mark is a row of kind `mark` in a trace that `stopgap record` (by BPF) or `stopgap watch` writes;
 * `explain --frame-marker NAME` counts frames by it, and `watch --mark NAME` writes a page when it comes.
 *
 * Needs no library, no privilege and nobody who records. The calling thread takes the name of the mark for a moment and its
 * own name again, by prctl(2): the kernel tells a recorder of each change of a name. Costs three system calls, 0.3 us in
 * all on a machine of 2026, and two records of 128 bytes where somebody records. Who reads the thread's name in between
 * (`ps`, `/proc/PID/comm`) sees the mark.
 *
 * name     up to 14 bytes; of a longer one the first 14.
 * Errors   None are reported: a mark that cannot be made is none. errno is left as it was.
 * Threads  Any thread, at any time. Safe in a signal handler; between two calls in one thread the inner one counts.
 */
#ifndef STOPGAP_MARK_H
#define STOPGAP_MARK_H

#include <errno.h>
#include <sys/prctl.h>

static inline void stopgap_mark(const char *name)
{
	char own[16], mark[16];
	int saved = errno, at = 1;

	/* No program's name begins with this byte. */
	mark[0] = '\001';
	for (; at < 15 && name && name[at - 1]; at++)
		mark[at] = name[at - 1];
	mark[at] = 0;
	if (!prctl(PR_GET_NAME, own, 0, 0, 0) && !prctl(PR_SET_NAME, mark, 0, 0, 0))
		prctl(PR_SET_NAME, own, 0, 0, 0);
	errno = saved;
}

#endif
