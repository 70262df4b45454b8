/* What goes wrong outside: a clear error in time, and no hang. */
#include <arpa/inet.h>
#include <sys/socket.h>

#include "harness.h"

static ottla_error_t *producer_error(const char *options)
{
    ottla_error_t *error = NULL;
    ottla_producer_free(ottla_producer_new(options, &error));
    return error;
}

static void an_unknown_option_names_the_nearest(void)
{
    CHECK_ERROR(producer_error("bootstrap.servers=h:1;lingr.ms=5"), OTTLA_ERR_INVALID_OPTION,
                "linger.ms");
    ottla_error_t *error = producer_error("bootstrap.servers=h:1;lingr.ms=5");
    CHECK(!strcmp(ottla_error_name(error), "InvalidOption") && !ottla_error_retriable(error));
    CHECK(ottla_error_outcome(error) == OTTLA_OUTCOME_NONE && ottla_error_kafka_code(error) == 0);
    CHECK(ottla_error_hint(error) && strstr(ottla_error_hint(error), "linger.ms"));
    CHECK(!ottla_error_topic(error) && ottla_error_partition(error) == -1);
    CHECK(!ottla_error_broker(error) && !ottla_error_api(error) && !ottla_error_attempt(error));
    ottla_error_free(error);
}

static void a_value_of_the_wrong_type_is_refused(void)
{
    CHECK_ERROR(producer_error("bootstrap.servers=h:1;linger.ms=soon"), OTTLA_ERR_INVALID_OPTION,
                "milliseconds");
    CHECK_ERROR(producer_error("bootstrap.servers=h:1;acks=2"), OTTLA_ERR_INVALID_OPTION, "acks");
}

static void a_bad_address_is_refused(void)
{
    CHECK_ERROR(producer_error("bootstrap.servers=nowhere"), OTTLA_ERR_INVALID_OPTION, "nowhere");
    CHECK_ERROR(producer_error("bootstrap.servers=h:70000"), OTTLA_ERR_INVALID_OPTION, "70000");
}

/* An address on which nobody listens, nor will: it is taken until the program ends. */
static const char *deserted(void)
{
    static char address[64];
    struct sockaddr_in place;
    socklen_t size = sizeof place;
    memset(&place, 0, sizeof place);
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int taken = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(taken, (struct sockaddr *)&place, size) ||
        getsockname(taken, (struct sockaddr *)&place, &size)) {
        return "no address";
    }
    snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(place.sin_port));
    return address;
}

static void nobody_listening_is_told_in_time(void)
{
    char options[160];
    const char *topic = "orders", *address = deserted();
    ottla_delivery_t at;
    ottla_record_t record = record_of(topic, "v");
    snprintf(options, sizeof options, "bootstrap.servers=%s;max.block.ms=300", address);
    ottla_producer_t *producer = ottla_producer_new(options, NULL);
    ottla_error_t *error = ottla_producer_send_wait(producer, &record, SOON, &at);
    CHECK(error && ottla_error_retriable(error));
    CHECK(at.partition == -1 && at.offset == -1 && at.timestamp == -1);
    printf("nobody listening: %s: %s\n", ottla_error_name(error), ottla_error_message(error));
    ottla_error_free(error);
    ottla_error_free(ottla_producer_close(producer, 100));
    ottla_producer_free(producer);

    snprintf(options, sizeof options, "bootstrap.servers=%s;group.id=g", address);
    ottla_consumer_t *consumer = ottla_consumer_new(options, NULL);
    CHECK_OK(ottla_consumer_subscribe(consumer, &topic, 1));
    error = NULL;
    int64_t began = now_ms();
    while (!error && now_ms() - began < SOON) CHECK(!ottla_consumer_poll(consumer, 1000, &error));
    printf("nobody listening: %s: %s\n", ottla_error_name(error), ottla_error_message(error));
    CHECK(ottla_error_code(error) == OTTLA_ERR_CONNECT);
    CHECK(ottla_error_broker(error) && strstr(ottla_error_broker(error), address));
    ottla_error_free(error);
    ottla_error_free(ottla_consumer_close(consumer, 100));
    ottla_consumer_free(consumer);
}

static void an_unknown_topic_is_told(void)
{
    const char *topic = "nowhere";
    ottla_record_t record = record_of(topic, "v");
    ottla_broker_t *broker = ottla_broker_start("auto.create.topics.enable=false", NULL);
    ottla_error_t *error = NULL;
    /* A slow machine may not have asked for the topic before a short time is over. */
    for (int block = 300; block < 30000 && ottla_error_code(error) != OTTLA_ERR_UNKNOWN_TOPIC;
         block *= 4) {
        char added[32];
        snprintf(added, sizeof added, "max.block.ms=%d", block);
        ottla_error_free(error);
        ottla_producer_t *producer = ottla_producer_new(options_of(broker, added), NULL);
        error = ottla_producer_send_wait(producer, &record, SOON, NULL);
        ottla_error_free(ottla_producer_close(producer, 1000));
        ottla_producer_free(producer);
    }
    CHECK(ottla_error_code(error) == OTTLA_ERR_UNKNOWN_TOPIC);
    CHECK(ottla_error_outcome(error) == OTTLA_OUTCOME_NOT_SENT);
    CHECK(strstr(ottla_error_message(error), "nowhere"));
    ottla_error_free(error);
    ottla_broker_free(broker);
}

static void a_record_that_is_late_tells_its_place_and_how_often_it_was_tried(void)
{
    char told[64];
    ottla_broker_t *broker = ottla_broker_start(NULL, NULL);
    ottla_producer_t *producer = ottla_producer_new(
        options_of(broker, "delivery.timeout.ms=1500;request.timeout.ms=1000"), NULL);
    ottla_record_t record = record_of("orders", "v");
    CHECK(make_known(producer, &record));
    CHECK_OK(ottla_broker_stop(broker, SOON));
    ottla_error_t *error = ottla_producer_send_wait(producer, &record, SOON, NULL);
    CHECK(ottla_error_code(error) == OTTLA_ERR_DELIVERY_TIMEOUT);
    CHECK(!strcmp(ottla_error_topic(error), "orders") && ottla_error_partition(error) == 0);
    snprintf(told, sizeof told, "attempt %u after", (unsigned)ottla_error_attempt(error));
    CHECK(strstr(ottla_error_message(error), told));
    ottla_error_free(error);
    ottla_error_free(ottla_producer_close(producer, 1000));
    ottla_producer_free(producer);
    ottla_broker_free(broker);
}

static void a_record_too_large_is_refused(void)
{
    static char large[2 << 20];
    ottla_broker_t *broker = ottla_broker_start(NULL, NULL);
    ottla_producer_t *producer = ottla_producer_new(options_of(broker, ""), NULL);
    ottla_record_t record = OTTLA_RECORD("orders");
    record.value = OTTLA_BYTES(large, sizeof large);
    CHECK_ERROR(ottla_producer_send(producer, &record, NULL), OTTLA_ERR_RECORD_TOO_LARGE,
                "max.request.size");
    CHECK_OK(ottla_producer_close(producer, SOON));
    ottla_producer_free(producer);
    /* What the client lets pass, the broker may refuse. */
    producer = ottla_producer_new(options_of(broker, "max.request.size=4194304"), NULL);
    ottla_error_t *error = ottla_producer_send_wait(producer, &record, SOON, NULL);
    CHECK(ottla_error_code(error) == OTTLA_ERR_RECORD_TOO_LARGE);
    CHECK(ottla_error_outcome(error) == OTTLA_OUTCOME_REJECTED && ottla_error_kafka_code(error) == 10);
    CHECK(!strcmp(ottla_error_topic(error), "orders") && ottla_error_partition(error) == 0);
    CHECK(!strcmp(ottla_error_api(error), "Produce"));
    ottla_error_free(error);
    CHECK_OK(ottla_producer_close(producer, SOON));
    ottla_producer_free(producer);
    ottla_broker_free(broker);
}

static void a_partition_that_is_not_there_is_refused(void)
{
    ottla_broker_t *broker = ottla_broker_start(NULL, NULL);
    CHECK_OK(ottla_broker_create_topic(broker, "orders", 1));
    ottla_producer_t *producer = ottla_producer_new(options_of(broker, ""), NULL);
    ottla_record_t record = record_of("orders", "v");
    record.partition = 7;
    CHECK_ERROR(ottla_producer_send_wait(producer, &record, SOON, NULL),
                OTTLA_ERR_INVALID_PARTITION, "7");
    ottla_error_free(ottla_producer_close(producer, SOON));
    ottla_producer_free(producer);
    ottla_broker_free(broker);
}

static void a_folder_in_use_and_a_taken_port_are_told(void)
{
    char folder[] = "/tmp/ottla-c-XXXXXX", options[160];
    ottla_error_t *error = NULL;
    CHECK(mkdtemp(folder));
    snprintf(options, sizeof options, "data.dir=%s/data", folder);
    ottla_broker_t *first = ottla_broker_start(options, &error);
    CHECK(first && !error);
    CHECK(!ottla_broker_start(options, &error));
    CHECK_ERROR(error, OTTLA_ERR_BROKER, "in use");
    snprintf(options, sizeof options, "listen=%s", ottla_broker_address(first));
    CHECK(!ottla_broker_start(options, &error));
    CHECK_ERROR(error, OTTLA_ERR_BROKER, "cannot listen");
    CHECK_OK(ottla_broker_stop(first, SOON));
    ottla_broker_free(first);
    snprintf(options, sizeof options, "rm -r %s", folder);
    CHECK(system(options) == 0);
}

int main(void)
{
    static const struct test tests[] = {
        {"an unknown option names the nearest", an_unknown_option_names_the_nearest},
        {"a value of the wrong type is refused", a_value_of_the_wrong_type_is_refused},
        {"a bad address is refused", a_bad_address_is_refused},
        {"nobody listening is told in time", nobody_listening_is_told_in_time},
        {"an unknown topic is told", an_unknown_topic_is_told},
        {"a record that is late tells its place and how often it was tried",
         a_record_that_is_late_tells_its_place_and_how_often_it_was_tried},
        {"a record too large is refused", a_record_too_large_is_refused},
        {"a partition that is not there is refused", a_partition_that_is_not_there_is_refused},
        {"a folder in use and a taken port are told", a_folder_in_use_and_a_taken_port_are_told},
    };
    return RUN(tests);
}
