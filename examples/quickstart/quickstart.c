/* The first program: an embedded broker, ten records sent, a group that reads and commits them. */
#include <ottla.h>
#include <stdio.h>
#include <string.h>

static int failed(const char *doing, ottla_error_t *error)
{
    fprintf(stderr, "%s: %s: %s\n", doing, ottla_error_name(error), ottla_error_message(error));
    ottla_error_free(error);
    return 1;
}

static int produce(const char *address)
{
    char options[128], value[32];
    ottla_error_t *error = NULL;
    snprintf(options, sizeof options, "bootstrap.servers=%s", address);
    ottla_producer_t *producer = ottla_producer_new(options, &error);
    if (!producer) return failed("producer", error);
    for (int number = 0; number < 9; number++) {
        snprintf(value, sizeof value, "order %d", number);
        ottla_record_t record = OTTLA_RECORD("orders");
        record.key = OTTLA_BYTES("customer", 8);
        record.value = OTTLA_BYTES(value, strlen(value));
        error = ottla_producer_send(producer, &record, NULL);
        if (error) return failed("send", error);
    }
    ottla_record_t record = OTTLA_RECORD("orders");
    record.key = OTTLA_BYTES("customer", 8);
    record.value = OTTLA_BYTES("order 9", 7);
    ottla_delivery_t at;
    error = ottla_producer_send_wait(producer, &record, 10000, &at);
    if (error) return failed("send", error);
    printf("order 9: partition %d, offset %lld\n", (int)at.partition, (long long)at.offset);
    error = ottla_producer_close(producer, 5000);
    if (error) return failed("close", error);
    ottla_producer_free(producer);
    return 0;
}

static int consume(const char *address)
{
    char options[160];
    ottla_error_t *error = NULL;
    size_t read = 0;
    snprintf(options, sizeof options, "bootstrap.servers=%s;group.id=billing;start=earliest;auto_commit=false",
             address);
    ottla_consumer_t *consumer = ottla_consumer_new(options, &error);
    if (!consumer) return failed("consumer", error);
    error = ottla_consumer_subscribe(consumer, (const char *[]){"orders"}, 1);
    if (error) return failed("subscribe", error);
    while (read < 10) {
        ottla_batch_t *batch = ottla_consumer_poll(consumer, 10000, &error);
        if (error) return failed("poll", error);
        if (!batch) {
            fprintf(stderr, "no record came within ten seconds\n");
            return 1;
        }
        for (size_t index = 0; index < ottla_batch_len(batch); index++) {
            const ottla_record_view_t *record = ottla_batch_get(batch, index);
            printf("read %.*s at offset %lld\n", (int)record->value.len,
                   (const char *)record->value.ptr, (long long)record->offset);
            read++;
        }
        error = ottla_consumer_commit_batch(consumer, batch, OTTLA_COMMIT_SYNC);
        ottla_batch_free(batch);
        if (error) return failed("commit", error);
    }
    error = ottla_consumer_close(consumer, 5000);
    if (error) return failed("close", error);
    ottla_consumer_free(consumer);
    printf("10 records sent, %zu read and committed\n", read);
    return 0;
}

int main(void)
{
    ottla_error_t *error = NULL;
    ottla_broker_t *broker = ottla_broker_start(NULL, &error);
    if (!broker) return failed("broker", error);
    error = ottla_broker_create_topic(broker, "orders", 3);
    if (error) return failed("create topic", error);
    int status = produce(ottla_broker_address(broker));
    if (status == 0) status = consume(ottla_broker_address(broker));
    error = ottla_broker_stop(broker, 5000);
    if (error) return failed("stop", error);
    ottla_broker_free(broker);
    return status;
}
