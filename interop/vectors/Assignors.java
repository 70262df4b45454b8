// Groups shared out by Kafka's own assignors, and what a member of one says when it joins.
//
// A line `range TOPICS MEMBERS SHARES` (or `roundrobin`) is one group: topics as `name:partitions`, members as
// `id=topics` or `id/instance=topics`, shares as `id=partitions`. A line `subscription STRATEGY KIND BYTES` holds the
// metadata of a member before it was assigned anything, or afterwards, which stands in a rack (KIP-881) or says nothing
// of it.

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.StringJoiner;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

final class Assignors {
    private static final int GROUPS = 150;
    private static final int GENERATION = 7;

    private Assignors() {}

    static void write(StringBuilder out) {
        Random random = new Random(11);
        for (int group = 0; group < GROUPS; group++) {
            shareOut(out, random);
        }
        Racked.write(out);
        for (ConsumerPartitionAssignor assignor : List.of(
                new RangeAssignor(), new RoundRobinAssignor(), new StickyAssignor(),
                new CooperativeStickyAssignor())) {
            subscriptions(out, assignor);
        }
    }

    private static void shareOut(StringBuilder out, Random random) {
        Map<String, Integer> counts = new TreeMap<>();
        int topics = 1 + random.nextInt(4);
        for (int topic = 0; topic < topics; topic++) {
            counts.put("t" + topic, 1 + random.nextInt(8));
        }
        Map<String, Subscription> members = new TreeMap<>();
        boolean same = random.nextBoolean();
        int size = 1 + random.nextInt(5);
        for (int member = 0; member < size; member++) {
            TreeSet<String> wanted = new TreeSet<>();
            for (String topic : counts.keySet()) {
                if (same || random.nextBoolean()) {
                    wanted.add(topic);
                }
            }
            Subscription subscription = new Subscription(new ArrayList<>(wanted));
            if (random.nextInt(3) == 0) {
                subscription.setGroupInstanceId(Optional.of("i" + random.nextInt(1000)));
            }
            members.put((char) ('a' + random.nextInt(26)) + "" + member, subscription);
        }
        for (ConsumerPartitionAssignor assignor :
                List.of(new RangeAssignor(), new RoundRobinAssignor())) {
            Map<String, Assignment> shares = assignor.assign(cluster(counts), new GroupSubscription(members))
                    .groupAssignment();
            StringJoiner topicWords = new StringJoiner(";");
            counts.forEach((topic, count) -> topicWords.add(topic + ":" + count));
            StringJoiner memberWords = new StringJoiner(";");
            members.forEach((id, told) -> memberWords.add(id
                    + told.groupInstanceId().map(instance -> "/" + instance).orElse("")
                    + "=" + String.join(",", told.topics())));
            StringJoiner shareWords = new StringJoiner(";");
            new TreeMap<>(shares).forEach((id, share) -> shareWords.add(id + "=" + listed(share.partitions())));
            out.append(assignor.name()).append(' ').append(topicWords).append(' ');
            out.append(memberWords).append(' ').append(shareWords).append('\n');
        }
    }

    static String listed(List<TopicPartition> partitions) {
        List<TopicPartition> sorted = new ArrayList<>(partitions);
        sorted.sort((one, other) -> one.topic().equals(other.topic())
                ? one.partition() - other.partition()
                : one.topic().compareTo(other.topic()));
        StringJoiner words = new StringJoiner(",");
        sorted.forEach(partition -> words.add(partition.toString()));
        return words.toString();
    }

    private static Cluster cluster(Map<String, Integer> counts) {
        Node node = new Node(1, "localhost", 9092);
        List<PartitionInfo> partitions = new ArrayList<>();
        Node[] nodes = {node};
        counts.forEach((topic, count) -> {
            for (int partition = 0; partition < count; partition++) {
                partitions.add(new PartitionInfo(topic, partition, node, nodes, nodes));
            }
        });
        return new Cluster("c", List.of(node), partitions, Collections.emptySet(), Collections.emptySet());
    }

    private static void subscriptions(StringBuilder out, ConsumerPartitionAssignor assignor) {
        List<String> topics = List.of("a", "b");
        TreeSet<String> sorted = new TreeSet<>(topics);
        List<TopicPartition> owned = List.of(
                new TopicPartition("a", 0), new TopicPartition("a", 2), new TopicPartition("b", 1));
        line(out, assignor, "before", new Subscription(
                topics, assignor.subscriptionUserData(sorted), Collections.emptyList(), -1, Optional.empty()));
        assignor.onAssignment(new Assignment(owned), new ConsumerGroupMetadata("g", GENERATION, "m", Optional.empty()));
        boolean readsOn = assignor.supportedProtocols().contains(ConsumerPartitionAssignor.RebalanceProtocol.COOPERATIVE);
        for (Optional<String> rack : List.of(Optional.<String>empty(), Optional.of("east"))) {
            line(out, assignor, rack.isPresent() ? "in-rack" : "after", new Subscription(
                    topics, assignor.subscriptionUserData(sorted), readsOn ? owned : Collections.emptyList(),
                    GENERATION, rack));
        }
    }

    private static void line(
            StringBuilder out, ConsumerPartitionAssignor assignor, String kind, Subscription subscription) {
        ByteBuffer written = ConsumerProtocol.serializeSubscription(subscription);
        byte[] bytes = new byte[written.remaining()];
        written.get(bytes);
        out.append("subscription ").append(assignor.name()).append(' ').append(kind).append(' ');
        out.append(HexFormat.of().formatHex(bytes)).append('\n');
    }
}
