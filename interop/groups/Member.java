// A member of a group as Kafka's own client, for `cargo xtask interop groups`.
//
//   java Member HOST:PORT GROUP TOPIC STRATEGY STOP
//
// It prints `has 0 1 2` when its partitions change and `read VALUE` for each record, and closes once the file STOP exists.

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public final class Member {
    private static final Map<String, String> STRATEGIES = Map.of(
            "range", "org.apache.kafka.clients.consumer.RangeAssignor",
            "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
            "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
            "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private Member() {}

    public static void main(String[] arguments) throws Exception {
        Properties options = new Properties();
        options.put("bootstrap.servers", arguments[0]);
        options.put("group.id", arguments[1]);
        options.put("partition.assignment.strategy", STRATEGIES.get(arguments[3]));
        options.put("auto.offset.reset", "earliest");
        options.put("heartbeat.interval.ms", "200");
        options.put("session.timeout.ms", "10000");
        options.put("key.deserializer", StringDeserializer.class.getName());
        options.put("value.deserializer", StringDeserializer.class.getName());
        Path stop = Path.of(arguments[4]);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(options)) {
            consumer.subscribe(List.of(arguments[2]));
            TreeSet<Integer> before = null;
            while (!Files.exists(stop)) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(50))) {
                    System.out.println("read " + record.value());
                }
                TreeSet<Integer> has = new TreeSet<>();
                for (TopicPartition partition : consumer.assignment()) {
                    has.add(partition.partition());
                }
                if (!has.equals(before)) {
                    StringBuilder line = new StringBuilder("has");
                    has.forEach(number -> line.append(' ').append(number));
                    System.out.println(line);
                    before = has;
                }
            }
        }
    }
}
