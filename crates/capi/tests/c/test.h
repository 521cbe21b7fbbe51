/* What the test programs share: a condition that does not hold ends the program with its line, errno and the
 * library's text. */
#ifndef TEST_H
#define TEST_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stopgap.h>

#define CHECK(condition)                                                                                              \
	do {                                                                                                          \
		if (!(condition)) {                                                                                   \
			int number = errno;                                                                           \
			char text[256];                                                                               \
			stopgap_error_text(text, sizeof text);                                                        \
			printf("%s:%d: %s: errno %d (%s); %s\n", __FILE__, __LINE__, #condition, number,              \
			       strerror(number), text);                                                               \
			fflush(stdout);                                                                               \
			_exit(1);                                                                                     \
		}                                                                                                     \
	} while (0)

/* The call fails with -1 and this errno. */
#define FAILS(call, number) CHECK((errno = 0, (call) == -1) && errno == (number))

/* The call fails with NULL and this errno. */
#define REFUSES(call, number) CHECK((errno = 0, (call) == NULL) && errno == (number))

/* The call succeeds and leaves errno alone. */
#define WORKS(condition) CHECK((errno = 4711, (condition)) && errno == 4711)

#include <unistd.h>

#endif
