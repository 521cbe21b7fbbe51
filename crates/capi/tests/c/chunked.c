/* stopgap_chunked(3): what a buffer got adds up, and what is refused. */
#include "test.h"

static void buffer(const char *policy, uint64_t flags, uint64_t deadline)
{
	const size_t length = (5 << 20) + 1;
	struct stopgap_buffer_options options;
	struct stopgap_buffer_statistics statistics;
	struct stopgap_buffer_pages pages;
	uint64_t sum = 0, large = 0, each, count, i;
	stopgap_buffer *buffer;
	char text[1000], *at;
	int words;

	memset(&options, 0, sizeof options);
	options.size = sizeof options;
	options.policy = policy;
	options.flags = flags;
	options.deadline_ns = deadline;
	WORKS((buffer = stopgap_buffer_new(length, &options)) != NULL);
	WORKS((at = stopgap_buffer_address(buffer)) != NULL);
	for (i = 0; i < length; i += 4096)
		CHECK(at[i] == 0);
	memset(at, 3, length);

	memset(&statistics, 0, sizeof statistics);
	statistics.size = sizeof statistics;
	WORKS(stopgap_buffer_stat(buffer, &statistics) == 0);
	CHECK(statistics.bytes >= length && statistics.bytes < length + 65536 && statistics.took_ns > 0);
	memset(&pages, 0, sizeof pages);
	pages.size = sizeof pages;
	for (i = 0; stopgap_buffer_got(buffer, i, &pages) == 1; i++) {
		CHECK(pages.page >= 4096 && (pages.page & (pages.page - 1)) == 0);
		CHECK(pages.kind <= STOPGAP_PAGES_HUGETLB && pages.failed <= pages.tries);
		CHECK((pages.refused > 0) == (pages.why != 0));
		if (flags == (STOPGAP_BUFFER_SINGLE_PAGES | STOPGAP_BUFFER_NO_HUGETLB))
			CHECK(pages.kind == STOPGAP_PAGES_BASE);
		sum += pages.bytes;
		if (pages.kind != STOPGAP_PAGES_BASE)
			large += pages.bytes - pages.unverified;
	}
	CHECK(i == statistics.pages && sum == statistics.bytes && large == statistics.large_bytes);
	for (sum = 0, i = 0; stopgap_buffer_chunks(buffer, i, &each, &count) == 1; i++)
		sum += each * count;
	CHECK(i == statistics.chunks && sum == statistics.bytes);
	WORKS(stopgap_buffer_chunks(buffer, 0, NULL, NULL) == 1);
	words = stopgap_buffer_text(buffer, text, sizeof text);
	CHECK(words > 0 && words < (int)sizeof text && (int)strlen(text) == words && strstr(text, "took ") != NULL);
	CHECK(stopgap_buffer_text(buffer, NULL, 0) == words);
	CHECK(at[length - 1] == 3);

	FAILS(stopgap_buffer_stat(buffer, NULL), EFAULT);
	pages.size = 8;
	FAILS(stopgap_buffer_got(buffer, 0, &pages), EINVAL);
	WORKS(stopgap_buffer_close(buffer) == 0);
	FAILS(stopgap_buffer_close(buffer), EBADF);
	REFUSES(stopgap_buffer_address(buffer), EBADF);
}

int main(void)
{
	struct stopgap_buffer_options options;
	stopgap_buffer *usual;

	buffer(NULL, 0, 0);
	buffer("fold", STOPGAP_BUFFER_NO_HUGETLB, 0);
	buffer("per-device", STOPGAP_BUFFER_SINGLE_PAGES | STOPGAP_BUFFER_NO_HUGETLB, 0);
	buffer("list", 0, 1);
	WORKS((usual = stopgap_buffer_new(1, NULL)) != NULL);
	WORKS(stopgap_buffer_close(usual) == 0);

	REFUSES(stopgap_buffer_new(0, NULL), EINVAL);
	CHECK(stopgap_buffer_new((size_t)-1, NULL) == NULL);
	memset(&options, 0, sizeof options);
	options.size = sizeof options;
	options.policy = "no-such-policy";
	REFUSES(stopgap_buffer_new(1, &options), EINVAL);
	options.policy = "\xff\xfe";
	REFUSES(stopgap_buffer_new(1, &options), EINVAL);
	options.policy = NULL;
	options.flags = 4;
	REFUSES(stopgap_buffer_new(1, &options), EINVAL);
	options.flags = 0;
	options.device_sizes = 1 << 30; /* cannot map a base page */
	REFUSES(stopgap_buffer_new(1, &options), EINVAL);
	puts("done");
	return 0;
}
