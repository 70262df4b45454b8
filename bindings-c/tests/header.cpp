// The header as C++: it is clean, and its macros work there too.
#include <ottla.h>

ottla_record_t made_in_cpp(const char *topic, const void *value, int length)
{
    ottla_record_t record = OTTLA_RECORD(topic);
    record.value = OTTLA_BYTES(value, length);
    record.key = OTTLA_BYTES("k", 1);
    record = OTTLA_RECORD("again");
    return record;
}
