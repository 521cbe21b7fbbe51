/* stopgap_error(3): versions, errno and the text beside it. */
#include "test.h"

int main(void)
{
	char text[200], cut[6];
	int length;

	CHECK(strcmp(stopgap_version(), STOPGAP_VERSION) == 0);
	WORKS(stopgap_error_text(text, sizeof text) == (int)strlen(text));
	CHECK(strcmp(text, "no call failed in this thread") == 0);

	FAILS(stopgap_channel_close(NULL), EBADF);
	length = stopgap_error_text(NULL, 0);
	CHECK(length > 6);
	CHECK(errno == EBADF);
	CHECK(stopgap_error_text(text, sizeof text) == length);
	CHECK((int)strlen(text) == length);
	memset(cut, 'x', sizeof cut);
	CHECK(stopgap_error_text(cut, 5) == length);
	CHECK(strncmp(cut, text, 4) == 0 && cut[4] == 0 && cut[5] == 'x');
	CHECK(stopgap_error_text(cut, 1) == length && cut[0] == 0);

	/* Of a system call the text has the name. */
	REFUSES(stopgap_channel_connect("/nonexistent/socket", NULL), ENOENT);
	CHECK(stopgap_error_text(text, sizeof text) > 0 && strncmp(text, "connect: ", 9) == 0);
	/* What succeeds leaves the text. */
	WORKS(stopgap_version() != NULL);
	CHECK(stopgap_error_text(text, sizeof text) > 0 && strncmp(text, "connect: ", 9) == 0);

	FAILS(stopgap_error_text(NULL, 1), EFAULT);
	puts("done");
	return 0;
}
