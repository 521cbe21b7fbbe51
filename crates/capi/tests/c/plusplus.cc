// The header in a C++ program, with what C++ would do around it.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include <stopgap.h>

struct Close {
	void operator()(stopgap_set *set) const { stopgap_set_close(set); }
	void operator()(stopgap_held *held) const { stopgap_held_close(held); }
};

int main()
{
	stopgap_set_options options = stopgap_set_options();
	options.size = sizeof options;
	options.budget = 1 << 20;
	options.way = STOPGAP_WAY_MEMFD;
	std::unique_ptr<stopgap_set, Close> set(stopgap_set_new(&options));
	if (!set)
		return 1;
	std::unique_ptr<stopgap_held, Close> held(stopgap_set_take(set.get(), 4096));
	if (!held) {
		char text[200];
		stopgap_error_text(text, sizeof text);
		std::printf("skipped: a locked set in C++: %s\ndone\n", text);
		return errno == ENOMEM || errno == EPERM ? 0 : 1;
	}
	std::memset(stopgap_held_address(held.get()), 7, 4096);
	if (stopgap_set_take(set.get(), 2 << 20) != nullptr || errno != ENOMEM)
		return 2;
	std::puts("done");
}
